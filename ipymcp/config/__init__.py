"""Where servers come from. Pure but for reading files."""

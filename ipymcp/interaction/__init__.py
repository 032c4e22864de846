"""Questions to the user at a prompt."""

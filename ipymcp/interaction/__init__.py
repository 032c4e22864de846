"""Questions to the user: their records, their forms, and the prompts of a terminal."""

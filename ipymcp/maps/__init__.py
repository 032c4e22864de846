"""Maps: a call of one tool for every row of a table or list."""

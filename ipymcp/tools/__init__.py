"""The Python face: tools as functions, results as values."""

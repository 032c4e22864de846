"""The IPython extension: magics, Tab completion, displays in cells."""

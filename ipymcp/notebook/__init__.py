"""IPython and Jupyter: magics, completion, display."""

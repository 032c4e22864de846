"""The panel in a real browser, over real Jupyter servers: `make browser`."""

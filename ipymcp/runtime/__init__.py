"""The host: the servers of this notebook, alive."""

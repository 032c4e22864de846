"""The Model Context Protocol in the notebook: every tool of every MCP server is a Python function."""

__version__ = "0.1.0"

"""MCP on the wire. Knows nothing of notebooks, config files or policy."""

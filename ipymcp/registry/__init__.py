"""The MCP registry: its entries, the client that reads them, and the definitions that run them."""

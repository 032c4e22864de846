"""A server on the official SDK (`mcp` 2.x), as its documentation shows it: what most Python servers are."""

from mcp.server import MCPServer

server = MCPServer("official")


@server.tool()
def echo(text: str) -> str:
    """The text, unchanged."""
    return text


if __name__ == "__main__":
    server.run()

"""A server with an app on the official SDK that is installed, 1.x or 2.x, on stdio, or over HTTP with `--http PORT`.

What a client declares of the extension is in the result of `chart`.
"""

from __future__ import annotations

from typing import Any

from sdk_server import IS_FIRST, Context, MCPServer, run

UI = "io.modelcontextprotocol/ui"
PAGE = "<!doctype html><title>chart</title><p>of the server</p>"
server = MCPServer("apps")


def declared(ctx: Context) -> list[str]:
    """The types of pages that the client of this request can show."""
    if IS_FIRST:
        extensions: Any = getattr(ctx.session.client_params.capabilities, "extensions", None)
    else:
        extensions = ctx.session.client_capabilities.extensions
    return list((extensions or {}).get(UI, {}).get("mimeTypes", []))


@server.tool(meta={"ui": {"resourceUri": "ui://apps/chart"}})
def chart(ctx: Context) -> list[str]:
    """Show a chart."""
    return declared(ctx)


@server.tool(meta={"ui/resourceUri": "ui://apps/chart"})
def old_chart() -> str:
    """Show a chart, declared in the deprecated form."""
    return "old"


@server.tool(meta={"ui": {"visibility": ["app"]}})
def refresh() -> str:
    """Give new data to the app."""
    return "fresh"


@server.resource("ui://apps/chart", mime_type="text/html;profile=mcp-app", meta={"ui": {"prefersBorder": False}})
def chart_page() -> str:
    """The page of the chart."""
    return PAGE


if __name__ == "__main__":
    run(server, str(__doc__))

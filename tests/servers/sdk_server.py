"""A server on the official SDK that is installed, 1.x or 2.x: rich schemas, every kind of result, each transport.

python sdk_server.py              stdio
python sdk_server.py --http PORT  Streamable HTTP on 127.0.0.1, path /mcp; 0 picks a port. The first line on stderr
                                   is `http://127.0.0.1:PORT/mcp`
python sdk_server.py --http PORT --json            the same, answering by JSON rather than by a stream where it can
python sdk_server.py --sse PORT                    HTTP+SSE of 2024-11-05, path /sse, announced in the same way
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import socket
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

try:
    from mcp.server.mcpserver import Context, Image, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    IS_FIRST = False
except ImportError:
    from mcp.server.fastmcp import Context, Image
    from mcp.server.fastmcp import FastMCP as MCPServer
    from mcp.server.fastmcp.exceptions import ToolError
    from mcp.server.lowlevel import NotificationOptions
    from mcp.server.stdio import stdio_server

    IS_FIRST = True

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette

ABOUT = "Tools with rich schemas, on the official SDK {}.x."
server = MCPServer("sdk1" if IS_FIRST else "sdk2", instructions=ABOUT.format(1 if IS_FIRST else 2))
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Point(BaseModel):
    """A place on the map."""

    x: float
    y: float
    label: str | None = Field(default=None, description="What is there.")


class Route(BaseModel):
    """Points in order."""

    name: str
    points: list[Point] = Field(min_length=1)
    closed: bool = False


class Trip(BaseModel):
    """What became of a route."""

    name: str
    length: float
    stops: list[Point]


@server.tool()
def echo(text: str) -> str:
    """Give the text back."""
    return text


def called_by_alias(function: Callable[..., object]) -> Callable[..., object]:
    """The SDK passes arguments under their names on the wire, which are not Python names here."""

    @functools.wraps(function)
    def call(**arguments: object) -> object:
        names = {"max-results": "max_results", "from": "since"}
        return function(**{names.get(name, name): value for name, value in arguments.items()})

    return call


@server.tool()
@called_by_alias
def search(
    query: Annotated[str, Field(description="What to look for.", min_length=1)],
    max_results: Annotated[int, Field(alias="max-results", ge=1, le=100)] = 10,
    since: Annotated[str | None, Field(alias="from", description="A year or a date.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    tags: list[str] | None = None,
    weights: dict[str, float] | None = None,
    exact: bool = False,
    near: int | str | None = None,
) -> dict[str, object]:
    """Every kind of optional argument, and two names that are not Python identifiers."""
    return {
        "query": query,
        "max-results": max_results,
        "from": since,
        "order": order,
        "tags": tags,
        "weights": weights,
        "exact": exact,
        "near": near,
    }


@server.tool()
def travel(route: Route, speed: float = 1.0) -> Trip:
    """A nested model in, a model out."""
    points = [*route.points, *(route.points[:1] if route.closed else [])]
    pairs = pairwise(points)
    length = sum(((a.x - b.x) ** 2 + (a.y - b.y) ** 2) ** 0.5 for a, b in pairs)
    return Trip(name=route.name, length=length / speed, stops=points)


@server.tool()
def numbers(count: int = 3) -> list[int]:
    """A list, which the SDK may wrap in `{"result": ...}`."""
    return list(range(count))


@server.tool()
def add(a: int, b: int) -> int:
    """A scalar, which the SDK may wrap in `{"result": ...}`."""
    return a + b


@server.tool()
def record(key: str, value: float) -> dict[str, float]:
    """A dict of numbers."""
    return {key: value}


@server.tool()
def pixel() -> Image:
    """An image of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def fail(message: str = "it broke") -> str:
    """Fail with this message."""
    raise ToolError(message)


@server.tool()
def crash() -> str:
    """Raise an unexpected error."""
    raise ZeroDivisionError("division by zero")


@server.tool()
async def slow(ctx: Context, seconds: float = 1.0, steps: int = 5) -> str:
    """Take some time, report progress, log the end."""
    for step in range(1, steps + 1):
        await asyncio.sleep(seconds / steps)
        await ctx.report_progress(step, steps, f"step {step} of {steps}")
    await ctx.info(f"{steps} steps done")
    return f"{steps} steps"


@server.tool()
async def log(ctx: Context, message: str, level: Literal["debug", "info", "warning", "error"] = "info") -> str:
    """Send a log message."""
    await ctx.log(level, message)
    return level


@server.resource("note://readme", mime_type="text/markdown")
def readme() -> str:
    """A page."""
    return "# Read me"


@server.resource("note://{name}", mime_type="application/json")
def note(name: str) -> dict[str, str]:
    """A note of that name."""
    return {"name": name}


@server.resource("note://pixel", mime_type="image/png")
def pixel_file() -> bytes:
    """An image of one pixel."""
    return PIXEL


@server.prompt()
def greet(name: str, tone: str = "plain") -> str:
    """Ask for a greeting."""
    return f"Greet {name} in a {tone} tone."


@server.tool()
async def grow(ctx: Context, name: str) -> str:
    """Add a tool of this name while running, and say that the list has changed."""

    def grown() -> str:
        return name

    server.add_tool(grown, name=name, description=f"Says {name}.")
    await announce(ctx)
    return name


@server.tool()
async def shrink(ctx: Context, name: str) -> str:
    """Remove the tool of this name while running, and say that the list has changed."""
    server.remove_tool(name)
    await announce(ctx)
    return name


async def announce(ctx: Context) -> None:
    """To the subscribers of the stateless era, and to a client of the handshake era."""
    if not IS_FIRST:
        await ctx.notify_tools_changed()
    if IS_FIRST or (ctx.protocol_version or "") < "2026-07-28":
        await ctx.session.send_tool_list_changed()


async def serve_stdio() -> None:
    """Serve on stdio, declaring that the list of tools changes, which `run` of the SDK 1.x does not."""
    lowlevel = server._mcp_server
    options = lowlevel.create_initialization_options(NotificationOptions(tools_changed=True))
    async with stdio_server() as (read, write):
        await lowlevel.run(read, write, options)


def serve(port: int, path: str, app: Starlette) -> None:
    """Serve on a loopback port, announced once it is open."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", port))
    sys.stderr.write(f"http://127.0.0.1:{listener.getsockname()[1]}{path}\n")
    sys.stderr.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def run(server: Any, about: str) -> None:
    """Serve another server of the same SDK on stdio, or over HTTP with `--http PORT`."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", type=int, metavar="PORT")
    options = parser.parse_args()
    if options.http is None:
        server.run("stdio")
    else:
        serve(options.http, "/mcp", server.streamable_http_app())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--http", type=int, metavar="PORT")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--sse", type=int, metavar="PORT")
    options = parser.parse_args()
    if options.http is not None:
        if IS_FIRST:
            server.settings.json_response = options.json
        more = {} if IS_FIRST else {"json_response": options.json}
        serve(options.http, "/mcp", server.streamable_http_app(**more))
    elif options.sse is not None:
        serve(options.sse, "/sse", server.sse_app())
    elif IS_FIRST:
        asyncio.run(serve_stdio())
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()

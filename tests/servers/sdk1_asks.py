"""A server on the official SDK 1.x whose tools ask the client for everything, stdio or Streamable HTTP.

python sdk1_asks.py              stdio
python sdk1_asks.py --http PORT  Streamable HTTP on 127.0.0.1, path /mcp; 0 picks a port. The first line on stderr is
                                 `http://127.0.0.1:PORT/mcp`
"""

from __future__ import annotations

import asyncio
from typing import Any

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel, Field
from sdk_server import run

server = FastMCP("sdk1-asks")


class Person(BaseModel):
    name: str = Field(description="Yours.")
    age: int = Field(default=30, ge=0)


@server.tool()
async def ask_form(ctx: Context, message: str = "Who are you?") -> str:
    """Ask the user to fill in a form."""
    answer: Any = await ctx.elicit(message, Person)
    return f"{answer.data.name} is {answer.data.age}" if answer.action == "accept" else answer.action


@server.tool()
async def ask_url(ctx: Context) -> str:
    """Ask the user to visit a page."""
    answer = await ctx.elicit_url("Please log in.", "https://example.com/login?state=1", "login-1")
    return answer.action


@server.tool()
async def ask_model(ctx: Context, question: str = "What is the capital of France?") -> str:
    """Ask the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=question))
    answer: Any = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
    return f"{answer.model}: {answer.content.text}"


@server.tool()
async def ask_roots(ctx: Context) -> str:
    """Ask for the client's folders."""
    answer = await ctx.session.list_roots()
    return ", ".join(str(root.uri) for root in answer.roots)


@server.tool()
async def ask_in_time(ctx: Context, seconds: float) -> str:
    """Ask the user, and withdraw the question after some seconds."""
    asking = asyncio.ensure_future(ctx.elicit("Quick!", Person))
    try:
        answer = await asyncio.wait_for(asking, seconds)
    except TimeoutError:
        return "too late"
    return answer.action


if __name__ == "__main__":
    run(server, __doc__)

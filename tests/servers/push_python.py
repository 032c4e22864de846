"""A server on the official Python SDK 2.x that asks its user for something in the middle of a call."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("pushing")


class Name(BaseModel):
    name: str


async def name(ctx: Context) -> str:
    return f"you are {(await ctx.elicit('Your name?', Name)).data.name}"  # type: ignore[union-attr]


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def ask(ctx: Context) -> str:
    """Ask, and change nothing."""
    return await name(ctx)


@server.tool()
async def ask_and_write(ctx: Context) -> str:
    """Ask, and say nothing of what is changed."""
    return await name(ctx)


server.run()

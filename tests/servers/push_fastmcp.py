"""A server on fastmcp that asks its user for something in the middle of a call."""

from __future__ import annotations

from fastmcp import Context, FastMCP

server = FastMCP("pushing")


async def name(ctx: Context) -> str:
    return f"you are {(await ctx.elicit('Your name?', response_type=str)).data}"  # type: ignore[union-attr]


@server.tool(annotations={"readOnlyHint": True})
async def ask(ctx: Context) -> str:
    """Ask, and change nothing."""
    return await name(ctx)


@server.tool
async def ask_and_write(ctx: Context) -> str:
    """Ask, and say nothing of what is changed."""
    return await name(ctx)


server.run(show_banner=False)

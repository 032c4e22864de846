"""A server whose tools ask the client: on fastmcp, or the official SDK 1.x or 2.x, whichever is installed.

python sdk_asks.py              stdio
python sdk_asks.py --http PORT  Streamable HTTP on 127.0.0.1, path /mcp (the official SDKs)

On the SDK 1.x, and in `push`, `ask` and `ask_and_write`, a question is a request in the middle of the call. The other
tools on the SDK 2.x leave it to the era of the connection: a request, or a round of input.
"""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Annotated, Any

from pydantic import BaseModel, Field
from sdk_server import IS_FIRST, MCPServer, run

IS_FASTMCP = find_spec("fastmcp") is not None
if IS_FASTMCP:
    from fastmcp import Context, FastMCP
else:
    from sdk_server import Context
if IS_FIRST:
    from mcp.types import SamplingMessage, TextContent, ToolAnnotations
else:
    from mcp.server.mcpserver import ListRoots, Resolve, Sample
    from mcp.server.mcpserver.resolve import Elicit
    from mcp_types import (
        CreateMessageResult,
        ElicitRequest,
        ElicitRequestURLParams,
        InputRequiredResult,
        ListRootsRequest,
        ListRootsResult,
        SamplingMessage,
        TextContent,
        ToolAnnotations,
    )

server: Any = FastMCP("asks") if IS_FASTMCP else MCPServer("asks")
STATE = "sealed-by-the-server"
LOGIN = {"message": "Please log in.", "url": "https://example.com/login?state=1"}
CAPITAL = SamplingMessage(role="user", content=TextContent(type="text", text="What is the capital of France?"))


class Name(BaseModel):
    name: str


class Person(BaseModel):
    name: str = Field(description="Yours.")
    age: int = Field(default=30, ge=0)


async def ask_person(ctx: Context, message: str = "Who are you?") -> str:
    """Ask the user to fill in a form."""
    answer: Any = await ctx.elicit(message, Person)
    return f"{answer.data.name} is {answer.data.age}" if answer.action == "accept" else answer.action


@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
async def ask(ctx: Context) -> str:
    """Ask, and change nothing."""
    answer: Any = await ctx.elicit("Your name?", Name)
    return f"you are {answer.data.name}"


@server.tool()
async def ask_and_write(ctx: Context) -> str:
    """Ask, and say nothing of what is changed."""
    return await ask(ctx)


if IS_FIRST:
    server.tool("ask_form")(ask_person)

    @server.tool()
    async def ask_url(ctx: Context) -> str:
        """Ask the user to visit a page."""
        answer = await ctx.elicit_url(**LOGIN, elicitation_id="login-1")
        return answer.action

    @server.tool()
    async def ask_model(ctx: Context) -> str:
        """Ask the client's model."""
        answer: Any = await ctx.session.create_message([CAPITAL], max_tokens=100, related_request_id=ctx.request_id)
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

elif not IS_FASTMCP:

    def person_question() -> Elicit[Person]:
        return Elicit("Who are you?", Person)

    def capital_question() -> Sample:
        return Sample([CAPITAL], max_tokens=100)

    def roots_question() -> ListRoots:
        return ListRoots()

    AskedPerson = Annotated[Person, Resolve(person_question)]
    AskedModel = Annotated[CreateMessageResult, Resolve(capital_question)]
    AskedRoots = Annotated[ListRootsResult, Resolve(roots_question)]
    NEEDS_ROOTS = {"roots": ListRootsRequest()}

    @server.tool()
    def ask_form(person: AskedPerson) -> str:
        """Ask the user to fill in a form."""
        return f"{person.name} is {person.age}"

    @server.tool()
    def ask_model(answer: AskedModel) -> str:
        """Ask the client's model."""
        content: Any = answer.content
        return f"{answer.model}: {content.text}"

    @server.tool()
    def ask_roots(answer: AskedRoots) -> str:
        """Ask for the client's folders."""
        return ", ".join(str(root.uri) for root in answer.roots)

    @server.tool()
    def ask_all(person: AskedPerson, answer: AskedModel, roots: AskedRoots) -> str:
        """Ask for all of it at once."""
        content: Any = answer.content
        return f"{person.name}, {content.text}, {len(roots.roots)} roots"

    @server.tool()
    async def ask_url(ctx: Context) -> str | InputRequiredResult:
        """Ask the user to visit a page."""
        if (ctx.protocol_version or "") < "2026-07-28":
            return (await ctx.elicit_url(**LOGIN, elicitation_id="login-1")).action
        if ctx.input_responses is None:
            params = ElicitRequestURLParams(**LOGIN)
            return InputRequiredResult(input_requests={"login": ElicitRequest(params=params)})
        answer: Any = ctx.input_responses["login"]
        return answer.action

    @server.tool()
    async def ask_forever(ctx: Context) -> InputRequiredResult:
        """Ask for the client's folders in every round."""
        return InputRequiredResult(input_requests=NEEDS_ROOTS, request_state=STATE)

    @server.tool()
    async def count_rounds(ctx: Context, rounds: int = 3) -> str | InputRequiredResult:
        """Ask for nothing, so many times, and report progress in each round."""
        done = int(ctx.request_state or "0")
        await ctx.report_progress(done, rounds)
        return InputRequiredResult(request_state=str(done + 1)) if done < rounds else f"{done} rounds"

    server.tool("push", description="Ask as in the handshake era, whatever the era.")(ask_person)

    @server.prompt()
    async def greeting(ctx: Context) -> str | InputRequiredResult:
        """A prompt that asks for the client's folders first."""
        if ctx.input_responses is None:
            return InputRequiredResult(input_requests=NEEDS_ROOTS)
        answer: Any = ctx.input_responses["roots"]
        return f"Hello from {answer.roots[0].uri}"

    @server.resource("greeting://{name}")
    async def greeting_of(name: str, ctx: Context) -> str | InputRequiredResult:
        """A resource that asks for the client's folders first."""
        if ctx.input_responses is None:
            return InputRequiredResult(input_requests=NEEDS_ROOTS, request_state=STATE)
        answer: Any = ctx.input_responses["roots"]
        return f"{name} from {answer.roots[0].uri}, {ctx.request_state == STATE}"


if __name__ == "__main__":
    if IS_FASTMCP:
        server.run(show_banner=False)
    else:
        run(server, str(__doc__))

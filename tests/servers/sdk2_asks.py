"""A server on the official SDK 2.x whose tools ask the client for everything, in both eras, stdio or Streamable HTTP.

python sdk2_asks.py              stdio
python sdk2_asks.py --http PORT  Streamable HTTP on 127.0.0.1, path /mcp; 0 picks a port. The first line on stderr is
                                 `http://127.0.0.1:PORT/mcp`
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context, ListRoots, MCPServer, Resolve, Sample
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
)
from pydantic import BaseModel, Field
from sdk_server import run

server = MCPServer("sdk2-asks")
SECRET = "sealed-by-the-server"


class Person(BaseModel):
    name: str = Field(description="Yours.")
    age: int = Field(default=30, ge=0)


def who() -> Elicit[Person]:
    return Elicit("Who are you?", Person)


def capital() -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="What is the capital of France?"))
    return Sample([message], max_tokens=100)


def folders() -> ListRoots:
    return ListRoots()


@server.tool()
def ask_form(person: Annotated[Person, Resolve(who)]) -> str:
    """Ask the user to fill in a form."""
    return f"{person.name} is {person.age}"


@server.tool()
def ask_model(answer: Annotated[CreateMessageResult, Resolve(capital)]) -> str:
    """Ask the client's model."""
    content: Any = answer.content
    return f"{answer.model}: {content.text}"


@server.tool()
def ask_roots(answer: Annotated[ListRootsResult, Resolve(folders)]) -> str:
    """Ask for the client's folders."""
    return ", ".join(str(root.uri) for root in answer.roots)


@server.tool()
def ask_all(
    person: Annotated[Person, Resolve(who)],
    answer: Annotated[CreateMessageResult, Resolve(capital)],
    roots: Annotated[ListRootsResult, Resolve(folders)],
) -> str:
    """Ask for all of it at once."""
    content: Any = answer.content
    return f"{person.name}, {content.text}, {len(roots.roots)} roots"


@server.tool()
async def ask_url(ctx: Context) -> str | InputRequiredResult:
    """Ask the user to visit a page."""
    if (ctx.protocol_version or "") < "2026-07-28":
        return (await ctx.elicit_url("Please log in.", "https://example.com/login?state=1", "login-1")).action
    if ctx.input_responses is None:
        params = ElicitRequestURLParams(message="Please log in.", url="https://example.com/login?state=1")
        return InputRequiredResult(input_requests={"login": ElicitRequest(params=params)})
    answer: Any = ctx.input_responses["login"]
    return answer.action


@server.tool()
async def ask_for_ever(ctx: Context) -> str | InputRequiredResult:
    """Ask for the client's folders in every round."""
    return InputRequiredResult(input_requests={"roots": ListRootsRequest()}, request_state=SECRET)


@server.tool()
async def count_rounds(ctx: Context, rounds: int = 3) -> str | InputRequiredResult:
    """Ask for nothing, so many times, and report progress in each round."""
    done = int(ctx.request_state or "0")
    await ctx.report_progress(done, rounds)
    return InputRequiredResult(request_state=str(done + 1)) if done < rounds else f"{done} rounds"


@server.tool()
async def push(ctx: Context) -> str:
    """Ask as in the handshake era, whatever the era."""
    answer: Any = await ctx.elicit("Who are you?", Person)
    return f"{answer.data.name} is {answer.data.age}" if answer.action == "accept" else answer.action


@server.prompt()
async def greeting(ctx: Context) -> str | InputRequiredResult:
    """A prompt that asks for the client's folders first."""
    if ctx.input_responses is None:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()})
    answer: Any = ctx.input_responses["roots"]
    return f"Hello from {answer.roots[0].uri}"


@server.resource("greeting://{name}")
async def greeting_of(name: str, ctx: Context) -> str | InputRequiredResult:
    """A resource that asks for the client's folders first."""
    if ctx.input_responses is None:
        return InputRequiredResult(input_requests={"roots": ListRootsRequest()}, request_state=SECRET)
    answer: Any = ctx.input_responses["roots"]
    return f"{name} from {answer.roots[0].uri}, {ctx.request_state == SECRET}"


if __name__ == "__main__":
    run(server, __doc__)

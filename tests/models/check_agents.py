"""Selections of tools in libraries for agents: run by test_model_libraries.py.

python -m pytest -p no:cacheprovider check_agents.py, in the environment `agents`; DEMO and MAIL name servers, MODELS is
the address of scripted models.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import agents
import boto3
import dspy
import magentic
import ollama
import openai
import pytest
import smolagents
from dspy.utils.dummies import DummyLM
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool
from magentic.chat_model.base import ChatModel
from magentic.chat_model.function_schema import FunctionCallFunctionSchema
from magentic.chat_model.message import AssistantMessage

import ipymcp
from ipymcp import Mcp

READ, SEND = 'mail__read({"text": "a page"})', 'mail__send({"to": "eve"})'
REFUSED = (
    "Not done: needs your consent because the model has read untrusted content from mail.read, and no one answered"
)
URL = os.environ["MODELS"] + "/v1"


@pytest.fixture
def mcp(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mcp]:
    monkeypatch.setenv("IPYMCP_STATE_DIR", str(tmp_path))
    demo = {"command": sys.executable, "args": ["-I", "-S", os.environ["DEMO"]]}
    mail = {"command": sys.executable, "args": [os.environ["MAIL"]]}
    with ipymcp.connect({"demo": demo, "mail": mail}) as mcp:
        mcp.policy.allow("*")
        yield mcp


def price(symbol: str, days: int = 0) -> float:
    """The price of a share.

    Args:
        symbol: Of the share.
        days: How many days ago.
    """
    return 12.5 + days


# -- LangChain --------------------------------------------------------------------------------------------------------


class Scripted(BaseChatModel):
    """Requests the calls of each answer, one answer after the other, then repeats the last message."""

    answers: list[list[dict[str, Any]]]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, stop: Any = None, **_: Any) -> Any:
        return {"ls_provider": "acme", "ls_model_name": "scripted-1"}

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
        calls = self.answers.pop(0) if self.answers else []
        numbered = [{**one, "id": f"{len(self.answers)}-{index}"} for index, one in enumerate(calls)]
        message = AIMessage("" if calls else str(messages[-1].content), tool_calls=numbered)
        return ChatResult(generations=[ChatGeneration(message=message)])


def requested(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "args": arguments, "type": "tool_call"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_langchain_agent_is_doubted_after_its_model_received_a_result(mcp: Mcp, is_async: bool) -> None:
    tools = mcp.tools("mail.*").to_langchain()
    read, send = requested("mail__read", text="a page"), requested("mail__send", to="eve")
    agent = create_agent(Scripted(answers=[[read, send], [send]]), tools, checkpointer=InMemorySaver())
    asked = {"messages": [("user", "hey")]}, {"configurable": {"thread_id": "1"}}

    state = asyncio.run(agent.ainvoke(*asked)) if is_async else agent.invoke(*asked)

    read_result, sent, refused = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    assert (read_result.content, sent.content) == ("a page", "sent")
    assert refused.content.startswith(REFUSED)
    assert refused.status == "error"
    rows = mcp.history(limit=3).entries
    assert {(row.model, row.provider, row.caller) for row in rows} == {("scripted-1", "acme", "model")}
    others = {tool.name: tool for tool in mcp.tools("mail.*").to_langchain()}
    assert others["mail__send"].invoke({"to": "eve"}) == "sent", "another conversation"


def test_calls_of_one_answer_in_a_row_have_not_read_each_others_results(mcp: Mcp) -> None:
    tools = {tool.name: tool for tool in mcp.tools("mail.*").to_langchain()}
    read, send = requested("mail__read", text="a page"), requested("mail__send", to="eve")
    model = Scripted(answers=[[read, send], [send]])

    first, second = (
        [tools[call["name"]].invoke(call).content for call in model.invoke("hey").tool_calls] for _ in range(2)
    )

    assert first == ["a page", "sent"]
    assert second[0].startswith(REFUSED)
    assert tools["mail__send"].invoke({"to": "eve"}).startswith(REFUSED), "of an unknown model"


def test_langchain_gets_the_whole_result_as_an_artifact_and_the_annotations_as_metadata(mcp: Mcp) -> None:
    tools = {tool.name: tool for tool in (mcp.tools("demo.*") + [price]).to_langchain()}
    query = tools["demo__query"]

    message = query.invoke({**requested("demo__query", table="penguins", limit=2), "id": "c1"})

    assert message.artifact["structuredContent"] == json.loads(message.content)
    assert [one["type"] for one in message.artifact["content"]] == ["text"]
    assert query.metadata == {"server": "demo", "tool": "query", **mcp.demo.query.annotations}
    assert query.metadata["readOnlyHint"] is True
    failed = tools["demo__fail"].invoke({**requested("demo__fail"), "id": "c2"})
    assert (failed.status, failed.content, failed.artifact) == ("error", "This tool always fails.", None)
    assert tools["price"].invoke({**requested("price", symbol="ACME"), "id": "c3"}).content == "12.5"


# -- OpenAI Agents ----------------------------------------------------------------------------------------------------


def test_openai_agents_are_doubted_after_their_model_received_a_result(mcp: Mcp) -> None:
    agents.set_tracing_disabled(disabled=True)
    client = openai.AsyncOpenAI(base_url=URL, api_key="k")
    model = agents.OpenAIChatCompletionsModel(model="tools", openai_client=client)
    agent = agents.Agent("test", tools=mcp.tools.to_openai_agents(), model=model)

    async def ask(prompt: str) -> str:
        result = agents.Runner.run_streamed(agent, prompt)  # the scripted models stream
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    assert asyncio.run(ask(f"{READ} {SEND}")) == "They answered: a page | sent"
    assert asyncio.run(ask(SEND)).startswith(f"They answered: {REFUSED}")
    failed = "They answered: This tool always fails. | Error: no argument 'words'"
    assert asyncio.run(ask('demo__fail({}) demo__echo({"words": "hey"})')).startswith(failed)
    assert mcp.history(limit=1).entries[0].model == "tools"


def test_openai_agents_get_images_where_their_model_takes_them(mcp: Mcp) -> None:
    tools = {tool.name: tool for tool in mcp.tools("demo.plot").to_openai_agents(images=True)}
    context = agents.tool_context.ToolContext(None, tool_name="demo__plot", tool_call_id="c1", tool_arguments="{}")

    text, image = asyncio.run(tools["demo__plot"].on_invoke_tool(context, "{}"))

    assert image.image_url.startswith("data:image/png;base64,")
    assert text.text
    (plain,) = mcp.tools("demo.plot").to_openai_agents()[:1]
    assert asyncio.run(plain.on_invoke_tool(context, "{}")).endswith("bytes]")
    assert plain.params_json_schema["properties"]["kind"]["enum"] == ["bar", "scatter"]
    assert asyncio.run(plain.on_invoke_tool(context, "{")).startswith("Error: the arguments are not valid JSON")


# -- smolagents -------------------------------------------------------------------------------------------------------


class SmolModel(smolagents.Model):
    """Answers with the texts or calls of a script."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(model_id="scripted")
        self.answers = list(answers)

    def generate(self, messages: Any, **_: Any) -> smolagents.ChatMessage:
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            return smolagents.ChatMessage("assistant", answer)
        calls = [
            {"id": str(at), "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(answer)
        ]
        return smolagents.ChatMessage("assistant", "", calls)


def observed(agent: Any) -> list[str]:
    return [str(getattr(step, "observations", None) or getattr(step, "error", "")) for step in agent.memory.steps[1:]]


def test_smolagents_call_tools_and_report_failures(mcp: Mcp) -> None:
    tools = (mcp.tools("demo.*", "mail.*") + [price]).to_smolagents()
    script = (
        [("mail__read", {"text": "a page"})],
        [("mail__send", {"to": "eve"})],
        [("demo__plot", {"kind": "bar"})],
        [("price", {"symbol": "ACME"})],
        [("final_answer", {"answer": "done"})],
    )
    agent = smolagents.ToolCallingAgent(tools, SmolModel(*script), verbosity_level=0)

    assert agent.run("hey") == "done"

    read, refused, plot, cost, _ = observed(agent)
    assert (read, cost) == ("a page", "12.5")
    assert REFUSED in refused
    assert plot.endswith("bytes]")
    declared = smolagents.models.get_tool_json_schema(agent.tools["demo__plot"])["function"]["parameters"]
    assert (declared["properties"]["kind"]["enum"], declared["required"]) == (["bar", "scatter"], [])


def test_smolagents_code_calls_tools_by_position_and_name(mcp: Mcp) -> None:
    code = '<code>\nfinal_answer(demo__echo("hey") + demo__echo(text="you"))\n</code>'
    agent = smolagents.CodeAgent(mcp.tools("demo.echo").to_smolagents(), SmolModel(code), verbosity_level=0)

    assert agent.run("hey") == "heyyou"


def test_smolagents_takes_every_schema(mcp: Mcp) -> None:
    def pick(at: int | str, more: dict[str, int | None] | None = None, way: Any = None) -> str:
        """Pick."""
        return f"{at} {more} {way}"

    tools = {tool.name: tool for tool in (mcp.tools + [pick]).to_smolagents()}

    assert {name: one["type"] for name, one in tools["pick"].inputs.items()} == {
        "at": ["integer", "string"],
        "more": ["object", "null"],
        "way": "any",
    }
    assert tools["pick"](at=3) == "3 None None"


# -- LlamaIndex -------------------------------------------------------------------------------------------------------


def test_llama_index_calls_tools_and_reports_failures(mcp: Mcp) -> None:
    tools = (mcp.tools("demo.*", "mail.*") + [price]).to_llama_index()
    script = [
        [("mail__read", {"text": "a page"})],
        [("mail__send", {"to": "eve"})],
        [("demo__fail", {})],
        [("price", {"symbol": "ACME", "days": 1})],
    ]

    def answer(messages: Any, **_: Any) -> ChatMessage:
        calls = script.pop(0) if script else []
        blocks = [ToolCallBlock(tool_call_id=name, tool_name=name, tool_kwargs=given) for name, given in calls]
        return ChatMessage(role="assistant", blocks=blocks or [TextBlock(text="done")])

    async def run() -> Any:
        return await FunctionAgent(tools=tools, llm=MockFunctionCallingLLM(response_generator=answer)).run("hey")

    result = asyncio.run(run())

    outputs = [one.tool_output for one in result.tool_calls]
    assert [one.content for one in outputs[::2]] == ["a page", "This tool always fails."]
    assert outputs[1].content.startswith(REFUSED)
    assert [one.is_error for one in outputs] == [False, True, True, False]
    assert outputs[3].content == "13.5"
    named = {tool.metadata.name: tool for tool in tools}
    declared = named["demo__plot"].metadata.to_openai_tool()["function"]["parameters"]
    assert declared["properties"]["kind"]["enum"] == ["bar", "scatter"]
    assert named["demo__echo"].call(text="hey").raw_output.text == "hey"


# -- Bedrock ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def bedrock() -> Iterator[Any]:
    """The real client, with a provider that asks for two calls."""
    uses = [
        {"toolUse": {"toolUseId": "u1", "name": "demo__echo", "input": {"text": "hey"}}},
        {"toolUse": {"toolUseId": "u2", "name": "demo__fail", "input": {}}},
    ]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None: ...

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = [{"text": "done"}] if len(sent["messages"]) > 1 else uses
            answer = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "tool_use"}
            body = json.dumps({**answer, "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    session = boto3.Session("a", "b", region_name="eu-west-1")
    yield session.client("bedrock-runtime", endpoint_url=f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def test_bedrock(mcp: Mcp, bedrock: Any) -> None:
    tools = mcp.tools + [price]
    messages = [{"role": "user", "content": [{"text": "hey"}]}]
    about = {"modelId": "acme.model-1", "toolConfig": {"tools": tools.to_bedrock()}}

    response = bedrock.converse(messages=messages, **about)
    messages.append(response["output"]["message"])
    messages += tools.run(response)

    results = [one["toolResult"] for one in messages[-1]["content"]]
    assert [(one["toolUseId"], one["status"], one["content"][0]["text"]) for one in results] == [
        ("u1", "success", "hey"),
        ("u2", "error", "This tool always fails."),
    ]
    done = bedrock.converse(messages=messages, **about)
    assert tools.run(done) == []
    assert mcp.history(limit=1).entries[0].provider == "bedrock"
    kept = [{*one["toolSpec"]["inputSchema"]["json"]} for one in tools.to_bedrock()]
    assert {word for words in kept for word in words} <= {"type", "properties", "required"}


# -- Ollama -----------------------------------------------------------------------------------------------------------


def test_ollama(mcp: Mcp) -> None:
    function = ollama.Message.ToolCall.Function(name="demo__echo", arguments={"text": "hey"})
    message = ollama.Message(role="assistant", tool_calls=[ollama.Message.ToolCall(function=function)])

    results = mcp.tools.run(ollama.ChatResponse(model="llama", message=message))

    assert results == [{"role": "tool", "tool_name": "demo__echo", "content": "hey"}]
    ollama.Message.model_validate(results[0])
    assert (
        mcp.tools.run(ollama.ChatResponse(model="llama", message=ollama.Message(role="assistant", content="x"))) == []
    )
    (row,) = mcp.history(limit=1).entries
    assert (row.model, row.provider) == ("llama", "ollama")
    assert mcp.tools.run(message) == results
    declared = ollama._utils.convert_function_to_tool(mcp.tools("demo.plot").to_functions()[0])
    assert declared.function.name == "demo__plot"


# -- functions, for libraries that take functions ----------------------------------------------------------------------


class MagenticModel(ChatModel):
    """Calls a function, then repeats its result."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self.name, self.arguments = name, arguments

    def complete(self, messages: Any, functions: Any = None, output_types: Any = None, *, stop: Any = None) -> Any:
        if messages[-1].content != "hey":
            return AssistantMessage(str(messages[-1].content))
        function = {one.__name__: one for one in functions}[self.name]
        return AssistantMessage(FunctionCallFunctionSchema(function).parse_args(json.dumps(self.arguments)))

    async def acomplete(self, *given: Any, **more: Any) -> Any:
        return self.complete(*given, **more)


def test_magentic_takes_functions_and_tools(mcp: Mcp) -> None:
    def result(functions: list[Any], name: str, **arguments: Any) -> str:
        @magentic.prompt_chain("hey", functions=functions, model=MagenticModel(name, **arguments))
        def ask() -> str: ...

        return ask()

    functions = mcp.tools.to_functions()
    assert result(functions, "demo__echo", text="hey you") == "hey you"
    assert result(functions, "demo__fail") == "This tool always fails."
    assert result([mcp.demo.echo], "echo", text="hey you") == "hey you", "a tool itself"
    (plot,) = [one for one in functions if one.__name__ == "demo__plot"]
    declared = FunctionCallFunctionSchema(plot).dict()["parameters"]["properties"]
    assert declared["kind"]["enum"] == ["bar", "scatter"]


def test_dspy_takes_functions_and_tools(mcp: Mcp) -> None:
    def steps(name: str) -> DummyLM:
        call = {"next_thought": "t", "next_tool_name": name, "next_tool_args": {"text": "hey"}}
        end = {"next_thought": "t", "next_tool_name": "finish", "next_tool_args": {}}
        return DummyLM([call, end, {"reasoning": "r", "answer": "done"}])

    for tool, name in ((mcp.tools("demo.echo").to_functions()[0], "demo__echo"), (mcp.demo.echo, "echo")):
        with dspy.context(lm=steps(name)):
            result = dspy.ReAct("question -> answer", tools=[tool])(question="hey")
        assert str(result.trajectory["observation_0"]).strip() == "hey"
        assert dspy.Tool(tool).args["text"]["type"] == "string"


def test_llama_index_and_agents_and_smolagents_take_functions_and_tools(mcp: Mcp) -> None:
    for one, name in ((mcp.demo.echo, "echo"), (mcp.tools("demo.echo").to_functions()[0], "demo__echo")):
        indexed = FunctionTool.from_defaults(one)
        assert (indexed.metadata.name, indexed.call(text="hey").content) == (name, "hey")
        assert indexed.metadata.get_parameters_dict()["properties"]["text"]["type"] == "string"
    sdk = agents.function_tool(mcp.tools("demo.echo").to_functions()[0], strict_mode=False)
    assert (sdk.name, sdk.params_json_schema["properties"]["text"]["type"]) == ("demo__echo", "string")
    (function, *_) = mcp.tools("demo.echo").to_functions(coroutines=True)
    assert asyncio.run(FunctionTool.from_defaults(async_fn=function).acall(text="hey")).content == "hey"


def test_functions_return_the_results_for_a_model(mcp: Mcp) -> None:
    tools = {one.__name__: one for one in (mcp.tools + [price]).to_functions()}

    assert tools["demo__echo"]("hey") == tools["demo__echo"](text="hey") == "hey"
    assert tools["demo__echo"]().startswith("Error: missing argument 'text'")
    assert tools["demo__fail"]() == "This tool always fails."
    assert tools["price"]("ACME", days=2) == "14.5"
    assert tools["demo__plot"](kind="bar", values=None, width=300).endswith("bytes]")
    assert tools["price"].__annotations__ == {"symbol": str, "days": int, "return": str}
    assert tools["price"].__doc__ == "[notebook] The price of a share." or "Of the share." in tools["price"].__doc__
    assert tools["mail__read"](text="a page") == "a page"
    assert tools["mail__send"]().startswith(REFUSED)
    assert "read_result" in tools

"""Selections of tools in other libraries and in the types of providers: run by test_model_libraries.py.

python -m pytest -p no:cacheprovider check_libraries.py, in the environment `models`; DEMO and MAIL name servers.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import sys
import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import chatlas
import ipywidgets
import langchain_core.messages
import langchain_core.tools
import llm
import pydantic_ai
import pytest
from anthropic.types import Message, MessageParam, ToolParam
from google.genai import types as gemini
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from openai.types.chat import ChatCompletion, ChatCompletionToolMessageParam, ChatCompletionToolParam
from openai.types.responses import Response
from openai.types.responses.function_tool_param import FunctionToolParam
from openai.types.responses.response_input_item_param import FunctionCallOutput
from pydantic import TypeAdapter
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

import ipymcp
from ipymcp import Mcp
from ipymcp.llm.integrations import langchain_tools
from ipymcp.llm.providers import PLAIN, Declaration
from ipymcp.llm.pydantic_ai import PydanticBackend
from ipymcp.llm.schemas import compile_schema
from ipymcp.protocol.types import encode
from ipymcp.runtime.client_handlers import SamplingRequest

CALLED = {"llm": "implementation", "chatlas": "func"}


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mcp]:
    os.environ["IPYMCP_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    with ipymcp.connect({"demo": {"command": sys.executable, "args": ["-I", "-S", os.environ["DEMO"]]}}) as mcp:
        mcp.policy.allow("*")
        yield mcp


def twice(number: int) -> int:
    """Double a number."""
    return 2 * number


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


# -- providers' own types ---------------------------------------------------------------------------------------------


def test_openai(mcp: Mcp) -> None:
    tools = mcp.tools + [twice]
    TypeAdapter(list[ChatCompletionToolParam]).validate_python(tools.to_openai(), strict=True)
    message = {"role": "assistant", "content": None, "tool_calls": [call("demo__echo", text="hey")]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    about = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}

    messages = tools.run(ChatCompletion.model_validate({**about, "choices": [choice]}))

    TypeAdapter(list[ChatCompletionToolMessageParam]).validate_python(messages)
    assert messages == [{"role": "tool", "tool_call_id": "c1", "content": "hey"}]


def test_openai_responses(mcp: Mcp) -> None:
    TypeAdapter(list[FunctionToolParam]).validate_python(mcp.tools.to_openai_responses(), strict=True)
    asked = {"type": "function_call", "id": "f", "call_id": "c1", "name": "demo__plot", "arguments": "{}"}
    about = {"id": "x", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True}
    response = Response.model_validate({**about, "tool_choice": "auto", "tools": [], "output": [asked]})

    (message,) = mcp.tools.run(response)

    TypeAdapter(FunctionCallOutput).validate_python(message)
    assert [part["type"] for part in message["output"]] == ["input_text", "input_image"]


def test_anthropic(mcp: Mcp) -> None:
    TypeAdapter(list[ToolParam]).validate_python(mcp.tools.to_anthropic(), strict=True)
    asked = {"type": "tool_use", "id": "c1", "name": "demo__plot", "input": {}}
    about = {"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
    usage = {"input_tokens": 1, "output_tokens": 1}

    (message,) = mcp.tools.run(Message.model_validate({**about, "content": [asked], "usage": usage}))

    TypeAdapter(MessageParam).validate_python(message)
    assert [block["type"] for block in message["content"][0]["content"]] == ["text", "image"]


def test_gemini(mcp: Mcp) -> None:
    (tool,) = mcp.tools.to_gemini()
    assert len(gemini.Tool.model_validate(tool).function_declarations or []) == len(mcp.tools)
    asked = gemini.FunctionCall(id="c1", name="demo__plot", args={})
    content = gemini.Content(role="model", parts=[gemini.Part(function_call=asked)])
    response = gemini.GenerateContentResponse(candidates=[gemini.Candidate(content=content)])

    (message,) = mcp.tools.run(response)

    read = gemini.Content.model_validate(message)
    assert read.parts is not None and read.parts[0].function_response is not None
    assert read.parts[0].function_response.name == "demo__plot"
    assert mcp.tools.run(response.function_calls) == [message]


# -- sampling ---------------------------------------------------------------------------------------------------------


def test_sampling_with_tools_passes_calls_and_results() -> None:
    seen: list[Any] = []

    def model(messages: list[Any], info: AgentInfo) -> ModelResponse:
        seen.append((messages, info))
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[TextPart("It is 7 degrees.")])
        call = ToolCallPart("weather", {"city": "Oslo"}, tool_call_id="w1")
        return ModelResponse(parts=[TextPart("I look."), call])

    tool = {"name": "weather", "description": "The weather.", "inputSchema": {"type": "object"}}
    params = {"tools": [tool], "toolChoice": {"mode": "auto"}, "maxTokens": 50, "temperature": 0.5}
    question = {"role": "user", "content": {"type": "text", "text": "How warm is it in Oslo?"}}

    def sampled(*messages: dict[str, Any]) -> dict[str, Any]:
        request = SamplingRequest("crm", None, list(messages), "Be brief.", 50, params)
        return asyncio.run(PydanticBackend().sample(FunctionModel(model), request))[0]

    first = sampled(question)
    use = {"type": "tool_use", "id": "w1", "name": "weather", "input": {"city": "Oslo"}}
    assert first["content"] == [{"type": "text", "text": "I look."}, use]
    assert (first["role"], first["stopReason"]) == ("assistant", "toolUse")
    result = {"type": "tool_result", "toolUseId": "w1", "content": [{"type": "text", "text": "7"}]}
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    place = {"type": "resource_link", "name": "map", "uri": "file:///map"}
    result = {**result, "content": [*result["content"], image, place]}
    second = sampled(question, first, {"role": "user", "content": [result, image]})
    assert (second["content"], second["stopReason"]) == ({"type": "text", "text": "It is 7 degrees."}, "endTurn")

    messages, info = seen[-1]
    assert [one.name for one in info.function_tools] == ["weather"]
    assert info.model_settings == {"max_tokens": 50, "temperature": 0.5, "tool_choice": "auto"}
    parts = [part for message in messages for part in message.parts]
    kinds = ["system-prompt", "user-prompt", "text", "tool-call", "tool-return", "user-prompt"]
    assert [part.part_kind for part in parts] == kinds
    text, picture = parts[4].content
    assert (parts[4].tool_name, text, picture.data) == ("weather", "7\n[resource file:///map]", b"hi")
    assert parts[5].content[0].data == b"hi"


# -- libraries --------------------------------------------------------------------------------------------------------


def test_pydantic_ai_sees_changes_of_tools_and_failures(mcp: Mcp) -> None:
    toolset = (mcp.tools("demo.echo", "demo.fail", "demo.plot") + [twice]).to_pydantic_ai()
    wanted = ["demo__echo", "demo__fail", "demo__plot", "twice"]

    result = asyncio.run(Agent(TestModel(call_tools=wanted), toolsets=[toolset]).run("hey"))

    results = {
        part.tool_name: part.content
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    assert (results["demo__echo"], results["twice"]) == ("a", "0")
    assert results["demo__fail"] == "This tool always fails."
    assert results["demo__plot"][1].media_type == "image/png"
    mcp.policy.deny("demo.echo")
    try:
        assert "demo__echo" not in asyncio.run(toolset.get_tools(None))
    finally:
        mcp.policy.allow("*")


def test_langchain(mcp: Mcp) -> None:
    def named(**names: str) -> dict[str, str]:
        return names

    tools = {tool.name: tool for tool in (mcp.tools + [twice, named]).to_langchain()}
    asked = {"type": "tool_call", "id": "c1", "name": "demo__echo", "args": {"text": "hey"}}

    message = tools["demo__echo"].invoke(asked)

    assert isinstance(message, langchain_core.messages.ToolMessage)
    assert (message.content, message.tool_call_id) == ("hey", "c1")
    assert tools["demo__echo"].description == "[demo] " + mcp.demo.echo.description
    assert asyncio.run(tools["demo__echo"].ainvoke({"text": "you"})) == "you"
    assert tools["demo__plot"].invoke({}).endswith("bytes]"), "Chat Completions takes no images from tools"
    (seen,) = mcp.tools("demo.plot").to_langchain(images=True)[:1]
    assert [part["type"] for part in seen.invoke({})] == ["text", "image"]
    failed = tools["demo__fail"].invoke({**asked, "name": "demo__fail", "args": {}})
    assert (failed.content, failed.status) == ("This tool always fails.", "error")
    assert tools["twice"].invoke({"number": 4}) == "8"
    names = dict.fromkeys(("self", "config", "run_manager", "callbacks", "tool_call_id"), "mine")
    assert tools["named"].invoke({**asked, "name": "named", "args": names}).content == json.dumps(names)
    assert asyncio.run(tools["named"].ainvoke(names)) == json.dumps(names)


def test_langchain_receives_the_variants_of_a_tool(mcp: Mcp) -> None:
    variants = {"anyOf": [{"properties": {"do": {"const": word}}, "required": ["do"]} for word in ("make", "drop")]}
    declaration = Declaration("s__t", "s", "t", "[s] Does it.", encode(compile_schema(variants, PLAIN).parameters))

    (tool,) = langchain_tools([declaration], mcp.tools._caller(None), images=False)

    function = convert_to_openai_tool(tool)["function"]
    assert function["description"] == '[s] Does it.\nOne of: {do: "make"} | {do: "drop"}'
    assert function["parameters"]["properties"]["do"]["enum"] == ["make", "drop"]


def test_descriptions_for_a_library_are_no_longer_than_its_provider_accepts(mcp: Mcp) -> None:
    def talk() -> None: ...

    talk.__doc__ = "word " * 1_000
    tools = mcp.tools("!*") + [talk]
    for listed in (tools.to_langchain(), tools.to_llm(), [one.schema["function"] for one in tools.to_chatlas()]):
        tool = {tool["name"] if isinstance(tool, dict) else tool.name: tool for tool in listed}["talk"]
        assert len(tool["description"] if isinstance(tool, dict) else tool.description) == 1_024

    def described(model: Any) -> int:
        parameters: list[Any] = []

        def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
            parameters.append(info.function_tools)
            return ModelResponse(parts=[TextPart("done")])

        class Of(FunctionModel):
            system = model

        asyncio.run(Agent(Of(answer), toolsets=[tools.to_pydantic_ai()]).run("hey"))
        return len(parameters[0][0].description)

    assert (described("openai"), described("anthropic"), described("another")) == (1_024, 5_010, 1_024)


def test_llm(mcp: Mcp) -> None:
    class Model(llm.Model):
        """Asks for one call, then repeats its result."""

        model_id = "scripted"
        supports_tools = True

        def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Iterator[str]:
            if not prompt.tool_results:
                response.add_tool_call(llm.ToolCall(name="demo__echo", arguments={"text": "hey"}, tool_call_id="c1"))
                return
            yield prompt.tool_results[0].output

    tools = mcp.tools.to_llm()

    assert Model().chain("hey", tools=tools).text() == "hey"
    by_name = {tool.name: tool for tool in tools}
    assert by_name["demo__plot"].implementation().attachments[0].type == "image/png"
    with pytest.raises(RuntimeError, match="This tool always fails"):
        by_name["demo__fail"].implementation()
    with pytest.raises(RuntimeError, match=r"^missing argument 'text'"):
        by_name["demo__echo"].implementation()


def test_chatlas(mcp: Mcp) -> None:
    chat = chatlas.ChatOpenAI(model="m", api_key="k")
    chat.set_tools(mcp.tools.to_chatlas())
    request = chatlas.types.ContentToolRequest(id="c1", name="demo__echo", arguments={"text": "hey"})

    tool = next(tool for tool in chat.get_tools() if tool.name == "demo__echo")

    assert tool.func(**request.arguments) == "hey"
    assert tool.schema["function"]["parameters"]["required"] == ["text"]
    assert tool.schema["function"]["strict"] is False
    arguments = {"stream": False, "tools": {tool.name: tool for tool in chat.get_tools()}, "kwargs": {}}
    sent = chat.provider._chat_perform_args(turns=[], data_model=None, **arguments)["tools"]
    assert sent and not any(one["strict"] for one in sent), "of strict ones every argument would have to be required"
    plot = next(tool for tool in chat.get_tools() if tool.name == "demo__plot")
    assert plot.func().endswith("bytes]"), "what it cannot show is named"
    fail = next(tool for tool in chat.get_tools() if tool.name == "demo__fail")
    assert str(fail.func().error) == "This tool always fails."


def test_libraries_that_keep_their_tools_have_read_result_from_the_start(mcp: Mcp) -> None:
    for tools in (mcp.tools.to_langchain(), mcp.tools.to_llm(), mcp.tools.to_chatlas()):
        assert "read_result" in {tool.name for tool in tools}
    tools = {tool.name: tool for tool in mcp.tools.to_langchain()}

    shown = tools["demo__echo"].invoke({"text": "x" * 30_000})

    handle = int(shown.partition("handle=")[2].partition(" ")[0])
    assert json.loads(tools["read_result"].invoke({"handle": handle, "offset": 29_990}))["text"] == "x" * 10


@pytest.mark.parametrize("library", ["langchain", "llm", "chatlas"])
def test_a_model_of_a_library_is_doubted_after_it_received_untrusted_content(library: str) -> None:
    def result(tool: Any, **arguments: Any) -> str:
        try:
            value = tool.invoke(arguments) if library == "langchain" else getattr(tool, CALLED[library])(**arguments)
        except RuntimeError as error:
            return str(error)
        return str(getattr(value, "error", value))

    with ipymcp.connect({"mail": {"command": sys.executable, "args": [os.environ["MAIL"]]}}) as mcp:
        mcp.policy.allow("*")
        tools = {tool.name: tool for tool in getattr(mcp.tools, f"to_{library}")()}
        assert result(tools["mail__send"]) == "sent"
        assert result(tools["mail__read"], text="a page") == "a page"

        refused = result(tools["mail__send"])

        assert refused.startswith(
            "Not done: needs your consent because the model has read untrusted content from mail.read, and no one"
            " answered; mcp.policy.allow('mail.send', doubted=True), or --allow mail.send in %mcp ask, allows it"
            " beforehand."
        )
        others = {tool.name: tool for tool in getattr(mcp.tools, f"to_{library}")()}
        assert result(others["mail__send"]) == "sent", "another conversation"


def test_pydantic_ai_is_doubted_after_it_received_untrusted_content() -> None:
    send, read = ToolCallPart("mail__send", {}), ToolCallPart("mail__read", {"text": "a page"})
    answers: list[list[Any]] = [[send], [read, replace(send, tool_call_id="of one answer")], [send], [TextPart("done")]]

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=answers.pop(0))

    with ipymcp.connect({"mail": {"command": sys.executable, "args": [os.environ["MAIL"]]}}) as mcp:
        mcp.policy.allow("*")
        toolset = mcp.tools.to_pydantic_ai()
        run = asyncio.run(Agent(FunctionModel(answer), toolsets=[toolset]).run("hey"))
        rows = mcp.history(limit=4).entries
        answers += [[send], [TextPart("done")]]
        asyncio.run(Agent(FunctionModel(answer), toolsets=[toolset]).run("hey"))
        (other,) = mcp.history(limit=1).entries

    assert {(row.model, row.provider, row.answer) for row in rows} == {("function:answer:", "function", rows[0].answer)}
    assert other.answer != rows[0].answer, "each run is one answer"
    assert other.outcome == "refused", "of one conversation"
    parts = [part for message in run.all_messages() for part in message.parts]
    sent, page, also_sent, refused = [part.content for part in parts if isinstance(part, ToolReturnPart)]
    assert (sent, page, also_sent) == ("sent", "a page", "sent")
    assert refused.startswith(
        "Not done: needs your consent because the model has read untrusted content from mail.read"
    )


# -- a tool itself, as the function that it is ------------------------------------------------------------------------


def test_a_tool_is_a_function_with_evaluated_types(mcp: Mcp) -> None:
    plot = mcp.demo.plot

    @functools.wraps(plot)
    def wrapped(**arguments: Any) -> Any:
        return plot(**arguments)

    for function in (plot, wrapped, plot.options(timeout=5), plot.aio):
        assert (function.__name__, function.__qualname__, function.__module__) == ("plot", "demo.plot", "mcp.demo")
        assert function.__doc__.startswith("Draw a chart")
        hints = typing.get_type_hints(function)
        assert (hints["kind"], hints["width"]) == (typing.Literal["bar", "scatter"], int)
        assert hints["values"] == list[float] | None
        parameters = inspect.signature(function).parameters
        assert {name: each.annotation for name, each in parameters.items()} == hints
        assert str(parameters["values"]) == "values: list[float] | None = None"
        assert parameters["kind"].default == "bar"


def test_pydantic_ai_takes_a_tool_itself(mcp: Mcp) -> None:
    tool = pydantic_ai.Tool(mcp.demo.echo)

    assert (tool.name, tool.function_schema.json_schema["properties"]["text"]["type"]) == ("echo", "string")
    tools = [mcp.demo.echo, mcp.demo.plot.aio, mcp.demo.query]
    results = json.loads(asyncio.run(Agent(TestModel(), tools=tools).run("hey")).output)
    assert (results["echo"], results["plot"].splitlines()[0][:17]) == ("a", "[image: image/png")
    assert results["query"]["rows"], "structured content as it is"


def test_langchain_takes_a_tool_itself(mcp: Mcp) -> None:
    tool = langchain_core.tools.tool(mcp.demo.echo)

    assert (tool.name, tool.args["text"]["type"], str(tool.invoke({"text": "hey"}))) == ("echo", "string", "hey")
    asked = {"type": "tool_call", "id": "c1", "name": "echo", "args": {"text": "hey"}}
    assert tool.invoke(asked).content == "hey"
    structured = StructuredTool.from_function(mcp.demo.query)
    assert structured.args["limit"] == {"default": 10, "title": "Limit", "type": "integer"}


def test_llm_and_chatlas_and_gemini_take_a_tool_itself(mcp: Mcp) -> None:
    tool = llm.Tool.function(mcp.demo.plot)
    assert (tool.name, tool.input_schema["properties"]["kind"]["enum"]) == ("plot", ["bar", "scatter"])
    schema: Any = chatlas.Tool.from_func(mcp.demo.plot).schema
    assert schema["function"]["parameters"]["properties"]["width"]["type"] == "integer"
    declared = gemini.FunctionDeclaration.from_callable_with_api_option(callable=mcp.demo.echo, api_option="GEMINI_API")
    assert declared.name == "echo"


def test_ipywidgets_take_a_tool_itself(mcp: Mcp) -> None:
    other = {"values": ipywidgets.fixed(None), "column": ipywidgets.fixed(None)}

    chart = ipywidgets.interactive(mcp.demo.plot, kind=["bar", "scatter"], **other)

    assert [type(each).__name__ for each in chart.children[:3]] == ["Dropdown", "IntSlider", "IntSlider"]
    chart.update()
    assert chart.result is not None and chart.result.images

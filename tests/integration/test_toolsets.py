"""Selections of tools for models, on real servers: declarations, calls, and results for the model."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl
import pytest

import ipymcp
from ipymcp import Mcp, ToolResult
from ipymcp.api.security import ToolPolicy
from tests.asking import call, contents
from tests.environments import ROOT, server_command
from tests.integration.test_tools import definition


@pytest.fixture(scope="module")
def mcp() -> Iterator[Mcp]:
    servers = {name: definition(server) for name, server in [("demo", "demo"), ("sdk", "sdk2"), ("own", "misbehaving")]}
    servers["wide"] = {**definition("misbehaving"), "concurrency": 2}
    with ipymcp.connect(servers) as mcp:
        mcp.policy.allow("*")
        mcp._host.guard.policy.doubts = False  # test_taint.py is about these
        start_threads(mcp)
        yield mcp


def start_threads(mcp: Mcp) -> None:
    """Start all threads of functions now, because a test may not leave a thread that it started."""
    barrier = threading.Barrier(5)
    for _ in range(4):
        mcp._host.handler_loop.loop.call_soon_threadsafe(
            mcp._host.handler_loop.loop.run_in_executor, None, barrier.wait
        )
    barrier.wait(30)


def twice(number: int) -> int:
    """Double a number.

    Args:
        number: Which.
    """
    return 2 * number


def test_tools_and_functions_are_declared_in_order_with_their_server_before_them(mcp: Mcp) -> None:
    tools = (mcp.tools("sdk.echo", "demo.echo") + [twice]).to_openai()

    assert [each["function"]["name"] for each in tools] == ["demo__echo", "sdk__echo", "twice"]
    assert tools.names == {"demo__echo": "demo.echo", "sdk__echo": "sdk.echo", "twice": "notebook.twice"}
    assert tools[1]["function"]["description"] == "[sdk] Give the text back."
    assert tools[2] == {
        "type": "function",
        "function": {
            "name": "twice",
            "description": "[notebook] Double a number.",
            "parameters": {
                "type": "object",
                "properties": {"number": {"type": "integer", "description": "Which."}},
                "required": ["number"],
                "additionalProperties": False,
            },
        },
    }
    assert json.loads(json.dumps(tools)) == tools


def test_a_selection_is_joined_with_others_and_narrowed_as_a_whole(mcp: Mcp) -> None:
    joined = mcp.tools("demo.echo") + mcp.tools("sdk.*", "!sdk.a*") + [mcp.demo.echo, mcp.demo.fail, twice]

    assert joined.names[:2] == ["demo.fail", "demo.echo"]
    assert joined.names[-1] == "notebook.twice"
    assert joined("*.echo", "notebook").names == ["demo.echo", "sdk.echo", "notebook.twice"]
    assert joined("*.echo").names == ["demo.echo", "sdk.echo"]
    assert (mcp.tools("demo") + [twice, twice]).names.count("notebook.twice") == 1
    assert len(joined("*.echo", "notebook")) == 3


def test_a_function_or_tool_is_added_and_looked_up(mcp: Mcp) -> None:
    both = mcp.tools("!*") + twice + mcp.demo.echo

    assert both.names == ["demo.echo", "notebook.twice"]
    assert ([twice] + mcp.tools("demo.echo")).names == both.names
    assert both["notebook.twice"] is twice
    with pytest.raises(ipymcp.ArgumentError, match=r"'demo\.echo' is not a function"):
        mcp.tools + "demo.echo"  # type: ignore[operator]  # pyright: ignore


def test_changing_a_declaration_changes_no_other(mcp: Mcp) -> None:
    mcp.tools("demo.echo").to_openai()[0]["function"]["parameters"]["properties"]["evil"] = {}

    assert "evil" not in json.dumps(mcp.tools("demo.echo").to_openai())


def test_a_function_of_a_tools_name_goes_before_it(mcp: Mcp) -> None:
    def demo__echo(text: str) -> str:
        return f"mine: {text}"

    tools = mcp.tools("demo") + demo__echo

    assert [one["function"]["name"] for one in tools.to_openai()].count("demo__echo") == 1
    assert contents(tools.run([call("demo__echo", text="hey")])) == ["mine: hey"]


def test_the_tokens_of_tools_are_estimated_by_server(mcp: Mcp) -> None:
    table = (mcp.tools("demo", "sdk.echo") + [twice]).describe()

    rows = {row["server"]: row for row in table}
    assert rows.keys() == {"demo", "sdk", "notebook"}
    assert (rows["demo"]["tools"], rows["sdk"]["tools"]) == (len(mcp.tools("demo")), 1)
    total = sum(row["tokens"] for row in rows.values())
    assert table.note == f"{len(mcp.tools('demo')) + 2} tools, about {total} tokens in each request: an estimate"
    assert mcp.tools("nothing").describe().note == "no tools"


def test_what_a_provider_does_not_accept_is_listed() -> None:
    command, *rest = server_command("misbehaving", "tools=600")
    with ipymcp.connect({"many": {"command": command, "args": rest}}) as mcp:
        first = next(iter(mcp.tools.to_gemini().lost))
        assert "Gemini accepts 512 tools in one request" in first["lost"]
        assert len(mcp.tools.to_openai()) == len(mcp.tools) > 600
    with ipymcp.connect("demo") as mcp:
        assert mcp.tools.to_openai().lost.note == "nothing"


def test_the_calls_of_an_answer_are_made_and_answered_in_its_order(mcp: Mcp) -> None:
    answer = {"choices": [{"message": {"role": "assistant", "tool_calls": [
        call("sdk__add", "c1", a=2, b=40), call("twice", "c2", number=4), call("demo__echo", "c3", text="hey"),
    ]}}]}  # fmt: skip

    messages = (mcp.tools + [twice]).run(answer)

    assert messages == [
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "tool", "tool_call_id": "c2", "content": "8"},
        {"role": "tool", "tool_call_id": "c3", "content": "hey"},
    ]
    assert mcp.tools.run({"choices": [{"message": {"role": "assistant", "content": "Done."}}]}) == []


def test_run_can_be_awaited(mcp: Mcp) -> None:
    assert contents(asyncio.run(mcp.tools.run.aio([call("demo__echo", text="hey")]))) == ["hey"]


def test_a_model_receives_structured_content_or_text_but_not_both(mcp: Mcp) -> None:
    route = {"name": "home", "points": [{"x": 0, "y": 0}, {"x": 3, "y": 4}]}

    (text,) = contents(mcp.tools.run([call("sdk__travel", route=route, speed=2)]))

    assert json.loads(text)["length"] == 2.5


def test_images_go_where_a_provider_takes_them(mcp: Mcp) -> None:
    (message,) = mcp.tools.run([{"type": "tool_use", "id": "c1", "name": "demo__plot", "input": {}}])

    text, image = message["content"][0]["content"]
    assert text["text"].startswith("A bar chart of mean body_mass_g")
    assert (image["type"], image["source"]["media_type"]) == ("image", "image/png")
    (chat,) = contents(mcp.tools.run([call("demo__plot")]))
    assert chat.endswith("bytes]")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            call("demo__ech", text="x"),
            "Error: there is no tool 'demo__ech' (did you mean 'demo__echo' or 'wide__echo' or 'demo__query'?)",
        ),
        (call("nope__anything"), "Error: there is no tool 'nope__anything'"),
        (call("demo__echo"), "Error: missing argument 'text' (echo(text: str))"),
        (call("twice", number="many"), "Error: number: Expected `int`, got `str`"),
        (call("twice"), "Error: 'number' is missing"),
        (call("demo__fail", message="No luck."), "No luck."),
        (call("breaks"), "Error: breaks raised ValueError: not today"),
        (
            {"id": "c1", "function": {"name": "demo__echo", "arguments": '{"text": "x'}},
            "Error: the arguments are not valid JSON: Unterminated string starting at: line 1 column 10 (char 9)"
            " (send one JSON object)",
        ),
    ],
)
def test_a_failed_call_is_reported_to_the_model(mcp: Mcp, asked: dict[str, Any], message: str) -> None:
    def breaks() -> None:
        raise ValueError("not today")

    assert contents((mcp.tools + [twice, breaks]).run([asked])) == [message]


def test_an_unexpected_error_is_reported_and_the_other_calls_are_made(mcp: Mcp) -> None:
    @dataclass
    class Broken:
        at: int

        def __post_init__(self) -> None:
            raise RuntimeError("no such place")

    def goes(place: Broken) -> None: ...

    goes.__annotations__["place"] = Broken

    answers = contents(
        (mcp.tools + [goes]).run(
            [call("goes", place={"at": 1}), call("demo__echo", text="here"), {"id": "x", "type": "function"}]
        )
    )

    assert answers == ["Error: RuntimeError: no such place", "here", "Error: the call names no tool"]


def test_a_function_that_exits_has_failed_and_the_other_calls_are_made(mcp: Mcp) -> None:
    def leaves() -> None:
        raise SystemExit(3)

    async def leaves_too() -> None:
        raise KeyboardInterrupt

    calls = [
        call("leaves"),
        call("leaves_too"),
        call("demo__fail"),
        call("demo__nope"),
        call("demo__echo", text="here"),
    ]
    answers = contents((mcp.tools + [leaves, leaves_too]).run(calls))

    assert answers.pop(3).startswith("Error: there is no tool 'demo__nope'")
    assert answers == [
        "Error: leaves raised RuntimeError: SystemExit(3)",
        "Error: leaves_too raised RuntimeError: KeyboardInterrupt()",
        "This tool always fails.",
        "here",
    ]


@pytest.fixture
def policy(mcp: Mcp) -> Iterator[ToolPolicy]:
    """The policy, whose rules are removed after the test."""
    yield mcp.policy
    mcp.policy.allow("*")


def test_a_denied_tool_is_not_declared_and_not_called(mcp: Mcp, policy: ToolPolicy) -> None:
    policy.deny("demo.echo")

    assert "demo__echo" not in mcp.tools.to_openai().names
    [error] = contents(mcp.tools.run([call("demo__echo", text="x")]))
    assert error.startswith("Error: there is no tool 'demo__echo'")


def test_a_call_that_no_one_allows_is_not_made(mcp: Mcp, policy: ToolPolicy) -> None:
    policy.ask("demo.echo")

    [refused] = contents(mcp.tools.run([call("demo__echo", text="x")]))

    assert refused.startswith("Not done: ")
    assert refused.endswith("Do not try it again; go on without it, or ask the user.")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pd.DataFrame({"a": [1, 2], "at": pd.to_datetime(["2026-01-02", None])}),
         '[{"a": 1, "at": "2026-01-02T00:00:00.000"}, {"a": 2, "at": null}]'),
        (pd.DataFrame({"n": [1.5]}, index=pd.Index(["x"], name="key")), '[{"key": "x", "n": 1.5}]'),
        (pl.DataFrame({"a": [1.0, float("nan")]}), '[{"a": 1.0}, {"a": null}]'),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "   a  a\n0  1  2"),
        (float("nan"), "nan"),
        ({1, 2}, "{1, 2}"),
        (" \n", "(empty result)"),
        ("kept\n", "kept\n"),
        (None, "null"),
        (ToolResult(b'{"content": [{"type": "text", "text": "hey"}]}', server="a", tool="b"), "hey"),
    ],
)  # fmt: skip
def test_a_function_may_return_the_values_of_notebooks(mcp: Mcp, value: object, text: str) -> None:
    def function() -> object:
        return value

    assert contents((mcp.tools + [function]).run([call("function")])) == [text]


def with_tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The definition of a server whose only tool has this schema, and returns its arguments."""
    tool = json.dumps({"name": name, "inputSchema": schema})
    return {"command": sys.executable, "args": [str(ROOT / "tests" / "servers" / "named.py"), tool]}


def test_an_argument_may_be_called_self() -> None:
    schema = {"type": "object", "properties": {"self": {"type": "string"}, "_self": {}}, "required": ["self"]}
    with ipymcp.connect({"own": with_tool("odd", schema)}) as mcp:
        assert mcp.own.odd("x", _self=1).data["arguments"] == {"self": "x", "_self": 1}


def test_calls_that_wait_for_an_unloaded_server_fail() -> None:
    with ipymcp.connect({"own": definition("misbehaving"), "demo": definition("demo")}) as mcp:
        mcp.policy.allow("*")
        mcp._host.guard.policy.doubts = False
        asked = [call("own__sleep", seconds=60), call("own__echo", text="x"), call("demo__echo", text="here")]
        answers: list[str] = []
        thread = threading.Thread(target=lambda: answers.extend(contents(mcp.tools.run(asked))))
        thread.start()
        while not any(running.session.name == "own" for running in mcp.calls):
            time.sleep(0.01)
        mcp.unload("own")
        thread.join(30)

    assert answers[0] == "Error: own: the server was stopped"
    assert answers[1] in ("Error: own: is stopping", "Error: own: is stopped")
    assert answers[2] == "here"


def test_renamed_properties_are_sent_under_the_tools_own_names() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a b": {"type": "string"}}}
    for _ in range(12):  # deeper than what is declared to just any library
        schema = {"type": "object", "properties": {"in": schema}}
    with ipymcp.connect({"own": with_tool("deep", schema)}) as mcp:
        mcp.policy.allow("*")
        (tool,) = mcp.tools.to_anthropic()
        (renamed,) = re.findall(r"a_b_\w+", json.dumps(tool))
        arguments: dict[str, Any] = {renamed: "x"}
        for _ in range(12):
            arguments = {"in": arguments}

        (message,) = mcp.tools.run([{"type": "tool_use", "id": "c1", "name": "own__deep", "input": arguments}])

    assert '{"a b": "x"}' in message["content"][0]["content"][0]["text"]


def test_an_error_about_a_renamed_property_has_the_models_name_for_it() -> None:
    properties = {name: {"type": "string"} for name in ("a b", "ключ", "plain")}
    schema = {"type": "object", "properties": properties, "required": ["a b", "ключ", "plain"]}
    with ipymcp.connect({"own": with_tool("odd", schema)}) as mcp:
        mcp.policy.allow("*")
        space, key, _ = mcp.tools.to_anthropic()[0]["input_schema"]["properties"]
        missing, wrong = contents(
            mcp.tools.run([call("own__odd", **{space: "x"}), call("own__odd", **{space: "x", key: [1], "plain": ""})])
        )

    assert missing == (
        f"Error: missing arguments 'ключ', 'plain' (odd(a_b: str, ключ: str, plain: str)) You know 'ключ' as '{key}'."
    )
    assert wrong.endswith(f" You know 'ключ' as '{key}'.")


def test_a_tool_of_a_server_that_has_died_waits_until_it_runs_again() -> None:
    with ipymcp.connect({"own": definition("misbehaving")}) as mcp:
        mcp.policy.allow("*")
        mcp._host.guard.policy.doubts = False
        first, second = contents(mcp.tools.run([call("own__die"), call("own__echo", text="hey")]))
        assert first.startswith("Error: own: the server exited with code 3")
        assert second == "hey"
        mcp.stop("own")
        assert contents(mcp.tools.run([call("own__echo", text="x")])) == ["Error: own: is stopped"]
        assert contents(mcp.tools("!own").run([call("own__echo", text="x")])) == ["Error: there is no tool 'own__echo'"]


def test_functions_may_be_coroutine_functions_and_return_any_json(mcp: Mcp) -> None:
    async def rows(count: int) -> list[dict[str, int]]:
        await asyncio.sleep(0)
        return [{"n": number} for number in range(count)]

    assert contents((mcp.tools("demo") + [rows]).run([call("rows", count=2)])) == ['[{"n": 0}, {"n": 1}]']


def test_interrupting_the_wait_cancels_the_calls(mcp: Mcp) -> None:
    async def main() -> None:
        running = asyncio.ensure_future(
            mcp.tools.run.aio([call("demo__slow", seconds=60), call("own__sleep", seconds=60)])
        )
        while len(mcp.calls) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        while mcp.calls:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_calls_to_one_server_are_serial_unless_it_allows_more(mcp: Mcp) -> None:
    def most_at_once(server: str) -> int:
        done = threading.Event()
        asked = [call(f"{server}__sleep", f"c{number}", seconds=0.3) for number in range(4)]
        thread = threading.Thread(target=lambda: (mcp.tools.run(asked), done.set()))
        thread.start()
        most = 0
        while not done.is_set():
            most = max(most, sum(running.session.name == server for running in mcp.calls))
            time.sleep(0.005)
        thread.join()
        return most

    assert most_at_once("own") == 1
    assert most_at_once("wide") == 2

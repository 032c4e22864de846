"""Servers that ask their user in the middle of a call, on SDKs that cannot do so in the stateless era."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ipymcp
from ipymcp import errors
from ipymcp.protocol.eras import OTHER_ERA
from tests.bad_servers import News, connected, log_of, scripted
from tests.clients import asking_server
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture
from tests.serving import serving

Commands = Callable[..., list[str]]


@pytest.fixture(params=["sdk2", "push-typescript"])
def definition(request: pytest.FixtureRequest, server_command: Commands) -> dict[str, Any]:
    """A server on the Python SDK or fastmcp (by its environment), or on the TypeScript SDK."""
    is_typescript = request.param == "push-typescript"
    program, *arguments = server_command(request.param) if is_typescript else asking_server(request.param)
    return {"command": program, "args": arguments}


def answer(question: Any) -> dict[str, str]:
    return dict.fromkeys(question.schema["properties"], "Ada")


@pytest.fixture
def mcp(definition: dict[str, Any]) -> Iterator[ipymcp.Mcp]:
    with ipymcp.connect({"one": definition}, on_elicitation=answer) as mcp:
        yield mcp


def test_a_call_that_may_have_changed_something_is_not_sent_again(mcp: ipymcp.Mcp) -> None:
    with pytest.raises(errors.CallError) as caught:
        mcp.one.ask_and_write()
    assert caught.value.hint == "the session is reopened with a handshake: call the tool again"
    assert mcp.one.ask_and_write().text == "you are Ada"


@pytest.mark.parametrize("definition", ["sdk2", "peer-fastmcp", "push-typescript"], indirect=True)
def test_a_call_that_changes_nothing_is_sent_again_after_a_handshake_which_is_remembered(
    definition: dict[str, Any],
) -> None:
    with ipymcp.connect({"one": definition}, on_elicitation=answer) as mcp:
        assert mcp.servers["one"].protocol_version == "2026-07-28"  # and this is remembered first
    with ipymcp.connect({"one": definition}, on_elicitation=answer) as mcp:
        assert mcp.servers["one"].protocol_version == "2026-07-28"
        assert mcp.one.ask().text == "you are Ada"
        assert mcp.servers["one"].protocol_version == "2025-11-25"
        assert [entry.error for entry in mcp.history(limit=5).entries] == [""]
        assert mcp.one.ask_and_write().text == "you are Ada"
    with ipymcp.connect({"one": definition}, on_elicitation=answer) as mcp:
        assert mcp.servers["one"].protocol_version == "2025-11-25"
        assert mcp.one.ask_and_write().text == "you are Ada"


def test_an_era_that_the_user_has_chosen_stays_and_the_hint_says_how_to_change_it(definition: dict[str, Any]) -> None:
    with ipymcp.connect({"one": definition | {"era": "modern"}}, on_elicitation=answer) as mcp:
        with pytest.raises(errors.CallError) as caught:
            mcp.one.ask()
        assert caught.value.hint == OTHER_ERA
        assert mcp.servers["one"].protocol_version == "2026-07-28"


def test_many_calls_at_once_open_one_new_session_and_each_ends_with_an_answer_or_an_error(mcp: ipymcp.Mcp) -> None:
    calls = [mcp.one.ask.submit() for _ in range(5)]
    outcomes = [outcome(call) for call in calls]
    assert "you are Ada" in outcomes
    assert all(text == "you are Ada" or "call the tool again" in text for text in outcomes), outcomes
    assert sum("reopening the session" in line for line in log_of(mcp, "one", "host")) == 1


def outcome(call: Any) -> str:
    try:
        return call.result(60).text
    except errors.McpError as error:
        return f"{error.message} {error.hint}"


DEAF = """
def on(method, message):
    if method == "initialize":
        sys.stdin.read()
    if method == "tools/list":
        return {"tools": [{**tools[0], "annotations": {"readOnlyHint": True}}], **complete}
    if method == "tools/call":
        text = "server-initiated requests are unavailable here"
        return {"content": [{"type": "text", "text": text}], "isError": True, **complete}
"""


def test_a_call_that_waits_for_the_new_session_can_be_cancelled() -> None:
    with connected({"one": scripted(DEAF, ours="auto")}) as mcp, News(mcp) as news:
        call = mcp.one.work.submit()
        news.until(lambda: mcp.servers["one"].state == "starting" or mcp.servers["one"].state == "restarting")
        assert call.cancel()
        with pytest.raises(errors.CallCancelled):
            call.result(30)
        assert not call.cancel()


WEB_PAGE = """
def on(method, message):
    if method == "tools/call":
        text = "Error 404. " + "About server-initiated requests, which are unavailable in HTTP/1. " * 40
        return {"content": [{"type": "text", "text": text}], "isError": True, **complete}
"""


def test_an_error_that_only_mentions_such_requests_is_a_tool_error() -> None:
    with connected({"one": scripted(WEB_PAGE, ours="auto")}) as mcp:
        with pytest.raises(errors.ToolError):
            mcp.one.work()
        assert mcp.servers["one"].protocol_version == "2026-07-28"


# -- bridges ----------------------------------------------------------------------------------------------------------


def test_a_bridge_that_forwards_only_initialize_first_is_opened_by_a_handshake(
    tmp_path: Path, server_command: Commands
) -> None:
    program, *arguments = server_command("bridge")
    with serving(lambda _: [*server_command("everything")[:-1], "streamableHttp"], tmp_path) as server:
        bridge = {"command": program, "args": [*arguments, "--streamableHttp", f"{server.origin}/mcp"]}
        with ipymcp.connect({"one": bridge}) as mcp:
            assert mcp.servers["one"].protocol_version == "2025-11-25"
            assert mcp.one.echo(message="hi").text == "Echo: hi"
            assert any("trying only initialize" in line for line in log_of(mcp, "one", "host"))


LIKE_A_BRIDGE = """
def on(method, message):
    if method == "server/discover":
        say(id=message["id"], error={"code": -32600, "message": "Invalid Request: Server already initialized"})
        sys.exit(1)
"""


def test_a_bridge_that_answers_with_an_error_before_it_ends_is_opened_by_a_handshake() -> None:
    with connected({"one": scripted(LIKE_A_BRIDGE, ours="auto")}) as mcp:
        assert mcp.servers["one"].protocol_version == "2025-11-25"

"""Tools that a server has only just got: there in the next line."""

from collections.abc import Iterator

import msgspec
import pytest

import ipymcp
from ipymcp import errors
from tests.bad_servers import QUICK, connected, scripted
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture

NEVER = msgspec.structs.replace(QUICK, refresh=3600.0)
"""Without somebody who waits for them, changed tools are never listed."""

GROWS = """
def on(method, message):
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": TELLS}}}
        return result | {"serverInfo": {"name": "s", "version": "1"}}
    if method == "tools/call":
        if message["params"]["name"] == "work":
            tools.append({"name": f"new{len(tools)}", "inputSchema": {"type": "object"}})
            if TELLS:
                say(method="notifications/tools/list_changed")
        return {"content": [{"type": "text", "text": message["params"]["name"]}], **complete}
    return None
"""


@pytest.fixture(params=["True", "False"], ids=["announced", "silent"])
def mcp(request: pytest.FixtureRequest) -> Iterator[ipymcp.Mcp]:
    with connected({"one": scripted(f"TELLS = {request.param}\n{GROWS}")}, timing=NEVER) as mcp:
        yield mcp


def test_a_new_tool_is_an_attribute_and_an_item_at_once(mcp: ipymcp.Mcp) -> None:
    mcp.one.work()
    assert mcp.one.new1().text == "new1"
    mcp.one.work()
    assert mcp.one["new2"]().text == "new2"
    with pytest.raises(errors.UnknownName):
        mcp.one.new3()


def test_a_new_tool_is_in_a_selection_at_once() -> None:
    with connected({"one": scripted(f"TELLS = True\n{GROWS}")}, timing=NEVER) as mcp:
        mcp.one.work()
        assert mcp.tools("one.new*").names == ["one.new1"]
        mcp.one.work()
        assert mcp.tools("one.*").names == ["one.work", "one.new1", "one.new2"]
        mcp.one.work()
        assert "one__new3" in mcp.tools("one.*").model_names

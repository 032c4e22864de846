"""Tools that a server has just added are available in the next line."""

from collections.abc import Callable, Iterator

import msgspec
import pytest

import ipymcp
from ipymcp import errors
from tests.bad_servers import QUICK, connected, scripted
from tests.environments import server_command
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture

NEVER = msgspec.structs.replace(QUICK, refresh=3600.0)
"""Changed tools are only listed when a caller waits for them."""

GROWS = """
def on(method, message):
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": ANNOUNCES}}}
        return result | {"serverInfo": {"name": "s", "version": "1"}}
    if method == "tools/call":
        if message["params"]["name"] == "work":
            tools.append({"name": f"new{len(tools)}", "inputSchema": {"type": "object"}})
            if ANNOUNCES:
                say(method="notifications/tools/list_changed")
        return {"content": [{"type": "text", "text": message["params"]["name"]}], **complete}
    return None
"""


@pytest.fixture(params=["True", "False"], ids=["announced", "silent"])
def mcp(request: pytest.FixtureRequest) -> Iterator[ipymcp.Mcp]:
    with connected({"one": scripted(f"ANNOUNCES = {request.param}\n{GROWS}")}, timing=NEVER) as mcp:
        yield mcp


def test_a_new_tool_is_an_attribute_and_an_item_immediately(mcp: ipymcp.Mcp) -> None:
    mcp.one.work()
    assert mcp.one.new1().text == "new1"
    mcp.one.work()
    assert mcp.one["new2"]().text == "new2"
    with pytest.raises(errors.UnknownName):
        mcp.one.new3()


def test_announced_tools_are_in_selections_and_in_the_list_of_their_server() -> None:
    with connected({"one": scripted(f"ANNOUNCES = True\n{GROWS}")}, timing=NEVER) as mcp:
        mcp.one.work()
        assert mcp.tools("one.new*").names == ["one.new1"]
        mcp.one.work()
        assert mcp.tools("one.*").names == ["one.work", "one.new1", "one.new2"]
        mcp.one.work()
        assert "one__new3" in mcp.tools("one.*").model_names
        mcp.one.work()
        assert [tool.name for tool in mcp.one] == ["work", "new1", "new2", "new3", "new4"]
        mcp.one.work()
        assert len(mcp.one) == 6
        mcp.one.work()
        assert "one.new6" in repr(mcp.one)


def test_a_tool_that_appears_with_a_setting_of_ones_own_is_no_warning() -> None:
    program, *arguments = server_command("everything")
    with ipymcp.connect({"every": {"command": program, "args": arguments}}) as mcp:
        tools = set(mcp.tools("every.*").names)
        mcp.on_sampling(lambda request: "words")
        with pytest.warns(UserWarning, match="use the new sampling setting after a restart"):
            mcp.restart("every")
        (new, *_) = set(mcp.tools("every.*").names) - tools
        lines = {line["text"]: line["level"] for line in mcp.servers["every"].logs(None)}
    name = new.partition(".")[2]
    note = f"{name} is new since the others were pinned, perhaps because sampling is on: %mcp pins {new}"
    assert lines[note] == "info"


NAMES: dict[str, Callable[[ipymcp.Mcp], object]] = {
    "in its server": lambda mcp: "new1" in mcp.one,
    "in all tools": lambda mcp: "one.new1" in mcp.tools,
    "as an item of all tools": lambda mcp: mcp.tools["one.new1"],
    "as a selection": lambda mcp: mcp.tools("one.new1").names == ["one.new1"],
    "to disable": lambda mcp: mcp.disable("one.new1") is None,
    "to allow": lambda mcp: mcp.policy.allow("one.new1") is None and len(mcp.policy.explain("one.new1").rows),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_new_tool_is_found_by_its_name_everywhere(mcp: ipymcp.Mcp, name: str) -> None:
    mcp.one.work()
    assert NAMES[name](mcp)
    assert mcp.one["new1"]


OFFERS = """
offers = []
def on(method, message):
    if method == "initialize":
        announced = {"listChanged": True}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": announced}}
        result["capabilities"]["resources"] = announced
        return result | {"serverInfo": {"name": "s", "version": "1"}}
    if method == "tools/call":
        offers.append(f"new{len(offers) + 1}")
        return {"content": [], **complete}
    if method == "prompts/list":
        return {"prompts": [{"name": name} for name in offers], **complete}
    if method == "prompts/get":
        return {"messages": [], **complete}
    if method == "resources/list":
        return {"resources": [{"name": name, "uri": f"s://{name}"} for name in offers], **complete}
    if method == "resources/templates/list":
        return {"resourceTemplates": [], **complete}
    return None
"""


def test_a_new_prompt_or_resource_is_found_by_its_name_before_it_is_announced() -> None:
    with connected({"one": scripted(OFFERS)}, timing=NEVER) as mcp:
        assert (len(mcp.one.prompts), len(mcp.one.resources)) == (0, 0)
        mcp.one.work()
        assert mcp.one.prompts.new1().messages == []
        assert mcp.one.resources["new1"].uri == "s://new1"
        mcp.one.work()
        assert "new2" in mcp.one.prompts
        assert "s://new2" in mcp.one.resources
        with pytest.raises(errors.UnknownName):
            mcp.one.prompts["new3"]()

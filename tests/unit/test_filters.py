"""Which tools are on: globs over `server.tool`, the last match wins."""

from __future__ import annotations

import pytest

from ipymcp.errors import PolicyError
from ipymcp.policy.filters import Filters, selects
from ipymcp.protocol.wire import ToolDefinition
from ipymcp.runtime.catalog import ToolEntry
from ipymcp.runtime.names import identifier


def tool(name: str) -> ToolEntry:
    server, _, own = name.partition(".")
    return ToolEntry(server, identifier(own), ToolDefinition(name=own))


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        (["fs.*"], "fs.read", True),
        (["fs.*"], "git.log", False),
        (["fs"], "fs.read", True),
        (["fs.*", "!fs.write_*"], "fs.write_file", False),
        (["fs.*", "!fs.write_*"], "fs.write-file", False),
        (["fs.*", "!fs.write_*", "fs.write-file"], "fs.write-file", True),
        (["!*.write_*"], "fs.read", True),
        (["!*.write_*"], "fs.write_x", False),
        (["!fs"], "fs.read", False),
        (["FS.*"], "fs.read", False),
        ([], "fs.read", True),
    ],
)
def test_the_last_pattern_that_matches_decides(patterns: list[str], name: str, expected: bool) -> None:
    assert selects(patterns, tool(name)) is expected


def test_a_tool_switched_off_is_refused_with_the_pattern_until_it_is_switched_on() -> None:
    filters = Filters()
    filters.set("fs.*", allowed=False)
    filters.set("fs.read", allowed=True)
    filters.check(tool("fs.read"))
    with pytest.raises(PolicyError) as caught:
        filters.check(tool("fs.write"))
    assert caught.value._render_traceback_() == [
        "PolicyError: fs.write: is disabled by 'fs.*'",
        "  %mcp enable fs.write",
    ]
    filters.set("fs.*", allowed=True)
    filters.check(tool("fs.write"))
    assert filters.rules == (("fs.read", True), ("fs.*", True))


def test_a_tool_switched_off_by_its_own_name_is_just_disabled() -> None:
    filters = Filters()
    filters.set("fs.write", allowed=False)
    with pytest.raises(PolicyError) as caught:
        filters.check(tool("fs.write"))
    assert str(caught.value) == "fs.write: is disabled"


def test_what_a_definition_denies_is_off_until_the_user_switches_it_on() -> None:
    filters = Filters(lambda server: {"*": "deny", "read_*": "ask", "read_all": "deny"} if server == "fs" else {})
    assert filters.forbidding(tool("git.log")) is None
    names = ("read_file", "read_all", "write_file")
    assert [filters.forbidding(tool(f"fs.{name}")) for name in names] == [None, "fs.read_all", "fs.*"]
    filters.set("fs.write_*", allowed=True)
    assert filters.forbidding(tool("fs.write_file")) is None
    with pytest.raises(PolicyError) as caught:
        filters.check(tool("fs.read_all"))
    assert (str(caught.value), caught.value.hint) == ("fs.read_all: is disabled", "%mcp enable fs.read_all")

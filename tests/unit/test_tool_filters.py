"""Filters that switch tools on and off: globs over `server.tool`, the last match wins."""

import pytest

from ipymcp.errors import PolicyError
from ipymcp.names import identifier
from ipymcp.protocol.types import ToolDefinition
from ipymcp.runtime.catalog import ToolEntry
from ipymcp.security.policy import Policy
from ipymcp.security.rules import ServerGrants, selects
from tests.errors import refused


def tool(name: str) -> ToolEntry:
    server, _, own = name.partition(".")
    return ToolEntry(server, own, identifier(own), ToolDefinition(name=own))


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        ("fs.*", "fs.read", True),
        ("fs.*", "git.log", False),
        ("fs", "fs.read", True),
        ("fs.* !fs.write_*", "fs.write_file", False),
        ("fs.* !fs.write_*", "fs.write-file", False),
        ("fs.* !fs.write_* fs.write-file", "fs.write-file", True),
        ("!*.write_*", "fs.read", True),
        ("!*.write_*", "fs.write_x", False),
        ("!fs", "fs.read", False),
        ("FS.*", "fs.read", False),
        ("", "fs.read", True),
    ],
)
def test_the_last_pattern_that_matches_decides(patterns: str, name: str, expected: bool) -> None:
    assert selects(patterns.split(), tool(name)) is expected


def test_a_disabled_tool_is_refused_with_the_pattern_until_it_is_enabled() -> None:
    policy, rights = Policy(), ServerGrants()
    policy.filters.set("fs.*", allowed=False)
    policy.filters.set("fs.read", allowed=True)
    policy.check(tool("fs.read"), rights)
    assert refused(PolicyError, policy.check, tool("fs.write"), rights) == (
        "fs.write: is disabled by 'fs.*'",
        "%mcp enable fs.write",
    )
    policy.filters.set("fs.*", allowed=True)
    policy.check(tool("fs.write"), rights)
    assert policy.filters.rules == (("fs.read", True), ("fs.*", True))
    policy.filters.set("fs.write", allowed=False)
    assert refused(PolicyError, policy.check, tool("fs.write"), rights)[0] == "fs.write: is disabled"

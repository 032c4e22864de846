"""An immutable snapshot of one server's tools."""

import pytest
from msgspec import Raw

from ipymcp.protocol.types import ToolDefinition
from ipymcp.runtime.catalog import EMPTY


def definitions(*names: str) -> list[ToolDefinition]:
    return [ToolDefinition(name=name, description=f"{number}. tool\nmore") for number, name in enumerate(names)]


def test_tools_are_found_by_both_names_in_the_servers_order() -> None:
    catalog = EMPTY.with_tools("fs", definitions("read-file", "from", "prompts"), pytest.fail)
    assert list(catalog.tools) == ["read-file", "from", "prompts"]
    assert list(catalog.aliases) == ["read_file", "from_", "prompts_"]
    assert catalog.find("read-file") is catalog.find("read_file")
    assert catalog.find("other") is None
    assert catalog.tools["from"].first_line == "1. tool"


def test_the_first_of_two_tools_with_the_same_name_is_kept_with_a_warning() -> None:
    warnings: list[str] = []
    catalog = EMPTY.with_tools("fs", definitions("a", "b", "a"), warnings.append)
    assert [entry.first_line for entry in catalog.tools.values()] == ["0. tool", "1. tool"]
    assert warnings == ["two tools are named 'a'; the first is used"]


def test_an_exact_name_takes_precedence_over_another_tools_alias() -> None:
    catalog = EMPTY.with_tools("fs", definitions("a-b", "a_b"), pytest.fail)
    assert catalog.find("a_b").name == "a_b"
    assert catalog.find("a_b_2").name == "a-b"


def test_a_tool_for_apps_only_is_found_by_name_and_not_listed() -> None:
    hidden = ToolDefinition(name="refresh", meta=Raw(b'{"ui": {"visibility": ["app"]}}'))
    catalog = EMPTY.with_tools("fs", [*definitions("read"), hidden], pytest.fail)
    assert [entry.name for entry in catalog.for_people()] == ["read"]
    assert catalog.find("refresh") is not None

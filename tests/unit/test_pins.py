"""Stored pins of tools, their changes, and lock files."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipymcp.errors import ConfigError, PolicyError
from ipymcp.masking import masks
from ipymcp.protocol.types import ToolDefinition
from ipymcp.runtime.catalog import ToolEntry
from ipymcp.security.app_pins import AppPin, AppPins
from ipymcp.security.pins import Pinning, canonical, diff, fingerprint, read_lock, write_lock
from ipymcp.security.policy import Policy
from ipymcp.security.rules import Rule, ServerGrants
from ipymcp.storage.database import Database
from tests.errors import refused


def tool(
    name: str = "read", description: str = "Reads.", schema: bytes = b'{"type": "object"}', **fields: Any
) -> ToolDefinition:
    return ToolDefinition(name, description=description, inputSchema=msgspec.Raw(schema), **fields)


def entry_of(definition: ToolDefinition) -> ToolEntry:
    return ToolEntry("fs", definition.name, definition.name, definition)


@pytest.fixture
def database(tmp_path: Path) -> Any:
    database = Database(tmp_path / "state.db")
    yield lambda: database
    database.close(5)


def compare(pinning: Pinning, *tools: ToolDefinition, digest: str = "d1", starting: bool = False) -> list[str]:
    found = asyncio.run(pinning.compare(digest, "fs", tools, starting=starting))
    return [*found.changed, *(f"new {name}" for name in found.new)]


def test_a_definition_has_one_canonical_form() -> None:
    first = canonical(tool(schema=b'{"type": "object", "properties": {"a": {}, "b": {}}}'))
    second = canonical(tool(schema=b'{"properties":{"b":{},"a":{}},"type":"object"}'))
    assert first == second
    assert fingerprint(first) == fingerprint(second)


@pytest.mark.parametrize(
    "changed",
    [
        tool(description="Reads, and sends it on."),
        tool(schema=b'{"type": "object", "properties": {"a": {}}}'),
        tool(title="Other"),
        tool(annotations=msgspec.Raw(b'{"readOnlyHint":true}')),
    ],
    ids=["description", "schema", "title", "annotations"],
)
def test_a_changed_tool_is_noticed_in_every_later_session_until_it_is_accepted(
    database: Any, changed: ToolDefinition
) -> None:
    assert compare(Pinning(Policy(), database), tool()) == []
    assert compare(Pinning(Policy(), database), tool()) == []
    pinning = Pinning(Policy(), database)
    assert compare(pinning, changed) == ["read"]
    assert pinning.has_changed("d1", "read")
    asyncio.run(pinning.accept("d1", "fs", [changed]))
    assert not pinning.has_changed("d1", "read")
    assert compare(Pinning(Policy(), database), changed) == []


ORDERS = [
    ("Allowed: cat, pwd, echo, ls.", "Allowed: ls, cat, echo, pwd.", "Allowed: pwd, ls, cat, echo."),
    ("{'a', 'bc'}", "{'bc', 'a'}", "{'a', 'bc'}"),
    ("One of: größe, x-1\nor 新.", "One of: 新, größe\nor x-1.", "One of: x-1, größe\nor 新."),
]


@pytest.mark.parametrize(("first", "second", "third"), ORDERS)
@pytest.mark.parametrize("is_nested", [False, True])
def test_another_order_of_the_same_words_is_said_once(
    database: Any, first: str, second: str, third: str, is_nested: bool
) -> None:
    said: list[str] = []

    def described(text: str) -> ToolDefinition:
        if not is_nested:
            return tool(description=text)
        part = {"description": text, "enum": re.findall(r"\w+", text), "default": "x"}
        return tool(schema=msgspec.json.encode({"type": "object", "properties": {"a": part}}))

    def session(text: str) -> list[str]:
        return compare(Pinning(Policy(), database, said.append), described(text))

    assert session(first) == session(first) == []
    assert said == []
    assert session(second) == []
    assert said == ["fs: only the order of words changed since it was pinned, which is accepted from now on: read"]
    assert [session(text) for text in (third, first, second)] == [[], [], []]
    assert len(said) == 1
    assert session(third + " Sends it on.") == ["read"], "a word is added"
    assert session(third) == []


@pytest.mark.parametrize(
    "other",
    [
        tool(description="Allowed: ls, cat, rm."),
        tool(description="Allowed: ls, cat, cat."),
        tool(description="Allowed: ls,\u200b cat."),
        tool(description="Allowed:\n\n\n\n\nls, cat."),
        tool(description="Allowed: cat, ls.", title="Other"),
        tool(name="read", description="Allowed: ls."),
        tool(description="Allowed: ls, cat.", schema=b'{"type": "object", "default": "b a"}'),
    ],
    ids=lambda one: str(canonical(one)),
)
def test_another_word_is_a_change_also_where_the_order_changes(database: Any, other: ToolDefinition) -> None:
    first, turned = (
        tool(description=text, schema=b'{"type": "object", "default": "a b"}')
        for text in ("Allowed: ls, cat.", "Allowed: cat, ls.")
    )
    assert compare(Pinning(Policy(), database), first) == []
    assert compare(Pinning(Policy(), database), other) == ["read"]
    assert compare(Pinning(Policy(), database), turned) == []
    assert compare(Pinning(Policy(), database), other) == ["read"]


def test_a_secret_in_a_description_is_compared_exactly(database: Any) -> None:
    with_secret = "Uses hunter2-hunter2 now."
    assert compare(Pinning(Policy(), database), tool(description=with_secret)) == []
    masks.add("hunter2-hunter2")
    try:
        assert compare(Pinning(Policy(), database), tool(description="now Uses hunter2-hunter2.")) == ["read"]
    finally:
        masks.clear()


def test_a_tool_that_comes_after_the_others_were_pinned_is_new_until_it_is_accepted(database: Any) -> None:
    pinning = Pinning(Policy(), database)
    assert compare(pinning) == []
    assert compare(pinning, tool()) == [], "the first"
    assert compare(pinning, tool(), tool("write")) == ["new write"]
    assert compare(Pinning(Policy(), database), tool(), tool("write")) == ["new write"], "in every later session"
    assert pinning.is_new("d1", "write") and not pinning.is_new("d1", "read")
    asyncio.run(Pinning(Policy(), database).accept("d1", "fs", [tool("write")]))
    asyncio.run(pinning.refresh())
    assert not pinning.is_new("d1", "write")
    assert compare(pinning, tool(), tool("write")) == []
    assert compare(pinning, tool(description="Other."), digest="d2") == [], "another definition has pins of its own"


@pytest.mark.parametrize("pattern", ["*", "read", "read*"])
def test_a_new_tool_is_kept_from_models_although_a_rule_matches_it(database: Any, pattern: str) -> None:
    policy = Policy()
    pinning = Pinning(policy, database)
    compare(pinning, tool())
    compare(pinning, tool(), tool("read-it"))
    entry, rights = ToolEntry("fs", "read-it", "read_it", tool("read-it")), ServerGrants("d1")
    assert policy.verdict(entry, rights, "model").decision == "ask"
    policy.add_rule(Rule(pattern, "allow", "always", "d1", "model"))

    verdict = policy.verdict(entry, rights, "model")
    assert (verdict.decision, verdict.why) == (
        "deny",
        "was added after its server's other tools were pinned, so no rule of yours allows it",
    )
    assert policy.verdict(entry, rights).decision == "allow", "the user's own call"
    asyncio.run(pinning.accept("d1", "fs", [tool("read-it")]))
    assert policy.verdict(entry, rights, "model").decision == ("ask" if pattern == "read" else "allow")


def test_a_rule_for_a_tool_does_not_allow_another_tool_with_its_alias() -> None:
    policy = Policy()
    policy.add_rule(Rule("read_file", "allow", "always", "d1", "model"))
    other = ToolEntry("fs", "read-file", "read_file", tool("read-file"))
    assert policy.verdict(other, ServerGrants("d1"), "model").decision == "ask"
    assert policy.verdict(entry_of(tool("read_file")), ServerGrants("d1"), "model").decision == "allow"


def test_a_change_that_another_kernel_accepts_is_accepted_here(database: Any) -> None:
    policy, changed = Policy(), tool(description="Other.")
    pinning = Pinning(policy, database)
    compare(pinning, tool(), tool("write"))
    compare(pinning, changed, tool("write", "Another."))
    asyncio.run(Pinning(Policy(), database).accept("d1", "fs", [changed]))
    assert pinning.has_changed("d1", "read")
    asyncio.run(pinning.refresh())
    assert not pinning.has_changed("d1", "read")
    assert pinning.has_changed("d1", "write")
    assert policy.verdict(entry_of(changed), ServerGrants("d1", auto_approve=("*",)), "model").decision == "allow"


def test_a_changed_tool_is_kept_from_models(database: Any) -> None:
    policy = Policy()
    pinning = Pinning(policy, database)
    compare(pinning, tool())
    compare(pinning, changed := tool(description="Other."))
    entry, rights = entry_of(changed), ServerGrants("d1", auto_approve=("*",))
    assert policy.verdict(entry, rights, "model").decision == "deny"
    asyncio.run(pinning.accept("d1", "fs", [changed]))
    assert policy.verdict(entry, rights, "model").decision == "allow"


def test_a_diff_can_be_read_line_by_line() -> None:
    old = tool(description="Reads.\nNothing else.", schema=b'{"type": "object", "properties": {"path": {}}}')
    new = tool(description="Reads.\nSends it on.", schema=b'{"type": "object", "properties": {"path": {}, "key": {}}}')
    lines = diff(canonical(old), canonical(new))
    assert "-description: Nothing else." in lines
    assert "+description: Sends it on." in lines
    assert '+      "key": {},' in lines
    assert " description: Reads." in lines


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("Reads.", "Reads.\n", ["+description: "]),
        (None, "", ["+description: "]),
        ("a\nb", "a\r\nb", ["-description: a", "+description: a\\r"]),
        ("a b", "a\tb", ["-description: a b", "+description: a\\tb"]),
        ("a b", "a\u00a0b", ["-description: a b", "+description: a\\xa0b"]),
        ("Read", "R\u0435ad", ["-description: Read", "+description: R\\u0435ad"]),
        ("Read", "Rea\u200bd", ["-description: Read", "+description: Rea\\u200bd"]),
        ("\u6587\u4ef6", "\u6587\u6863", ["-description: \u6587\u4ef6", "+description: \u6587\u6863"]),
        (f"{'a' * 99} {'b' * 99}", f"{'a' * 99} not {'b' * 99}",
         [f"-\u2026{'a' * 49} {'b' * 50}\u2026", f"+\u2026{'a' * 49} not {'b' * 50}\u2026"]),
    ],
)  # fmt: skip
def test_different_texts_never_look_the_same_in_a_diff(old: str | None, new: str, expected: list[str]) -> None:
    before, after = (canonical(ToolDefinition("read", description=text)) for text in (old, new))
    assert [line for line in diff(before, after) if line[0] in "+-" and line[1:3] not in ("--", "++")] == expected


def test_a_server_that_differs_from_the_lock_file_does_not_start(database: Any, tmp_path: Path) -> None:
    write_lock(tmp_path / "mcp.lock", {"fs": [tool(), tool("gone")]})
    pinning = Pinning(Policy(), database)
    pinning.lock_servers(["fs"], read_lock(str(tmp_path)))
    changed = tool(description="Other.")
    assert refused(PolicyError, compare, pinning, changed, tool("new"), starting=True) == (
        "fs: differs from mcp.lock: read has changed, new is new, gone is gone",
        "%mcp load fs runs it unlocked; then %mcp pins export updates the file",
    )
    assert compare(pinning, tool(), tool("gone"), starting=True) == []


def test_a_locked_tool_that_changes_while_the_server_runs_is_refused(database: Any, tmp_path: Path) -> None:
    write_lock(tmp_path / "mcp.lock", {"fs": [tool()]})
    policy = Policy()
    pinning = Pinning(policy, database)
    pinning.lock_servers(["fs"], read_lock(str(tmp_path)))
    compare(pinning, changed := tool(description="Other."))
    with pytest.raises(PolicyError, match=r"differs from mcp\.lock"):
        policy.check(entry_of(changed), ServerGrants("d1"))
    pinning.lock_servers(["fs"], None)
    compare(pinning, changed)
    policy.check(entry_of(changed), ServerGrants("d1"))


def test_a_server_that_the_lock_file_lacks_is_refused(database: Any) -> None:
    with pytest.raises(PolicyError, match=r"git: is not in mcp\.lock"):
        Pinning(Policy(), database).lock_servers(["git"], {"fs": {}})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "no such file"),
        ("{", "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[" * 200_000, "nested too deeply"),
        (" " * 10_000_001, "is larger than 10 MB"),
        ("[]", "not a lock file of version 1"),
        ('{"version": 2, "servers": {}}', "not a lock file of version 1"),
        ('{"version": 1, "servers": {"fs": 1}}', "not a lock file of version 1"),
    ],
)
def test_a_file_that_is_not_a_lock_file_is_refused(tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "mcp.lock"
    if text is not None:
        file.write_text(text)
    assert refused(ConfigError, read_lock, str(tmp_path))[0] == f"{file}: {problem}"


@pytest.mark.posix
def test_a_lock_file_that_is_a_link_to_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "mcp.lock").symlink_to("/dev/zero")
    assert refused(ConfigError, read_lock, str(tmp_path)) == (
        f"{tmp_path}/mcp.lock: is not a regular file",
        "delete it; %mcp pins export writes one from the servers that are loaded",
    )


@pytest.mark.parametrize("name", ["app ui://page", "ui://page"])
def test_a_tool_does_not_replace_the_pin_of_a_page(database: Any, name: str) -> None:
    pinning, pages = Pinning(Policy(), database), AppPins(database)
    pin = AppPin("hash", is_granted=True)
    compare(pinning, tool())
    asyncio.run(pages.keep("d1", "fs", "ui://page", pin))
    assert compare(pinning, tool(), tool(name)) == [f"new {name}"]
    asyncio.run(pinning.accept("d1", "fs", [tool(name)]))
    assert asyncio.run(pages.of("d1", "ui://page")) == pin
    assert set(asyncio.run(pinning.pins.of("d1"))) == {"read", name}

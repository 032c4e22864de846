"""The notebook's cells as models read and change them."""

import asyncio
import hashlib
from types import SimpleNamespace
from typing import Any

import pytest

from ipymcp.errors import ArgumentError
from ipymcp.interaction.cells import Cell
from ipymcp.interaction.questions import ApprovalAnswer, ApprovalQuestion
from ipymcp.interaction.terminal import TerminalPrompts
from ipymcp.llm.notebook_tools import difference, notebook_tools
from ipymcp.runtime.access import AccessControl
from ipymcp.runtime.call_options import CallOptions
from ipymcp.storage.database import Database

SOURCE = "\n".join([*(f"y{number} = 'value'  # {'-' * 40}" for number in range(40)), "os.system('x')", "z = 1" * 200])
VERSION = hashlib.sha256(b"x").hexdigest()[:12]


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_a_line_break_in_place_of_another_separator_is_a_change(separator: str) -> None:
    before, after = f"x = 1  # keep:{separator}print(x)", "x = 1  # keep:\nprint(x)"
    assert difference(before, after).split("\n")[3:] == [f"-{before}", "+x = 1  # keep:", "+print(x)"]


def test_equal_sources_have_no_change() -> None:
    assert difference("x", "x") == "no change"
    assert difference("x", "x\n") == "--- before\n+++ after\n@@ -1 +1,2 @@\n x\n+"


@pytest.mark.parametrize(
    ("tool", "arguments", "beside", "code"),
    [
        ("insert_cell", {"source": SOURCE, "after": "c1"}, ['after = "c1"'], SOURCE),
        ("edit_cell", {"cell": "c1", "version": VERSION, "source": SOURCE}, ['cell = "c1"'], difference("x", SOURCE)),
    ],
)
def test_what_a_model_writes_into_a_cell_is_shown_whole_and_line_by_line(
    tool: str,
    arguments: dict[str, str],
    beside: list[str],
    code: str,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("builtins.input", lambda prompt: "once")

    async def ask(question: ApprovalQuestion) -> ApprovalAnswer | None:
        return TerminalPrompts().ask(question)

    async def read(*_: Any) -> list[Cell]:
        return [Cell("c1", "code", "x")]

    access = AccessControl(
        SimpleNamespace(is_running=False),
        SimpleNamespace(ask=ask),
        lambda: database,  # type: ignore[arg-type]
        lambda notice: None,
    )
    host: Any = SimpleNamespace(guard=access, cells=SimpleNamespace(ask=read))
    [found] = [each for each in notebook_tools(host) if each.name == tool]
    asyncio.run(found.consent(arguments, CallOptions(caller="model")))

    shown = [line.removeprefix("  │ ") for line in capsys.readouterr().out.splitlines() if line.startswith("  │ ")]
    assert shown[: len(beside)] == beside
    assert [line.lstrip("0123456789 ") for line in shown[len(beside) :]] == [
        line.lstrip("0123456789 ") for line in code.split("\n")
    ]
    with pytest.raises(ArgumentError, match="this cell has 20,001 characters, more than 20,000"):
        asyncio.run(found.consent({**arguments, "source": "x" * 20_001}, CallOptions(caller="model")))

"""Chats with models, as they are saved."""

import asyncio
from typing import Any

import pytest

from ipymcp.errors import UnknownName
from ipymcp.masking import Masks
from ipymcp.storage import chats
from ipymcp.storage.chats import SavedChats
from ipymcp.storage.database import Database


def question(text: str) -> dict[str, Any]:
    return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}


def test_a_chat_belongs_to_its_notebook(database: Database) -> None:
    mine, other = (SavedChats(lambda: database, name, lambda: True) for name in ("a.ipynb", "b.ipynb"))

    mine.save("c", [question("hey")], "mail.read")

    chat = asyncio.run(mine.find("c"))
    assert chat is not None
    assert (chat.messages, chat.source) == ([question("hey")], "mail.read")
    assert mine["c"] == [question("hey")] and list(mine) == ["c"] and repr(mine).startswith("<chats: c (")
    assert asyncio.run(other.find("c")) is None and "c" not in other
    with pytest.raises(UnknownName, match="there is no chat 'c'"):
        other.forget("c")


def test_chats_are_masked_and_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = Masks()
    masks.add("hunter2hunter2")
    monkeypatch.setattr(chats, "mask", masks)
    monkeypatch.setattr(chats, "MAX_CHATS", 2)
    monkeypatch.setattr(chats, "MAX_BYTES", 3_000)
    saved = SavedChats(lambda: database, "a.ipynb", lambda: True)

    saved.save("a", [question("hunter2hunter2")], "")
    assert saved["a"] == [question("[secret]")]
    for name in "bc":
        saved.save(name, [question("x" * 1_000) for _ in range(5)] + [question("last")], "")

    assert list(saved) == ["c", "b"], "the latest"
    assert saved["c"] == [question("x" * 1_000), question("x" * 1_000), question("last")]


def test_the_latest_of_the_chats_whose_name_was_reused_are_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chats, "MAX_EARLIER", 2)
    saved = SavedChats(lambda: database, "a.ipynb", lambda: True)
    saved.save("c (a draft)", [question("draft")], "")
    dates = [f"c (2026-11-0{day} 10:00:00)" for day in range(1, 5)]

    for date in dates:
        saved.save("c", [question(date)], "")
        saved.save("c", [question("new")], "", earlier_as=date)

    assert list(saved) == ["c", dates[3], dates[2], "c (a draft)"]
    assert saved[dates[3]] == [question(dates[3])] and saved["c"] == [question("new")]


def test_without_history_no_chat_is_saved(database: Database) -> None:
    saved = SavedChats(lambda: database, "a.ipynb", lambda: False)

    saved.save("c", [question("hey")], "")

    assert list(saved) == []

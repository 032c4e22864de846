"""Named conversations with models, so that they can be continued in another kernel.

A chat belongs to a notebook: its messages as JSON, with secrets masked. The latest `MAX_CHATS` of all notebooks are
kept; a long one loses its oldest questions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from ipymcp.argument_checks import shown
from ipymcp.errors import UnknownName
from ipymcp.masking import mask
from ipymcp.protocol.types import is_array, is_object
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from sqlite3 import Connection

    from ipymcp.storage.database import Database


MAX_CHATS: Final = 200
MAX_BYTES: Final = 5_000_000
"""Bytes of JSON of one chat."""
MAX_EARLIER: Final = 10
"""Chats of one name that are kept under their dates."""
_DATE: Final = "%Y-%m-%d %H:%M:%S"


class SavedChat(Struct, frozen=True):
    """A chat as it was saved."""

    messages: list[Any]
    source: str
    """The source of the untrusted content that the model has read; empty for none."""
    dated: str
    """The name under which it is kept when another chat takes its name."""


class SavedChats(Mapping[str, list[Any]]):
    """The notebook's named conversations with models: `mcp.chats["name"]` has the messages as JSON.

    Args:
        database: Returns the database.
        notebook: Path of the notebook, or its folder if the path is unknown.
        is_kept: Returns whether chats are to be saved now.
    """

    def __init__(self, database: Callable[[], Database], notebook: str, is_kept: Callable[[], bool]) -> None:
        self._database = database
        self._notebook = notebook
        self._is_kept = is_kept

    @property
    def is_kept(self) -> bool:
        """Whether chats are saved now."""
        return self._is_kept()

    def save(self, name: str, messages: Sequence[Any], source: str, earlier_as: str = "") -> None:
        """Save a chat, without waiting for it.

        Args:
            name: The chat's name.
            messages: The messages as JSON.
            source: The source of the untrusted content that the model has read; empty for none.
            earlier_as: The name under which the chat that has this name now is kept; empty to replace it.
        """
        if not self._is_kept():
            return
        kept = mask.json([*messages])
        content = msgspec.json.encode(kept)
        questions = [number for number, message in enumerate(kept) if number and _is_question(message)]
        for start in [*questions, len(kept)]:  # a long chat loses its oldest questions
            if len(content) <= MAX_BYTES:
                break
            content = msgspec.json.encode(kept[start:])
        row = (self._notebook, name, content, mask(source), time.time())

        def write(connection: Connection) -> None:
            if earlier_as:
                self._rename(connection, name, earlier_as)
            connection.execute("INSERT OR REPLACE INTO chats VALUES (?, ?, ?, ?, ?)", row)
            connection.execute(
                "DELETE FROM chats WHERE rowid NOT IN (SELECT rowid FROM chats ORDER BY changed DESC LIMIT ?)",
                (MAX_CHATS,),
            )

        self._database().post(write)

    def _rename(self, connection: Connection, name: str, dated: str) -> None:
        """Rename a chat to its name with a date, and delete the oldest such chats if there are too many."""
        connection.execute(
            "UPDATE OR REPLACE chats SET name = ? WHERE notebook = ? AND name = ?", (dated, self._notebook, name)
        )
        begin, end = f"{name} (", ")"
        rows = connection.execute(
            "SELECT name FROM chats WHERE notebook = ? AND substr(name, 1, ?) = ? ORDER BY changed DESC",
            (self._notebook, len(begin), begin),
        )
        earlier = [chat for (chat,) in rows if chat.endswith(end) and _is_date(chat[len(begin) : -len(end)])]
        for chat in earlier[MAX_EARLIER:]:
            connection.execute("DELETE FROM chats WHERE notebook = ? AND name = ?", (self._notebook, chat))

    async def find(self, name: str) -> SavedChat | None:
        """Return a chat, or None."""
        rows = await self._database().aquery(
            "SELECT messages, source, changed FROM chats WHERE notebook = ? AND name = ?", (self._notebook, name)
        )
        if not rows:
            return None
        messages, source, changed = rows[0]
        dated = f"{name} ({time.strftime(_DATE, time.localtime(changed))})"
        return SavedChat(msgspec.json.decode(messages), source, dated)

    def forget(self, name: str) -> None:
        """Delete a saved chat.

        Raises:
            UnknownName: There is no such chat.
        """
        deleted = self._database().execute("DELETE FROM chats WHERE notebook = ? AND name = ?", (self._notebook, name))
        if not deleted:
            raise self._unknown(name)

    def __getitem__(self, name: str) -> list[Any]:
        """The messages of a chat as JSON, for `mcp.ask(…, history=…)`.

        Raises:
            UnknownName: There is no such chat.
        """
        rows = self._database().query(
            "SELECT messages FROM chats WHERE notebook = ? AND name = ?", (self._notebook, name)
        )
        if not rows:
            raise self._unknown(name)
        return msgspec.json.decode(rows[0][0])

    def __iter__(self) -> Iterator[str]:
        """The names, latest first."""
        return iter([name for name, _, _ in self._rows()])

    def __len__(self) -> int:
        return len(self._rows())

    def __contains__(self, name: object) -> bool:
        return name in [*self]

    def __repr__(self) -> str:
        chats = [
            f"{name} ({size:,} bytes, {time.strftime('%Y-%m-%d %H:%M', time.localtime(changed))})"
            for name, size, changed in self._rows()
        ]
        return one_line(f"<chats: {', '.join(chats) or 'none; %mcp ask --chat NAME begins one'}>")

    def _rows(self) -> list[tuple[Any, ...]]:
        return self._database().query(
            "SELECT name, length(messages), changed FROM chats WHERE notebook = ? ORDER BY changed DESC",
            (self._notebook,),
        )

    def _unknown(self, name: object) -> UnknownName:
        return UnknownName(f"there is no chat {shown(name)}", hint=f"chats: {', '.join(self) or 'none'}")


def _is_date(text: str) -> bool:
    try:
        return bool(time.strptime(text, _DATE))
    except ValueError:
        return False


def _is_question(message: Any) -> bool:
    parts = message.get("parts") if is_object(message) else None
    return is_array(parts) and any(is_object(part) and part.get("part_kind") == "user-prompt" for part in parts)

"""One attached view: what it was told, and what is still to be told.

Nothing waits here but replies. A patch is what changed between what the view has and what is shown now, made when it
can be sent; log lines are read from the server's own log then, and those that rolled off are counted. So a view that
does not read costs no more than its replies, and is let go when these become too many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from ipymcp.errors import McpError
from ipymcp.notebook.panel.messages import VERSION, Malformed, Message, Mode, check_mode, ready
from ipymcp.notebook.panel.state import problem
from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.version import __version__

if TYPE_CHECKING:
    from ipymcp.notebook.panel.logs import LogReader
    from ipymcp.notebook.panel.panel import Panel

__all__ = ["Carrier", "View"]

_PARTS = ("servers", "calls", "questions")
_MOST_WAITING = 1_000
_MOST_BYTES = 32_000_000
"""What may wait to be sent."""
_MOST_INTENTS = 100
"""Of one view at a time."""


class Carrier(Protocol):
    """Takes messages to a view."""

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a message, here also as a line of JSON; wait until there is room for the next."""
        ...

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers would come through while a cell runs, and while it blocks the kernel's main thread."""
        ...

    def left(self) -> None:
        """The view is let go."""
        ...


class View:
    """One view. All but `receive` belongs to the background loop.

    Args:
        panel: The notebook's.
        carrier: Takes messages to it.
    """

    def __init__(self, panel: Panel, carrier: Carrier) -> None:
        self.carrier = carrier
        self.is_greeted = False
        self._panel = panel
        self._parts: tuple[str, ...] = _PARTS
        self._server: str | None = None
        self.callback: object = None
        """Where its page's server takes the answers to logins, as it says."""
        self._version = VERSION
        self._sent: dict[str, dict[str, Message]] = {}
        self._sent_version = -1
        self._wants_snapshot = False
        self._seq = 0
        self._waiting: deque[tuple[Message, bytes]] = deque()
        self._bytes = 0
        self._intents: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self.logs: dict[str, LogReader] = {}
        """The logs it follows, by server."""

    @property
    def mode(self) -> Mode:
        """What it may do now."""
        return self._panel.surroundings.mode() if self._version == VERSION else "view"

    @property
    def can_answer(self) -> bool:
        """Whether it shows questions, and may answer them."""
        return self.is_greeted and "questions" in self._parts and self.mode != "view"

    # -- hearing ------------------------------------------------------------------------------------------------------

    def heard(self, message: object) -> None:
        """It says something."""
        if not is_object(message):
            return self._refuse(None, Malformed("a message is a JSON object"))
        kind = message.get("kind")
        if kind == "hello":
            self._greet(message)
        elif kind == "intent":
            self._begin(message)
        return None  # other kinds are of versions to come

    def refuse(self, why: str) -> None:
        """It said what cannot even be read."""
        self._refuse(None, Malformed(why))

    def _greet(self, message: Message) -> None:
        wants, server, version = message.get("wants"), message.get("server"), message.get("version")
        self._parts = tuple(part for part in _PARTS if part in wants) if is_array(wants) else _PARTS
        self._server = server if isinstance(server, str) else None
        self._version = version if isinstance(version, int) else 0
        self.callback = message.get("callback")
        self._wants_snapshot = self.is_greeted = True
        self.tell()
        self._panel.greeted()

    def tell(self) -> None:
        """Tell it whom it talks to, and what it may do now."""
        if self.is_greeted:
            surroundings = self._panel.surroundings
            hello = {"kind": "hello", "version": VERSION, "ipymcp": __version__, "mode": self.mode}
            self.say({**hello, "namespace": surroundings.namespace(), "kernel": surroundings.kernel})

    def _begin(self, message: Message) -> None:
        number = message.get("id")
        if not isinstance(number, int) or isinstance(number, bool):
            return self._refuse(None, Malformed("an intent needs an id, a number"))
        if not self.is_greeted:
            return self._refuse(number, Malformed("say hello first"))
        if len(self._intents) >= _MOST_INTENTS:
            return self._refuse(number, Malformed(f"{_MOST_INTENTS} intents are under way: wait for their replies"))
        task = self._panel.spawn(self._do(number, message))
        self._intents.add(task)
        task.add_done_callback(self._intents.discard)
        return None

    async def _do(self, number: int, message: Message) -> None:
        try:
            verb = message.get("do")
            act = self._panel.verbs.get(verb) if isinstance(verb, str) else None
            if act is None or not isinstance(verb, str):
                raise Malformed(f"there is no verb {str(verb)[:100]!r}")
            check_mode(verb, self.mode)
            value = await act(self._panel, self, message)
        except McpError as error:
            self._refuse(number, error)
        except Exception as error:  # a fault of ours must not be the panel's end
            self._refuse(number, McpError(f"a fault of ipymcp: {error!r}"))
        else:
            self.say({"kind": "reply", "id": number, "ok": True, "value": value})

    def _refuse(self, number: int | None, error: McpError) -> None:
        self.say({"kind": "reply", "id": number, "ok": False, "error": problem(error)})

    # -- saying -------------------------------------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        """Tell it something, once, in order."""
        made = ready(message)
        self._waiting.append(made)
        self._bytes += len(made[1])
        if len(self._waiting) > _MOST_WAITING or self._bytes > _MOST_BYTES:
            self._panel.detach(self)
        self._wake.set()

    def look(self) -> None:
        """There may be something new; at most ten times a second."""
        if self.is_greeted and (
            self._sent_version != self._panel.shown.version or any(map(_has_news, self.logs.values()))
        ):
            self._wake.set()

    async def run(self) -> None:
        """Send what there is to send, for as long as it is attached."""
        self._wake = asyncio.Event()  # the loop may be another than before
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                message, line = self._waiting.popleft()
                self._bytes -= len(line)
                await self.carrier.carry(message, line)
            if self.is_greeted:
                await self._send_update()

    async def _send_update(self) -> None:
        if update := self._update():
            await self.carrier.carry(*ready(update))
        for server, reader in [*self.logs.items()]:
            if lines := reader.read():
                await self.carrier.carry(*ready({"kind": "log", "server": server, **lines}))

    def _update(self) -> Message | None:
        """A snapshot where one is due, else a patch where something has changed."""
        shown = self._panel.shown
        if self._wants_snapshot:
            shown.look()
            self._wants_snapshot = False
            self._sent, self._sent_version = self._scoped(), shown.version
            self._seq += 1
            state = {part: self._sent.get(part, {}) for part in _PARTS}
            return {"kind": "snapshot", "seq": self._seq, "state": state}
        if self._sent_version == shown.version:
            return None
        now, before = self._scoped(), self._sent
        self._sent, self._sent_version = now, shown.version
        changed = {part: change for part in now if (change := _difference(before.get(part, {}), now[part]))}
        if not changed:
            return None
        self._seq += 1
        return {"kind": "patch", "seq": self._seq, "set": changed}

    def _scoped(self) -> dict[str, dict[str, Message]]:
        """The rows that are its own to see."""
        server, key = self._server, {"servers": "name"}
        return {
            part: {
                name: row
                for name, row in self._panel.shown.rows[part].items()
                if server is None or row[key.get(part, "server")] == server
            }
            for part in self._parts
        }

    def closed(self) -> None:
        """It is attached no more."""
        for task in self._intents:
            task.cancel()
        self._waiting.clear()
        self.logs.clear()


def _has_news(reader: LogReader) -> bool:
    return reader.has_news


def _difference(before: dict[str, Message], now: dict[str, Message]) -> dict[str, Any]:
    changed: dict[str, Any] = {name: row for name, row in now.items() if before.get(name) is not row}
    return changed | {name: None for name in before if name not in now}

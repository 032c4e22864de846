"""One attached view: what it was told, and what is still to be told.

Nothing waits here but replies. A patch is what changed between what the view has and what is shown now, made when it
can be sent; log lines are read from the server's own log then, and those that rolled off are counted. So a view that
does not read costs no more than its replies, and is let go when these become too many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ipymcp.errors import McpError
from ipymcp.notebook.panel.messages import VERSION, Malformed, Message, ready
from ipymcp.notebook.panel.permissions import Permissions
from ipymcp.notebook.panel.picture import Picture
from ipymcp.notebook.panel.state import problem
from ipymcp.protocol.jsontypes import is_object
from ipymcp.version import __version__

if TYPE_CHECKING:
    from ipymcp.notebook.panel.logs import LogReader
    from ipymcp.notebook.panel.panel import Panel
    from ipymcp.policy.questions import QuestionKind

__all__ = ["Carrier", "View"]

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
        self.callback: object = None
        """Where its page's server takes the answers to logins, as it says."""
        self._picture = Picture(panel.shown)
        self._version = VERSION
        self._waiting: deque[tuple[Message, bytes]] = deque()
        self._bytes = 0
        self._intents: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._calls_over = panel.host.history.added
        self.logs: dict[str, LogReader] = {}
        """The logs it follows, by server."""

    @property
    def permissions(self) -> Permissions:
        """What it may do now."""
        permissions = self._panel.permissions()
        if self._version == VERSION:
            return permissions
        return Permissions("view", permissions.is_visitor, is_our_version=False)

    def can_answer(self, kind: QuestionKind) -> bool:
        """Whether it shows questions of this kind, and may answer them."""
        return self.is_greeted and "questions" in self._picture.parts and self.permissions.may_answer(kind)

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
        elif kind == "bye":
            self._panel.detach(self)
        return None  # other kinds are of versions to come

    def refuse(self, why: str) -> None:
        """It said what cannot even be read."""
        self._refuse(None, Malformed(why))

    def _greet(self, message: Message) -> None:
        version = message.get("version")
        self._version = version if isinstance(version, int) else 0
        self.callback = message.get("callback")
        self._picture.begin(message.get("wants"), message.get("server"))
        self.is_greeted = True
        self.tell()
        self._panel.greeted()

    def tell(self) -> None:
        """Tell it whom it talks to, and what it may do now."""
        if self.is_greeted:
            self._picture.look_again()
            surroundings, permissions = self._panel.surroundings, self.permissions
            hello = {"kind": "hello", "version": VERSION, "ipymcp": __version__, "mode": permissions.mode}
            hello |= {"visitor": permissions.is_visitor}
            hello |= {"namespace": surroundings.namespace(), "kernel": surroundings.kernel}
            self.say({**hello, "control": surroundings.has_control})

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
            self.permissions.check(verb)
            value = await act(self._panel, self, message)
        except McpError as error:
            self._refuse(number, error)
        except Exception as error:  # a fault of ours must not be the panel's end
            self._refuse(number, McpError(f"a fault of ipymcp: {error!r}"))
        else:
            self.say({"kind": "reply", "id": number, "ok": True, "value": value})

    def _refuse(self, number: int | None, error: McpError) -> None:
        self.say({"kind": "reply", "id": number, "ok": False, "error": problem(self.permissions.shown_error(error))})

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
        has_history = self._calls_over != self._panel.host.history.added
        if self.is_greeted and (self._picture.is_old or has_history or any(map(_has_news, self.logs.values()))):
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
        if update := self._picture.update(self.permissions):
            await self.carrier.carry(*ready(update))
        over = self._panel.host.history.added
        if over != self._calls_over:
            self._calls_over = over
            await self.carrier.carry(*ready({"kind": "history", "over": over}))
        for server, reader in [*self.logs.items()]:
            if lines := reader.read():
                await self.carrier.carry(*ready({"kind": "log", "server": server, **lines}))

    def closed(self) -> None:
        """It is attached no more."""
        for task in self._intents:
            task.cancel()
        self._waiting.clear()
        self._bytes = 0
        self.is_greeted = False
        self.logs.clear()


def _has_news(reader: LogReader) -> bool:
    return reader.has_news

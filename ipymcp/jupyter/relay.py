"""Joins a view's WebSocket to the socket of its kernel.

Messages pass as they are. Each side is read only when the other has taken what came before, so that a view that does
not read costs one message and two chunks here, and what its socket holds. What the relay itself has to say is
`{"kind": "relay", "state": WHY, "message": …, "hint": …}`, and then it closes, with the code of that state.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from jupyter_server.base.handlers import JupyterHandler
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ipymcp.jupyter.handlers import WebSocketMixin, permit, ws_authenticated
from ipymcp.jupyter.kernels import KernelConnection, KernelUnavailable, other_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.jupyter.kernels import Kernels, Why


CODES: Final[Mapping[Why, int]] = {
    "foreign": 4403,
    "unknown": 4404,
    "silent": 4408,
    "ended": 4410,
    "left": 4411,
    "elsewhere": 4421,
    "absent": 4424,
}
"""What the WebSocket is closed with."""
_NO_TEXT: Final = 1003
_TIMEOUT: Final = 5.0
"""Seconds within which a view must speak, and the kernel then answer."""
_PING: Final = 30_000
_MAX_LENGTH: Final = 7_900_000
"""Bytes of a message to a kernel, which takes 8 MB."""


class PanelRelay(WebSocketMixin, WebSocketHandler, JupyterHandler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """One view's way to its kernel."""

    auth_resource = "kernels"

    def initialize(self, kernels: Kernels) -> None:
        """Take what the routes give."""
        self._kernels = kernels
        self._link: KernelConnection | None = None
        self._carrying: asyncio.Task[None] | None = None
        self._waiting: asyncio.TimerHandle | None = None
        self._has_spoken = False

    def set_default_headers(self) -> None:
        """None: a WebSocket has no page."""

    def get_compression_options(self) -> dict[str, Any] | None:
        """As for the kernels' own."""
        return self.settings.get("websocket_compression_options")

    @property
    def max_message_size(self) -> int:
        """What a kernel takes."""
        return _MAX_LENGTH

    @property
    def ping_interval(self) -> float:
        """Seconds, by Jupyter's setting in milliseconds; tornado pings, and lets go of a view that is silent."""
        return self.settings.get("ws_ping_interval", _PING) / 1000

    @property
    def ping_timeout(self) -> float:
        """No longer than that."""
        return self.ping_interval

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open it to a user who may run code; the origin is checked on the way."""
        await permit(self, "execute", "kernels")
        await super().get(*args, **kwargs)

    async def open(self, kernel_id: str) -> None:
        """Join it to the kernel, or say why not."""
        try:
            found = await asyncio.to_thread(self._kernels.find, kernel_id)
            if (other := other_version(found)) is not None:
                await self._say(other)
            link = await KernelConnection.open(found)
        except KernelUnavailable as obstacle:
            await self._end(obstacle)
        except WebSocketClosedError:
            return
        else:
            self._join(link)

    def _join(self, link: KernelConnection) -> None:
        if self.ws_connection is None:  # it has gone meanwhile
            link.close()
            return
        self._link = link
        self._carrying = asyncio.ensure_future(self._carry(link))
        self._expect("the view says nothing", "a panel begins with its hello")

    async def on_message(self, message: str | bytes) -> None:
        """Pass it on; the next is not read before the kernel has taken this one."""
        if self._link is None:
            return
        if isinstance(message, bytes):
            self.close(_NO_TEXT, "messages are text")
            return
        if not self._has_spoken:
            self._has_spoken = True
            self._expect("the kernel does not answer", "it may hold on to something: interrupt or restart it")
        try:
            await self._link.send(message.replace("\n", " ").replace("\r", " ").encode("utf-8", "replace"))
        except OSError:
            return  # who reads knows it as well, and says so

    def on_close(self) -> None:
        """The view is gone, and the kernel is let know."""
        self._heard()
        if self._carrying is not None:
            self._carrying.cancel()
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _carry(self, link: KernelConnection) -> None:
        try:
            while True:
                line = await link.line()
                if self._has_spoken:
                    self._heard()
                await self.write_message(line)
        except KernelUnavailable as obstacle:
            await self._end(obstacle)
        except (WebSocketClosedError, StreamClosedError):
            return
        finally:
            link.close()

    async def _end(self, obstacle: KernelUnavailable) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._say(obstacle.document)
        except (WebSocketClosedError, StreamClosedError, TimeoutError):
            pass  # nobody is left to be told
        self.close(CODES[obstacle.why], obstacle.message)

    async def _say(self, document: Mapping[str, str]) -> None:
        await self.write_message(json.dumps({"kind": "relay", **document}))

    def _expect(self, otherwise: str, hint: str) -> None:
        """Something is to be heard soon, from the view or from the kernel."""
        self._heard()
        obstacle = KernelUnavailable("silent", otherwise, hint)
        self._waiting = asyncio.get_running_loop().call_later(_TIMEOUT, self._give_up, obstacle)

    def _heard(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self, obstacle: KernelUnavailable) -> None:
        if self._carrying is not None:
            self._carrying.cancel()
        self._carrying = asyncio.ensure_future(self._end(obstacle))

"""The relay between a panel's WebSocket and the socket of its kernel.

Messages pass unchanged. Each side is read only after the other has accepted the previous message, so a panel that does
not read costs one message, two chunks and its socket buffer. The relay's own messages are
`{"kind": "relay", "state": REASON, "message": …, "hint": …}`; after each of them except `version`, it closes the
WebSocket with the close code of that state.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from jupyter_server.base.handlers import JupyterHandler
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ipymcp.jupyter.handlers import WebSocketMixin, authorize, ws_authenticated
from ipymcp.jupyter.kernels import KernelConnection, KernelUnavailable, other_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.jupyter.kernels import Kernels, Reason


CODES: Final[Mapping[Reason, int]] = {
    "foreign": 4403,
    "unknown": 4404,
    "silent": 4408,
    "ended": 4410,
    "left": 4411,
    "elsewhere": 4421,
    "absent": 4424,
}
"""The WebSocket's close code for each reason."""
_UNSUPPORTED_DATA: Final = 1003
_TIMEOUT: Final = 5.0
"""Seconds for the panel's first message, for the kernel's reply to it, and for sending the last message to a panel."""
_DEFAULT_PING_INTERVAL: Final = 30_000
"""Milliseconds."""
_MAX_MESSAGE_BYTES: Final = 7_900_000
"""Kernels accept 8 MB."""


class PanelRelay(WebSocketMixin, WebSocketHandler, JupyterHandler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """The relay of one panel."""

    auth_resource = "kernels"

    def initialize(self, kernels: Kernels) -> None:
        """Store the arguments of the route."""
        self._kernels = kernels
        self._connection: KernelConnection | None = None
        self._forwarding: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_received = False

    def set_default_headers(self) -> None:
        """Set no headers: the response is not a page."""

    def get_compression_options(self) -> dict[str, Any] | None:
        """Use Jupyter's setting for the WebSockets of kernels."""
        return self.settings.get("websocket_compression_options")

    @property
    def max_message_size(self) -> int:
        """Maximum bytes of a message from the panel."""
        return _MAX_MESSAGE_BYTES

    @property
    def ping_interval(self) -> float:
        """Seconds between pings; Jupyter's setting is in milliseconds."""
        return self.settings.get("ws_ping_interval", _DEFAULT_PING_INTERVAL) / 1000

    @property
    def ping_timeout(self) -> float:
        """Seconds to wait for a pong."""
        return self.ping_interval

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Open the WebSocket for a user who may run code; Jupyter's handler checks the origin."""
        await authorize(self, "execute", "kernels")
        await super().get(*args, **kwargs)

    async def open(self, kernel_id: str) -> None:
        """Connect to the kernel, or send the reason why that is impossible and close."""
        self.set_nodelay(True)  # with Nagle's algorithm, a reply would wait until the message before it is acknowledged
        try:
            kernel = await asyncio.to_thread(self._kernels.find, kernel_id)
            if (other := other_version(kernel)) is not None:
                await self._send(other)
            connection = await KernelConnection.open(kernel)
        except KernelUnavailable as unavailable:
            await self._end(unavailable)
            return
        except WebSocketClosedError:
            return
        if self.ws_connection is None:  # closed in the meantime
            connection.close()
            return
        self._connection = connection
        self._forwarding = asyncio.ensure_future(self._forward(connection))
        self._start_timer("the panel sends no message", "a panel's first message is `hello`")

    async def on_message(self, message: str | bytes) -> None:
        """Forward a message. The next one is not read before the kernel has accepted this one."""
        if self._connection is None:
            return
        if isinstance(message, bytes):
            self.close(_UNSUPPORTED_DATA, "messages are text")
            return
        if not self._has_received:
            self._has_received = True
            self._start_timer("the kernel does not answer", "it may be blocked: interrupt or restart it")
        try:
            await self._connection.send(message.replace("\n", " ").replace("\r", " ").encode("utf-8", "replace"))
        except OSError:
            return  # `_forward` gets the same failure and reports it

    def on_close(self) -> None:
        """Close the connection to the kernel."""
        self._stop_timer()
        if self._forwarding is not None:
            self._forwarding.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _forward(self, connection: KernelConnection) -> None:
        try:
            while True:
                line = await connection.line()
                if self._has_received:
                    self._stop_timer()
                await self.write_message(line)
        except KernelUnavailable as unavailable:
            await self._end(unavailable)
        except (WebSocketClosedError, StreamClosedError):
            return
        finally:
            connection.close()

    async def _end(self, unavailable: KernelUnavailable) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                await self._send(unavailable.document)
        except (WebSocketClosedError, StreamClosedError, TimeoutError):
            pass  # the panel is gone
        self.close(CODES[unavailable.reason], unavailable.message)

    async def _send(self, document: Mapping[str, str]) -> None:
        await self.write_message(json.dumps({"kind": "relay", **document}))

    def _start_timer(self, message: str, hint: str) -> None:
        self._stop_timer()
        unavailable = KernelUnavailable("silent", message, hint)
        self._timer = asyncio.get_running_loop().call_later(_TIMEOUT, self._give_up, unavailable)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, unavailable: KernelUnavailable) -> None:
        if self._forwarding is not None:
            self._forwarding.cancel()
        self._forwarding = asyncio.ensure_future(self._end(unavailable))

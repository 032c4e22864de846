"""From a definition to a live connection: which transport, which era, and the tools."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost, ProtocolError, RpcError, StartError
from ipymcp.protocol.transports.stdio import StdioTransport
from ipymcp.runtime.environment import launch
from ipymcp.runtime.link import Link
from ipymcp.runtime.refresh import announces_tools

if TYPE_CHECKING:
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Services

__all__ = ["Opener"]

_DOWNLOADERS = frozenset({"npx", "uvx", "uv", "bunx", "pnpm", "docker", "podman", "pipx"})


class Opener:
    """Opens the connections of one session.

    Args:
        session: Whose; each link is its `link` from before it opens.
        services: The host's.
    """

    def __init__(self, session: ServerSession, services: Services) -> None:
        self._session = session
        self._definition = session.definition
        self._services = services
        self._numbers = itertools.count(1)

    async def connect(self) -> Link:
        """One start: the process, the protocol, the tools."""
        if self._definition.command is None:
            raise StartError("is a remote server, which ipymcp does not reach yet", hint="load one that has a command")
        if self._definition.era != "auto":
            return await self._open(self._definition.era)
        digest = self._definition.digest()
        link = None
        remembered = self._services.eras.pop(digest, None)
        if remembered is not None:
            try:
                link = await self._open(remembered)
            except (ConnectionLost, ProtocolError, RpcError) as error:
                self._say(f"it does not answer as it did before ({error.message}); asking anew")
        if link is None:
            link = await self._find_out()
        if link.client.era_was_answered:
            self._services.eras[digest] = "modern" if link.client.era.kind == "stateless" else "legacy"
        return link

    async def _find_out(self) -> Link:
        """Ask which era it speaks; one that dies of the question is started once more without it."""
        try:
            return await self._open("auto")
        except ConnectionLost:
            self._say("it ended on the question which era it speaks; asking for the handshake only")
            return await self._open("legacy")

    async def _open(self, era: EraChoice) -> Link:
        seconds = self._definition.start_timeout
        link = Link(self._session, self._transport(), next(self._numbers), self._services)
        self._session.use(link)
        hint = asyncio.get_running_loop().call_later(self._services.timing.download_hint, self._suspect_download)
        try:
            async with asyncio.timeout(seconds):
                await link.client.open(era)
                if link.client.era.kind == "stateless" and announces_tools(link.client):
                    link.subscription = link.client.listen()  # before the list is read: no change falls between
                self._session.adopt(await link.client.list_tools(timeout=seconds))
        except TimeoutError as error:
            await link.client.aclose("the start failed")
            raise StartError(f"did not answer within {seconds:g} s") from error
        except BaseException:
            await link.client.aclose("the start failed")
            raise
        finally:
            hint.cancel()
        return link

    def _transport(self) -> Transport:
        return StdioTransport(
            launch(self._definition, self._services.folder),
            self._services.reaper,
            limit=self._definition.max_result_bytes,
            grace=self._services.timing.grace,
        )

    def _say(self, text: str) -> None:
        self._session.log.add("host", "info", text)

    def _suspect_download(self) -> None:
        program = (self._definition.command or "").rpartition("/")[2]
        if self._session.state.is_moving and program in _DOWNLOADERS:
            self._session.tell("still starting; downloading?")

"""`mcp.trust`: which servers of projects may run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ipymcp.errors import UnknownName
from ipymcp.runtime.checked import FLAG, TEXT, checked
from ipymcp.runtime.states import State
from ipymcp.tools.live import Listing
from ipymcp.tools.tables import Table
from ipymcp.tools.waits import waits

if TYPE_CHECKING:
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.loop import BackgroundLoop

__all__ = ["TrustedServers"]

_SHOWN = 12


class TrustedServers(Listing):
    """What the user agreed to run: `mcp.trust`, `mcp.trust.revoke("fs")`.

    Args:
        host: Whose.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def _loop(self) -> BackgroundLoop:
        return self._host.loop

    @property
    def table(self) -> Table:
        """One row a definition."""
        rows = [
            (
                one.server,
                one.file,
                one.digest[:_SHOWN],
                one.bound or "no file",
                ", ".join(sorted(one.secrets)),
                time.strftime("%Y-%m-%d", time.localtime(one.decided)),
            )
            for one in self._loop.run(self._host.guard.trust.agreements())
        ]
        note = "" if rows else "nothing was agreed to; what you type in a cell needs no agreement"
        return Table(
            ("server", "file", "definition", "bound to", "secrets", "since"), rows, title="MCP trust", note=note
        )

    @waits
    @checked(names=TEXT, everything=FLAG)
    async def revoke(self, *names: str, everything: bool = False) -> list[str]:
        """Take agreements back. Servers that run by them are stopped, in this notebook.

        Args:
            names: Servers, files, or the beginnings of definitions' hashes, as the table has them.
            everything: All of them.

        Returns:
            The servers' names.

        Raises:
            UnknownName: Nothing of that name was agreed to.
        """
        trust = self._host.guard.trust
        gone = await trust.revoke(None) if everything else []
        for name in names:
            found = await trust.revoke(name)
            if not found:
                raise UnknownName(f"nothing named {name!r} was agreed to", hint="%mcp trust lists what was")
            gone += found
        digests = {one.digest for one in gone}
        running = [name for name, session in self._host.sessions.items() if session.rights.digest in digests]
        await self._host.stop(running, State.NEEDS_TRUST)
        return [one.server for one in gone]

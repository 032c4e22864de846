"""Servers for the length of a `with`: in scripts, in tests, in threads, without IPython."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.runtime.checked import FLAG, FUNCTION, checked
from ipymcp.runtime.host import Host
from ipymcp.tools.face import LOADABLE, Mcp

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ipymcp.runtime.answers import Roots
    from ipymcp.tools.face import ElicitationHandler, SamplingHandler

__all__ = ["aconnect", "connect"]


class _Connection:
    @checked(what=LOADABLE, on_sampling=FUNCTION.or_none, on_elicitation=FUNCTION.or_none, trust=FLAG)
    def __init__(
        self,
        *what: str | os.PathLike[str] | Mapping[str, Any],
        on_sampling: SamplingHandler | None = None,
        on_elicitation: ElicitationHandler | None = None,
        roots: Roots | None = None,
        trust: bool = False,
    ) -> None:
        self._what = what
        self._trust = trust
        self._mcp = Mcp(Host())
        if on_sampling is not None:
            self._mcp.on_sampling(on_sampling)
        if on_elicitation is not None:
            self._mcp.on_elicitation(on_elicitation)
        if roots is not None:
            self._mcp.roots = roots


class connect(_Connection):
    """Servers that live as long as the `with` block: `with ipymcp.connect({"time": {…}}) as mcp:`.

    Args:
        what: As for `mcp.load`: definitions by name, addresses, config files and names in them, `"demo"`.
        on_sampling: As `mcp.on_sampling`.
        on_elicitation: As `mcp.on_elicitation`.
        roots: As `mcp.roots`; the working folder unless given.
        trust: Run what a project's file defines without asking.

    Raises:
        ServerError: A server did not start; the others are stopped again.
    """

    def __enter__(self) -> Mcp:
        try:
            if self._what:
                self._mcp.load(*self._what, trust=self._trust)
        except BaseException:
            self._mcp.close()
            raise
        return self._mcp

    def __exit__(self, *_: object) -> None:
        self._mcp.close()


class aconnect(_Connection):
    """The same for `async with`: `async with ipymcp.aconnect({"time": {…}}) as mcp:`.

    Args:
        what: As for `connect`, and so are the rest.

    Raises:
        ServerError: A server did not start; the others are stopped again.
    """

    async def __aenter__(self) -> Mcp:
        try:
            if self._what:
                await self._mcp.load.aio(*self._what, trust=self._trust)
        except BaseException:
            await self._mcp._host.aclose()
            raise
        return self._mcp

    async def __aexit__(self, *_: object) -> None:
        await self._mcp._host.aclose()

"""Servers for the length of a `with`: in scripts, in tests, in threads, without IPython."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.runtime.host import Host
from ipymcp.tools.face import Mcp

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

__all__ = ["aconnect", "connect"]


class _Connection:
    def __init__(self, what: tuple[str | os.PathLike[str] | Mapping[str, Any], ...]) -> None:
        self._what = what
        self._mcp = Mcp(Host())


class connect(_Connection):  # noqa: N801 - used like open()
    """Servers that live as long as the `with` block: `with ipymcp.connect({"time": {…}}) as mcp:`.

    Args:
        what: As for `mcp.load`: definitions by name, config files and names in them, `"demo"`.

    Raises:
        ServerError: A server did not start; the others are stopped again.
    """

    def __init__(self, *what: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        super().__init__(what)

    def __enter__(self) -> Mcp:
        try:
            self._mcp.load(*self._what)
        except BaseException:
            self._mcp.close()
            raise
        return self._mcp

    def __exit__(self, *_: object) -> None:
        self._mcp.close()


class aconnect(_Connection):  # noqa: N801 - used like open()
    """The same for `async with`: `async with ipymcp.aconnect({"time": {…}}) as mcp:`.

    Args:
        what: As for `mcp.load`.

    Raises:
        ServerError: A server did not start; the others are stopped again.
    """

    def __init__(self, *what: str | os.PathLike[str] | Mapping[str, Any]) -> None:
        super().__init__(what)

    async def __aenter__(self) -> Mcp:
        try:
            await self._mcp.load.aio(*self._what)
        except BaseException:
            await self._mcp._host.aclose()
            raise
        return self._mcp

    async def __aexit__(self, *_: object) -> None:
        await self._mcp._host.aclose()

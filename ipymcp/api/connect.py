"""`connect` and `aconnect`: servers that run during a `with` block of a script, a test or a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.api.namespace import LOADABLE, ONE_SERVER, Mcp
from ipymcp.argument_checks import FLAG, FUNCTION, checked
from ipymcp.runtime.host import Host

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from ipymcp.api.namespace import ElicitationHandler, SamplingHandler
    from ipymcp.runtime.client_handlers import Roots


class _ScriptConnection:
    @checked(what=LOADABLE, on_sampling=FUNCTION.or_none, on_elicitation=FUNCTION.or_none, trust=FLAG, **ONE_SERVER)
    def __init__(
        self,
        *what: str | os.PathLike[str] | Mapping[str, Any] | Sequence[str],
        on_sampling: SamplingHandler | None = None,
        on_elicitation: ElicitationHandler | None = None,
        roots: Roots | None = None,
        trust: bool = False,
        command: str | None = None,
        args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        from ipymcp.setup.load_request import typed_definition

        defined = {"command": command, "args": args, "env": env, "cwd": cwd, "url": url, "headers": headers}
        is_defined = any(value is not None for value in defined.values())
        self._what = (typed_definition(what, defined),) if is_defined else what
        self._trust = trust
        self._host = Host()
        self._mcp = Mcp(self._host)
        if on_sampling is not None:
            self._mcp.on_sampling(on_sampling)
        if on_elicitation is not None:
            self._mcp.on_elicitation(on_elicitation)
        if roots is not None:
            self._mcp.roots = roots


class connect(_ScriptConnection):
    """Servers that run during a `with` block: `with ipymcp.connect({"time": {…}}) as mcp:`.

    Args:
        what: Definitions by name, commands such as `"uvx mcp-server-time"`, URLs, config files and names in them, or
            `"demo"`, as for `mcp.load`, with its keywords `command`, `args`, `env`, `cwd`, `url` and `headers`.
        on_sampling: A function as for `mcp.on_sampling`.
        on_elicitation: A function as for `mcp.on_elicitation`.
        roots: Folders as for `mcp.roots`; by default the working folder.
        trust: Run servers of a project's file without asking.

    Raises:
        ServerError: A server did not start; the others are stopped.
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


class aconnect(_ScriptConnection):
    """Servers that run during an `async with` block: `async with ipymcp.aconnect({"time": {…}}) as mcp:`.

    Arguments and errors are those of `connect`.
    """

    async def __aenter__(self) -> Mcp:
        try:
            if self._what:
                await self._mcp.load.aio(*self._what, trust=self._trust)
        except BaseException:
            await self._host.aclose()
            raise
        return self._mcp

    async def __aexit__(self, *_: object) -> None:
        await self._host.aclose()

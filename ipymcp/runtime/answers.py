"""What the host answers servers with: functions the user registered, and the folders that servers may look at."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipymcp.errors import ConfigError
from ipymcp.runtime.interaction import Errand
from ipymcp.runtime.nested import run_nested

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.runtime.interaction import Desk
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.nested import NestedMode

__all__ = ["Answers", "as_root", "is_async"]


class Answers:
    """What the user has set for all servers of a host.

    Args:
        folder: The notebook's: the root, unless told otherwise.
        handlers: The loop that the user's own functions run on.
        desk: Knows where the user waits.
    """

    def __init__(self, folder: str, handlers: BackgroundLoop, desk: Desk) -> None:
        self._handlers = handlers
        self._desk = desk
        self.sampling: Callable[[Any], Any] | None = None
        """Answers a server that asks for a model's words; without one, sampling is not declared."""
        self.samples_tools = False
        """Whether what answers that takes tools of the server's."""
        self.elicitation: Callable[[Any], Any] | None = None
        """Answers a server's questions instead of the user."""
        self._default = [as_root(folder)]
        self._roots: list[dict[str, str]] | None = None
        self.nested_loop: NestedMode = "off"
        """Where the user's coroutines run: on a loop of ours, or on the caller's, nested where that is blocked."""

    def capabilities(self) -> dict[str, Any]:
        """What to declare, as `ClientCapabilities`."""
        declared: dict[str, Any] = {"roots": {"listChanged": True}}
        if self.elicitation is not None or self._desk.interaction is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self.sampling is not None:
            declared["sampling"] = {"tools": {}} if self.samples_tools else {}
        return declared

    async def run(self, function: Callable[[Any], Any], argument: object, subject: object = None) -> Any:
        """Call one of the user's functions, on the background loop; a coroutine function runs on a loop of its own.

        Args:
            function: Takes the argument.
            argument: What it is to answer.
            subject: The call it belongs to, where that is known.

        Raises:
            Exception: Whatever it raises.
        """
        if not is_async(function):
            return await self._on_handlers(asyncio.to_thread(function, argument))
        place = self._desk.place(subject) if self.nested_loop != "off" else None
        if place is None or place.loop is None:
            return await self._on_handlers(function(argument))
        if not place.is_blocked:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_held(function(argument)), place.loop))
        errand = Errand[Any](lambda: run_nested(function(argument)), None)
        place.post(errand.run, errand.give_up)
        return await errand.outcome

    async def _on_handlers(self, coroutine: Any) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_held(coroutine), self._handlers.loop))

    @property
    def roots(self) -> list[dict[str, str]]:
        """The folders servers may look at, as the protocol has them."""
        return self._default if self._roots is None else self._roots

    def set_roots(self, roots: Iterable[str | os.PathLike[str] | Mapping[str, str]] | None) -> None:
        """Other folders than before; None for the usual ones.

        Raises:
            ConfigError: One is no folder or `file://` address.
        """
        self._roots = None if roots is None else [as_root(root) for root in roots]

    def roots_for(self, definition: ServerDefinition, folder: str) -> list[dict[str, str]]:
        """The folders one server is told of: those the user set; else those its own command names; else the notebook's.

        A server that is started on some folders takes the roots in their place (server-filesystem does): told of
        another, it would refuse what it was started for.

        Args:
            definition: Of the server.
            folder: Where it runs.
        """
        if self._roots is not None:
            return self._roots
        named = [path for argument in definition.args if (path := _folder(argument, folder))]
        return [as_root(path) for path in named] or self._default


async def _held(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await it; `exit()` and the like in it are errors as others are: raised on a loop, they would end the loop."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(repr(error)) from error


def _folder(argument: str, base: str) -> str | None:
    """The folder that an argument of a command names, if it is one and looks it."""
    if os.sep not in argument and argument not in (".", ".."):
        return None
    path = os.path.join(base, os.path.expanduser(argument))
    return os.path.normpath(path) if os.path.isdir(path) else None


def as_root(root: str | os.PathLike[str] | Mapping[str, str]) -> dict[str, str]:
    """A folder as the protocol has it: from a path, a `file://` address, or a mapping with `uri` and `name`.

    Raises:
        ConfigError: It is none of these.
    """
    hint = "give paths, or {'uri': 'file:///…', 'name': '…'}"
    if isinstance(root, (str, os.PathLike)):
        text = os.fspath(root)
        if not text.startswith("file://"):
            path = Path(os.path.abspath(os.path.expanduser(text)))
            return {"uri": path.as_uri(), "name": path.name or str(path)}
        return {"uri": text, "name": text.rstrip("/").rpartition("/")[2]}
    uri, name = root.get("uri"), root.get("name")
    if not isinstance(uri, str) or not uri.startswith("file://"):
        raise ConfigError(f"a root's uri begins with file://, got {uri!r}", hint=hint)
    return {"uri": uri, "name": name} if name else {"uri": uri}


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives a coroutine: a coroutine function, or an object whose call is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

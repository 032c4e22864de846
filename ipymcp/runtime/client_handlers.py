"""The user's handlers for requests of servers: elicitation, sampling and roots.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation, client/sampling, client/roots.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, cast
from urllib.parse import urlsplit

import msgspec

from ipymcp.argument_checks import is_async, shown
from ipymcp.errors import ArgumentError, ConnectionLost
from ipymcp.protocol.apps import CAPABILITY
from ipymcp.runtime.loop import run_nested
from ipymcp.runtime.question_routing import CrossThreadTask
from ipymcp.security.untrusted import copy_actor_to_context
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.loop import BackgroundLoop, NestedMode
    from ipymcp.runtime.question_routing import QuestionRouter


if TYPE_CHECKING:
    Root: TypeAlias = str | os.PathLike[str] | Mapping[str, str]
    Roots: TypeAlias = Root | Iterable[Root]


_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""The scheme of a URI; a single letter is a Windows drive."""
_SHOWN: Final = 200


class ClientHandlers:
    """Handlers and roots that the user has set for all servers of a host.

    Args:
        folder: The notebook's folder, which is the root by default.
        loop: The loop that runs the user's functions.
        questions: Finds the thread or task in which the user waits.
        clients: Gets the live connections by server name.
    """

    def __init__(
        self,
        folder: str,
        loop: BackgroundLoop,
        questions: QuestionRouter,
        clients: Callable[[], Mapping[str, Client]],
    ) -> None:
        self._loop = loop
        self._questions = questions
        self._clients = clients
        self.sampling: Callable[[Any], Any] | None = None
        """Answers sampling requests; without it, sampling is not declared."""
        self.shows_apps = False
        """Whether the interactive pages of tools can be shown (MCP Apps)."""
        self.samples_tools = False
        """Whether the sampling handler accepts tools."""
        self.elicitation: Callable[[Any], Any] | None = None
        """Answers a server's questions instead of the user."""
        self.before_call: Callable[[Any], Any] | None = None
        """Called with each call before the policy checks it; may change its arguments or refuse it."""
        self.after_call: Callable[[Any], Any] | None = None
        """Called with each result or error; may replace it."""
        self._default_roots = [as_root(folder)]
        self._roots: list[dict[str, str]] | None = None
        self.nested_loop: NestedMode = "off"
        """The cases in which the user's coroutine functions run on the caller's loop instead of our own.

        On a loop that a synchronous call blocks, they run nested.
        """

    def capabilities(self) -> dict[str, Any]:
        """The `ClientCapabilities` to declare."""
        declared: dict[str, Any] = {"roots": {"listChanged": True}}
        if self.elicitation is not None or self._questions.terminal is not None:
            declared["elicitation"] = {"form": {}, "url": {}}
        if self.sampling is not None:
            declared["sampling"] = {"tools": {}} if self.samples_tools else {}
        if self.shows_apps:
            declared["extensions"] = {**CAPABILITY}
        return declared

    def set_handler(
        self, kind: Literal["sampling", "elicitation"], handler: Callable[[Any], Any] | None, *, tools: bool = False
    ) -> list[str]:
        """Answer a kind of request with a function of the user, from any thread.

        Args:
            kind: The kind of request.
            handler: The function; None removes it.
            tools: Whether it accepts sampling requests with tools.

        Returns:
            The names of the servers for which the change takes effect only after a restart.
        """
        setattr(self, kind, handler)
        if kind == "sampling":
            self.samples_tools = tools
        return [name for name, client in self._clients().items() if not client.declare(kind)]

    async def run(self, function: Callable[[Any], Any], argument: object, subject: object = None) -> Any:
        """Call one of the user's functions, on the background loop; a coroutine function runs on another loop.

        Args:
            function: Takes the argument.
            argument: The request to answer.
            subject: The call it belongs to, if known.

        Raises:
            Exception: Any exception of the function.
        """
        loop = self._loop.loop
        if not is_async(function):
            coroutine = asyncio.to_thread(function, argument)
        else:
            caller = self._questions.caller(subject) if self.nested_loop != "off" else None
            if caller is not None and caller.is_blocked and caller.loop is not None:
                task = CrossThreadTask[Any](lambda: run_nested(function(argument)), None)
                caller.post(task.run, task.give_up)
                return await task.outcome
            coroutine = function(argument)
            if caller is not None and caller.loop is not None:
                loop = caller.loop
        with copy_actor_to_context():  # only the user can set these functions, whose calls are therefore the user's
            future = asyncio.run_coroutine_threadsafe(_contained(coroutine), loop)
        return await asyncio.wrap_future(future)

    @property
    def roots(self) -> list[dict[str, str]]:
        """The roots that servers are given by default, in the form of the protocol."""
        return self._default_roots if self._roots is None else self._roots

    def set_roots(self, roots: Roots | None) -> None:
        """Set the roots of all servers; None restores the default. Thread-safe.

        Raises:
            ArgumentError: The roots are invalid, as for `as_roots`, and are not changed.
        """
        self._roots = None if roots is None else as_roots(roots)
        for client in self._clients().values():
            with contextlib.suppress(ConnectionLost):
                client.roots_changed()

    def roots_for(self, definition: ServerDefinition, folder: str) -> list[dict[str, str]]:
        """The roots of one server: those that the user set, else folders in its command, else the notebook's folder.

        Some servers replace the folders of their command by the roots (server-filesystem does): with other roots, such
        a server would refuse the folders of its command.

        Args:
            definition: The expanded definition of the server.
            folder: The folder it runs in.
        """
        if self._roots is not None:
            return self._roots
        named = [path for argument in definition.args if (path := _folder(argument, folder))]
        return [as_root(path) for path in named] or self._default_roots


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine; convert `SystemExit` and `KeyboardInterrupt`, which would end the loop, into errors."""
    try:
        return await coroutine
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(repr(error)) from error


def _folder(argument: str, base: str) -> str | None:
    """The folder that an argument of a command names, if it contains a separator and exists."""
    if os.sep not in argument and argument not in (".", ".."):
        return None
    path = os.path.join(base, os.path.expanduser(argument))
    return os.path.normpath(path) if os.path.isdir(path) else None


def as_root(folder: str) -> dict[str, str]:
    """A folder as a `Root` of the protocol."""
    path = Path(os.path.abspath(os.path.expanduser(folder)))
    return {"uri": path.as_uri(), "name": path.name or str(path)}


class RootList(list[dict[str, str]]):
    """A copy of the roots. `mcp.roots += "data"` adds a folder; other changes would be lost, and are refused."""

    def __iadd__(self, more: object) -> RootList:  # type: ignore[override]
        return RootList([*self, *as_roots(more)])

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        message = "mcp.roots: this list is a copy, and a change of it would be lost"
        raise ArgumentError(message, hint="add a folder by: mcp.roots += 'data'")

    append = extend = insert = remove = pop = clear = reverse = _refuse
    sort = _refuse  # pyright: ignore[reportAssignmentType]
    __setitem__ = __delitem__ = __imul__ = _refuse


def as_roots(given: object) -> list[dict[str, str]]:
    """Folders that the user names, as `Root` objects of the protocol.

    Args:
        given: A path, a `file://` URI, a mapping with `uri` and perhaps `name`, or several of these. Relative paths
            start at the working folder.

    Raises:
        ArgumentError: The value has another form, or names something other than an existing folder.
    """
    if isinstance(given, str | os.PathLike | Mapping):
        return [_given_root(cast("object", given))]
    if isinstance(given, bytes | bytearray | memoryview) or not isinstance(given, Iterable):
        raise _no_root(cast("object", given))
    return [_given_root(one) for one in cast("Iterable[object]", given)]


def _given_root(given: object) -> dict[str, str]:
    if isinstance(given, Mapping):
        named = cast("Mapping[object, object]", given)
        uri, name = named.get("uri"), named.get("name")
        unknown = [key for key in named if key not in ("uri", "name")]
        if unknown or not isinstance(uri, str) or not isinstance(name, str | None):
            raise _no_root(named)
        root = {"uri": uri} if _folder_of(uri) else {}
        return root | ({"name": name} if name else {})
    path: object = os.fspath(cast("os.PathLike[Any]", given)) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str) or not path:
        raise _no_root(cast("object", given))
    if not _SCHEME.match(path):
        return as_root(_existing(path, os.path.abspath(os.path.expanduser(path))))
    folder = _folder_of(path)
    return {"uri": path, "name": os.path.basename(folder.rstrip(os.sep)) or folder}


def _folder_of(uri: str) -> str:
    """The folder that a `file://` URI names.

    Raises:
        ArgumentError: The URI is of another kind, or names no existing folder of this machine.
    """
    from urllib.request import url2pathname  # imports all of urllib's HTTP: not at %load_ext

    try:
        scheme, host, path, query, fragment = urlsplit(uri)
    except ValueError:
        scheme = host = path = query = fragment = ""
    if scheme != "file" or host not in ("", "localhost") or not path.startswith("/") or query or fragment:
        message = f"mcp.roots: {uri[:_SHOWN]!r} is not the URI of a folder on this machine"
        raise ArgumentError(message, hint="such a URI is file:///path/of/the/folder")
    return _existing(uri, url2pathname(path))


def _existing(given: str, path: str) -> str:
    """Check that a path names an existing folder, and return it."""
    if os.path.isdir(path):
        return path
    if os.path.exists(path):
        problem, hint = "is not a folder", "name the folder that it is in"
    else:
        problem, hint = "does not exist", f"a relative path starts at {os.getcwd()}"
    raise ArgumentError(f"mcp.roots: {given[:_SHOWN]!r} {problem}", hint=hint)


def _no_root(given: object) -> ArgumentError:
    return ArgumentError(
        f"mcp.roots: expected folders, got {shown(given)}",
        hint="give a path, {'uri': 'file:///…', 'name': '…'}, or a list of them; None for the usual folders",
    )


class SamplingRequest(msgspec.Struct, frozen=True):
    """A server's request for a model's response."""

    server: str
    tool: str | None
    """The tool whose call sent the request, if known."""
    messages: list[dict[str, Any]]
    """`role` and `content`, in the protocol's form."""
    system_prompt: str | None
    max_tokens: int | None
    params: dict[str, Any]
    """All of the request's params: `modelPreferences`, `temperature`, `stopSequences`, …"""

    def __repr__(self) -> str:
        return one_line(f"<SamplingRequest of {self.server}, {len(self.messages)} messages>")

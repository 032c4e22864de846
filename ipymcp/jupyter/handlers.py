"""REST handlers of the Jupyter server extension: sessions, configuration, secrets and trust.

`APIHandler` checks login and origin, and XSRF for whatever is no GET; the rest is asked here, of the Authorizer.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
from jupyter_server.base.handlers import APIHandler
from msgspec.structs import asdict
from tornado.web import HTTPError, authenticated

from ipymcp.config.definition import Source
from ipymcp.config.discovery import candidates, discover
from ipymcp.config.editing import changed, edit, editable, ours, put, standing
from ipymcp.config.export import as_own
from ipymcp.config.parsing import RawServer, definition_of
from ipymcp.config.paths import user_file
from ipymcp.config.redaction import masked_definition
from ipymcp.errors import ConfigError, McpError, UnknownName
from ipymcp.jupyter.kernels import KernelUnavailable, asked, other_version
from ipymcp.protocol.types import is_object
from ipymcp.security.trust import Trust

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from jupyter_server.base.handlers import JupyterHandler

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import TrustAnswer, TrustQuestion
    from ipymcp.jupyter.kernels import Kernels
    from ipymcp.storage.store import Store

__all__ = [
    "TrustAgreement",
    "TrustAgreements",
    "Check",
    "Config",
    "OwnFile",
    "Rest",
    "Secret",
    "SecretNames",
    "ServerConfig",
    "Sessions",
    "WebSocketMixin",
    "allow_unauthenticated",
    "listed",
    "permit",
    "trust_of",
    "ws_authenticated",
]


if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_server.auth.decorator import allow_unauthenticated, ws_authenticated
    from jupyter_server.base.websocket import WebSocketMixin
else:
    try:
        from jupyter_server.base.websocket import WebSocketMixin
    except ImportError:  # before 2.0
        from jupyter_server.base.zmqhandlers import WebSocketMixin
    try:
        from jupyter_server.auth.decorator import allow_unauthenticated, ws_authenticated
    except ImportError:  # before 2.13 nothing asks for them

        def allow_unauthenticated(method: Callable[..., Any]) -> Callable[..., Any]:
            """Say that anybody may."""
            return method

        ws_authenticated = allow_unauthenticated


async def permit(handler: JupyterHandler, action: str, resource: str) -> None:
    """Let a user pass who is logged in and may do this.

    Raises:
        HTTPError: 403.
    """
    user = handler.current_user
    if not user:
        raise HTTPError(HTTPStatus.FORBIDDEN)
    allowed: Any = handler.authorizer.is_authorized(handler, user, action, resource)
    if inspect.isawaitable(allowed):
        allowed = await allowed
    if not allowed:
        raise HTTPError(HTTPStatus.FORBIDDEN, f"may not {action} {resource}")


class Rest(APIHandler):
    """JSON in, JSON out. What a definition says is run: who may not run code may change nothing here."""

    auth_resource = "ipymcp"

    async def prepare(self) -> None:
        """Check who asks, before anything is read."""
        ready: Any = super().prepare()  # before 2.0 it is no coroutine
        if inspect.isawaitable(ready):
            await ready
        if self._finished:
            return
        self.set_header("Cache-Control", "no-store")
        if self.request.method in ("GET", "HEAD"):
            await permit(self, "read", "ipymcp")
        else:
            await permit(self, "write", "ipymcp")
            await permit(self, "execute", "kernels")

    def body(self) -> dict[str, Any]:
        """The object that was sent.

        Raises:
            HTTPError: 400: it is none.
        """
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):  # strict: no NaN, no broken text
            if is_object(body := msgspec.json.decode(self.request.body)):
                return body
        raise HTTPError(HTTPStatus.BAD_REQUEST, "expected a JSON object")

    def text(self, body: Mapping[str, Any], key: str) -> str:
        """A field of it that must be a text.

        Raises:
            HTTPError: 400: it is none.
        """
        value = body.get(key)
        if not isinstance(value, str):
            raise HTTPError(HTTPStatus.BAD_REQUEST, f"{key!r} must be a text")
        return value

    def say(self, document: Mapping[str, Any]) -> None:
        """Answer."""
        self.finish(json.dumps(document, ensure_ascii=False))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Errors of ours have a message and a hint; nothing of them is logged."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, McpError | KernelUnavailable):
            status = HTTPStatus.NOT_FOUND if isinstance(error, UnknownName) else HTTPStatus.BAD_REQUEST
            self.set_status(status)
            self.say({"message": error.message, "hint": error.hint or ""})
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, typ: Any, value: BaseException | None, tb: TracebackType | None) -> None:
        """What a user did wrong is no fault of the server."""
        if not isinstance(value, McpError | KernelUnavailable):
            super().log_exception(typ, value, tb)


_HELLO = {"kind": "hello", "client": "server", "wants": ["servers"]}


class Sessions(Rest):
    """`GET sessions`: every kernel, and its servers where it tells."""

    def initialize(self, kernels: Kernels) -> None:
        """Take what the routes give."""
        self._kernels = kernels

    @authenticated
    async def get(self) -> None:
        """All of them, at once."""
        await permit(self, "read", "kernels")
        manager: Any = self.session_manager
        listed: Any = await manager.list_sessions()
        paths = {one["kernel"]["id"]: one["path"] for one in listed if one.get("kernel")}
        rows = await asyncio.gather(*(self._row(one, paths.get(one)) for one in self._kernels.ids()))
        self.say({"kernels": rows})

    async def _row(self, kernel_id: str, path: str | None) -> dict[str, Any]:
        row = {"id": kernel_id, "name": self._kernels.name(kernel_id), "path": path}
        try:
            found = await asyncio.to_thread(self._kernels.find, kernel_id)
            snapshot = await asked(found, _HELLO, "snapshot")
        except KernelUnavailable as obstacle:
            return {**row, **obstacle.document}
        other = other_version(found) or {}
        return {**row, "state": "open", **other, "ipymcp": found.ipymcp, "servers": snapshot["state"]["servers"]}


T = TypeVar("T")
_MASK = "•••• ("
"""How what is masked begins."""


def listed(folder: str) -> dict[str, Any]:
    """Every server that is configured for the notebooks of a folder, masked. Blocking."""
    found = discover(candidates(folder, environ={}))
    return {
        "file": user_file(),
        "servers": [_row(name, entry) for name, entry in found.servers.items()],
        "problems": [_problem(error) for error in found.problems],
    }


def trust_of(store: Store) -> Trust:
    """What may run, as all kernels of the user remember it; nobody is asked here."""
    return Trust(lambda: store.database, _nobody)


class OwnFile:
    """The file, and whether what was written into it may run.

    Args:
        store: Remembers that.
    """

    def __init__(self, store: Store) -> None:
        self._trust = trust_of(store)

    async def add(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a new server. What the user has typed may run.

        Raises:
            ConfigError: There is one of that name, it is wrong, or the file cannot be written.
        """
        await self._trust.agree_to_typed(await _edited(lambda document: _add(name, values, document)))

    async def change(self, name: str, values: Mapping[str, Any]) -> None:
        """Change some values of a server; None takes one out. It may run if it might before.

        Raises:
            UnknownName: The file does not define it.
            ConfigError: It would be wrong, or the file cannot be written.
        """
        before, after = await _edited(lambda document: _change(name, values, document))
        grant = await self._trust.grant(before) if before is not None else None
        await self._trust.carry_over(grant, after)

    async def remove(self, name: str) -> None:
        """Take a server out. Raises as `change`."""
        await _edited(lambda document: _remove(name, document))

    async def check(self, name: str, values: Mapping[str, Any], *, is_new: bool) -> None:
        """Raise what `add` or `change` would raise of these values; nothing is written."""
        _, document = await asyncio.to_thread(editable, Path(user_file()))
        (_add if is_new else _change)(name, values, document)


async def _edited(alter: Callable[[dict[str, Any]], T]) -> T:
    """Have the file changed, and give what that gives."""
    given: list[T] = []
    await asyncio.to_thread(edit, Path(user_file()), lambda document: given.append(alter(document)), private=True)
    return given[0]


def _add(name: str, values: Mapping[str, Any], document: dict[str, Any]) -> ServerDefinition:
    _refuse_masks(values)
    if name in document["mcpServers"]:
        raise ConfigError(f"{name} is there already", hint="change it, or choose another name")
    source = _source()
    written = RawServer(name, f"mcpServers.{name}", changed({}, values))
    return put(definition_of(written, "mcpServers", source, {}), document, source)


def _change(
    name: str, values: Mapping[str, Any], document: dict[str, Any]
) -> tuple[ServerDefinition | None, ServerDefinition]:
    """The definition before, None where it could not be used, and after."""
    _refuse_masks(values)
    source, entry = _source(), _entry(name, document)
    try:
        before = standing(name, document, source)
    except ConfigError:
        before = None
    document["mcpServers"][name] = changed(ours(entry, values, source), values)
    return before, standing(name, document, source)


def _remove(name: str, document: dict[str, Any]) -> None:
    _entry(name, document)
    del document["mcpServers"][name]


def _entry(name: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
    entry = document["mcpServers"].get(name)
    if not isinstance(entry, Mapping):
        raise UnknownName(f"{user_file()} defines no server {name!r}", hint="no other file is written")
    return cast("Mapping[str, Any]", entry)


def _source() -> Source:
    file = Path(user_file())
    return Source(scope="user", file=str(file), folder=str(file.parent))


def _refuse_masks(value: object, key: str = "") -> None:
    """What a view was shown masked is no value."""
    if isinstance(value, str) and _MASK in value:
        raise ConfigError(f"{key}: is a mask, no value", hint="leave it out to keep what it is, or type it anew")
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, object]", value).items():
            _refuse_masks(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            _refuse_masks(inner, f"{key}[{index}]")


def _row(name: str, entry: ServerDefinition | ConfigError) -> dict[str, Any]:
    if isinstance(entry, ConfigError):
        return {"name": name, "error": _problem(entry)}
    source = entry.source
    return {
        "name": name,
        "definition": as_own(masked_definition(entry).replace(extra={})),
        "unused": [*entry.extra],
        "file": source.file,
        "scope": source.scope,
        "is_writable": source.file == user_file(),
    }


def _problem(error: ConfigError) -> dict[str, str]:
    return {"message": error.message, "hint": error.hint or ""}


async def _nobody(question: TrustQuestion) -> TrustAnswer | None:
    return None


class _Settings(Rest):
    """Over the user's own state. What it takes to read config is imported by the first request."""

    def initialize(self, store: Store) -> None:
        """Take what the routes give."""
        self._store = store

    def _own_file(self) -> OwnFile:

        return OwnFile(self._store)

    def _values(self, key: str) -> dict[str, Any]:
        values = self.body().get(key)
        if not is_object(values):
            raise HTTPError(HTTPStatus.BAD_REQUEST, f"{key!r} must be an object")
        return values


class Config(_Settings):
    """`GET config[?path=NOTEBOOK]`: the servers that are configured, for that notebook too, masked."""

    @authenticated
    async def get(self) -> None:
        """All of them."""
        self.say(await asyncio.to_thread(listed, self._folder()))

    def _folder(self) -> str:
        """The notebook's, where Jupyter serves files; else home, which belongs to no project."""
        home, path = os.path.expanduser("~"), self.get_query_argument("path", "")
        root = os.path.realpath(os.path.expanduser(str(getattr(self.contents_manager, "root_dir", "") or home)))
        folder = os.path.realpath(os.path.join(root, os.path.dirname(path.lstrip("/"))))
        if not path:
            return home
        if os.path.commonpath([root, folder]) != root or not os.path.isdir(folder):
            raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such folder")
        return folder


class Check(_Settings):
    """`POST config/check`: what is wrong with a new `definition`, or a `change` of an old one, under a `name`."""

    @authenticated
    async def post(self) -> None:
        """Look, and write nothing."""
        body = self.body()
        name, is_new = self.text(body, "name"), "definition" in body
        values = self._values("definition" if is_new else "change")
        try:
            await self._own_file().check(name, values, is_new=is_new)
        except (ConfigError, UnknownName) as error:
            self.say({"errors": [{"message": error.message, "hint": error.hint or ""}]})
        else:
            self.say({"errors": []})


class ServerConfig(_Settings):
    """`config/servers/NAME`: one server in the user's own file."""

    @authenticated
    async def put(self, name: str) -> None:
        """Add it, by its `definition`."""
        await self._own_file().add(name, self._values("definition"))
        self.say({})

    @authenticated
    async def patch(self, name: str) -> None:
        """Change it: null takes a value out."""
        await self._own_file().change(name, self._values("change"))
        self.say({})

    @authenticated
    async def delete(self, name: str) -> None:
        """Take it out."""
        await self._own_file().remove(name)
        self.say({})


class SecretNames(_Settings):
    """`GET secrets`: what there is, by name."""

    @authenticated
    async def get(self) -> None:
        """Names, places and times; no values."""
        kept = await asyncio.to_thread(self._store.secrets.kept)
        self.say({"secrets": [asdict(one) for one in kept]})


class Secret(_Settings):
    """`secrets/NAME`: may be set and deleted, never read."""

    @authenticated
    async def put(self, name: str) -> None:
        """Keep a `value`."""
        value = self.text(self.body(), "value")
        self.say(asdict(await asyncio.to_thread(self._store.secrets.set, name, value)))

    @authenticated
    async def delete(self, name: str) -> None:
        """Forget it."""
        if not await asyncio.to_thread(self._store.secrets.delete, name):
            raise UnknownName(f"no secret {name!r} is kept", hint="GET secrets lists them")
        self.say({})


class TrustAgreements(_Settings):
    """`GET trust`: what the user has agreed to run."""

    @authenticated
    async def get(self) -> None:
        """All of it, oldest first."""
        agreed = await trust_of(self._store).agreements()
        self.say({"agreements": [{**asdict(one), "secrets": sorted(one.secrets)} for one in agreed]})


class TrustAgreement(_Settings):
    """`trust/DIGEST`: one of them."""

    @authenticated
    async def delete(self, digest: str) -> None:
        """Take it back: the server is asked about before it starts again."""
        if not await trust_of(self._store).revoke(digest):
            raise UnknownName("nothing of that digest was agreed to", hint="GET trust lists what was")
        self.say({})

"""The start of a connection: values of variables, transport, login, and protocol era.

HTTP code is imported when the first remote server is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from ipymcp.config.programs import program, program_name
from ipymcp.config.redaction import sensitive
from ipymcp.errors import ConfigError, ConnectionLost, HttpError, ProtocolError, RpcError, SecretError, StartError
from ipymcp.masking import masks
from ipymcp.protocol.transports.addresses import checked_headers, parse_address
from ipymcp.protocol.transports.stdio import StdioTransport
from ipymcp.runtime.connection import Connection, ConnectionOwner
from ipymcp.runtime.oauth_redirects import SessionUser
from ipymcp.runtime.process_env import launch
from ipymcp.runtime.reaper_child import MARK
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from typing import Protocol

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.oauth.provider import OAuth
    from ipymcp.protocol.oauth.tokens import LoginUser
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.server_status import LoginOwner, ServerFacts

    class StartingSession(ConnectionOwner, LoginOwner, Protocol):
        """A session whose server is being started."""


TransportKind = Literal["stdio", "http", "sse"]
_NO_SUCH_TRANSPORT = frozenset({400, 404, 405})
"""HTTP statuses with which a server that only supports legacy SSE responds to a POST."""


class Connector:
    """Opens the connections of one session, from one start to its stop.

    Args:
        session: The session.
        context: The host's services.
    """

    def __init__(self, session: StartingSession, context: RuntimeContext) -> None:
        self._session = session
        self._definition = session.definition
        self._expanded: ServerDefinition | None = None
        self._context = context
        self._kinds = transport_kinds(self._definition)
        self._login: OAuth | None = None

    async def connect(self, start: Start) -> Connection:
        """Open a connection: start the process or connect to the URL, negotiate the protocol, and list the tools."""
        expanded = await expand_definition(self._session, start.paused, self._context)
        if self._login is None or expanded != self._expanded:
            user = SessionUser(self._session, self._context.questions)
            self._login = _authorizer(expanded, self._session.digest, user, self._context)
        self._expanded = expanded
        first, *others = self._kinds
        try:
            connection = await self._open_in_known_era(first, start)
            self._kinds = (first,)
        except HttpError as error:
            if not others or error.status not in _NO_SUCH_TRANSPORT:
                raise
            self._log(f"it does not support Streamable HTTP (HTTP {error.status}); trying the older HTTP with SSE")
            try:
                connection = await self._open_in_known_era(others[0], start)
            except (HttpError, ProtocolError):
                raise error from None
            self._kinds = (others[0],)
        return connection

    async def _open_in_known_era(self, kind: TransportKind, start: Start) -> Connection:
        """Open a connection in the era of the definition or of the last connection; else negotiate the era."""
        era = self._definition.era
        if kind == "sse":
            return await self._open(kind, "legacy", start)
        if era != "auto":
            return await self._open(kind, era, start)
        digest, known = self._session.digest, self._context.store.known
        connection = None
        last_era = await known.era(digest)
        if last_era is not None:
            known.forget_era(digest)
            try:
                connection = await self._open(kind, last_era, start)
            except (ConnectionLost, HttpError, ProtocolError, RpcError) as error:
                if kind != "stdio" and isinstance(error, ConnectionLost):
                    known.keep_era(digest, last_era)  # an unreachable server may still have the same era
                    raise
                if self._is_hopeless():
                    raise
                self._log(f"it no longer answers as it did before ({error.message}); negotiating again")
        if connection is None:
            connection = await self._negotiate_era(kind, start)
        if connection.client.era_was_answered:
            known.keep_era(digest, "modern" if connection.client.era.kind == "stateless" else "legacy")
        return connection

    async def _negotiate_era(self, kind: TransportKind, start: Start) -> Connection:
        """Ask the server for its era; start a program that then ends or refuses the handshake again without asking.

        Some bridges treat any first message as the handshake of their session.
        """
        try:
            return await self._open(kind, "auto", start)
        except (ConnectionLost, RpcError) as error:
            if kind != "stdio" or self._is_hopeless():
                raise
            self._log(f"it ended after server/discover ({error.message}); trying only initialize")
            return await self._open(kind, "legacy", start)

    def _is_hopeless(self) -> bool:
        """Whether another start at once would end as the last one did, whatever is sent to the program."""
        connection = self._session.connection
        return connection is not None and connection.is_hopeless(is_first=True)

    async def _open(self, kind: TransportKind, era: EraChoice, start: Start) -> Connection:
        assert self._expanded is not None
        seconds = self._definition.start_timeout
        transport = _transport(self._expanded, kind, self._context, self._login)
        connection = self._session.connection = Connection(self._session, self._expanded, transport, self._context)
        hint = asyncio.get_running_loop().call_later(
            self._context.timing.download_hint, self._announce_progress, connection
        )
        try:
            async with start.limited(seconds):
                await connection.open(era, is_fixed=self._definition.era != "auto")
        except TimeoutError as error:
            await connection.client.aclose("the start failed")
            missing = "answered, but did not list its tools" if connection.client.era.version else "did not answer"
            raise StartError(f"{missing} within {seconds:g} s") from error
        except BaseException:
            await connection.client.aclose("the start failed")
            raise
        finally:
            hint.cancel()
        return connection

    def _log(self, text: str) -> None:
        self._session.log.add("host", "info", text)

    def _announce_progress(self, connection: Connection) -> None:
        if not self._session.status.is_moving:
            return
        if connection.client.era.version:
            progress = "it has answered and is listing its tools"
        else:
            may_download = program(program_name(self._definition.command or "")).may_download
            progress = "downloading?" if may_download else "it has not answered yet"
        output = [f"last output: {line.strip()}" for line in connection.last_stderr[-1:]]
        said = "; ".join(filter(None, ["still starting", progress, connection.client.unread_output, *output]))
        self._session.status.announce(said)


class Start:
    """A start in progress: an async context manager that holds one of the slots for simultaneous starts.

    Args:
        slots: The free slots.
    """

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._has_slot = False
        self._timeout: asyncio.Timeout | None = None

    async def __aenter__(self) -> Start:
        await self._slots.acquire()
        self._has_slot = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._has_slot:
            self._slots.release()

    @contextlib.asynccontextmanager
    async def limited(self, seconds: float) -> AsyncGenerator[None]:
        """Raise `TimeoutError` after this time, not counting the time of a login."""
        async with asyncio.timeout(seconds) as self._timeout:
            yield
        self._timeout = None

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """Release the slot and pause the timeout while the user logs in or enters values."""
        loop, timeout = asyncio.get_running_loop(), self._timeout
        end = timeout.when() if timeout is not None else None
        left = end - loop.time() if end is not None else None
        if timeout is not None and left is not None:
            timeout.reschedule(None)
        self._has_slot = False
        self._slots.release()
        yield
        await self._slots.acquire()
        self._has_slot = True
        if timeout is not None and left is not None:
            timeout.reschedule(loop.time() + left)


# -- transports -------------------------------------------------------------------------------------------------------


def transport_kinds(definition: ServerDefinition) -> tuple[TransportKind, ...]:
    """The transports to try, in this order.

    An older server may only support legacy SSE: it responds to the POST with 400, 404 or 405, and a GET is tried
    (2025-11-25 transports, backwards compatibility).
    """
    if definition.transport == "http" and definition.era != "modern":
        return "http", "sse"
    return (definition.transport,)


def _transport(
    definition: ServerDefinition, kind: TransportKind, context: RuntimeContext, login: OAuth | None
) -> Transport:
    """A transport that is not open yet.

    Raises:
        McpError: The expanded definition cannot be used: no such program or folder, an invalid URL or header.
    """
    masks.add(*sensitive(definition))
    if kind == "stdio":
        process = launch(definition, context.folder)
        return StdioTransport(
            msgspec.structs.replace(process, env={**process.env, MARK: context.reaper.mark}),
            context.reaper,
            limit=definition.max_result_bytes,
            grace=context.timing.grace,
        )
    assert definition.url is not None
    from ipymcp.protocol.transports.http import LegacySseTransport, StreamableHttpTransport

    remote = LegacySseTransport if kind == "sse" else StreamableHttpTransport
    headers = dict(definition.headers)
    if definition.auth.get("type") == "bearer":
        headers["Authorization"] = f"Bearer {definition.auth['token']}"
    return remote(definition.url, headers=headers, authorizer=login, limit=definition.max_result_bytes)


def _authorizer(definition: ServerDefinition, digest: str, user: LoginUser, context: RuntimeContext) -> OAuth | None:
    """The authorizer for the server's login; None if the definition has credentials or the server has no login.

    Args:
        definition: The expanded definition.
        digest: The digest of the unexpanded definition, under which tokens are stored.
        user: The user who logs in.
        context: The host's services.
    """
    url = definition.url or ""
    has_credentials = any(name.lower() == "authorization" for name in definition.headers)
    if not url.startswith(("http://", "https://")) or has_credentials or definition.auth.get("type") == "bearer":
        return None
    from ipymcp.protocol.oauth.clients import OAuthSettings
    from ipymcp.protocol.oauth.http import fetch
    from ipymcp.protocol.oauth.provider import OAuth

    given = dict(definition.auth)
    kind, scopes = given.pop("type", "oauth"), tuple(given.pop("scopes", ()))
    settings = OAuthSettings(grant="authorization_code" if kind == "oauth" else kind, scopes=scopes, **given)
    is_registered = settings.redirect_uri or settings.client_id or settings.client_metadata_url
    open_redirect = None if is_registered else context.redirects.open  # a registered client has fixed redirect URIs
    return OAuth(url, settings, context.store.tokens, user, fetch, open_redirect=open_redirect, definition=digest)


# -- variables --------------------------------------------------------------------------------------------------------


async def expand_definition(
    session: ServerFacts, pause: Callable[[], AbstractAsyncContextManager[None]], context: RuntimeContext
) -> ServerDefinition:
    """Replace the variables in a session's definition by their current values. Inputs are asked for once.

    Args:
        session: The session.
        pause: Returns a context manager that is entered while the user is asked.
        context: The host's services.

    Raises:
        ConfigError: A variable has no value, or the URL or a header is invalid.
    """
    from ipymcp.config.redaction import secret_variables
    from ipymcp.config.variables import Lookup, expand, read_content, references  # not at %load_ext

    def secret_content(path: Path) -> str:
        content = read_content(path)
        masks.add(content)
        return content

    definition = session.definition
    found = references(definition)
    inputs = list(dict.fromkeys(one.name for one in found if one.kind == "input" and one.name in definition.inputs))
    if inputs:
        await _ask_inputs(session, inputs, pause, context)
    values = {name: context.store.inputs.given(definition, name) for name in inputs}
    given = {name: value for name, value in values.items() if value is not None}
    lookup = Lookup(
        context.folder,
        lambda name: context.store.secrets.get(name),
        given,
        lambda name: context.store.inputs.variable(definition, name, session.digest),
        secret_content,
    )
    if definition.env_file is None and not any(map(_needs_store, found)):
        expanded = expand(definition, lookup)
    else:  # reads a file or a keyring, which may be slow
        expanded = await asyncio.to_thread(expand, definition, lookup)
    _check(expanded)
    masks.add(*secret_variables({one.name: os.environ.get(one.name, "") for one in found if one.kind == "variable"}))
    return expanded


def _needs_store(reference: Reference) -> bool:
    is_unset = reference.kind == "variable" and reference.default is None and reference.name not in os.environ
    return is_unset or reference.kind in ("secret", "file")


async def _ask_inputs(
    session: ServerFacts,
    inputs: list[str],
    pause: Callable[[], AbstractAsyncContextManager[None]],
    context: RuntimeContext,
) -> None:
    """Ask the user for values that are not known yet; where no one can be asked, use the defaults."""
    definition, known = session.definition, context.store.inputs

    def missing() -> list[str]:
        return [name for name in inputs if known.given(definition, name) is None]

    passwords = [name for name in inputs if definition.hides_input(name)]
    await _load_passwords(session, [name for name in passwords if name in missing()], context)
    if not missing():
        pass
    elif context.questions.can_ask("secret"):
        from ipymcp.interaction.elicitation import InputQuestion

        async with pause():
            while names := missing():
                fields = {name: _field(definition.inputs[name]) for name in names}
                message = f"{definition.source} asks for {'a value' if len(names) == 1 else 'values'}"
                schema = {"type": "object", "properties": fields, "required": names}
                question = InputQuestion(session.name, None, message, schema)
                # another server of the same file may have asked for some of them meanwhile
                answer = await context.questions.ask(question, is_current=lambda names=names: missing() == names)
                for name, value in (answer.content or {}).items():
                    known.give(definition, name, str(value))
                if missing() == names:
                    break
    else:
        for name in missing():
            default = _field(definition.inputs[name]).get("default")
            if default is not None:
                known.give(definition, name, default)
    await _save_passwords(session, [name for name in passwords if name not in missing()], context)


async def _load_passwords(session: ServerFacts, names: Iterable[str], context: RuntimeContext) -> None:
    for name in names:
        try:
            if await asyncio.to_thread(context.store.inputs.recall, session.definition, name, session.digest):
                saved = f"input:{name}"
                session.log.add("host", "info", f"{saved} is saved; %mcp secret delete {quoted(saved)} deletes it")
        except SecretError as error:
            session.log.add("host", "warning", f"the saved value of input:{name} cannot be read: {error.message}")


async def _save_passwords(session: ServerFacts, names: Iterable[str], context: RuntimeContext) -> None:
    for name in names:
        try:
            await asyncio.to_thread(context.store.inputs.keep, session.definition, name, session.digest)
        except SecretError as error:
            session.log.add("host", "warning", f"input:{name} is not saved: {error.message}")


def _field(described: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an input as VS Code describes it into a form field."""
    field: dict[str, Any] = {"type": "string"}
    for key in ("description", "default"):
        if isinstance(described.get(key), str):
            field[key] = described[key]
    options = described.get("options")
    if isinstance(options, list):
        items = cast("list[object]", options)
        values = [
            cast("Mapping[str, object]", item).get("value") if isinstance(item, Mapping) else item for item in items
        ]
        field["enum"] = [value for value in values if isinstance(value, str)]
    if described.get("password") is True:
        field["format"] = "password"
        field.pop("default", None)
    return field


def _check(definition: ServerDefinition) -> None:
    """Raise for an invalid URL or header, without showing it, because it may contain a secret."""
    where = definition.source.where
    try:
        if definition.url is not None:
            parse_address(definition.url)
    except ConfigError as error:
        message = f"{where('url')}: after replacing its variables, this is not the URL of an HTTP server"
        raise ConfigError(message, hint=error.hint) from None
    try:
        checked_headers(definition.headers)
    except ConfigError as error:
        message = f"{where('headers')}: after replacing its variables, a header is invalid"
        raise ConfigError(message, hint=error.hint) from None

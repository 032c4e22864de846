"""Servers that are being added: tried once, then kept in the notebook or a file, or dropped with their secrets.

The coroutines run on the background loop, and read and write files in threads.
"""

from __future__ import annotations

import asyncio
import re
import threading
from pprint import pformat
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from ipymcp.config.hosts import as_own
from ipymcp.config.variables import has_variables
from ipymcp.errors import McpError
from ipymcp.names import unused
from ipymcp.setup import config_edits
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.redaction import Hide
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.trust import Grant


T = TypeVar("T")
Keep: TypeAlias = Literal["notebook", "me", "project"]
"""The place where a new server is kept: this notebook until the kernel ends, the user's own file, or the project's."""
_NAMING_LOCK = threading.Lock()
"""Held while an unused name is chosen for a secret."""


class Addition:
    """A server that is being added: it is defined, and the user has agreed to it; it may have been tried.

    Args:
        host: The host of the notebook.
        definition: The server as it will be defined.
        keep: Where the server is kept.
        grant: The user's agreement to it.
        secrets: The secrets that were stored for it.
        replaces: Whether it replaces a server of the same name.
        notes: Lines for the user.
    """

    def __init__(
        self,
        host: Host,
        definition: ServerDefinition,
        keep: Keep,
        grant: Grant,
        *,
        secrets: NewSecrets,
        replaces: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self.definition = definition
        self.keep = keep
        self.notes = notes
        self._host = host
        self._grant = grant
        self._secrets = secrets
        self._replaces = replaces
        self.session: ServerSession | None = None
        """The running server, while it is tried."""
        self._trying: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name of the server in the notebook."""
        return self.definition.name

    @property
    def place(self) -> str:
        """The file that will define the server, or `this notebook`."""
        return str(self.definition.source.file) if self.keep != "notebook" else "this notebook"

    async def try_out(self) -> None:
        """Start the server, and wait until it is ready or has failed. Cancelling the wait stops the server."""
        self._trying = self._host.loop.spawn(self._try_out(), f"ipymcp-try-{self.definition.name}")
        await self._trying

    @property
    def on_trial(self) -> ServerSession | None:
        """The server while it runs on trial."""
        return next((one for one in self._host.trials.sessions if one.definition is self.definition), None)

    async def _try_out(self) -> None:
        self.session = await self._host.trials.run(self.definition, self._grant)

    def require(self) -> None:
        """Check that the server has started.

        Raises:
            ServerError: It has not.
        """
        assert self.session is not None
        try:
            self.session.require()
        except McpError as error:
            if error.hint and error.hint.startswith("%mcp logs"):
                error.hint = (
                    f"Nothing was saved. Check the {'command' if self.definition.command is not None else 'address'}."
                )
            raise

    async def save(self) -> None:
        """Keep the server, and load it. Once begun, this completes even if the wait is cancelled.

        Raises:
            ConfigError: The file cannot be written, or already defines a server of this name.
        """
        if self._saving is None or self._saving.done():
            self._saving = self._host.loop.spawn(self._save(), f"ipymcp-save-{self.definition.name}")
        await asyncio.shield(self._saving)

    async def _save(self) -> None:
        host, definition = self._host, self.definition
        if self.keep != "notebook":
            await config_edits.save(definition, self._grant, host, replaces=self._replaces)
        self._secrets.keep()
        if self.session is not None:
            await host.trials.adopt(self.session)
            self.session = None
        else:
            await host.load([definition])

    async def drop(self) -> None:
        """Stop the server and delete the secrets that were stored for it, unless it was saved.

        A trial in progress is cancelled. This completes even if the wait is cancelled.
        """
        await asyncio.shield(self._host.loop.spawn(self._drop(), f"ipymcp-drop-{self.definition.name}"))

    async def _drop(self) -> None:
        if self._saving is not None:
            await asyncio.wait({self._saving})
        if self._trying is not None and not self._trying.done():
            self._trying.cancel()
            await asyncio.wait({self._trying})
        session, self.session = self.session, None
        try:
            if session is not None:
                await self._host.trials.end(session)
        finally:
            await self._secrets.delete()

    def cell(self, namespace: str) -> str:
        """The source of a cell that loads the server again. It contains no secret that the user was asked for.

        Args:
            namespace: The variable that `mcp` is bound to; empty if there is none.
        """
        definition = self.definition
        if self.keep != "notebook":
            return f"%mcp load {quoted(definition.name)}"
        if definition.source.scope == "cell":
            line = ["%mcp load", quoted(definition.name)]
            line += [f"--header {_quoted(f'{name}: {value}')}" for name, value in definition.headers.items()]
            line += [f"--env {_quoted(f'{name}={value}')}" for name, value in definition.env.items()]
            if definition.url is not None:
                transport = ["--transport sse"] if definition.transport == "sse" else []
                return " ".join([*line, quoted(definition.url), *transport])
            return " ".join([*line, "--", *(_quoted(word) for word in (definition.command or "", *definition.args))])
        document: dict[str, Any] = {definition.name: as_own(definition)}
        if definition.inputs:
            described = [{"id": name, **about} for name, about in definition.inputs.items()]
            document = {"mcpServers": document, "inputs": described}
        values = pformat(document, width=100, sort_dicts=False)
        text = f"{namespace or 'mcp'}.load({values})"
        return text if namespace else f"from ipymcp import mcp\n\n{text}"


class AdditionGroup:
    """Servers that are added together: all of them are kept, or none.

    Args:
        additions: The servers, at least one.
        notes: Lines for the user in addition to those of the servers.
    """

    def __init__(self, additions: Sequence[Addition], notes: Sequence[str] = ()) -> None:
        self.additions = tuple(additions)
        self.keep = additions[0].keep
        self.place = additions[0].place
        self.notes = [*notes, *(note for one in additions for note in one.notes)]

    @property
    def name(self) -> str:
        """The names of the servers."""
        return ", ".join(one.name for one in self.additions)

    @property
    def on_trial(self) -> ServerSession | None:
        """A server that runs on trial, preferably one that is not ready yet."""
        running = [session for one in self.additions if (session := one.on_trial) is not None]
        return next((session for session in running if not session.is_settled), next(iter(running), None))

    async def try_out(self) -> None:
        """Start the servers, and wait until each is ready or has failed. Cancelling the wait stops them."""
        await asyncio.gather(*(one.try_out() for one in self.additions))

    def require(self) -> None:
        """Check that all servers have started.

        Raises:
            ServerError: One has not.
        """
        for one in self.additions:
            one.require()

    async def save(self) -> None:
        """Keep the servers, and load them.

        Raises:
            ConfigError: The file cannot be written, or already defines a server of one of the names.
        """
        for one in self.additions:
            await one.save()

    async def drop(self) -> None:
        """Stop the servers that were not saved, and delete the secrets that were stored for them."""
        await asyncio.gather(*(one.drop() for one in self.additions))

    def cell(self, namespace: str) -> str:
        """The source of a cell that loads the servers again, as that of one addition."""
        return "\n".join(one.cell(namespace) for one in self.additions)


def _quoted(text: str) -> str:
    return quoted(text) if re.fullmatch(r"[\w./:@=+-]+", text) is None else text


class NewSecrets:
    """The secrets that are stored for a server that is being added.

    Args:
        host: The host of the notebook.
        server: The name of the server.
    """

    def __init__(self, host: Host, server: str) -> None:
        self._host = host
        self._server = server
        self._storing: list[asyncio.Task[str]] = []

    async def store(self, key: str, value: str) -> str:
        """Store a secret under an unused name, and return its variable."""
        storing = self._host.loop.spawn(asyncio.to_thread(self._store, key, value), "ipymcp-new-secret")
        self._storing.append(storing)
        return f"${{secret:{await asyncio.shield(storing)}}}"

    def _store(self, key: str, value: str) -> str:
        with _NAMING_LOCK:
            kept = {one.name for one in self._host.store.secrets.kept()}
            name = unused(_secret_name(self._server, key), kept)
            self._host.store.secrets.set(name, value)
        return name

    def keep(self) -> None:
        """Keep the secrets, because the server is kept; `delete` then does nothing."""
        self._storing = []

    async def delete(self) -> None:
        """Delete the secrets, including those that are being stored. Completes even if the wait is cancelled."""
        await asyncio.shield(self._host.loop.spawn(self._delete(), "ipymcp-delete-secrets"))

    async def _delete(self) -> None:
        storing, self._storing = self._storing, []
        names = await asyncio.gather(*storing, return_exceptions=True)
        outcomes = await asyncio.gather(
            *(asyncio.to_thread(self._host.store.secrets.delete, name) for name in names if isinstance(name, str)),
            return_exceptions=True,
        )
        for error in outcomes:
            if isinstance(error, BaseException):
                raise error


AnyAddition: TypeAlias = Addition | AdditionGroup


async def add(addition: AnyAddition) -> None:
    """Try servers, and keep them if they start.

    Raises:
        ServerError: One did not start; nothing is kept.
        ConfigError: The file cannot be written.
    """
    try:
        await addition.try_out()
        addition.require()
        await addition.save()
    except BaseException:
        await addition.drop()
        raise


async def with_stored_secrets(secrets: NewSecrets, hidden: Callable[[Hide], T]) -> T:
    """Move likely secrets of a text or a definition to the secret store.

    Args:
        secrets: Stores the secrets.
        hidden: Returns the text or the definition with its likely secrets replaced by the given function.
    """
    found: dict[tuple[str, str], str] = {}

    def collect(secret: str, name: str) -> str:
        if not has_variables(secret):
            found[name, secret] = secret
        return secret

    hidden(collect)
    for name, secret in found:
        found[name, secret] = await secrets.store(name.lstrip("-") or "secret", secret)
    return hidden(lambda secret, name: found.get((name, secret), secret))


def _secret_name(server: str, key: str) -> str:
    return config_edits.secret_prefix(server) + re.sub(r"[^A-Za-z0-9_.-]", "_", key)

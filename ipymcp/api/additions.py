"""The MCP registry as tables, and additions of servers from it or from a definition.

Tables: a search, the details of a server, and newer versions of servers that came from the registry. An added server is
started once before it is kept in notebook or file. The coroutines run on the background loop, and read and write files
in threads.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from functools import partial
from os.path import exists, isabs, isfile, join, relpath
from pathlib import Path
from pprint import pformat
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from ipymcp.api import config_edits
from ipymcp.api.load_request import TYPED_SCOPES, read_definitions, url_definition
from ipymcp.config import unused_settings
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import as_own
from ipymcp.config.pasted import package_hint
from ipymcp.config.paths import cache_folder
from ipymcp.config.redaction import masked, masked_definition, wanted_secrets
from ipymcp.config.variables import has_variables, references
from ipymcp.errors import ConfigError, McpError, PolicyError, UnknownName
from ipymcp.interaction.elicitation import InputQuestion
from ipymcp.names import nearest, server_name, unused
from ipymcp.protocol.types import is_object
from ipymcp.registry.client import OFFICIAL, Registry, verified
from ipymcp.registry.install import WantedInput, Way, absolute_path, require_public, ways
from ipymcp.results.tables import Table
from ipymcp.runtime.process_env import folder_of
from ipymcp.security.trust import Grant
from ipymcp.security.untrusted import refuse_models
from ipymcp.text import quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ipymcp.config.pasted import PastedServers
    from ipymcp.config.redaction import Hide
    from ipymcp.registry.client import Entry, FoundEntries
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession

# -- registry ----------------------------------------------------------------------------------------------------------


ORIGIN = "registry"
"""The key of a definition under which the server's name and version in the registry are stored."""
_MAX_REQUESTS = 8
"""Maximum concurrent requests for comparing versions."""
_MAX_REMARK = 100
"""Maximum length of a publisher's remark in a question."""


def registry_of(host: Host) -> Registry:
    """The configured registry, by default the official one."""
    return Registry(Path(cache_folder()) / "registry", host.registry_address or OFFICIAL)


def origin_of(entry: Entry, registry: Registry) -> str:
    """A server's name and version with its registry, its publisher, and whether it is deprecated, for questions."""
    remarks = [verified(entry.name, registry.address) or "publisher not verified"]
    if entry.status == "deprecated":
        why = f": {shortened(entry.status_message, _MAX_REMARK)!r}" if entry.status_message else ""
        remarks.append(f"deprecated{why}")
    return f"{entry.name} {entry.version} of {registry.host} ({'; '.join(remarks)})"


class FoundServers(Table):
    """A table of servers of a registry. `.entries` are the servers.

    Args:
        found: The result of a search.
        registry: The registry.
    """

    def __init__(self, found: FoundEntries, registry: Registry) -> None:
        self.entries = tuple(found.entries)
        rows = [
            (
                one.name,
                one.version,
                ", ".join(dict.fromkeys(way.label for way in ways(one))),
                "" if one.status == "active" else one.status,
                one.description,
            )
            for one in found.entries
        ]
        notes = [*found.notes]
        if not rows:
            notes.append(f"{registry.host} has no such server; it searches for one word, in names only")
        elif found.cursor:
            notes.append("there are more: -n N shows them, or add a word to narrow the search")
        if rows:
            notes.append("%mcp add NAME tries one and keeps it; %mcp search NAME shows a server in full")
        columns = ("name", "version", "runs as", "status", "description")
        super().__init__(columns, rows, title=f"servers of {registry.host}", note="\n".join(notes))


async def search(host: Host, words: Sequence[str], limit: int) -> Table:
    """Find servers of the registry, or show the details of one, given its full name."""
    registry = registry_of(host)
    if len(words) == 1 and "/" in words[0]:
        entry, notes = await registry.entry(words[0])
        return entry_table(entry, registry, notes)
    return FoundServers(await registry.search(words, limit=limit), registry)


def entry_table(entry: Entry, registry: Registry, notes: Iterable[str] = ()) -> Table:
    """A table with the details of one server."""
    message = f": {entry.status_message}" if entry.status_message else ""
    publisher = verified(entry.name, registry.address)
    rows = [
        ("description", entry.description),
        ("version", entry.version),
        ("publisher", publisher or f"{entry.publisher}; not known to be verified by {registry.host}"),
        ("source", entry.website),
    ]
    if entry.status != "active":
        rows.insert(2, ("status", f"{entry.status}{message}"))
    for way in ways(entry):
        rows.append((way.label, (way.problem and f"cannot be run: {way.problem}") or way.preview()))
        if way.problem or way.missing:
            missing = f"the program {way.missing!r} is not installed" if way.missing and not way.problem else ""
            rows.append(("", "; ".join(filter(None, (missing, way.remedy)))))
            continue
        rows += [("asks for", _input_line(one)) for one in way.inputs()]
    return Table(("what", "is"), rows, title=entry.title or entry.name, note="\n".join(notes))


def _input_line(one: WantedInput) -> str:
    words = ["required" if one.about.is_required else "optional", "secret" if one.about.is_secret else ""]
    words.append(f"default {one.default}" if one.default and not one.about.is_secret else "")
    return f"{one.key} ({', '.join(filter(None, words))}) {one.about.description or ''}"


async def outdated(host: Host) -> Table:
    """Compare the versions of servers that came from the registry with the latest ones."""
    found = await asyncio.to_thread(host.discovery.read)
    definitions = dict(found.definitions)
    for session in host.sessions.values():
        if session.name not in definitions or session.definition.source.scope in TYPED_SCOPES:
            definitions[session.name] = session.definition
    registry, limiter = registry_of(host), asyncio.Semaphore(_MAX_REQUESTS)

    async def row(one: ServerDefinition) -> tuple[str, str, str, str]:
        async with limiter:
            return (one.name, *await _compare(one, registry, host))

    rows = await asyncio.gather(*(row(one) for one in definitions.values()))
    behind = sum(bool(latest) for _, _, latest, _ in rows)
    note = "%mcp add NAME --name SERVER --replace takes the latest version" if behind else ""
    if not rows:
        note = "no servers are configured or loaded"
    return Table(("server", "version", "latest", "remark"), rows, title=f"versions by {registry.host}", note=note)


async def _compare(definition: ServerDefinition, registry: Registry, host: Host) -> tuple[str, str, str]:
    """Compare a server with the registry: its version, the latest version if it differs, and a remark."""
    if not await host.guard.trust.allows(definition):  # its file may claim any origin
        return "", "", "not compared: you have not agreed that it may run"
    origin = definition.extra.get(ORIGIN)
    name, version = (origin.get("name"), origin.get("version")) if is_object(origin) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        return "", "", "not compared: it was not added from the registry"
    try:
        latest, notes = await registry.entry(name)
        pinned = latest if latest.version == version else (await registry.entry(name, version))[0]
    except McpError as error:
        return version, "", f"not compared: {error.message}"
    remarks = (
        [] if pinned.status == "active" else [f"{version} is {pinned.status}: {pinned.status_message}".rstrip(": ")]
    )
    remarks += [f"{name} is deprecated"] if latest.status == "deprecated" and latest is not pinned else []
    if latest.version != version and latest.status != "deleted":
        kept = {"user": "", "project": " --for project"}.get(definition.source.scope, " --for notebook")
        line = f"%mcp add {quoted(name)} --name {quoted(definition.name)} --replace{kept}"
        return version, latest.version, "; ".join([*remarks, *notes]) or line
    return version, "", "; ".join([*remarks, *notes]) or "up to date"


# -- additions ---------------------------------------------------------------------------------------------------------


T = TypeVar("T")
Keep: TypeAlias = Literal["notebook", "me", "project"]
"""The place where a new server is kept: this notebook until the kernel ends, the user's own file, or the project's."""
_NAMING_LOCK = threading.Lock()
"""Held while an unused name is chosen for a secret."""
_LINE_KEYS = frozenset({"command", "args", "env", "url", "headers", "transport", ORIGIN})
"""Keys of the values that a `%mcp load` line can express, and of the origin, which the line omits."""


# -- a new server -----------------------------------------------------------------------------------------------------


class RegistryChoice(Struct, frozen=True):
    """A server of the registry, and how to run it."""

    name: str
    version: str | None = None
    """None for the latest version."""
    way: str | None = None
    """A kind of package, `remote`, or the number of the way; None for the first that works here."""
    alias: str | None = None
    """The name of the server in the notebook; None for a name made from that in the registry."""
    inputs: Mapping[str, Any] = {}
    asks_all: bool = False
    """Whether to ask for optional inputs, even if no required one is missing."""
    takes_secrets: bool = True
    """Whether `inputs` may contain secrets, and not only variables that refer to secrets."""


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


async def from_registry(host: Host, choice: RegistryChoice, keep: Keep, *, replaces: bool = False) -> Addition:
    """Define a server of the registry: ask for its inputs, and for the user's agreement to its command.

    Raises:
        ConfigError: The server cannot be run, was deleted, or an input is missing or unknown.
        PolicyError: The user refuses.
        TrustError: No one could be asked.
        UnknownName: The registry has no such server.
        McpError: The registry cannot be reached.
    """
    refuse_models("add a server")
    registry = registry_of(host)
    entry, notes = await _chosen_entry(registry, choice)
    if entry.status == "deleted":
        why = f": {entry.status_message}" if entry.status_message else ""
        raise ConfigError(f"{entry.name} {entry.version} was deleted from {registry.host}{why}", hint="choose another")
    if entry.status == "deprecated":
        notes = [*notes, f"{entry.name} is deprecated{f': {m}' if (m := entry.status_message) else ''}"]
    way = _chosen_way(entry, choice.way)
    name = await _free_name(host, choice.alias, server_name(entry.short_name), keep, replaces=replaces)
    secrets = NewSecrets(host, name)
    try:
        known = await _earlier_values(host, name, entry, keep) if replaces else {}
        values, own = await _values(host, name, entry, way, choice, known, secrets)
        try:
            made = way.definition(values)
            if (
                registry.address == OFFICIAL
            ):  # another registry was chosen by the user, and may list servers of their own network
                await require_public(way, made)
        except ValueError as error:
            raise ConfigError(f"{entry.name} cannot be added: {error}") from None
        made[ORIGIN] = {"name": entry.name, "version": entry.version}
        definition = await _prepared(host, name, made, keep, {})
        _check_variables(entry, definition, own)
        grant = await _ask_about(host, origin_of(entry, registry), definition, keep)
        if grant is None:
            raise PolicyError(f"{entry.name} is not added: you did not agree to it")
    except BaseException:
        await secrets.delete()
        raise
    return Addition(host, definition, keep, grant, secrets=secrets, replaces=replaces, notes=notes)


async def add_from_registry(
    host: Host, choice: RegistryChoice, keep: Keep, begun: Callable[[AnyAddition], None], *, replaces: bool = False
) -> Addition:
    """Define, try and keep a server of the registry, and return it. Raises the errors of `from_registry` and `add`.

    Args:
        host: The host of the notebook.
        choice: The server.
        keep: Where the server is kept.
        begun: Called with the server when the user has agreed, before it is tried.
        replaces: Whether it replaces a server of the same name.
    """
    addition = await from_registry(host, choice, keep, replaces=replaces)
    begun(addition)
    await add(addition)
    return addition


async def from_pasted(
    host: Host, name: str | None, pasted: PastedServers, keep: Keep, *, replaces: bool = False
) -> AdditionGroup:
    """Define servers from what the user has typed or pasted.

    Args:
        host: The host of the notebook.
        name: The name of the one server, or of the one to take from several; None for all under their own names.
        pasted: The definition, or the document.
        keep: Where the servers are kept.
        replaces: Whether they replace servers of the same names.

    Raises:
        ConfigError: A definition is invalid, or there are none.
        PolicyError: The user refuses; only asked about servers from a link, and changed servers of a project.
        TrustError: No one could be asked.
    """
    refuse_models("add a server")
    chosen = read_definitions(name or pasted.name, pasted.values, Source(scope="script"))
    if not chosen:
        raise ConfigError("there are no servers in it", hint='the format is {"mcpServers": {"NAME": {…}}}')
    additions: list[Addition] = []
    try:
        for one in chosen:  # one question after the other
            addition = await _from_definition(host, name, one, keep, pasted.origin, replaces=replaces)
            additions.append(addition)
    except BaseException:
        for addition in additions:
            await addition.drop()
        raise
    return AdditionGroup(additions, pasted.notes)


async def from_values(
    host: Host,
    name: str | None,
    values: Mapping[str, Any],
    keep: Keep,
    *,
    is_own: bool = False,
    replaces: bool = False,
) -> Addition:
    """Define a server from values that the user has typed: a definition, or a document of any host with one server.

    Args:
        host: The host of the notebook.
        name: The name of the server; None for its name in the document.
        values: The definition, or the document.
        keep: Where the server is kept.
        is_own: Whether the definition is in ipymcp's own format.
        replaces: Whether it replaces a server of the same name.

    Raises:
        ConfigError: The definition is invalid, or there are several.
        PolicyError: The server of a project was changed, and the user refuses it.
        TrustError: No one could be asked about the server of a project.
    """
    refuse_models("add a server")
    chosen = read_definitions(name or None, values, Source(scope="script"), is_own=is_own)
    if len(chosen) != 1:
        names = ", ".join(one.name for one in chosen) or "none"
        raise ConfigError(f"one server at a time, not {len(chosen)}", hint=f"give the name of one: {names}")
    return await _from_definition(host, name, chosen[0], keep, "", replaces=replaces)


async def _from_definition(
    host: Host, wanted: str | None, one: ServerDefinition, keep: Keep, origin: str, *, replaces: bool
) -> Addition:
    """Define a server; likely secrets in variables, headers, arguments and the URL are moved to the secret store."""
    name = await _free_name(host, wanted or None, one.name, keep, replaces=replaces)
    secrets = NewSecrets(host, name)
    try:
        safe = await _with_stored_secrets(secrets, partial(masked_definition, one))
        definition = await _prepared(host, name, as_own(safe), keep, safe.inputs)
        grant: Grant | None = Grant(frozenset(wanted_secrets(definition)))
        if replaces:
            grant = await _edit_grant(host, definition, keep)
        elif origin:
            grant = await _ask_about(host, origin, definition, keep)
        if grant is None:
            raise PolicyError(f"{name} is not added: you did not agree to it")
    except BaseException:
        await secrets.delete()
        raise
    notes = unused_settings.lines([one])
    return Addition(host, definition, keep, grant, secrets=secrets, replaces=replaces, notes=notes)


async def _ask_about(host: Host, origin: str, definition: ServerDefinition, keep: Keep) -> Grant | None:
    """Ask whether a server that the user has not defined may run; return None if the user refuses.

    Raises:
        TrustError: No one could be asked.
    """
    is_temporary = keep == "notebook"
    target, folder = ("this notebook", host.folder) if is_temporary else (str(definition.source.file), "")
    extra = {key: value for key, value in definition.extra.items() if key != ORIGIN}  # which the question names itself
    return await host.guard.trust.ask_about_addition(origin, target, definition.replace(extra=extra), folder)


async def _with_stored_secrets(secrets: NewSecrets, hidden: Callable[[Hide], T]) -> T:
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


async def _edit_grant(host: Host, definition: ServerDefinition, keep: Keep) -> Grant:
    """The permission of an entry that the user has edited: its earlier permission, and the secrets that are new.

    Raises:
        PolicyError: The user has to agree, and refuses.
        TrustError: The user has to agree, and no one could be asked.
    """
    wanted = frozenset(wanted_secrets(definition))
    if keep == "notebook":
        return Grant(wanted)
    old = await asyncio.to_thread(config_edits.entry_in_file, definition.name, host, project=keep == "project")
    before = await host.guard.trust.grant(old) if old is not None else Grant()
    typed = wanted - frozenset(wanted_secrets(old) if old is not None else ())
    if before is not None and (keep == "me" or wanted <= before.secrets | typed):
        return Grant(wanted, before.is_lasting)
    place = str(definition.source.file)
    answer = await host.guard.trust.ask_about_import(place, place, [definition])
    why = answer.refused.get(definition.name)
    if why is not None:
        raise PolicyError(f"{definition.name} is not saved: {why}")
    return answer.granted.get(definition.name) or Grant(wanted, is_lasting=False)


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


async def _chosen_entry(registry: Registry, choice: RegistryChoice) -> tuple[Entry, list[str]]:
    name = choice.name
    if "/" not in name:
        try:
            found = await registry.search([name])
        except McpError as error:
            error.hint = package_hint(name) or error.hint
            raise
        same = [one.name for one in found.entries if name in (one.short_name, server_name(one.short_name))]
        if found.cursor:
            message = f"{registry.host} has more servers like {name!r} than were searched"
            hint = f"give the full name: {', '.join(same[:5]) or '%mcp search WORDS lists them'}"
            raise UnknownName(message, hint=hint)
        if len(same) != 1:
            near = ", ".join((same or [one.name for one in found.entries])[:5])
            hint = "; ".join(filter(None, (near, "" if same else package_hint(name))))
            hint = hint or "%mcp search WORDS lists servers"
            what = "several servers" if same else "no server"
            raise UnknownName(f"{registry.host} has {what} {name!r}", hint=hint)
        [name] = same
    return await registry.entry(name, choice.version or "latest", fresh=True)


def _chosen_way(entry: Entry, wanted: str | None) -> Way:
    """The way to run a server: the one that the user has chosen, or the first that works here."""
    every = ways(entry)
    if wanted is not None:
        named = [way for number, way in enumerate(every, start=1) if wanted in (way.label, str(number))]
        if not named:
            hint = ", ".join(dict.fromkeys(way.label for way in every)) or "it lists none"
            raise ConfigError(f"{entry.name} does not run as {wanted!r}", hint=f"it runs as: {hint}")
        every = [next((way for way in named if way.is_ready), named[0])]
    ready = next((way for way in every if way.is_ready), None)
    if ready is not None:
        return ready
    able = next((way for way in every if not way.problem), None)
    if able is not None:
        raise ConfigError(f"{entry.name} needs the program {able.runner!r}, which is not installed", hint=able.remedy)
    if not every:
        raise ConfigError(f"{entry.name} lists neither a package nor an address", hint=entry.website or None)
    raise ConfigError(f"{entry.name} cannot be run: {every[0].problem}", hint=every[0].remedy or None)


async def _free_name(host: Host, wanted: str | None, usual: str, keep: Keep, *, replaces: bool) -> str:
    """The name of the new server: the wanted one, or by default the usual one with a number if it is taken.

    Raises:
        ConfigError: The wanted name is taken.
    """
    taken = {*host.sessions, *(await asyncio.to_thread(host.discovery.read)).servers}
    if keep != "notebook":
        taken |= await asyncio.to_thread(config_edits.names_in_file, host, project=keep == "project")
    if replaces:
        return wanted or usual
    if wanted is None:
        return unused(usual, taken)
    if wanted in taken:
        raise ConfigError(f"there is a server {wanted!r} already", hint="give the new one another name")
    return wanted


async def _prepared(
    host: Host, name: str, values: Mapping[str, Any], keep: Keep, inputs: Mapping[str, Mapping[str, Any]]
) -> ServerDefinition:
    """The definition of a server in the form in which the notebook or the file will have it."""
    [made] = read_definitions(name, values, Source(scope="script"), is_own=True)
    made = made.replace(inputs=inputs)
    if keep != "notebook":
        prepared = await asyncio.to_thread(config_edits.prepared, made, host, project=keep == "project")
        return await asyncio.to_thread(_where_its_files_are, prepared, host.folder)
    own = as_own(made)
    words = [made.command, *made.args, made.url, *made.env, *made.env.values(), *made.headers, *made.headers.values()]
    is_one_line = all(word.isprintable() for word in (name, *words) if word is not None)
    has_own_variables = has_variables(json.dumps([made.command, made.args, dict(made.env), made.url]))
    if own.keys() <= _LINE_KEYS and is_one_line and not has_own_variables and not inputs:
        if made.url is not None:
            return url_definition(made.url, name).replace(headers=made.headers, transport=made.transport)
        return ServerDefinition(name=name, command=made.command, args=made.args, env=made.env)
    from ipymcp.config.config_files import from_mapping

    return from_mapping({name: own})[name].replace(inputs=made.inputs)


_FILE_NAME = re.compile(r"[^-].*\.[A-Za-z]\w*")


def _where_its_files_are(definition: ServerDefinition, folder: str) -> ServerDefinition:
    """Have a server run in the notebook's folder if its command names a file there that is not where it would run."""
    usual = folder_of(definition, folder)
    if definition.url is not None or definition.cwd is not None or usual == folder:
        return definition
    names = [word for word in (definition.command or "", *definition.args) if _FILE_NAME.fullmatch(word)]
    if not any(isfile(join(folder, name)) and not isabs(name) and not exists(join(usual, name)) for name in names):
        return definition
    within = definition.source.folder if definition.source.scope == "project" else None
    return definition.replace(cwd=folder if within is None else relpath(folder, within))


# -- inputs -----------------------------------------------------------------------------------------------------------


async def _values(
    host: Host,
    name: str,
    entry: Entry,
    way: Way,
    choice: RegistryChoice,
    known: Mapping[str, Any],
    secrets: NewSecrets,
) -> tuple[dict[str, str], list[str]]:
    """The values of a server's inputs as texts of a definition, and which of these texts are the user's own.

    Args:
        host: The host of the notebook.
        name: The name of the server.
        entry: The server in the registry.
        way: The way to run it.
        choice: The user's choice.
        known: Values by key of an earlier version of the server.
        secrets: Stores values that are secrets.

    Raises:
        ConfigError: An input is missing or unknown, and no one answered.
    """
    wanted = {one.key: one for one in way.inputs()}
    unknown = next((key for key in choice.inputs if key not in wanted), None)
    if unknown is not None:
        hint = nearest(unknown, wanted, limit=1) or f"it asks for: {', '.join(wanted) or 'nothing'}"
        raise ConfigError(f"{entry.name} has no input {unknown!r}", hint=hint)
    open_secret = next((key for key in choice.inputs if wanted[key].about.is_secret), None)
    if open_secret is not None and not choice.takes_secrets and not is_reference(str(choice.inputs[open_secret])):
        hint = f"leave {open_secret} out: you are asked for it; or {open_secret}=${{secret:NAME}}"
        raise ConfigError(f"{open_secret} is a secret, which does not belong on the line", hint=hint)
    known = {**{key: value for key, value in known.items() if key in wanted}, **choice.inputs}
    empty = next((key for key, value in known.items() if value in (None, "") and wanted[key].about.is_required), None)
    if empty is not None:
        raise ConfigError(
            f"{entry.name} requires {empty}, which is empty", hint=f"leave {empty} out: you are asked for it"
        )
    rest = {key: one for key, one in wanted.items() if key not in known}
    needed = [key for key, one in rest.items() if one.about.is_required]  # a publisher's default is only a suggestion
    if not choice.asks_all:
        rest = {key: one for key, one in rest.items() if one.about.is_required}
    if needed or (choice.asks_all and rest):
        known |= await _ask(host, name, entry, rest, needed)
    texts: dict[str, str] = {}
    own: list[str] = []
    for key, value in known.items():
        one = wanted[key]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        entry_texts = [one.default, *one.choices]
        if text in entry_texts:  # the publisher's text: variables in it are not expanded
            texts[key] = text
            continue
        if one.about.is_secret and text and not is_reference(text):
            text = await secrets.store(key, text)
        elif not one.about.is_secret:
            text = await _with_stored_secrets(secrets, partial(masked, text, key))
        texts[key] = absolute_path(text, one.about, host.folder)
        if not any(map(has_variables, entry_texts)):  # else the user may have edited the publisher's text
            own.append(texts[key])
    return texts, own


def _check_variables(entry: Entry, definition: ServerDefinition, own: Sequence[str]) -> None:
    """Check that a definition has no variables except those in the user's own values.

    Raises:
        ConfigError: It has another variable.
    """
    typed = ServerDefinition(name=definition.name, command="", args=tuple(own), source=Source(scope="script"))
    known = {(one.kind, one.name) for one in references(typed)}
    other = next((one for one in references(definition) if (one.kind, one.name) not in known), None)
    if other is not None:
        hint = "its publisher's text may not use your variables and secrets"
        raise ConfigError(f"{entry.name} cannot be added: {other.where} has {other.text}", hint=hint)


async def _earlier_values(host: Host, name: str, entry: Entry, keep: Keep) -> dict[str, str]:
    """The variables and headers of an earlier version of the same server, if the user has agreed to that."""
    if keep == "notebook":
        session = host.sessions.get(name)
        old = session.definition if session is not None and session.definition.source.scope == "script" else None
        grant = Grant(frozenset(wanted_secrets(old))) if old is not None else None
    else:
        old = await asyncio.to_thread(config_edits.entry_in_file, name, host, project=keep == "project")
        grant = await host.guard.trust.grant(old) if old is not None else None
        if (
            grant is not None and old is not None and keep == "me"
        ):  # servers in the user's own file may use their secrets
            grant = Grant(frozenset(wanted_secrets(old)))
    origin = old.extra.get(ORIGIN) if old is not None else None
    if old is None or grant is None or not is_object(origin) or origin.get("name") != entry.name:
        return {}
    if not frozenset(wanted_secrets(old)) <= grant.secrets:
        return {}
    return {**old.env, **old.headers}


async def _ask(
    host: Host, name: str, entry: Entry, wanted: Mapping[str, WantedInput], needed: Sequence[str]
) -> dict[str, Any]:
    required = [key for key, one in wanted.items() if one.about.is_required]
    schema = {"type": "object", "properties": {key: one.schema for key, one in wanted.items()}, "required": required}
    origin = origin_of(entry, registry_of(host))
    message = f"{origin} asks for these values. Secret ones are kept in your secret store."
    answer = await host.questions.ask(InputQuestion(name, None, message, schema))
    if answer.action == "accept":
        return {key: value for key, value in (answer.content or {}).items() if value not in (None, "")}
    if answer.note and not needed:
        return {}
    if answer.note:
        values = " ".join(f"{quoted(key)}=…" for key in needed)
        hint = f"give them: %mcp add {quoted(entry.name)} {values}"
        raise ConfigError(f"{entry.name} needs {', '.join(needed)}, and no one could be asked", hint=hint)
    raise PolicyError(f"{entry.name} is not added: its values were not given")


def is_reference(text: str) -> bool:
    """Whether a text is only a variable of this kernel or a stored secret: `${NAME}` or `${secret:NAME}`."""
    return re.fullmatch(r"\$\{(secret:)?[A-Za-z_][\w.@-]*\}", text) is not None


def _secret_name(server: str, key: str) -> str:
    return config_edits.secret_prefix(server) + re.sub(r"[^A-Za-z0-9_.-]", "_", key)

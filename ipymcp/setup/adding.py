"""The definition of new servers: from the registry, a pasted command or document, or typed values.

Likely secrets are stored first, and the user is asked about what they have not defined themselves. The coroutines run
on the background loop, and read and write files in threads.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from os.path import exists, isabs, isfile, join, relpath
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipymcp.config import unused_settings
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import as_own
from ipymcp.config.pasted import package_hint
from ipymcp.config.redaction import masked, masked_definition, wanted_secrets
from ipymcp.config.variables import has_variables, references
from ipymcp.errors import ConfigError, McpError, PolicyError, UnknownName
from ipymcp.interaction.elicitation import InputQuestion
from ipymcp.names import nearest, server_name, unused
from ipymcp.protocol.types import is_object
from ipymcp.registry.client import OFFICIAL, Registry
from ipymcp.registry.install import WantedInput, Way, absolute_path, require_public, ways
from ipymcp.runtime.process_env import folder_of
from ipymcp.security.trust import Grant
from ipymcp.security.untrusted import refuse_models
from ipymcp.setup import config_edits
from ipymcp.setup.load_request import read_definitions, url_definition
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.config.pasted import PastedServers
    from ipymcp.registry.client import Entry
    from ipymcp.runtime.host import Host


from ipymcp.setup.addition import Addition, AdditionGroup, AnyAddition, Keep, NewSecrets, add, with_stored_secrets
from ipymcp.setup.registry_tables import ORIGIN, origin_of, registry_of

_LINE_KEYS = frozenset({"command", "args", "env", "url", "headers", "transport", ORIGIN})
"""Keys of the values that a `%mcp load` line can express, and of the origin, which the line omits."""


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
        safe = await with_stored_secrets(secrets, partial(masked_definition, one))
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
            text = await with_stored_secrets(secrets, partial(masked, text, key))
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

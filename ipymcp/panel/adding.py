"""Commands of views that add servers, and that change the servers in ipymcp's own files."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast

from msgspec import Meta

from ipymcp.config import unused_settings
from ipymcp.config.config_files import decode
from ipymcp.config.definition import Source
from ipymcp.config.hosts import as_own, project_of
from ipymcp.config.pasted import ORIGIN, read_pasted
from ipymcp.errors import ConfigError, McpError
from ipymcp.names import RESERVED_HOST, aliases
from ipymcp.panel.messages import FromView, Malformed, NoFields, Problem, ServerFields, Text, ToView, shown_text
from ipymcp.panel.panel import Panel, RunningTrial, View, command
from ipymcp.panel.problems import start_problem
from ipymcp.panel.servers import StartProgress, start_progress, where
from ipymcp.registry.client import verified
from ipymcp.registry.install import ways
from ipymcp.runtime.process_env import folder_of
from ipymcp.setup import config_edits
from ipymcp.setup.adding import RegistryChoice, from_pasted, from_registry, from_values
from ipymcp.setup.addition import AdditionGroup
from ipymcp.setup.load_request import read_definitions
from ipymcp.setup.registry_tables import registry_of
from ipymcp.text import one_line, visible

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.registry.client import Entry
    from ipymcp.registry.install import Way
    from ipymcp.setup.addition import AnyAddition


_MAX_TOOLS = 200
_LOG_LINES = 30
_PAGE = 20
Keep: TypeAlias = Literal["notebook", "me", "project"]


# -- the registry -----------------------------------------------------------------------------------------------------


class SearchFields(FromView):
    """Words to look for in the registry."""

    words: Annotated[str, Meta(max_length=200)]
    cursor: Annotated[str, Meta(max_length=2_000)] = ""


class RunnableWay(ToView):
    """One way to run a server of the registry."""

    label: str
    runs: str
    """The command or the URL, with the names of its inputs in braces."""
    problem: str | None
    """The reason that this way is not possible here, and what to do."""
    inputs: list[str]
    """The names of the values that the user must enter."""


class RegistryRow(ToView):
    """A server of the registry."""

    name: str
    title: str
    description: str
    version: str
    publisher: str
    is_verified: bool
    status: str
    """The reason that the server cannot or should not be added; empty for an active server."""
    is_deleted: bool
    website: str
    ways: list[RunnableWay]


class RegistryPage(ToView):
    """Servers of the registry, and the cursor for the next page."""

    registry: str
    entries: list[RegistryRow]
    cursor: str
    notes: list[str]


@command("search")
async def _search(panel: Panel, view: View, message: SearchFields) -> RegistryPage:
    registry = registry_of(panel.host)
    found = await registry.search(message.words.split(), limit=_PAGE, cursor=message.cursor)
    entries = await asyncio.to_thread(lambda: [_row(one, registry.address) for one in found.entries])
    notes = [one_line(note) for note in found.notes]
    return RegistryPage(registry=registry.host, entries=entries, cursor=found.cursor, notes=notes)


@command("registry")
async def _registry(panel: Panel, view: View, message: NoFields) -> str:
    return registry_of(panel.host).host


def _row(entry: Entry, registry: str) -> RegistryRow:
    publisher = verified(entry.name, registry)
    return RegistryRow(
        name=entry.name,
        title=entry.title or entry.short_name,
        description=entry.description,
        version=entry.version,
        publisher=publisher or entry.publisher,
        is_verified=bool(publisher),
        status="" if entry.status == "active" else ": ".join(filter(None, (entry.status, entry.status_message))),
        is_deleted=entry.status == "deleted",
        website=entry.website,
        ways=_ways(ways(entry)),
    )


def _ways(every: list[Way]) -> list[RunnableWay]:
    """The ways to run a server, with labels that differ."""
    labels = [one.label if one.runner else f"remote, {one.transport}" for one in every]
    unique = [
        label if labels.count(label) == 1 or one.problem else f"{label}: {one.preview()}"
        for label, one in zip(labels, every, strict=True)
    ]
    return [_way(one, label) for one, label in zip(every, unique, strict=True)]


def _way(way: Way, label: str) -> RunnableWay:
    missing = f"the program {way.missing!r} is not installed" if way.missing and not way.problem else ""
    return RunnableWay(
        label=one_line(label),
        runs="" if way.problem else one_line(way.preview()),
        problem="; ".join(filter(None, (one_line(way.problem), missing, way.remedy))) if not way.is_ready else None,
        inputs=[] if way.problem else [one_line(one.key) for one in way.inputs() if one.about.is_required],
    )


# -- trials -----------------------------------------------------------------------------------------------------------


class TryFields(FromView):
    """A server to define and start."""

    trial: int
    """The view's number for the trial."""
    by: Literal["registry", "fields", "command", "json"]
    what: Annotated[str, Meta(min_length=1, max_length=100_000)]
    """The name in the registry, the definition that a form has in ipymcp's own format, a command, or a document."""
    keep: Keep
    name: str = ""
    """The name of the server; empty to derive it from the command or URL."""
    version: str | None = None
    way: int | None = None
    """The index of the `RunnableWay` in the registry's entry."""
    replaces: Text | None = None
    """The server to edit, which one of ipymcp's own files defines."""


class TrialFields(FromView):
    """A command about a trial, by the view's number."""

    trial: int


class TrialTool(ToView):
    """A tool of a server in a trial."""

    name: str
    description: str | None


class Trial(ToView):
    """The outcome of a trial: the server's tools, or the problem and the last lines of its log."""

    name: str
    place: str
    """The file that will define the server, or the notebook."""
    runs: str
    folder: str
    """The folder that its program runs in; empty if it has none, or for several servers."""
    python: str
    """How Python reaches the server once it is saved; empty for several servers."""
    tools: list[TrialTool]
    more_tools: int
    """The number of tools that are not listed."""
    problem: Problem | None
    log: list[str]
    notes: list[str]


class AddedServer(ToView):
    """A server that was added, and the cell that loads it."""

    name: str
    cell: str


@command("try")
async def _try(panel: Panel, view: View, message: TryFields) -> Trial:
    if message.trial in view.trials:
        raise Malformed("this trial has already started")
    trying = view.trials[message.trial] = RunningTrial(lambda started: _try_out(panel, message, started))
    try:
        trial = _outcome(panel, await trying.task)
    except BaseException as error:
        view.trials.pop(message.trial, None)
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and not task.cancelling():
            raise McpError("the trial was cancelled") from None
        raise
    if trial.problem is not None:
        await view.end_trial(message.trial)
    return trial


async def _try_out(panel: Panel, message: TryFields, trying: RunningTrial) -> AnyAddition:
    addition = trying.addition = await _addition(panel, message)
    try:
        await addition.try_out()
    except BaseException:
        await addition.drop()
        raise
    return addition


async def _addition(panel: Panel, message: TryFields) -> AnyAddition:
    name = message.name.strip() or None
    if message.by == "registry":
        way = None if message.way is None else str(message.way + 1)
        choice = RegistryChoice(message.what, message.version, way, name, asks_all=True)
        return await from_registry(panel.host, choice, message.keep)
    if message.by != "fields":
        pasted = read_pasted(message.what, is_command=message.by == "command")
        return await from_pasted(panel.host, name, pasted, message.keep)
    value, _ = decode(message.what, ORIGIN)
    if not isinstance(value, Mapping):
        raise ConfigError("a definition is an object: {…}")
    values = cast("Mapping[str, Any]", value)
    if message.replaces is None:
        return await from_values(panel.host, name, values, message.keep, is_own=True)
    original = await asyncio.to_thread(config_edits.written, message.replaces, panel.host)
    values = config_edits.unmasked(values, original[0])
    return await from_values(panel.host, message.replaces, values, message.keep, is_own=True, replaces=True)


class PastedFields(FromView):
    """A text that may define a server."""

    text: Annotated[str, Meta(min_length=1, max_length=100_000)]


class PastedDefinition(ToView):
    """The only server that a text defines."""

    name: str | None
    """The name in the text; None if there is none."""
    text: str
    """The definition as JSON."""


@command("pasted")
async def _read_pasted(panel: Panel, view: View, message: PastedFields) -> PastedDefinition | None:
    """Return the server that a text defines, for a form; None for several, and for what only a question can show."""
    pasted = read_pasted(message.text, is_command=True)
    found = read_definitions(pasted.name, pasted.values, Source(scope="script"))
    if len(found) != 1 or found[0].inputs or pasted.origin:
        return None
    name = pasted.name or (None if pasted.document is not pasted.values else found[0].name)
    return PastedDefinition(name=name, text=json.dumps(as_own(found[0]), ensure_ascii=False))


def _outcome(panel: Panel, addition: AnyAddition) -> Trial:
    parts = addition.additions if isinstance(addition, AdditionGroup) else (addition,)
    failure, log = None, list[str]()
    folder = python = ""
    if len(parts) == 1:
        definition = parts[0].definition
        folder = "" if definition.url is not None else folder_of(definition, panel.host.folder)
        alias = aliases([*panel.host.sessions, definition.name], RESERVED_HOST)[definition.name]
        python = f"{panel.context.namespace() or 'mcp'}.{alias}"
    tools: list[TrialTool] = []
    for part in parts:
        assert part.session is not None
        try:
            part.require()
        except McpError as error:
            if failure is None:
                # What the program wrote; one that was started twice wrote it twice.
                lines = part.session.log.tail(_LOG_LINES)
                own = dict.fromkeys(one_line(line.text) for line in lines if line.source != "host")
                failure, log = start_problem(error), [*own]
        prefix = f"{part.name}." if len(parts) > 1 else ""
        tools += [
            TrialTool(name=visible(f"{prefix}{one.name}"), description=shown_text(one.definition.description))
            for one in part.session.catalog.tools.values()
        ]
    return Trial(
        name=addition.name,
        place=visible(addition.place),
        runs=" · ".join(where(part.definition) for part in parts),
        folder=visible(folder),
        python=visible(python),
        tools=tools[:_MAX_TOOLS],
        more_tools=max(0, len(tools) - _MAX_TOOLS),
        problem=failure,
        log=log,
        notes=[one_line(note) for note in addition.notes],
    )


@command("trial_progress")
async def _trial_progress(panel: Panel, view: View, message: TrialFields) -> StartProgress | None:
    trying = view.trials.get(message.trial)
    session = None if trying is None or trying.addition is None else trying.addition.on_trial
    return None if session is None else start_progress(session)


@command("drop")
async def _drop(panel: Panel, view: View, message: TrialFields) -> None:
    await view.end_trial(message.trial)


@command("keep")
async def _keep(panel: Panel, view: View, message: TrialFields) -> AddedServer:
    trying = view.trials.get(message.trial)
    if trying is None or not trying.task.done():
        raise Malformed("this trial does not exist or has not finished")
    addition = trying.task.result()
    await addition.save()
    view.trials.pop(message.trial, None)  # absent if a second click has kept it meanwhile
    return AddedServer(name=addition.name, cell=addition.cell(panel.context.namespace()))


# -- servers of ipymcp's own files ------------------------------------------------------------------------------------


class PathFields(FromView):
    """A config file, relative to the notebook's folder."""

    path: Text


class OwnDefinition(ToView):
    """A server's definition in one of ipymcp's own files, as JSON with masked secrets."""

    text: str
    keep: Keep


@command("definition")
async def _definition(panel: Panel, view: View, message: ServerFields) -> OwnDefinition:
    definition, source = await asyncio.to_thread(config_edits.written, message.server, panel.host)
    text = config_edits.masked_text(definition)
    return OwnDefinition(text=text, keep="project" if source.scope == "project" else "me")


@command("remove")
async def _remove(panel: Panel, view: View, message: ServerFields) -> None:
    await asyncio.to_thread(config_edits.remove, message.server, panel.host, project=False)
    if message.server in panel.host.sessions:
        await panel.host.unload([message.server])


@command("load_file")
async def _load_file(panel: Panel, view: View, message: PathFields) -> None:
    source = _project_source(panel.host.folder, message.path)
    found = await asyncio.to_thread(panel.host.discovery.read_named, source)
    for entry in found.values():
        if isinstance(entry, ConfigError):
            raise entry
    definitions = [cast("ServerDefinition", entry) for entry in found.values()]
    if not definitions:
        raise ConfigError(f"{source.file} defines no servers")
    for line in unused_settings.lines(definitions):
        panel.host.notices.add(line)
    await panel.host.load(definitions, wait=False)


def _project_source(folder: str, path: str) -> Source:
    """A file that belongs to a project, so that the user is asked about its servers."""
    file = os.path.normpath(os.path.join(folder, path))
    return Source(scope="project", file=file, folder=project_of(file))

"""The host: all servers of one notebook, those that run on trial before they are loaded, and shared services.

Coroutines run on the background loop unless documented otherwise. All other methods are thread-safe.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from ipymcp.argument_checks import check_name, shown
from ipymcp.errors import UnknownName
from ipymcp.names import NAMESPACE, RESERVED_HOST, SEPARATORS, aliases, identifier, is_glob, nearest
from ipymcp.protocol.eras import Identity
from ipymcp.runtime.access import AccessControl
from ipymcp.runtime.call_factory import CallFactory
from ipymcp.runtime.call_options import CallServices, RunningCall
from ipymcp.runtime.client_handlers import ClientHandlers
from ipymcp.runtime.context import RuntimeContext, Timing
from ipymcp.runtime.events import Events, ServerUnloaded, UserNotices
from ipymcp.runtime.loop import BackgroundLoop
from ipymcp.runtime.oauth_redirects import Redirects
from ipymcp.runtime.question_routing import QuestionRouter
from ipymcp.runtime.reaper import Reaper
from ipymcp.runtime.server_status import State
from ipymcp.security.untrusted import current_actor, refuse_models
from ipymcp.storage.history import History
from ipymcp.storage.notebooks import NotebookRule, UsedServer
from ipymcp.storage.store import Store
from ipymcp.text import quoted
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from ipymcp.config.config_files import ConfigurationWatch
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.cells import NotebookCells
    from ipymcp.protocol.client import Client
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.catalog import Catalog, ToolEntry
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.pins import Lock
    from ipymcp.security.rules import Rule
    from ipymcp.security.trust import Grant
    from ipymcp.storage.known_servers import Definitions

# -- servers on trial --------------------------------------------------------------------------------------------------


class Trials:
    """The servers of a host that run on trial. Used on the background loop.

    Args:
        context: The host's services.
        load: Loads a running server in place of one of the same name.
    """

    def __init__(self, context: RuntimeContext, load: Callable[[ServerSession], Coroutine[Any, Any, None]]) -> None:
        self._context = context
        self._load = load
        self._grants: dict[ServerSession, Grant] = {}
        """The servers on trial, and their permission to run."""

    @property
    def sessions(self) -> tuple[ServerSession, ...]:
        """The servers on trial."""
        return (*self._grants,)

    async def run(self, definition: ServerDefinition, grant: Grant) -> ServerSession:
        """Start a server once and wait until it is ready or has failed; `adopt` or `end` follows.

        If the wait is cancelled, the trial ends.

        Raises:
            TrustError: The grant is for another definition, or files of this one have changed since.
        """
        from ipymcp.runtime.session import ServerSession  # imports the whole protocol: not at %load_ext

        trust = self._context.guard.trust
        permission = await trust.try_out(grant, definition)
        session = ServerSession(definition, permission.digest, self._context)
        session.retries = ()  # someone waits for the outcome
        self._grants[session] = permission
        try:
            session.start()
            await session.settled()
        except BaseException:
            await self.end(session)
            raise
        return session

    async def end(self, session: ServerSession) -> None:
        """Stop a server that is not loaded, and withdraw its permission; continues if the wait is cancelled."""
        await asyncio.shield(self._context.loop.spawn(self._end(session), f"ipymcp-trial-{session.name}"))

    async def end_all(self) -> None:
        """Stop all servers on trial."""
        await asyncio.gather(*map(self.end, self.sessions))

    async def adopt(self, session: ServerSession) -> None:
        """Load a server on trial, in place of one of the same name."""
        session.retries = self._context.timing.retries
        await self._load(session)
        self._forget(session)

    async def _end(self, session: ServerSession) -> None:
        try:
            await session.stop()
        finally:
            self._forget(session)
            self._context.store.known.forget_trial(session.digest)

    def _forget(self, session: ServerSession) -> None:
        grant = self._grants.pop(session, None)
        if grant is not None:
            self._context.guard.trust.end_trial(grant)


# -- the host ----------------------------------------------------------------------------------------------------------


def _working_folder() -> str:
    """The working folder's path, also if it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        pass
    try:
        return os.readlink("/proc/self/cwd").removesuffix(" (deleted)")
    except OSError:
        return os.path.join(os.sep, "deleted")  # PWD may be another folder


class Host:
    """The servers of one notebook.

    Args:
        folder: The folder in which servers run by default; the notebook's folder, or else the working folder.
        timing: Intervals and timeouts.
        notebook: The notebook's path, if known.
        is_shell: Whether the host belongs to an interactive shell, whose folder stands for an unknown notebook.
    """

    def __init__(
        self,
        folder: str | None = None,
        timing: Timing | None = None,
        *,
        notebook: str | None = None,
        is_shell: bool = False,
    ) -> None:
        self.folder = os.path.normpath(
            os.path.join(_working_folder(), folder or (os.path.dirname(notebook) if notebook else ""))
        )
        self.notebook = notebook
        self.remembered_as = notebook or (self.folder if is_shell else None)
        """The path under which servers and rules are stored for the next kernel; None if they are not stored."""
        self.sessions: Mapping[str, ServerSession] = {}
        """By name, in the order of loading. Replaced as a whole when a server is loaded or unloaded."""
        self.events = Events()
        self.loop = BackgroundLoop("ipymcp-loop")
        self.handler_loop = BackgroundLoop("ipymcp-handlers", runs_callbacks=True)
        """Runs the user's own coroutines and callbacks."""
        self._reaper = Reaper()
        self.notices = UserNotices()
        self.store = Store(self.notices.add)
        """The storage that outlives the kernel."""
        if not os.path.isdir(self.folder):
            self.notices.add(f"the folder {self.folder} no longer exists: only servers with a cwd of their own start")
        self.questions = QuestionRouter(self.loop.callers)
        self.cells: NotebookCells | None = None
        """The notebook's cells; None if no page has connected yet."""
        self.client_handlers = ClientHandlers(self.folder, self.handler_loop, self.questions, self._clients)
        self.history = History(lambda: self.store.database, self._call_later, notebook or self.folder)
        self.guard = AccessControl(self.loop, self.questions, lambda: self.store.database, self.notices.add)
        if self.remembered_as is not None:
            self.guard.policy.observer, self.guard.policy.filters.observer = self._keep_rule, self._keep_filters
        self.starts_on_use = True
        """Whether a configured server that is not loaded is started when it is first used."""
        self.redirects = Redirects()
        self.registry_address = ""
        """The address of the registry of servers; empty for the official one."""
        running: dict[int, RunningCall] = {}
        services = CallServices(self.loop, self.handler_loop, running, self.client_handlers, self.history)
        self.calls = CallFactory(services, self.guard)
        self._context = RuntimeContext(
            loop=self.loop,
            reaper=self._reaper,
            events=self.events,
            identity=Identity("ipymcp", __version__),
            folder=self.folder,
            max_starting=max(8, 2 * (os.cpu_count() or 1)),
            timing=timing or Timing(),
            questions=self.questions,
            client_handlers=self.client_handlers,
            running=running,
            guard=self.guard,
            store=self.store,
            redirects=self.redirects,
            notices=self.notices,
            is_shell=is_shell,
        )
        self.trials = Trials(self._context, self._adopt)
        self.loop.watch(self.calls.end_late)
        _end_with_process(self)

    @cached_property
    def discovery(self) -> ConfigurationWatch:
        """The servers that are defined in files of the user's and the project's folders."""
        from ipymcp.config.config_files import ConfigurationWatch  # not at %load_ext

        return ConfigurationWatch(self.folder, _published)

    # -- servers, on the loop -----------------------------------------------------------------------------------------

    async def load(
        self,
        definitions: Iterable[ServerDefinition],
        *,
        wait: bool = True,
        trusted: bool = False,
        again: bool = True,
        lock: Lock | None = None,
        originals: Mapping[str, ServerDefinition] | None = None,
        remember: bool = True,
    ) -> list[ServerSession]:
        """Load and start servers. A second identical load does nothing; a changed definition restarts its server.

        If the caller stops waiting, the servers continue to start.

        Args:
            definitions: The servers.
            wait: Whether to wait until each server is ready or has failed.
            trusted: Whether the user has seen the definitions and agreed to them.
            again: Whether to ask again about servers, or secrets for them, that the user has refused.
            lock: The tools that the servers must have.
            originals: The original definitions, by name, of servers that were changed in a cell; these need trust.
            remember: Whether the notebook's next kernel can have them again.

        Raises:
            PolicyError: The lock has no such server.
        """
        definitions = list(definitions)
        self.guard.pinning.lock_servers([one.name for one in definitions], lock)
        await self.guard.refresh()
        originals = originals or {}
        wanted = [originals.get(one.name, one) for one in definitions if not one.disabled]
        await self.guard.trust.ask_if_needed(wanted, agreed=trusted, again=again)
        for one in definitions:
            if one.name in originals:
                await self.guard.trust.allow_variant(originals[one.name], one)
        sessions = await asyncio.shield(self.loop.spawn(self._load_all(definitions), "ipymcp-load"))
        for session in sessions if remember else ():
            if session.definition in definitions:
                await self._keep_server(session, originals.get(session.name))
        if wait:
            await asyncio.gather(*(session.settled() for session in sessions))
        return sessions

    async def load_for_use(self, name: str) -> ServerSession:
        """Load a configured server that is about to be used, and tell the user.

        Raises:
            UnknownName: The server is no longer configured.
            ServerError: It did not start.
        """
        session = self.sessions.get(name)
        if session is None:
            definition = (await asyncio.to_thread(self.discovery.peek)).find(name)
            if definition is None:
                raise UnknownName(f"there is no server {shown(name)}", hint=self.missing_hint(name))
            [session] = await self.load([definition])
            if session.client is not None:
                self.notices.add(
                    f"{name} was configured but not loaded, and is started now;"
                    " %config IPyMCP.start_on_use = False prevents that"
                )
        if not session.is_lazy:
            session.require()
        return session

    async def start(self, names: Sequence[str]) -> list[ServerSession]:
        """Start servers, and wait until each is ready or has failed."""
        sessions = [self.find(name) for name in names]
        await self.guard.trust.ask_if_needed(session.definition for session in sessions)
        for session in sessions:
            if session.state is State.DISABLED:
                self._decided(NotebookRule("server", session.name, "on"))
            session.start()
        await asyncio.gather(*(session.settled() for session in sessions))
        return sessions

    async def stop(self, names: Sequence[str], state: State = State.STOPPED) -> list[ServerSession]:
        """Stop servers, and wait until they have ended."""
        sessions = [self.find(name) for name in names]
        await asyncio.gather(*(session.stop(state) for session in sessions))
        if state is State.DISABLED:
            self._decided(*(NotebookRule("server", session.name, "off") for session in sessions))
        return sessions

    async def restart(self, names: Sequence[str]) -> list[ServerSession]:
        """Stop and start servers."""
        await self.stop(names)
        return await self.start(names)

    async def unload(self, names: Sequence[str]) -> None:
        """Stop servers and remove them."""
        sessions = await self.stop(names)
        gone = {session.name for session in sessions}
        self.sessions = {name: session for name, session in self.sessions.items() if name not in gone}
        if self.remembered_as is not None:
            self.store.notebooks.unloaded(self.remembered_as, gone)
        for name in gone:
            self.events.emit(ServerUnloaded(name))

    async def _load_all(self, definitions: Iterable[ServerDefinition]) -> list[ServerSession]:
        prepared = await asyncio.gather(*map(self._prepare, definitions))
        return await asyncio.gather(*(self._load(*one) for one in prepared))

    async def _prepare(self, definition: ServerDefinition) -> tuple[ServerDefinition, str, Definitions]:
        """Return a definition, its digest and, if it is lazy, its last known catalog after comparing it to its pins."""
        digest = await self.guard.trust.digest(definition)
        if definition.disabled or not definition.lazy:
            return definition, digest, {}
        cached = await self.store.known.acatalog(digest)
        await self.guard.pinning.compare(digest, definition.name, cached.get("tools", ()), starting=False)
        return definition, digest, cached

    async def _load(self, definition: ServerDefinition, digest: str, cached: Definitions) -> ServerSession:
        # Nothing is awaited before the session is added: the same server may be loaded concurrently, and servers that
        # are loaded together keep their order.
        old = self.sessions.get(definition.name)
        if old is not None and old.definition.replace(lazy=definition.lazy) == definition:
            if not (definition.disabled or (definition.lazy and old.is_lazy)):
                tools = (entry.definition for entry in old.catalog.tools.values())
                if old.client is not None and self.guard.pinning.is_locked_out(old.name, tools):
                    await old.stop()  # the next start is refused
                old.start()
            return old
        from ipymcp.runtime.session import ServerSession  # imports the whole protocol: not at %load_ext

        session = ServerSession(definition, digest, self._context)
        self._add(session)
        if "tools" in cached:
            session.remember(cached)
            session.is_lazy = True
        elif not definition.disabled:
            session.start(replaces=old)
            return session
        if old is not None:
            await old.stop()
        return session

    async def _adopt(self, session: ServerSession) -> None:
        """Load a server that already runs, in place of one of the same name."""
        old = self.sessions.get(session.name)
        self._add(session)
        await self._keep_server(session, None)
        if old is not None:
            await old.stop()

    def _add(self, session: ServerSession) -> None:
        self.store.known.loaded(session.definition, session.digest)
        self.sessions = {**self.sessions, session.name: session}

    def _clients(self) -> dict[str, Client]:
        return {name: session.client for name, session in self.sessions.items() if session.client is not None}

    # -- looking up ---------------------------------------------------------------------------------------------------

    def aliases(self) -> dict[str, str]:
        """The Python identifiers of the servers: `{name: identifier}`."""
        return aliases(self.sessions, RESERVED_HOST)

    def find(self, name: str) -> ServerSession:
        """Find a server by its name or alias.

        Raises:
            UnknownName: There is no such server; the hint names similar ones.
        """
        check_name(name, "server")
        if (session := self.sessions.get(name)) is not None:
            return session
        for exact, alias in self.aliases().items():
            if alias == name:
                return self.sessions[exact]
        raise UnknownName(f"there is no server {shown(name)}", hint=self.missing_hint(name))

    def find_startable(self, name: str) -> ServerDefinition | None:
        """Find a configured server that is not loaded, and that is started at its first use, by its name or identifier.

        Models may not start servers by using them.
        """
        actor = current_actor()
        if name in self.sessions or name in self.aliases().values() or (actor is not None and actor.caller == "model"):
            return None
        definition = self.discovery.peek().find(name)
        if definition is None or definition.disabled:
            return None
        is_lazy = definition.lazy and self.guard.trusts(definition)
        return definition if self.starts_on_use or is_lazy else None

    def used(self, name: str) -> ServerSession:
        """Return a server that is about to be used; load it if it is only configured.

        Raises:
            PolicyError: It would have to be started by a model's code.
            UnknownName: The server is not configured.
            ServerError: It did not start.
        """
        session = self.sessions.get(name)
        if session is None:
            refuse_models("start a server")
            session = self.loop.run(self.load_for_use(name))
        return session

    def missing_hint(self, name: str, others: Iterable[str] = ()) -> str:
        """How to get a server that is not loaded: the line that loads a configured one, or similar names.

        Args:
            name: The name.
            others: Further names that may be meant.
        """
        used = next((one for one in self.used_before() if name in (one, identifier(one))), None)
        if used is not None:
            return f"{self.rememberer} used {used}: %mcp restore"
        configured = self.discovery.peek().servers
        own = next((known for known in configured if name in (known, identifier(known))), None)
        if own is not None:
            return f"it is configured but not loaded yet: %mcp load {quoted(own)}"
        loaded = f"loaded: {', '.join(self.sessions)}" if self.sessions else "nothing is loaded yet: %mcp load demo"
        return nearest(name, [*self.sessions, *configured, *self.used_before()]) or nearest(name, others) or loaded

    def resolve(self, path: str, kind: str = "tool") -> tuple[ServerSession, str]:
        """Split `server.tool` after the longest server name that matches.

        `server__tool`, `server/tool`, `server:tool` and `mcp.server.tool` are accepted, too.

        Args:
            path: The text to split.
            kind: The kind of thing after the server's name, for error messages.

        Raises:
            UnknownName: There is no such server.
        """
        known = {**{alias: name for name, alias in self.aliases().items()}, **{name: name for name in self.sessions}}
        owners = [(name, dot) for name in known for dot in SEPARATORS if path.startswith(name + dot)]
        if owners:
            owner, dot = max(owners, key=lambda found: (len(found[0]), len(found[1])))
            return self.sessions[known[owner]], path[len(owner) + len(dot) :]
        prefix = NAMESPACE.match(path)
        if prefix is not None:
            return self.resolve(path[prefix.end() :], kind)
        server, _, tool = path.partition(".")
        if not tool and server in known:
            session = self.sessions[known[server]]
            raise UnknownName(
                f"{path!r} names a server; a {kind} is {server}.{kind.upper()}",
                hint=f"its {kind}s: %mcp {kind}s {quoted(session.name)}",
            )
        if not tool and kind == "tool" and (full_names := self._owners_of(server)):
            raise UnknownName(f"{path!r} is not the full name of a tool", hint=f"did you mean {full_names}?")
        self.find(server)
        raise UnknownName(f"there is no {kind} {path!r}", hint=f"a {kind} is named SERVER.{kind.upper()}")

    def _owners_of(self, tool: str) -> str:
        """The full names of the tools with a name or alias; empty if there is none."""
        found = [(session, entry) for session in self.sessions.values() if (entry := session.catalog.find(tool))]
        return " or ".join(repr(f"{session.name}.{entry.alias}") for session, entry in found[:3])

    def entry(self, session: ServerSession, tool: str) -> ToolEntry:
        """Find a tool of a server by its exact name or its alias.

        Raises:
            UnknownName: The server has no such tool; the hint names similar ones.
        """
        entry = session.catalog.find(tool)
        if entry is not None:
            return entry
        if session.client is None and not session.is_lazy:
            session.require()
        spelled = session.catalog.aliases if tool.isidentifier() else session.catalog.tools
        hint = nearest(tool, spelled) or f"%mcp tools {quoted(session.name)}"
        raise UnknownName(f"there is no tool {tool!r}", server=session.name, hint=hint)

    def find_tool(self, session: ServerSession, tool: str) -> ToolEntry:
        """Like `entry`, but wait for a starting server, and list the tools again if the name is unknown.

        Raises:
            UnknownName: The server has no such tool.
        """
        if session.catalog.find(tool) is None:
            self.settle(session)
        if not self.loop.is_own_thread and session.catalog.find(tool) is None and session.client is not None:
            self.loop.run(session.refreshed())
        return self.entry(session, tool)

    def relist(self, names: Iterable[str]) -> None:
        """List tools again if one of these names `server.tool` is of a running server but unknown: it may be new.

        On the background loop, return at once.
        """
        if not self.loop.is_own_thread and (sessions := self._lacking(names)):
            self.loop.run(_all(session.refreshed() for session in sessions))

    async def relisted(self, names: Iterable[str]) -> None:
        """Like `relist`, for a coroutine on the background loop."""
        await _all(session.refreshed() for session in self._lacking(names))

    def _lacking(self, names: Iterable[str]) -> list[ServerSession]:
        """The running servers that names refer to, if they have no such tool. Globs are ignored."""
        aliases = self.aliases()
        plain = [name for name in names if not is_glob(name)]
        return [
            session
            for server, session in self.sessions.items()
            if session.client is not None
            and any(
                name.startswith(f"{known}.") and session.catalog.find(name[len(known) + 1 :]) is None
                for name in plain
                for known in {server, aliases.get(server, server)}
            )
        ]

    def refresh_changed(self) -> None:
        """Wait for new lists of tools that servers have announced; on the background loop, return at once."""
        changed = [session for session in self.sessions.values() if session.has_changed_tools]
        if changed and not self.loop.is_own_thread:
            self.loop.run(_all(session.refreshed() for session in changed))

    def settle(self, session: ServerSession) -> None:
        """Wait for a server that is starting or has to be reached again."""
        if not session.is_settled:
            self.loop.run(session.settled())

    def wake(self, session: ServerSession) -> None:
        """Like `settle`, but start a lazy server first; for a server that is about to be used."""
        if session.is_lazy or not session.is_settled:
            self.loop.run(session.awake())

    async def awake(self, session: ServerSession) -> None:
        """Like `wake`, awaited on the caller's loop."""
        if session.is_lazy or not session.is_settled:
            await self.loop.arun(session.awake())

    def browse(self, session: ServerSession) -> Catalog:
        """The current or last known catalog of a server, without starting it. Empty for a disabled server."""
        catalog = session.catalog
        is_whole = catalog.tools and catalog.resources and catalog.prompts
        if (
            session.client is None
            and session.state is not State.DISABLED
            and not (is_whole or session.status.is_moving)
        ):
            session.remember(self.store.known.catalog(session.digest))
        return session.catalog

    # -- what the notebook's next kernel can have again ---------------------------------------------------------------

    @property
    def rememberer(self) -> str:
        """The owner of the stored servers and rules, in messages."""
        return "this notebook" if self.notebook is not None else "a kernel in this folder"

    @property
    def lifetime(self) -> str:
        """How long the rules of this notebook hold, in messages."""
        later = "; after a restart: %mcp restore" if self.remembered_as is not None else ""
        return f"until the kernel stops{later}"

    def used_before(self) -> list[str]:
        """The names of servers that this notebook has loaded, in an earlier kernel, and that are not loaded now."""
        if self.remembered_as is None:
            return []
        return [name for name in self.store.notebooks.names(self.remembered_as) if name not in self.sessions]

    def used_servers(self) -> list[UsedServer]:
        """Like `used_before`, with what is needed to load the servers again."""
        used = self.store.notebooks.servers(self.remembered_as) if self.remembered_as is not None else []
        return [one for one in used if one.name not in self.sessions]

    async def _keep_server(self, session: ServerSession, original: ServerDefinition | None) -> None:
        """Store how to load a server again.

        Args:
            session: The server.
            original: The definition in its file, if the user changed it in the cell.
        """
        if self.remembered_as is None:
            return
        definition, file = session.definition, session.definition.source.file
        if file is None:
            server = UsedServer(session.name, session.digest, "", typed=definition)
        else:
            written = definition if original is None else original
            before, now = msgspec.to_builtins(written), msgspec.to_builtins(definition)
            changes = {key: value for key, value in now.items() if value != before[key]}
            digest = session.digest if original is None else await self.guard.trust.digest(original)
            server = UsedServer(session.name, session.digest, file, changes=changes, original=digest)
        self.store.notebooks.loaded(self.remembered_as, server)

    def _keep_filters(self, patterns: Iterable[str], allowed: bool) -> None:
        self._decided(*(NotebookRule("tool", pattern, "on" if allowed else "off") for pattern in patterns))

    def _keep_rule(self, rule: Rule | None) -> None:
        if rule is not None:
            self._decided(NotebookRule("rule", rule.pattern, rule.decision, rule.digest, rule.doubted))
        elif self.remembered_as is not None:
            self.store.notebooks.reset_rules(self.remembered_as)

    def _decided(self, *rules: NotebookRule) -> None:
        if self.remembered_as is not None:
            self.store.notebooks.decided(self.remembered_as, *rules)

    # -- storage ------------------------------------------------------------------------------------------------------

    def _call_later(self, delay: float, function: Callable[[], None]) -> bool:
        if not self.loop.is_running:  # in a forked child
            return False
        self.loop.call(self.loop.loop.call_later, delay, function)
        return True

    def _close_store(self) -> None:
        self.history.flush()
        self.store.close()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        await self.stop(list(self.sessions))
        await self.trials.end_all()

    def close(self) -> None:
        """Stop all servers and the background loops."""
        if self.loop.is_running:
            self.loop.run(self._stop_all())
        self._end_threads()

    async def aclose(self) -> None:
        """Like `close`, awaited on the caller's loop."""
        if self.loop.is_running:
            await self.loop.arun(self._stop_all())
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        self._reaper.close()
        self.loop.stop()
        self.handler_loop.stop()
        self._close_store()  # last, because the loops may have stored something

    def close_at_exit(self) -> None:
        """End all server processes at the interpreter's exit, within two seconds."""
        if not self.loop.is_running:
            return
        self.loop.freeze()
        self._close_store()
        self._reaper.end_all([transport.close_input for transport in self._transports()])

    def close_in_fork(self) -> None:
        """Release the pipes of the servers in a forked child: the servers belong to the parent."""
        for transport in self._transports():
            transport.close_in_fork()
        self._reaper.close_in_fork()

    def _transports(self) -> list[Transport]:
        connections = [session.connection for session in (*self.sessions.values(), *self.trials.sessions)]
        return [connection.transport for connection in connections if connection is not None]


def _published(document: Any, file: str) -> Mapping[str, Any] | None:
    from ipymcp.config.parsing import is_server  # rarely needed
    from ipymcp.config.pasted import PastedServers
    from ipymcp.registry.published import config_document

    return PastedServers(document).document if is_server(document) else config_document(document, file)


async def _all(waits: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*waits)


def _end_with_process(host: Host) -> None:
    """Close the host at the process's end and in its forks, without keeping the host alive."""
    reference = weakref.ref(host)

    def at_exit() -> None:
        alive = reference()
        if alive is not None:
            alive.close_at_exit()

    def in_child() -> None:
        alive = reference()
        if alive is not None:
            alive.close_in_fork()

    atexit.register(at_exit)
    unregister = weakref.finalize(host, atexit.unregister, at_exit)
    unregister.atexit = False  # otherwise it would run first and unregister the function
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)

"""The host: all servers of one notebook, their lives, their calls, and the end of it all.

Coroutines here belong to the background loop; `tools` and `notebook` reach them through it. Everything else may be
called from any thread.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import itertools
import os
import weakref
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ipymcp.argument_checks import check_name, shown
from ipymcp.errors import CallError, ConnectionLost, PolicyError, UnknownName
from ipymcp.names import RESERVED_HOST, aliases, identifier, nearest
from ipymcp.protocol.eras import Identity
from ipymcp.runtime.access import AccessControl
from ipymcp.runtime.call import Call, CallOptions, CallServices, Presenter
from ipymcp.runtime.context import RuntimeContext, Timing
from ipymcp.runtime.events import Events, UserNotices
from ipymcp.runtime.interfaces import State
from ipymcp.runtime.loop import BackgroundLoop
from ipymcp.runtime.oauth_redirects import Redirects
from ipymcp.runtime.question_routing import QuestionRouter
from ipymcp.runtime.reaper import Reaper
from ipymcp.runtime.server_requests import ClientHandlers
from ipymcp.security.untrusted import current_actor
from ipymcp.storage.history import History
from ipymcp.storage.store import Store
from ipymcp.text import quoted
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from msgspec import Raw

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.discovery import ConfigurationWatch
    from ipymcp.interaction.questions import Caller
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.catalog import Catalog, ToolEntry
    from ipymcp.runtime.server_requests import Roots
    from ipymcp.runtime.session import ServerSession, TaskCall
    from ipymcp.security.pins import Lock
    from ipymcp.storage.known_servers import Definitions


T = TypeVar("T")


class Host:
    """The servers of this notebook.

    Args:
        folder: Where servers run unless their definition says otherwise; the notebook's by default, else the working
            folder.
        timing: How patient it is with them.
        notebook: The notebook's path, where there is one and it is known.
    """

    def __init__(self, folder: str | None = None, timing: Timing | None = None, *, notebook: str | None = None) -> None:
        self.folder = os.path.abspath(folder or (os.path.dirname(notebook) if notebook else os.getcwd()))
        self.sessions: Mapping[str, ServerSession] = {}
        """By name, in the order they were loaded. Replaced as a whole when one comes or goes."""
        self.events = Events()
        self.loop = BackgroundLoop("ipymcp-loop")
        self.handlers = BackgroundLoop("ipymcp-handlers")
        """Runs the user's own coroutines and callbacks."""
        self.running: dict[int, Call[Any]] = {}
        self._numbers = itertools.count(1)
        self._reaper = Reaper()
        self.notices = UserNotices()
        self.state = Store(self.notices.add)
        """The storage that outlives the kernel."""
        self.desk = QuestionRouter(self.loop.places)
        self.answers = ClientHandlers(self.folder, self.handlers, self.desk)
        self.history = History(lambda: self.state.database, self._later, notebook or self.folder)
        self.guard = AccessControl(self.loop, self.desk, lambda: self.state.database)
        self.redirects = Redirects()
        self._calls = CallServices(self.loop, self.handlers, self.running, self.answers, self.history)
        self._services = RuntimeContext(
            loop=self.loop,
            reaper=self._reaper,
            events=self.events,
            identity=Identity("ipymcp", __version__),
            folder=self.folder,
            max_starting=max(8, 2 * (os.cpu_count() or 1)),
            timing=timing or Timing(),
            desk=self.desk,
            answers=self.answers,
            running=self.running,
            guard=self.guard,
            store=self.state,
            redirects=self.redirects,
            notices=self.notices,
        )
        self.loop.watch(self._end_late_calls)
        _end_with_process(self)

    @cached_property
    def discovery(self) -> ConfigurationWatch:
        """The servers that files in the user's and the project's folders define."""
        from ipymcp.config.discovery import ConfigurationWatch  # not at %load_ext: it is the first load's to pay for

        return ConfigurationWatch(self.folder)

    def trusts(self, definition: ServerDefinition) -> bool:
        """Whether a definition may run without a question. Not on the loop."""
        return self.loop.run(self.guard.trust.allows(definition))

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
    ) -> list[ServerSession]:
        """Have these servers, started. A second identical load is a no-op; a changed one restarts.

        Whoever stops waiting leaves them starting.

        Args:
            definitions: What to run.
            wait: Until each is ready or has failed.
            trusted: The user has seen them, and says so.
            again: Ask about those, too, that the user has refused, or refused a secret.
            lock: What their tools must be.
            originals: By name, as they were, those that the user changed in a cell: these have to be trusted.

        Raises:
            PolicyError: The lock has no such server.
        """
        definitions = list(definitions)
        self.guard.pinning.hold_to(lock, [one.name for one in definitions])
        await self.guard.refresh()
        originals = originals or {}
        wanted = [originals.get(one.name, one) for one in definitions if not one.disabled]
        await self.guard.trust.consider(wanted, agreed=trusted, again=again)
        for one in definitions:
            if one.name in originals:
                await self.guard.trust.vary(originals[one.name], one)
        sessions = await asyncio.shield(self.loop.spawn(self._have_all(definitions), "ipymcp-load"))
        if wait:
            await asyncio.gather(*(session.settled() for session in sessions))
        return sessions

    async def start(self, names: Sequence[str]) -> list[ServerSession]:
        """Start these, and wait until each is ready or has failed."""
        sessions = [self.find(name) for name in names]
        await self.guard.trust.consider(session.definition for session in sessions)
        for session in sessions:
            session.start()
        await asyncio.gather(*(session.settled() for session in sessions))
        return sessions

    async def stop(self, names: Sequence[str], state: State = State.STOPPED) -> list[ServerSession]:
        """Stop these, and wait until they have ended."""
        sessions = [self.find(name) for name in names]
        await asyncio.gather(*(session.stop(state) for session in sessions))
        return sessions

    async def restart(self, names: Sequence[str]) -> list[ServerSession]:
        """Stop and start these."""
        await self.stop(names)
        return await self.start(names)

    async def unload(self, names: Sequence[str]) -> None:
        """Stop these and forget them."""
        sessions = await self.stop(names)
        gone = {session.name for session in sessions}
        self.sessions = {name: session for name, session in self.sessions.items() if name not in gone}

    async def _have_all(self, definitions: Iterable[ServerDefinition]) -> list[ServerSession]:
        prepared = await asyncio.gather(*map(self._prepared, definitions))
        return await asyncio.gather(*(self._have(*one) for one in prepared))

    async def _prepared(self, definition: ServerDefinition) -> tuple[ServerDefinition, str, Definitions]:
        """A definition, its digest and, if it is lazy, what it had when it last ran, compared to its pins."""
        digest = await self.guard.trust.digest(definition)
        if definition.disabled or not definition.lazy:
            return definition, digest, {}
        had = await self.state.known.acatalog(digest)
        await self.guard.pinning.compare(digest, definition.name, had.get("tools", ()), starting=False)
        return definition, digest, had

    async def _have(self, definition: ServerDefinition, digest: str, had: Definitions) -> ServerSession:
        # Nothing is awaited before it is there: others may load the same, and those loaded together keep their order.
        old = self.sessions.get(definition.name)
        if old is not None and old.definition.replace(lazy=definition.lazy) == definition:
            if not (definition.disabled or (definition.lazy and old.is_lazy)):
                tools = (entry.definition for entry in old.catalog.tools.values())
                if old.client is not None and self.guard.pinning.is_locked_out(old.name, tools):
                    await old.stop()  # its next start is refused
                old.start()
            return old
        from ipymcp.runtime.session import ServerSession  # with the whole protocol: %load_ext does without

        session = ServerSession(definition, digest, self._services)
        self.state.known.loaded(definition, digest)
        self.sessions = {**self.sessions, definition.name: session}
        if "tools" in had:
            session.be_lazy(had)
        elif not definition.disabled:
            session.start(instead_of=old)
            return session
        if old is not None:
            await old.stop()
        return session

    def set_roots(self, roots: Roots | None) -> None:
        """Have servers told of other folders, or with None of the usual ones, from any thread.

        Raises:
            ArgumentError: One is not an existing folder.
        """
        self.answers.set_roots(roots)
        for client in self._clients():
            with contextlib.suppress(ConnectionLost):
                client.roots_changed()

    def set_handler(
        self, kind: Literal["sampling", "elicitation"], handler: Callable[[Any], Any] | None, *, tools: bool = False
    ) -> list[str]:
        """Have servers answered by a function of the user, from any thread.

        Args:
            kind: What it answers.
            handler: The function; None takes it back.
            tools: Whether it answers sampling with tools of the server's.

        Returns:
            The servers that cannot be told of it without being started again.
        """
        setattr(self.answers, kind, handler)
        if kind == "sampling":
            self.answers.samples_tools = tools
        return [
            session.name for session in self.sessions.values() if session.client and not session.client.declare(kind)
        ]

    def _clients(self) -> list[Client]:
        return [session.client for session in self.sessions.values() if session.client is not None]

    # -- looking up ---------------------------------------------------------------------------------------------------

    def aliases(self) -> dict[str, str]:
        """The identifier of each server: `{name: identifier}`."""
        return aliases(self.sessions, RESERVED_HOST)

    def find(self, name: str) -> ServerSession:
        """The server of this name, or of this alias.

        Raises:
            UnknownName: There is none; the hint names the nearest.
        """
        check_name(name, "server")
        session = self.sessions.get(name)
        if session is not None:
            return session
        for exact, alias in self.aliases().items():
            if alias == name:
                return self.sessions[exact]
        definition = self.configured(name)
        if definition is not None:
            hint = f"it is configured, and not loaded yet: %mcp load {quoted(definition.name)}"
        else:
            loaded = f"loaded: {', '.join(self.sessions)}" if self.sessions else "nothing is loaded yet: %mcp load demo"
            hint = nearest(name, self.sessions) or loaded
        raise UnknownName(f"there is no server {shown(name)}", hint=hint)

    def configured(self, name: str) -> ServerDefinition | None:
        """The definitions of a name or alias in the config files. Reads the files, so it is not for completion."""
        found = self.discovery.peek().definitions
        named = [found[name]] if name in found else [one for own, one in found.items() if identifier(own) == name]
        return named[0] if named else None

    def resolve(self, path: str, kind: str = "tool") -> tuple[ServerSession, str]:
        """Split `server.tool`, at the longest name of a server; `server__tool` is understood too.

        Args:
            path: As typed.
            kind: What it is to name, where that is no tool.

        Raises:
            UnknownName: No server of that name.
        """
        known = {**{alias: name for name, alias in self.aliases().items()}, **{name: name for name in self.sessions}}
        owners = [(name, dot) for name in known for dot in (".", "__") if path.startswith(name + dot)]
        if owners:
            owner, dot = max(owners, key=lambda found: len(found[0]))
            return self.sessions[known[owner]], path[len(owner) + len(dot) :]
        server, _, tool = path.partition(".")
        if not tool and server in known:
            session = self.sessions[known[server]]
            raise UnknownName(
                f"{path!r} names a server; a {kind} is {server}.{kind.upper()}",
                hint=f"its {kind}s: %mcp {kind}s {quoted(session.name)}",
            )
        self.find(server)
        raise UnknownName(f"there is no {kind} {path!r}", hint=f"a {kind} is named SERVER.{kind.upper()}")

    def entry(self, session: ServerSession, tool: str) -> ToolEntry:
        """One tool of a server, by its own name or what a user types for it.

        Raises:
            UnknownName: It has none of that name; the hint names the nearest.
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
        """Like `entry`, in any thread: waits for a starting server, and lists the tools of one that lacks the name.

        Raises:
            UnknownName: It has none of that name.
        """
        if session.catalog.find(tool) is None:
            self.settle(session)
        if not self.loop.is_own_thread and session.catalog.find(tool) is None and session.client is not None:
            self.loop.run(session.refreshed())
        return self.entry(session, tool)

    def refresh_changed(self) -> None:
        """Wait for the tools of all servers that have just said that these changed; on the background loop for none."""
        changed = [session for session in self.sessions.values() if session.has_changed_tools]
        if changed and not self.loop.is_own_thread:
            self.loop.run(_all(session.refreshed() for session in changed))

    def settle(self, session: ServerSession) -> None:
        """Wait, in any thread, for a server that is starting, or has to be looked for."""
        if not session.is_settled:
            self.loop.run(session.settled())

    def wake(self, session: ServerSession) -> None:
        """Like `settle`, for a server that is about to be used: starts a lazy one."""
        if session.is_lazy or not session.is_settled:
            self.loop.run(session.awake())

    async def awake(self, session: ServerSession) -> None:
        """The same, awaited on the caller's loop."""
        if session.is_lazy or not session.is_settled:
            await self.loop.arun(session.awake())

    def browse(self, session: ServerSession) -> Catalog:
        """The catalog of a server, or the one it had when it last ran; starts nothing. Empty for a disabled server."""
        catalog = session.catalog
        is_whole = catalog.tools and catalog.resources and catalog.prompts
        if session.client is None and session.state is not State.DISABLED and not (is_whole or session.is_moving):
            session.remember(self.state.known.catalog(session.digest))
        return session.catalog

    def is_denied(self, session: ServerSession, entry: ToolEntry, caller: Caller = "user") -> bool:
        """Whether policy keeps a tool from a caller, whatever is answered."""
        return self.guard.policy.verdict(entry, session.rights, caller).decision == "deny"

    # -- calls --------------------------------------------------------------------------------------------------------

    def new_call(
        self,
        session: ServerSession,
        entry: ToolEntry,
        arguments: bytes,
        options: CallOptions,
        convert: Callable[[Raw], T],
    ) -> Call[T]:
        """A call not yet sent.

        Raises:
            PolicyError: It may not be made.
        """
        caller = options.caller
        try:
            options = self.guard.on_behalf(entry, options)
            caller = options.caller
            consent = self.guard.permit(session, entry, options, arguments)
        except PolicyError as error:
            self.history.refused(session.name, entry.name, arguments, caller, error)
            raise
        receiver = self.guard.receiver(session, entry, options.conversation)
        return Call(
            next(self._numbers), session, entry.name, arguments, options, convert, self._calls, consent, receiver
        )

    def pick_up(self, session: ServerSession, task: str, tool: str, convert: Callable[[Raw], T]) -> TaskCall[T]:
        """Follow a task by its id, from now on."""
        client = session.require()
        if not client.takes_tasks:
            raise CallError("has no tasks", server=session.name, hint="its calls are answered by their results")
        from ipymcp.runtime.session import TaskCall

        actor = current_actor()
        conversation = actor.conversation if actor is not None else None
        receiver = partial(self.guard.received, f"{session.name}.{tool}", conversation)
        call = TaskCall(task, next(self._numbers), session, tool, session.call_options, convert, self._calls, receiver)
        call.submit()
        return call

    def number(self) -> int:
        """A number that no call has, for what is kept beside results of calls."""
        return next(self._numbers)

    def _end_late_calls(self) -> bool:
        calls = list(self.running.values())
        for call in calls:
            call.end_if_late()
        return bool(calls)

    @property
    def presenter(self) -> Presenter | None:
        """Shows calls that take long."""
        return self._calls.presenter

    @presenter.setter
    def presenter(self, presenter: Presenter | None) -> None:
        self._calls.presenter = presenter

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _later(self, delay: float, function: Callable[[], None]) -> bool:
        if not self.loop.is_running:  # in a forked child
            return False
        self.loop.call(self.loop.loop.call_later, delay, function)
        return True

    def _close_state(self) -> None:
        self.history.flush()
        self.state.close()

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        await self.stop(list(self.sessions))

    def close(self) -> None:
        """Stop all servers in good order, and the background loops."""
        if self.loop.is_running:
            self.loop.run(self._stop_all())
        self._end_threads()

    async def aclose(self) -> None:
        """The same, awaited."""
        if self.loop.is_running:
            await self.loop.arun(self._stop_all())
        await asyncio.to_thread(self._end_threads)

    def _end_threads(self) -> None:
        self._reaper.close()
        self.loop.stop()
        self.handlers.stop()
        self._close_state()  # they may have had something to keep

    def close_at_exit(self) -> None:
        """At the interpreter's exit: no process of ours is left, and it takes two seconds at most."""
        if not self.loop.is_running:
            return
        self.loop.freeze()
        self._close_state()
        self._reaper.end_all([session.close_input for session in self.sessions.values()])

    def close_in_fork(self) -> None:
        """In a forked child: the servers are the parent's. Let go of their pipes."""
        for session in self.sessions.values():
            session.close_in_fork()
        self._reaper.close_in_fork()


async def _all(waits: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*waits)


def _end_with_process(host: Host) -> None:
    """Hook the host to the process's end and to its forks, without keeping it alive."""
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
    weakref.finalize(host, atexit.unregister, at_exit).atexit = False  # it would run first, and unregister us
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=in_child)

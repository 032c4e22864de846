"""`mcp`, the namespace of a notebook's servers and their tools, and `connect` for scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ipymcp.api.servers import ServerCommands, Servers, ServerTools
from ipymcp.api.sync_and_async import sync_and_async
from ipymcp.api.tool import ToolFactory
from ipymcp.api.toolset import Toolset
from ipymcp.argument_checks import (
    COUNT,
    FLAG,
    FUNCTION,
    MAPPING,
    MOMENT,
    PATH,
    SECONDS,
    TEXT,
    TEXTS,
    VARIABLES,
    Kind,
    checked,
    one_of,
)
from ipymcp.errors import UnknownName
from ipymcp.interaction.terminal import TerminalPrompts
from ipymcp.names import nearest
from ipymcp.results.tables import NotPicklable
from ipymcp.runtime.host import Host
from ipymcp.runtime.session import State
from ipymcp.security.rules import is_named
from ipymcp.text import quoted

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, MutableMapping
    from typing import TypeAlias

    from ipymcp.api.history import CallHistory
    from ipymcp.api.prompts import AllPrompts
    from ipymcp.api.resources import AllResources
    from ipymcp.api.security import ToolPins, ToolPolicy, TrustedServers
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import FormQuestion, UrlQuestion
    from ipymcp.llm.answer import Answer
    from ipymcp.llm.backend import Limits
    from ipymcp.llm.chat import ModelChat
    from ipymcp.llm.sampling import Sampler
    from ipymcp.llm.tool_search import Discover
    from ipymcp.results.stored_results import KeptResults
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.server_requests import Roots, SamplingRequest


if TYPE_CHECKING:
    SamplingHandler: TypeAlias = Callable[[SamplingRequest], Any]
    ElicitationHandler: TypeAlias = Callable[[FormQuestion | UrlQuestion], Any]


LOADABLE = Kind("a name, an address, a path or a definition", (PATH | MAPPING).accepts)
_TOOLS = TEXT | Kind("a selection, or a list of patterns and functions", lambda value: isinstance(value, Iterable))


class Mcp(NotPicklable):
    """The MCP servers of this notebook; each tool of each server is a function: `mcp.SERVER.TOOL(...)`.

    First `mcp.load("demo")`, or `%mcp load …` in a cell; `%mcp help` lists the commands. `mcp.servers` shows states and
    logs, `mcp.tools` all tools. A server whose name is no identifier is `mcp["my server"]`.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        host.desk.interaction = TerminalPrompts()
        self._filters = host.guard.policy.filters
        self._factory = ToolFactory(host)
        self._model: Any = None
        """The one that is set, which a question asks that names none."""
        self._budget = 0
        """How many tokens of it a server may cost that asks for its words."""

    @property
    def _loop(self) -> BackgroundLoop:
        return self._host.loop

    # -- looking up ---------------------------------------------------------------------------------------------------

    @property
    def servers(self) -> Servers:
        """The servers by name: state, logs, start, stop, restart."""
        commands = ServerCommands(self.start, self.stop, self.restart, self.enable, self.disable, self.unload)
        return Servers(self._factory, commands)

    @property
    def tools(self) -> Toolset:
        """All tools now available; called with patterns, a selection: `mcp.tools("fs.*", "!*.write_*")`."""
        return Toolset(self._factory)

    @property
    def resources(self) -> AllResources:
        """The resources of all servers; called with patterns, a selection: `mcp.resources("fs", "!*.log")`."""
        from ipymcp.api.resources import AllResources

        return AllResources(self._host)

    @property
    def prompts(self) -> AllPrompts:
        """The prompts of all servers; called with patterns, a selection."""
        from ipymcp.api.prompts import AllPrompts

        return AllPrompts(self._host)

    @property
    def policy(self) -> ToolPolicy:
        """What may be called by whom; `.allow`, `.ask`, `.deny` change it, `.explain` says why."""
        from ipymcp.api.security import ToolPolicy

        return ToolPolicy(self._host)

    @property
    def pins(self) -> ToolPins:
        """Whether tools are what they were; `.diff`, `.accept`, `.scan`, `.export`."""
        from ipymcp.api.security import ToolPins

        return ToolPins(self._host)

    @property
    def trust(self) -> TrustedServers:
        """Which servers of projects may run; `.revoke` takes it back."""
        from ipymcp.api.security import TrustedServers

        return TrustedServers(self._host)

    @property
    def results(self) -> KeptResults:
        """What the panel showed a part of, by the number it was given: `mcp.results[7]`."""
        return self._factory.results

    @sync_and_async
    @checked(server=TEXT.or_none, tool=TEXT.or_none, failed=FLAG, since=(TEXT | MOMENT).or_none, limit=COUNT)
    async def history(
        self,
        *,
        server: str | None = None,
        tool: str | None = None,
        failed: bool = False,
        since: str | float | None = None,
        limit: int = 200,
    ) -> CallHistory:
        """The calls that were made, newest first, of all notebooks.

        Args:
            server: Of servers whose name matches this glob.
            tool: Of tools whose name matches this glob.
            failed: Those that failed.
            since: `"10m"`, `"2h"`, `"3d"`, `"2026-11-21 14:00"`, or seconds since the epoch.
            limit: At most so many.
        """
        from ipymcp.api.history import CallHistory, moment

        began = None if since is None else moment(since)
        entries = await self._host.history.entries(server=server, tool=tool, failed=failed, since=began, limit=limit)
        notes = ["no such calls" if not entries else f"the last {limit:,}" if len(entries) == limit else ""]
        if self._host.history.lost:
            notes.append(f"{self._host.history.lost:,} of this kernel were not kept: too many at once")
        return CallHistory(entries, " · ".join(filter(None, notes)))

    @sync_and_async
    @checked(
        prompt=TEXT,
        base_url=TEXT.or_none,
        chat=TEXT,
        system=TEXT,
        allow=TEXT | TEXTS,
        discover=one_of("always", "auto", "never"),
        code=FLAG | VARIABLES,
    )
    async def ask(
        self,
        prompt: str,
        *,
        model: Any = None,
        tools: Toolset | str | Iterable[str | Callable[..., Any]] | None = None,
        base_url: str | None = None,
        chat: str = "",
        system: str = "",
        returns: Any = None,
        allow: str | Iterable[str] = (),
        limits: Limits | None = None,
        discover: Discover = "auto",
        code: bool | MutableMapping[str, Any] = False,
    ) -> Answer:
        """Have a model answer, with the notebook's tools. Needs `pip install 'ipymcp[llm]'`.

        You are asked about its calls as your policy has it; `allow` answers that beforehand.

        Args:
            prompt: The question.
            model: `provider:name`, such as `"openai:gpt-5"`, or a model of pydantic-ai's; the one that is set, if None.
            tools: What it may use: a selection, or patterns and functions; all tools, if None.
            base_url: An address that speaks Chat Completions: Ollama, vLLM, LM Studio.
            chat: Names a conversation that goes on; by default each question begins a fresh one.
            system: What it is told before the prompt.
            returns: A dataclass, TypedDict, pydantic model or JSON Schema that the answer has to fit: `.data`.
            allow: Patterns over `server.tool` of the tools it may call unasked, for this answer.
            limits: How far it may go.
            discover: `always` gives it a search over the tools instead of all their schemas, `auto` where these would
                be too much.
            code: Have it write Python that calls the tools, which runs here after you have agreed, unsandboxed; a
                mapping is what it runs in, such as `globals()`.

        Returns:
            `.text`, `.data`, `.calls`, `.messages`, `.usage`.

        Raises:
            McpError: It cannot: no model, no key, a limit. The conversation so far is kept.
        """
        from ipymcp.llm.backend import Limits
        from ipymcp.llm.chat import AskRequest

        Kind("Limits", lambda value: isinstance(value, Limits)).or_none.check("ask()", "limits", limits)
        names: MutableMapping[str, Any] | None = {"mcp": self} if code is True else code or None
        wanted = AskRequest(
            prompt,
            model,
            self._selection(tools).selection,
            base_url=base_url,
            chat=chat,
            system=system,
            returns=returns,
            allow=(allow,) if isinstance(allow, str) else tuple(allow),
            limits=limits or Limits(),
            discover=discover,
            code=names,
        )
        return await self._asker.ask(wanted)

    def _selection(self, tools: Toolset | str | Iterable[str | Callable[..., Any]] | None) -> Toolset:
        if tools is None or isinstance(tools, Toolset):
            return self.tools if tools is None else tools
        _TOOLS.check("ask()", "tools", tools, hint='such as mcp.tools("fs.*"), or ["fs.*", my_function]')
        given = [tools] if isinstance(tools, str) else list(tools)
        patterns = [one for one in given if isinstance(one, str)]
        chosen = self.tools(*patterns) if patterns else self.tools("!*")
        return chosen + [one for one in given if not isinstance(one, str)]

    @cached_property
    def _asker(self) -> ModelChat:
        from ipymcp.llm.chat import ModelChat

        return ModelChat(self._host, lambda: self._model)

    @property
    def calls(self) -> list[Call[Any]]:
        """The calls now running, oldest first."""
        return list(self._host.running.values())

    def __getattr__(self, name: str) -> ServerTools:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> ServerTools:
        """The tools of one server, by its name or what a user types for it."""
        self._load_if_lazy(name)
        return ServerTools(self._factory, self._host.find(name).name)

    def _load_if_lazy(self, name: str) -> None:
        """Load a server that is configured to start when it is used, and may run without a question."""
        if not isinstance(name, str) or name in self._host.sessions or name in self._host.aliases().values():  # pyright: ignore[reportUnnecessaryIsInstance]
            return
        definition = self._host.configured(name)
        if definition is not None and definition.lazy and not definition.disabled and self._host.trusts(definition):
            self.load(definition.name)

    def __iter__(self) -> Iterator[str]:
        """The names of the servers."""
        return iter(self._host.sessions)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._host.sessions

    def __len__(self) -> int:
        """How many servers are loaded."""
        return len(self._host.sessions)

    def __bool__(self) -> bool:
        return True

    def __dir__(self) -> list[str]:
        return sorted({*(word for word in dir(type(self)) if not word.startswith("_")), *self._host.aliases().values()})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._host.sessions)

    def __repr__(self) -> str:
        return repr(self.servers)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self.servers._repr_mimebundle_(include, exclude)

    # -- what servers ask ---------------------------------------------------------------------------------------------

    @checked(function=FUNCTION.or_none)
    def on_sampling(self, function: SamplingHandler | None) -> SamplingHandler | None:
        """Have a function answer servers that ask for a model's words; usable as a decorator. None takes it back.

        Args:
            function: Takes a request (`.messages`, `.system_prompt`, `.max_tokens`, `.params`, `.server`, `.tool`) and
                gives a text, a content block, a whole `CreateMessageResult`, or None to refuse. May be a coroutine
                function, which runs on a loop of its own unless `%config IPyMCP.nested_loop` says otherwise.
        """
        self._told("sampling", self._host.set_handler("sampling", function))
        return function

    def _set_model(self, model: Any, budget: int) -> list[str]:
        """Ask this model from now on, and answer servers with it unless the user has a function for that.

        Returns:
            The servers that run and cannot ask for it before their next start.
        """
        self._model, self._budget = model, budget
        before, handler = self._host.answers.sampling, self._sample if model is not None else None
        if before in (None, self._sample) and before != handler:
            return self._host.set_handler("sampling", handler, tools=True)
        return []

    async def _sample(self, request: SamplingRequest) -> dict[str, Any] | None:
        return await self._sampler.answer(request)

    @cached_property
    def _sampler(self) -> Sampler:
        from ipymcp.llm.sampling import Sampler

        return Sampler(self._host, self._asker, lambda: self._budget)

    @checked(function=FUNCTION.or_none)
    def on_elicitation(self, function: ElicitationHandler | None) -> ElicitationHandler | None:
        """Have a function answer servers' questions instead of the user; usable as a decorator. None takes it back.

        Args:
            function: Takes a question (`.message`, `.schema` or `.url`, `.server`, `.tool`) and gives a dict of values
                (fields left out get their defaults), True to accept, False to decline, or None to cancel. May be a
                coroutine function, as for `on_sampling`. What does not fit the schema is not sent: the question is
                cancelled, and the cell says why.

        Raises:
            ArgumentError: It is not a function.
        """
        from ipymcp.interaction.elicitation import answering

        handler = None if function is None else answering(function)
        self._told("elicitation", self._host.set_handler("elicitation", handler))
        return function

    @property
    def roots(self) -> list[dict[str, str]]:
        """The folders servers are told they may look at: `mcp.roots = "data"`, `mcp.roots = ["data", Path("/tmp")]`.

        Unless set, or with None again, the notebook's; for a server whose command names folders those instead.
        """
        return [dict(root) for root in self._host.answers.roots]

    @roots.setter
    def roots(self, roots: Roots | None) -> None:
        self._host.set_roots(roots)

    def _told(self, what: str, untold: list[str]) -> None:
        if untold:
            names = " ".join(map(quoted, untold))
            self._host.notices.add(f"{names}: told of {what} at the next start only: %mcp restart {names}")

    # -- words that wait ----------------------------------------------------------------------------------------------

    @sync_and_async
    @checked(what=LOADABLE, wait=FLAG, trust=FLAG, locked=FLAG, lazy=FLAG, start_timeout=SECONDS.or_none)
    async def load(
        self,
        *what: str | os.PathLike[str] | Mapping[str, Any],
        wait: bool = True,
        trust: bool = False,
        locked: bool = False,
        lazy: bool = False,
        start_timeout: float | None = None,
    ) -> Servers:
        """Load servers: `"demo"`, an address, a config file and names in it, or `{"name": {"command": …}}`.

        Nothing: every server of the discovered configuration that is not disabled. What a project's file defines runs
        once the user has seen it and agreed.

        Loading twice what has not changed does nothing; what has changed is restarted.

        Args:
            what: Names, addresses (`https://…`), paths, definitions. A plain name after a path picks from that file,
                else from the discovered configuration; one that is loaded already is started.
            wait: Until each is ready or has failed.
            trust: Run what a project's file defines without asking; its servers still ask for secrets.
            locked: Refuse servers whose tools are not what `mcp.lock` says.
            lazy: Start a server at its first call, where its tools are known from before.
            start_timeout: Seconds that a start may take, instead of what the definitions say.

        Raises:
            ServerError: A server asked for by name did not start.
            ConfigError: A file or definition is wrong.
            PolicyError: `mcp.lock` has no such server.
        """
        from ipymcp.api.load_request import gather
        from ipymcp.security.pins import read_lock

        asked = await asyncio.to_thread(gather, what, self._host)
        for line in asked.notices:
            self._host.notices.add(line)
        definitions = [one.replace(lazy=lazy or one.lazy) for one in asked.definitions]
        originals: dict[str, ServerDefinition] = {}
        if start_timeout is not None:
            originals = {one.name: one for one in definitions if one.start_timeout != start_timeout}
            definitions = [one.replace(start_timeout=float(start_timeout)) for one in definitions]
        lock = read_lock(self._host.folder) if locked else None
        await self._host.load(definitions, wait=wait, trusted=trust, again=asked.again, lock=lock, originals=originals)
        for name in asked.named if wait else ():
            if not self._host.sessions[name].is_lazy:
                self._host.sessions[name].require()
        return self.servers

    @sync_and_async
    @checked(names=TEXT)
    async def start(self, *names: str) -> None:
        """Start servers that were stopped or have failed.

        Raises:
            ServerError: One did not start.
        """
        for session in await self._host.start(names):
            session.require()

    @sync_and_async
    @checked(names=TEXT)
    async def stop(self, *names: str) -> None:
        """Stop servers; their tools are refused until they are started again."""
        await self._host.stop(names)

    @sync_and_async
    @checked(names=TEXT)
    async def restart(self, *names: str) -> None:
        """Stop servers and start them again.

        Raises:
            ServerError: One did not start.
        """
        for session in await self._host.restart(names):
            session.require()

    @sync_and_async
    @checked(names=TEXT)
    async def unload(self, *names: str) -> None:
        """Stop servers and forget them."""
        await self._host.unload(names)

    @sync_and_async
    @checked(patterns=TEXT)
    async def disable(self, *patterns: str) -> None:
        """Switch off servers by name (they are stopped) or tools by pattern (`fs.write_*`).

        Raises:
            UnknownName: A pattern that means no server, and no tool that is known now.
        """
        for pattern, servers in [(pattern, self._servers_of(pattern)) for pattern in patterns]:
            if servers:
                await self._host.stop(servers, State.DISABLED)
            else:
                self._filters.set(pattern, allowed=False)

    @sync_and_async
    @checked(patterns=TEXT)
    async def enable(self, *patterns: str) -> None:
        """Switch on again what `disable` switched off; servers are started.

        Raises:
            UnknownName: As `disable`.
            ServerError: A server did not start.
        """
        for pattern, servers in [(pattern, self._servers_of(pattern)) for pattern in patterns]:
            if servers:
                for session in await self._host.start(servers):
                    session.require()
            else:
                self._filters.set(pattern, allowed=True)

    def _servers_of(self, pattern: str) -> list[str]:
        """The servers that a pattern means; none where it means tools."""
        sessions = self._host.sessions
        servers = [name for name, alias in self._host.aliases().items() if pattern in (name, alias)]
        if servers or "." not in pattern:
            servers = servers or [name for name in sessions if fnmatchcase(name, pattern)]
            return servers or [self._host.find(pattern).name]
        entries = [entry for session in sessions.values() for entry in session.catalog.tools.values()]
        if pattern not in dict(self._filters.rules) and not any(is_named(entry, pattern) for entry in entries):
            hint = nearest(pattern, [f"{entry.server}.{entry.alias}" for entry in entries], limit=1)
            raise UnknownName(f"no tool matches {pattern!r}", hint=hint or "%mcp tools lists them")
        return []

    @checked(number=COUNT.or_none)
    def cancel(self, number: int | None = None) -> int:
        """Cancel a running call by its number, or all of them.

        Returns:
            How many were still running.
        """
        running = self._host.running
        if number is not None and number not in running:
            raise UnknownName(f"no call {number} is running", hint=f"running: {', '.join(map(str, running)) or 'none'}")
        calls = [running[number]] if number is not None else self.calls
        return sum(call.cancel() for call in calls)

    def close(self) -> None:
        """Stop all servers."""
        self._host.close()


class _ScriptConnection:
    @checked(what=LOADABLE, on_sampling=FUNCTION.or_none, on_elicitation=FUNCTION.or_none, trust=FLAG)
    def __init__(
        self,
        *what: str | os.PathLike[str] | Mapping[str, Any],
        on_sampling: SamplingHandler | None = None,
        on_elicitation: ElicitationHandler | None = None,
        roots: Roots | None = None,
        trust: bool = False,
    ) -> None:
        self._what = what
        self._trust = trust
        self._mcp = Mcp(Host())
        if on_sampling is not None:
            self._mcp.on_sampling(on_sampling)
        if on_elicitation is not None:
            self._mcp.on_elicitation(on_elicitation)
        if roots is not None:
            self._mcp.roots = roots


class connect(_ScriptConnection):
    """Servers that live as long as the `with` block: `with ipymcp.connect({"time": {…}}) as mcp:`.

    Args:
        what: As for `mcp.load`: definitions by name, addresses, config files and names in them, `"demo"`.
        on_sampling: As `mcp.on_sampling`.
        on_elicitation: As `mcp.on_elicitation`.
        roots: As `mcp.roots`; the working folder unless given.
        trust: Run what a project's file defines without asking.

    Raises:
        ServerError: A server did not start; the others are stopped again.
    """

    def __enter__(self) -> Mcp:
        try:
            if self._what:
                self._mcp.load(*self._what, trust=self._trust)
        except BaseException:
            self._mcp.close()
            raise
        return self._mcp

    def __exit__(self, *_: object) -> None:
        self._mcp.close()


class aconnect(_ScriptConnection):
    """The same for `async with`: `async with ipymcp.aconnect({"time": {…}}) as mcp:`.

    Args:
        what: As for `connect`, and so are the rest.

    Raises:
        ServerError: A server did not start; the others are stopped again.
    """

    async def __aenter__(self) -> Mcp:
        try:
            if self._what:
                await self._mcp.load.aio(*self._what, trust=self._trust)
        except BaseException:
            await self._mcp._host.aclose()
            raise
        return self._mcp

    async def __aexit__(self, *_: object) -> None:
        await self._mcp._host.aclose()

"""`mcp`, the namespace of a notebook's servers and their tools."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ipymcp.api.named_access import NamedAccess
from ipymcp.api.parts import McpParts
from ipymcp.api.servers import OTHER_NAMES, ServerCommands, Servers, ServerTools, log_table
from ipymcp.api.sync_and_async import sync_and_async
from ipymcp.api.toolset import Toolset
from ipymcp.argument_checks import (
    AMOUNT,
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
    check_name,
    checked,
    one_of,
)
from ipymcp.errors import McpError, UnknownName
from ipymcp.names import RESERVED_HOST, nearest
from ipymcp.protocol.eras import HANDSHAKE_VERSIONS, STATELESS_VERSIONS
from ipymcp.results.tables import mimebundle
from ipymcp.runtime.client_handlers import RootList
from ipymcp.runtime.events import LEVELS
from ipymcp.runtime.server_status import State
from ipymcp.security.untrusted import refuse_models
from ipymcp.text import quoted, visible
from ipymcp.version import __version__

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from ipymcp.api.configuration import ConfigFiles
    from ipymcp.api.history import CallHistory
    from ipymcp.api.resources import AllPrompts, AllResources
    from ipymcp.api.security import SavedSecrets, ToolPins, ToolPolicy, TrustedServers
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.elicitation import Elicitation
    from ipymcp.llm.answer import Answer, Usage
    from ipymcp.llm.backend import Effort, Limits
    from ipymcp.llm.recording import Replay
    from ipymcp.llm.tool_definitions import Discover
    from ipymcp.maps.result import MapResult
    from ipymcp.results.tables import Table
    from ipymcp.results.tool_result import StoredResults
    from ipymcp.runtime.call_hooks import HookedCall
    from ipymcp.runtime.call_options import RunningCall
    from ipymcp.runtime.client_handlers import Roots, SamplingRequest
    from ipymcp.runtime.host import Host
    from ipymcp.setup.addition import AnyAddition, Keep
    from ipymcp.storage.chats import SavedChats


if TYPE_CHECKING:
    SamplingHandler: TypeAlias = Callable[[SamplingRequest], Any]
    ElicitationHandler: TypeAlias = Callable[[Elicitation], Any]
    CallFunction: TypeAlias = Callable[[HookedCall], Any]


LOADABLE = Kind("a name, an address, a path, a command or a definition", (PATH | MAPPING | TEXTS).accepts)
ONE_SERVER = {
    **dict.fromkeys(("command", "url"), TEXT.or_none),
    **dict.fromkeys(("env", "headers"), MAPPING.or_none),
    "args": TEXTS.or_none,
    "cwd": PATH.or_none,
}
"""The keywords that define one server."""
_NO_INPUTS: Mapping[str, Any] = {}


_METHODS = frozenset({"call", "map", "prompt", "read", "subscribe"})
"""Properties whose values are functions."""


class Mcp(NamedAccess):
    """The MCP servers of this notebook; each tool of each server is a function: `mcp.SERVER.TOOL(...)`.

    Start with `mcp.load("demo")`, or `%mcp load …` in a cell; `%mcp help` lists the commands. `mcp.servers` shows
    states and logs, `mcp.tools` all tools. A server whose name is not an identifier is `mcp["my server"]`.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._parts = McpParts(host)

    # -- attributes ---------------------------------------------------------------------------------------------------

    @property
    def servers(self) -> Servers:
        """The servers by name: state, logs, start, stop, restart."""
        commands = ServerCommands(self.start, self.stop, self.restart, self.enable, self.disable, self.unload)
        return Servers(self._parts.factory, commands)

    @property
    def tools(self) -> Toolset:
        """All available tools; call it with patterns to select some: `mcp.tools("fs.*", "!*.write_*")`."""
        return Toolset(self._parts.factory)

    @property
    def resources(self) -> AllResources:
        """The resources of all servers; call it with patterns to select some: `mcp.resources("fs", "!*.log")`."""
        from ipymcp.api.resources import AllResources

        return AllResources(self._host)

    @property
    def prompts(self) -> AllPrompts:
        """The prompts of all servers; call it with patterns to select some."""
        from ipymcp.api.resources import AllPrompts

        return AllPrompts(self._host)

    @property
    def policy(self) -> ToolPolicy:
        """The rules for tool calls; `.allow`, `.ask` and `.deny` add rules, `.explain` lists those for a tool."""
        from ipymcp.api.security import ToolPolicy

        return ToolPolicy(self._host)

    @property
    def pins(self) -> ToolPins:
        """The pinned tool definitions, to detect changes; `.diff`, `.accept`, `.scan`, `.export`."""
        from ipymcp.api.security import ToolPins

        return ToolPins(self._host)

    @property
    def trust(self) -> TrustedServers:
        """The servers of configuration files that may run; `.revoke` withdraws the permission."""
        from ipymcp.api.security import TrustedServers

        return TrustedServers(self._host)

    @property
    def config(self) -> ConfigFiles:
        """The configured servers; `.explain`, and `.add`, `.update` and `.remove` for your own file."""
        from ipymcp.api.configuration import ConfigFiles

        return ConfigFiles(self._host)

    @property
    def secret(self) -> SavedSecrets:
        """The stored secrets without their values; `.set(name)` asks for a value, `.delete(name)`."""
        from ipymcp.api.security import SavedSecrets

        return SavedSecrets(self._host)

    @property
    def maps(self) -> list[MapResult]:
        """The latest maps, oldest first: `mcp.maps[-1]` has an interrupted map's results, `.resume()` continues it."""
        return list(self._parts.factory.maps)

    @property
    def results(self) -> StoredResults:
        """Complete results of calls that were only shown in part, by number: `mcp.results[7]`."""
        return self._parts.factory.results

    @sync_and_async
    @checked(
        server=TEXT.or_none,
        tool=TEXT.or_none,
        failed=FLAG,
        since=(TEXT | MOMENT).or_none,
        map=COUNT.or_none,
        limit=COUNT,
    )
    async def history(
        self,
        *,
        server: str | None = None,
        tool: str | None = None,
        failed: bool = False,
        since: str | float | None = None,
        map: int | None = None,
        limit: int = 200,
    ) -> CallHistory:
        """The calls and maps of all notebooks, newest first, or the calls of one map of this notebook.

            mcp.history(server="demo", since="1h")

        Args:
            server: A glob for the names of servers.
            tool: A glob for the names of tools.
            failed: Only calls that failed or were refused.
            since: `"10m"`, `"2h"`, `"3d"`, `"2026-11-21 14:00"`, or seconds since the epoch.
            map: The number of a map, as in the column `map`.
            limit: The maximum number of calls.
        """
        from ipymcp.api.history import CallHistory, moment
        from ipymcp.storage.history import FAILURES

        began = None if since is None else moment(since)
        outcomes = FAILURES if failed else ()
        entries = await self._host.history.entries(
            server=server, tool=tool, outcomes=outcomes, since=began, map=map, is_own=map is not None, limit=limit
        )
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
        temperature=AMOUNT.or_none,
        max_tokens=COUNT.or_none,
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
        history: Answer | Sequence[Any] | None = None,
        system: str = "",
        returns: Any = None,
        allow: str | Iterable[str] = (),
        limits: Limits | None = None,
        effort: Effort | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        discover: Discover = "auto",
        code: bool | MutableMapping[str, Any] = False,
        replay: Replay | None = None,
    ) -> Answer:
        """Ask a model, which can use the notebook's tools. Requires the extra `llm`.

            answer = mcp.ask("Which species is the heaviest?", tools="demo.*")
            answer.text, answer.calls, answer.usage

        The policy decides which of its calls you are asked to approve; `allow` approves calls in advance.

        Args:
            prompt: The question.
            model: `provider:name`, such as `"openai:gpt-5"`, or a pydantic-ai model; the default model if None. In a
                list, or in names separated by commas, the next model is asked if one fails before it has written or
                called anything.
            tools: The tools for the model: a selection, or patterns and functions; all tools if None.
            base_url: The URL of a Chat Completions server, such as Ollama, vLLM or LM Studio.
            chat: The name of a conversation to continue; by default each question begins a new one.
            history: An earlier conversation to continue: an answer, its `.messages`, or `mcp.chats["name"]`.
            system: The system prompt.
            returns: A dataclass, TypedDict, pydantic model or JSON Schema for the answer in `.data`.
            allow: Globs for `server.tool` of the tools that the model may call without asking, for this answer.
            limits: Limits on calls, tokens and dollars.
            effort: How much the model reasons: `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`; the
                nearest one that the provider has is used.
            temperature: The randomness of the model's choice of words, from 0.
            max_tokens: Maximum tokens of each response.
            discover: `always` gives the model a search for tools instead of all their schemas, `auto` only if these
                are too large.
            code: Let the model write Python that calls the tools. It runs in this kernel without a sandbox, after you
                have agreed; a mapping is its namespace, such as `globals()`.
            replay: `auto` takes the answer from `mcp-answers.json` beside the notebook if prompt, model, tools and
                results are as recorded, else asks and records; `only` never asks; `new` asks and records; `off` does
                neither. By default `%config IPyMCP.replay`.

        Returns:
            The answer, with `.text`, `.data`, `.calls`, `.messages`, `.thinking`, `.usage` and `.cost`.

        Raises:
            McpError: There is no model or key, or a limit was reached. The error's `.answer` has the partial answer,
                which the chat keeps, too.
        """
        from ipymcp.llm.backend import EFFORTS, Limits, ModelSettings
        from ipymcp.llm.planning import AskRequest

        one_of(*EFFORTS).or_none.check("ask()", "effort", effort)
        Kind("Limits", lambda value: isinstance(value, Limits)).or_none.check("ask()", "limits", limits)
        names: MutableMapping[str, Any] | None = {"mcp": self} if code is True else code or None
        request = AskRequest(
            prompt,
            model,
            self._parts.selection(tools).selection,
            base_url=base_url,
            chat=chat,
            history=history,
            system=system,
            returns=returns,
            allow=(allow,) if isinstance(allow, str) else tuple(allow),
            limits=limits or Limits(),
            settings=ModelSettings(effort, temperature, max_tokens),
            discover=discover,
            code=names,
            replay=replay,
        )
        return await self._parts.chat.ask(request)

    @property
    def chats(self) -> SavedChats:
        """The named conversations of this notebook with models, also of earlier kernels: `mcp.chats["name"]`."""
        return self._parts.chat.saved

    @property
    def usage(self) -> Usage:
        """The cost of all answers of models in this kernel: requests, tokens, and `.cost` in dollars."""
        return self._parts.chat.usage

    @property
    def version(self) -> str:
        """The versions of ipymcp, the protocol, Python, IPython and ipykernel, in one line."""
        import platform
        from importlib.metadata import PackageNotFoundError, version

        packages = [("Python", platform.python_version())]
        for package in ("IPython", "ipykernel"):
            with contextlib.suppress(PackageNotFoundError):
                packages.append((package, version(package)))
        protocol = f"MCP {HANDSHAKE_VERSIONS[-1]} to {STATELESS_VERSIONS[0]}"
        return f"ipymcp {__version__} · {protocol} · {', '.join(map(' '.join, packages))}"

    @property
    def calls(self) -> list[RunningCall]:
        """The running calls and maps, oldest first."""
        return list(self._host.calls.running.values())

    def __getattr__(self, name: str) -> ServerTools:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except UnknownName as error:
            if self._host.discovery.peek().find(name) is None:
                error.hint = OTHER_NAMES.get(name) or self._host.missing_hint(name, RESERVED_HOST)
            raise

    def __getitem__(self, name: str) -> ServerTools:
        """The tools of one server, by the server's name or identifier."""
        check_name(name, "server")
        if name not in self._host.sessions:
            unloaded = self._parts.unloaded(name)
            if unloaded is not None:
                return unloaded
            name = self._host.find(name).name
        return ServerTools(self._parts.factory, name)

    def __iter__(self) -> Iterator[str]:
        """The names of the servers."""
        return iter(self._host.sessions)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._host.sessions

    def __len__(self) -> int:
        """The number of loaded servers."""
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
        return mimebundle(self.servers.table)

    # -- requests of servers ------------------------------------------------------------------------------------------

    @checked(function=FUNCTION.or_none)
    def on_sampling(self, function: SamplingHandler | None) -> SamplingHandler | None:
        """Answer sampling requests of servers with a function; usable as a decorator. None removes it.

            @mcp.on_sampling
            def answer(request):
                return f"{len(request.messages)} messages from {request.server}"

        Args:
            function: Takes a request (`.messages`, `.system_prompt`, `.max_tokens`, `.params`, `.server`, `.tool`) and
                returns a string, a content block, a whole `CreateMessageResult`, or None to refuse. May be a coroutine
                function, which runs on its own event loop unless `%config IPyMCP.nested_loop` is set.

        Raises:
            ArgumentError: The argument is not a function.
            PolicyError: The running code is a model's.
        """
        refuse_models("set mcp.on_sampling")
        self._warn_outdated("sampling", self._host.client_handlers.set_handler("sampling", function))
        return function

    @checked(function=FUNCTION.or_none)
    def on_elicitation(self, function: ElicitationHandler | None) -> ElicitationHandler | None:
        """Answer elicitation requests with a function instead of the user; usable as a decorator. None removes it.

            @mcp.on_elicitation
            def answer(question):
                return {"name": "Ada"} if question.server == "demo" else None

        Args:
            function: Takes a question (`.message`, `.schema` or `.url`, `.server`, `.tool`) and returns a dict of
                values (omitted fields get their defaults), True to accept, False to decline, or None to cancel. May be
                a coroutine function, as for `on_sampling`. Values that do not match the schema are not sent: the
                question is cancelled, and the cell shows the reason.

        Raises:
            ArgumentError: The argument is not a function.
            PolicyError: The running code is a model's.
        """
        from ipymcp.interaction.elicitation import checked_handler

        refuse_models("set mcp.on_elicitation")
        handler = None if function is None else checked_handler(function)
        self._warn_outdated("elicitation", self._host.client_handlers.set_handler("elicitation", handler))
        return function

    @checked(function=FUNCTION.or_none)
    def before_call(self, function: CallFunction | None) -> CallFunction | None:
        """Run a function before every call of a tool; usable as a decorator. None removes it.

            @mcp.before_call
            def no_writing(call):
                if call.tool.startswith("write"):
                    raise PermissionError("this notebook only reads")

        It is run for the calls of the user, models, apps, the panel and maps, but not for calls that it makes itself.
        The policy and your approval come after it, and apply to the changed arguments.

        Args:
            function: Takes a call (`.server`, `.tool`, `.arguments`, `.caller`, `.number`). It may change the
                arguments, or return others. If it raises a PermissionError, the call is refused; with any other
                exception it fails. In both cases the call is not made. May be a coroutine function, as for
                `on_sampling`; others run in a thread.

        Raises:
            ArgumentError: The argument is not a function.
            PolicyError: The running code is a model's.
        """
        refuse_models("set mcp.before_call")
        self._host.client_handlers.before_call = function
        return function

    @checked(function=FUNCTION.or_none)
    def after_call(self, function: CallFunction | None) -> CallFunction | None:
        """Run a function on every result of a tool before the caller gets it; usable as a decorator. None removes it.

            @mcp.after_call
            def note(call):
                print(call.tool, call.error or "done")

        Args:
            function: Takes a call as for `before_call`, with `.result` or `.error`. Its return value
                replaces them: a result, a string or JSON values; None changes nothing. An exception that it raises is
                raised by the call. It is not run for interrupted calls.

        Raises:
            ArgumentError: The argument is not a function.
            PolicyError: The running code is a model's.
        """
        refuse_models("set mcp.after_call")
        self._host.client_handlers.after_call = function
        return function

    @property
    def roots(self) -> list[dict[str, str]]:
        """The folders that servers may access: `mcp.roots = "data"`, `mcp.roots = ["data", Path("/tmp")]`.

        `mcp.roots += "more"` adds a folder. None resets them to the default: the folders in the server's command if it
        has any, else the notebook's folder.
        """
        return RootList(dict(root) for root in self._host.client_handlers.roots)

    @roots.setter
    def roots(self, roots: Roots | None) -> None:
        refuse_models("set mcp.roots")
        self._host.client_handlers.set_roots(roots)

    def _warn_outdated(self, capability: str, servers: list[str]) -> None:
        if servers:
            names = " ".join(map(quoted, servers))
            self._host.notices.add(
                f"{names} will use the new {capability} setting after a restart: %mcp restart {names}"
            )

    # -- blocking methods ---------------------------------------------------------------------------------------------

    @sync_and_async
    @checked(what=LOADABLE, wait=FLAG, trust=FLAG, locked=FLAG, lazy=FLAG, start_timeout=SECONDS.or_none, **ONE_SERVER)
    async def load(
        self,
        *what: str | os.PathLike[str] | Mapping[str, Any] | Sequence[str],
        wait: bool = True,
        trust: bool = False,
        locked: bool = False,
        lazy: bool = False,
        start_timeout: float | None = None,
        command: str | None = None,
        args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Servers:
        """Load servers: `"demo"`, `"uvx mcp-server-time"`, an address, a config file and names in it, or definitions.

            mcp.load("time -- uvx mcp-server-time")
            mcp.load("time", command="uvx", args=["mcp-server-time"])
            mcp.load({"time": {"command": "uvx", "args": ["mcp-server-time"]}})

        Without arguments, load every server of the discovered configuration that is not disabled. Servers of a
        project's file run after the user has seen and approved them. A server that is already loaded is restarted if
        its definition has changed.

        Args:
            what: Names, URLs (`https://…`), paths, commands, definitions, and what people paste: JSON of any host,
                `claude mcp add …`, the link of an install button (you are asked what it may run). A name after a path
                refers to a server of that file, else of the discovered configuration; a server that is already loaded
                is started.
            wait: Wait until each server is ready or has failed.
            trust: Run servers of a project's file without asking; their use of secrets still needs approval.
            locked: Refuse servers whose tools differ from `mcp.lock`.
            lazy: Start a server at its first call if its tools are known from an earlier run.
            start_timeout: Start timeout in seconds, instead of that of the definitions.
            command: The program of one server, whose name is given before it; by default a name made from the command.
            args: Its arguments.
            env: Its environment variables.
            cwd: Its working folder.
            url: The address of a remote server, instead of `command`.
            headers: HTTP headers of every request to it.

        Raises:
            ServerError: A server that was given by name did not start.
            ConfigError: A file or definition is invalid.
            PolicyError: `mcp.lock` does not have the server.
        """
        from ipymcp.security.pins import read_lock
        from ipymcp.setup.load_request import agree_to_links, gather, typed_definition

        defined = {"command": command, "args": args, "env": env, "cwd": cwd, "url": url, "headers": headers}
        if any(value is not None for value in defined.values()):
            what = (typed_definition(what, defined),)
        asked = await asyncio.to_thread(gather, what, self._host)
        if not trust:
            await agree_to_links(asked, self._host)
        for line in asked.notices:
            self._host.notices.add(line)
        definitions = [one.replace(lazy=lazy or one.lazy) for one in asked.definitions]
        originals: dict[str, ServerDefinition] = {}
        if start_timeout is not None:
            originals = {one.name: one for one in definitions if one.start_timeout != start_timeout}
            definitions = [one.replace(start_timeout=float(start_timeout)) for one in definitions]
        lock = read_lock(self._host.folder) if locked else None
        await self._host.load(definitions, wait=wait, trusted=trust, again=asked.again, lock=lock, originals=originals)
        for name in [one.name for one in definitions] if wait else ():
            session = self._host.sessions[name]
            if name in asked.named and not session.is_lazy:
                session.require()
            elif session.status.error is not None:
                self._host.notices.add(f"{name}: {session.status.error.message}")
        return self.servers

    @sync_and_async
    @checked(wait=FLAG)
    async def restore(self, *, wait: bool = True) -> Table:
        """Load the servers that this notebook used before its kernel was restarted, with its rules for tools.

            mcp.restore()

        Servers that were typed in a cell come back as well, with the tools that were disabled and the rules of
        `mcp.policy`. A project's server that you have not agreed to is asked about, as by `load`.

        Args:
            wait: Wait until each server is ready or has failed.

        Returns:
            A table of what was restored, and of what could not be, with the reason.

        Raises:
            McpError: It is not known which notebook this is.
            PolicyError: The running code is a model's.
        """
        from ipymcp.setup import restore

        found = await restore.plan(self._host)
        await restore.load(self._host, found, wait=wait)
        return restore.outcome(self._host, found)

    @sync_and_async
    @checked(words=TEXT, limit=COUNT)
    async def search(self, *words: str, limit: int = 30) -> Table:
        """Find servers in the MCP registry, or show the details of one, given its full name.

            mcp.search("sqlite", "database")

        Args:
            words: Words that all occur in the name, title or description; the longest has to be in the name.
            limit: The number of servers after which no further page is read.

        Raises:
            McpError: The registry cannot be reached, and no earlier answer is known.
        """
        from ipymcp.setup.registry_tables import search

        return await search(self._host, words, limit)

    @sync_and_async
    @checked(
        name=TEXT,
        keep=one_of("notebook", "me", "project"),
        alias=TEXT.or_none,
        version=TEXT.or_none,
        way=TEXT.or_none,
        inputs=MAPPING,
        replace=FLAG,
    )
    async def add(
        self,
        name: str,
        *,
        keep: Keep = "me",
        alias: str | None = None,
        version: str | None = None,
        way: str | None = None,
        inputs: Mapping[str, Any] = _NO_INPUTS,
        replace: bool = False,
    ) -> ServerTools:
        """Add a server of the MCP registry, or one of your own: start it, and if it starts, keep it.

            mcp.add("io.github.example/weather", keep="notebook")

        You are asked for the values that it requires, and whether its command may run. Secret values are kept in the
        secret store, and the definition refers to them.

        Args:
            name: The name in the registry, with its namespace, or the part after it; for a server of your own a command
                (`"time -- uvx mcp-server-time"`), a URL, or what people paste, as for `load`.
            keep: `notebook`: only load it; `me`: in your own file; `project`: in the project's `mcp.json`.
            alias: The name in the notebook; made from its name by default.
            version: A version; the latest by default.
            way: `npm`, `pypi`, `oci`, `nuget` or `remote`, if the server can be run in several ways; by default the
                first that works here.
            inputs: Values by the names that `mcp.search(name)` lists.
            replace: Whether to replace a server of the same name.

        Returns:
            The server's tools.

        Raises:
            ConfigError: The server cannot be run, or lacks a value.
            PolicyError: You did not agree.
            ServerError: It did not start; nothing is kept.
            UnknownName: There is no such server.
            McpError: The registry cannot be reached.
        """
        from ipymcp.config.pasted import is_link, read_pasted
        from ipymcp.setup.adding import RegistryChoice, add_from_registry, from_pasted
        from ipymcp.setup.addition import add

        def begun(addition: AnyAddition) -> None:
            for line in addition.notes:
                self._host.notices.add(line)

        if name.split()[1:] or "://" in name or is_link(name):
            group = await from_pasted(self._host, alias, read_pasted(name), keep, replaces=replace)
            begun(group)
            await add(group)
            return ServerTools(self._parts.factory, group.additions[0].name)
        choice = RegistryChoice(name, version, way, alias, inputs)
        addition = await add_from_registry(self._host, choice, keep, begun, replaces=replace)
        return ServerTools(self._parts.factory, addition.definition.name)

    @sync_and_async
    @checked()
    async def outdated(self) -> Table:
        """Compare the versions of servers that were added from the registry with the latest ones: `mcp.outdated()`."""
        from ipymcp.setup.registry_tables import outdated

        return await outdated(self._host)

    @sync_and_async
    @checked(names=TEXT)
    async def start(self, *names: str) -> None:
        """Start servers that were stopped or have failed.

            mcp.start("demo")

        Raises:
            ServerError: A server did not start.
        """
        for session in await self._host.start(names):
            session.require()

    @sync_and_async
    @checked(names=TEXT)
    async def stop(self, *names: str) -> None:
        """Stop servers; calls of their tools fail until they are started again.

        For example `mcp.stop("demo")`.
        """
        await self._host.stop(names)

    @sync_and_async
    @checked(names=TEXT)
    async def restart(self, *names: str) -> None:
        """Stop servers and start them again.

            mcp.restart("demo")

        Raises:
            ServerError: A server did not start.
        """
        for session in await self._host.restart(names):
            session.require()

    @sync_and_async
    @checked(names=TEXT)
    async def unload(self, *names: str) -> None:
        """Stop servers and remove them from the notebook: `mcp.unload("demo")`."""
        await self._host.unload(names)

    @sync_and_async
    @checked(patterns=TEXT)
    async def disable(self, *patterns: str) -> None:
        """Disable servers by name (they are stopped) or tools by pattern (`fs.write_*`).

            mcp.disable("demo.slow", "demo.fail*")

        Raises:
            UnknownName: A pattern matches no server and no known tool.
        """
        await self._host.relisted(patterns)
        for pattern, servers in [(pattern, self._parts.servers_of(pattern)) for pattern in patterns]:
            if servers:
                await self._host.stop(servers, State.DISABLED)
            else:
                self._host.guard.policy.filters.set(pattern, allowed=False)

    @sync_and_async
    @checked(patterns=TEXT)
    async def enable(self, *patterns: str) -> None:
        """Enable disabled servers, which are started, or disabled tools.

            mcp.enable("demo.slow")

        Raises:
            UnknownName: As for `disable`.
            ServerError: A server did not start.
            PolicyError: The running code is a model's.
        """
        refuse_models("enable servers or tools")
        await self._host.relisted(patterns)
        for pattern, servers in [(pattern, self._parts.servers_of(pattern)) for pattern in patterns]:
            if servers:
                for session in await self._host.start(servers):
                    session.require()
            else:
                self._host.guard.policy.filters.set(pattern, allowed=True)

    @checked(server=TEXT.or_none, count=COUNT.or_none, level=one_of(*LEVELS))
    def logs(self, server: str | None = None, count: int | None = 50, *, level: str = "debug") -> Table:
        """The last log lines of one server, or of all, oldest first.

            mcp.logs("demo", 20, level="warning").df

        Args:
            server: The server's name; None for all.
            count: The maximum number of lines; None for all stored ones (1,000 for each server).
            level: The lowest level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
        """
        if server is not None:
            return self.servers[server].logs(count, level=level)
        return log_table([*self._host.sessions.values()], count, level, title="MCP logs")

    @checked(server=TEXT.or_none)
    def panel(self, server: str | None = None) -> None:
        """Show the panel below the cell: servers, tools with forms, calls and logs.

            mcp.panel("demo")

        Args:
            server: The name of the only server to show.

        Raises:
            McpError: This is no notebook with the extension.
        """
        if self._parts.show_panel is None:
            raise McpError(
                "the panel is shown by IPython", hint="%load_ext ipymcp; print(mcp.servers) shows the states"
            )
        self._parts.show_panel(None if server is None else self.servers[server])

    @checked(path=PATH.or_none)
    def stubs(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write a stub file of the tools for editors and type checkers, and return its path.

            mcp.stubs("mcp_tools.pyi")

        Args:
            path: The file, relative to the notebook's folder; `mcp_tools.pyi` by default.

        Raises:
            ConfigError: The file cannot be written.
        """
        from ipymcp.api.stubs import write_stubs

        return write_stubs(self._parts.factory, self.tools.entries, path)

    @checked(word=TEXT.or_none)
    def help(self, word: str | None = None) -> None:
        """Print what the methods and attributes of `mcp` do, or all about one of them.

            mcp.help("load")

        Args:
            word: The name of a method or an attribute, such as `load`.

        Raises:
            UnknownName: There is no such name.
        """
        import inspect

        public = {name: value for name, value in inspect.getmembers(type(self)) if not name.startswith("_")}
        if word is not None and word not in public:
            raise UnknownName(f"mcp has no {word!r}", hint=nearest(word, public, limit=1) or "mcp.help() lists all")
        if word is not None:
            found = public[word] if isinstance(public[word], property) and word not in _METHODS else getattr(self, word)
            print(visible(inspect.getdoc(found) or ""))  # noqa: T201 - the answer
            return
        rows = [(f"mcp.{name}", (inspect.getdoc(value) or "").partition("\n")[0]) for name, value in public.items()]
        print(visible("\n".join(f"{name:<20}{text}" for name, text in rows)))  # noqa: T201 - the answer

    @checked(number=COUNT.or_none)
    def cancel(self, number: int | None = None) -> int:
        """Cancel a running call by its number, or all of them.

            mcp.cancel()     # all; mcp.calls lists the running ones

        Returns:
            The number of cancelled calls.
        """
        running = self._host.calls.running
        if number is not None and number not in running:
            raise UnknownName(f"no call {number} is running", hint=f"running: {', '.join(map(str, running)) or 'none'}")
        calls = [running[number]] if number is not None else self.calls
        return sum(call.cancel() for call in calls)

    def close(self) -> None:
        """Stop all servers: `mcp.close()`."""
        self._host.close()

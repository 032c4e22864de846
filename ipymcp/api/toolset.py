"""Live, ordered selections of tools, displayed as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from glob import escape
from typing import TYPE_CHECKING, Any, TypeGuard

from ipymcp.api.catalogs import argument_list, cached_catalogs, not_running
from ipymcp.api.sync_and_async import sync_and_async
from ipymcp.argument_checks import FLAG, TEXT, check_name, checked, missing_attribute
from ipymcp.errors import UnknownName
from ipymcp.llm.tool_selection import ToolSelection
from ipymcp.names import nearest
from ipymcp.protocol import types
from ipymcp.results.tables import Table, TableView
from ipymcp.security.rules import full_pattern, selects
from ipymcp.text import escaped, quoted, visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from ipymcp.api.tool import Tool, ToolFactory
    from ipymcp.llm.answer import ToolCallOutcome
    from ipymcp.llm.providers import Declaration, Dialect
    from ipymcp.llm.tool_calls import ToolCaller
    from ipymcp.llm.tool_definitions import FunctionTool, ProviderTools
    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host


class Toolset(TableView):
    """A live selection of tools by globs for `server.tool`.

    Calling it with patterns narrows the selection; the last match decides, `!` excludes. Disabled and denied tools are
    never selected, nor are tools of servers that are neither ready nor lazy. `+` adds selections and plain functions:
    `mcp.tools("fs.*") + [my_function]`.

    For a model: `.to_openai()` and similar methods declare the tools, `.run(response)` makes the requested calls.

    Args:
        factory: The factory of the tool objects.
        selection: The selected tools; by default all of the host's.
    """

    def __init__(self, factory: ToolFactory, selection: ToolSelection | None = None) -> None:
        self._host = factory.host
        self._factory = factory
        self._selection = selection or ToolSelection(factory, ((),), (), factory.for_models)

    @property
    def selection(self) -> ToolSelection:
        """The selection for the `llm` package."""
        return self._selection

    @checked("tools", patterns=TEXT)
    def __call__(self, *patterns: str) -> Toolset:
        """Select some of these tools by patterns."""
        if not patterns:
            return self
        self._host.relist(patterns)
        own = self._selection
        functions = tuple(one for one in (*own.functions, *self._notebook_tools(patterns)) if selects(patterns, one))
        return Toolset(self._factory, own.changed(tuple((*part, patterns) for part in own.patterns), functions))

    def _notebook_tools(self, patterns: tuple[str, ...]) -> tuple[FunctionTool, ...]:
        """The tools for the notebook's cells, which are only selected if a pattern names them."""
        is_named = any(full_pattern(one).startswith("notebook.") for one in patterns)
        if not is_named or self._selection.patterns != ((),) or "notebook" in self._host.sessions:
            return ()
        from ipymcp.llm.notebook_tools import notebook_tools

        return notebook_tools(self._host)

    def __add__(self, others: Toolset | Tool | Callable[..., Any] | Iterable[Tool | Callable[..., Any]]) -> Toolset:
        """Join with another selection, or with one or several tools or functions, without duplicates.

        Raises:
            ArgumentError: A model could not call one of the functions.
        """
        if isinstance(others, Toolset):
            parts, functions = others._selection.patterns, others._selection.functions
        else:
            from ipymcp.api.tool import Tool
            from ipymcp.llm.tool_definitions import FunctionTool

            given: list[Any] = [*others] if _is_several(others) else [others]
            tools = [one for one in given if isinstance(one, Tool)]
            parts = tuple(((f"{escape(one.server)}.{escape(one.name)}",),) for one in tools)
            functions = tuple(FunctionTool(one) for one in given if not isinstance(one, Tool))
        return Toolset(self._factory, self._selection.joined(parts, functions))

    __radd__ = __add__

    @property
    def entries(self) -> list[ToolEntry]:
        """The current catalog entries of the selected tools that you may call."""
        return self._selection.entries("user")

    @property
    def names(self) -> list[str]:
        """The names of the tools as `server.tool`, and of functions as `notebook.function`."""
        return [f"{entry.server}.{entry.name}" for entry in (*self.entries, *self._selection.functions)]

    @property
    def model_names(self) -> dict[str, str]:
        """The names for models, `{server__tool: server.tool}`, without tools whose definition has changed."""
        return self._selection.model_names()

    @property
    def schemas(self) -> ToolSchemas:
        """The tools as their servers describe them, by `server.tool`: texts, schemas and hints, displayed as JSON."""
        return tool_schemas(self.entries)

    def __iter__(self) -> Iterator[Tool | Callable[..., Any]]:
        yield from (self._factory.tool(entry) for entry in self.entries)
        yield from (one.function for one in self._selection.functions)

    def __len__(self) -> int:
        return len(self.entries) + len(self._selection.functions)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            self._host.relist([name])
        return name in self.names

    def __getitem__(self, name: str) -> Tool | Callable[..., Any]:
        """A tool by `server.tool`, or a function by `notebook.function`.

        Raises:
            UnknownName: The selection has no such tool. Also a `KeyError`.
        """
        check_name(name, "tool")
        self._host.relist([name])
        for entry in self.entries:
            if name in (f"{entry.server}.{entry.name}", f"{entry.server}.{entry.alias}"):
                return self._factory.tool(entry)
        for one in self._selection.functions:
            if name == f"{one.server}.{one.name}":
                return one.function
        raise UnknownName(f"no tool {name!r} is in this selection", hint=nearest(name, self.names) or None)

    if not TYPE_CHECKING:  # for type checkers a selection has no other attributes

        def __getattr__(self, name: str) -> Any:
            hint = ""
            if not name.startswith("_") and name in self._host.aliases().values():
                hint = f"mcp.{name} has its tools; mcp.tools('{name}.*') selects them"
            elif found := [each for each in self.entries if each.alias == name and not name.startswith("_")]:
                hint = f"use mcp.tools['{found[0].server}.{name}']"
            return missing_attribute(self, name, "a selection of tools", hint=hint)

    # -- for a model --------------------------------------------------------------------------------------------------

    @checked()
    def to_openai(self) -> ProviderTools:
        """The tools for OpenAI's Chat Completions API and compatible servers; `.lost` lists inexpressible parts.

        For example `mcp.tools("demo.*").to_openai()[0]["function"]["name"]`.
        """
        return self._declared("openai")

    @checked()
    def to_openai_responses(self) -> ProviderTools:
        """The tools for OpenAI's Responses API: `mcp.tools("demo.*").to_openai_responses()`."""
        return self._declared("openai_responses")

    @checked()
    def to_anthropic(self) -> ProviderTools:
        """The tools for Anthropic's Messages API: `mcp.tools("demo.*").to_anthropic()`."""
        return self._declared("anthropic")

    @checked()
    def to_gemini(self) -> ProviderTools:
        """The tools for Gemini: a list of one `Tool` with all functions.

        For example `mcp.tools("demo.*").to_gemini()`.
        """
        return self._declared("gemini")

    @checked()
    def to_bedrock(self) -> ProviderTools:
        """The tools for Amazon Bedrock's Converse API: `toolConfig={"tools": …}`.

        For example `{"tools": mcp.tools("demo.*").to_bedrock()}`.
        """
        return self._declared("bedrock")

    @checked(turn=TEXT.or_none)
    def to_pydantic_ai(self, *, turn: str | None = None) -> Any:
        """The tools as a pydantic-ai toolset: `Agent(…, toolsets=[…])`. It follows changes of the servers' tools.

            agent = Agent("openai:gpt-5", toolsets=[mcp.tools("demo.*").to_pydantic_ai()])

        Args:
            turn: The name of the answer, as for `run`; by default the whole toolset is one conversation.
        """
        from ipymcp.llm.integrations import pydantic_ai_toolset
        from ipymcp.llm.providers import profile_of
        from ipymcp.llm.tool_calls import CallOrigin, calling_model

        caller = self._caller(turn)

        def declared(model: Any) -> list[Declaration]:
            return self._selection.declarations(profile_of(model))

        def call(name: str, arguments: dict[str, Any], run: Any) -> Awaitable[ToolCallOutcome]:
            named = turn or f"{caller.turn}, run {run.run_id}"  # one answer of several requests to the model
            return caller.aio(name, arguments, CallOrigin(named, calling_model(run.model), (run.run_id, run.run_step)))

        return pydantic_ai_toolset(declared, call)

    @checked(turn=TEXT.or_none, images=FLAG)
    def to_langchain(self, *, turn: str | None = None, images: bool = False) -> list[Any]:
        """The tools for LangChain: `model.bind_tools(…)`, `create_agent(model, tools=…)`.

            agent = create_agent("openai:gpt-5", tools=mcp.tools("demo.*").to_langchain())

        Args:
            turn: The name of the answer, as for `run`; by default these tools are one conversation.
            images: Pass images of results to the model, which Anthropic, Gemini and OpenAI's Responses accept. By
                default placeholders are passed, because Chat Completions would refuse the whole request.
        """
        from ipymcp.llm.integrations import langchain_tools

        own = self._selection
        declared, called = own.declarations(is_kept=True), self._caller(turn).interruptible()
        return langchain_tools(declared, called, images=images, hints=own.hints())

    @checked(turn=TEXT.or_none)
    def to_llm(self, *, turn: str | None = None) -> list[Any]:
        """The tools for the `llm` library: `model.chain(prompt, tools=…)`.

            llm.get_model("gpt-5").chain("Which species is the heaviest?", tools=mcp.tools("demo.*").to_llm())

        Args:
            turn: The name of the answer, as for `to_langchain`.
        """
        from ipymcp.llm.integrations import llm_tools

        return llm_tools(self._selection.declarations(is_kept=True), self._caller(turn).interruptible())

    @checked(turn=TEXT.or_none)
    def to_chatlas(self, *, turn: str | None = None) -> list[Any]:
        """The tools for chatlas: `chat.set_tools(…)`.

            chat.set_tools(mcp.tools("demo.*").to_chatlas())

        Args:
            turn: The name of the answer, as for `to_langchain`.
        """
        from ipymcp.llm.integrations import chatlas_tools

        return chatlas_tools(self._selection.declarations(is_kept=True), self._caller(turn).interruptible())

    @checked(turn=TEXT.or_none, images=FLAG)
    def to_openai_agents(self, *, turn: str | None = None, images: bool = False) -> list[Any]:
        """The tools for the OpenAI Agents SDK: `Agent(…, tools=…)`.

            agent = Agent("assistant", tools=mcp.tools("demo.*").to_openai_agents())

        Args:
            turn: The name of the answer, as for `to_langchain`.
            images: As for `to_langchain`; the SDK's default model accepts images, its Chat Completions model does not.
        """
        from ipymcp.llm.integrations import openai_agents_tools

        return openai_agents_tools(self._selection.declarations(is_kept=True), self._caller(turn), images=images)

    @checked(turn=TEXT.or_none)
    def to_smolagents(self, *, turn: str | None = None) -> list[Any]:
        """The tools for smolagents: `ToolCallingAgent(tools=…)`, `CodeAgent(tools=…)`.

            agent = CodeAgent(mcp.tools("demo.*").to_smolagents(), model)

        Args:
            turn: The name of the answer, as for `to_langchain`.
        """
        from ipymcp.llm.integrations import smolagents_tools
        from ipymcp.llm.providers import INLINE

        return smolagents_tools(self._selection.declarations(INLINE, is_kept=True), self._caller(turn).interruptible())

    @checked(turn=TEXT.or_none)
    def to_llama_index(self, *, turn: str | None = None) -> list[Any]:
        """The tools for LlamaIndex: `FunctionAgent(tools=…)`, `ReActAgent(tools=…)`.

            agent = FunctionAgent(tools=mcp.tools("demo.*").to_llama_index(), llm=model)

        Args:
            turn: The name of the answer, as for `to_langchain`.
        """
        from ipymcp.llm.integrations import llama_index_tools

        return llama_index_tools(self._selection.declarations(is_kept=True), self._caller(turn).interruptible())

    @checked(turn=TEXT.or_none, coroutines=FLAG)
    def to_functions(self, *, turn: str | None = None, coroutines: bool = False) -> list[Callable[..., Any]]:
        """The tools as Python functions, for any library that takes functions: DSPy, magentic, Ollama, …

            echo, *others = mcp.tools("demo.echo", "demo.query").to_functions()
            echo("hi")

        They have a name, a docstring and a signature with types. They return the text for the model, also for a
        failure.

        Args:
            turn: The name of the answer, as for `to_langchain`.
            coroutines: Make coroutine functions.
        """
        from ipymcp.llm.integrations import plain_functions

        own = self._selection
        called = self._caller(turn).interruptible()
        return plain_functions(own.declarations(is_kept=True), called, own.signatures(), coroutines=coroutines)

    def _caller(self, turn: str | None) -> ToolCaller:
        from ipymcp.llm.tool_calls import ToolCaller
        from ipymcp.security.untrusted import Conversation

        conversation = self._factory.conversation(turn) if turn else Conversation()
        return ToolCaller(self._selection, conversation, turn or f"tools {self._host.calls.next_number()}")

    def _declared(self, dialect: Dialect) -> ProviderTools:
        from ipymcp.llm.providers import PROVIDERS
        from ipymcp.llm.tool_definitions import ProviderTools

        return ProviderTools(self._selection.declarations(PROVIDERS[dialect].profile), dialect)

    @checked()
    def describe(self) -> Table:
        """The estimated tokens of the tool declarations in each request, by server, at four characters per token.

        For example `mcp.tools.describe().df`.
        """
        from ipymcp.llm.tool_definitions import token_table

        return token_table(self._selection.declarations())

    @sync_and_async
    @checked(turn=TEXT.or_none)
    async def run(self, response: object, *, turn: str | None = None) -> list[dict[str, Any]]:
        """Make the calls that a model requested. Errors of calls are returned to the model.

            calls = [{"id": "1", "type": "function", "function": {"name": "demo__echo", "arguments": '{"text": "hi"}'}}]
            messages = mcp.tools("demo.*").run(calls)     # calls: what an OpenAI model returned

        Calls to different servers run concurrently. Calls to one server run in order unless they only read or the
        server's `concurrency` allows more. The policy decides which calls you are asked to approve.

        Args:
            response: The provider's response, one of its messages, or a list of its tool calls.
            turn: The name of the answer if it takes several responses, so that one approval can cover all of them. Each
                name is also a separate conversation; responses without a name belong to one conversation per selection.
                Once a model has read untrusted content, its calls in that conversation need more approvals.

        Returns:
            The messages to add to the conversation after the model's own; empty if it requested no calls.

        Raises:
            ArgumentError: The value is not a model's response.
        """
        from ipymcp.llm.providers import PROVIDERS, messages, model_of, read_response
        from ipymcp.llm.tool_calls import ToolCallRunner
        from ipymcp.security.untrusted import CallingModel

        dialect, calls = read_response(response)
        own = self._selection
        conversation = self._factory.conversation(turn or (own.patterns, tuple(one.name for one in own.functions)))
        conversation.given()  # the request for this response had all earlier results
        named = turn or f"run {self._host.calls.next_number()}"
        model = CallingModel(model_of(response), PROVIDERS[dialect].name)
        runner = ToolCallRunner(own, named, conversation, PROVIDERS[dialect].profile, model)
        return messages(dialect, await runner.run_all(calls))

    # -- display ------------------------------------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        """A table with a row per tool."""
        sessions = self._host.sessions.values()
        for session in sessions:
            session.expire_tools()
        patterns = [pattern for part in self._selection.patterns for selection in part for pattern in selection]
        named = {pattern.partition(".")[0] for pattern in patterns}
        unavailable = [
            not_running(session, anything=False)
            for session in sessions
            if session.state.record.is_moving
            or (session.name in named and session.client is None and not session.is_lazy)
        ]
        callable_entries = self.entries
        hidden = hidden_note(len(self._selection.selected()) - len(callable_entries))
        entries = [one for one in callable_entries if not one.is_for_apps_only]
        for_apps = f"{count} for apps only" if (count := len(callable_entries) - len(entries)) else ""
        empty = [] if len(self) or hidden else [self._empty_note(named)]
        functions = (
            [f"and {', '.join(f'{one.name}()' for one in self._selection.functions)}"]
            if self._selection.functions
            else []
        )
        note = " · ".join(filter(None, [*empty, *functions, for_apps, hidden, *unavailable]))
        return tool_table(entries, self._factory, title="MCP tools", note=note)

    def _empty_note(self, named: set[str]) -> str:
        missing = sorted(named.difference(self._host.sessions))
        if missing and (unloaded := [name for name in missing if name in self._host.discovery.peek().servers]):
            return f"{unloaded[0]} is configured but not loaded yet: %mcp load {quoted(unloaded[0])}"
        known = self._host.aliases().values()
        if self._host.sessions and (unknown := [name for name in missing if name.isidentifier() and name not in known]):
            return f"there is no server {unknown[0]!r}; {self._host.missing_hint(unknown[0])}"
        return "no tools here" + ("" if self._host.sessions else ": %mcp load demo")


def require_matches(host: Host, tools: Toolset, patterns: Iterable[str]) -> None:
    """Check patterns that choose tools for a model.

    Args:
        host: The host of the tools.
        tools: All tools.
        patterns: The patterns; those that begin with `!` may match nothing.

    Raises:
        UnknownName: A pattern matches no tool.
    """
    for pattern in patterns:
        found = () if pattern.startswith("!") else tools(pattern)
        if isinstance(found, tuple) or len(found) or found.selection.selected():
            continue
        server, message = pattern.partition(".")[0], f"no tool matches {pattern!r}"
        if server in (*host.sessions, *host.aliases().values()):
            hint = nearest(pattern, tools.names, limit=1) or f"%mcp tools {quoted(server)} lists what it has"
            raise UnknownName(message, hint=hint)
        if server.isidentifier():
            message += f": there is no server {server!r}"
        raise UnknownName(message, hint=host.missing_hint(server))


def _is_several(value: Any) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | type)


def hidden_note(count: int) -> str:
    """A note about tools that are hidden because they may not be called."""
    return f"{count} not shown: %mcp policy shows why" if count else ""


def tool_table(entries: Iterable[ToolEntry], factory: ToolFactory, *, title: str, note: str) -> Table:
    """A table of tools, with a column for exact names if some differ from the identifiers."""
    listed = list(entries)
    columns = ["tool", "arguments", "description"]
    rows = [
        [f"{entry.server}.{entry.alias}", argument_list(factory.schema(entry).parameters), entry.first_line]
        for entry in listed
    ]
    if any(entry.alias != entry.name for entry in listed):
        columns.insert(1, "own name")
        for row, entry in zip(rows, listed, strict=True):
            row.insert(1, "" if entry.alias == entry.name else entry.name)
    return Table(columns, rows, title=title, note=note)


class ToolSchemas(dict[str, dict[str, Any]]):
    """Definitions of tools by `server.tool`, displayed as JSON."""

    def __repr__(self) -> str:
        return visible(json.dumps(self, indent=2, ensure_ascii=False)) if self else "no tools here"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": f"<pre>{escaped(repr(self))}</pre>"}


def tool_schemas(entries: Iterable[ToolEntry]) -> ToolSchemas:
    """The definitions of tools as their servers sent them, without what is absent or only for views and programs."""
    return ToolSchemas({f"{entry.server}.{entry.alias}": _sent(entry.definition) for entry in entries})


def _sent(definition: ToolDefinition) -> dict[str, Any]:
    texts = {"title": definition.title, "description": definition.description}
    raw = {name: getattr(definition, name) for name in ("inputSchema", "outputSchema", "annotations")}
    objects = {name: types.loads(value) for name, value in raw.items() if len(value)}
    return {name: value for name, value in texts.items() if value} | objects


def cached_tools(factory: ToolFactory, patterns: Sequence[str]) -> Table | None:
    """The cached tools of stopped servers that patterns over `server.tool` select; None if there are none."""
    entries, notes = _cached_entries(factory, patterns)
    return tool_table(entries, factory, title="MCP tools", note=" · ".join(notes)) if entries else None


def cached_schemas(factory: ToolFactory, patterns: Sequence[str]) -> ToolSchemas | None:
    """Like `cached_tools`, but the definitions of the tools."""
    entries, _ = _cached_entries(factory, patterns)
    return tool_schemas(entries) if entries else None


def _cached_entries(factory: ToolFactory, patterns: Sequence[str]) -> tuple[list[ToolEntry], list[str]]:
    catalogs, notes = cached_catalogs(factory.host, patterns, "tools")
    entries = [entry for catalog in catalogs.values() for entry in catalog.for_people() if selects(patterns, entry)]
    return entries, notes

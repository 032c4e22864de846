"""A selection of tools and functions as a model uses it: found by name, declared, and called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ipymcp.errors import UnknownName
from ipymcp.names import model_name, nearest
from ipymcp.security.rules import selects

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from inspect import Signature

    from ipymcp.interaction.questions import Caller
    from ipymcp.llm.functions import FunctionTool
    from ipymcp.llm.providers import Declaration, Profile
    from ipymcp.llm.tool_definitions import Declarer
    from ipymcp.results.stored_results import KeptResults
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call, CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.rules import ToolRef
    from ipymcp.security.untrusted import Conversation

Patterns = tuple[tuple[tuple[str, ...], ...], ...]
"""The parts that are joined: for each, the patterns that it was narrowed by, step by step."""


class ToolMaker(Protocol):
    """Makes the tools of one host, and keeps what their calls share."""

    host: Host
    results: KeptResults
    """Long results, of which a model was given a part."""

    @property
    def declarer(self) -> Declarer:
        """Declares tools to providers."""
        ...

    def conversation(self, key: Hashable) -> Conversation:
        """The conversation with a model in the user's own loop, by its name or its selection."""
        ...

    def signature(self, entry: ToolEntry) -> Signature:
        """The Python signature of a tool."""
        ...

    def prepare(self, entry: ToolEntry, options: CallOptions, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        """A call that is ready to be sent.

        Raises:
            ArgumentError: The arguments do not fit.
        """
        ...


class ToolSelection:
    """The tools that patterns over `server.tool` select, as they are whenever they are asked for.

    Args:
        maker: Makes the tools.
        patterns: The patterns of each part.
        functions: The notebook's functions in the selection.
        handles: The numbers of the results that a model with these tools may read on in.
    """

    def __init__(
        self, maker: ToolMaker, patterns: Patterns, functions: tuple[FunctionTool, ...], handles: set[int]
    ) -> None:
        self.maker = maker
        self.patterns = patterns
        self.functions = functions
        self.handles = handles
        self._host = maker.host

    def changed(self, patterns: Patterns, functions: tuple[FunctionTool, ...]) -> ToolSelection:
        """The same with other patterns and functions."""
        return ToolSelection(self.maker, patterns, functions, self.handles)

    def joined(self, patterns: Patterns, functions: Iterable[FunctionTool]) -> ToolSelection:
        """The same with more patterns and functions, each function once."""
        known = {one.name: one for one in (*self.functions, *functions)}
        return self.changed((*self.patterns, *patterns), tuple(known.values()))

    def only(self, function: FunctionTool) -> ToolSelection:
        """One function in place of all tools."""
        return self.changed(((("!*",),),), (function,))

    def for_conversation(self, handles: set[int]) -> ToolSelection:
        """The same tools for a model that may read on in no results but its own."""
        return ToolSelection(self.maker, self.patterns, self.functions, handles)

    def sessions(self) -> list[ServerSession]:
        """The servers that have tools now."""
        return [one for one in self._host.sessions.values() if one.client is not None or one.is_lazy]

    def selects(self, tool: ToolRef) -> bool:
        """Whether the patterns select a tool."""
        return any(all(selects(one, tool) for one in part) for part in self.patterns)

    def selected(self) -> list[tuple[ServerSession, ToolEntry]]:
        """The selected tools, those that policy hides included."""
        self._host.refresh_changed()
        return [
            (session, entry)
            for session in self.sessions()
            for entry in session.catalog.tools.values()
            if self.selects(entry)
        ]

    def entries(self, caller: Caller) -> list[ToolEntry]:
        """The selected tools that this caller may call."""
        return [entry for session, entry in self.selected() if not self._host.is_denied(session, entry, caller)]

    def model_names(self) -> dict[str, str]:
        """The model's name of each tool and function that it may see: `{server__tool: server.tool}`."""
        named = {model_name(one.server, one.name): f"{one.server}.{one.name}" for one in self.entries("model")}
        return named | {one.name: f"{one.server}.{one.name}" for one in self.functions}

    def declarations(self, *profile: Profile, is_kept: bool = False) -> list[Declaration]:
        """The selection declared to a model.

        Args:
            profile: The provider's limits; none of them by default.
            is_kept: Whether the caller keeps the list: it then has the function that reads on in long results from
                the start.
        """
        from ipymcp.llm.tool_definitions import declared_function

        functions = [declared_function(one, *profile) for one in self._functions_for_model(is_kept=is_kept)]
        taken = {one.name for one in functions}
        tools = [self.maker.declarer.declared(entry, *profile) for entry in self.entries("model")]
        return [*(one for one in tools if one.name not in taken), *functions]

    def readers(self) -> list[FunctionTool]:
        """The function that reads on in long results, once there are any."""
        return [self._reader()] if self._readable() else []

    def keep(self, number: int, value: Any, size: int) -> None:
        """Keep a result of which a model is given a part, and let the model read on in it; from any thread."""
        self.maker.results.keep(number, value, size)
        self.handles.add(number)

    def find(self, name: str) -> tuple[ServerSession, ToolEntry] | FunctionTool:
        """The tool or function that a model calls by this name. Its server may be starting.

        Raises:
            UnknownName: There is none, or the model may not see it.
            ServerError: It is a tool of a server that does not run.
        """
        if not name:
            raise UnknownName("the call names no tool")
        for function in self._functions_for_model():
            if function.name == name:
                return function
        here = self.sessions()
        found = self._find_tool(name, here)
        if found is None:
            self._host.refresh_changed()
            found = self._find_tool(name, here)
        if found is None:
            found = self._find_tool(name, [one for one in self._host.sessions.values() if one not in here])
            if found is not None and not found[0].is_moving:
                found[0].require()
        if found is not None:
            return found
        raise UnknownName(f"there is no tool {name!r}", hint=nearest(name, self.model_names()) or None)

    def _find_tool(self, name: str, sessions: Iterable[ServerSession]) -> tuple[ServerSession, ToolEntry] | None:
        # At once where the name is nothing but server and tool, else by looking at all of them.
        found = [
            (session, entry)
            for session in sessions
            for entry in (session.catalog.tools.get(name.removeprefix(f"{session.name}__")),)
            if entry is not None and model_name(session.name, entry.name) == name
        ] or [
            (session, entry)
            for session in sessions
            for entry in session.catalog.tools.values()
            if model_name(entry.server, entry.name) == name
        ]
        return next((one for one in found if self.selects(one[1]) and not self._host.is_denied(*one, "model")), None)

    def _functions_for_model(self, *, is_kept: bool = False) -> list[FunctionTool]:
        readers = [self._reader()] if is_kept else self.readers()
        return list({one.name: one for one in (*self.functions, *readers)}.values())

    def _readable(self) -> list[int]:
        return [one for one in self.maker.results if one in self.handles]

    def _reader(self) -> FunctionTool:
        from ipymcp.llm.functions import FunctionTool
        from ipymcp.llm.result_text import ResultReader

        return FunctionTool(ResultReader(self.maker.results, self._readable()).read_result)

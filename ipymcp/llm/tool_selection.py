"""The tools and functions that a model may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ipymcp.errors import UnknownName
from ipymcp.names import model_name, nearest
from ipymcp.schema.annotations import printable
from ipymcp.security.rules import hints, selects

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping
    from inspect import Signature

    from ipymcp.interaction.questions import Caller
    from ipymcp.llm.providers import Declaration, Profile
    from ipymcp.llm.tool_definitions import DeclarationCache, FunctionTool
    from ipymcp.results.tool_result import StoredResults, ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.rules import ToolRef
    from ipymcp.security.untrusted import Conversation

Patterns = tuple[tuple[tuple[str, ...], ...], ...]
"""For each part of a joined selection, the patterns of each narrowing step."""


class ToolMaker(Protocol):
    """The tools of one host, and the state that their calls share."""

    host: Host
    results: StoredResults
    """Long results of which a model received only a preview."""

    @property
    def declaration_cache(self) -> DeclarationCache:
        """The cache of declarations."""
        ...

    def conversation(self, key: Hashable) -> Conversation:
        """The conversation of a request loop outside `mcp.ask`, identified by its name or its selection of tools."""
        ...

    def signature(self, entry: ToolEntry) -> Signature:
        """The Python signature of a tool."""
        ...

    def prepare(self, entry: ToolEntry, options: CallOptions, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        """Validate arguments, and return a call that is ready to be sent.

        Raises:
            ArgumentError: The arguments are invalid.
        """
        ...


class ToolSelection:
    """The current tools that patterns over `server.tool` select.

    Args:
        maker: The source of the tools.
        patterns: The patterns of each part.
        functions: The notebook's functions in the selection.
        handles: The numbers of the long results that the model may read.
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
        """A selection with other patterns and functions."""
        return ToolSelection(self.maker, patterns, functions, self.handles)

    def joined(self, patterns: Patterns, functions: Iterable[FunctionTool]) -> ToolSelection:
        """A selection with additional patterns and functions, without duplicate functions."""
        known = {one.name: one for one in (*self.functions, *functions)}
        return self.changed((*self.patterns, *patterns), tuple(known.values()))

    def only(self, function: FunctionTool) -> ToolSelection:
        """A selection of a single function and no tools."""
        return self.changed(((("!*",),),), (function,))

    def for_conversation(self, handles: set[int]) -> ToolSelection:
        """The same tools for a model that may read only these long results."""
        return ToolSelection(self.maker, self.patterns, self.functions, handles)

    def sessions(self) -> list[ServerSession]:
        """The servers with known tools."""
        return [one for one in self._host.sessions.values() if one.client is not None or one.is_lazy]

    def selects(self, tool: ToolRef) -> bool:
        """Whether the patterns select a tool."""
        return any(all(selects(one, tool) for one in part) for part in self.patterns)

    def selected(self) -> list[tuple[ServerSession, ToolEntry]]:
        """The selected tools, including those that the policy hides."""
        self._host.refresh_changed()
        return [
            (session, entry)
            for session in self.sessions()
            for entry in session.catalog.tools.values()
            if self.selects(entry)
        ]

    def entries(self, caller: Caller) -> list[ToolEntry]:
        """The selected tools that this caller may call."""
        return [entry for session, entry in self.selected() if not self._host.guard.is_denied(session, entry, caller)]

    def model_names(self) -> dict[str, str]:
        """The visible tools and functions by their names for the model: `{server__tool: server.tool}`."""
        named = {model_name(one.server, one.name): f"{one.server}.{one.name}" for one in self.entries("model")}
        return named | {one.name: f"{one.server}.{one.name}" for one in self.functions}

    def declarations(self, *profile: Profile, is_kept: bool = False) -> list[Declaration]:
        """The selection declared to a model.

        Args:
            profile: The provider's limits; by default the narrowest ones.
            is_kept: Whether the caller keeps the list. It then always includes the reader of long results.
        """
        from ipymcp.llm.tool_definitions import declare_function

        functions = [declare_function(one, *profile) for one in self._functions_for_model(is_kept=is_kept)]
        taken = {one.name for one in functions}
        tools = [self.maker.declaration_cache.declared(entry, *profile) for entry in self.entries("model")]
        return [*(one for one in tools if one.name not in taken), *functions]

    def hints(self) -> dict[str, dict[str, Any]]:
        """The annotations of the selected tools by their names for the model."""
        return {
            model_name(entry.server, entry.name): hints(entry, session.rights) for session, entry in self.selected()
        }

    def signatures(self) -> dict[str, Signature]:
        """The Python signatures of the visible tools and functions by their names for the model."""
        named = {model_name(one.server, one.name): self.maker.signature(one) for one in self.entries("model")}
        return named | {one.name: one.signature for one in self._functions_for_model(is_kept=True)}

    def server_texts(self) -> dict[str, tuple[str, str]]:
        """The titles and instructions of the running servers."""
        clients = {one.name: one.client for one in self.sessions() if one.client is not None}
        return {
            name: (str(client.server_info.get("title") or client.server_info.get("name") or ""),
                   client.instructions or "")
            for name, client in clients.items()
        }  # fmt: skip

    def instructions(self) -> dict[str, str]:
        """The instructions of the running servers of selected tools, unless the servers' definitions disable them."""
        servers = {entry.server for entry in self.entries("model")}
        sessions = [one for one in self.sessions() if one.name in servers and one.definition.instructions]
        texts = {one.name: printable(self._host.guard.instructions_of(one)).strip() for one in sessions}
        return {name: text for name, text in texts.items() if text}

    def readers(self, *, is_kept: bool = False) -> list[FunctionTool]:
        """The reader of long results, if there are any or the caller keeps the list."""
        return [self._reader()] if is_kept or self._readable() else []

    def keep(self, number: int, value: Any, size: int) -> None:
        """Store a long result that the model may read. Thread-safe."""
        self.maker.results.keep(number, value, size)
        self.handles.add(number)

    def find(self, name: str) -> tuple[ServerSession, ToolEntry] | FunctionTool:
        """Find a tool or function by its name for the model. The tool's server may be starting.

        Raises:
            UnknownName: There is no such tool, or the policy hides it.
            ServerError: The tool's server is not running.
        """
        if not name:
            raise UnknownName("the call names no tool")
        for function in self._functions_for_model(is_kept=True):
            if function.name == name:
                return function
        known = self.sessions()
        found = self._find_tool(name, known)
        if found is None:
            self._host.refresh_changed()
            found = self._find_tool(name, known)
        if found is None:
            found = self._find_tool(name, [one for one in self._host.sessions.values() if one not in known])
            if found is not None and not found[0].status.is_moving:
                found[0].require()
        if found is not None:
            return found
        raise UnknownName(f"there is no tool {name!r}", hint=nearest(name, self.model_names()) or None)

    def _find_tool(self, name: str, sessions: Iterable[ServerSession]) -> tuple[ServerSession, ToolEntry] | None:
        # Fast path for names that are exactly server and tool; else compare all of them.
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
        return next(
            (one for one in found if self.selects(one[1]) and not self._host.guard.is_denied(*one, "model")), None
        )

    def _functions_for_model(self, *, is_kept: bool = False) -> list[FunctionTool]:
        readers = self.readers(is_kept=is_kept)
        return list({one.name: one for one in (*self.functions, *readers)}.values())

    def _readable(self) -> list[int]:
        return [one for one in self.maker.results if one in self.handles]

    def _reader(self) -> FunctionTool:
        from ipymcp.llm.result_text import ResultReader
        from ipymcp.llm.tool_definitions import FunctionTool

        return FunctionTool(ResultReader(self.maker.results, self._readable()).read_result)

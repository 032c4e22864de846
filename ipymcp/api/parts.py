"""The parts behind `mcp`, for the rest of the package: the attributes of `mcp` itself are the names of servers."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ipymcp.api.servers import UnloadedServerTools
from ipymcp.api.tool import ToolFactory
from ipymcp.api.toolset import Toolset, require_matches
from ipymcp.argument_checks import TEXT, Kind
from ipymcp.errors import UnknownName
from ipymcp.names import NAMESPACE, SEPARATORS, nearest
from ipymcp.security.rules import is_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.api.servers import Server
    from ipymcp.interaction.questions import UserInterface
    from ipymcp.llm.chat import ModelChat
    from ipymcp.llm.recording import Replay
    from ipymcp.llm.sampling import Sampler
    from ipymcp.runtime.client_handlers import SamplingRequest
    from ipymcp.runtime.host import Host


_MAX_SERVERS = 10
"""Maximum number of names of servers that the beginning of a path is compared to."""
_TOOLS = TEXT | Kind("a selection, or a list of patterns and functions", lambda value: isinstance(value, Iterable))


class McpParts:
    """The host of a notebook, the factory of its tools, and its chat with models.

    Args:
        host: The host.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.factory = ToolFactory(host)
        self.show_panel: Callable[[Server | None], None] | None = None
        """Shows the panel below the cell, or the card of one server."""
        self._model: Any = None
        self._budget = 0
        self._replay: Replay = "off"
        host.questions.terminal = _terminal_prompts

    # -- models -------------------------------------------------------------------------------------------------------

    @cached_property
    def chat(self) -> ModelChat:
        """The chat with models behind `mcp.ask`."""
        from ipymcp.api.apps import apps_of
        from ipymcp.llm.chat import ModelChat

        apps = apps_of(self.host)
        return ModelChat(self.host, lambda: self._model, lambda: self._replay, apps.states, apps.begin)

    def set_model(self, model: Any, budget: int, replay: Replay) -> list[str]:
        """Set the default model, which also answers sampling requests unless the user set a function for them.

        Args:
            model: The model, or None.
            budget: Sampling token budget per server.
            replay: Whether answers are replayed from the recording beside the notebook, as for `mcp.ask`.

        Returns:
            The running servers that can use the model only after a restart.
        """
        self._model, self._budget, self._replay = model, budget, replay
        handlers, handler = self.host.client_handlers, self._sample if model is not None else None
        if handlers.sampling in (None, self._sample) and handlers.sampling != handler:
            return handlers.set_handler("sampling", handler, tools=True)
        return []

    async def _sample(self, request: SamplingRequest) -> dict[str, Any] | None:
        return await self._sampler.answer(request)

    @cached_property
    def _sampler(self) -> Sampler:
        from ipymcp.llm.sampling import Sampler

        return Sampler(self.host, self.chat, lambda: self._budget)

    def selection(self, tools: Toolset | str | Iterable[str | Callable[..., Any]] | None) -> Toolset:
        """The tools that a user has given to a model; all if None."""
        every = Toolset(self.factory)
        if tools is None or isinstance(tools, Toolset):
            return every if tools is None else tools
        _TOOLS.check("ask()", "tools", tools, hint='such as mcp.tools("fs.*"), or ["fs.*", my_function]')
        listed = [tools] if isinstance(tools, str) else list(tools)
        patterns = [item for item in listed if isinstance(item, str)]
        require_matches(self.host, every, patterns)
        chosen = every(*patterns) if patterns else every("!*")
        return chosen + [item for item in listed if not isinstance(item, str)]

    # -- servers by name or pattern -----------------------------------------------------------------------------------

    def unloaded(self, name: str) -> UnloadedServerTools | None:
        """A configured server that starts at its first use; None for any other."""
        definition = self.host.find_startable(name)
        return None if definition is None else UnloadedServerTools(self.factory, definition)

    def load_for_use(self, path: str) -> None:
        """Load the configured server that a path, as `Host.resolve` takes it, begins with, if it is not loaded."""
        paths = {path, NAMESPACE.sub("", path, count=1)}
        beginnings = {text[:at] for text in paths for at in range(len(text)) if text.startswith(SEPARATORS, at)} | paths
        servers = sorted(beginnings, key=len, reverse=True)[:_MAX_SERVERS]
        if any(name in self.host.sessions or name in self.host.aliases().values() for name in servers):
            return
        for name in servers:
            definition = self.host.find_startable(name)
            if definition is not None:
                self.host.used(definition.name)
                return

    def servers_of(self, pattern: str) -> list[str]:
        """The servers that a pattern matches; empty if it matches tools.

        Raises:
            UnknownName: It matches no server and no known tool.
        """
        sessions, aliases = self.host.sessions, self.host.aliases()
        servers = [name for name, alias in aliases.items() if pattern in (name, alias)]
        if servers or "." not in pattern:
            servers = servers or [name for name in sessions if fnmatchcase(name, pattern)]
            return servers or [self.host.find(pattern).name]
        server = pattern.partition(".")[0]
        if server.isidentifier() and server not in (*sessions, *aliases.values()):
            raise UnknownName(f"no tool matches {pattern!r}", hint=self.host.missing_hint(server))
        entries = [entry for session in sessions.values() for entry in session.catalog.tools.values()]
        has_rule = pattern in dict(self.host.guard.policy.filters.rules)
        if not has_rule and not any(is_named(entry, pattern) for entry in entries):
            hint = nearest(pattern, [f"{entry.server}.{entry.alias}" for entry in entries], limit=1)
            raise UnknownName(f"no tool matches {pattern!r}", hint=hint or "%mcp tools lists them")
        return []


def _terminal_prompts() -> UserInterface:
    """Import the prompts when the first question is asked, which never happens in most programs."""
    from ipymcp.interaction.terminal import TerminalPrompts

    return TerminalPrompts()


_get_parts = attrgetter("_parts")


def parts_of(mcp: object) -> McpParts:
    """The parts behind `mcp`."""
    return _get_parts(mcp)

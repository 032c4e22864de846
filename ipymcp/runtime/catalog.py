"""All tools of one server as they are now known: an immutable snapshot, looked up by both names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ipymcp.runtime.names import RESERVED_SERVER, aliases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ipymcp.protocol.wire import ToolDefinition

__all__ = ["EMPTY", "Catalog", "ToolEntry", "build"]


class ToolEntry(Struct, frozen=True, gc=False):
    """One tool: the server's definition and the name a user types."""

    server: str
    alias: str
    definition: ToolDefinition

    @property
    def name(self) -> str:
        """The server's own name for it."""
        return self.definition.name

    @property
    def first_line(self) -> str:
        """The first line of its description, for listings."""
        text = (self.definition.description or self.definition.title or "").strip()
        return text.split("\n", 1)[0]


class Catalog(Struct, frozen=True):
    """The tools of one server.

    Attributes:
        tools: By exact name, in the server's order.
        aliases: By what a user types.
    """

    tools: Mapping[str, ToolEntry]
    aliases: Mapping[str, ToolEntry]

    def find(self, name: str) -> ToolEntry | None:
        """By exact name, else by alias."""
        return self.tools.get(name) or self.aliases.get(name)


EMPTY = Catalog({}, {})


def build(server: str, definitions: Iterable[ToolDefinition], noise: Callable[[str], None]) -> Catalog:
    """A catalog of these definitions. Of two tools of one name the first is kept, and `noise` is told."""
    first: dict[str, ToolDefinition] = {}
    for definition in definitions:
        if definition.name in first:
            noise(f"two tools are named {definition.name!r}; the first is used")
        else:
            first[definition.name] = definition
    typed = aliases(first, RESERVED_SERVER)
    tools = {name: ToolEntry(server, typed[name], definition) for name, definition in first.items()}
    return Catalog(tools, {entry.alias: entry for entry in tools.values()})

"""Many tools: instead of the schema of each, a model is given a search over them and a way to call what it found."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ipymcp.protocol import wire
from ipymcp.tools.models.declaring import Declaration, declared_function
from ipymcp.tools.models.functions import HERE, FunctionTool
from ipymcp.tools.models.reading import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["BUDGET", "CALL", "Discover", "ToolFinder"]

Discover: TypeAlias = Literal["auto", "always", "never"]
BUDGET: Final = 20_000
"""Tokens of declarations above which `auto` has a model search."""
CALL: Final = "call_tool"
"""What a model calls to call what it found; its call is made instead."""
_CALL_TOOL: Final = Declaration(
    CALL,
    HERE,
    CALL,
    f"[{HERE}] Call a tool that search_tools gave.",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Its name, as it was given."},
            "arguments": {"type": "object", "description": "What its parameters ask for."},
        },
        "required": ["name", "arguments"],
        "additionalProperties": False,
    },
)
_WORD: Final = re.compile(r"[^\W_]+")
_NAMED: Final = 4.0
"""How much more a word in a tool's name says than one in its description."""
_MOST: Final = 20
_ROOM: Final = LONGEST * 3 // 4
"""Characters for what is found, so that it need not be read in pages."""


class ToolFinder:
    """Finds tools for a model.

    Args:
        declared: Gives the tools, read anew at each search.
    """

    def __init__(self, declared: Callable[[], Sequence[Declaration]]) -> None:
        self._declared = declared

    def declarations(self, beside: Iterable[FunctionTool] = ()) -> list[Declaration]:
        """What the model is given instead, beside some functions."""
        return [declared_function(FunctionTool(self.search_tools)), _CALL_TOOL, *map(declared_function, beside)]

    def search_tools(self, query: str, limit: int = 8) -> list[dict[str, Any]] | str:
        """Find tools by words of what they should do. Gives their names, descriptions and parameters.

        Args:
            query: A few words, such as "read file" or "create github issue".
            limit: How many to give at most.
        """
        tools = self._declared()
        words = {one.name: (set(_words(one.name)), set(_words(one.description))) for one in tools}
        asked = set(_words(query))
        weights = {word: math.log(1 + len(tools) / (1 + _count(word, words.values()))) for word in asked}
        scores = {
            one.name: sum(weights[word] * (_NAMED * (word in words[one.name][0]) + (word in words[one.name][1]))
                          for word in asked)
            for one in tools
        }  # fmt: skip
        found = sorted((one for one in tools if scores[one.name] > 0), key=lambda one: -scores[one.name])
        if not found:
            servers = ", ".join(dict.fromkeys(one.server for one in tools)) or "nobody"
            return f"Nothing is found by these words. There are tools of {servers}."
        return _fitting(found[: min(max(limit, 1), _MOST)])


def _fitting(found: Sequence[Declaration]) -> list[dict[str, Any]]:
    """What is told of each, without the parameters of those for which there is no room any more."""
    told: list[dict[str, Any]] = []
    room = _ROOM
    for one in found:
        room -= len(one.description) + len(wire.encode(one.parameters))
        parameters = one.parameters if room >= 0 or not told else "search for its name to be told of them"
        told.append({"name": one.name, "description": one.description, "parameters": parameters})
    return told


def _words(text: str) -> list[str]:
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.removesuffix("s") if len(word) > 3 else word for word in _WORD.findall(spread.lower())]


def _count(word: str, known: Any) -> int:
    return sum(word in names or word in descriptions for names, descriptions in known)

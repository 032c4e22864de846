"""Many tools: instead of the schema of each, a model is given a search over them and a way to call what it found."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ipymcp.llm.functions import HERE, FunctionTool
from ipymcp.llm.providers import Declaration
from ipymcp.llm.result_text import MAX_LENGTH
from ipymcp.llm.schemas import trimmed
from ipymcp.llm.tool_definitions import declared_function
from ipymcp.protocol import types
from ipymcp.schema.validation import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


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
_MAX_COUNT: Final = 20
_ROOM: Final = MAX_LENGTH * 3 // 4
"""Characters for what is found, so that it need not be read in pages."""
_MAX_ENTRY: Final = 300
"""Characters of a tool that is told of by name alone, about."""


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
        return _fitting(found[: min(max(limit, 1), _MAX_COUNT)])


def _fitting(found: Sequence[Declaration]) -> list[dict[str, Any]]:
    """What is told of each, in all no more than there is room for.

    The first is told of as far as there is room; the others wholly, or by name alone.
    """
    told: list[dict[str, Any]] = []
    room = _ROOM - len(found) * _MAX_ENTRY
    for one in found:
        description = one.description if told else shortened(one.description, _ROOM // 4)
        parameters: Any = one.schema if told else trimmed(one.schema, room - len(description))
        size = len(description) + len(types.encode(parameters))
        if size > room:
            description = shortened(description, _MAX_ENTRY // 2)
            parameters = "search for its name to be told of them"
        else:
            room -= size
        told.append({"name": one.name, "description": description, "parameters": parameters})
    return told


def _words(text: str) -> list[str]:
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.removesuffix("s") if len(word) > 3 else word for word in _WORD.findall(spread.lower())]


def _count(word: str, known: Any) -> int:
    return sum(word in names or word in descriptions for names, descriptions in known)

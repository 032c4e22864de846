"""Tool search: with many tools, a model receives a search and a `call_tool` function in place of all declarations."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ipymcp.llm.functions import NOTEBOOK, FunctionTool
from ipymcp.llm.providers import Declaration
from ipymcp.llm.result_text import MAX_LENGTH
from ipymcp.llm.schemas import trim
from ipymcp.llm.tool_definitions import declare_function
from ipymcp.protocol import types
from ipymcp.schema.validation import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


Discover: TypeAlias = Literal["auto", "always", "never"]
BUDGET: Final = 20_000
"""Tokens of declarations above which `auto` uses the search."""
CALL: Final = "call_tool"
"""The function by which a model calls a tool that it found."""
_CALL_TOOL: Final = Declaration(
    CALL,
    NOTEBOOK,
    CALL,
    f"[{NOTEBOOK}] Call a tool that search_tools returned.",
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The tool's name."},
            "arguments": {"type": "object", "description": "The arguments, according to the tool's parameters."},
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
"""Characters of a search result, which then fits into one page."""
_MAX_ENTRY: Final = 300
"""Approximate characters of a tool without its parameters."""


class ToolSearch:
    """Searches tools for a model.

    Args:
        declared: Returns the current tools, once per search.
    """

    def __init__(self, declared: Callable[[], Sequence[Declaration]]) -> None:
        self._declared = declared

    def declarations(self, beside: Iterable[FunctionTool] = ()) -> list[Declaration]:
        """The declarations of the search and of further functions."""
        return [declare_function(FunctionTool(self.search_tools)), _CALL_TOOL, *map(declare_function, beside)]

    def search_tools(self, query: str, limit: int = 8) -> list[dict[str, Any]] | str:
        """Find tools by keywords. Returns their names, descriptions and parameters.

        Args:
            query: A few words, such as "read file" or "create github issue".
            limit: Maximum number of tools.
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
            servers = ", ".join(dict.fromkeys(one.server for one in tools)) or "no server"
            return f"No tool matches. There are tools of {servers}."
        return _fitting(found[: min(max(limit, 1), _MAX_COUNT)])


def _fitting(found: Sequence[Declaration]) -> list[dict[str, Any]]:
    """Describe tools within the size limit: the first as far as it fits, others in full or without parameters."""
    described: list[dict[str, Any]] = []
    room = _ROOM - len(found) * _MAX_ENTRY
    for one in found:
        description = one.description if described else shortened(one.description, _ROOM // 4)
        parameters: Any = one.schema if described else trim(one.schema, room - len(description))
        size = len(description) + len(types.encode(parameters))
        if size > room:
            description = shortened(description, _MAX_ENTRY // 2)
            parameters = "search for its name to see them"
        else:
            room -= size
        described.append({"name": one.name, "description": description, "parameters": parameters})
    return described


def _words(text: str) -> list[str]:
    spread = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return [word.removesuffix("s") if len(word) > 3 else word for word in _WORD.findall(spread.lower())]


def _count(word: str, known: Any) -> int:
    return sum(word in names or word in descriptions for names, descriptions in known)

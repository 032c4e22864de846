"""What the user is typing at the cursor, from the text alone: no host, no evaluation, never an error.

`context_at` looks at the text before the cursor and says which kind of name belongs there and which part of it is typed
already. Finding the candidates is completion's work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from ipymcp.notebook.attribute_context import AttributeContext, Step, attribute_context
from ipymcp.notebook.magics.line import tokenize_partial

if TYPE_CHECKING:
    from collections.abc import Collection

    from ipymcp.notebook.magics.line import Word

__all__ = ["AttributeContext", "LineContext", "Step", "context_at"]

VALUE_OPTIONS = frozenset({"--env", "--cwd", "--era", "--timeout", "--header", "--transport", "--out", "-n"})
"""The options of `%mcp` that take the next word as their value."""

Kind: TypeAlias = Literal[
    "subcommand", "server", "tool", "resource", "prompt", "argument", "value", "option", "option-value", "file"
]
_NAMES: dict[str, Kind] = {
    "load": "server",
    "config": "server",
    "start": "server",
    "stop": "server",
    "restart": "server",
    "unload": "server",
    "logs": "server",
    "resources": "server",
    "prompts": "server",
    "enable": "tool",
    "disable": "tool",
    "tools": "tool",
    "call": "tool",
    "read": "server",
    "subscribe": "server",
    "prompt": "prompt",
    "help": "subcommand",
}
_READERS = frozenset({"read", "subscribe"})
"""The words of `%mcp` that take a server, a resource of it, and the parameters of a template."""
_CALLERS = frozenset({"call", "prompt", *_READERS})
"""Those that take arguments after what they name."""
_PATH_OPTIONS = frozenset({"--cwd"})
_LINE = re.compile(r"[ \t]*(?:(%%)mcp[ \t]|(?:[^\W\d][^=%#\n]*=[ \t]*)?%mcp[ \t])")
_CONTINUED = re.compile(r"\\\n")


@dataclass(frozen=True, slots=True)
class LineContext:
    """The cursor is in a `%mcp`, `x = %mcp` or `%%mcp` line."""

    kind: Kind
    """A `tool` or `prompt` may still be typing its server's name; a `server` of `load` may also become a file's."""
    partial: str
    """What is typed of it, as typed."""
    start: int
    """Where `partial` begins in the text."""
    subcommand: str = ""
    tool: str = ""
    """The `server.tool` or `server.prompt` that the line names, or the resource, as typed."""
    server: str = ""
    """The server that stands before the resource, as typed."""
    argument: str = ""
    """The argument, or the option, whose value is typed."""
    given: tuple[str, ...] = ()
    """The arguments that are there already."""
    values: tuple[tuple[str, str], ...] = ()
    """The same with their values, as typed."""
    quote: str = ""
    in_cell: bool = False
    """Whether the line is a `%%mcp` one."""


def context_at(
    text: str, *, namespace: str = "mcp", value_options: Collection[str] = VALUE_OPTIONS
) -> LineContext | AttributeContext | None:
    """Say what is being completed at the end of `text`.

    Args:
        text: The cell up to the cursor.
        namespace: The name that the notebook's host is bound to.
        value_options: The options of `%mcp` lines that take a value.
    """
    start = _line_start(text)
    line = _LINE.match(text, start)
    if line and not (line[1] and text[:start].strip()):
        return _line_context(text, line.end(), bool(line[1]), value_options)
    if text.lstrip().startswith("%%mcp"):
        return None
    return attribute_context(text, namespace)


def _line_start(text: str) -> int:
    """Where the line at the cursor begins, with the lines it continues."""
    start = text.rfind("\n") + 1
    while start > 1 and text[start - 2] == "\\":
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _line_context(text: str, at: int, in_cell: bool, value_options: Collection[str]) -> LineContext | None:
    partial = tokenize_partial(_CONTINUED.sub("  ", text[at:]))  # the same length: places stay right
    if partial is None:
        return None
    last = partial.last
    raw = last.raw[len(last.key) + 1 :] if last.key is not None else last.raw
    value = raw.removeprefix(last.quoted)
    if last.quoted and value.endswith(last.quoted):
        return None  # the quote is closed: nothing is being typed
    words = partial.words
    subcommand = words[0].text if words else ""
    names = _names(words[1:], value_options)

    target = 1 if subcommand in _READERS else 0
    named = names[target : target + 1] if subcommand in _CALLERS else []

    def found(kind: Kind, typed: str = value, *, argument: str = "") -> LineContext:
        arguments = [word for word in names[target + 1 :] if word.key is not None] if named else []
        return LineContext(
            kind=kind,
            partial=typed,
            start=len(text) - len(typed),
            subcommand=subcommand,
            tool=named[0].text if named else "",
            server=names[0].text if target and names else "",
            argument=argument,
            given=tuple(word.key or "" for word in arguments),
            values=tuple((word.key or "", word.value) for word in arguments),
            quote=last.quoted,
            in_cell=in_cell,
        )

    if partial.in_command:
        return found("file")
    if not words:
        return found("subcommand") if last.key is None else None
    option = _option_at(words, last, value_options)
    if option:
        return found("file" if option in _PATH_OPTIONS else "option-value", argument=option)
    if last.raw.startswith("-"):
        return found("option")
    if named:
        if last.key is not None:
            return found("value", argument=last.key)
        return None if last.quoted or last.is_body else found("argument")
    kind = "resource" if target and names else _NAMES.get(subcommand)
    if kind == "server" and subcommand == "load" and _looks_like_path(value):
        return found("file")
    if kind == "tool":
        return found(kind, value.removeprefix("!"))
    return found(kind) if kind else None


def _names(words: tuple[Word, ...], value_options: Collection[str]) -> list[Word]:
    """The words that are no options and no options' values."""
    names: list[Word] = []
    is_value = False
    for word in words:
        if is_value:
            is_value = False
        elif word.raw.startswith("-"):
            is_value = word.raw in value_options
        else:
            names.append(word)
    return names


def _option_at(words: tuple[Word, ...], last: Word, value_options: Collection[str]) -> str:
    if last.key is not None and last.key in value_options:
        return last.key
    return words[-1].raw if words[-1].raw in value_options else ""


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "~")) or "/" in text or "\\" in text

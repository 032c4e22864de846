"""What the user is typing at the cursor, from the text alone: no host, no evaluation, never an error.

`context_at` looks at the text before the cursor and says which kind of name belongs there and which part of it is typed
already. Finding the candidates is completion's work.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from ipymcp.notebook.attribute_context import AttributeContext, Step, attribute_context
from ipymcp.notebook.magics.line import tokenize_partial
from ipymcp.notebook.magics.options import Kind, Option, Syntax, names_among

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipymcp.notebook.magics.line import PartialLine

__all__ = ["AttributeContext", "LineContext", "Step", "context_at"]

Typed: TypeAlias = Kind | Literal["argument", "value", "option", "option-value"]
"""What is typed: what a `Kind` of word names, an argument's name or value, an option or one of its few values."""
_LINE = re.compile(r"[ \t]*(?:(%%)mcp[ \t]|(?:[^\W\d][^=%#\n]*=[ \t]*)?%mcp[ \t])")
_CONTINUED = re.compile(r"\\\n")


class LineContext(Struct, frozen=True):
    """The cursor is in a `%mcp`, `x = %mcp` or `%%mcp` line."""

    kind: Typed
    """A `tool` or `prompt` may still be typing its server's name."""
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
    actions: tuple[str, ...] = ()
    """The words that may stand there as well."""
    options: tuple[Option, ...] = ()
    """Those of the line, as far as it is typed."""


def context_at(
    text: str, *, namespace: str = "mcp", syntax_of: Callable[[str], Syntax | None] | None = None
) -> LineContext | AttributeContext | None:
    """Say what is being completed at the end of `text`.

    Args:
        text: The cell up to the cursor.
        namespace: The name that the notebook's host is bound to.
        syntax_of: Gives the syntax of a word of `%mcp`, None where it is no such word; unless given, the real ones.
    """
    start = _line_start(text)
    line = _LINE.match(text, start)
    if line and not (line[1] and text[:start].strip()):
        partial = tokenize_partial(_CONTINUED.sub("  ", text[line.end() :]))  # the same length: places stay right
        return None if partial is None else _line_context(partial, len(text), bool(line[1]), syntax_of or _real_syntax)
    if text.lstrip().startswith("%%mcp"):
        return None
    return attribute_context(text, namespace)


def _real_syntax(word: str) -> Syntax | None:
    from ipymcp.notebook.magics.dispatch import MODULES, command

    return command(word).syntax if word in MODULES else None


def _line_start(text: str) -> int:
    """Where the line at the cursor begins, with the lines it continues."""
    start = text.rfind("\n") + 1
    while start > 1 and text[start - 2] == "\\":
        start = text.rfind("\n", 0, start - 1) + 1
    return start


def _line_context(
    line: PartialLine, end: int, in_cell: bool, syntax_of: Callable[[str], Syntax | None]
) -> LineContext | None:
    last = line.last
    raw = last.raw[len(last.key) + 1 :] if last.key is not None else last.raw
    value = raw.removeprefix(last.quoted)
    if last.quoted and value.endswith(last.quoted):
        return None  # the quote is closed: nothing is being typed
    words = line.words
    subcommand = words[0].text if words else ""
    whole = syntax_of(subcommand) if words else Syntax("", takes=("word",))
    if whole is None:
        return None
    names = names_among(words[1:], whole.valued)
    action = whole.actions.get(names[0].text) if names else None
    syntax = action or whole
    names = names[1:] if action else names
    target = len(syntax.takes) - 1
    named = names[target:] if syntax.arguments else []
    given = [(word.key, word.value) for word in named[1:] if word.key is not None]

    def found(kind: Typed, *, argument: str = "", actions: tuple[str, ...] = ()) -> LineContext:
        return LineContext(
            kind=kind,
            partial=typed,
            start=end - len(typed),
            subcommand=subcommand,
            tool=named[0].text if named else "",
            server=names[0].text if target > 0 and names else "",
            argument=argument,
            given=tuple(name for name, _ in given),
            values=tuple(given),
            quote=last.quoted,
            in_cell=in_cell,
            actions=actions,
            options=syntax.options if action or names else tuple(syntax.every.values()),
        )

    typed = value
    if line.in_command:
        return found("file")
    option = _option_at(line, whole.valued)
    if option is not None:
        return found(option.takes or "option-value", argument=option.name)
    if last.raw.startswith("-"):
        return found("option")
    if named:
        if last.key is not None:
            return found("value", argument=last.key)
        return None if last.quoted or last.is_body else found("argument")
    if last.key is not None:
        return None
    kind = syntax.takes[min(len(names), target)] if syntax.takes else ""
    actions = tuple(whole.actions) if not action and not names else ()
    if kind in ("tool", "prompt"):
        typed = value.removeprefix("!")
    return found(kind, actions=actions) if kind or actions else None


def _option_at(line: PartialLine, valued: Mapping[str, Option]) -> Option | None:
    """The option whose value is typed."""
    if line.last.key is not None and line.last.key in valued:
        return valued[line.last.key]
    return valued.get(line.words[-1].raw) if line.words else None

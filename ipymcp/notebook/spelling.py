"""How a completed word is put into a cell: so that it means exactly itself, evaluates nothing and shows all of itself.

Servers, project files and folders choose what is completed. What cannot be seen on one line (a line break, a control or
invisible character) is not offered at all. All else is written in the quotes that are open, or in those it needs.
"""

from __future__ import annotations

import json

from ipymcp.notebook.magics.line import tokenize_partial
from ipymcp.text import quoted, unmasked_line

__all__ = ["code_value", "line_argument", "line_word", "unquoted"]


def line_word(value: object, quote: str, *, is_argument: bool = False, is_open: bool = False) -> str | None:
    """A name or value as it is written on a `%mcp` line; None where it cannot be.

    Args:
        value: Text, or another JSON value, which goes without quotes.
        quote: The quote that is open at the cursor; empty for none.
        is_argument: Whether it is an argument's value: between double quotes those fill in `{expr}`.
        is_open: Whether more of the word is to be typed.
    """
    text = value if isinstance(value, str) else json.dumps(value)
    if not _is_seen(text):
        return None
    if quote:
        if is_argument and quote == '"' and "$" in text:
            return None  # a `$name` between double quotes is refused
        if is_argument and quote == '"' and "{" in text:
            text = text.replace("{", "{{").replace("}", "}}")
        return text.replace(quote, quote * 2)
    return quoted(text, is_open=is_open) if isinstance(value, str) else text


def line_argument(name: str) -> str | None:
    """The `name=` of an argument on a `%mcp` line; None where no line can have it."""
    word = f"{name}="
    partial = tokenize_partial(word)
    is_key = partial is not None and not partial.words and partial.last.key == name
    return word if is_key and _is_seen(name) and not name.startswith("-") else None


def unquoted(partial: str, quote: str) -> str:
    """What is meant by the beginning of a word on a `%mcp` line whose quote is open."""
    return partial.replace(quote * 2, quote) if quote else partial


def code_value(value: object, quote: str) -> str | None:
    """A key or value as it is written in Python code, without the open quote; None where it cannot be."""
    if not isinstance(value, str):
        return None if quote else repr(value)
    if not _is_seen(value):
        return None
    return value.replace("\\", "\\\\").replace(quote, f"\\{quote}") if quote else repr(value)


def _is_seen(text: str) -> bool:
    """Whether all of a text can be seen on one line."""
    return text.isprintable() and unmasked_line(text) == text

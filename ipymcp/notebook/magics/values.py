r"""What the user typed as a value, read with the notebook's names. The argument's schema reads the text afterwards.

- `key=$name`, unquoted and an identifier, is the notebook's object.
- An unquoted or double-quoted value with `{expr}` is filled like an f-string, unless it is JSON.
- An unquoted value that is a whole Python dict with string keys, `{"limit": n}`, is that dict: as an f-string it would
  format a string, which nobody means.
- Single quotes switch all of it off.

A body, and the raw `{…}` of a line, is read as JSON first, then as a Python expression with the notebook's names, and
as JSON5 where it is no Python. Python comes before JSON5 because JSON5 silently drops the backslash of `"C:\data"`.
Only where a dict has bare words as keys, `{limit: 5}`, does JSON5 come first: in Python they would be variables.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from ipymcp.errors import ArgumentError
from ipymcp.notebook.magics.expressions import evaluate, fill, look_up, parse_expression
from ipymcp.notebook.magics.line import LineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.magics.expressions import Namespaces
    from ipymcp.notebook.magics.line import Word

__all__ = ["Object", "Text", "parse_arguments", "parse_body", "read_value"]


class Text(Struct, frozen=True):
    """Typed text, for the argument's schema to read."""

    text: str
    quoted: bool = False
    """Whether it stood in quotes: where no schema says otherwise it is text, whatever it looks like."""


class Object(Struct, frozen=True):
    """An object of the notebook, sent as it is."""

    value: object


def parse_arguments(words: Sequence[Word], namespaces: Namespaces) -> list[tuple[str, Text | Object]]:
    """Read `key=value` words.

    Raises:
        LineError: A word has no key, or a key comes twice.
        ArgumentError: A value names what the notebook does not have, or cannot be filled.
    """
    arguments: dict[str, Text | Object] = {}
    for word in words:
        if word.key is None:
            raise LineError(f"{word.raw} is not key=value", word.start)
        if word.key in arguments:
            raise LineError(f"{word.key} is given twice", word.start)
        arguments[word.key] = read_value(word, namespaces)
    return list(arguments.items())


def read_value(word: Word, namespaces: Namespaces) -> Text | Object:
    """Read one word's value with the notebook's names.

    Args:
        word: The word; its key names the argument in errors.
        namespaces: Where names are looked up, nearest first.

    Raises:
        ArgumentError: A name is unknown (the hint suggests near ones), or an expression fails.
    """
    value, is_plain = word.value, not word.quoted
    if word.quoted == "'":
        return Text(value, quoted=True)
    if is_plain and value.startswith("$") and value[1:].isidentifier():
        return Object(look_up(value[1:], namespaces, word.key))
    if "{" not in value or _is_json(value):
        return Text(value, quoted=not is_plain)
    tree = _string_keyed_dict(value) if is_plain else None
    if tree is not None:
        return Object(evaluate(tree, value, namespaces, argument=word.key))
    return Text(fill(value, namespaces, word.key), quoted=not is_plain)


def parse_body(text: str, namespaces: Namespaces) -> dict[str, object]:
    """Read a call's arguments from a body: JSON, a Python dict expression, or JSON5. An empty body is no arguments.

    Args:
        text: The cell's body, or the raw rest of a line.
        namespaces: Where a Python expression finds its names, nearest first.

    Raises:
        ArgumentError: It is none of the three (the message says where), a name is unknown, or it is no mapping from
            argument names.
    """
    if not text.strip():
        return {}
    body = _read_body(text, namespaces)
    if not isinstance(body, Mapping):
        raise ArgumentError(
            f"the body is a {type(body).__name__}, not a mapping of arguments",
            hint='write {"argument": value, …}',
        )
    arguments = dict(cast("Mapping[object, object]", body))
    for key in arguments:
        if not isinstance(key, str):
            raise ArgumentError(f"the argument name {key!r} is a {type(key).__name__}, not text", hint="quote the keys")
    return cast("dict[str, object]", arguments)


def _read_body(text: str, namespaces: Namespaces) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        json_error = error
    try:
        # Leading line ends stay, so that an error's line is the body's own; an indent would be Python's own error.
        tree = parse_expression(text[: len(text) - len(text.lstrip())].rstrip(" \t") + text.strip())
    except (SyntaxError, ValueError) as error:
        found, value = _read_json5(text)
        if found:
            return value
        raise _unreadable(json_error, error) from error
    if _has_bare_keys(tree.body):
        found, value = _read_json5(text)
        if found:
            return value
    return evaluate(tree, "the body", namespaces, located=True)


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def _read_json5(text: str) -> tuple[bool, object]:
    import json5

    try:
        return True, cast("object", json5.loads(text))  # pyright: ignore[reportUnknownMemberType]
    except (ValueError, RecursionError):
        return False, None


def _string_keyed_dict(value: str) -> ast.Expression | None:
    try:
        tree = parse_expression(value)
    except (SyntaxError, ValueError):
        return None
    body = tree.body
    if not isinstance(body, ast.Dict) or not body.keys:
        return None
    for key in body.keys:
        if key is not None and not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            return None
    return tree


def _has_bare_keys(node: ast.expr) -> bool:
    """Whether a dict display, here or nested as a value, has a bare word as a key."""
    if isinstance(node, ast.Dict):
        return any(isinstance(key, ast.Name) for key in node.keys) or any(map(_has_bare_keys, node.values))
    if isinstance(node, ast.BinOp):  # to Python, `// a comment` of JSON5 is a division
        return _has_bare_keys(node.left)
    return isinstance(node, ast.List) and any(map(_has_bare_keys, node.elts))


def _unreadable(json_error: ValueError, python_error: SyntaxError | ValueError) -> ArgumentError:
    """The error of the reader that came farthest: it was the one meant."""
    line, column, reason = 1, 1, str(json_error)
    if isinstance(json_error, json.JSONDecodeError):
        line, column, reason = json_error.lineno, json_error.colno, json_error.msg
    if isinstance(python_error, SyntaxError):
        place = (python_error.lineno or 1, python_error.offset or 1)
        if place > (line, column) or "never closed" in python_error.msg:
            (line, column), reason = place, python_error.msg
    reason = reason[:1].lower() + reason[1:]
    return ArgumentError(
        f"line {line}, column {column}: {reason}",
        hint="the body is JSON, JSON5, or a Python dict with the notebook's names",
    )

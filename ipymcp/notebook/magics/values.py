r"""What the user typed as a value, read with the notebook's names. The argument's schema reads the text afterwards.

- `key=$name`, unquoted and an identifier, is the notebook's object.
- An unquoted or double-quoted value with `{expr}` is filled like an f-string, unless it is JSON.
- An unquoted value that is a whole Python dict with string keys, `{"limit": n}`, is that dict: as an f-string it would
  format a string, which nobody means.
- `$name` with anything else in the value, `path=$folder/a.txt` or `"$name"`, is an error that names `{folder}/a.txt`:
  as text it would be sent silently.
- Single quotes switch all of it off.

A body, and the raw `{…}` of a line, is read as JSON first, then as a Python expression with the notebook's names, and
as JSON5 where it is no Python. Python comes before JSON5 because JSON5 silently drops the backslash of `"C:\data"`.
Only where a dict has bare words as keys, `{limit: 5}`, does JSON5 come first: in Python they would be variables.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from ipymcp.config.comments import without_comments
from ipymcp.config.files import JSON5_MAX_BYTES
from ipymcp.errors import ArgumentError
from ipymcp.notebook.magics.expressions import AS_TEXT, evaluate, fill, look_up, parse_expression
from ipymcp.notebook.magics.line import LineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.magics.expressions import Namespaces
    from ipymcp.notebook.magics.line import Word

__all__ = ["Object", "Text", "parse_arguments", "parse_body", "read_value"]

_EMBEDDED = re.compile(r"""\$\{(?P<braced>[^\W\d]\w*)\} | \{\{ | \{[^{}]*\} | \$(?P<name>[^\W\d]\w*)""", re.VERBOSE)
"""`${name}` and `$name`; what stands in braces is Python, and passed over."""


class Text(Struct, frozen=True):
    """Typed text, for the argument's schema to read."""

    text: str
    quoted: bool = False
    """Whether it stood in quotes: where no schema says otherwise it is text, whatever it looks like."""


class Object(Struct, frozen=True):
    """An object of the notebook, sent as it is."""

    value: object


def parse_arguments(
    words: Sequence[Word], namespaces: Namespaces, names: Sequence[str] = ()
) -> list[tuple[str, Text | Object]]:
    """Read `key=value` words.

    Args:
        words: The line's, behind what it is about.
        namespaces: Where names are looked up, nearest first.
        names: The arguments that may be given, the required ones first; for errors.

    Raises:
        LineError: A word has no key, or a key comes twice.
        ArgumentError: A value names what the notebook does not have, or cannot be filled.
    """
    arguments: dict[str, Text | Object] = {}
    for index, word in enumerate(words):
        if word.key is None:
            raise LineError(_no_pair(words, index, names), word.start)
        if word.key in arguments:
            raise LineError(f"{word.key} is given twice", word.start)
        arguments[word.key] = read_value(word, namespaces)
    return list(arguments.items())


def _no_pair(words: Sequence[Word], index: int, names: Sequence[str]) -> str:
    """What is wrong with a word that is not `key=value`, and what to write instead."""
    word, problem = words[index], f"{words[index].raw} is not key=value"
    before, behind = words[index - 1] if index else None, words[index + 1] if index + 1 < len(words) else None
    name, colon, value = word.raw.partition(":")
    if word.raw.startswith("=") or (behind is not None and behind.raw.startswith("=")):
        key = word.raw if not word.raw.startswith("=") else before.raw if before is not None else "NAME"
        return f"{problem}: write {key}=VALUE, without blanks around the ="
    if colon and name in names:
        return f"{problem}: write {name}={value or 'VALUE'}"
    if before is not None and before.key is not None and not before.quoted:
        return f'{problem}: quote a value that has blanks: {before.key}="{before.value} {word.raw}"'
    given = {one.key for one in words}
    missing = next((one for one in names if one not in given), None)
    return f"{problem}: write {missing}={word.raw}" if missing else problem


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
    if _is_json(value):
        return Text(value, quoted=not is_plain)
    _refuse_embedded(word)
    if "{" not in value:
        return Text(value, quoted=not is_plain)
    tree = _string_keyed_dict(value) if is_plain else None
    if tree is not None:
        return Object(evaluate(tree, value, namespaces, argument=word.key))
    return Text(fill(value, namespaces, word.key), quoted=not is_plain)


def _refuse_embedded(word: Word) -> None:
    """Raise an ArgumentError for `$name` with something before or behind it, outside of `{…}`."""
    for found in _EMBEDDED.finditer(word.value):
        name = found["name"] or found["braced"]
        if name is None:
            continue
        filled = word.raw.replace(found[0], f"{{{name}}}", 1)
        at = f"{word.key}: " if word.key else ""
        raise ArgumentError(
            f"{at}{found[0]} stands for a variable only as the whole value, unquoted",
            argument=word.key,
            hint=f"within a value it is {{{name}}}: {filled} · {AS_TEXT}",
        )


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
        raise _unreadable(json_error, error, is_long=len(text) > JSON5_MAX_BYTES) from error
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
    """Whether it is JSON5 that is read in no time, and the value: as in config files, what is long is not tried."""
    with contextlib.suppress(ValueError, RecursionError):
        return True, json.loads(without_comments(text))
    if len(text) > JSON5_MAX_BYTES:
        return False, None

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


def _unreadable(json_error: ValueError, python_error: SyntaxError | ValueError, *, is_long: bool) -> ArgumentError:
    """The error of the reader that came farthest: it was the one meant."""
    line, column, reason = 1, 1, str(json_error)
    if isinstance(json_error, json.JSONDecodeError):
        line, column, reason = json_error.lineno, json_error.colno, json_error.msg
    if isinstance(python_error, SyntaxError):
        place = (python_error.lineno or 1, python_error.offset or 1)
        if place > (line, column) or "never closed" in python_error.msg:
            (line, column), reason = place, python_error.msg
    reason = reason[:1].lower() + reason[1:]
    limit = f"; JSON5 only up to {JSON5_MAX_BYTES:,} characters" if is_long else ""
    return ArgumentError(
        f"line {line}, column {column}: {reason}",
        hint=f"the body is JSON, {'' if is_long else 'JSON5, '}or a Python dict with the notebook's names{limit}",
    )

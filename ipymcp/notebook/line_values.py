r"""Values typed in `%mcp` lines and cells, with Python expressions evaluated in the notebook's namespace.

- `key=$name`, unquoted and an identifier, is the notebook's object.
- An unquoted or double-quoted value with `{expr}` is filled like an f-string, unless it is JSON.
- An unquoted value that is a whole Python dict with string keys, `{"limit": n}`, is that dict, not an f-string.
- `$name` together with other text, `path=$folder/a.txt` or `"$name"`, is an error that suggests `{folder}/a.txt`,
  because otherwise the text would be sent without a warning.
- In single quotes, all of this is plain text.

A body, and the raw `{…}` of a line, is parsed as JSON first, then as a Python expression with the notebook's names,
then as JSON5. Python is tried before JSON5 because JSON5 silently drops the backslash of `"C:\data"`.
JSON5 is tried first only if a dict has bare words as keys, `{limit: 5}`, which would be variables in Python.
"""

from __future__ import annotations

import ast
import contextlib
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from ipymcp.config.config_files import JSON5_MAX_BYTES, without_comments
from ipymcp.errors import ArgumentError
from ipymcp.names import nearest
from ipymcp.notebook.line_syntax import LineError, in_quotes, value_with_blanks

if TYPE_CHECKING:
    from ipymcp.notebook.line_syntax import Word
    from ipymcp.schema.tool_schema import ToolSchema


Namespaces = Sequence[Mapping[str, object]]
"""Mappings of names to objects, innermost first: the function's locals, then the notebook's names."""

_FILE = "<%mcp>"
AS_TEXT = "single quotes send the text as it is"
_JSON_WORDS: Mapping[str, object] = {
    "true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf")
}  # fmt: skip
_STRING = re.compile(r"""('''|\"\"\"|'|")(?:\\.|(?!\1)[^\\])*+\1""", re.DOTALL)
_CONVERSIONS = {"r": repr, "s": str, "a": ascii}


def parse_expression(source: str) -> ast.Expression:
    r"""Parse an expression without Python's warnings about `\d`. Raises SyntaxError, or ValueError for a null byte."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, _FILE, mode="eval")


def evaluate(
    tree: ast.Expression, source: str, namespaces: Namespaces, *, argument: str | None = None, located: bool = False
) -> object:
    """Evaluate an expression. JSON's `true`, `false` and `null` are defined, unless the notebook defines these names.

    Args:
        tree: The expression.
        source: The expression in error messages.
        namespaces: The notebook's names.
        argument: The argument in error messages.
        located: Whether an error's message begins with the line and column.

    Raises:
        ArgumentError: A name is unknown, or the expression raised an exception, which is the error's cause.
    """
    names = dict(_JSON_WORDS)
    for namespace in reversed(namespaces):
        names.update(namespace)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            code = compile(tree, _FILE, "eval", dont_inherit=True)
        return eval(code, names)
    except Exception as error:
        place = _place(tree, error) if located else ""
        if isinstance(error, NameError) and _node_of(tree, error.name):
            raise _unknown(str(error.name), namespaces, argument, place) from error
        message = f"{place}{source} raised {type(error).__name__}: {error}"
        raise ArgumentError(_about(argument, message), argument=argument, hint=AS_TEXT) from error


def look_up(name: str, namespaces: Namespaces, argument: str | None) -> object:
    """Return the notebook's object of that name; raises ArgumentError, suggesting similar names."""
    for namespace in namespaces:
        if name in namespace:
            return namespace[name]
    raise _unknown(name, namespaces, argument, "")


def fill(template: str, namespaces: Namespaces, argument: str | None) -> str:
    """Fill `{expr}`, `{expr!r}` and `{expr:spec}` as an f-string does; `{{` and `}}` are single braces.

    Raises:
        ArgumentError: A brace is not paired, a name is unknown, or an expression fails.
    """
    return _ValueTemplate(template, namespaces, argument).fill()


def _about(argument: str | None, message: str) -> str:
    return f"{argument}: {message}" if argument else message


def _unknown(name: str, namespaces: Namespaces, argument: str | None, place: str) -> ArgumentError:
    known = {known for namespace in namespaces for known in namespace if not known.startswith("_")}
    hint = f"{nearest(name, known)} {AS_TEXT}".lstrip()
    return ArgumentError(_about(argument, f"{place}the notebook has no name {name!r}"), argument=argument, hint=hint)


def _node_of(tree: ast.Expression, name: str | None) -> ast.Name | None:
    return next((node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name), None)


def _place(tree: ast.Expression, error: Exception) -> str:
    """The location of an error: that of the unknown name, else the line that raised."""
    node = _node_of(tree, error.name) if isinstance(error, NameError) else None
    if node:
        return f"line {node.lineno}, column {node.col_offset + 1}: "
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILE:
            return f"line {traceback.tb_lineno}: "
        traceback = traceback.tb_next
    return ""


class _ValueTemplate(Struct, frozen=True):
    """A value with `{expr}`; not a real f-string, which cannot contain its own quotes before Python 3.12."""

    text: str
    namespaces: Namespaces
    argument: str | None

    def fill(self) -> str:
        filled, end = self._read(0, in_spec=False)
        assert end == len(self.text)
        return filled

    def _read(self, at: int, *, in_spec: bool) -> tuple[str, int]:
        """The filled text up to the end, or to the `}` that ends a format spec."""
        parts: list[str] = []
        while at < len(self.text):
            char = self.text[at]
            if char == "}" and in_spec:
                break
            if self.text.startswith(("{{", "}}"), at) and not in_spec:
                parts.append(char)
                at += 2
            elif char == "{":
                part, at = self._field(at)
                parts.append(part)
            elif char == "}":
                raise self._error(at, "a single } (write }} for one)")
            else:
                parts.append(char)
                at += 1
        return "".join(parts), at

    def _field(self, opened: int) -> tuple[str, int]:
        """The filled field that opens here, and its end."""
        at = self._expression_end(opened + 1)
        source = self.text[opened + 1 : at].strip()
        value = self._evaluate(source, opened)
        if self.text.startswith("!", at):
            convert = _CONVERSIONS.get(self.text[at + 1 : at + 2])
            if convert is None:
                raise self._error(at, "after ! only r, s or a is allowed")
            value, at = convert(value), at + 2
        spec = ""
        if self.text.startswith(":", at):
            spec, at = self._read(at + 1, in_spec=True)
        if not self.text.startswith("}", at):
            raise self._error(opened, "this { is not closed")
        try:
            return format(value, spec), at + 1
        except Exception as error:
            raise self._error(opened, f"{type(error).__name__}: {error}") from error

    def _expression_end(self, at: int) -> int:
        """The end of the expression: `}`, `:` or `!` outside brackets and strings."""
        depth = 0
        while at < len(self.text):
            char = self.text[at]
            if char in "'\"":
                match = _STRING.match(self.text, at)
                at = match.end() if match else len(self.text)
                continue
            if depth == 0 and (char in "}:" or (char == "!" and not self.text.startswith("!=", at))):
                break
            depth += (char in "([{") - (char in ")]}")
            at += 1
        return at

    def _evaluate(self, source: str, opened: int) -> object:
        if not source:
            raise self._error(opened, "no expression between the braces")
        try:
            tree = parse_expression(source)
        except (SyntaxError, ValueError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise self._error(opened, reason) from error
        if isinstance(tree.body, ast.Constant) and isinstance(tree.body.value, str):
            raise self._error(opened, "a string needs no braces: build the value in a cell and pass $name")
        return evaluate(tree, "{" + source + "}", self.namespaces, argument=self.argument)

    def _error(self, at: int, reason: str) -> ArgumentError:
        message = f"cannot fill {self.text}: at character {at + 1}, {reason}"
        return ArgumentError(_about(self.argument, message), argument=self.argument, hint=AS_TEXT)


_EMBEDDED = re.compile(r"""\$\{(?P<braced>[^\W\d]\w*)\} | \{\{ | \{[^{}]*\} | \$(?P<name>[^\W\d]\w*)""", re.VERBOSE)
"""Matches `${name}` and `$name`, and skips other braces, which contain Python expressions."""


class TypedText(Struct, frozen=True):
    """Typed text that the argument's schema interprets."""

    text: str
    quoted: bool = False
    """Whether the text was quoted; it is then a string unless the schema says otherwise."""


class NotebookObject(Struct, frozen=True):
    """An object of the notebook."""

    value: object


def parse_arguments(
    words: Sequence[Word], namespaces: Namespaces, schema: ToolSchema | None = None
) -> dict[str, object]:
    """Parse `key=value` words to values.

    Args:
        words: The words of the arguments.
        namespaces: The notebook's names.
        schema: The schema that interprets unquoted text; None to keep it as text.

    Raises:
        LineError: A word has no key, or a key is given twice.
        ArgumentError: A value refers to an unknown name, or an expression fails.
    """
    names = [] if schema is None else [each.name for each in schema.parameters]
    arguments: dict[str, object] = {}
    for index, word in enumerate(words):
        if not word.quoted and word.value.startswith(_CURLY):
            raise LineError(_about_curly_quotes(words, index), word.start)
        if word.key is None:
            raise LineError(_not_a_pair(words, index, names), word.start)
        if word.key in arguments:
            raise LineError(f"{word.key} is given twice", word.start)
        if word.value.endswith(",") and not word.quoted and any(other.key for other in words[index + 1 : index + 2]):
            text = word.value[:-1]
            problem = f"{word.raw} ends with a comma, but blanks separate arguments"
            raise LineError(f'{problem}: {word.key}={text}, or {word.key}="{word.value}" with it', word.start)
        value = read_value(word, namespaces)
        if isinstance(value, NotebookObject):
            arguments[word.key] = value.value
        elif schema is None or value.quoted:
            arguments[word.key] = value.text
        else:
            arguments[word.key] = schema.read_text(word.key, value.text)
    return arguments


_CURLY = ("\u201c", "\u201d", "\u201e", "\u2018", "\u2019")
"""Typographic quotes, as documents and chats have them."""
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019", '"""""\'\'')


def _about_curly_quotes(words: Sequence[Word], index: int) -> str:
    """Describe a value that begins with a curly quote, with a correction from there to the closing one."""
    raw = ""
    for word in words[index:]:
        raw = f"{raw} {word.raw}".lstrip()
        if raw.endswith(("\u201c", "\u201d", "\u2018", "\u2019")):
            break
    word = words[index]
    sent = f"; to send them, write {word.key}='{word.value}'" if word.key and raw == word.raw else ""
    return f"{word.value[0]} is a curly quote: write {raw.translate(_STRAIGHT)}{sent}"


def _not_a_pair(words: Sequence[Word], index: int, names: Sequence[str]) -> str:
    """Describe the problem of a word that is not `key=value`, with a correction."""
    word, problem = words[index], f"{words[index].raw} is not key=value"
    before, after = words[index - 1] if index else None, words[index + 1] if index + 1 < len(words) else None
    name, _, value = word.raw.partition(":")
    if word.is_body and re.search(r"\}\s", word.raw):
        return "what begins with { is the rest of the line: write key=value before it"
    if word.quoted and word.value.partition("=")[0] in names:
        return f"{problem}: write {in_quotes(*word.value.split('=', 1))}"
    if word.raw.startswith(("=", "!=")) and before is not None and before.key is not None and not before.quoted:
        return f"{problem}: quote a value that has blanks: {value_with_blanks(words, index - 1)}"
    if word.raw.startswith("=") or (after is not None and after.raw.startswith("=")):
        key = word.raw if not word.raw.startswith("=") else before.raw if before is not None else "NAME"
        return f"{problem}: write {key}=VALUE, without blanks around the ="
    if name in names:
        value = value or (after.raw if after is not None and after.key is None else "VALUE")
        return f"{problem}: write {name}={value}"
    if before is not None and before.key is not None and not before.quoted:
        return f'{problem}: quote a value that has blanks: {before.key}="{before.value} {word.raw}"'
    given = {one.key for one in words}
    missing = next((one for one in names if one not in given), None)
    return f"{problem}: write {missing}={word.raw}" if missing else problem


def read_value(word: Word, namespaces: Namespaces) -> TypedText | NotebookObject:
    """Read one word's value with the notebook's names.

    Args:
        word: The word; its key is the argument in errors.
        namespaces: The notebook's names.

    Raises:
        ArgumentError: A name is unknown (the hint has similar names), or an expression fails.
    """
    value, is_plain = word.value, not word.quoted
    if word.quoted == "'":
        return TypedText(value, quoted=True)
    if is_plain and value.startswith("$") and value[1:].isidentifier():
        return NotebookObject(look_up(value[1:], namespaces, word.key))
    if _is_json(value):
        return TypedText(value, quoted=not is_plain)
    _refuse_embedded(word)
    if "{" not in value:
        return TypedText(value, quoted=not is_plain)
    tree = _string_keyed_dict(value) if is_plain else None
    if tree is not None:
        return NotebookObject(evaluate(tree, value, namespaces, argument=word.key))
    return TypedText(fill(value, namespaces, word.key), quoted=not is_plain)


def _refuse_embedded(word: Word) -> None:
    """Raise an ArgumentError for `$name` within a longer value, outside of `{…}`."""
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
    """Parse a call's arguments from JSON, a Python dict expression or JSON5. An empty body has no arguments.

    Args:
        text: The cell's body, or the raw rest of a line.
        namespaces: The notebook's names.

    Raises:
        ArgumentError: The body is in none of these formats (the message has the location), refers to an unknown name,
            or is not a mapping with argument names as keys.
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
        # Leading newlines are kept for the line numbers of errors; indentation would be a syntax error.
        tree = parse_expression(text[: len(text) - len(text.lstrip())].rstrip(" \t") + text.strip())
    except (SyntaxError, ValueError) as error:
        found, value = _read_json5(text)
        if found:
            return value
        raise _body_error(json_error, error, is_long=len(text) > JSON5_MAX_BYTES) from error
    if _has_bare_keys(tree.body):
        found, value = _read_json5(text)
        if found:
            return value
        members = tree.body.keys if isinstance(tree.body, ast.Dict) else []
        key = next((key for key in members if isinstance(key, ast.Name)), None)
        if key is not None and not any(key.id in namespace for namespace in namespaces):
            place = f"line {key.lineno}, column {key.col_offset + 1}"
            hint = f'names and texts have quotes in braces: "{key.id}"'
            raise ArgumentError(f"{place}: the notebook has no name {key.id!r}", argument=key.id, hint=hint)
    return evaluate(tree, "the body", namespaces, located=True)


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except ValueError:
        return False
    return True


def _read_json5(text: str) -> tuple[bool, object]:
    """Whether the text is JSON5, and its value. As in config files, long texts are not parsed."""
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
    """Whether a dict display, nested or not, has a bare word as a key."""
    if isinstance(node, ast.Dict):
        return any(isinstance(key, ast.Name) for key in node.keys) or any(map(_has_bare_keys, node.values))
    if isinstance(node, ast.BinOp):  # Python parses a JSON5 comment, `// text`, as a division
        return _has_bare_keys(node.left)
    return isinstance(node, ast.List) and any(map(_has_bare_keys, node.elts))


def _body_error(json_error: ValueError, python_error: SyntaxError | ValueError, *, is_long: bool) -> ArgumentError:
    """The error of the parser that got farthest, because its format was probably intended."""
    line, column, reason = 1, 1, str(json_error)
    if isinstance(json_error, json.JSONDecodeError):
        line, column, reason = json_error.lineno, json_error.colno, json_error.msg
    if isinstance(python_error, SyntaxError):
        place = (python_error.lineno or 1, python_error.offset or 1)
        if place > (line, column) or "never closed" in python_error.msg:
            (line, column), reason = place, python_error.msg
    reason = reason[:1].lower() + reason[1:]
    if "invalid character" in str(python_error) and any(quote in str(python_error) for quote in _CURLY):
        reason = f'{reason} (curly quotes: replace them by ")'
    limit = f"; JSON5 only up to {JSON5_MAX_BYTES:,} characters" if is_long else ""
    return ArgumentError(
        f"line {line}, column {column}: {reason}",
        hint=f"the body is JSON, {'' if is_long else 'JSON5, '}or a Python dict with the notebook's names{limit}",
    )

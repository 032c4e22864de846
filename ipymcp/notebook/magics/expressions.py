"""Python expressions inside a `%mcp` line or body: the user's own code, evaluated with the notebook's names."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ipymcp.errors import ArgumentError

__all__ = ["AS_TEXT", "Namespaces", "evaluate", "fill", "look_up", "parse_expression"]

Namespaces = Sequence[Mapping[str, object]]
"""Where names are looked up, nearest first: the function's locals, then the notebook's own names."""

_FILE = "<%mcp>"
AS_TEXT = "single quotes send the text as it is"
_JSON_WORDS: Mapping[str, object] = {
    "true": True, "false": False, "null": None, "NaN": float("nan"), "Infinity": float("inf")
}  # fmt: skip
_STRING = re.compile(r"""('''|\"\"\"|'|")(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
_CONVERSIONS = {"r": repr, "s": str, "a": ascii}


def parse_expression(source: str) -> ast.Expression:
    r"""Parse without Python's warnings about `\d`. Raises SyntaxError or ValueError (a null byte)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source, _FILE, mode="eval")


def evaluate(
    tree: ast.Expression, source: str, namespaces: Namespaces, *, argument: str | None = None, located: bool = False
) -> object:
    """Evaluate an expression. JSON's own words (`true`, `null`) are known unless the notebook has such names.

    Args:
        tree: The expression.
        source: How an error calls it.
        namespaces: Where names are looked up.
        argument: The argument it is for, where it is for one.
        located: Put the line and column before an error's message.

    Raises:
        ArgumentError: A name is unknown, or the expression raised; the cause is kept.
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
    """The notebook's object of that name. Raises ArgumentError, suggesting near names."""
    for namespace in namespaces:
        if name in namespace:
            return namespace[name]
    raise _unknown(name, namespaces, argument, "")


def fill(template: str, namespaces: Namespaces, argument: str | None) -> str:
    """Fill `{expr}`, `{expr!r}` and `{expr:spec}` as an f-string does; `{{` and `}}` are single braces.

    Raises:
        ArgumentError: A brace is not paired, a name is unknown, or an expression fails.
    """
    return _Template(template, namespaces, argument).fill()


def _about(argument: str | None, message: str) -> str:
    return f"{argument}: {message}" if argument else message


def _unknown(name: str, namespaces: Namespaces, argument: str | None, place: str) -> ArgumentError:
    known = {known for namespace in namespaces for known in namespace if not known.startswith("_")}
    near = difflib.get_close_matches(name, known, n=3)
    hint = f"did you mean {' or '.join(near)}? {AS_TEXT}" if near else AS_TEXT
    return ArgumentError(_about(argument, f"{place}the notebook has no name {name!r}"), argument=argument, hint=hint)


def _node_of(tree: ast.Expression, name: str | None) -> ast.Name | None:
    return next((node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name), None)


def _place(tree: ast.Expression, error: Exception) -> str:
    """Where in the source an error arose: an unknown name's own place, else the line that ran."""
    node = _node_of(tree, error.name) if isinstance(error, NameError) else None
    if node:
        return f"line {node.lineno}, column {node.col_offset + 1}: "
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILE:
            return f"line {traceback.tb_lineno}: "
        traceback = traceback.tb_next
    return ""


class _Template(Struct, frozen=True):
    """A value with `{expr}` in it. Own code: before Python 3.12 an f-string cannot hold its own quotes."""

    text: str
    namespaces: Namespaces
    argument: str | None

    def fill(self) -> str:
        filled, end = self._read(0, in_spec=False)
        assert end == len(self.text)
        return filled

    def _read(self, at: int, *, in_spec: bool) -> tuple[str, int]:
        """The text from here, filled, up to the end, or to the `}` that ends a format spec."""
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
        """The filled field that opens here, and where the text goes on."""
        at = self._expression_end(opened + 1)
        source = self.text[opened + 1 : at].strip()
        value = self._evaluate(source, opened)
        if self.text.startswith("!", at):
            convert = _CONVERSIONS.get(self.text[at + 1 : at + 2])
            if convert is None:
                raise self._error(at, "after ! only r, s or a can stand")
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
        """Where the expression ends: at `}`, `:` or `!` outside brackets and strings."""
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
            raise self._error(opened, "a string is nothing to fill in: build the value in a cell and pass $name")
        return evaluate(tree, "{" + source + "}", self.namespaces, argument=self.argument)

    def _error(self, at: int, reason: str) -> ArgumentError:
        message = f"cannot fill {self.text}: at character {at + 1}, {reason}"
        return ArgumentError(_about(self.argument, message), argument=self.argument, hint=AS_TEXT)

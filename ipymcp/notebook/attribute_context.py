"""What of the namespace is being typed at the end of some Python code: an attribute, a key, an argument or its value.

The code is lexed forwards once, for its strings, comments and brackets only: read backwards, an apostrophe in a comment
cannot be told from a string. The expression before the cursor is then read backwards with the brackets paired.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

__all__ = ["AttributeContext", "Step", "attribute_context"]


class Step(Struct, frozen=True):
    """One step from the namespace towards a tool: `.name`, or `["name"]` where `item` is set."""

    name: str
    item: bool = False
    called: bool = False
    """Whether it is called: `.name(…)`. Only the last step before an attribute can be."""


class AttributeContext(Struct, frozen=True):
    """The cursor is in Python code, at something that belongs to the namespace."""

    kind: Literal["attribute", "key", "argument", "value"]
    path: tuple[Step, ...]
    """What stands before the cursor, or is being called: `mcp.fs["x"].aio(` is fs, ["x"], aio.

    `.options(…)` is the tool itself and left out."""
    partial: str
    start: int
    argument: str = ""
    """The argument whose value is typed; empty where it is positional."""
    given: tuple[str, ...] = ()
    """The keyword arguments that are there already."""
    positional: int = 0
    """How many positional arguments stand before the cursor's."""
    quote: str = ""
    """The quote that is open at the cursor."""
    literals: tuple[tuple[int | str, str], ...] = ()
    """The strings among the arguments before the cursor's, by position or keyword."""


def attribute_context(text: str, namespace: str) -> AttributeContext | None:
    """Say what is being typed at the end of `text`, where it belongs to `namespace`; None where it does not."""
    return _Python(text, namespace).context() if namespace in text else None


_TAIL = 20_000
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_LEX = re.compile(
    r"""
      \( | \) | \[ | \] | \{ | \} | ,
    | \#[^\n]*
    | \"\"\"(?:\\.|[^\\])*?(?:\"\"\"|(?P<open_a>\\?\Z))
    | '''(?:\\.|[^\\])*?(?:'''|(?P<open_b>\\?\Z))
    | "(?:\\.|[^"\\\n])*(?:"|(?=\n)|(?P<open_c>\\?\Z))
    | '(?:\\.|[^'\\\n])*(?:'|(?=\n)|(?P<open_d>\\?\Z))
    """,
    re.DOTALL | re.VERBOSE,
)
_WORD_AT_END = re.compile(r"\w*\Z")
_LITERAL = re.compile(r"""\s*(['"])([^'"\\]*)\1\s*""")
_KEYWORD = re.compile(r"\s*([^\W\d]\w*)\s*=(?!=)")
_ARGUMENT = re.compile(r"\s*((?:[^\W\d]\w*)?)")
_VALUE = re.compile(r"\s*([^\W\d]\w*)\s*=\s*(\w*)")


class _Python:
    """Python code before the cursor, lexed once: which brackets are open, and whether a string or comment is."""

    def __init__(self, text: str, namespace: str) -> None:
        self.offset = text.find("\n", len(text) - _TAIL) + 1 if len(text) > _TAIL else 0
        self.text = text[self.offset :]
        self.namespace = namespace
        self.opened: list[list[int]] = []
        """The brackets that are open, outermost first: the place of each, then those of the commas right inside it."""
        self.pairs: dict[int, int] = {}
        """From the place of each closing bracket to that of its opening one."""
        self.string = -1
        """Where the string that is open at the cursor begins; -1 where there is none."""
        self.comments: list[tuple[int, int]] = []
        self._lex()

    def _lex(self) -> None:
        """One pass, with nothing called per bracket: a long cell has thousands of them, and this runs at every Tab."""
        text, opened, pairs = self.text, self.opened, self.pairs
        for match in _LEX.finditer(text):
            at = match.start()
            char = text[at]
            if char == ",":
                if opened:
                    opened[-1].append(at)
            elif char in "([{":
                opened.append([at])
            elif char in ")]}":
                if opened and text[opened[-1][0]] == _BRACKETS[char]:
                    pairs[at] = opened.pop()[0]
            elif char == "#":
                self.comments.append(match.span())
            elif match.lastgroup is not None:
                self.string = at

    def context(self) -> AttributeContext | None:
        if self.comments and self.comments[-1][1] == len(self.text):
            return None
        if self.string >= 0:
            is_long = self.text.startswith(('"""', "'''"), self.string)
            return None if is_long else self._key() or self._call()
        return self._attribute() or self._call()

    def _attribute(self) -> AttributeContext | None:
        match = _WORD_AT_END.search(self.text, max(0, len(self.text) - 200))
        assert match is not None  # it may be empty, so it is always found
        dot = self._skip_blanks(match.start()) - 1
        if dot < 0 or self.text[dot] != ".":
            return None
        path = self._path(dot, may_call=True)
        return None if path is None else self._found("attribute", path, match.group())

    def _key(self) -> AttributeContext | None:
        bracket = self._skip_blanks(self.string) - 1
        if not self.opened or bracket != self.opened[-1][0] or self.text[bracket] != "[":
            return None
        path = self._path(bracket)
        return None if path is None else self._found("key", path, self.text[self.string + 1 :])

    def _call(self) -> AttributeContext | None:
        if not self.opened or self.text[self.opened[-1][0]] != "(":
            return None
        opened, *commas = self.opened[-1]
        path = self._path(opened)
        if not path:
            return None
        edges = [opened, *commas]
        before = [self._code(start + 1, end) for start, end in zip(edges, commas, strict=False)]
        given = [match[1] if (match := _KEYWORD.match(part)) else None for part in before]
        names = tuple(name for name in given if name)
        positional = sum(
            1
            for part, name in zip(before, given, strict=True)
            if name is None and part.strip() and not part.lstrip().startswith("*")
        )
        kind, argument, partial = self._at_cursor(edges[-1] + 1)
        return kind and self._found(kind, path, partial, argument, names, positional, _literals(before))

    def _at_cursor(self, start: int) -> tuple[Literal["argument", "value"] | None, str, str]:
        """The kind, argument and typed part of the argument that begins at `start`."""
        if self.string >= 0:
            head, partial = self._code(start, self.string), self.text[self.string + 1 :]
            match = _VALUE.fullmatch(head)
            if match and not match[2]:
                return "value", match[1], partial
            return ("value", "", partial) if not head.strip() else (None, "", "")
        code = self._code(start, len(self.text))
        if match := _ARGUMENT.fullmatch(code):
            return "argument", "", match[1]
        if match := _VALUE.fullmatch(code):
            return "value", match[1], match[2]
        return None, "", ""

    def _found(
        self,
        kind: Literal["attribute", "key", "argument", "value"],
        path: tuple[Step, ...],
        partial: str,
        argument: str = "",
        given: tuple[str, ...] = (),
        positional: int = 0,
        literals: tuple[tuple[int | str, str], ...] = (),
    ) -> AttributeContext:
        start = self.offset + len(self.text) - len(partial)
        quote = self.text[self.string] if self.string >= 0 else ""
        return AttributeContext(kind, path, partial, start, argument, given, positional, quote, literals)

    def _code(self, start: int, end: int) -> str:
        """The text of a range without its comments."""
        parts: list[str] = []
        for opened, closed in self.comments:
            if start <= opened and closed <= end:
                parts.append(self.text[start:opened])
                start = closed
        return "".join(parts) + self.text[start:end]

    def _path(self, end: int, *, may_call: bool = False) -> tuple[Step, ...] | None:
        """The steps of the expression that ends here, read backwards to the namespace; None where it is not ours."""
        steps: list[Step] = []
        while end > 0:
            end = self._skip_blanks(end)
            is_call = self.text[end - 1 : end] == ")"
            if is_call:
                end = self._skip_blanks(self.pairs.get(end - 1, 0))
            if self.text[end - 1 : end] == "]":
                opened = self.pairs.get(end - 1, 0)
                key = _LITERAL.fullmatch(self.text, opened + 1, end - 1)
                if key is None or (is_call and (steps or not may_call)):
                    return None
                steps.append(Step(key[2], item=True, called=is_call))
                end = opened
                continue
            start = self._word_start(end)
            name, before = self.text[start:end], self._skip_blanks(start)
            is_options = is_call and name == "options"
            if not name.isidentifier() or (is_call and not is_options and (steps or not may_call)):
                return None
            if not self.text.endswith(".", 0, before):
                return tuple(reversed(steps)) if name == self.namespace and not is_call else None
            if not is_options:
                steps.append(Step(name, called=is_call))
            end = before - 1
        return None

    def _word_start(self, end: int) -> int:
        while end and (self.text[end - 1].isalnum() or self.text[end - 1] == "_"):
            end -= 1
        return end

    def _skip_blanks(self, end: int) -> int:
        while end and self.text[end - 1].isspace():
            end -= 1
        return end


def _literals(arguments: list[str]) -> tuple[tuple[int | str, str], ...]:
    found: list[tuple[int | str, str]] = []
    for at, argument in enumerate(arguments):
        keyword = _KEYWORD.match(argument)
        literal = _LITERAL.fullmatch(argument, keyword.end() if keyword else 0)
        if literal:
            found.append((keyword[1] if keyword else at, literal[2]))
    return tuple(found)

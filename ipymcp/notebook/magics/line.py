r"""A `%mcp` line cut into words. Not shlex: `args={"a": 1}`, `C:\data` and `where=it's` are what people type.

- Words are separated by blanks. A word may be `key=value`; the key is what stands before the first `=`.
- Quotes count only where a value starts: at the start of a word, or right after `key=`. A quoted value ends at the next
  such quote; the quote itself is written twice inside (`'it''s'`). A backslash is always literal.
- In an unquoted value, brackets balance, so blanks inside `{}`, `[]` and `()` belong to the word. Strings inside
  brackets are JSON's or Python's: there a backslash does escape. A closing bracket with nothing open is text.
- A word that begins with `{` takes the rest of the line as it stands: the raw arguments of a call.
- ` #` after a blank begins a comment. One `;` at the very end is dropped and makes the line silent.
- The first bare `--` ends the words; what follows is a command. There brackets mean nothing and quotes work as above.
"""

from __future__ import annotations

import re

from msgspec import Struct

__all__ = ["Line", "LineError", "PartialLine", "Word", "is_silent", "tokenize", "tokenize_partial"]

_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = frozenset(_BRACKETS.values())
_KEY = re.compile(r"""[^\s'"()\[\]{}=,;/\\?&#<>|*]+=""")
_LAST_SEMICOLON = re.compile(r";(?:\s*$|\s+#)")
_BLANK_REST = re.compile(r"\s*;?\s*$|(?:\s*;)?\s+#")
_STRING = re.compile(r"""(['"])(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
_SNIPPET = 24


class LineError(ValueError):
    """The line is mistyped.

    Args:
        message: What is wrong, in one line.
        position: Where, as an index into the line.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class Word(Struct, frozen=True):
    """One word of a line; `line[word.start:word.end] == word.raw`."""

    raw: str
    """As typed, quotes included."""
    start: int
    end: int
    value: str
    """What stands after `key=`, or the whole word where there is no key; without its quotes."""
    key: str | None = None
    quoted: str = ""
    """The quote round the value: `'`, `"` or nothing."""

    @property
    def text(self) -> str:
        """The whole word without quotes."""
        return self.value if self.key is None else f"{self.key}={self.value}"

    @property
    def is_body(self) -> bool:
        """Whether this is the raw rest of a line that begins with `{`."""
        return self.raw.startswith("{")


class Line(Struct, frozen=True):
    """A line, cut up."""

    words: tuple[Word, ...]
    command: tuple[Word, ...] | None = None
    """The words after the first bare `--`; None where there is none."""
    silent: bool = False
    """Whether the line ended in `;`."""

    @property
    def argv(self) -> list[str]:
        """The command's words as plain text; empty where there is no command."""
        return [word.text for word in self.command or ()]


class PartialLine(Struct, frozen=True):
    """A line that is still being typed: the finished words, and the one at the cursor."""

    words: tuple[Word, ...]
    last: Word
    """The word at the cursor, perhaps empty, its quote or bracket perhaps still open."""
    in_command: bool
    """Whether the cursor is after a bare `--`."""


def tokenize(line: str) -> Line:
    """Cut a line into words by the rules above.

    Raises:
        LineError: A quote or bracket is not closed, or text touches a closing quote.
    """
    scanner = _Scanner(line)
    words: list[Word] = []
    command: list[Word] | None = None
    while (word := scanner.read()) is not None:
        if command is not None:
            command.append(word)
        elif word.raw == "--":
            command, scanner.in_command = [], True
        else:
            words.append(word)
    return Line(tuple(words), None if command is None else tuple(command), scanner.silent)


def is_silent(line: str) -> bool:
    """Whether a line ends in the `;` that silences it; False for one that is mistyped."""
    try:
        return tokenize(line).silent
    except LineError:
        return False


def tokenize_partial(line: str) -> PartialLine | None:
    """Cut a line whose end is the cursor; None inside a comment.

    Never raises: what is still open belongs to the last word.
    """
    scanner = _Scanner(line)
    words: list[Word] = []
    last = Word("", len(line), len(line), "")
    try:
        while (word := scanner.read()) is not None:
            if word.end == len(line):
                last = word
            elif word.raw == "--" and not scanner.in_command:
                scanner.in_command = True
            else:
                words.append(word)
    except LineError:
        last = scanner.unfinished()
    return None if scanner.in_comment else PartialLine(tuple(words), last, scanner.in_command)


class _Scanner:
    """Reads one word after the other."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.position = 0
        self.start = 0
        self.in_command = False
        self.in_comment = False
        self.silent = False

    def read(self) -> Word | None:
        """The next word, or None at the end."""
        line, start = self.line, self.position
        while start < len(line) and line[start].isspace():
            start += 1
        self.start = self.position = start
        self.in_comment = line.startswith("#", start)
        self.silent = _LAST_SEMICOLON.match(line, start) is not None
        if start == len(line) or self.in_comment or self.silent:
            return None
        key, at = self._key()
        quoted = line[at : at + 1] if line.startswith(("'", '"'), at) else ""
        if quoted:
            value, stop = self._quoted(at, quoted)
        else:
            is_body = key is None and line[at] == "{" and not self.in_command
            stop = self._plain(at, to_end=is_body)
            value = line[at:stop]
        self.position = stop
        return Word(line[start:stop], start, stop, value, key, quoted)

    def unfinished(self) -> Word:
        """The word that `read` could not end, up to the end of the line."""
        key, at = self._key()
        quoted = self.line[at] if self.line[at] in "'\"" else ""
        value = self.line[at + len(quoted) :]
        if quoted:
            value = value.replace(quoted * 2, quoted)
        return Word(self.line[self.start :], self.start, len(self.line), value, key, quoted)

    def _key(self) -> tuple[str | None, int]:
        match = _KEY.match(self.line, self.start)
        return (match.group()[:-1], match.end()) if match else (None, self.start)

    def _quoted(self, at: int, quote: str) -> tuple[str, int]:
        """The quoted value that starts here, and where it ends."""
        line = self.line
        close = line.find(quote, at + 1)
        while close >= 0 and line.startswith(quote, close + 1):
            close = line.find(quote, close + 2)
        if close < 0:
            raise self._not_closed(at, "quote")
        if not self._is_word_end(close + 1):
            raise LineError(
                f"text touches the closing quote at column {close + 1}: {self._snippet(at)} "
                f"(inside quotes, write {quote} twice)",
                close,
            )
        return line[at + 1 : close].replace(quote * 2, quote), close + 1

    def _plain(self, at: int, *, to_end: bool) -> int:
        """Where the unquoted value that starts here ends; with `to_end`, blanks do not end it."""
        opened: list[int] = []
        while at < len(self.line):
            char = self.line[at]
            if not opened and (self._is_rest_blank(at) if to_end else self._is_word_end(at)):
                break
            if not self.in_command:
                if char in _BRACKETS:
                    opened.append(at)
                elif opened and char in "'\"":
                    at = self._string_end(at)
                elif opened and char in _CLOSERS:
                    self._check_pair(opened.pop(), at)
            at += 1
        if opened:
            raise self._not_closed(opened[-1], "bracket")
        return at

    def _is_word_end(self, at: int) -> bool:
        return at >= len(self.line) or self.line[at].isspace() or _LAST_SEMICOLON.match(self.line, at) is not None

    def _is_rest_blank(self, at: int) -> bool:
        return _BLANK_REST.match(self.line, at) is not None

    def _string_end(self, at: int) -> int:
        """The closing quote of a JSON or Python string inside brackets."""
        match = _STRING.match(self.line, at)
        if match is None:
            raise self._not_closed(at, "quote")
        return match.end() - 1

    def _check_pair(self, opened: int, closed: int) -> None:
        if _BRACKETS[self.line[opened]] != self.line[closed]:
            raise LineError(
                f"{self.line[closed]} at column {closed + 1} does not close "
                f"the {self.line[opened]} opened at column {opened + 1}: {self._snippet(opened)}",
                closed,
            )

    def _not_closed(self, at: int, what: str) -> LineError:
        return LineError(f"the {what} opened at column {at + 1} is not closed: {self._snippet(at)}", at)

    def _snippet(self, at: int) -> str:
        rest = self.line[at:].rstrip()
        return rest if len(rest) <= _SNIPPET else rest[:_SNIPPET] + "…"

"""The syntax of `%mcp` lines: words, options and subcommands.

- Words are separated by blanks. A word may be `key=value`; the key is the part before the first `=`.
- Quotes are only special where a value starts: at the start of a word, or right after `key=`. A quoted value ends at
  the next such quote; inside, the quote itself is written twice (`'it''s'`). A backslash is always literal.
- In an unquoted value, brackets are balanced, and blanks inside `{}`, `[]` and `()` belong to the word. Strings inside
  brackets are JSON or Python strings, in which a backslash escapes. An unmatched closing bracket is text.
- A word that begins with `{` takes the rest of the line unchanged: the raw arguments of a call.
- ` #` after a blank begins a comment. One `;` at the very end is dropped and makes the line silent.
- The first bare `--` ends the words. A command follows, in which brackets are not special and quotes work as above.

Options may appear anywhere among the words; a quoted word or a negative number is never an option.
"""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field, structs

from ipymcp.api.sync_and_async import host_of
from ipymcp.names import nearest
from ipymcp.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from ipymcp.api.namespace import Mcp
    from ipymcp.notebook.display import PanelDisplay
    from ipymcp.notebook.settings import IPyMCP
    from ipymcp.runtime.host import Host


_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_CLOSERS = frozenset(_BRACKETS.values())
_KEY = re.compile(r"""[^\s'"()\[\]{}=,;/\\?&#<>|*]+=""")
_LAST_SEMICOLON = re.compile(r";(?:\s*$|\s+#)")
_BLANK_REST = re.compile(r"\s*+;?\s*+$|(?:\s*+;)?\s++#")
_STRING = re.compile(r"""(['"])(?:\\.|(?!\1)[^\\])*+\1""", re.DOTALL)
_SNIPPET = 24


class LineError(ValueError):
    """A `%mcp` line is invalid.

    Args:
        message: The problem, in one line.
        position: The index of the problem in the line.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


class Word(Struct, frozen=True):
    """One word of a line; `line[word.start:word.end] == word.raw`."""

    raw: str
    """The word as typed, with quotes."""
    start: int
    end: int
    value: str
    """The part after `key=`, or the whole word if there is no key; without quotes."""
    key: str | None = None
    quoted: str = ""
    """The quote around the value: `'`, `"` or empty."""

    @property
    def text(self) -> str:
        """The whole word without quotes."""
        return self.value if self.key is None else f"{self.key}={self.value}"

    @property
    def is_body(self) -> bool:
        """Whether this is the raw rest of a line, which begins with `{`."""
        return self.raw.startswith("{")


class MagicLine(Struct, frozen=True):
    """The words of a line."""

    words: tuple[Word, ...]
    command: tuple[Word, ...] | None = None
    """The words after the first bare `--`; None if there is none."""
    silent: bool = False
    """Whether the line ended in `;`."""

    @property
    def argv(self) -> list[str]:
        """The command's words as strings; empty if there is no command."""
        return [word.text for word in self.command or ()]


class PartialLine(Struct, frozen=True):
    """An unfinished line: the finished words and the word at the cursor."""

    words: tuple[Word, ...]
    last: Word
    """The word at the cursor. It may be empty, or have an open quote or bracket."""
    in_command: bool
    """Whether the cursor is after a bare `--`."""


def tokenize(line: str) -> MagicLine:
    """Split a line into words.

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
    return MagicLine(tuple(words), None if command is None else tuple(command), scanner.silent)


def is_silent(line: str) -> bool:
    """Whether a line ends in the `;` that silences it; False for an invalid line."""
    try:
        return tokenize(line).silent
    except LineError:
        return False


def tokenize_partial(line: str) -> PartialLine | None:
    """Split a line that ends at the cursor; None inside a comment. Open quotes and brackets are not errors."""
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
    """Reads the words of a line."""

    def __init__(self, line: str) -> None:
        self.line = line
        self.position = 0
        self.start = 0
        self.in_command = False
        self.in_comment = False
        self.silent = False

    def read(self) -> Word | None:
        """Read the next word; None at the end."""
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
            stop = self._unquoted_end(at, to_end=is_body)
            value = line[at:stop]
        self.position = stop
        return Word(line[start:stop], start, stop, value, key, quoted)

    def unfinished(self) -> Word:
        """Return the word that `read` could not finish."""
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
        """The quoted value that starts here, and its end."""
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

    def _unquoted_end(self, at: int, *, to_end: bool) -> int:
        """The end of the unquoted value that starts here; with `to_end`, blanks do not end it."""
        opened: list[int] = []
        while at < len(self.line):
            char = self.line[at]
            if not opened and (_BLANK_REST.match(self.line, at) if to_end else self._is_word_end(at)):
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

    def _not_closed(self, at: int, kind: str) -> LineError:
        return LineError(f"the {kind} opened at column {at + 1} is not closed: {self._snippet(at)}", at)

    def _snippet(self, at: int) -> str:
        return cut(self.line[at:].rstrip(), _SNIPPET)


Kind: TypeAlias = (
    Literal["server", "configured", "loadable", "tool", "tool-name", "resource", "prompt", "setting", "call", "secret"]
    | Literal["trusted", "source-host", "target-host", "word", "variable", "folder", "file", ""]
)
"""The kind of a word. `server`: a loaded server; `configured`: also a server in a discovered file; `loadable`: also a
config file; `setting`: a key of a definition; `word`: a subcommand; `variable`: a Python name; empty: unknown or
new."""
_OPTION = re.compile(r"--[A-Za-z]|-[A-Za-z](?=$|=|\d)")
_OTHER_OPTIONS: dict[str, dict[str, str]] = {
    "": {
        **dict.fromkeys(
            ("-o", "--output", "--save"), "r = %mcp {word} … keeps the result, and Python writes it to a file"
        ),
        **dict.fromkeys(("--json", "--raw", "--format"), "r = %mcp {word} … keeps what a line shows: r.df is a table"),
        **dict.fromkeys(("-v", "--verbose", "--debug"), "%mcp logs shows what servers write"),
    },
    "--level": dict.fromkeys(("-f", "--follow"), "new lines show in the panel as they come: %mcp panel"),
    "--env": {
        "--name": "a name comes first: %mcp {word} NAME …",
        **dict.fromkeys(("--token", "--auth", "--bearer"), "write --header 'Authorization: Bearer ${{TOKEN}}'"),
        "--url": "an address has no option: %mcp {word} NAME URL",
        **dict.fromkeys(("--command", "--args"), "a command follows --: %mcp {word} NAME -- COMMAND ARG…"),
    },
}
"""Hints for options of other programs, for every subcommand and for those with a certain option."""
_OPERATORS = re.compile(r"\d?[<>]|[&|]")
_SEPARATORS = frozenset({"&", "&&", "||"})
_LEADING = re.compile(r"\s*(--?[A-Za-z][A-Za-z-]*)(?=[\s=]|$)")
_VALUE = re.compile(r"""(?:=|\s++)(?:"(?:[^"]|"")*+"|'(?:[^']|'')*+'|\S+)""")
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


def in_quotes(key: str, value: str) -> str:
    """Write an argument of a line, in quotes if its value has blanks or quotes."""
    if not re.search(r"[\s'\"]", value) or (value[:1] in ("'", '"') and value[-1:] == value[0] and len(value) > 1):
        return f"{key}={value}"
    return f"{key}='{value}'" if '"' in value else f'{key}="{value}"'


def value_with_blanks(words: Sequence[Word], index: int) -> str:
    """Write the argument of a word with the words that follow it up to the next argument as its value."""
    word = words[index]
    rest = takewhile(lambda other: other.key is None, words[index + 1 :])
    return in_quotes(word.key or "", " ".join([word.value, *(other.raw for other in rest)]))


class Option(Struct, frozen=True):
    """One option.

    Args:
        name: The name with its dashes: `--timeout` or `-n`.
        value: The placeholder for the value in messages, such as `S`; empty for a flag.
        help: The description below the subcommand's help; empty if that help explains the option.
        choices: The allowed values; empty if any value is allowed.
        number: Whether the value must be a non-negative number.
        positive: Whether the number must be greater than 0.
        repeats: Whether the option may be repeated.
        takes: The kind of the value.
        also: The names of the option in other programs, which are accepted.
    """

    name: str
    value: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    number: bool = False
    positive: bool = False
    repeats: bool = False
    takes: Kind = ""
    also: tuple[str, ...] = ()


class Parsed(Struct, frozen=True):
    """The parsed words of a subcommand."""

    names: tuple[Word, ...]
    """The words that are neither options nor values of options."""
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def has(self, option: str) -> bool:
        """Whether the option was given."""
        return option in self.values

    def text(self, option: str) -> str | None:
        """The option's value; None if it was not given."""
        return self.values[option][-1] if option in self.values else None

    def number(self, option: str) -> float | None:
        """The value of a numeric option; None if it was not given."""
        text = self.text(option)
        return None if text is None else float(text)

    def texts(self, option: str) -> list[str]:
        """All values of a repeatable option, in order."""
        return list(self.values.get(option, ()))


class Syntax(Struct, frozen=True):
    """The syntax of a subcommand.

    Args:
        usage: The usage line shown in errors: `stop NAME… | --all`.
        options: The options.
        at_least: Minimum number of names.
        missing: The message if there are fewer.
        at_most: Maximum number of names; None for no limit.
        instead: A flag that replaces the names: exactly one of the two must be given.
        takes: The kinds of the names by position; the last kind applies to all further names.
        arguments: Whether `key=value` arguments may follow, for the name in the last of those positions.
        actions: The words allowed in first position, each with the syntax of the rest; required unless `takes` is
            given.
        synonyms: Alternative words for actions.
    """

    usage: str
    options: tuple[Option, ...] = ()
    at_least: int = 0
    missing: str = "something is missing;"
    at_most: int | None = None
    instead: str | None = None
    takes: tuple[Kind, ...] = ()
    arguments: bool = False
    actions: Mapping[str, Syntax] = field(default_factory=dict[str, "Syntax"])
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def all_options(self) -> dict[str, Option]:
        """All options by name, including those of the actions."""
        of_actions = (option for action in self.actions.values() for option in action.options)
        return {option.name: option for option in (*self.options, *of_actions)}

    @property
    def options_with_value(self) -> dict[str, Option]:
        """All options that take a value, by each of their names."""
        valued = (option for option in self.all_options.values() if option.value)
        return {name: option for option in valued for name in (option.name, *option.also)}

    @property
    def word(self) -> str:
        """The subcommand."""
        return self.usage.partition(" ")[0]

    def parse(self, words: Sequence[Word]) -> Parsed:
        """Parse a subcommand's words, without the subcommand itself.

        Raises:
            LineError: An action or option is unknown, an option's value is missing or invalid, or the number of names
                is wrong.
        """
        end = words[-1].end if words else 0
        first = next(iter(names_among(words, self.options_with_value)), None) if self.actions else None
        if first is not None and first.text in self.synonyms:
            action = structs.replace(first, value=self.synonyms[first.text])
            words = [action if word is first else word for word in words]
            first = action
        if first is not None and first.text not in self.actions:
            following = names_among(words, self.options_with_value)[1:]
            if len(following) == 1 and following[0].text in self.actions:
                line = f"%mcp {self.word} {following[0].raw} {first.raw}"
                raise LineError(f"{following[0].raw} comes first: {line}", following[0].start)
        if first is None or (self.takes and first.text not in self.actions):
            return self._parse(words, end)
        if first.text not in self.actions:
            hint = nearest(first.text, self.actions, limit=1) or f"there are {', '.join(self.actions)}"
            raise LineError(f"there is no %mcp {self.word} {first.raw}; {hint}", first.start)
        parsed = self.actions[first.text]._parse([word for word in words if word is not first], end)
        return Parsed((first, *parsed.names), parsed.values)

    def _parse(self, words: Sequence[Word], end: int) -> Parsed:
        parsed = Parsed((), {})
        names: list[Word] = []
        rest = iter(words)
        for word in rest:
            if word.key is None and _OPERATORS.match(word.raw):
                at = words.index(word)
                compared = next(iter(words[at + 1 :]), None) if self.arguments and word.raw[0] in "<>" and at else None
                if compared is not None and words[at - 1].key and (compared.quoted or _NUMBER.fullmatch(compared.raw)):
                    problem = f"{word.raw} is outside the value, which has blanks"
                    raise LineError(f"{problem}: write {value_with_blanks(words, at - 1)}", word.start)
                line = f"r = %mcp {self.word} … keeps the result, for Python"
                instead = "write a line for each command" if word.raw in _SEPARATORS else line
                raise LineError(f"{word.raw} is for a shell; {instead}", word.start)
            if not _looks_like_option(word):
                names.append(word)
                continue
            option, text = self._option(word, words)
            if option.value and text is None:
                following = next(rest, None)
                if following is None or _looks_like_option(following):
                    raise LineError(f"{option.name} needs a value: {option.name} {option.value}", word.start)
                text = following.text
            elif not option.value and text is not None:
                raise LineError(f"{option.name} takes no value", word.start)
            self._keep(parsed, option, text or "", word)
        self._check_count(parsed, names, end)
        return Parsed(tuple(names), parsed.values)

    def _option(self, word: Word, words: Sequence[Word]) -> tuple[Option, str | None]:
        """The option of a word, and its value if that is in the word: `--level=info`, `-n5`."""
        name, text = (word.text, None) if word.key is None else (word.key, word.value)
        if text is None and not name.startswith("--") and name[2:]:
            name, text = name[:2], name[2:]
        for option in self.options:
            if name in (option.name, *option.also):
                return option, text
        plain, own = name.lstrip("-"), {option.name.lstrip("-"): option.name for option in self.options}
        others = (_OTHER_OPTIONS.get(each, {}).get(name) for each in ("", *own.values()))
        if near := re.search("'(.+)'", nearest(plain, own, limit=1)):
            hint = f"did you mean {own[near[1]]!r}?"
        elif self.arguments and name.startswith("--"):
            following = next((each for each in words if each.start >= word.end), None)
            value = word.raw.partition("=")[2] or (following.raw if following is not None else "VALUE")
            hint = f"an argument is written {plain}={value}"
        else:
            hint = next(filter(None, others), "usage: %mcp {usage}").format(word=self.word, usage=self.usage)
        raise LineError(f"there is no option {name}; {hint}", word.start)

    def _keep(self, parsed: Parsed, option: Option, text: str, word: Word) -> None:
        if option.choices and text not in option.choices:
            raise LineError(f"{option.name} is one of {', '.join(option.choices)}, not {text!r}", word.start)
        if option.takes == "variable" and not text.isidentifier():
            raise LineError(f"{option.name} needs a Python name, not {text!r}", word.start)
        if option.number and not (_NUMBER.fullmatch(text) and math.isfinite(float(text))):
            raise LineError(f"{option.name} needs a number, not {text!r}", word.start)
        if option.positive and not float(text):
            raise LineError(f"{option.name} needs a number greater than 0", word.start)
        values = parsed.values.setdefault(option.name, [])
        if values and not option.repeats:
            raise LineError(f"{option.name} is given twice", word.start)
        values.append(text)

    def _check_count(self, parsed: Parsed, names: Sequence[Word], end: int) -> None:
        if self.instead is not None and parsed.has(self.instead) == bool(names):
            correction = "not both" if names else "one of the two"
            raise LineError(f"give names or {self.instead}, {correction}; usage: %mcp {self.usage}", end)
        if len(names) < self.at_least:
            raise LineError(f"{self.missing} usage: %mcp {self.usage}", end)
        if self.at_most is not None and len(names) > self.at_most:
            surplus = names[self.at_most]
            if surplus.raw.isdecimal() and any(option.name == "-n" for option in self.options):
                raise LineError(f"{surplus.raw} is one too many; did you mean -n {surplus.raw}?", surplus.start)
            raise LineError(f"{surplus.raw} is one too many; usage: %mcp {self.usage}", surplus.start)


def names_among(words: Sequence[Word], options_with_value: Collection[str]) -> list[Word]:
    """The words of an unfinished line that are neither options nor values of the options in `options_with_value`."""
    names: list[Word] = []
    is_value = False
    for word in words:
        if is_value:
            is_value = False
        elif _looks_like_option(word):
            is_value = word.raw in options_with_value
        else:
            names.append(word)
    return names


def _looks_like_option(word: Word) -> bool:
    return not (word.quoted and word.key is None) and _OPTION.match(word.raw) is not None


def split_text(syntax: Syntax, line: str) -> tuple[str, str]:
    """Split a line into its leading options and the unchanged text after them."""
    end, options = 0, syntax.all_options | syntax.options_with_value
    while match := _LEADING.match(line, end):
        option = options.get(match[1])
        value = _VALUE.match(line, match.end()) if option is None or option.value else None
        if option is None and not match[1].startswith("--"):
            break
        end = value.end() if value and option else match.end()
    return line[:end], line[end:].strip()


def split_pasted(syntax: Syntax, line: str) -> tuple[str, str]:
    """Split a line into its beginning and the command or link of another host that follows, unchanged.

    The second part is empty if there is no such text.
    """
    from ipymcp.config.pasted import is_foreign_command  # not at %load_ext

    word, _, rest = line.strip().partition(" ")
    action = syntax.actions.get(syntax.synonyms.get(word, word))
    if action is not None:
        options, text = split_text(action, rest)
        options = f"{word} {options}"
    else:
        options, text = split_text(syntax, line)
    if not is_foreign_command(text):
        return line, ""
    silent = text.rstrip().endswith(";")
    return (f"{options} ;", text.rstrip()[:-1]) if silent else (options, text)


class MagicRequest(Struct, frozen=True):
    """A parsed `%mcp` line and its notebook."""

    word: str
    words: Sequence[Word]
    """The words after the subcommand."""
    parsed: Parsed
    """The words parsed by the command's syntax; empty if the command parses them itself."""
    line: MagicLine
    cell: str | None
    """The body of a `%%mcp` cell; None for a `%mcp` line."""
    mcp: Mcp
    display: PanelDisplay
    ip: Any
    """The IPython shell."""
    settings: IPyMCP
    namespaces: tuple[Mapping[str, Any], ...]
    """The namespaces in which names of the notebook are looked up, innermost first."""
    text: str = ""
    """The text after the options, if the command takes text, or a pasted command or link follows them."""

    @property
    def host(self) -> Host:
        """The host of `mcp`."""
        return host_of(self.mcp)

    @property
    def names(self) -> list[str]:
        """The words that are not options, as strings."""
        return [word.text for word in self.parsed.names]

    @property
    def is_quiet(self) -> bool:
        """Whether to show no progress and notices."""
        return self.line.silent or self.settings.quiet

    def report(self, text: str) -> None:
        """Print the outcome in one line, unless the request is quiet."""
        if not self.is_quiet:
            print(one_line(text))  # noqa: T201 - the command's answer


class Command(Struct, frozen=True):
    """A subcommand: its syntax and implementation.

    Args:
        syntax: The syntax.
        run: The implementation.
        text: The help, whose first line is the summary; by default the implementation's docstring.
    """

    syntax: Syntax
    run: Callable[[MagicRequest], Any]
    text: str = ""
    takes_cell: bool = False
    takes_command: bool = False
    """Whether `-- COMMAND ARG…` may follow."""
    takes_text: bool = False
    """Whether unchanged text follows the options."""
    takes_pasted: bool = False
    """Whether the command or link of another host may follow the options unchanged."""

    @property
    def summary(self) -> str:
        """The first line of the help."""
        return (self.text or self.run.__doc__ or "").partition("\n")[0]

    @property
    def help(self) -> str:
        """The usage, the text and the options."""
        options = [option for option in self.syntax.all_options.values() if option.help]
        width = max((len(f"{option.name} {option.value}") for option in options), default=0)
        rows = [
            textwrap.fill(
                option.help,
                110,
                initial_indent="    " + f"{option.name} {option.value}".ljust(width + 2),
                subsequent_indent=" " * (width + 6),
            )
            for option in options
        ]
        parts = [f"%mcp {self.syntax.usage}", self.text or inspect.cleandoc(self.run.__doc__ or ""), "\n".join(rows)]
        return "\n\n".join(filter(None, parts))

"""The options of a subcommand, declared and read. Not argparse: no abbreviations, no help pages, no exit.

An option may stand anywhere among the words; one in quotes is never an option, nor is a negative number.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct, field, structs

from ipymcp.notebook.magics.line import LineError, Word
from ipymcp.runtime.names import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["Kind", "Option", "Parsed", "Syntax", "names_among", "split_text"]

_OfServers: TypeAlias = Literal[
    "server", "configured", "loadable", "tool", "tool-name", "resource", "prompt", "setting"
]
Kind: TypeAlias = (
    _OfServers | Literal["call", "secret", "trusted", "source-host", "target-host", "word", "folder", "file", ""]
)
"""What a word names. `server`: one that is here; `configured`: or in a file that is found; `loadable`: or a
config file; `setting`: a key of a definition; `word`: of `%mcp`; empty: something new, or nothing known."""
_OPTION = re.compile(r"--[A-Za-z]|-[A-Za-z]$")
_LEADING = re.compile(r"\s*(--?[A-Za-z][A-Za-z-]*)(?=[\s=]|$)")
_VALUE = re.compile(r"""(?:=|\s+)(?:"(?:[^"]|"")*"|'(?:[^']|'')*'|\S+)""")
_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


class Option(Struct, frozen=True):
    """One option.

    Args:
        name: With its dashes: `--timeout` or `-n`.
        value: What its value is called in messages, such as `S`; empty for a flag.
        choices: The values it takes; empty for any.
        number: Whether the value must be a number, not below zero.
        repeats: Whether it may come more than once.
        takes: What its value names.
    """

    name: str
    value: str = ""
    choices: tuple[str, ...] = ()
    number: bool = False
    repeats: bool = False
    takes: Kind = ""


class Parsed(Struct, frozen=True):
    """What stood on a line."""

    names: tuple[Word, ...]
    """The words that are no options and no options' values."""
    values: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def has(self, option: str) -> bool:
        """Whether the option was given."""
        return option in self.values

    def text(self, option: str) -> str | None:
        """The option's value; None where it was not given."""
        return self.values[option][-1] if option in self.values else None

    def number(self, option: str) -> float | None:
        """The value of an option declared as a number; None where it was not given."""
        text = self.text(option)
        return None if text is None else float(text)

    def texts(self, option: str) -> list[str]:
        """Every value of a repeatable option, in order."""
        return list(self.values.get(option, ()))


class Syntax(Struct, frozen=True):
    """What a subcommand takes.

    Args:
        usage: How to write it, shown in errors: `stop NAME… | --all`.
        options: Its options.
        at_least: How many names it needs.
        at_most: How many it takes; None for any number.
        instead: A flag that stands in for the names: exactly one of the two must be there.
        takes: What the names are, by place, the last of them for all further ones.
        arguments: Whether `key=value` may follow, for what the last of those places names.
        actions: Words that may stand first, each with the syntax of what follows it; nothing else may where it takes
            nothing.
        synonyms: Words that are understood as one of those.
    """

    usage: str
    options: tuple[Option, ...] = ()
    at_least: int = 0
    at_most: int | None = None
    instead: str | None = None
    takes: tuple[Kind, ...] = ()
    arguments: bool = False
    actions: Mapping[str, Syntax] = field(default_factory=dict[str, "Syntax"])
    synonyms: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def every(self) -> dict[str, Option]:
        """The options by name, those of the actions too."""
        of_actions = (option for action in self.actions.values() for option in action.options)
        return {option.name: option for option in (*self.options, *of_actions)}

    @property
    def valued(self) -> dict[str, Option]:
        """Those of them that take a value."""
        return {name: option for name, option in self.every.items() if option.value}

    def parse(self, words: Sequence[Word]) -> Parsed:
        """Read a subcommand's words, without the subcommand itself.

        Raises:
            LineError: An action or option is unknown, an option's value is missing or wrong, or there are too few or
                too many names.
        """
        end = words[-1].end if words else 0
        first = next(iter(names_among(words, self.valued)), None) if self.actions else None
        if first is not None and first.text in self.synonyms:
            meant = structs.replace(first, value=self.synonyms[first.text])
            words = [meant if word is first else word for word in words]
            first = meant
        if first is None or (self.takes and first.text not in self.actions):
            return self._parse(words, end)
        if first.text not in self.actions:
            hint = nearest(first.text, self.actions, limit=1) or f"there are {', '.join(self.actions)}"
            raise LineError(f"there is no %mcp {self.usage.partition(' ')[0]} {first.raw}; {hint}", first.start)
        parsed = self.actions[first.text]._parse([word for word in words if word is not first], end)
        return Parsed((first, *parsed.names), parsed.values)

    def _parse(self, words: Sequence[Word], end: int) -> Parsed:
        parsed = Parsed((), {})
        names: list[Word] = []
        rest = iter(words)
        for word in rest:
            if not _looks_like_option(word):
                names.append(word)
                continue
            option, text = self._option(word)
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

    def _option(self, word: Word) -> tuple[Option, str | None]:
        name, text = (word.text, None) if word.key is None else (word.key, word.value)
        for option in self.options:
            if option.name == name:
                return option, text
        known = [option.name for option in self.options]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"usage: %mcp {self.usage}"
        raise LineError(f"there is no option {name}; {hint}", word.start)

    def _keep(self, parsed: Parsed, option: Option, text: str, word: Word) -> None:
        if option.choices and text not in option.choices:
            raise LineError(f"{option.name} is one of {', '.join(option.choices)}, not {text!r}", word.start)
        if option.number and not (_NUMBER.fullmatch(text) and math.isfinite(float(text))):
            raise LineError(f"{option.name} needs a number, not {text!r}", word.start)
        values = parsed.values.setdefault(option.name, [])
        if values and not option.repeats:
            raise LineError(f"{option.name} is given twice", word.start)
        values.append(text)

    def _check_count(self, parsed: Parsed, names: Sequence[Word], end: int) -> None:
        if self.instead is not None and parsed.has(self.instead) == bool(names):
            which = "not both" if names else "one of the two"
            raise LineError(f"give names or {self.instead}, {which}; usage: %mcp {self.usage}", end)
        if len(names) < self.at_least:
            raise LineError(f"something is missing; usage: %mcp {self.usage}", end)
        if self.at_most is not None and len(names) > self.at_most:
            surplus = names[self.at_most]
            raise LineError(f"{surplus.raw} is one too many; usage: %mcp {self.usage}", surplus.start)


def names_among(words: Sequence[Word], valued: Collection[str]) -> list[Word]:
    """The words of an unfinished line that are no options and no values of options.

    Args:
        words: The line's.
        valued: The options that take a value.
    """
    names: list[Word] = []
    is_value = False
    for word in words:
        if is_value:
            is_value = False
        elif _looks_like_option(word):
            is_value = word.raw in valued
        else:
            names.append(word)
    return names


def _looks_like_option(word: Word) -> bool:
    return not (word.quoted and word.key is None) and _OPTION.match(word.raw) is not None


def split_text(syntax: Syntax, line: str) -> tuple[str, str]:
    """The options that a line begins with, and the text after them as it stands."""
    end = 0
    while match := _LEADING.match(line, end):
        option = syntax.every.get(match[1])
        value = _VALUE.match(line, match.end()) if option is None or option.value else None
        if option is None and not match[1].startswith("--"):
            break
        end = value.end() if value and option else match.end()
    return line[:end], line[end:].strip()

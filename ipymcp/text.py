"""Safe text output: everything that ipymcp prints, raises, completes or shows passes through one of these functions.

Untrusted text (from servers, config files, web pages, models) is shown with its control characters visible: no terminal
escape takes effect, no bidirectional mark reorders a line, no line break imitates a line of ipymcp, and no lone
surrogate raises `UnicodeEncodeError`. Secrets are masked. A tool's result in Python is never altered.

For Markdown see `ipymcp.results.markdown`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from ipymcp.masking import mask, masks

if TYPE_CHECKING:
    from collections.abc import Sequence

# Controls, soft hyphens, zero-width and bidi characters, invisible operators, fillers, variation selectors, lone
# surrogates, format controls of rare scripts, tags.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_COLOR = re.compile("(\x1b\\[[0-9;]*m)")
_PLAIN_WORD = re.compile(r"(?!(?:async|await|chmod|def|from|import|npm|npx|pip|uv|uvx) )[a-z]+[ :]")
"""The first word of a line that is no command."""
_BARE = re.compile(r"(?![-!#{])[^\s'\"()\[\]{}=;$]*[^\s'\"()\[\]{}=;$?\\]")
# Joiners and variation selectors, which emoji and Persian need after a character that is not ASCII.
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"


def visible(value: str) -> str:
    r"""Show control, bidirectional and invisible characters of a string as `⟨U+202E⟩` or `␛`, and mask secrets.

    Line ends become `\n`. Tabs are not changed, nor are joiners that emoji and scripts need.
    """
    return _shown(masks(value))


def one_line(value: str) -> str:
    """Make a string visible on one line: inner line breaks become `␊`, outer ones are removed."""
    value = visible(value)
    return value.strip("\n").replace("\n", "\u240a") if "\n" in value else value


def colored(value: str) -> str:
    """Make a traceback that IPython has coloured visible, except for its colour escapes."""
    return "".join(part if index % 2 else visible(mask(part)) for index, part in enumerate(_COLOR.split(value)))


def unmasked(value: str) -> str:
    """Make untrusted text visible without masking, to be reviewed before approval.

    A mask could hide the code that would run, the tool that would be called or the host that would be sent something.
    """
    return _shown(value)


def unmasked_line(value: str) -> str:
    """Make untrusted text visible on one line without masking, as `unmasked` does."""
    return _shown(value).replace("\n", "\u240a")


def stripped(value: str) -> str:
    """Remove invisible characters and mask secrets, for text that a model reads."""
    value = masks(value)
    if value.isascii() and value.isprintable():
        return value
    return _INVISIBLE.sub(_drop, value.replace("\r\n", "\n").replace("\r", "\n"))


def cut(value: str, length: int) -> str:
    """Cut a string to at most `length` characters; a cut one ends with `…`. Secrets must be masked before."""
    return value if len(value) <= length else f"{value[: length - 1]}…"


def several_lines(value: str, most: int) -> list[str]:
    """The visible lines of a text, with a line for those left out of its middle; empty if it is only one line."""
    lines = visible(value.strip("\r\n")).rstrip().split("\n")
    if len(lines) < 2:
        return []
    if len(lines) > most:
        # The last lines of a traceback say what happened.
        kept = most // 2
        lines[kept : kept - most + 1] = [f"… {len(lines) - most + 1:,} more lines"]
    return lines


def shortened(value: str, length: int) -> str:
    """Collapse a string to one line of at most `length` characters."""
    return cut(" ".join(value.split()), length)


def escaped(value: object) -> str:
    """Escape a value for HTML, in an element or a quoted attribute, with invisible characters shown."""
    from html import escape  # imports a table of 2,231 entities that nothing else needs

    return escape(visible(str(value)))


def shown_json(value: Any) -> Any:
    """Make all strings and keys of a JSON value visible, for display."""
    return _each_visible(masks.json(value))


def _each_visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _each_visible(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_each_visible(item) for item in cast("list[Any]", value)]
    return value


def counted(number: int, noun: str) -> str:
    """Format a number of things: `1 tool`, `2,000 tools`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def joined(words: Sequence[str], last: str = "and") -> str:
    """Join words as a sentence lists them: `a`, `a and b`, `a, b and c`."""
    return f"{', '.join(words[:-1])} {last} {words[-1]}" if len(words) > 1 else "".join(words)


def capitalized(line: str) -> str:
    """Begin a line with a capital, unless its first word is a command, a path or a name with other characters."""
    return line[:1].upper() + line[1:] if _PLAIN_WORD.match(line) else line


def quoted(name: str, *, is_open: bool = False) -> str:
    """Quote a name for a `%mcp` line if needed; `is_open` omits the closing quote."""
    return name if _BARE.fullmatch(name) else "'" + name.replace("'", "''") + ("" if is_open else "'")


def _shown(value: str) -> str:
    if value.isascii() and value.isprintable():
        return value
    return _INVISIBLE.sub(_show, value.replace("\r\n", "\n").replace("\r", "\n"))


def _drop(match: re.Match[str]) -> str:
    return match[0] if _is_needed(match) else ""


def _show(match: re.Match[str]) -> str:
    if _is_needed(match):
        return match[0]
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def _is_needed(match: re.Match[str]) -> bool:
    """Return whether a character is a joiner or selector that an emoji or a script needs.

    Of two in a row, only a selector followed by a joiner is needed, as in some emoji.
    """
    character, before = match[0], match.string[max(0, match.start() - 1) : match.start()]
    if character not in _JOINERS:
        return False
    if before in _JOINERS:
        return bool(before) and before in "\ufe0e\ufe0f" and character == "\u200d"
    return before > "\x7f" or match.string[match.end() : match.end() + 1] == "\u20e3"

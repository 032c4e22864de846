"""The gate for text: all that ipymcp prints, raises, completes or shows passes through one of these functions.

What strangers wrote (servers, config files, web pages, models) is made visible for what it is: no terminal escape
runs, no bidirectional mark reorders a line, no line break forges a line of ipymcp's own, and no lone surrogate raises
`UnicodeEncodeError`. Secrets are masked on the way. A tool's result in Python is never altered.

Markdown needs more than that: see `ipymcp.results.markdown`.
"""

from __future__ import annotations

import re
from typing import Any, cast

from ipymcp.masking import mask, masks

# Controls, soft hyphens, zero-width and bidi characters, invisible operators, fillers, variation selectors, lone
# surrogates, format controls of rare scripts, tags.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_COLOR = re.compile("(\x1b\\[[0-9;]*m)")
_BARE = re.compile(r"(?![-!#{])[^\s'\"()\[\]{}=;$]*[^\s'\"()\[\]{}=;$?\\]")
# What emoji and Persian need, where it stands after something that is not ASCII: joiners and one variation selector.
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"


def visible(value: str) -> str:
    """Text of several lines with control, bidirectional and invisible characters shown as `⟨U+202E⟩` or `␛`.

    Secrets are masked. Every line ends with a newline alone; tabs stay; joiners stay where emoji and scripts need them.
    """
    return _shown(mask(value))


def one_line(value: str) -> str:
    """Text for a place that is one line: as `visible`, with line breaks shown as `␊`, and without those at its ends."""
    value = visible(value)
    return value.strip("\n").replace("\n", "\u240a") if "\n" in value else value


def colored(value: str) -> str:
    """As `visible`, for text to which IPython has added colours: those escapes stay, and no others."""
    return "".join(part if index % 2 else visible(part) for index, part in enumerate(_COLOR.split(value)))


def unmasked_line(value: str) -> str:
    """One line with nothing masked, every line break shown: what a stranger's file says, before it is agreed to.

    What stands there is no secret of the user's, even where it equals one: behind a mask could be what runs.
    """
    return _shown(value).replace("\n", "\u240a")


def stripped(value: str) -> str:
    """The same text without those characters, secrets masked: for a model, which reads what a person cannot see."""
    value = mask(value)
    if value.isascii() and value.isprintable():
        return value
    return _INVISIBLE.sub(_drop, value.replace("\r\n", "\n").replace("\r", "\n"))


def escaped(value: object) -> str:
    """Anything as text for HTML, in an element or a quoted attribute: escaped, nothing invisible."""
    from html import escape  # imports a table of 2,231 entities that nothing else needs

    return escape(visible(str(value)))


def shown_json(value: Any) -> Any:
    """A JSON value to be displayed: every string and key in it visible, secrets masked."""
    return _each_visible(masks.json(value))


def _each_visible(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _each_visible(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_each_visible(item) for item in cast("list[Any]", value)]
    return value


def is_safe(value: str) -> bool:
    """Whether a text is one line that shows all of itself, and holds no secret."""
    return one_line(value) == value


def quoted(name: str, *, is_open: bool = False) -> str:
    """A name as it is typed on a `%mcp` line: in quotes where it needs them, the closing one unless it goes on."""
    return name if _BARE.fullmatch(name) else "'" + name.replace("'", "''") + ("" if is_open else "'")


def _shown(value: str) -> str:
    if value.isascii() and value.isprintable():
        return value
    return _INVISIBLE.sub(_show, value.replace("\r\n", "\n").replace("\r", "\n"))


def _drop(match: re.Match[str]) -> str:
    return match[0] if _belongs(match) else ""


def _show(match: re.Match[str]) -> str:
    if _belongs(match):
        return match[0]
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def _belongs(match: re.Match[str]) -> bool:
    character, before = match[0], match.string[max(0, match.start() - 1) : match.start()]
    return character in _JOINERS and _joins(character, before, match.string[match.end() : match.end() + 1])


def _joins(character: str, before: str, after: str) -> bool:
    """Whether a joiner or selector does its work here. Two in a row stay only as emoji have them: selector, joiner."""
    if before in _JOINERS:
        return bool(before) and before in "\ufe0e\ufe0f" and character == "\u200d"
    return before > "\x7f" or after == "\u20e3"

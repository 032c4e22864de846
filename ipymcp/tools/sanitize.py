"""Text that strangers wrote, made visible for what it is: in a terminal, in HTML, in an error.

Markdown is another matter: see `markdown`.
"""

from __future__ import annotations

import re

from ipymcp.masking import mask

__all__ = ["stripped", "text", "visible"]

# Controls, soft hyphens, zero-width and bidi characters, invisible operators, fillers, variation selectors, tags.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
# What emoji and Persian need, where it stands after something that is not ASCII: joiners and one variation selector.
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"


def visible(value: str) -> str:
    """The same text with control, bidirectional and invisible characters shown as `⟨U+202E⟩` or `␛`, secrets masked.

    Every line ends with a newline alone; tabs stay; joiners stay where emoji and scripts need them.
    """
    value = mask(value).replace("\r\n", "\n").replace("\r", "\n")
    return value if value.isascii() and value.isprintable() else _INVISIBLE.sub(_show, value)


def stripped(value: str) -> str:
    """The same text without those characters, secrets masked: for a model, which reads what a person cannot see."""
    value = mask(value).replace("\r\n", "\n").replace("\r", "\n")
    return value if value.isascii() and value.isprintable() else _INVISIBLE.sub(_drop, value)


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


def text(value: object) -> str:
    """Anything as text for HTML, in an element or a quoted attribute: escaped, nothing invisible."""
    from html import escape  # imports a table of 2,231 entities that nothing else needs

    return escape(visible(str(value)))

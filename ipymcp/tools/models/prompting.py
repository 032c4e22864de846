"""A prompt with the notebook's variables in it: `$name` is replaced by what the model should know of the value.

A `$` that opens mathematics, closed by another on the same line, is left alone; `$$` is one `$`; `{name}` is text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipymcp.policy.untrusted import source_of_value
from ipymcp.text import stripped
from ipymcp.tools.models.values import is_frame
from ipymcp.tools.plain import NotJson, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Attached", "Filled", "filled"]

_SHORT: Final = 200
_LONGEST: Final = 20_000
_ROWS: Final = 5
# Mathematics as the renderers of notebooks read it: nothing blank inside the signs, no digit after the closing one.
_TOKEN: Final = re.compile(
    r"(?P<display>\$\$(?:(?!\$\$).)+?\$\$(?!\$))|(?P<escaped>\$\$)|(?P<math>\$(?![\s$])[^$\n]*?(?<![\s\\])\$(?![\d\w$]))"
    r"|\$(?P<name>[^\W\d]\w*)",
    re.DOTALL,
)


class Attached(Struct, frozen=True):
    """A variable that a prompt was filled with."""

    name: str
    what: str
    """What the model got of it, for people: `DataFrame, 344 x 7: its columns and 5 rows`."""


class Filled(Struct, frozen=True):
    """A prompt as it is sent."""

    text: str
    attached: tuple[Attached, ...]
    source: str = ""
    """The untrusted source that one of the variables says it is from; empty for none."""


def filled(prompt: str, names: Mapping[str, Any]) -> Filled:
    """Replace the variables that there are."""
    attached: dict[str, Attached] = {}
    blocks: list[str] = []
    sources: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        name = match["name"]
        if name is None or name not in names:
            return match[0]
        what, text = _told(names[name])
        sources.append(source_of_value(names[name]))
        is_inline = len(text) <= _SHORT and "\n" not in text
        if name not in attached:
            attached[name] = Attached(name, what)
            if not is_inline:
                blocks.append(f'<variable name="{name}">\n{text}\n</variable>')
        return text if is_inline else name

    text = _TOKEN.sub(replace, prompt)
    return Filled("\n\n".join([text, *blocks]), tuple(attached.values()), next(filter(None, sources), ""))


def _told(value: Any) -> tuple[str, str]:
    """What a value is, for people, and what the model is told of it."""
    kind = type(value).__name__
    if isinstance(value, str):
        return _cut(kind, value)
    if is_frame(value):
        rows, columns = value.shape
        head = value.head(_ROWS)
        schema = ", ".join(f"{name}: {dtype}" for name, dtype in _columns(value))
        table = head.to_csv(index=False) if hasattr(head, "to_csv") else head.write_csv()
        about = f"{kind}, {rows:,} x {columns}"
        return f"{about}: its columns and {min(rows, _ROWS)} rows", stripped(f"{about}\n{schema}\n{table.rstrip()}")
    text = getattr(value, "text", None)
    if isinstance(text, str) and hasattr(value, "data"):  # a result of a tool
        return _cut(kind, text)
    try:
        return _cut(kind, json.dumps(plain(value, ()), ensure_ascii=False))
    except NotJson:
        return _cut(kind, repr(value))


def _cut(kind: str, text: str) -> tuple[str, str]:
    text = stripped(text)
    if len(text) <= _LONGEST:
        return f"{kind}, {len(text):,} characters", text
    what = f"{kind}, {len(text):,} characters: the first {_LONGEST:,}"
    return what, f"{text[:_LONGEST]}\n[cut here: {len(text):,} characters in all]"


def _columns(frame: Any) -> list[tuple[str, Any]]:
    return list(zip(map(str, frame.columns), list(frame.dtypes), strict=True))

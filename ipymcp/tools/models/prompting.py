"""A prompt with the notebook's variables in it: `$name` is replaced by what the model should know of the value.

A `$` that opens mathematics, closed by another on the same line, is left alone; `$$` is one `$`; `{name}` is text.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from ipymcp.policy.untrusted import source_of_value
from ipymcp.protocol.jsontypes import is_object
from ipymcp.text import stripped
from ipymcp.tools.models.values import is_frame
from ipymcp.tools.plain import NotJson, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sized

__all__ = ["Attached", "Filled", "filled"]

_SHORT: Final = 200
_LONGEST: Final = 20_000
_ROWS: Final = 5
_COLUMNS: Final = 100
_LONGEST_CELL: Final = 500
_NOTHING: Final = ("nan", "NaT", "<NA>")
_ITEMS: Final = 1_000
"""Elements of an array or a collection that is sent whole."""
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
    """What a value is, for people, and what the model is told of it: never much, and never much to make it."""
    kind = type(value).__name__
    if isinstance(value, str):
        return _cut(kind, value)
    if is_frame(value):
        return _frame(kind, value)
    text = getattr(value, "text", None)
    if isinstance(text, str) and hasattr(value, "data"):  # a result of a tool
        return _cut(kind, text)
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        return _array(kind, value, cast("tuple[Any, ...]", shape), dtype)
    if isinstance(value, (list, tuple, dict, set, frozenset, bytes, bytearray)):
        count = len(cast("Sized", value))
        if count > _ITEMS:
            shown = _first(cast("Iterable[Any]", value))
            what = f"{kind} of {count:,} items: the first {_ITEMS:,}"
            return what, f"{what}\n{_cut(kind, _json(shown))[1]}"
    return _cut(kind, _json(value))


def _first(value: Iterable[Any]) -> Any:
    if is_object(value):
        return dict(itertools.islice(value.items(), _ITEMS))
    return value[:_ITEMS] if isinstance(value, (bytes, bytearray)) else [*itertools.islice(value, _ITEMS)]


def _json(value: Any) -> str:
    try:
        return json.dumps(plain(value, ()), ensure_ascii=False)
    except NotJson:
        return repr(value)


def _array(kind: str, value: Any, shape: tuple[Any, ...], dtype: object) -> tuple[str, str]:
    """An array, or a Series: its repr shows both ends of a large one."""
    what = f"{kind}, {' x '.join(f'{length:,}' for length in shape) or 'one value'}, {dtype}"
    text = _json(value) if math.prod(shape) <= _ITEMS else repr(value)
    return what, f"{what}\n{_cut(kind, text)[1]}"


def _frame(kind: str, value: Any) -> tuple[str, str]:
    """A DataFrame: its columns and first rows, long cells and many columns cut."""
    rows, columns = value.shape
    about = f"{kind}, {rows:,} x {columns:,}"
    head = value.head(_ROWS)
    if columns > _COLUMNS:
        head = head.iloc[:, :_COLUMNS] if hasattr(head, "iloc") else head[:, :_COLUMNS]
    schema = ", ".join(f"{name}: {dtype}" for name, dtype in _columns(head))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(map(str, head.columns))
    cells = head.itertuples(index=False, name=None) if hasattr(head, "itertuples") else head.rows()
    writer.writerows([_cell(one) for one in row] for row in cells)
    more = f"\n[of {columns:,} columns the first {_COLUMNS}]" if columns > _COLUMNS else ""
    what = f"{about}: {'its' if columns <= _COLUMNS else f'{_COLUMNS} of its'} columns and {min(rows, _ROWS)} rows"
    return what, _cut(kind, f"{about}\n{schema}\n{written.getvalue().rstrip()}{more}")[1]


def _cell(value: Any) -> str:
    """One cell, empty where there is nothing, as pandas writes it."""
    text = "" if value is None else str(value)
    if text in _NOTHING and not isinstance(value, str):
        return ""
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}… [{len(text):,} characters]"


def _cut(kind: str, text: str) -> tuple[str, str]:
    count = len(text)
    text = stripped(text[: 2 * _LONGEST])  # a secret that is cut is no secret that is masked
    if count <= _LONGEST:
        return f"{kind}, {count:,} characters", text
    what = f"{kind}, {count:,} characters: the first {_LONGEST:,}"
    return what, f"{text[:_LONGEST]}\n[cut here: {count:,} characters in all]"


def _columns(frame: Any) -> list[tuple[str, Any]]:
    return list(zip(map(str, frame.columns), list(frame.dtypes), strict=True))

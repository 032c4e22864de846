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
from collections.abc import Mapping, Sequence, Set, ValuesView
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from ipymcp.llm.result_text import is_frame
from ipymcp.protocol.types import is_object
from ipymcp.schema.to_json import NotJson, to_json
from ipymcp.security.untrusted import source_of_value
from ipymcp.text import stripped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sized


_SHORT: Final = 200
_MAX_LENGTH: Final = 20_000
_ROWS: Final = 5
_COLUMNS: Final = 100
_MAX_CELL: Final = 500
_NOTHING: Final = ("nan", "NaT", "<NA>")
_ITEMS: Final = 1_000
"""Elements of an array or a collection that is sent whole."""
_DEPTH: Final = 50
_COLLECTIONS: Final = (Mapping, Sequence, Set, ValuesView)
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
    if (shape := _shape(value)) is not None:
        return _array(kind, value, shape)
    if isinstance(value, (*_COLLECTIONS, bytes, bytearray)):
        count = len(cast("Sized", value))
        if count > _ITEMS:
            what = f"{kind} of {count:,} items: the first {_ITEMS:,}"
            return what, f"{what}\n{_cut(kind, *_written(_first(value)))[1]}"
    return _cut(kind, *_written(value))


def _first(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(itertools.islice(cast("Mapping[Any, Any]", value).items(), _ITEMS))
    return value[:_ITEMS] if isinstance(value, (bytes, bytearray)) else [*itertools.islice(value, _ITEMS)]


def _array(kind: str, value: Any, shape: tuple[int, ...]) -> tuple[str, str]:
    """An array, or a Series: its repr shows both ends of a large one."""
    what = f"{kind}, {' x '.join(f'{length:,}' for length in shape) or 'one value'}, {value.dtype}"
    return what, f"{what}\n{_cut(kind, *_written(value))[1]}"


def _written(value: Any) -> tuple[str, bool]:
    """A value as JSON, with a repr for what JSON lacks, as far as it is sent; and whether that is all of it."""
    left = _pieces(value, 0)
    taken: list[str] = []
    count = 0
    while count <= 2 * _MAX_LENGTH:
        piece = next(left, None)
        if piece is None:
            return "".join(taken), True
        taken.append(piece)
        count += len(piece)
    return "".join(taken), next(left, None) is None


def _pieces(value: Any, depth: int) -> Iterator[str]:
    """The text of a value, made as it is taken: the size of what is not taken costs nothing."""
    if isinstance(value, str):
        yield json.dumps(value[: 2 * _MAX_LENGTH].encode("utf-8", "backslashreplace").decode(), ensure_ascii=False)
    elif isinstance(value, (bytes, bytearray)):
        yield repr(value[: 2 * _MAX_LENGTH])
    elif depth > _DEPTH:
        yield "…"
    elif (members := _members(value)) is not None:
        yield "{"
        for number, (key, item) in enumerate(members.items()):
            yield ", " if number else ""
            yield from _pieces(key, depth + 1) if isinstance(key, str) else (_repr(key),)
            yield ": "
            yield from _pieces(item, depth + 1)
        yield "}"
    elif isinstance(value, _COLLECTIONS) or _has_large_items(value):
        opening, closing = ("set([", "])") if isinstance(value, Set) else ("[", "]")
        yield opening
        for number, item in enumerate(cast("Iterable[Any]", value)):
            yield ", " if number else ""
            yield from _pieces(item, depth + 1)
        yield closing
    else:
        yield _scalar(value)


def _members(value: Any) -> Mapping[Any, Any] | None:
    """A mapping, or the fields of a dataclass or a pydantic model; None for anything else."""
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value)
    kind: Any = value.__class__
    fields = getattr(kind, "__dataclass_fields__", None) or getattr(kind, "model_fields", None)
    return {name: getattr(value, name, None) for name in fields} if is_object(fields) else None


def _shape(value: Any) -> tuple[int, ...] | None:
    """The shape of an array, a Series or a scalar of numpy; None for anything else."""
    shape: Any = getattr(value, "shape", None)
    is_array = isinstance(shape, tuple) and getattr(value, "dtype", None) is not None
    return cast("tuple[int, ...]", shape) if is_array else None


def _has_large_items(value: Any) -> bool:
    """Whether it is a short array of objects or texts, each of which may be large."""
    shape = _shape(value)
    return bool(shape) and math.prod(shape) <= _ITEMS and getattr(value.dtype, "kind", "O") in "OSU"


def _scalar(value: Any) -> str:
    """What has no items of its own that could be taken one by one."""
    if math.prod(_shape(value) or ()) > _ITEMS:
        return _repr(value)
    try:
        return json.dumps(to_json(value, ()), ensure_ascii=False)
    except NotJson:
        return _repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return hex(value)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # any class may fail in a way of its own
        return f"<{type(value).__name__}, whose repr failed: {type(error).__name__}>"


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
    if isinstance(value, str):
        text = value
    elif isinstance(value, _COLLECTIONS):
        text = _written(value)[0]
    else:
        text = "" if value is None else str(value)
        text = "" if text in _NOTHING else text
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}… [{len(text):,} characters]"


def _cut(kind: str, text: str, is_whole: bool = True) -> tuple[str, str]:
    count = f"{'' if is_whole else 'at least '}{len(text):,} characters"
    is_short = is_whole and len(text) <= _MAX_LENGTH
    text = stripped(text[: 2 * _MAX_LENGTH])  # a secret that is cut is no secret that is masked
    if is_short:
        return f"{kind}, {count}", text
    return f"{kind}, {count}: the first {_MAX_LENGTH:,}", f"{text[:_MAX_LENGTH]}\n[cut here: {count} in all]"


def _columns(frame: Any) -> list[tuple[str, Any]]:
    return list(zip(map(str, frame.columns), list(frame.dtypes), strict=True))

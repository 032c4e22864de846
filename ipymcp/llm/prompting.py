"""Prompts with variables: `$name` is replaced by a description of the notebook's variable.

`$…$` on one line is mathematics and unchanged; `$$` is one `$`; `{name}` is text.
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
_MISSING: Final = ("nan", "NaT", "<NA>")
_ITEMS: Final = 1_000
"""Maximum elements of a collection that is sent whole."""
_DEPTH: Final = 50
_COLLECTIONS: Final = (Mapping, Sequence, Set, ValuesView)
# Mathematics as notebooks render it: no space inside the signs, no digit after the closing one.
_TOKEN: Final = re.compile(
    r"(?P<display>\$\$(?:(?!\$\$).)+?\$\$(?!\$))|(?P<escaped>\$\$)|(?P<math>\$(?![\s$])[^$\n]*?(?<![\s\\])\$(?![\d\w$]))"
    r"|\$(?P<name>[^\W\d]\w*)",
    re.DOTALL,
)


class AttachedVariable(Struct, frozen=True):
    """A variable whose value is in a prompt."""

    name: str
    what: str
    """The part that the model receives, for people: `DataFrame, 344 x 7: its columns and 5 rows`."""


class FilledPrompt(Struct, frozen=True):
    """A prompt with its variables filled in."""

    text: str
    attached: tuple[AttachedVariable, ...]
    source: str = ""
    """The untrusted source of one of the variables; empty if there is none."""


def fill(prompt: str, names: Mapping[str, Any]) -> FilledPrompt:
    """Replace the `$name` of existing variables."""
    attached: dict[str, AttachedVariable] = {}
    blocks: list[str] = []
    sources: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        name = match["name"]
        if name is None or name not in names:
            return match[0]
        what, text = _described(names[name])
        sources.append(source_of_value(names[name]))
        is_inline = len(text) <= _SHORT and "\n" not in text
        if name not in attached:
            attached[name] = AttachedVariable(name, what)
            if not is_inline:
                blocks.append(f'<variable name="{name}">\n{text}\n</variable>')
        return text if is_inline else name

    text = _TOKEN.sub(replace, prompt)
    return FilledPrompt("\n\n".join([text, *blocks]), tuple(attached.values()), next(filter(None, sources), ""))


def _described(value: Any) -> tuple[str, str]:
    """A summary of a value for people, and its text for the model, both limited in size and cost."""
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
    """Describe an array or a Series; the repr of a large one shows both ends."""
    what = f"{kind}, {' x '.join(f'{length:,}' for length in shape) or 'one value'}, {value.dtype}"
    return what, f"{what}\n{_cut(kind, *_written(value))[1]}"


def _written(value: Any) -> tuple[str, bool]:
    """A value as JSON up to the limit, with reprs for types that JSON lacks; and whether it is complete."""
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
    """Generate the text of a value lazily, so that the part beyond the limit costs nothing."""
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
    """A mapping itself, or the fields of a dataclass or a pydantic model; None for anything else."""
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
    """Whether the value is a short array of objects or strings, each of which may be large."""
    shape = _shape(value)
    return bool(shape) and math.prod(shape) <= _ITEMS and getattr(value.dtype, "kind", "O") in "OSU"


def _scalar(value: Any) -> str:
    """The text of a value without items."""
    if math.prod(_shape(value) or ()) > _ITEMS:
        return _repr(value)
    try:
        return json.dumps(to_json(value, ()), ensure_ascii=False)
    except NotJson:
        return _repr(value)
    except ValueError:  # an integer beyond Python's limit of digits
        return hex(value)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # a repr may raise anything
        return f"<{type(value).__name__}, whose repr failed: {type(error).__name__}>"


def _frame(kind: str, value: Any) -> tuple[str, str]:
    """Describe a DataFrame by its columns and first rows, with long cells and many columns truncated."""
    rows, columns = value.shape
    about = f"{kind}, {rows:,} x {columns:,}"
    head = value.head(_ROWS)
    if columns > _COLUMNS:
        head = head.iloc[:, :_COLUMNS] if hasattr(head, "iloc") else head[:, :_COLUMNS]
    schema = ", ".join(f"{name}: {dtype}" for name, dtype in zip(head.columns, head.dtypes, strict=True))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(map(str, head.columns))
    cells = head.itertuples(index=False, name=None) if hasattr(head, "itertuples") else head.rows()
    writer.writerows([_cell(one) for one in row] for row in cells)
    more = f"\n[of {columns:,} columns the first {_COLUMNS}]" if columns > _COLUMNS else ""
    what = f"{about}: {'its' if columns <= _COLUMNS else f'{_COLUMNS} of its'} columns and {min(rows, _ROWS)} rows"
    return what, _cut(kind, f"{about}\n{schema}\n{written.getvalue().rstrip()}{more}")[1]


def _cell(value: Any) -> str:
    """The text of one cell; missing values are empty."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, _COLLECTIONS):
        text = _written(value)[0]
    else:
        text = "" if value is None else str(value)
        text = "" if text in _MISSING else text
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}… [{len(text):,} characters]"


def _cut(kind: str, text: str, is_whole: bool = True) -> tuple[str, str]:
    count = f"{'' if is_whole else 'at least '}{len(text):,} characters"
    is_short = is_whole and len(text) <= _MAX_LENGTH
    text = stripped(text[: 2 * _MAX_LENGTH])  # a truncated secret would not be recognized and masked
    if is_short:
        return f"{kind}, {count}", text
    return f"{kind}, {count}: the first {_MAX_LENGTH:,}", f"{text[:_MAX_LENGTH]}\n[cut here: {count} in all]"

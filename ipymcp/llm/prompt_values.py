"""Values of the notebook as a model receives them: text and images, limited in size and cost.

Only a part of a large value is described, so that no value is copied or read as a whole. A figure is drawn.
"""

from __future__ import annotations

import ast
import base64
import csv
import inspect
import io
import itertools
import json
import linecache
import math
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence, Set, ValuesView
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from ipymcp.config.redaction import masked_code
from ipymcp.llm.result_text import MAX_LENGTH, is_frame
from ipymcp.protocol.types import is_object
from ipymcp.results.content import Image, ReceivedResult
from ipymcp.schema.coercion import NotJson, to_json
from ipymcp.text import shortened, stripped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sized
    from types import TracebackType


_MAX_ROWS: Final = 5
_MAX_COLUMNS: Final = 100
_MAX_CELL: Final = 500
_SHORT_CELL: Final = 80
_MISSING: Final = ("nan", "NaT", "<NA>")
_MAX_ITEMS: Final = 1_000
"""Maximum elements of a collection that is sent whole."""
_MAX_DEPTH: Final = 50
_MAX_PLAIN: Final = 10**18
_COLLECTIONS: Final = (Mapping, Sequence, Set, ValuesView)
_MAX_SAMPLE: Final = 100_000
"""Maximum elements of an array or Series that statistics are computed from."""
_MAX_SIDE: Final = 1_568
"""Maximum width and height of an image in pixels; providers shrink larger ones."""
_MAX_PNG_PIXELS: Final = 500_000
"""Pixels above which an image without transparency is sent as JPEG."""
_BILINEAR: Final = 2
"""Pillow's number of the filter."""
_MAX_FRAMES: Final = 40
"""Maximum frames of a traceback, from its end."""
_MAX_CELLS: Final = 3
"""Maximum cells that are sent with a traceback."""


class ValueDescription(Struct, frozen=True):
    """A value as a model receives it."""

    what: str
    """A summary, for people, of the part that the model receives: `DataFrame, 344 x 7: its columns and 5 rows`."""
    text: str = ""
    images: tuple[Image, ...] = ()


def describe(value: Any) -> ValueDescription:
    """Describe a value of the notebook in at most 20,000 characters. May run the `repr` of any object."""
    if isinstance(value, BaseException):
        return _error(value)
    if inspect.isroutine(value) or inspect.isclass(value):
        return _source(value)
    image = _image(value)
    if image is not None:
        return image
    what, text = _described(value)
    return ValueDescription(what, text, _received_images(value))


# -- images ------------------------------------------------------------------------------------------------------------


def _image(value: Any) -> ValueDescription | None:
    """Describe a figure or an image of a known library; None for anything else."""
    kind = type(value).__name__
    try:
        for library, name, render in _RENDERERS:
            known = getattr(sys.modules.get(library), name, None)
            if known is not None and isinstance(value, known):
                rendered = render(value)
                break
        else:
            return None
    except Exception as error:  # drawing runs code of the figure and of its library, which may raise anything
        reason = shortened(f"{type(error).__name__}: {error}", _MAX_CELL)
        return ValueDescription(f"{kind}, which could not be drawn", f"[{kind}, which could not be drawn: {reason}]")
    if isinstance(rendered, ValueDescription):
        return rendered
    return ValueDescription(f"{kind}, image{_size(rendered)}", "", (rendered,))


def _size(image: Image) -> str:
    """The size of a PNG in pixels."""
    head = image.data[:24]
    if image.display_type != "image/png" or len(head) < 24:
        return f", {len(image.data):,} bytes"
    width, height = int.from_bytes(head[16:20]), int.from_bytes(head[20:24])
    return f" of {width:,} x {height:,}"


def _draw_matplotlib(value: Any) -> Image:
    """Draw a figure, or the figure of some axes, as the notebook shows it."""
    figure: Any = value
    while (parent := getattr(figure, "figure", None)) not in (None, figure):  # of a subfigure, its figure
        figure = parent
    drawn = io.BytesIO()
    dpi = min(figure.dpi, _MAX_SIDE / max(figure.get_size_inches()))
    figure.savefig(drawn, format="png", dpi=dpi, bbox_inches="tight")
    return _encoded(drawn)


def _draw_pillow(value: Any) -> Image:
    """Encode a Pillow image, which is first scaled down if it is too large."""
    scale = _MAX_SIDE / max(value.size)
    if scale < 1:
        value = value.resize([max(1, round(side * scale)) for side in value.size], _BILINEAR, reducing_gap=1.0)
    if value.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        value = value.convert("RGB")
    is_photo = value.mode in ("L", "RGB") and math.prod(value.size) > _MAX_PNG_PIXELS
    drawn = io.BytesIO()
    value.save(drawn, format="JPEG" if is_photo else "PNG")
    return _encoded(drawn, "image/jpeg" if is_photo else "image/png")


_TRACE: Final = ("type", "name", "x", "y", "z", "labels", "values", "lat", "lon", "locations", "text")


def _draw_plotly(value: Any) -> Image | ValueDescription:
    """Draw a figure, or describe its traces if plotly's renderer is missing."""
    try:
        return _encoded(io.BytesIO(value.to_image(format="png")))
    except Exception as error:  # kaleido or its browser is missing
        reason = shortened(str(error), 100)
        traces = [
            {key: trace[key] for key in _TRACE if key in trace and trace[key] is not None} for trace in value.data
        ]
        layout = value.layout
        titles = {"title": layout.title.text, "x": layout.xaxis.title.text, "y": layout.yaxis.title.text}
        text = _cut("", *_written({"titles": titles, "traces": traces}))[1]
        what = f"{type(value).__name__} of plotly: its data, because plotly cannot draw it"
        return ValueDescription(what, f"{what} ({reason})\n{text}")


def _read_display_image(value: Any) -> Image | ValueDescription:
    """The content of an `IPython.display.Image`; an image that is only linked is not fetched."""
    data: Any = value.data
    if not isinstance(data, bytes):
        what = f"{type(value).__name__} of a URL, which is not fetched"
        return ValueDescription(what, f"[{what}: {shortened(str(value.url), _MAX_CELL)}]")
    return _encoded(io.BytesIO(data))


def _encoded(drawn: io.BytesIO, kind: str = "image/png") -> Image:
    return Image(base64.b64encode(drawn.getbuffer()).decode(), kind)


def _unchanged(value: Image) -> Image:
    return value


_RENDERERS: Final[tuple[tuple[str, str, Callable[[Any], Image | ValueDescription]], ...]] = (
    ("matplotlib.figure", "FigureBase", _draw_matplotlib),
    ("matplotlib.axes", "Axes", _draw_matplotlib),
    ("PIL.Image", "Image", _draw_pillow),
    ("plotly.basedatatypes", "BaseFigure", _draw_plotly),
    ("IPython.core.display", "Image", _read_display_image),
    ("ipymcp.results.content", "Image", _unchanged),
)
"""Module and name of each class of images, with its drawing function. Modules are not imported for this."""


def _received_images(value: Any) -> tuple[Image, ...]:
    """The images in a server's result."""
    if not isinstance(value, ReceivedResult):
        return ()
    messages: Any = getattr(value, "messages", ())
    parts: Any = [*getattr(value, "content", ()), *(message.content for message in messages)]
    found = (getattr(part, "image", part) for part in parts)
    return tuple(part for part in found if isinstance(part, Image))


# -- exceptions and sources --------------------------------------------------------------------------------------------


def _error(error: BaseException) -> ValueDescription:
    """Describe an exception by its traceback, beginning with the notebook's code, and by the cells in the traceback."""
    cells = _cells(error)
    known = getattr(error, "_render_traceback_", None)
    if callable(known):
        lines: Any = known()
        text = re.sub("\x1b\\[[0-9;]*m", "", "\n".join(map(str, lines)))
    else:
        shown = traceback.TracebackException(
            type(error), error, _own_part(error.__traceback__), limit=-_MAX_FRAMES, compact=True
        )
        text = "".join(shown.format())
    what = f"{type(error).__name__} with its traceback" + (" and its cell" if cells else "")
    parts = [_cut("", text.rstrip())[1], *(f"The cell:\n{cell.rstrip()}" for cell in cells)]
    return ValueDescription(what, _cut("", masked_code("\n\n".join(parts)))[1])


def _own_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames before the notebook's own code."""
    own = trace
    while own is not None and not _is_own(own):
        own = own.tb_next
    return own or trace


def _is_own(trace: TracebackType) -> bool:
    return trace.tb_frame.f_globals.get("__name__") == "__main__"


def _cells(error: BaseException) -> list[str]:
    """The sources of the cells in a traceback, beginning with the outermost."""
    files = [error.filename or ""] if isinstance(error, SyntaxError) else []
    trace = error.__traceback__
    while trace is not None:
        if _is_own(trace):
            files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    named = [file for file in dict.fromkeys(files) if file and not os.path.isfile(file)]
    return list(filter(None, ("".join(linecache.getlines(file)) for file in named)))[:_MAX_CELLS]


def _source(value: Any) -> ValueDescription:
    """Describe a function or a class by its source; without one, by its signature and docstring."""
    noun = "class" if inspect.isclass(value) else "function"
    name = getattr(value, "__qualname__", type(value).__name__)
    source = _class_source(value) if inspect.isclass(value) else _function_source(value)
    if source:
        return ValueDescription(f"{noun} {name}: its source", _cut("", masked_code(inspect.cleandoc(f"\n{source}")))[1])
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = "(…)"
    text = f"{noun} {name}{signature}\n{inspect.getdoc(value) or ''}".rstrip()
    return ValueDescription(f"{noun} {name}: its signature", _cut("", text)[1])


def _function_source(value: Any) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return ""


def _class_source(value: type[Any]) -> str:
    """The source of a class that is defined in a cell; empty for other classes, whose files may be long."""
    if value.__module__ != "__main__":
        return ""
    methods = (getattr(one, "__func__", one) for one in vars(value).values())
    files = {code.co_filename for one in methods if (code := getattr(one, "__code__", None)) is not None}
    cells = [file for file in linecache.cache if file in files or "ipykernel_" in file or "ipython-input" in file]
    for file in sorted(cells, key=files.__contains__, reverse=True):
        lines = linecache.getlines(file)
        if not any(f"class {value.__name__}" in line for line in lines):
            continue
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError:  # a cell with magics
            continue
        found = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef) and one.name == value.__name__]
        if found:
            return "".join(lines[found[-1].lineno - 1 : found[-1].end_lineno])
    return ""


# -- data --------------------------------------------------------------------------------------------------------------


def _described(value: Any) -> tuple[str, str]:
    """A summary of a value for people, and its text for the model, both limited in size and cost."""
    kind = type(value).__name__
    if isinstance(value, str):
        return _cut(kind, value)
    if is_frame(value):
        return _frame(kind, value)
    text = getattr(value, "text", None)
    if isinstance(text, str) and (hasattr(value, "data") or isinstance(value, ReceivedResult)):
        return _cut(kind, text)
    if (shape := _shape(value)) is not None:
        return _array(kind, value, shape)
    if isinstance(value, (*_COLLECTIONS, bytes, bytearray)):
        count = len(cast("Sized", value))
        if count > _MAX_ITEMS:
            what = f"{kind} of {count:,} items: the first {_MAX_ITEMS:,}"
            return what, f"{what}\n{_cut(kind, *_written(_first(value)))[1]}"
    return _cut(kind, *_written(value))


def _comparable(value: Any) -> Any:
    """An element of a Series as the library's statistics can compare it: long text is cut.

    Raises:
        TypeError: It is not hashable; pandas would compare each element with all others.
    """
    hash(value)
    return value[:_MAX_CELL] if isinstance(value, str) else value


def _first(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(itertools.islice(cast("Mapping[Any, Any]", value).items(), _MAX_ITEMS))
    return value[:_MAX_ITEMS] if isinstance(value, (bytes, bytearray)) else [*itertools.islice(value, _MAX_ITEMS)]


def _array(kind: str, value: Any, shape: tuple[int, ...]) -> tuple[str, str]:
    """Describe an array or a Series by statistics and a sample."""
    what = f"{kind}, {' x '.join(f'{length:,}' for length in shape) or 'one value'}, {value.dtype}"
    statistics = _statistics(value, shape) if math.prod(shape) > 1 else ""
    text = "\n".join(filter(None, [what, statistics, _cut(kind, *_written(value))[1]]))
    return f"{what}{': statistics and a sample' if statistics else ''}", text


def _statistics(value: Any, shape: tuple[int, ...]) -> str:
    """One line of statistics, from evenly spaced elements of a large array; empty for unknown libraries and types."""
    try:
        found = dict(_library_statistics(value) if hasattr(value, "describe") else _array_statistics(value, shape))
    except Exception:  # a library may reject any type
        return ""
    if not found:
        return ""
    count = int(float(found.pop("count")))
    missing = int(found.pop("missing", 0))
    shown = [f"{name} {shortened(str(one), _SHORT_CELL)}" for name, one in found.items()]
    shown += [f"{missing:,} missing"] if missing else []
    sampled = f" (of {count + missing:,} evenly spaced elements)" if count + missing < math.prod(shape) else ""
    return f"{', '.join(shown)}{sampled}"


def _step(least: float) -> int:
    """The distance between sampled elements: at least `least`, and without the small factors of periods in the data."""
    step = max(1, math.ceil(least))
    while math.gcd(step, 210) > 1:
        step += 1
    return step


def _array_statistics(value: Any, shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """The statistics of a numpy array in memory, whose slices are views."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray) or value.dtype.kind not in "biufmM":
        return
    base: Any = value
    while base is not None:
        if isinstance(base, numpy.memmap):
            return  # it would have to be read from a file
        base = getattr(base, "base", None)
    steps: list[int] = []
    left = math.prod(shape) / _MAX_SAMPLE
    for length in shape:
        steps.append(min(_step(left), length))
        left /= steps[-1]
    sample = value[tuple(slice(None, None, step) for step in steps)]
    present = sample[~numpy.isnat(sample)] if value.dtype.kind in "mM" else sample[~numpy.isnan(sample)]
    yield "count", present.size
    yield "missing", sample.size - present.size
    if not present.size:
        return
    yield "min", present.min()
    yield "max", present.max()
    if value.dtype.kind in "biuf":
        with numpy.errstate(all="ignore"):
            yield "mean", f"{present.mean(dtype=float):.6g}"
            yield "std", f"{present.std(dtype=float):.6g}"


def _library_statistics(value: Any) -> Iterator[tuple[str, Any]]:
    """The statistics of a Series by the methods of pandas or polars."""
    is_pandas = hasattr(value, "iloc")
    is_ordered = value.dtype.kind in "biufmM" if is_pandas else value.dtype.is_numeric() or value.dtype.is_temporal()
    step = _step(len(value) / (_MAX_SAMPLE if is_ordered else _MAX_ITEMS))
    sample = value.iloc[::step] if is_pandas else value.gather_every(step)
    if is_pandas:
        if value.dtype.kind == "O":
            sample = sample.map(_comparable)
        yield "missing", int(sample.isna().sum())
        described: Any = sample.describe().items()
    else:
        yield "missing", sample.null_count()
        described = (row for row in sample.describe().rows() if row[0] != "null_count")
    for name, one in described:
        if one is not None and one == one:  # not NaN, which is the deviation of a single element
            yield str(name), f"{one:.6g}" if isinstance(one, float) and name != "count" else one


def _written(value: Any) -> tuple[str, bool]:
    """A value as JSON up to the limit, with reprs for types that JSON lacks; and whether it is complete."""
    left = _pieces(value, 0)
    taken: list[str] = []
    count = 0
    while count <= 2 * MAX_LENGTH:
        piece = next(left, None)
        if piece is None:
            return "".join(taken), True
        taken.append(piece)
        count += len(piece)
    return "".join(taken), next(left, None) is None


def _pieces(value: Any, depth: int) -> Iterator[str]:
    """Generate the text of a value lazily, so that the part beyond the limit costs nothing."""
    if type(value) is int and -_MAX_PLAIN < value < _MAX_PLAIN:  # most items of long lists
        yield str(value)
    elif type(value) is float and math.isfinite(value):
        yield repr(value)
    elif isinstance(value, str):
        yield json.dumps(value[: 2 * MAX_LENGTH].encode("utf-8", "backslashreplace").decode(), ensure_ascii=False)
    elif isinstance(value, (bytes, bytearray)):
        yield repr(value[: 2 * MAX_LENGTH])
    elif depth > _MAX_DEPTH:
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
    return bool(shape) and math.prod(shape) <= _MAX_ITEMS and getattr(value.dtype, "kind", "O") in "OSU"


def _scalar(value: Any) -> str:
    """The text of a value without items."""
    if math.prod(_shape(value) or ()) > _MAX_ITEMS:
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
    head = value.head(_MAX_ROWS)
    if columns > _MAX_COLUMNS:
        head = head.iloc[:, :_MAX_COLUMNS] if hasattr(head, "iloc") else head[:, :_MAX_COLUMNS]
    schema = ", ".join(f"{name}: {dtype}" for name, dtype in zip(head.columns, head.dtypes, strict=True))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(map(str, head.columns))
    cells = head.itertuples(index=False, name=None) if hasattr(head, "itertuples") else head.rows()
    writer.writerows([_cell(one) for one in row] for row in cells)
    more = f"\n[of {columns:,} columns the first {_MAX_COLUMNS}]" if columns > _MAX_COLUMNS else ""
    shown = "its" if columns <= _MAX_COLUMNS else f"{_MAX_COLUMNS} of its"
    what = f"{about}: {shown} columns and {min(rows, _MAX_ROWS)} rows"
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
    is_short = is_whole and len(text) <= MAX_LENGTH
    text = stripped(text[: 2 * MAX_LENGTH])  # longer than the result, because a truncated secret would not be masked
    if is_short:
        return f"{kind}, {count}", text
    return f"{kind}, {count}: the first {MAX_LENGTH:,}", f"{text[:MAX_LENGTH]}\n[cut here: {count} in all]"

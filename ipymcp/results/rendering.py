"""Rendering of results in a cell and in a terminal: pure functions from a result to a MIME bundle.

Server content is displayed, never executed (see `ipymcp.text`). All output is bounded, and the same result always gives
the same bytes, so that saved notebooks have clean diffs.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ipymcp.masking import masks
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results import markdown
from ipymcp.results.content import Audio, Embedded, Image, Link, Text, image_bundle
from ipymcp.results.frames import find_records
from ipymcp.results.markdown import is_clearly_markdown
from ipymcp.results.tables import cell_text, html_table, readable_numbers, text_table
from ipymcp.text import escaped, shown_json, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipymcp.results.content import Part


_SHORT = (10, 1_000)
"""Lines and characters of a repr."""
_LONG = (200, 20_000)
"""Lines and characters of text in a cell."""
_SHORT_LINE = 80
_MAX_MARKDOWN = 50_000
_MAX_JSON = 200_000
_MAX_MEDIA = 10_000_000
"""Characters of base64 in one display; media beyond that are shown as placeholders."""
_ROWS = _COLUMNS = 20
_MAX_WRAPPING_DEPTH = 4
# JupyterLab breaks the lines of a <pre> in the middle of words.
_BOX = "white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal;margin:0"
_ERROR = "border:1px solid #d32f2f;border-left-width:4px;padding:4px 8px"
_NO_MATH = "tex2jax_ignore mathjax_ignore"


class Renderable(Protocol):
    """The part of a tool's or a resource's result that is displayed.

    Some types are `Any` because pyright does not accept a `cached_property` for a property of a precise type.
    """

    @property
    def is_error(self) -> bool:
        """Whether the tool answered with an error."""
        ...

    @property
    def text(self) -> str:
        """The text parts, joined."""
        ...

    @property
    def data(self) -> Any:
        """The result as a Python value."""
        ...

    @property
    def content(self) -> Any:
        """The `Part`s, in the server's order."""
        ...

    @property
    def warnings(self) -> Any:
        """Remarks about the result: a tuple of strings."""
        ...


def bundle(result: Renderable, head: str, *, is_markdown: bool | None = None) -> dict[str, Any]:
    """The MIME bundle of a result, richest forms first, always with `text/plain`.

    Args:
        result: The result.
        head: The first words of `text/plain`: the type and origin of the result.
        is_markdown: Whether text is Markdown; None to guess from the text.
    """
    rich = _error(result) if result.is_error else _rich(result, is_markdown)
    return {**rich, "text/plain": _plain(result, head, *_LONG)}


def short(result: Renderable, head: str) -> str:
    """The origin and beginning of a result in a few lines."""
    return _plain(result, head, *_SHORT)


def captioned(parts: Iterable[tuple[str, Part]]) -> str:
    """Parts as HTML with a caption above each; placeholders for those that cannot be displayed."""
    return _wrap(_parts((f"<div><b>{escaped(caption)}</b></div>", part) for caption, part in parts))


def shown_text(text: str) -> str:
    """The beginning of a text and the number of remaining characters, for a repr."""
    return _cut(text, *_LONG)


def is_shown_as_text(result: Renderable) -> bool:
    """Whether a result is best shown as its text: it has no other data, or the data only repeats the text.

    Servers that send structured content repeat it as text content, and some (the official file server) wrap plain text
    in an object just to have structured content.
    """
    if result.is_error or _has_media(result):
        return False
    return not (is_array(result.data) or is_object(result.data)) or _repeats(result.data, result.text)


def _repeats(data: Any, text: str) -> bool:
    """Whether the only value in the data, at any level of nesting, is the text."""
    for _ in range(_MAX_WRAPPING_DEPTH):
        if isinstance(data, str):
            return data.strip() == text.strip()
        members = list(data.values()) if is_object(data) else data
        if not is_array(members) or len(members) != 1:
            return False
        data = members[0]
    return False


def _plain(result: Renderable, head: str, lines: int, characters: int) -> str:
    body = _plain_data(result, lines, characters) if _is_collection(result) else _cut(result.text, lines, characters)
    body = "\n".join([body, *(f"warning: {visible(warning)}" for warning in result.warnings)])
    return visible(head) + ("\n" if "\n" in body else " ") + body


def _plain_data(result: Renderable, lines: int, characters: int) -> str:
    """Records as an aligned table, other data as JSON, in one line if it is short enough."""
    listed = _records(result, min(lines, _ROWS))
    if listed is None:
        return _json_in_a_line(result.data) or _head_of_json(result.data, lines, characters)
    table = text_table(listed.names, listed.rows)
    more = [f"… {listed.more_rows:,} more rows"] if listed.more_rows else []
    more += [f"… {listed.more_columns:,} more columns"] if listed.more_columns else []
    return "\n".join([*table, *more, *([listed.beside] if listed.beside else [])])


def _is_collection(result: Renderable) -> bool:
    """Whether the result is data rather than text or media."""
    return not result.is_error and not _has_media(result) and not is_shown_as_text(result)


def _has_media(result: Renderable) -> bool:
    return any(not isinstance(part, Text) for part in result.content)


def _cut(text: str, lines: int, characters: int) -> str:
    """The beginning of a text and the number of remaining characters."""
    head = "\n".join(text[: characters + 1].split("\n")[:lines])[:characters]
    more = len(text) - len(head)
    return visible(masks.head(text, len(head))) + (f"\n… {more:,} more characters" if more else "")


def _json_in_a_line(data: Any) -> str:
    """The data as one short line of JSON; empty if it is longer."""
    line = ""
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(data):
        line += piece
        if len(line) > _SHORT_LINE:
            return ""
    return visible(line)


def _head_of_json(data: Any, lines: int, characters: int) -> str:
    """The beginning of the data as indented JSON, and the total number of items."""
    head = ""
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(data):
        head += piece
        if len(head) > characters + masks.longest or head.count("\n") >= lines:
            kept = "\n".join(masks.head(head, characters).split("\n")[:lines])
            return f"{visible(kept)}\n… {len(data):,} {'items' if is_array(data) else 'keys'} in all"
    return visible(head)


def _rich(result: Renderable, is_markdown: bool | None) -> dict[str, Any]:
    if _has_media(result):
        return _media(result)
    if not is_shown_as_text(result):
        return _table(result) or _json(result.data)
    text = result.text
    if len(text) <= _MAX_MARKDOWN and (is_clearly_markdown(text) if is_markdown is None else is_markdown):
        return {"text/markdown": markdown.markdown(text)}
    return {"text/html": _wrap(_pre(text) + _warnings(result))} if text.strip() else {}


def _json(data: list[Any] | dict[str, Any]) -> dict[str, Any]:
    """The data for a front end's JSON tree if it is strict JSON and small enough to save with the notebook."""
    size = 0
    try:
        for piece in json.JSONEncoder(allow_nan=False).iterencode(data):
            size += len(piece)
            if size > _MAX_JSON:
                return {}
    except ValueError:
        return {}
    return {"application/json": shown_json(data)}


class _Records(NamedTuple):
    """The beginning of a list of records, as cells."""

    names: list[str]
    rows: list[list[object]]
    more_rows: int
    more_columns: int
    beside: str
    """The other members of the dict that has the list, in one line."""


def _records(result: Renderable, most_rows: int) -> _Records | None:
    records = find_records(result.data)
    if records is None:
        return None
    head = records[:most_rows]
    names = list(dict.fromkeys(name for record in head for name in record))
    if not names:
        return None
    shown = names[:_COLUMNS]
    rows = readable_numbers([[_cell(record.get(name)) for name in shown] for record in head])
    return _Records(shown, rows, len(records) - len(head), max(0, len(names) - _COLUMNS), _others(result.data, records))


def _table(result: Renderable) -> dict[str, str]:
    listed = _records(result, _ROWS)
    if listed is None:
        return {}
    rows = [[*row, ""] for row in listed.rows] if listed.more_columns else listed.rows
    html = html_table(listed.names, rows, more_rows=listed.more_rows, more_columns=listed.more_columns)
    beside = f"<div>{escaped(listed.beside)}</div>" if listed.beside else ""
    return {"text/html": _wrap(html + beside + _warnings(result))}


def _cell(value: object) -> object:
    """A value for a table cell: numbers and None unchanged, anything else as text."""
    if is_array(value) or is_object(value):
        return _head_of_json_line(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, int | float) else cell_text(value)


def _head_of_json_line(value: Any) -> str:
    head = ""
    for piece in json.JSONEncoder(ensure_ascii=False).iterencode(value):
        head += piece
        if len(head) > 200:
            return head[:200] + "…"
    return head


def _others(data: Any, records: list[dict[str, Any]]) -> str:
    """A line with the other members of the dict that has the list of records."""
    if not is_object(data):
        return ""
    pairs = [f"{name}: {cell_text(_cell(value))}" for name, value in data.items() if value is not records]
    return visible(" · ".join(pairs[:_COLUMNS]))


def _error(result: Renderable) -> dict[str, Any]:
    return {"text/html": _wrap(f'<pre style="{_BOX};{_ERROR}">{escaped(_cut(result.text, *_LONG))}</pre>')}


def _media(result: Renderable) -> dict[str, Any]:
    if len(result.content) == 1 and not result.warnings:
        part = result.content[0]
        image = part if isinstance(part, Image) else part.image if isinstance(part, Embedded) else None
        if image is not None and len(image.base64) <= _MAX_MEDIA and (shown := image_bundle(image)):
            return shown
    return {"text/html": _wrap(_parts(("", part) for part in result.content) + _warnings(result))}


def _parts(parts: Iterable[tuple[str, Part]]) -> str:
    """Parts as HTML, each with its heading; media beyond the limit as placeholders."""
    html: list[str] = []
    budget = _MAX_MEDIA
    for heading, part in parts:
        size = len(part.base64) if isinstance(part, Image | Audio | Embedded) else 0
        html.append(heading + (_part(part) if size <= budget else _pre(str(part))))
        budget -= size if size <= budget else 0
    return "".join(html)


def _part(part: Part) -> str:
    """One part as HTML; a placeholder if it cannot be displayed."""
    writers: dict[type, Callable[[Any], str]] = {Image: _image, Audio: _audio, Link: _link, Embedded: _embedded}
    writer = writers.get(type(part))
    return writer(part) if writer else _pre(str(part))


def _image(image: Image) -> str:
    kind = image.display_type
    if kind is None:
        return _pre(str(image))
    try:
        return f'<img src="data:{kind};base64,{b64encode(image.data).decode()}" style="max-width:100%">'
    except ValueError:
        return _pre(str(image))


def _audio(audio: Audio) -> str:
    kind = audio.display_type
    return (
        f'<audio controls src="data:{kind};base64,{b64encode(audio.data).decode()}"></audio>'
        if kind
        else _pre(str(audio))
    )


def _link(link: Link) -> str:
    name = escaped(link.title or link.name or link.uri)
    address = markdown.safe_url(link.uri)
    if address is None:
        shown = name if name == escaped(link.uri) else f"{name} ({escaped(link.uri)})"
    else:
        shown = f'<a href="{escaped(address)}" target="_blank" rel="noopener noreferrer">{name}</a>'
    detail = " · ".join(word for word in (link.mime_type, link.description) if word)
    return f"<div>{shown}{' · ' + escaped(_cut(detail, 5, 500)) if detail else ''}</div>"


def _embedded(resource: Embedded) -> str:
    caption = f"<div>{escaped(resource.uri)}</div>" if resource.uri else ""
    if resource.text is not None:
        return caption + _pre(resource.text)
    return caption + (_image(resource.image) if resource.image else _pre(str(resource)))


def _pre(text: str) -> str:
    return f'<pre style="{_BOX}">{escaped(_cut(text, *_LONG))}</pre>'


def _warnings(result: Renderable) -> str:
    return "".join(f"<div>⚠ {escaped(warning)}</div>" for warning in result.warnings)


def _wrap(html: str) -> str:
    return f'<div class="{_NO_MATH}">{html}</div>'

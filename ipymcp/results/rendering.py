"""Rendering of results in a cell and in a terminal: pure functions from a result to a MIME bundle.

Server content is displayed, never executed (see `ipymcp.text`). All output is bounded, and the same result always gives
the same bytes, so that saved notebooks have clean diffs.
"""

from __future__ import annotations

import itertools
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from ipymcp.import_guard import is_installed
from ipymcp.masking import masks
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results import markdown
from ipymcp.results.content import Audio, Embedded, Image, Link, Text, image_bundle
from ipymcp.results.markdown import is_clearly_markdown
from ipymcp.results.recognition import ROW_KEYS, are_records
from ipymcp.results.records import RecordTable, cell, json_head
from ipymcp.results.tables import (
    NO_MATH,
    cell_text,
    html_members,
    html_table,
    more_rows,
    readable_number,
    text_table,
)
from ipymcp.text import cut, escaped, shown_json, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipymcp.results.content import DataResult, Part
    from ipymcp.results.recognition import FoundTable


_SHORT = (10, 1_000)
"""Lines and characters of a repr."""
_LONG = (200, 20_000)
"""Lines and characters of text in a cell."""
_UNFOLDED = (40, 4_000)
"""Lines and characters of text that a cell shows without a click."""
_SHORT_LINE = 80
_MAX_MARKDOWN = 50_000
_MAX_JSON = 200_000
_MAX_VALUE = 200
"""Characters of a value in a line, and of a list in the table of an object."""
_MAX_NESTED = 2_000
"""Characters of JSON of an object that is shown as a table within another one."""
_MAX_SMALL_LINES = 40
"""Lines of JSON that a cell shows as text, where a front end's tree would be closed."""
_MANY_ROWS = 3
"""Rows of a list that may be more than an attribute of the object that holds it."""
_ROW_COUNTS = frozenset({"count", "total", "rowcount", "totalcount"})
"""Names of members that may repeat the number of rows, in lower case without underscores."""
_MIN_MEMBER = 1_000
"""Characters of a member that are shown even if the preceding members are long."""
_MAX_MEMBERS = 100
"""Members of an object that is shown as a table."""
_MAX_MEDIA = 10_000_000
"""Characters of base64 in one display; media beyond that are shown as placeholders."""
_ROWS = _COLUMNS = 20
_NESTED_ROWS = 10
_MAX_WRAPPING_DEPTH = 4
# JupyterLab breaks the lines of a <pre> in the middle of words.
_BOX = "white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal;margin:0"
_BUBBLE = "border:1px solid rgba(128,128,128,.4);border-radius:8px;padding:4px 10px"
_ERROR = "border:1px solid #d32f2f;border-left-width:4px;padding:4px 8px"


_TOO_DEEP = "it is nested too deeply to be shown; .data has it"


def bundle(result: DataResult, head: str, *, is_markdown: bool | None = None) -> dict[str, Any]:
    """The MIME bundle of a result, richest forms first, always with `text/plain`.

    Args:
        result: The result.
        head: The first words of `text/plain`: the type and origin of the result.
        is_markdown: Whether text is Markdown; None to guess from the text.
    """
    try:
        rich = _error(result) if result.is_error else _rich(result, is_markdown)
        return {**rich, "text/plain": _plain(result, head, *_LONG)}
    except RecursionError:
        return {"text/plain": f"{head} {_TOO_DEEP}"}


def short(result: DataResult, head: str) -> str:
    """The origin and beginning of a result in a few lines."""
    try:
        return _plain(result, head, *_SHORT)
    except RecursionError:
        return f"{head} {_TOO_DEEP}"


def html(result: DataResult) -> str:
    """The result as HTML for a card, with its images; empty if the result is only text, which the card shows itself."""
    try:
        rich = _error(result) if result.is_error else _rich(result, None)
    except RecursionError:
        return _wrap(escaped(_TOO_DEEP))
    if "text/html" in rich:
        return rich["text/html"]
    return _wrap(_parts(("", part) for part in result.content)) if _has_media(result) else ""


def conversation(messages: Iterable[tuple[str, Part]]) -> str:
    """The messages of a prompt, as roles and parts, in HTML with a bubble for each."""

    def heading(role: str) -> str:
        kind, margin = ("mcp-message mcp-reply", 24) if role == "assistant" else ("mcp-message", 0)
        return f'<div class="{kind}" style="{_BUBBLE};margin:4px 0 4px {margin}px"><div><b>{escaped(role)}</b></div>'

    return _wrap(_parts(((heading(role), part) for role, part in messages), after="</div>"))


def shown_text(text: str) -> str:
    """The beginning of a text and the number of remaining characters, for a repr."""
    return _cut(text, *_LONG)


def is_shown_as_text(result: DataResult) -> bool:
    """Whether a result is best shown as its text: it is no table, and has no other data than the text."""
    if result.is_error or _has_media(result):
        return False
    if isinstance(result.data, str):
        return shown_table(result) is None
    return not (is_array(result.data) or is_object(result.data)) or _repeats(result.data, result.text)


def shown_table(result: DataResult) -> FoundTable | None:
    """The table that a result is shown as; None if it is shown otherwise."""
    table = result.tables.main
    if result.is_error or _has_media(result) or table is None or not any(table.records):
        return None
    if isinstance(result.data, str):
        return table if result.tables.is_whole else None
    is_named = table.rank > 1 and (table.columns is None or len(table.columns) > 1)
    is_shown = is_named and table.records != [result.data] and _is_main_part(result.data, table)
    return table if is_shown else None


def _is_main_part(data: Any, table: FoundTable) -> bool:
    """Whether a table is what the data is about, and not one attribute of an object, such as the labels of an issue."""
    beside = dict(_members_beside(data, table.path))
    is_plain = not any(
        len(value) > _MAX_VALUE if isinstance(value, str) else is_array(value) or is_object(value)
        for value in beside.values()
    )
    if is_plain and table.path.rpartition(".")[2] in ROW_KEYS:
        return True
    if not is_plain and len(table) < _MANY_ROWS:
        return False
    size = len(json_head(beside, _MAX_JSON)[0])
    sizes = itertools.accumulate(len(json_head(record, size)[0]) for record in table.records)
    return any(each >= size for each in sizes)


def _members_beside(data: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The members beside the table at a path, on each level above it."""
    above = ""
    for key in path.split(".") if path else ():
        if not is_object(data):
            return
        yield from ((f"{above}{name}", value) for name, value in data.items() if name != key)
        data, above = data.get(key), f"{above}{key}."


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


def _plain(result: DataResult, head: str, lines: int, characters: int) -> str:
    """The origin of a result, then records as an aligned table, other data as JSON, and anything else as text."""
    if result.is_error or _has_media(result) or is_shown_as_text(result):
        body = _cut(result.text, lines, characters, ".text") or "(empty)"
    elif (listed := _records(result, min(lines, _ROWS))) is None:
        body = _head_of_json(result.data, lines, characters)
    else:
        more_columns = f"… {listed.more_columns:,} more columns" if listed.more_columns else ""
        notes = filter(None, [_more_rows(listed), more_columns, listed.other_members])
        body = "\n".join([*text_table(listed.names, listed.rows), *notes])
    body = "\n".join([body, *(f"warning: {visible(warning)}" for warning in result.warnings)])
    return visible(head) + ("\n" if "\n" in body else " ") + body


def _has_media(result: DataResult) -> bool:
    return any(not isinstance(part, Text) for part in result.content)


def _cut(text: str, lines: int, characters: int, whole: str = "") -> str:
    """The beginning of a text, the number of remaining characters, and the attribute that has the whole text."""
    head = "\n".join(text[: characters + 1].split("\n")[:lines])[:characters]
    more = len(text) - len(head)
    rest = f"\n… {more:,} more characters" + (f" · all in {whole}" if whole else "")
    return visible(masks.head(text, len(head))) + (rest if more else "")


def _head_of_json(data: Any, lines: int, characters: int) -> str:
    """The data as JSON: one line if it is short, else the beginning with indentation and the number of all items."""
    line, is_whole = json_head(data, _SHORT_LINE)
    if is_whole:
        return visible(line)
    head, is_whole = json_head(data, characters + masks.longest, indent=2)
    if is_whole and head.count("\n") < lines:
        return visible(head)
    kept = "\n".join(masks.head(head, characters).split("\n")[:lines])
    return f"{visible(kept)}\n… {len(data):,} {'items' if is_array(data) else 'keys'} in all"


def _rich(result: DataResult, is_markdown: bool | None) -> dict[str, Any]:
    """Media, or the text, or data as a table of records, an object as one of its members, and other data as JSON."""
    if _has_media(result):
        return _media(result)
    if is_shown_as_text(result):
        text = result.text
        if len(text) <= _MAX_MARKDOWN and (is_clearly_markdown(text) if is_markdown is None else is_markdown):
            return {"text/markdown": markdown.markdown(text)}
        return {"text/html": _wrap(_folding(text, ".text") + _warnings(result))} if text.strip() else {}
    data = result.data
    if (listed := _records(result, _ROWS)) is not None:
        html = html_table(listed.names, listed.rows, more_columns=listed.more_columns, folds=True)
        below = filter(None, [_more_rows(listed), listed.other_members])
        html += "".join(f"<div>{escaped(line)}</div>" for line in below)
    elif is_object(data) and 0 < len(data) <= _MAX_MEMBERS:
        html = _object(data, _LONG[1], "")
    else:
        return _json(result)
    return {"text/html": _wrap(html + _warnings(result))}


def _json(result: DataResult) -> dict[str, Any]:
    """The data as indented JSON if that is short, else for a front end's tree if it can be saved with the notebook."""
    try:
        text, is_small = json_head(result.data, _MAX_JSON, is_strict=True)
    except ValueError:
        return {}
    lines, is_short = json_head(result.data, _MAX_NESTED, indent=2)
    if is_short and lines.count("\n") < _MAX_SMALL_LINES:
        text = text if len(text) <= _SHORT_LINE else lines
        return {"text/html": _wrap(_pre(text) + _warnings(result))}
    return {"application/json": shown_json(result.data)} if is_small else {}


class _Records(NamedTuple):
    """The beginning of a list of records, as cells."""

    names: list[str]
    rows: list[list[object]]
    more_rows: int
    more_columns: int
    other_members: str
    """The members beside the table, in one line."""


def _records(result: DataResult, max_rows: int) -> _Records | None:
    shown = shown_table(result)
    if shown is None:
        return None
    records = shown.records
    table = RecordTable(records[:max_rows])
    more_columns = max(0, len(table.names) - _COLUMNS)
    rows = table.page(0, max_rows, _COLUMNS)
    return _Records(table.names[:_COLUMNS], rows, len(records) - len(table), more_columns, other_members(result))


def _more_rows(listed: _Records) -> str:
    """A line about the rows that are not shown, and the attribute that has all of them."""
    has_frames = is_installed("pandas") or is_installed("polars")
    return more_rows(listed.more_rows, f"all in {'.df' if has_frames else '.data'}")


def other_members(result: DataResult) -> str:
    """A line with the members beside the table as which a result is shown, on each level above it.

    A member that only repeats the number of rows is left out.
    """
    table = shown_table(result)
    if table is None:
        return ""
    rows = len(table.records)
    beside = (
        (name, value)
        for name, value in _members_beside(result.data, table.path)
        if value != rows or name.rpartition(".")[2].replace("_", "").casefold() not in _ROW_COUNTS
    )
    shown = (f"{name}: {cut(cell_text(cell(value)), _MAX_VALUE)}" for name, value in itertools.islice(beside, _COLUMNS))
    return visible(" · ".join(shown))


def _object(data: dict[str, Any], characters: int, path: str) -> str:
    members: list[tuple[str, str]] = []
    for name, value in data.items():
        html = _member(value, max(characters, _MIN_MEMBER), f"{path}{name}")
        members.append((name, html))
        characters -= len(html)
    return html_members(members)


def _member(value: object, characters: int, path: str) -> str:
    """A value as HTML for an object's table: lists of records and small objects as tables, others as JSON."""
    lines, _ = _LONG
    if isinstance(value, str):
        return escaped(_cut(value, lines, characters, ".data"))
    if isinstance(value, float):
        return escaped(readable_number(value))
    if not is_array(value) and not is_object(value):
        return escaped(cell_text(cell(value)))
    line, is_whole = json_head(value, _MAX_VALUE)
    is_flat = not any(is_array(item) or is_object(item) for item in value)
    if is_array(value) and is_whole and (is_flat or (len(line) <= _SHORT_LINE and not are_records(value))):
        return escaped(line)
    if is_object(value) and value and json_head(value, _MAX_NESTED)[1]:
        return _object(value, characters, f"{path}.")
    if is_array(value) and are_records(value) and characters > _MIN_MEMBER:
        return _nested_table(value, path)
    text, _ = json_head(value, characters + masks.longest, indent=2)
    return escaped(_cut(text, lines, characters, ".data"))


def _nested_table(records: list[dict[str, Any]], path: str) -> str:
    table = RecordTable(records[:_NESTED_ROWS])
    rows = [
        [cut(each, _MAX_VALUE) if isinstance(each, str) else each for each in row]
        for row in table.page(0, _NESTED_ROWS, _COLUMNS)
    ]
    html = html_table(table.names[:_COLUMNS], rows, more_columns=max(0, len(table.names) - _COLUMNS))
    more = more_rows(len(records) - len(rows), f"all in .table({path!r})")
    return html + (f"<div>{escaped(more)}</div>" if more else "")


def _error(result: DataResult) -> dict[str, Any]:
    return {"text/html": _wrap(f'<pre style="{_BOX};{_ERROR}">{escaped(_cut(result.text, *_LONG, ".text"))}</pre>')}


def _media(result: DataResult) -> dict[str, Any]:
    """The parts as HTML, and for exports to PDF and LaTeX the first image itself; a lone image needs no HTML."""
    is_alone = len(result.content) == 1 and not result.warnings
    limit = _MAX_MEDIA if is_alone else _MAX_MEDIA // 2
    images = (part.image if isinstance(part, Embedded) else part for part in result.content)
    shown = (image_bundle(each) for each in images if isinstance(each, Image) and len(each.base64) <= limit)
    image = next((each for each in shown if each and (is_alone or "text/html" not in each)), dict[str, str]())
    if is_alone and image:
        return image
    return {"text/html": _wrap(_parts(("", part) for part in result.content) + _warnings(result)), **image}


def _parts(parts: Iterable[tuple[str, Part]], *, after: str = "") -> str:
    """Parts as HTML, each with its heading and what comes after it; media beyond the limit as placeholders."""
    html: list[str] = []
    budget = _MAX_MEDIA
    for heading, part in parts:
        size = len(part.base64) if isinstance(part, Image | Audio | Embedded) else 0
        html.append(heading + (_part(part) if size <= budget else _pre(str(part))) + after)
        budget -= size if size <= budget else 0
    return "".join(html)


def _part(part: Part) -> str:
    """One part as HTML; a placeholder if it cannot be displayed."""
    if isinstance(part, Link):
        return _link(part)
    if isinstance(part, Embedded):
        caption = f"<div>{escaped(part.uri)}</div>" if part.uri else ""
        return caption + (_part(part.image) if part.image else _pre(str(part)))
    if not isinstance(part, Image | Audio) or (kind := part.display_type) is None:
        return _pre(str(part))
    try:
        source = f"data:{kind};base64,{b64encode(part.data).decode()}"
    except ValueError:
        return _pre(str(part))
    if isinstance(part, Image):
        return f'<img src="{source}" style="max-width:100%">'
    return f'<audio controls src="{source}"></audio>'


def _link(link: Link) -> str:
    name = escaped(link.title or link.name or link.uri)
    address = markdown.safe_url(link.uri)
    if address is None:
        shown = name if name == escaped(link.uri) else f"{name} ({escaped(link.uri)})"
    else:
        shown = f'<a href="{escaped(address)}" target="_blank" rel="noopener noreferrer">{name}</a>'
    detail = " · ".join(word for word in (link.mime_type, link.description) if word)
    return f"<div>{shown}{' · ' + escaped(_cut(detail, 5, 500)) if detail else ''}</div>"


def _pre(text: str, whole: str = "") -> str:
    return f'<pre style="{_BOX}">{escaped(_cut(text, *_LONG, whole))}</pre>'


def _folding(text: str, whole: str) -> str:
    """A text of which only the beginning is shown if it is long, until the user opens the rest."""
    shown, (lines, characters) = _cut(text, *_LONG, whole), _UNFOLDED
    head = "\n".join(shown[:characters].split("\n")[:lines])
    rest = shown[len(head) :]
    if len(rest) < characters // 4 and rest.count("\n") < lines // 4:
        return _pre(text, whole)
    if not rest[0].isspace() and (blank := max(map(head.rfind, " \n"))) > 0:  # not in the middle of a word
        head, rest = shown[: blank + 1], shown[blank + 1 :]
    opened = f'<pre style="{_BOX}">{escaped(rest.removeprefix(chr(10)))}</pre>'
    summary = f"<summary>{len(rest):,} more characters</summary>"
    return f'<pre style="{_BOX}">{escaped(head)}</pre><details>{summary}{opened}</details>'


def warnings(result: DataResult) -> list[str]:
    """The result's warnings as lines."""
    return [f"⚠ {visible(warning)}" for warning in result.warnings]


def _warnings(result: DataResult) -> str:
    return "".join(f"<div>{escaped(line)}</div>" for line in warnings(result))


def _wrap(html: str) -> str:
    return f'<div class="{NO_MATH}">{html}</div>'

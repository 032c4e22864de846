"""Results in the panel: a preview of a value, the pages of its table, and the table as a file."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import Meta

from ipymcp.errors import McpError, UnknownName
from ipymcp.masking import masks
from ipymcp.panel.messages import FromView, ToView
from ipymcp.panel.panel import Panel, ResultFile, View, command
from ipymcp.results.content import Embedded, Image, Link
from ipymcp.results.records import FileFormat, RecordTable, json_head
from ipymcp.results.rendering import is_shown_as_text, other_members, shown_table, warnings
from ipymcp.results.tables import cell_text, display_bundle, numeric_columns
from ipymcp.results.tool_result import ToolResult
from ipymcp.text import cut, shown_json, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.api.resources import PromptResult
    from ipymcp.results.content import Part
    from ipymcp.results.resource_result import ResourceResult
    from ipymcp.storage.history import KeptCall

    Value: TypeAlias = ToolResult | ResourceResult | PromptResult


# -- previews ---------------------------------------------------------------------------------------------------------


class PreviewImage(ToView):
    """An image of a preview."""

    mime: str
    data: str


class PreviewLink(ToView):
    """A link to a resource."""

    uri: str
    name: str


class TableColumn(ToView):
    """A column of a table."""

    name: str
    is_numeric: bool
    """Whether all cells of the page are numbers."""


class TablePage(ToView):
    """Some rows of a table as text."""

    columns: list[TableColumn]
    more_columns: int
    rows: list[list[str]]
    first: int
    total: int
    """The number of all rows."""


class TableRecord(ToView):
    """All values of one row."""

    members: list[tuple[str, str]]
    """Names and texts."""
    more: int
    """The number of values that are not sent."""


class ResultTable(ToView):
    """The first page of a result's table, and the number of the result to request other pages."""

    result: int
    page: TablePage
    notes: list[str]
    """Lines below the table."""


class Preview(ToView):
    """The result of a call, a resource or a prompt, truncated for display."""

    text: str | None
    html: str | None
    image: PreviewImage | None
    json: Any
    links: list[PreviewLink]
    truncated: bool
    size: int
    variable: str | None
    """The expression for the full value in the notebook."""
    table: ResultTable | None = None
    """The table to show instead of the HTML."""
    markdown: str | None = None
    """The text as Markdown that is safe to render, for a page that can; None if it is not Markdown."""


_MAX_PREVIEW_CHARACTERS = 50_000
_MAX_HTML = 300_000
_MAX_JSON = 100_000
_MAX_IMAGE = 4_000_000
"""Maximum characters of an image, in base64 for binary formats."""
_MAX_LINKS = 100
_IMAGES = ("image/png", "image/jpeg", "image/gif")
_PAGE_ROWS = 50
_MAX_COLUMNS = 50
_MAX_CELL = 100
"""Maximum characters of a table cell."""
_MAX_RECORD_MEMBERS = 500
_MAX_LINE = 60
"""Maximum characters of JSON on one line; longer JSON is indented."""
_MAX_VALUE = 20_000
"""Maximum characters of a value of one row."""


def preview(result: ToolResult | ResourceResult, variable: str | None, number: int | None = None) -> Preview:
    """Preview the result of a call or a resource.

    Args:
        result: The result.
        variable: The expression for the result in the notebook.
        number: The number of the result in `mcp.results`, by which a view asks for more rows.
    """
    shown = shown_table(result)
    if shown is not None and number is not None:
        return Preview(
            text=_head(result.text),
            html=None,
            image=None,
            json=_small_json(result.data),
            links=[],
            truncated=False,
            size=result.size,
            variable=variable,
            table=ResultTable(
                result=number,
                page=table_page(RecordTable(shown.records), 0),
                notes=[one for one in (other_members(result), *warnings(result)) if one],
            ),
        )
    bundle = display_bundle(result)
    markdown = bundle.get("text/markdown", "")
    is_text = is_shown_as_text(result)
    html = None if is_text else _small_html(bundle.get("text/html"))
    image = _image(bundle) if html is None else None  # the HTML has the images
    data = None if is_text else _small_json(result.data)
    is_cut = data is None and not is_text and not isinstance(result.data, str | bytes)
    is_cut |= _has_images(result.content) and image is None and html is None
    is_data_only = data is not None and html is None and image is None
    return Preview(
        text=None if is_data_only else _head(result.text),
        html=html,
        image=image,
        json=data,
        links=_links(result.content) if html is None else [],
        truncated=is_cut or len(result.text) > _MAX_PREVIEW_CHARACTERS,
        size=result.size,
        variable=variable,
        markdown=_head(markdown) if len(markdown) <= _MAX_PREVIEW_CHARACTERS else None,
    )


def prompt_preview(result: PromptResult, variable: str | None, number: int | None = None) -> Preview:
    """Preview the messages of a prompt; arguments as for `preview`."""
    text = "\n\n".join(f"{message.role}: {message.text}" for message in result.messages)
    parts = [message.content for message in result.messages]
    html = _small_html(display_bundle(result)["text/html"])
    return Preview(
        text=_head(text),
        html=html,
        image=None,
        json=None,
        links=_links(parts) if html is None else [],
        truncated=len(text) > _MAX_PREVIEW_CHARACTERS,
        size=result.size,
        variable=variable,
    )


def _head(text: str) -> str | None:
    return visible(masks.head(text, _MAX_PREVIEW_CHARACTERS)) or None


def _small_html(html: str | None) -> str | None:
    return html if html is not None and len(html) <= _MAX_HTML else None


def _image(bundle: dict[str, Any]) -> PreviewImage | None:
    """The image of a MIME bundle, unless it is too large."""
    kind = next((kind for kind in _IMAGES if kind in bundle), None)
    if kind is None:
        return None
    data = bundle[kind]
    return PreviewImage(mime=kind, data=data) if len(data) <= _MAX_IMAGE else None


def _small_json(data: Any) -> Any:
    """Masked JSON data; None for text and for large data."""
    if isinstance(data, str | bytes):
        return None
    size = 0
    for piece in json.JSONEncoder(default=str).iterencode(data):
        size += len(piece)
        if size > _MAX_JSON:
            return None
    return shown_json(data)


def _has_images(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, Image) or (isinstance(part, Embedded) and part.image is not None) for part in parts)


def _links(parts: Sequence[Part]) -> list[PreviewLink]:
    links = [part for part in parts if isinstance(part, Link)][:_MAX_LINKS]
    return [PreviewLink(uri=visible(one.uri), name=visible(one.title or one.name or one.uri)) for one in links]


# -- tables -----------------------------------------------------------------------------------------------------------


class ResultFields(FromView):
    """A command about the table of a result, by the number of the result."""

    result: int


class RowsFields(ResultFields, kw_only=True):
    """Rows of a result's table. The whole table is sorted, not only these rows."""

    first: Annotated[int, Meta(ge=0)] = 0
    sort: int | None = None
    """The number of the column; None for the order of the result."""
    descending: bool = False


class FileFields(ResultFields, kw_only=True):
    """A part of a result's table as a file."""

    format: FileFormat
    offset: Annotated[int, Meta(ge=0)] = 0


class FilePart(ToView):
    """A part of a file in base64."""

    data: str
    size: int
    """Size of the whole file in bytes."""
    next: int | None
    """The offset of the next part; None after the last part."""


def table_page(table: RecordTable, first: int, *, sort: int | None = None, descending: bool = False) -> TablePage:
    """A page of a result's table; arguments as for `RecordTable.page`."""
    rows = table.page(first, _PAGE_ROWS, _MAX_COLUMNS, sort=sort, descending=descending)
    numeric = numeric_columns(rows)
    names = table.names[:_MAX_COLUMNS]
    return TablePage(
        columns=[
            TableColumn(name=cut(cell_text(name), _MAX_CELL), is_numeric=bool(numeric) and numeric[place])
            for place, name in enumerate(names)
        ],
        more_columns=len(table.names) - len(names),
        rows=[[cut(cell_text(each), _MAX_CELL) for each in row] for row in rows],
        first=first,
        total=len(table),
    )


def table_record(record: dict[str, Any]) -> TableRecord:
    """All values of a record."""
    members: list[tuple[str, str]] = []
    characters = _MAX_PREVIEW_CHARACTERS
    for name, value in record.items():
        if len(members) == _MAX_RECORD_MEMBERS or characters < 0:
            break
        text = value if isinstance(value, str) else _json_text(value)
        text = visible(masks.head(text, _MAX_VALUE)) + ("…" if len(text) > _MAX_VALUE else "")
        members.append((cut(cell_text(name), _MAX_CELL), text))
        characters -= len(text)
    return TableRecord(members=members, more=len(record) - len(members))


def _json_text(value: object) -> str:
    """A value as JSON, on one line if it is short."""
    line, is_whole = json_head(value, _MAX_LINE)
    return line if is_whole else json_head(value, _MAX_VALUE + masks.longest, indent=2)[0]


_MAX_TABLES = 4
_MAX_FILE = 200_000_000
_PART_BYTES = 500_000


async def keep_result(
    panel: Panel, view: View, number: int, value: Value, show: Callable[[Any, str | None, int], Preview]
) -> Preview:
    """Keep a value in `mcp.results` and return its preview."""
    panel.mcp.results.keep(number, value, value.size)
    kept = {one.record.number for one in panel.host.history.kept.values()}
    panel.previewed = {one for one in panel.previewed if one in panel.mcp.results or one in kept} | {number}
    for old in panel.tables.keys() - panel.previewed:
        del panel.tables[old]
    namespace = "" if view.permissions.is_visitor else panel.context.namespace()
    return await asyncio.to_thread(show, value, f"{namespace}.results[{number}]" if namespace else None, number)


def kept_call(panel: Panel, number: int) -> KeptCall | None:
    """The latest call of this number whose values the history keeps; None if there is none."""
    kept = panel.host.history.kept
    return next((call for call in reversed([*kept.values()]) if call.record.number == number), None)


def _shown_value(panel: Panel, number: int) -> Any:
    """The value of a result that was shown in a view, by the number of its call; None if it is no longer known."""
    if number not in panel.previewed:
        return None
    if number in panel.mcp.results:
        return panel.mcp.results[number]
    call = kept_call(panel, number)
    if call is None or call.record.result is None:
        return None
    return ToolResult(call.record.result, server=call.record.server, tool=call.record.tool)


async def _table(panel: Panel, number: int) -> RecordTable:
    """The table of a result that was shown in a view.

    Raises:
        UnknownName: The result was not shown in a view, is no longer kept, or is not a table.
    """
    table, value = panel.tables.pop(number, None), _shown_value(panel, number)
    if value is None:
        raise UnknownName(f"result {number} is no longer kept", hint="run the tool again")
    if table is None:
        found = await asyncio.to_thread(shown_table, value)
        if found is None:
            raise UnknownName(f"result {number} is not a table")
        table = await asyncio.to_thread(RecordTable, found.records)
    panel.tables[number] = table
    while len(panel.tables) > _MAX_TABLES:
        panel.tables.popitem(last=False)
    return table


@command("rows")
async def _rows(panel: Panel, view: View, message: RowsFields) -> TablePage:
    table = await _table(panel, message.result)
    return await asyncio.to_thread(table_page, table, message.first, sort=message.sort, descending=message.descending)


@command("row")
async def _row(panel: Panel, view: View, message: RowsFields) -> TableRecord:
    table = await _table(panel, message.result)
    record = await asyncio.to_thread(table.record, message.first, sort=message.sort, descending=message.descending)
    return await asyncio.to_thread(table_record, record)


@command("file")
async def _file(panel: Panel, view: View, message: FileFields) -> FilePart:
    """Return a part of the file. The view requests the parts in order, and the first request creates the file."""
    result, kind, offset = message.result, message.format, message.offset
    if view.file is None or (view.file.result, view.file.format) != (result, kind) or not offset:
        table = await _table(panel, result)
        data = await asyncio.to_thread(table.file, kind)
        if len(data) > _MAX_FILE:
            raise McpError(f"the file would have {len(data):,} bytes", hint="write it from .df in a cell")
        view.file = ResultFile(result, kind, data)
    data = view.file.data
    part, end = data[offset : offset + _PART_BYTES], offset + _PART_BYTES
    if end >= len(data):
        view.file = None
    return FilePart(data=b64encode(part).decode(), size=len(data), next=end if end < len(data) else None)

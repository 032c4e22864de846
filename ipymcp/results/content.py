"""Results of servers and their parts: text, images, audio, links, embedded resources.

Parts are plain values. Base64 is decoded at each read of `.data`.

Source: MCP 2025-11-25 and 2026-07-28, schema.ts, ContentBlock.
"""

from __future__ import annotations

import base64
import binascii
import re
from abc import abstractmethod
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec import Raw, Struct

from ipymcp.argument_checks import PATH, TEXT, checked, missing_attribute
from ipymcp.errors import McpError
from ipymcp.files import write_file
from ipymcp.protocol.types import decode, is_object, loads
from ipymcp.text import one_line

if TYPE_CHECKING:
    import os

    from ipymcp.results.recognition import FoundTable, Tables


_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_SVG = "image/svg+xml"
# Content by which an SVG in a front end's page could do more than draw.
_ACTIVE_SVG = (
    rb"(?i)<\s*(?:[a-z]+:)?(?:script|foreignObject|iframe|use|image|a|animate|set|style)\b|\bon\w+\s*=|javascript:|<!ENTITY"
    rb"|<!DOCTYPE|<!\[|<\?xml-|url\s*\(\s*[\"']?\s*(?!#)|&#|\\|\b(?:href|src|base)\s*=\s*[\"']?\s*(?!#|[\"'\s])"
    rb"|image-set|@import"
)
_SVG_ELEMENT = re.compile(rb"<\s*/?\s*(?!!--|\?xml\s)(?:[\w.-]+:)?([^\s/<>]*)")
# Elements that only draw or describe. Others may load something, for example if a front end parses them as HTML.
_SVG_ELEMENTS = frozenset(
    b"svg g defs path rect circle ellipse line polyline polygon text tspan textpath title desc marker "
    b"lineargradient radialgradient stop clippath mask pattern symbol switch metadata filter feblend "
    b"fecolormatrix fecomponenttransfer fecomposite feconvolvematrix fediffuselighting fedisplacementmap "
    b"fedistantlight fedropshadow feflood fefunca fefuncb fefuncg fefuncr fegaussianblur femerge "
    b"femergenode femorphology feoffset fepointlight fespecularlighting fespotlight fetile feturbulence "
    b"rdf work format type creator agent rights publisher license namedview".split()
)
_AUDIO = r"audio/[a-z0-9.+-]{1,60}"
_MAX_DATA_HEAD = 300
"""Characters of a `data:` URL in which its data must begin."""


class Text(Struct, frozen=True):
    """Plain text."""

    text: str

    def __str__(self) -> str:
        return self.text


class _Savable(Struct, frozen=True):
    @property
    def data(self) -> bytes:
        raise NotImplementedError

    @checked(path=PATH)
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bytes to a file and return its path.

        Raises:
            McpError: The content is not base64; the error is a ValueError, too.
            OSError: The file cannot be written, or is a link.
        """
        target = Path(path)
        write_file(target, self.data, durable=False)
        return target


class _Binary(_Savable, frozen=True):
    base64: str
    """The content in standard base64, as it was received where that is what the server sent."""
    mime_type: str

    @property
    def data(self) -> bytes:
        """The decoded bytes.

        Raises:
            McpError: The content is not base64; the error is a ValueError, too.
        """
        return _decode(self.base64)

    def __str__(self) -> str:
        return _placeholder(type(self).__name__.lower(), self.mime_type, self.base64)

    def __repr__(self) -> str:
        return one_line(f"<{type(self).__name__} {self.mime_type}, {_decoded_size(self.base64):,} bytes>")


class Image(_Binary, frozen=True):
    """An image."""

    @property
    def display_type(self) -> str | None:
        """The MIME type detected from the bytes; None if the image should not be displayed."""
        try:
            head = _decode(self.base64[:64])
            if kind := _sniff(head):
                return kind
            return _SVG if self.mime_type == _SVG and _is_static_svg(self.data) else None
        except ValueError:
            return None

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), **image_bundle(self)}


class Audio(_Binary, frozen=True):
    """A sound."""

    @property
    def display_type(self) -> str | None:
        """The MIME type for playback; None if the content is not audio."""
        kind = self.mime_type.lower()
        if not re.fullmatch(_AUDIO, kind):
            return None
        try:
            _decode(self.base64)
        except ValueError:
            return None
        return kind


class Link(Struct, frozen=True):
    """A link to a resource of the server."""

    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str = ""

    def __str__(self) -> str:
        return f"[resource: {self.uri}]"


class Embedded(_Savable, frozen=True):
    """A resource in a result, with `text`, or `base64` for binary content."""

    uri: str
    mime_type: str = ""
    text: str | None = None
    base64: str = ""

    @property
    def data(self) -> bytes:
        """The decoded bytes, or the text in UTF-8.

        Raises:
            McpError: The content is not base64; the error is a ValueError, too.
        """
        return _decode(self.base64) if self.text is None else self.text.encode()

    @property
    def image(self) -> Image | None:
        """The resource as an image; None if it is not one."""
        if self.text is None and self.mime_type.startswith("image/"):
            return Image(self.base64, self.mime_type)
        return None

    def __str__(self) -> str:
        return _placeholder("blob", self.mime_type or self.uri, self.base64) if self.text is None else self.text

    def __repr__(self) -> str:
        size = f" {self.uri}, {len(self.text):,} characters" if self.text is not None else f" {self}"
        return one_line(f"<Embedded{size}>")


class Unknown(Struct, frozen=True):
    """A part of an unknown type, or one that lacks required members."""

    type: str
    raw: Any
    """The part as decoded JSON."""

    def __str__(self) -> str:
        return f"[{self.type}]"


Part = Text | Image | Audio | Link | Embedded | Unknown


def read_part(value: Any) -> Part:
    """Read one member of `content`, which may also be a bare string. An invalid one becomes `Unknown`, not an error."""
    if isinstance(value, str):
        return Text(value)
    if not is_object(value):
        return Unknown("unknown", value)
    kind = _string(value, "type")
    if kind == "text" and (text := _string(value, "text")) is not None:
        return Text(text)
    if kind == "image" and (data := _string(value, "data")) is not None:
        return Image(_standard(data), _string(value, "mimeType") or "image")
    if kind == "audio" and (data := _string(value, "data")) is not None:
        return Audio(_standard(data), _string(value, "mimeType") or "audio")
    if kind == "resource_link" and (uri := _string(value, "uri")) is not None:
        return Link(uri, *(_string(value, key) or "" for key in ("name", "title", "description", "mimeType")))
    if kind == "resource" and is_object(resource := value.get("resource")):
        text, blob = _string(resource, "text"), _string(resource, "blob")
        if text is not None or blob is not None:
            uri, mime_type = _string(resource, "uri") or "", _string(resource, "mimeType") or ""
            return Embedded(uri, mime_type, text, _standard(blob or ""))
    return Unknown(kind or "unknown", value)


class _Meta(Struct, rename={"meta": "_meta"}):
    meta: Raw = Raw()


_DATA, _FRAME = "use .data", "use .df, or .table().records for dicts"
FRAME_NAMES = {
    **dict.fromkeys(("columns", "describe", "groupby", "head", "iloc", "loc"), "use .df, which has it"),
    **dict.fromkeys(("merge", "plot", "query", "shape", "sort_values", "tail"), "use .df, which has it"),
    **dict.fromkeys(("to_csv", "to_excel", "to_html", "to_json", "to_markdown"), "use .df, which has it"),
    **dict.fromkeys(("join", "to_numpy", "to_parquet"), "use .df, which has it"),
}
"""Hints for attributes of a DataFrame."""
_OTHER_NAMES = {
    **FRAME_NAMES,
    **dict.fromkeys(("json", "output", "parsed", "result", "structuredContent", "structured_content", "value"), _DATA),
    **dict.fromkeys(("dataframe", "frame", "to_df", "to_pandas", "to_polars"), "use .df"),
    **dict.fromkeys(("dict", "model_dump", "to_dict", "to_list"), _DATA),
    "index": "use .df, which has it",
    **dict.fromkeys(("records", "rows"), _FRAME),
    **dict.fromkeys(("image", "png"), "use .images[0]"),
    **dict.fromkeys(("isError", "error"), "use .is_error; the words are in .text"),
    "save": "use .images[0].save(path) for an image, or write .text to a file",
}
"""Hints for attributes that a result does not have, but people expect."""


class ReceivedResult:
    """The `result` object of a server, kept as it was received. `str` is `.text`.

    It holds no reference to the server and can be kept, copied, pickled and compared. Each part is decoded at its first
    read; a copy starts again from the received bytes.
    """

    is_untrusted: bool = True
    """Whether it may contain content of third parties; always true of a resource and a prompt."""
    server: str
    """The server's name in this notebook."""
    _raw: bytes | Raw

    @property
    @abstractmethod
    def source(self) -> str:
        """The origin of the result: the server and the name of the tool, resource or prompt."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The content as text, with placeholders in brackets for other content."""

    @property
    @abstractmethod
    def _arguments(self) -> dict[str, Any]:
        """The arguments of `__init__` besides the bytes, for copies and pickles."""

    @property
    def raw(self) -> dict[str, Any]:
        """The whole `result` object as JSON, decoded again at each read."""
        return loads(self._raw)

    @property
    def json_bytes(self) -> bytes:
        """The JSON of the `result` object as it was received."""
        return bytes(self._raw)

    @property
    def size(self) -> int:
        """The size of the result's JSON in bytes."""
        return memoryview(self._raw).nbytes

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` object of the result."""
        raw = decode(self._raw, _Meta).meta
        meta = loads(raw) if raw else None
        return meta if is_object(meta) else {}

    if not TYPE_CHECKING:  # for type checkers a result has no other attributes

        def __getattr__(self, name: str) -> Any:
            has_data = not name.startswith("_") and hasattr(type(self), "data") and not hasattr(type(self), name)
            return missing_attribute(self, name, "a result", hint=self._other_place(name) if has_data else "")

    def _other_place(self, name: str) -> str:
        """Name what to write instead of an attribute: a member of the data, or a method of the data or the text."""
        data: Any = self.data  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        if is_object(data) and name in data:
            return f"use [{name!r}]" + (", or .df" if isinstance(data[name], list) else "")
        if name in _OTHER_NAMES:
            return _OTHER_NAMES[name]
        if hasattr(dict, name) or hasattr(list, name):
            return f"use .data.{name}(…)"
        return f"use .text.{name}(…)" if hasattr(str, name) else ""

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._arguments), (bytes(self._raw),)

    def __copy__(self) -> Self:
        copy: Any = type(self)
        return copy(self._raw, **self._arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.__copy__()


class DataResult(ReceivedResult):
    """The result of a tool or a resource: data, parts and text."""

    @property
    def is_error(self) -> bool:
        """Whether the tool reported an error; never of a resource."""
        return False

    # Typed as Any, because pyright does not accept a `cached_property` that overrides an attribute of another type.
    content: Any
    """The `Part`s, in the server's order."""
    data: Any
    """The result as a Python value."""
    warnings: Any = ()
    """Problems of a usable result, as a tuple of strings."""
    _schema: Any = None
    """The schema of the data, if the server declares one."""

    @property
    def df(self) -> Any:
        """The data as a DataFrame of pandas if it is installed, else of polars.

        Raises:
            McpError: Neither library is installed, or the data is not a table, or holds several.
        """
        return self.table().df

    @cached_property
    def tables(self) -> Tables:
        """The tables that the data holds, each with its path."""
        from ipymcp.results.recognition import find_tables

        return find_tables(self.data, self._schema)

    @checked(path=TEXT)
    def table(self, path: str = "") -> FoundTable:
        """Take one of the result's tables, which has `.df` and `.records`.

        Args:
            path: Where it is, as `.tables` lists it, such as `data.items`; by default the table that `.df` reads.

        Raises:
            McpError: There is no such table, or by default none or several.
        """
        from ipymcp.results.recognition import main_table

        try:
            return main_table(self.data, self.tables) if path == "" else self.tables[path]
        except McpError as error:
            error.server, error.tool = self.server, self._arguments.get("tool")
            raise


def image_bundle(image: Image) -> dict[str, str]:
    """The MIME bundle of an image; empty if it should not be displayed.

    An SVG becomes an `<img>`: some front ends insert `image/svg+xml` into the page, where it could load files and run
    scripts.
    """
    kind = image.display_type
    if kind is None:
        return {}
    data = base64.b64encode(image.data).decode()
    return {"text/html": f'<img src="data:{kind};base64,{data}" alt="SVG">'} if kind == _SVG else {kind: data}


def _string(value: dict[str, Any], key: str) -> str | None:
    member = value.get(key)
    return member if isinstance(member, str) else None


class NotBase64(McpError, ValueError):
    """Content that is not base64. Shown to users as an `McpError`."""


def _standard(value: str) -> str:
    """Convert base64 in the alphabet for URLs, or in a `data:` URL, to standard base64."""
    if value[:5].lower() == "data:":
        head, comma, _ = value[:_MAX_DATA_HEAD].partition(",")
        value = value[len(head) + 1 :] if comma and head.lower().endswith(";base64") else value
    return value.replace("-", "+").replace("_", "/") if "-" in value or "_" in value else value


def _decode(value: str) -> bytes:
    """Decode base64 with or without padding and line breaks."""
    value = re.sub(r"\s+", "", value) if not value.isalnum() else value
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotBase64(f"the content is not base64: {error}", hint="a fault of the server; .raw has it") from error


def _decoded_size(value: str) -> int:
    """The number of bytes that base64 encodes, without decoding it."""
    return len(value.rstrip("=\n")) * 3 // 4


def _placeholder(kind: str, mime_type: str, value: str) -> str:
    return f"[{kind}: {mime_type}, {_decoded_size(value):,} bytes]"


def _sniff(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if head.startswith(signature)), None)


def image_type(data: bytes) -> str | None:
    """The type of an image, by its contents; of an SVG only if it does nothing but draw. None for everything else."""
    return _sniff(data[:12]) or (_SVG if _is_static_svg(data) else None)


def _is_static_svg(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    elements = (match[1].lower() for match in _SVG_ELEMENT.finditer(data))
    is_passive = b"<svg" in data[:4096] and not re.search(_ACTIVE_SVG, data)
    return is_passive and all(element in _SVG_ELEMENTS for element in elements)

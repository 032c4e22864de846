"""The result of reading a resource as a Python value."""

from __future__ import annotations

import base64
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ipymcp.argument_checks import PATH, checked
from ipymcp.errors import McpError
from ipymcp.files import write_file
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.content import Audio, Embedded, Image, Part, Text, read_part
from ipymcp.results.tool_result import read_texts

if TYPE_CHECKING:
    import os

    from msgspec import Raw


_Bytes: TypeAlias = bytes  # inside the class, `bytes` is a property
_SVG = "image/svg+xml"
_MARKDOWN = ("text/markdown", "text/x-markdown")


class ResourceResult:
    """The result of reading a resource. `str` is `.text`; it holds no reference to the server and can be pickled.

    Args:
        raw: The JSON of the `result` object of `resources/read`.
        server: The server's name in this notebook.
        uri: The resource's URI.
    """

    is_error = False
    warnings = ()
    is_untrusted = True
    """Always true: nothing says that a resource has no content of third parties."""

    def __init__(self, raw: _Bytes | Raw, *, server: str, uri: str) -> None:
        self._raw = raw
        self.server = server
        self.uri = uri

    @property
    def source(self) -> str:
        """The origin of the result: the server and the URI."""
        return f"{self.server} {self.uri}"

    @cached_property
    def contents(self) -> list[Embedded]:
        """The contents with their URIs and MIME types; most resources have one, a folder may have many."""
        result = types.decode(self._raw, types.ReadResourceResult)
        parts = (read_part({"type": "resource", "resource": types.loads(raw)}) for raw in result.contents)
        return [part for part in parts if isinstance(part, Embedded)]

    @cached_property
    def content(self) -> list[Part]:
        """The contents as parts by MIME type: `Text`, `Image`, `Audio`, else `Embedded`."""
        return [_part(one, is_alone=len(self.contents) == 1) for one in self.contents]

    @property
    def mime_type(self) -> str:
        """The MIME type of the first content; empty if the server did not send one."""
        return self.contents[0].mime_type if self.contents else ""

    @property
    def text(self) -> str:
        """All contents as text, separated by newlines; other contents as placeholders in brackets."""
        return "\n".join(str(one) for one in self.contents)

    @cached_property
    def data(self) -> Any:
        """The content: decoded JSON, bytes, or text. For several contents a list if all are JSON."""
        if len(self.contents) == 1:
            [one] = self.contents
            if one.text is None:
                return self.bytes
            if _is_json(one.mime_type):
                return _loads(one.text)
        return read_texts(self.contents, self.text)

    @property
    def bytes(self) -> _Bytes:
        """The decoded bytes, or the text in UTF-8.

        Raises:
            McpError: The resource has several contents, or the base64 is invalid.
        """
        if len(self.contents) != 1:
            hint = "r.contents[0].data, and so on"
            raise McpError(f"{self.uri} has {len(self.contents)} contents", server=self.server, hint=hint)
        try:
            return self.contents[0].data
        except ValueError as error:
            raise McpError(f"{self.uri} is {error}", server=self.server, hint="a fault of the server") from error

    @property
    def df(self) -> Any:
        """The content as a DataFrame of pandas if it is installed, else of polars.

        Raises:
            McpError: Neither library is installed, or the content is not a table.
        """
        from ipymcp.results.frames import to_frame

        return to_frame(self.data, self.text, server=self.server)

    @property
    def size(self) -> int:
        """The size of the result's JSON in bytes."""
        return memoryview(self._raw).nbytes

    @property
    def raw(self) -> dict[str, Any]:
        """The whole `result` object as decoded JSON."""
        return types.loads(self._raw)

    @property
    def meta(self) -> dict[str, Any]:
        """The `_meta` object of the result."""
        meta = self.raw.get("_meta")
        return meta if is_object(meta) else {}

    @checked(path=PATH)
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the bytes to a file and return its path.

        Raises:
            McpError: As `.bytes`.
            OSError: The file cannot be written, or is a link.
        """
        target = Path(path)
        write_file(target, self.bytes, durable=False)
        return target

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResourceResult):
            return NotImplemented
        return (self.server, self.uri, self.contents) == (other.server, other.uri, other.contents)

    __hash__ = None  # type: ignore[assignment]  # its data can be changed, as a list's

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (_Bytes(self._raw), self.server, self.uri)

    @property
    def _head(self) -> str:
        return f"ResourceResult {self.server} {self.uri}:"

    def __repr__(self) -> str:
        from ipymcp.results.rendering import short

        return short(self, self._head)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        from ipymcp.results.rendering import bundle

        return bundle(self, self._head, is_markdown=self._is_markdown)

    @property
    def _is_markdown(self) -> bool:
        name = self.uri.partition("?")[0].lower()
        return self.mime_type in _MARKDOWN or (not self.mime_type and name.endswith((".md", ".markdown")))


def _rebuild(raw: bytes, server: str, uri: str) -> ResourceResult:
    return ResourceResult(raw, server=server, uri=uri)


def _part(one: Embedded, *, is_alone: bool) -> Part:
    """A content as a part by its MIME type. One of several text contents keeps its URI."""
    if one.text is not None:
        if one.mime_type == _SVG:
            return Image(base64.b64encode(one.text.encode()).decode(), _SVG)
        return Text(one.text) if is_alone else one
    if one.mime_type.startswith("image/"):
        return Image(one.base64, one.mime_type)
    return Audio(one.base64, one.mime_type) if one.mime_type.startswith("audio/") else one


def _is_json(mime_type: str) -> bool:
    kind = mime_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _loads(text: str) -> Any:
    try:
        return types.loads(text.encode())
    except ValueError:
        return text

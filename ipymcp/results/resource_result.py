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
from ipymcp.results.content import Audio, Embedded, Image, Part, Text, read_part
from ipymcp.results.tool_result import DisplayedResult, read_texts

if TYPE_CHECKING:
    import os

    from msgspec import Raw


_Bytes: TypeAlias = bytes  # inside the class, `bytes` is a property
_SVG = "image/svg+xml"
_MARKDOWN = ("text/markdown", "text/x-markdown")


class ResourceResult(DisplayedResult):
    """The result of reading a resource.

    Args:
        raw: The JSON of the `result` object of `resources/read`.
        server: The server's name in this notebook.
        uri: The resource's URI.
    """

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
        return [_part(content, is_alone=len(self.contents) == 1) for content in self.contents]

    @property
    def mime_type(self) -> str:
        """The MIME type of the first content; empty if the server did not send one."""
        return self.contents[0].mime_type if self.contents else ""

    @property
    def text(self) -> str:
        """All contents as text, separated by newlines; other contents as placeholders in brackets."""
        return "\n".join(str(content) for content in self.contents)

    @cached_property
    def data(self) -> Any:
        """The content: decoded JSON, bytes, or text. For several contents a list if all are JSON."""
        if len(self.contents) == 1:
            [content] = self.contents
            if content.text is None:
                return self.bytes
            kind = content.mime_type.partition(";")[0].strip().lower()
            if kind == "application/json" or kind.endswith("+json"):
                try:
                    return types.loads(content.text.encode())
                except ValueError:
                    return content.text
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
            raise McpError(f"{self.uri}: {error}", server=self.server, hint="a fault of the server") from error

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

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResourceResult):
            return NotImplemented
        return (self.server, self.uri, self.contents) == (other.server, other.uri, other.contents)

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"server": self.server, "uri": self.uri}

    @property
    def _is_markdown(self) -> bool:
        name = self.uri.partition("?")[0].lower()
        return self.mime_type in _MARKDOWN or (not self.mime_type and name.endswith((".md", ".markdown")))


def _part(content: Embedded, *, is_alone: bool) -> Part:
    """A content as a part by its MIME type. One of several text contents keeps its URI."""
    if content.text is not None:
        if content.mime_type == _SVG:
            return Image(base64.b64encode(content.text.encode()).decode(), _SVG)
        return Text(content.text) if is_alone else content
    if content.mime_type.startswith("image/"):
        return Image(content.base64, content.mime_type)
    return Audio(content.base64, content.mime_type) if content.mime_type.startswith("audio/") else content

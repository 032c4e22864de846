"""The result of a tool call as a Python value, and the storage of results of which only a part was shown.

The received bytes are decoded only when they are read, and only the part that is read: the structured content may be
50 MB, and is often not read at all.
"""

from __future__ import annotations

import importlib
import itertools
import threading
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from ipymcp.argument_checks import shown
from ipymcp.errors import ArgumentError, CallError, UnknownName
from ipymcp.names import nearest
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results.content import DataResult, Embedded, Image, Link, Part, Text, read_part
from ipymcp.results.tables import Table, TableView
from ipymcp.text import shortened

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

_NULL = msgspec.Raw(b"null")
_MAX_WARNING = 300
_MAX_ERRORS = 100
_MAX_KEYS = 20
"""Keys that the error of a missing one names."""


class DisplayedResult(DataResult):
    """A result that a cell shows by its data, its parts or its text."""

    @property
    def _is_markdown(self) -> bool | None:
        """Whether the text is Markdown; None if that must be guessed from the text."""
        return None

    @property
    def _head(self) -> str:
        return f"{type(self).__name__} {self.source}{' (error)' if self.is_error else ''}:"

    def __repr__(self) -> str:
        from ipymcp.results.rendering import short

        return short(self, self._head)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        from ipymcp.results.rendering import bundle

        return bundle(self, self._head, is_markdown=self._is_markdown)


class ToolResult(DisplayedResult):
    """The result of a tool call. Indexing, `len`, `in` and iteration use `.data`; `bool` is always true.

    Args:
        raw: The JSON of the `result` object of `tools/call`. A view is kept, not copied.
        server: The server's name in this notebook.
        tool: The tool's exact name.
        output_schema: The JSON of the tool's output schema, if it declares one.
        is_untrusted: Whether it may contain content of third parties: the tool is not known to be closed-world.
    """

    def __init__(
        self,
        raw: bytes | msgspec.Raw,
        *,
        server: str,
        tool: str,
        output_schema: bytes | None = None,
        is_untrusted: bool = True,
    ) -> None:
        self._raw = raw
        self.server = server
        self.tool = tool
        self._output_schema = output_schema
        self.is_untrusted = is_untrusted
        self.app: Any = None
        """The interactive page of the tool, an `ipymcp.api.apps.App`; None if it has none that can be shown here."""
        self._decoded: types.CallToolResult | None = None

    @property
    def __pydantic_serializer__(self) -> Any:
        """The serializer for model libraries based on pydantic that call a `Tool` directly."""
        core: Any = importlib.import_module("pydantic_core")  # a dependency of the caller
        schema = core.core_schema
        serialization = schema.plain_serializer_function_ser_schema(ToolResult._for_models)
        return core.SchemaSerializer(schema.any_schema(serialization=serialization))

    @staticmethod
    def _for_models(result: ToolResult) -> Any:
        """The structured content, or the text with placeholders for images."""
        return result.data if result._structured is not None else "\n".join(map(str, result.content))

    @property
    def _fields(self) -> types.CallToolResult:
        # Not a cached_property: every call reads this, and on Python 3.11 that takes a lock.
        if self._decoded is None:
            try:
                self._decoded = types.decode(self._raw, types.CallToolResult)
            except ValueError as error:
                message = f"its answer is not a tool result: {error}"
                raise CallError(message, server=self.server, tool=self.tool, hint="a fault of the server") from error
        return self._decoded

    @property
    def source(self) -> str:
        """The origin of the result: `server.tool`."""
        return f"{self.server}.{self.tool}"

    @property
    def kind(self) -> str:
        """The `resultType`: `complete`, unless the server needs input first."""
        return self._fields.resultType

    @property
    def is_error(self) -> bool:
        """Whether the tool reported an error."""
        return bool(self._fields.isError)

    @cached_property
    def content(self) -> list[Part]:
        """The parts of the result: `Text`, `Image`, `Audio`, `Link`, `Embedded`, `Unknown`."""
        parts = types.loads(self._fields.content)
        if is_array(parts):
            return [read_part(part) for part in parts]
        return [] if parts is None else [read_part(parts)]

    @property
    def text(self) -> str:
        """All parts as text, separated by newlines; other parts as placeholders in brackets."""
        if len(self.content) == 1:
            return str(self.content[0])
        text = "\n".join(str(part) for part in self.content)
        if text or self._structured is None:
            return text
        if self._wraps_result:
            return "" if self.data is None else self.model_text
        return bytes(self._structured).decode("utf-8", "replace")

    @property
    def model_text(self) -> str:
        """The structured content or the text for a model, without escapes that could hide characters from the user."""
        if self._structured is None:
            return "\n".join(str(part) for part in self.content if not isinstance(part, Image))
        if self._wraps_result:
            return self.data if isinstance(self.data, str) else types.encode(self.data).decode()
        raw = bytes(self._structured)
        return (types.encode(types.loads(raw)) if b"\\u" in raw else raw).decode("utf-8", "replace")

    @property
    def images(self) -> list[Image]:
        """The images, including embedded ones."""
        parts = (part.image if isinstance(part, Embedded) else part for part in self.content)
        return [part for part in parts if isinstance(part, Image)]

    @property
    def links(self) -> list[Link]:
        """The links to resources."""
        return [part for part in self.content if isinstance(part, Link)]

    @property
    def _structured(self) -> msgspec.Raw | None:
        structured = self._fields.structuredContent
        return structured if structured and structured != _NULL else None

    @cached_property
    def data(self) -> Any:
        """The structured content; else the text, decoded if it is a JSON object or array.

        Structured content that only wraps the text, or the value that the text is, is left out.
        """
        if self._structured is None:
            return read_texts(self.content, self.text)
        data = types.loads(self._structured)
        if not is_object(data) or len(data) != 1:
            return data
        [(key, member)] = data.items()
        wraps_result = key == "result" and self._wraps_result
        if isinstance(member, str) and (wraps_result or member.strip() == self.text.strip()):
            return read_texts([Text(member)], member)
        if wraps_result or (key == "result" and member == read_texts(self.content, self.text)):
            return member
        return data

    @cached_property
    def _schema(self) -> Any:
        return types.loads(self._output_schema) if self._output_schema else None

    @property
    def _wraps_result(self) -> bool:
        """Whether the output schema only wraps a value in an object, as the official SDK and FastMCP do."""
        schema = self._schema
        if not is_object(schema):
            return False
        properties = schema.get("properties")
        return schema.get("x-fastmcp-wrap-result") is True or (is_object(properties) and set(properties) == {"result"})

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Problems of a usable result, such as data that does not match the output schema."""
        if self._schema is None or self.is_error:
            return ()
        if self._structured is None:
            return ("the tool declares an output schema but sent no structured content",)
        import jsonschema_rs

        try:
            validator = jsonschema_rs.validator_for(self._schema, retriever=_refuse_reference)
            errors = list(itertools.islice(validator.iter_errors(types.loads(self._structured)), _MAX_ERRORS))
        except Exception as error:  # the schema is untrusted: whatever is wrong with it, the result stays usable
            return (shortened(f"its output schema cannot be used: {str(error).splitlines()[0]}", _MAX_WARNING),)
        if not errors:
            return ()
        where = ".".join(str(step) for step in errors[0].instance_path)
        more = f" (and {len(errors) - 1}{' or' if len(errors) == _MAX_ERRORS else ''} more)" if len(errors) > 1 else ""
        message = f"at {where}: {errors[0].message}" if where else errors[0].message
        return (shortened(f"the structured content does not match the output schema: {message}", _MAX_WARNING) + more,)

    @property
    def _collection(self) -> list[Any] | dict[str, Any]:
        if is_array(self.data) or is_object(self.data):
            return self.data
        kind = "text" if isinstance(self.data, str) else type(self.data).__name__
        raise TypeError(f"{self.server}.{self.tool} answered with {kind}, not a list or dict: use .text or .data")

    def __getitem__(self, key: Any) -> Any:
        collection: Any = self._collection
        try:
            return collection[key]
        except KeyError:
            message = f"there is no key {shown(key)}"
            hint = nearest(key, collection, limit=1) if isinstance(key, str) else ""
            hint = hint or f"it has {', '.join(map(repr, [*collection][:_MAX_KEYS]))}"
        except TypeError:
            if not isinstance(key, str):
                raise
            message = f"there is no key {shown(key)} in a list of {len(collection):,}"
            hint = f"use [0][{key!r}] for the first one, or .df[{key!r}] for all"
        raise UnknownName(message, server=self.server, tool=self.tool, hint=hint) from None

    def __len__(self) -> int:
        return len(self._collection)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._collection)

    def __contains__(self, item: object) -> bool:
        return item in self._collection

    def __bool__(self) -> bool:
        return True

    def _refuse_arithmetic(self, other: object = None) -> NoReturn:
        message = "its result is neither a number nor a string"
        raise ArgumentError(message, server=self.server, tool=self.tool, hint="use .data, or .text for the text")

    __add__ = __radd__ = __float__ = __int__ = _refuse_arithmetic

    @property
    def __array__(self) -> Any:
        """Absent for a list, so that pandas and NumPy iterate it; raises for a dict, whose keys would become rows."""
        if not is_object(self.data):
            raise AttributeError("__array__")
        return self._refuse_array

    def _refuse_array(self, *_: object, **__: object) -> Any:
        raise TypeError(f"{self.server}.{self.tool} answered with a dict, not rows: use .df, or pd.DataFrame(r.data)")

    def __await__(self) -> Generator[None, None, ToolResult]:
        """Return the result itself: some libraries await every awaitable that a function returned."""
        yield from ()
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolResult):
            return NotImplemented
        if (self.server, self.tool, self.is_error) != (other.server, other.tool, other.is_error):
            return False
        mine, theirs = self._fields, other._fields
        return _same(mine.content, theirs.content) and _same(self._structured, other._structured)

    def __hash__(self) -> int:
        return hash((self.server, self.tool, self.is_error, *map(str, self.content)))

    @property
    def _arguments(self) -> dict[str, Any]:
        names = {"server": self.server, "tool": self.tool}
        return {**names, "output_schema": self._output_schema, "is_untrusted": self.is_untrusted}


def _same(mine: msgspec.Raw | None, theirs: msgspec.Raw | None) -> bool:
    """Whether both are the same JSON, apart from white space."""
    if mine is None or theirs is None:
        return mine is theirs
    return mine == theirs or types.loads(mine) == types.loads(theirs)


def read_texts(content: Sequence[Part], text: str) -> Any:
    """The texts decoded as JSON if each of them is an object or an array; else the unchanged text."""
    texts = [part.text for part in content if isinstance(part, Text)]
    texts = texts or [part.text for part in content if isinstance(part, Embedded) and part.text is not None]
    values: list[Any] = []
    for candidate in texts:
        if not candidate.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
            return text
        try:
            values.append(types.loads(candidate.encode()))
        except ValueError:
            return text
    if not values:
        return text
    return values[0] if len(values) == 1 else values


def _refuse_reference(uri: str) -> Any:
    raise ValueError(f"ipymcp fetches no schemas, and this one refers to {uri}")


# -- stored results ----------------------------------------------------------------------------------------------------


_MAX_RESULTS = 50
_MAX_BYTES = 200_000_000


class StoredResults(TableView):
    """Results by number: `mcp.results[7]`. The latest 50 are kept, up to 200 MB; the last is always kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[Any, int]] = OrderedDict()

    def keep(self, number: int, result: Any, size: int) -> None:
        """Keep a result of `size` bytes and drop the oldest beyond the limits. Thread-safe."""
        with self._lock:
            self._kept[number] = result, size
            total = sum(size for _, size in self._kept.values())
            while len(self._kept) > _MAX_RESULTS or (len(self._kept) > 1 and total > _MAX_BYTES):
                total -= self._kept.popitem(last=False)[1][1]

    def __getitem__(self, number: int) -> Any:
        """The result with this number.

        Raises:
            UnknownName: There is no such result, or it was dropped.
        """
        kept = self._kept.get(number) if isinstance(number, int) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if kept is None:
            numbers = ", ".join(map(str, self._kept)) or "none"
            message = f"there is no result {shown(number)}"
            raise UnknownName(message, hint=f"the latest {_MAX_RESULTS} are kept: {numbers}")
        return kept[0]

    def __iter__(self) -> Iterator[int]:
        return iter([*self._kept])

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number in self._kept

    def _ipython_key_completions_(self) -> list[int]:
        return list(self)

    @property
    def table(self) -> Table:
        """A table with a row per result."""
        rows = [(number, _source(result), size) for number, (result, size) in [*self._kept.items()]]
        note = "" if rows else "nothing yet: results of %mcp panel and those too long for a model are kept here"
        return Table(("number", "of", "bytes"), rows, title="MCP results", note=note)


def _source(result: Any) -> str:
    if getattr(result, "server", None) is None:  # returned by a function of the notebook
        return type(result).__name__
    names = (getattr(result, name, None) for name in ("tool", "uri", "prompt"))
    return f"{result.server} {next((name for name in names if name), '')}"

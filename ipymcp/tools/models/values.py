"""What came back from a call, as a model is told of it: text, or the rows of a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ipymcp.protocol import wire
from ipymcp.tools.content import Image
from ipymcp.tools.frames import find_rows
from ipymcp.tools.plain import NotJson, plain
from ipymcp.tools.results import ToolResult

if TYPE_CHECKING:
    from ipymcp.tools.frames import Record

__all__ = ["as_rows", "as_text", "is_frame"]


def as_text(value: Any) -> str:
    """Of a tool's result its structured content or its text, never both; of anything else its JSON, else its repr."""
    if isinstance(value, ToolResult):
        return _result_text(value)
    data = _data(value)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def as_rows(value: Any) -> list[Record] | None:
    """The rows where it is a table; None where it is none."""
    return find_rows(value.data if isinstance(value, ToolResult) else _data(value))


def is_frame(value: Any) -> bool:
    """Whether it is a DataFrame, of pandas or polars."""
    return all(hasattr(value, name) for name in ("columns", "dtypes", "head", "shape")) and len(value.shape) == 2


def _result_text(result: ToolResult) -> str:
    structured = result._structured
    if structured is not None and result._wraps_result:
        return result.data if isinstance(result.data, str) else wire.encode(result.data).decode()
    if structured is not None:
        raw = bytes(structured)
        if b"\\u" in raw:  # what nobody sees may hide behind escapes
            raw = wire.encode(wire.loads(raw))
        return raw.decode("utf-8", "replace")
    return "\n".join(str(part) for part in result.content if not isinstance(part, Image))


def _data(value: Any) -> Any:
    """A value of the notebook as JSON; as text where JSON cannot say it."""
    try:
        return json.loads(_frame_json(value)) if is_frame(value) else plain(value, ())
    except (NotJson, ValueError):  # ValueError: two columns of one name
        return repr(value)


def _frame_json(frame: Any) -> str:
    if hasattr(frame, "write_json"):
        return frame.write_json()
    has_index = frame.index.name is not None or type(frame.index).__name__ != "RangeIndex"
    return (frame.reset_index() if has_index else frame).to_json(orient="records", date_format="iso")

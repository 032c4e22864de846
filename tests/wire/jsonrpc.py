"""JSON-RPC 2.0 as MCP narrows it: one strict JSON value on one line, and the four shapes of a message."""

import json
from collections.abc import Iterator
from typing import Any

KEYS = {
    "request": {"jsonrpc", "id", "method", "params"},
    "notification": {"jsonrpc", "method", "params"},
    "result": {"jsonrpc", "id", "result"},
    "error": {"jsonrpc", "id", "error"},
}


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def is_id(value: Any) -> bool:
    """Whether it may be a request's id, or a progress token."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def parse(data: bytes) -> Any:
    """The frame's value.

    Raises:
        ValueError: It is not strict JSON in UTF-8 on one line. The text says why.
    """
    if b"\n" in data:
        raise ValueError("a frame is one line")
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant, object_pairs_hook=_unique)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return value


def kind_of(message: Any) -> str | None:
    """`request`, `notification`, `result`, `error`, or None where it is not a JSON-RPC message."""
    if not isinstance(message, dict):
        return None
    if "method" in message:
        return "request" if "id" in message else "notification"
    return "result" if "result" in message else "error" if "error" in message else None


def envelope_faults(kind: str | None, message: Any) -> Iterator[str]:
    """Faults of the JSON-RPC envelope, for any method."""
    if kind is None:
        yield "no JSON-RPC request, notification or response"
        return
    if message.get("jsonrpc") != "2.0":
        yield 'jsonrpc is not "2.0"'
    if surplus := sorted(set(message) - KEYS[kind]):
        yield f"a {kind} has no member {', '.join(surplus)}"
    if kind in ("request", "result") and not is_id(message.get("id")):
        yield f"the id of a {kind} is a string or an integer, not {json.dumps(message.get('id'))}"
    if "method" in message and not isinstance(message["method"], str):
        yield "the method is a string"
    if "params" in message and not isinstance(message["params"], dict):
        yield "params is an object or absent"
    if kind == "result" and not isinstance(message["result"], dict):
        yield "the result is an object"
    if kind == "error":
        yield from _error_faults(message["error"])


def _error_faults(error: Any) -> Iterator[str]:
    if not isinstance(error, dict):
        yield "the error is an object"
        return
    if not isinstance(error.get("code"), int) or isinstance(error.get("code"), bool):
        yield "the error's code is an integer"
    if not isinstance(error.get("message"), str):
        yield "the error's message is a string"
    if surplus := sorted(set(error) - {"code", "message", "data"}):
        yield f"an error has no member {', '.join(surplus)}"

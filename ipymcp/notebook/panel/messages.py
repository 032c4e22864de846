"""Messages of the panel's protocol: what a view may say in which mode, and how a message is read and written."""

from __future__ import annotations

import json
import math
from typing import Any, Final, Literal, TypeAlias

from ipymcp.errors import McpError, PolicyError
from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.state.meeting import VERSION

__all__ = [
    "VERSION",
    "Malformed",
    "Message",
    "Mode",
    "check_mode",
    "finite",
    "is_hello",
    "ready",
    "sound",
    "text",
    "texts",
]

Message: TypeAlias = dict[str, Any]
Mode: TypeAlias = Literal["full", "run", "view"]
_VIEW: Final = frozenset({"logs", "tools", "tool", "history"})
_RUN: Final = frozenset(
    {"call", "cancel", "validate", "code", "resources", "read", "prompts", "prompt", "answer"},
)
_LONGEST: Final = 10_000
"""Characters of a name or an address."""
_MOST: Final = 1_000


class Malformed(McpError):
    """A view said what cannot be understood."""


def check_mode(verb: str, mode: Mode, *, is_ours: bool) -> None:
    """Let a verb pass that may be done in a mode.

    Args:
        verb: What a view asks for.
        mode: What views may do now.
        is_ours: Whether the view speaks our version of the protocol.

    Raises:
        PolicyError: It may not.
    """
    if mode == "full" or verb in _VIEW or (mode == "run" and verb in _RUN):
        return
    upgrade = "panel and kernel are of different versions: upgrade the older one"
    hint = '%config IPyMCP.panel = "full" allows it' if is_ours else upgrade
    raise PolicyError(f"this panel may not {verb}: its mode is {mode}", hint=hint)


def is_hello(message: object) -> bool:
    """Whether a view begins a conversation."""
    return is_object(message) and message.get("kind") == "hello"


def text(message: Message, key: str) -> str:
    """A field that must be a text.

    Raises:
        Malformed: It is none.
    """
    value = message.get(key)
    if not isinstance(value, str) or not value or len(value) > _LONGEST:
        raise Malformed(f"{message.get('do')!r} needs {key!r}, a text")
    return value


def texts(message: Message, key: str) -> list[str]:
    """A field that must be a list of texts.

    Raises:
        Malformed: It is none.
    """
    value = message.get(key)
    if not is_array(value) or len(value) > _MOST or not all(isinstance(one, str) for one in value):
        raise Malformed(f"{message.get('do')!r} needs {key!r}, a list of texts")
    return value


def ready(message: Message) -> tuple[Message, bytes]:
    """A message that strict JSON can say, and that as one line."""
    try:
        return message, _dumped(message)
    except ValueError:
        mended = sound(message)
        return mended, _dumped(mended)


def _dumped(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def sound(value: Any) -> Any:
    """Strict JSON of what servers sent: no NaN, no half of a surrogate pair."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_object(value):
        return {sound(key): sound(item) for key, item in value.items()}
    return [sound(item) for item in value] if is_array(value) else value


def finite(number: float | None) -> float | None:
    """A number that JSON can say, or None."""
    return number if number is not None and math.isfinite(number) else None

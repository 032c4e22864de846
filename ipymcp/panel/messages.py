"""Reading and writing messages of the panel's protocol."""

from __future__ import annotations

import json
import math
from typing import Any, Final, Protocol, TypeAlias

from ipymcp.errors import McpError
from ipymcp.protocol.types import is_array, is_object
from ipymcp.storage.kernel_socket import VERSION

__all__ = [
    "VERSION",
    "Channel",
    "Malformed",
    "Message",
    "finite",
    "is_hello",
    "ready",
    "sound",
    "text",
    "texts",
]

Message: TypeAlias = dict[str, Any]
_MAX_LENGTH: Final = 10_000
"""Maximum characters of a name or a URL."""
_MAX_COUNT: Final = 1_000


class Malformed(McpError):
    """A message of a view is malformed."""


def is_hello(message: object) -> bool:
    """Whether a message opens a connection."""
    return is_object(message) and message.get("kind") == "hello"


def text(message: Message, key: str) -> str:
    """Read a required string.

    Raises:
        Malformed: The field is missing, empty, too long or not a string.
    """
    value = message.get(key)
    if not isinstance(value, str) or not value or len(value) > _MAX_LENGTH:
        raise Malformed(f"{message.get('do')!r} needs {key!r}, a text")
    return value


def texts(message: Message, key: str) -> list[str]:
    """Read a required list of strings.

    Raises:
        Malformed: The field is missing, too long or not a list of strings.
    """
    value = message.get(key)
    if not is_array(value) or len(value) > _MAX_COUNT or not all(isinstance(one, str) for one in value):
        raise Malformed(f"{message.get('do')!r} needs {key!r}, a list of texts")
    return value


def ready(message: Message) -> tuple[Message, bytes]:
    """Return a message that strict JSON can express, and its encoded line."""
    try:
        return message, _dumped(message)
    except ValueError:
        mended = sound(message)
        return mended, _dumped(mended)


def _dumped(message: Message) -> bytes:
    return json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def sound(value: Any) -> Any:
    """Return a value without NaN, infinities and lone surrogates, which strict JSON cannot express."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_object(value):
        return {sound(key): sound(item) for key, item in value.items()}
    return [sound(item) for item in value] if is_array(value) else value


def finite(number: float | None) -> float | None:
    """Return a finite number unchanged, else None."""
    return number if number is not None and math.isfinite(number) else None


class Channel(Protocol):
    """A channel to a view."""

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a message, given as an object and as a JSON line; wait until there is room for the next."""
        ...

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers arrive while a cell is running, or blocks the kernel's main thread."""
        ...

    def left(self) -> None:
        """Handle that the view was detached."""
        ...

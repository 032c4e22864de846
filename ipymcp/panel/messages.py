"""The envelope of the messages between the views of the panel and the kernel: hello, intents and replies.

The messages of a subject are in its module, with the rows and the commands that use them. `labextension/protocol.py`
generates the page's types from all of them. A message is an object with a `kind`; the other fields of an intent depend
on its command. Both sides ignore unknown kinds and fields.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Final, Literal, Protocol, Self, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError

from ipymcp.errors import McpError
from ipymcp.protocol.types import is_array, is_object
from ipymcp.storage.kernel_socket import VERSION
from ipymcp.text import cut, visible

Mode: TypeAlias = Literal["full", "run", "view"]
JsonObject: TypeAlias = dict[str, Any]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=10_000)]
Texts: TypeAlias = Annotated[list[str], Meta(max_length=1_000)]
_MAX_TEXT = 20_000
MAX_ABOUT = 2_000
"""Maximum characters of a line about something, such as a description in a list."""


# -- from a view ------------------------------------------------------------------------------------------------------


class FromView(Struct):
    """A message of a view, or a part of one. A field with a default may be absent."""


class ViewHello(FromView, tag_field="kind", tag="hello"):
    """The first message of a view, and a request for a new snapshot."""

    version: int
    client: str = "cell"
    wants: list[str] | None = None
    """The parts of the state that the view wants; all if absent. Unknown parts are ignored."""
    server: str | None = None
    """The only server to show."""
    callback: str | None = None
    """The OAuth redirect URL of the page's Jupyter server."""
    control: bool = False
    """Whether the view uses the control channel while the kernel is busy."""
    cells: bool = False
    """Whether the view reads and changes the notebook's cells."""


class Bye(FromView, tag_field="kind", tag="bye"):
    """The view was closed. It may send a hello again."""


class Acknowledgement(FromView, tag_field="kind", tag="read"):
    """The number of bytes that the view has read."""

    sent: int


class Intent(FromView, tag_field="kind", tag="intent"):
    """A command and its fields, which `read` converts to the command's own type."""

    id: int
    do: Any


class NoFields(FromView):
    """A command without fields."""


class ServerFields(FromView):
    """A command to a server."""

    server: Text


ToKernel: TypeAlias = ViewHello | Bye | Acknowledgement | Intent


# -- to a view --------------------------------------------------------------------------------------------------------


class ToView(Struct):
    """A message to a view, or a part of one."""


class StateRow(ToView):
    """A row of the state, which changes as a whole."""

    def is_of(self, server: str) -> bool:
        """Whether the row belongs to a server."""
        raise NotImplementedError

    def for_visitors(self) -> Self:
        """Return the row without details of the machine, for visitors of the notebook."""
        return self


class Problem(ToView):
    """An error, with a hint how to fix it."""

    message: str
    hint: str | None = None
    type: str | None = None
    key: str | UnsetType = UNSET
    """The key of the wrong value in a server's definition, such as `env.TOKEN`."""


class KernelHello(ToView, tag_field="kind", tag="hello"):
    """The kernel's identity and the view's current permissions."""

    version: int
    ipymcp: str
    mode: Mode
    namespace: str
    kernel: str
    visitor: bool = False
    """Whether the user is a visitor, who sees no details of the machine."""
    control: bool = False
    """Whether views may use the control channel, which running cells do not block."""


class SuccessReply(ToView, tag_field="kind", tag="reply"):
    """The reply to an intent."""

    id: int
    ok: Literal[True]
    value: Any


class FailureReply(ToView, tag_field="kind", tag="reply"):
    """The reply to a failed intent or to a malformed message."""

    id: int | None
    ok: Literal[False]
    error: Problem


class HistoryUpdate(ToView, tag_field="kind", tag="history"):
    """The number of finished calls."""

    over: int


class Mark(ToView, tag_field="kind", tag="mark"):
    """The number of bytes sent so far over a channel without flow control; the view replies with `read`."""

    sent: int


# -- reading and writing ----------------------------------------------------------------------------------------------


_KINDS: Final = {"hello": ViewHello, "bye": Bye, "read": Acknowledgement, "intent": Intent}
_MAX_REASON: Final = 300
F = TypeVar("F", bound=Struct)


class Malformed(McpError):
    """A message of a view is malformed."""


def is_hello(message: object) -> bool:
    """Whether a message opens a connection."""
    return is_object(message) and message.get("kind") == "hello"


def decode(message: object) -> ToKernel | None:
    """Decode a view's message; None for an unknown kind, which a later version may have.

    Raises:
        Malformed: The message is not an object, or a field of it is missing or wrong.
    """
    if not is_object(message):
        raise Malformed("a message is a JSON object")
    kind = message.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    try:
        return read(message, _KINDS[kind], kind)
    except Malformed:
        version = message.get("version")
        if kind != "hello" or version == VERSION:
            raise
        version = version if isinstance(version, int) else 0
        return ViewHello(version=version, client="cell")  # the other fields may differ in that version


def read(message: JsonObject, form: type[F], name: str) -> F:
    """Convert a message to its type.

    Args:
        message: The message; fields that the type lacks are ignored.
        form: The type.
        name: The name of the message in an error.

    Raises:
        Malformed: A field is missing or wrong.
    """
    try:
        return msgspec.convert(message, form)
    except ValidationError as error:
        raise Malformed(f"{name!r} is malformed: {str(error)[:_MAX_REASON]}") from None


def encode(message: ToView) -> bytes:
    """Encode a message as one line of strict JSON."""
    try:
        return msgspec.json.encode(message)  # NaN and infinities become null
    except UnicodeEncodeError:
        text = json.dumps(sound(msgspec.to_builtins(message)), ensure_ascii=False, separators=(",", ":"))
        return text.encode()


def sound(value: Any) -> Any:
    """Return a value without NaN, infinities and lone surrogates, which strict JSON cannot express."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_object(value):
        return {sound(key): sound(item) for key, item in value.items()}
    if isinstance(value, tuple):
        value = [*value]  # pyright: ignore[reportUnknownVariableType]
    return [sound(item) for item in value] if is_array(value) else value


def finite(number: float | None) -> float | None:
    """Return a finite number unchanged, else None."""
    return number if number is not None and math.isfinite(number) else None


def shown_text(text: str | None, limit: int = _MAX_TEXT) -> str | None:
    """Return a text of a server for display, shortened to `limit` characters; None for an empty text."""
    if not text:
        return None
    return visible(cut(text, limit))


class Channel(Protocol):
    """A channel to a view."""

    async def send_line(self, line: bytes) -> None:
        """Send an encoded message; wait until the next one can be sent."""
        ...

    def restart(self, hello: ViewHello) -> None:
        """Handle a hello: the view has read or lost everything sent so far."""
        ...

    def acknowledge(self, count: int) -> None:
        """Handle the number of bytes that the view has read."""
        ...

    def delivers_answers(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers arrive while a cell is running, or blocks the kernel's main thread."""
        ...

    def detach(self) -> None:
        """Handle that the view was detached."""
        ...

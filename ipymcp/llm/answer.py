"""A model's answer as a value: its text, tool calls with their outcomes, and usage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipymcp.errors import ArgumentError
from ipymcp.interaction.questions import DECISIONS, beforehand
from ipymcp.masking import mask, masks
from ipymcp.protocol.types import is_object
from ipymcp.results import markdown
from ipymcp.results.content import Image
from ipymcp.schema.to_json import to_json
from ipymcp.text import escaped, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.results.tool_result import ToolResult


SHOWN: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""Image types that models accept. Gemini does not accept GIF."""
_MAX_IMAGE_LENGTH: Final = 5_000_000
"""Base64 characters above which a provider may refuse the whole request."""


class ToolCallRequest(Struct, frozen=True):
    """A tool call that a model requests."""

    id: str
    name: str
    arguments: Any
    """An object, or its JSON text as the model wrote it."""


class ToolCallOutcome(Struct, frozen=True):
    """The outcome of a tool call, as sent to the model."""

    request: ToolCallRequest
    text: str
    images: tuple[Image, ...] = ()
    is_error: bool = False
    value: Any = None
    """The result as a Python value, for the notebook."""

    @property
    def shown(self) -> list[tuple[str, Image]]:
        """The images that models accept, with their actual types."""
        return self.parted(SHOWN)[1]

    @property
    def named(self) -> str:
        """The text, and the names of images that no model accepts."""
        return self.parted(SHOWN)[0]

    def parted(self, kinds: Sequence[str]) -> tuple[str, list[tuple[str, Image]]]:
        """The text with the names of images that are too large or not of these types, and the other images."""
        texts, shown = [self.text], list[tuple[str, Image]]()
        for image in self.images:
            kind = image.display_type
            if kind is not None and kind in kinds and len(image.base64) <= _MAX_IMAGE_LENGTH:
                shown.append((kind, image))
            else:
                texts.append(str(image))
        return "\n".join(filter(None, texts)), shown


def read_arguments(value: Any) -> dict[str, Any]:
    """Decode the arguments that a model wrote.

    Raises:
        ArgumentError: They are not a JSON object. The message is for the model.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"the arguments are not valid JSON: {error}", hint="send one JSON object") from error
    if value is None:
        return {}
    if not is_object(value):
        raise ArgumentError("the arguments are not a JSON object", hint="send one JSON object")
    return value


_MAX_LENGTH = 2_000
_ARGUMENTS_STYLE = "border-left:2px solid #8888;padding-left:6px;margin:4px 0"
_TEXT_STYLE = "white-space:pre-wrap;overflow-wrap:anywhere"
_WAITING = "waits for your answer"


class Usage(Struct, frozen=True):
    """The cost of an answer, as the provider counts it."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    def __str__(self) -> str:
        requests = f"{self.requests} request{'' if self.requests == 1 else 's'}"
        return f"{requests}, {self.input_tokens:,} tokens in, {self.output_tokens:,} out"


class ModelCall(Struct):
    """One tool call that a model made."""

    server: str
    tool: str
    arguments: Any
    text: str = ""
    """The text sent to the model."""
    result: ToolResult | Any = None
    """The tool's result; None if the call failed."""
    is_error: bool = False
    is_done: bool = False
    seconds: float = 0.0
    """Duration without the wait for consent."""
    number: int = 0
    """The call's number within the answer, from 1."""
    card: str = ""
    """The key of the card that shows the call."""
    asked_at: str = ""
    """The key of the card with the question while the user is asked, which may be another call's; else empty."""
    decision: str = ""
    """The user's answer in words."""
    is_refused: bool = False
    """Whether the user refused the call."""

    @property
    def summary(self) -> str:
        """One line about the call and its state."""
        if not self.is_done:
            return f"{self.server}.{self.tool} {f'· {_WAITING}' if self.asked_at else '…'}"
        took = f"failed, {self.seconds:.1f} s" if self.is_error else f"{self.seconds:.1f} s"
        parts = [f"{self.server}.{self.tool}", self.decision, "" if self.is_refused else took]
        return " · ".join(filter(None, parts))

    def __repr__(self) -> str:
        return one_line(f"<ModelCall {self.summary}>")

    def html(self) -> str:
        """A collapsible card with arguments and result; open, with all arguments, while the user is asked."""
        code = self.arguments.get("code") if self.tool == "run_python" and is_object(self.arguments) else None
        arguments = str(code) if code else _json(self.arguments)
        waits = bool(self.asked_at) and not self.is_done
        shown = ""
        bundle = getattr(self.result, "_repr_mimebundle_", None)
        if not self.is_error and callable(bundle):
            rich: Any = bundle()
            shown = rich.get("text/html", "")
        if self.is_done and not shown:
            shown = f'<pre style="{_TEXT_STYLE}">{escaped(_shortened(self.text))}</pre>'
        if self.is_refused and self.decision == DECISIONS[None]:
            shown += f"<small>{escaped(beforehand(f'{self.server}.{self.tool}'))} allows it beforehand</small>"
        mark = "✗" if self.is_error else "✓" if self.is_done else "?" if waits else "…"
        given = escaped(arguments if code or waits else _shortened(arguments))
        return (
            f"<details{' open' if code or waits else ''}>"
            f"<summary>{mark} <code>{escaped(self.summary)}</code></summary>"
            f'<pre style="{_TEXT_STYLE};{_ARGUMENTS_STYLE}">{given}</pre>{shown}</details>'
        )


class Answer:
    """A model's answer. `str` is its text.

    Attributes:
        text: The model's final text.
        data: The value that `returns` asked for; else None.
        calls: The tool calls, in order.
        messages: The conversation so far, as JSON.
        usage: The cost.
        model: The model's name.
        reason: The provider's reason for the end, if it gives one: `stop`, `length` if the answer was cut off, …
        is_untrusted: Whether the model had read untrusted content, which the answer may repeat.
    """

    is_untrusted: bool = False
    reason: str = ""

    def __init__(
        self, text: str, data: Any, calls: Sequence[ModelCall], messages: list[Any], usage: Usage, model: str
    ) -> None:
        self.text = text
        self.data = data
        self.calls = list(calls)
        self.messages = messages
        self.usage = usage
        self.model = model
        self.is_shown = False
        """Whether a cell has already shown the answer live. The next display then shows nothing."""

    @property
    def source(self) -> str:
        """The answer's origin, for messages about untrusted content."""
        return f"an answer of {self.model}"

    def json(self) -> dict[str, Any]:
        """The answer as JSON, without the messages."""
        calls = [
            {
                "tool": f"{call.server}.{call.tool}",
                "arguments": call.arguments,
                "text": call.text,
                "failed": call.is_error,
            }
            for call in self.calls
        ]
        usage = {name: getattr(self.usage, name) for name in Usage.__struct_fields__}
        data = None if self.data is None else to_json(self.data, ())
        return {"text": self.text, "data": data, "calls": calls, "usage": usage, "model": self.model}

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        calls = "".join(f"  {call.summary}\n" for call in self.calls)
        shown = self.text if self.data is None else repr(self.data)
        return f"{calls}{visible(shown)}"

    @property
    def _ipython_display_(self) -> Any:
        if not self.is_shown:
            raise AttributeError("_ipython_display_")
        self.is_shown = False
        return _nothing

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        shown: dict[str, Any] = {"text/plain": repr(self)}
        if self.data is not None or not self.text:
            return shown
        return {**shown, "text/markdown": markdown.markdown(self.text)}


def _json(arguments: Any) -> str:
    if isinstance(arguments, str):
        return mask(arguments)
    return json.dumps(masks.json(arguments), ensure_ascii=False, indent=1)


def _shortened(text: str) -> str:
    hidden = len(text) - _MAX_LENGTH
    return text if hidden <= 0 else f"{text[:_MAX_LENGTH]}…\n({hidden:,} characters more)"


def _nothing(**_: object) -> None: ...

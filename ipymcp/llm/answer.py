"""A model's answer as a value: its text, tool calls with their outcomes, and usage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeGuard

from msgspec import Struct

from ipymcp.errors import ArgumentError
from ipymcp.interaction.questions import DECISIONS, permission_hint
from ipymcp.llm.prices import dollars
from ipymcp.masking import masks
from ipymcp.protocol.types import is_object
from ipymcp.results import markdown, rendering
from ipymcp.results.content import Image
from ipymcp.results.tables import html_members
from ipymcp.results.tool_result import DisplayedResult
from ipymcp.schema.coercion import to_json
from ipymcp.text import counted, cut, escaped, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.results.tool_result import ToolResult


IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
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
    is_refused: bool = False
    """Whether the user or the policy refused the call."""
    value: Any = None
    """The result as a Python value, for the notebook."""

    def text_and_images(self, kinds: Sequence[str] = IMAGE_TYPES) -> tuple[str, list[tuple[str, Image]]]:
        """The text and the images, with placeholders in the text for images that cannot be sent.

        Args:
            kinds: The accepted image types.

        Returns:
            The text, and the images with their actual types.
        """
        shown, others = split_images(self.images, kinds)
        return "\n".join(filter(None, [self.text, *map(str, others)])), shown


def split_images(
    images: Iterable[Image], kinds: Sequence[str] = IMAGE_TYPES
) -> tuple[list[tuple[str, Image]], list[Image]]:
    """Split images into those that models accept, with their actual types, and the others.

    Args:
        images: The images.
        kinds: The accepted types.
    """
    shown, others = list[tuple[str, Image]](), list[Image]()
    for image in images:
        kind = image.display_type
        if kind is not None and kind in kinds and len(image.base64) <= _MAX_IMAGE_LENGTH:
            shown.append((kind, image))
        else:
            others.append(image)
    return shown, others


def read_arguments(value: Any) -> dict[str, Any]:
    """Decode the arguments that a model wrote.

    Raises:
        ArgumentError: The value is not a JSON object. The message is for the model.
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


INSERTABLE: Final = "application/vnd.ipymcp.code+json"
"""MIME type of an output that offers code as a new cell: its `code`, or the Python blocks of its Markdown. Only the
JupyterLab extension renders it, so exported notebooks have no button without a function."""
PYTHON: Final = frozenset({"python", "py", "python3", "ipython", "ipython3"})
"""Languages of code blocks that a cell can run."""
_MAX_LENGTH = 2_000
_MAX_LINE = 80
"""Characters of JSON in one line."""
_MIN_SECONDS = 0.05
"""Shorter durations are not shown."""
_TEXT_STYLE = "white-space:pre-wrap;overflow-wrap:anywhere;word-break:normal;margin:4px 0"
_CARD_STYLE = "border:1px solid #8888;border-radius:3px;padding:2px 8px;margin:2px 0"
_MUTED_STYLE = "opacity:.75"
_WAITING = "waits for your answer"
CallState: TypeAlias = Literal["running", "waiting", "done", "failed", "refused", "cancelled"]
_MARKS: Final[dict[CallState, tuple[str, str]]] = {
    "running": ("…", ""),
    "waiting": ("?", "#e08a00"),
    "done": ("✓", "#2e9e4f"),
    "failed": ("✗", "#d32f2f"),
    "refused": ("⊘", "#d32f2f"),
    "cancelled": ("■", ""),
}
"""The mark of each state, and its colour."""


class Usage(Struct, frozen=True):
    """The cost of one or more answers: tokens as the provider counts them, dollars by its list price."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that the provider read from its cache; they are included in `input_tokens`."""
    dollars: float = 0.0
    """The cost of the requests whose price is known."""
    unpriced: int = 0
    """Requests whose price is unknown."""
    unreported: int = 0
    """Requests whose tokens the provider did not report, so that no limit counts them."""

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    @property
    def cost(self) -> float | None:
        """The cost in dollars; None if the price of a request is unknown."""
        return None if self.unpriced else self.dollars

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    def __str__(self) -> str:
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        text = counted(self.requests, "request")
        if self.unreported < self.requests or not self.requests:
            text += f", {self.input_tokens:,} tokens in{cached}, {self.output_tokens:,} out"
        if self.dollars:
            unpriced = f" and {counted(self.unpriced, 'request')} of unknown price" if self.unpriced else ""
            text += f", about {dollars(self.dollars)}{unpriced}"
        if self.unreported:
            some = "" if self.unreported == self.requests else f" of {counted(self.unreported, 'request')}"
            text += f", tokens{some} not reported by the provider, so not limited"
        return text


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
    """The key of the card with the question, which may be another call's card; empty while the user is not asked."""
    decision: str = ""
    """The user's answer in words."""
    is_refused: bool = False
    """Whether the user or the policy refused the call."""
    name_for_model: str = ""
    """The name by which the model called the tool."""
    is_cancelled: bool = False
    """Whether the answer was stopped before the call ended."""
    sent: dict[str, Any] | None = None
    """The arguments that were sent to the tool, by its own names; None if none were sent."""
    is_edited: bool = False
    """Whether the user changed the arguments before the call was made."""
    was_made: bool = False
    """Whether the call was made, so that its tool may have run."""
    is_draft: bool = False
    """Whether the model is still writing the call."""

    @property
    def state(self) -> CallState:
        """The state of the call."""
        if not self.is_done:
            return "waiting" if self.asked_at else "running"
        if self.is_cancelled:
            return "cancelled"
        if self.is_refused:
            return "refused"
        return "failed" if self.is_error else "done"

    @property
    def name(self) -> str:
        """The server and the tool."""
        return f"{self.server}.{self.tool}"

    @property
    def summary(self) -> str:
        """One line about the call and its state."""
        return f"{self.name} …" if self.state == "running" else " · ".join([self.name, *self._details])

    @property
    def _details(self) -> list[str]:
        """The user's answer, the state in a word, and the duration unless it is too short to matter."""
        duration = f"{self.seconds:.1f} s" if self.seconds >= _MIN_SECONDS else ""
        edited = "you changed the arguments" if self.is_edited else ""
        reason = cut(one_line(next(iter(self.text.strip().splitlines()), "")), _MAX_LINE) if self.is_error else ""
        details: dict[CallState, list[str]] = {
            "running": [],
            "waiting": [_WAITING],
            "done": [self.decision, edited, duration],
            "failed": [self.decision, edited, f"failed: {reason}" if reason else "failed", duration],
            "refused": [self.decision or "refused"],
            # An interrupt also closes the question, before or after the call is stopped.
            "cancelled": [self.decision if self.decision != DECISIONS[None] else "", "cancelled"],
        }
        return [*filter(None, details[self.state])]

    def __repr__(self) -> str:
        return one_line(f"<ModelCall {self.summary}>")

    def html(self) -> str:
        """A collapsible card with arguments and result; open, with all arguments, while the user is asked."""
        code = self.arguments.get("code") if self.tool == "run_python" and is_object(self.arguments) else None
        waits = self.state == "waiting"
        mark, color = _MARKS[self.state]
        # Mixing the colour with that of the text makes it readable on light and dark backgrounds.
        icon = f'<span style="color:color-mix(in srgb, {color} 70%, currentColor)">{mark}</span>' if color else mark
        details = (
            f' <span style="{_MUTED_STYLE}">· {escaped(" · ".join(self._details))}</span>' if self._details else ""
        )
        result = self._result_html()
        is_open = bool(code) or waits or (self.is_draft and bool(self.arguments)) or "<img " in result
        return (
            f'<details{" open" if is_open else ""} style="{_CARD_STYLE}">'
            f"<summary>{icon} <b>{escaped(self.name)}</b>{details}</summary>"
            f"{text_html(str(code)) if code else self._arguments_html(is_whole=waits)}{result}</details>"
        )

    def _arguments_html(self, *, is_whole: bool) -> str:
        """The arguments as names and values; as text if they are not an object."""
        given = self.sent if self.is_edited else read_json_object(self.arguments)
        if given is None:
            return text_html(str(self.arguments) if is_whole else _shortened(str(self.arguments)))
        texts = {name: value if isinstance(value, str) else _json(value) for name, value in masks.json(given).items()}
        members = [(name, escaped(text if is_whole else _shortened(text))) for name, text in texts.items()]
        return html_members(members) if members else ""

    def _result_html(self) -> str:
        """The result with its images, or else the text for the model."""
        shown = ""
        if not self.is_error and isinstance(self.result, DisplayedResult):
            shown = rendering.html(self.result)
        elif not self.is_error and callable(bundle := getattr(self.result, "_repr_mimebundle_", None)):
            rich: Any = bundle()
            shown = rich.get("text/html", "")
        if self.is_done and not shown and not self.is_cancelled:
            shown = text_html(_shortened(self.text))
        if self.is_refused and self.decision == DECISIONS[None]:
            shown += f"<small>{escaped(permission_hint(self.name))} allows it beforehand</small>"
        return shown


def read_json_object(value: Any) -> dict[str, Any] | None:
    """The object that a model gave as arguments; None if it is not one."""
    try:
        return read_arguments(value)
    except ArgumentError:
        return None


def text_html(text: str) -> str:
    """A text as HTML, with its line breaks and spaces."""
    return f'<pre style="{_TEXT_STYLE}">{escaped(text)}</pre>'


class Answer:
    """A model's answer. `str` is its text.

    Attributes:
        text: The model's final text.
        data: The value of the type `returns`, if it was given; else None.
        calls: The tool calls, in order.
        messages: The conversation so far, as JSON.
        usage: The cost, also in tokens.
        model: The name of the model that answered.
        thinking: The model's reasoning, as far as the provider returns it.
        reason: The provider's reason for the end, if it gives one: `stop`, `length` if the answer was cut off, …
        is_replayed: Whether it comes from a recording.
        note: A note about the recording from which it comes or to which it was added; empty without a recording.
        is_untrusted: Whether the model had read untrusted content, which the answer may repeat.
    """

    is_untrusted: bool = False
    is_replayed: bool = False
    note: str = ""
    reason: str = ""
    thinking: str = ""

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
    def cost(self) -> float | None:
        """The cost in dollars, by the provider's list price; None if that is unknown."""
        return self.usage.cost

    @property
    def source(self) -> str:
        """The answer's origin, for messages about untrusted content."""
        return f"an answer of {self.model}"

    @property
    def code(self) -> str:
        """The Python blocks of the text in their order, joined; empty if there are none."""
        return python_of(self.text)

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
        counts = ("requests", "input_tokens", "output_tokens", "cached_tokens", "cost")
        usage = {name: getattr(self.usage, name) for name in counts}
        data = None if self.data is None else to_json(self.data, ())
        answer = {"text": self.text, "data": data, "calls": calls, "usage": usage, "model": self.model}
        return {**answer, "replayed": True} if self.is_replayed else answer

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        calls = "".join(f"  {call.summary}\n" for call in self.calls)
        shown = self.text if self.data is None else repr(self.data)
        note = f"\n({self.note})" if self.is_replayed else ""
        return f"{calls}{visible(shown)}{note}"

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
        note = f"\n\n*{self.note}*" if self.is_replayed else ""
        return {**shown, "text/markdown": markdown.markdown(self.text + note), **insertable_blocks(self.text)}


def python_of(text: str) -> str:
    """The Python blocks of a Markdown text, joined with an empty line between them."""
    blocks = markdown.split_blocks(text.replace("\r\n", "\n"))
    code = ("\n".join(one.lines).strip("\n") for one in blocks if _is_python(one))
    return "\n\n".join(filter(None, code))


def _is_python(block: str | markdown.Code) -> TypeGuard[markdown.Code]:
    return isinstance(block, markdown.Code) and block.language.lower() in PYTHON


def insertable_blocks(text: str) -> dict[str, Any]:
    """The part of a display's MIME bundle that offers the Python blocks of its Markdown as cells."""
    return {INSERTABLE: {}} if python_of(text) else {}


def insertable(code: str) -> dict[str, Any]:
    """The part of a display's MIME bundle that offers code as a cell; empty without code."""
    return {INSERTABLE: {"code": visible(code)}} if code else {}


def _json(value: Any) -> str:
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _MAX_LINE else json.dumps(value, ensure_ascii=False, indent=1)


def _shortened(text: str) -> str:
    hidden = len(text) - _MAX_LENGTH
    return text if hidden <= 0 else f"{text[:_MAX_LENGTH]}…\n({hidden:,} characters more)"


def _nothing(**_: object) -> None: ...

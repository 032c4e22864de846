"""The interface to a library that sends requests to models, and its data: a question, limits, a clock, errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, get_args

from msgspec import Struct

from ipymcp.argument_checks import AMOUNT, COUNT, SECONDS
from ipymcp.errors import McpError
from ipymcp.llm.answer import Usage
from ipymcp.llm.prices import dollars
from ipymcp.protocol.types import is_object
from ipymcp.results.tables import Table
from ipymcp.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from ipymcp.llm.answer import ToolCallOutcome, ToolCallRequest
    from ipymcp.llm.prompting import Attachment, NamedImage
    from ipymcp.llm.providers import Declaration
    from ipymcp.llm.tool_search import ToolSearch
    from ipymcp.runtime.client_handlers import SamplingRequest
    from ipymcp.runtime.loop import BackgroundLoop

T = TypeVar("T")


def _ignore(*_: object) -> None: ...


_KINDS: Final = {"seconds": SECONDS, "dollars": AMOUNT.or_none}
_MIN_DOLLARS: Final = 0.01
"""The limit that a hint proposes in place of 0 dollars."""


class Limits(Struct, frozen=True):
    """Limits of one answer."""

    rounds: int = 25
    """Requests to the model."""
    calls: int = 100
    tokens: int = 1_000_000
    """Input and output tokens of all requests together."""
    seconds: float = 900.0
    dollars: float | None = None
    """The cost of all requests together, by the provider's list price, which must be known."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _KINDS.get(name, COUNT).check("Limits()", name, getattr(self, name))

    def more(self, name: str, used: float = 0) -> str:
        """Python code that raises one of the limits; `%mcp ask` has options of the same names.

        Args:
            name: The limit.
            used: The amount that was used, or is needed.
        """
        value = 2 * getattr(self, name) or getattr(Limits(), name) or _MIN_DOLLARS
        while value <= used:
            value *= 2
        shown = f"{value:g}" if isinstance(value, float) else value
        return f"limits=ipymcp.Limits({name}={shown})"

    def has_room(self, spent: Usage) -> bool:
        """Whether another request may follow after this cost."""
        is_affordable = self.dollars is None or not (spent.unpriced or spent.dollars > self.dollars)
        return is_affordable and spent.requests < self.rounds and spent.tokens <= self.tokens


Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a model reasons; the nearest value that the provider has is used."""
EFFORTS: Final = get_args(Effort)


class ModelSettings(Struct, frozen=True):
    """Settings of a model for one answer; None leaves the choice to the provider."""

    effort: Effort | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    """Maximum tokens of each response."""


class AnswerRequest(Struct, frozen=True):
    """Everything a backend needs to produce one answer.

    Attributes:
        model: `provider:name`, or a model object of the backend's library.
        base_url: URL of an OpenAI-compatible provider.
        prompt: The user's prompt with its references filled in.
        images: The images in the prompt.
        system: The system prompt.
        history: The conversation so far: the messages of an earlier `ModelResponse`, as JSON.
        returns: A type or a JSON Schema for the answer; None for text.
        limits: The answer's limits.
        declared: Returns the tools, once per request to the model.
        call: Calls a tool by its name, with the arguments and the id of the call. Errors are not raised, but returned
            in the outcome.
        search: The tools that the model has to search for, in addition to `declared`; None if there are none.
        find: Searches these tools by one or more queries, and returns the names of the best matches.
        on_text: Receives the text as it arrives.
        settings: Settings of the model.
        on_thinking: Receives the reasoning as it arrives.
        on_call: Called when the model begins to write a tool call, with the number of the part in the response; the
            arguments are the beginning of their JSON text.
        on_arguments: Receives more of the JSON text of the arguments of such a call, by the number of its part.
        on_partial: Receives the partial response of an answer that ends early, before the error is raised; not called
            if there is none.
        was_made: Returns whether a call, by its id, may have reached its tool; asked after the answer has ended early.
        spent: The cost of earlier attempts at the same answer, which counts against the limits.
    """

    model: Any
    base_url: str | None
    prompt: str
    system: str
    history: Sequence[Any]
    returns: Any
    limits: Limits
    declared: Callable[[], Sequence[Declaration]]
    call: Callable[[str, dict[str, Any], str], Awaitable[ToolCallOutcome]]
    on_text: Callable[[str], None]
    search: ToolSearch | None = None
    find: Callable[[Sequence[str]], Awaitable[list[str]]] | None = None
    on_partial: Callable[[ModelResponse], None] = _ignore
    images: Sequence[NamedImage] = ()
    settings: ModelSettings = ModelSettings()
    on_thinking: Callable[[str], None] = _ignore
    on_call: Callable[[int, ToolCallRequest], None] = _ignore
    on_arguments: Callable[[int, str], None] = _ignore
    was_made: Callable[[str], bool] = lambda _: True
    spent: Usage = Usage()


class ModelResponse(Struct, frozen=True):
    """A complete or partial answer."""

    text: str
    data: Any
    messages: list[Any]
    """The conversation including this answer, as JSON, for the next question."""
    usage: Usage
    reason: str = ""
    """The provider's reason for the end, if it gives one: `stop`, `length`, `content_filter`, …"""
    thinking: str = ""
    """The reasoning, as far as the provider gives it."""


class ModelBackend(Protocol):
    """A library that sends requests to models."""

    async def answer(self, question: AnswerRequest) -> ModelResponse:
        """Answer a question. Cancelling stops it.

        Raises:
            McpError: The model or its key is missing, a limit was reached, the provider failed, or the history cannot
                be read.
        """
        ...

    async def sample(self, model: Any, request: SamplingRequest) -> tuple[dict[str, Any], Usage]:
        """Answer a server's sampling request with one request to the model, without the notebook's tools.

        Returns:
            The result of `sampling/createMessage`, and its cost.

        Raises:
            McpError: As for `answer`.
        """
        ...


class Clock:
    """A pausable timeout for a backend, shared by coroutines that run one after the other.

    The backend runs on the loop of the user's coroutines, because a provider's library may block its loop. The clock is
    paused from the background loop.

    Args:
        loop: The loop of the user's coroutines.
        seconds: The timeout, not counting pauses.
        hint: The hint of the error after the timeout.
    """

    def __init__(self, loop: BackgroundLoop, seconds: float, hint: str | None = None) -> None:
        self._loop = loop
        self._hint = hint
        self._seconds = self._left = seconds
        self._timeout: asyncio.Timeout | None = None
        self._pauses = 0

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine. May be awaited on any loop.

        Raises:
            McpError: The timeout has passed.
        """
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run(coroutine), self._loop.loop))
        except TimeoutError as error:
            raise McpError(f"no answer within {self._seconds:g} s", hint=self._hint) from error

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._left) as self._timeout:
                return await coroutine
        finally:
            due = self._timeout.when() if self._timeout is not None else None
            if due is not None:
                self._left = max(due - asyncio.get_running_loop().time(), 0)
            self._timeout = None

    def pause(self) -> None:
        """Pause the timeout. Pauses are counted."""
        self._loop.call(self._pause)

    def resume(self) -> None:
        """End one pause; the timeout continues after the last one."""
        self._loop.call(self._resume)

    def _pause(self) -> None:
        self._pauses += 1
        due = self._timeout.when() if self._timeout is not None else None
        if self._timeout is not None and due is not None and not self._timeout.expired():
            self._left = due - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)

    def _resume(self) -> None:
        self._pauses -= 1
        if self._timeout is not None and not self._pauses and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)


_MAX_SERVERS: Final = 6
"""Maximum number of servers in the line of a preview."""


class CostEstimate(Struct, frozen=True):
    """The estimated input of one request."""

    tokens: int
    dollars: float | None
    """None if the price is unknown."""

    def __str__(self) -> str:
        cost = "price unknown" if self.dollars is None else f"about {dollars(self.dollars)}"
        return f"about {self.tokens:,} tokens in a round, {cost}; answers are extra"


class RequestPreview(Struct, frozen=True):
    """A preview of the request that a question would send."""

    model: str
    prompt: str
    system: str
    attached: tuple[Attachment, ...]
    names: dict[str, str]
    """The tools by their names for the model: `{server__tool: server.tool}`."""
    tokens: int
    """Estimated tokens of the tool declarations in each request."""
    chat: str
    searches: bool = False
    """Whether the model searches for tools instead of receiving all declarations."""
    source: str = ""
    """The untrusted source of some of the content; empty if none is known."""
    note: str = ""
    """A note about the recording: that the answer is replayed, or why the model is asked again."""
    images: tuple[NamedImage, ...] = ()
    attached_tokens: int = 0
    """Estimated tokens of everything that is attached."""
    estimate: CostEstimate | None = None
    """The cost of the first request, if it was asked for."""
    earlier_as: str = ""
    """The name under which a saved chat of the same name is kept; empty if there is none."""

    def __str__(self) -> str:
        count = len(self.names)
        suffix = " to search" if self.searches else ""
        shown = f"{count:,} tool{'' if count == 1 else 's'} of {self._servers}{suffix}"
        tools = f"{shown}, about {self.tokens:,} tokens" if count else "no tools"
        attached = "".join(f" · {one.name}: {one.what}" for one in self.attached)
        attached += f" · attached: about {self.attached_tokens:,} tokens" if attached else ""
        chat = f" · chat {self.chat!r}" if self.chat else ""
        chat += f" (new; the saved one is kept as {self.earlier_as!r})" if self.earlier_as else ""
        source = f" · untrusted content from {self.source}" if self.source else ""
        note = f" · {self.note}" if self.note else ""
        return f"{self.model} · {tools}{chat}{attached}{source}{note}"

    @property
    def _servers(self) -> str:
        names = list(dict.fromkeys(tool.partition(".")[0] for tool in self.names.values()))
        rest = f" and {len(names) - _MAX_SERVERS} more" if len(names) > _MAX_SERVERS else ""
        return ", ".join(names[:_MAX_SERVERS]) + rest

    @property
    def table(self) -> Table:
        """A table of the system prompt, the prompt and the tools."""
        rows = [("system", self.system), ("prompt", self.prompt)]
        rows += [("image", f"{one.name} ({one.kind})") for one in self.images]
        if self.estimate is not None:
            rows.append(("cost", str(self.estimate)))
        rows += [("tool", f"{name} ({tool})") for name, tool in self.names.items()]
        return Table(("part", "what"), rows, title=str(self), note="nothing was sent")


# -- errors, in two lines for people -----------------------------------------------------------------------------------


MAX_LENGTH: Final = 400
"""Characters of a provider's or library's text in a message."""
_AGAIN: Final = "ask again"
_VARIABLES: Final = ("_KEY", "_TOKEN", "_URL", "_ENDPOINT")
_OLLAMA_HINT: Final = "%mcp ask --base-url http://localhost:11434/v1 -m NAME …, or ask(…, base_url=…) · or "
_OTHER_WORDS: Final = "ask in other words, or another model"
_MIN_MAX_TOKENS: Final = 4_096
"""Minimum `max_tokens` that a hint proposes."""
_URL_HINT: Final = "are the model's name and the URL right?"
_KEY_HINT: Final = "is the key right? It is in the provider's variable, such as OPENAI_API_KEY"
_HINTS: Final[dict[int, str | None]] = {400: None, 401: _KEY_HINT, 403: _KEY_HINT, 404: _URL_HINT}
"""Hints for HTTP statuses for which asking again would not help."""


def as_mcp_error(error: Exception) -> McpError:
    """Convert an error of the provider or the library."""
    text = first_line(error)
    if "environment variable" in text:
        words = (word.strip("`") for word in text.split())
        variable = next((word for word in words if word.endswith(_VARIABLES)), "")
        if variable:
            option = _OLLAMA_HINT if variable.startswith("OLLAMA") else ""
            hint = f"{option}%env {variable}=… · or set it before Jupyter"
            return McpError(f"this model needs the variable {variable}", hint=hint)
    if text.startswith("Unknown model"):
        return McpError(text.lower(), hint='write provider:name, such as "openai:gpt-5" or "anthropic:claude-opus-4-5"')
    if "maximum output retries" in text or "exceeded max retries" in text.lower():
        return McpError("the model's output does not match the requested type, even after retries", hint=_AGAIN)
    causes = [*_causes(error)]
    if any("incomplete" in str(cause) or type(cause).__name__ == "ReadError" for cause in causes):
        return truncated()
    address = _address(causes)
    if address and (text.startswith("Connection error") or type(causes[-1]).__name__ == "ConnectionRefusedError"):
        return McpError(f"{address} cannot be reached", hint="is it running, and is the URL right?")
    refusal = next((cause for cause in causes if _status(cause)), None)
    if refusal is not None:
        status = _status(refusal)
        if 300 <= status < 400:
            return McpError(f"the provider answered {status}: {_redirect(refusal)}", hint=_URL_HINT)
        message = visible(_message(getattr(refusal, "body", None)))[:MAX_LENGTH]
        return McpError(f"the provider answered {status}: {message}", hint=_HINTS.get(status, _AGAIN))
    if text.startswith("Streamed response ended without") or any(map(_is_bad_json, causes)):
        at = f"{address} answered" if address else "the provider answered"
        return McpError(f"{at}, but not as a model does", hint=f"{_URL_HINT} A login page may answer in its place")
    return McpError(text, hint=_AGAIN)


def truncated() -> McpError:
    """The error for a response whose stream broke off."""
    return McpError("the answer broke off in the middle", hint=_AGAIN)


def too_long(settings: ModelSettings, *, has_begun: bool) -> McpError:
    """The error for a response that its maximum length cut off before it could be used.

    Args:
        settings: The settings of the question.
        has_begun: Whether the model had begun a value of the requested type.
    """
    where = "in the middle of its value" if has_begun else "before it said anything"
    limit = settings.max_tokens
    more = "ask for less" if limit is None else f"max_tokens={max(2 * limit, _MIN_MAX_TOKENS)} gives it more"
    return McpError(f"cut off by its length {where}", hint=f"{more}; with a lower effort it reasons less")


def blocked(details: dict[str, Any]) -> McpError:
    """The error for a response without content that the provider's filter stopped, or the model refused.

    Args:
        details: The provider's details: the text of a refusal, or the filter's reason.
    """
    refusal = details.get("refusal")
    if refusal:
        return McpError(f"the model refused: {_line(refusal)}", hint=_OTHER_WORDS)
    reason = details.get("block_reason") or details.get("finish_reason")
    shown = f" ({_line(reason)})" if reason else ""
    return McpError(f"the provider's content filter stopped the answer at its beginning{shown}", hint=_OTHER_WORDS)


def silent() -> McpError:
    """The error for a model that repeatedly ended without text or calls."""
    return McpError("the model answered nothing, even when asked again", hint=_AGAIN)


def limit_reached(name: str, limits: Limits, spent: Usage) -> McpError:
    """The error for a limit that was reached.

    Args:
        name: The limit's name.
        limits: The limits of the answer.
        spent: The cost of the answer so far.
    """
    used = 0.0
    if name == "dollars":
        if spent.unpriced:
            return McpError("stopped: the price of a response is unknown", hint="limit tokens instead of dollars")
        used = spent.dollars
        text = f"it cost about {dollars(used)}, more than {dollars(limits.dollars or 0)}"
    elif name == "rounds":
        text = f"{counted(limits.rounds, 'round')} {'was' if limits.rounds == 1 else 'were'} not enough"
    elif name == "calls":
        text = f"it wanted more than {counted(limits.calls, 'call')}"
    else:
        used = spent.tokens
        text = f"it took more than {counted(limits.tokens, 'token')}"
    return McpError(f"stopped: {text}", hint=f"{limits.more(name, used)} allows more")


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return visible(next(iter(str(error).splitlines()), "") or type(error).__name__)[:MAX_LENGTH]


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes, down to the first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _address(causes: list[BaseException]) -> str:
    """The URL of the failed request; empty if no error has it."""
    for error in causes:
        request = getattr(error, "_request", None) or getattr(error, "request", None)
        url = getattr(request, "url", None)
        if url is not None:
            return f"{url.scheme}://{url.netloc.decode()}" if hasattr(url, "netloc") else str(url)
    return ""


def _status(error: BaseException) -> int:
    """The HTTP status of an error; 0 if it has none."""
    for name in ("status_code", "code"):
        status = getattr(error, name, None)
        if isinstance(status, int):
            return status
    return 0


def _redirect(error: BaseException) -> str:
    """The target of a redirect, in words."""
    response: Any = getattr(error, "response", None)
    location = None if response is None else response.headers.get("location")
    return f"it redirects to {_line(location)}" if location else "a redirect"


def _is_bad_json(error: BaseException) -> bool:
    return type(error).__name__ == "JSONDecodeError" or "as JSON" in str(error)


def _message(body: object) -> str:
    """The message in a provider's error body, on one line."""
    inner = body.get("error", body) if is_object(body) else body
    message = inner.get("message", inner) if is_object(inner) else inner
    return " ".join(str(message or "no message").split())


def _line(text: object) -> str:
    return visible(" ".join(str(text).split()))[:MAX_LENGTH]

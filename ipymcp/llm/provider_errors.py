"""Errors of providers, of the library that talks to them, and of answers that end early, in two lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import McpError
from ipymcp.llm.prices import dollars
from ipymcp.protocol.types import is_object
from ipymcp.text import counted, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.llm.answer import Usage
    from ipymcp.llm.backend import Limits, ModelSettings


MAX_LENGTH: Final = 400
"""Characters of a provider's or library's text in a message."""
_AGAIN: Final = "ask again"
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
        variable = next((word.strip("`") for word in text.split() if word.strip("`").endswith(("_KEY", "_TOKEN"))), "")
        if variable:
            return McpError(
                f"this model needs the variable {variable}", hint=f"%env {variable}=… · or set it before Jupyter"
            )
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

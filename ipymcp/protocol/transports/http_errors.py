"""Errors for HTTP responses that are not MCP: error statuses, web pages, oversized bodies, and failed connections."""

from __future__ import annotations

import email.utils
import re
import time
from typing import TYPE_CHECKING

from ipymcp.errors import AuthError, HttpError, McpError, ProtocolError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import METHOD_NOT_FOUND, excerpt, rpc_error
from ipymcp.text import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


BEGINNING = 65_536
"""Bytes of an error's body that are read."""
_SHOWN = 300
_NO_SESSION = -32001
_OVERLOADED = frozenset({429, 503})
"""Statuses that take precedence over a JSON-RPC error in the body, because their headers contain the time to retry."""
_TAGS = re.compile(r"<(script|style|head)\b.*?(?:</\1\s*+>|\Z)|<[^<>]*+>", re.DOTALL | re.IGNORECASE)
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_EVENT_FIELD = re.compile(rb"\s*+(?:data|event|id|retry|):")
_HINTS = {
    404: "check the URL's path; servers often answer at /mcp, older ones at /sse",
    405: "check the URL's path; servers often answer at /mcp, older ones at /sse",
    406: "a fault of the server",
    407: "check HTTP_PROXY: the proxy requires a login",
    413: "send less at once",
}


class Unreachable(Exception):
    """No connection could be made: nothing was sent.

    Args:
        reason: The problem, in one line.
        hint: Advice for the user, in one line.
        may_pass: Whether another attempt makes sense.
    """

    def __init__(self, reason: str, hint: str, *, may_pass: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.may_pass = may_pass


def refusal(status: int, phrase: str, headers: Mapping[str, str], body: bytes) -> McpError:
    """Build the error for an HTTP error status.

    Args:
        status: HTTP status, such as 429.
        phrase: Status and reason, such as `429 Too Many Requests`.
        headers: Headers of the response.
        body: The beginning of the body.
    """
    error = _json_rpc_error(body)
    if error is not None and status not in _OVERLOADED:
        return rpc_error(error)
    text = said(body, headers.get("content-type", ""))
    retry_after = _retry_after(headers.get("retry-after", ""))
    message = f"the server answered HTTP {phrase}" + (f": {text}" if text else "")
    hint = _HINTS.get(status)
    if retry_after is not None:
        hint = f"try again in {retry_after:,.0f} s"
    elif status in _OVERLOADED:
        hint = "try again later"
    elif status >= 500:
        hint = "a fault of the server, or of a proxy before it"
    return HttpError(message, status=status, retry_after=retry_after, body=body.decode("utf-8", "replace"), hint=hint)


def is_unknown_session(status: int, body: bytes) -> bool:
    """Return whether a response means that the server does not know the session any more, and has done nothing.

    The specification requires 404 (2025-11-25, session management). Servers on the TypeScript SDK respond 400 after a
    restart, with an error that mentions the session or that the server is not initialized; others 409 or 410, or 200
    with the error -32001 of that SDK.
    """
    if status not in (200, 400, 404, 409, 410) or (status == 200 and b"-32001" not in body[:BEGINNING]):
        return False
    error = _json_rpc_error(body)
    if status == 200:
        refused = rpc_error(error) if error is not None else None
        return refused is not None and refused.code == _NO_SESSION and names_session(refused.message)
    if status == 404:
        return error is None or rpc_error(error).code != METHOD_NOT_FOUND
    return status == 410 or names_session(said(body))


def names_session(text: str) -> bool:
    """Return whether an error is about the session."""
    return re.search(r"session|not initiali[sz]ed", text, re.IGNORECASE) is not None


def unauthorized(phrase: str, challenges: Sequence[str], body: bytes, *, had_credentials: bool) -> AuthError:
    """Build the error for a 401, or a 403 with a challenge, if there is no authorizer."""
    reason = excerpt(challenges[0].encode()) if challenges else said(body)
    wants = f" ({reason})" if reason else ""
    if had_credentials:
        return AuthError(
            f"the server refuses these credentials: HTTP {phrase}{wants}",
            hint="check the Authorization header in its definition",
        )
    return AuthError(
        f"the server requires a login: HTTP {phrase}{wants}", hint="give its definition headers, or auth to log in"
    )


def unexpected_content(media_type: str, body: bytes) -> ProtocolError:
    """Build the error for a response that is neither JSON nor an event stream, or not what it is labelled as."""
    if compression := next((name for mark, name in _COMPRESSED.items() if body.startswith(mark)), None):
        message = f"the response is compressed with {compression}, and does not say so"
        return ProtocolError(message, hint="a fault of the server, or of a proxy before it")
    if media_type == "application/json" and _EVENT_FIELD.match(body):
        return ProtocolError("the response is an event stream labelled application/json", hint="a fault of the server")
    text = _readable(body, media_type)
    answer = f"the server answered with {media_type or 'unknown content'} instead of MCP"
    message = f"{answer}: {text}" if text else answer
    return ProtocolError(message, hint="check the URL; a web page, a login or a proxy may have answered")


def _json_rpc_error(body: bytes) -> types.Raw | None:
    try:
        envelope = types.read_envelope(body)
    except ValueError:
        return None
    return envelope.error if isinstance(envelope, types.Envelope) and len(envelope.error) > 4 else None


def said(body: bytes, media_type: str = "") -> str:
    """The message of a JSON-RPC error, or else the beginning of the body, on one line."""
    error = _json_rpc_error(body)
    return rpc_error(error).message if error is not None else _readable(body, media_type)


def _retry_after(value: str) -> float | None:
    """Parse a Retry-After header, in seconds or as a date (RFC 9110); some servers send fractions of a second."""
    value = value.strip()
    if re.fullmatch(r"\d++(?:\.\d++)?", value, re.ASCII):
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _readable(body: bytes, media_type: str) -> str:
    """Format the beginning of a body, or the text of a web page, on one line."""
    text = body.decode("utf-8", "replace")
    if "html" in media_type or text.lstrip()[:1] == "<":
        text = _TAGS.sub(" ", text)
    return shortened(text, _SHOWN)

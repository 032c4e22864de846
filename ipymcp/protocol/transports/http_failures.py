"""What went wrong on the way to an HTTP server and back, in the words of the system."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING

import httpcore

from ipymcp.errors import CallError, ConnectionLost, McpError
from ipymcp.protocol.transports.network import CONNECT_TIMEOUT, TLS_ENDED
from ipymcp.protocol.transports.refusals import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FAILURES", "before_answer", "within_answer"]

FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpcore.TimeoutException)
"""What httpcore raises for reasons that lie outside this program."""

_CHECK_HOST = "check the URL and the network"
_CHECK_SCHEME = "is it http:// rather than https://?"
_CHECK_RUNNING = "is the server running?"


def before_answer(error: Exception, shown: str) -> McpError | Unreachable:
    """What became of a request that got no answer.

    Args:
        error: One of `FAILURES`.
        shown: The server's address, as messages name it.
    """
    if isinstance(error, (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError)):
        return _unreachable(f"cannot connect to {shown}", error)
    if isinstance(error, httpcore.LocalProtocolError):
        return CallError(f"the request cannot be sent ({error})", hint="check the server's URL and headers")
    return ConnectionLost(f"the connection was dropped before the answer ({_words(error)})")


def within_answer(error: Exception) -> ConnectionLost:
    """What became of an answer that ended too early."""
    return ConnectionLost(f"the connection was dropped before the answer was complete ({_words(error)})")


def _unreachable(what: str, error: Exception) -> Unreachable:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            hint = "if you trust this server, name its CA by SSL_CERT_FILE"
            return Unreachable(f"{what}: TLS: certificate verify failed: {cause.verify_message}", hint, may_pass=False)
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLWantReadError):  # that one is a silence
            return Unreachable(f"{what}: TLS: {_ssl_words(cause)}", _CHECK_SCHEME)
        if isinstance(cause, socket.gaierror):
            return Unreachable(f"{what}: the host's name is not known ({cause.strerror})", _CHECK_HOST)
        if isinstance(cause, ConnectionRefusedError):
            return Unreachable(f"{what}: connection refused", _CHECK_RUNNING)
        if isinstance(cause, FileNotFoundError):
            return Unreachable(f"{what}: there is no such socket", _CHECK_RUNNING)
    if isinstance(error, httpcore.ConnectTimeout):
        return Unreachable(f"{what}: no connection within {CONNECT_TIMEOUT:g} s", _CHECK_HOST, may_pass=False)
    return Unreachable(f"{what}: {_words(error)}", _CHECK_SCHEME if str(error) == TLS_ENDED else _CHECK_HOST)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and all that led to it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        members: tuple[BaseException, ...] = getattr(cause, "exceptions", ())  # of an ExceptionGroup
        for member in members:
            yield from _causes(member)
        cause = cause.__cause__ or cause.__context__


def _ssl_words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def _words(error: Exception) -> str:
    """What happened, in the words of the system if it has any."""
    words = next((str(cause) for cause in _causes(error) if str(cause)), type(error).__name__)
    return words.rstrip(".")

"""What all handlers share: who may ask, what is read, how errors are said.

`APIHandler` checks login and origin, and XSRF for whatever is no GET; the rest is asked here, of the Authorizer.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError

from ipymcp.errors import McpError, UnknownName
from ipymcp.jupyter.kernels import Obstacle
from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from jupyter_server.base.handlers import JupyterHandler

__all__ = ["Rest", "permit"]


async def permit(handler: JupyterHandler, action: str, resource: str) -> None:
    """Let a user pass who is logged in and may do this.

    Raises:
        HTTPError: 403.
    """
    user = handler.current_user
    if not user:
        raise HTTPError(HTTPStatus.FORBIDDEN)
    allowed: Any = handler.authorizer.is_authorized(handler, user, action, resource)
    if inspect.isawaitable(allowed):
        allowed = await allowed
    if not allowed:
        raise HTTPError(HTTPStatus.FORBIDDEN, f"may not {action} {resource}")


class Rest(APIHandler):
    """JSON in, JSON out. What a definition says is run: who may not run code may change nothing here."""

    auth_resource = "ipymcp"

    async def prepare(self) -> None:
        """Check who asks, before anything is read."""
        ready: Any = super().prepare()  # before 2.0 it is no coroutine
        if inspect.isawaitable(ready):
            await ready
        if self._finished:
            return
        self.set_header("Cache-Control", "no-store")
        if self.request.method in ("GET", "HEAD"):
            await permit(self, "read", "ipymcp")
        else:
            await permit(self, "write", "ipymcp")
            await permit(self, "execute", "kernels")

    def body(self) -> dict[str, Any]:
        """The object that was sent.

        Raises:
            HTTPError: 400: it is none.
        """
        with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):  # strict: no NaN, no broken text
            if is_object(body := msgspec.json.decode(self.request.body)):
                return body
        raise HTTPError(HTTPStatus.BAD_REQUEST, "expected a JSON object")

    def text(self, body: Mapping[str, Any], key: str) -> str:
        """A field of it that must be a text.

        Raises:
            HTTPError: 400: it is none.
        """
        value = body.get(key)
        if not isinstance(value, str):
            raise HTTPError(HTTPStatus.BAD_REQUEST, f"{key!r} must be a text")
        return value

    def say(self, document: Mapping[str, Any]) -> None:
        """Answer."""
        self.finish(json.dumps(document, ensure_ascii=False))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Errors of ours have a message and a hint; nothing of them is logged."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, McpError | Obstacle):
            status = HTTPStatus.NOT_FOUND if isinstance(error, UnknownName) else HTTPStatus.BAD_REQUEST
            self.set_status(status)
            self.say({"message": error.message, "hint": error.hint or ""})
        else:
            super().write_error(status_code, **kwargs)

    def log_exception(self, typ: Any, value: BaseException | None, tb: TracebackType | None) -> None:
        """What a user did wrong is no fault of the server."""
        if not isinstance(value, McpError | Obstacle):
            super().log_exception(typ, value, tb)

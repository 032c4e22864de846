"""Authorization, and names of `jupyter_server` that depend on its version."""

from __future__ import annotations

import inspect
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tornado.web import HTTPError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_server.auth.decorator import allow_unauthenticated, ws_authenticated
    from jupyter_server.base.handlers import JupyterHandler
    from jupyter_server.base.websocket import WebSocketMixin
else:
    try:
        from jupyter_server.base.websocket import WebSocketMixin
    except ImportError:  # before 2.0
        from jupyter_server.base.zmqhandlers import WebSocketMixin
    try:
        from jupyter_server.auth.decorator import allow_unauthenticated, ws_authenticated
    except ImportError:  # before 2.13, which does not require these decorators

        def allow_unauthenticated(method: Callable[..., Any]) -> Callable[..., Any]:
            """Leave the method as it is."""
            return method

        ws_authenticated = allow_unauthenticated

__all__ = ["WebSocketMixin", "allow_unauthenticated", "authorize", "ws_authenticated"]


async def authorize(handler: JupyterHandler, action: str, resource: str) -> None:
    """Ask Jupyter's authorizer whether the logged-in user may perform an action on a resource.

    Raises:
        HTTPError: 403: no user is logged in, or the authorizer denies it.
    """
    user = handler.current_user
    if not user:
        raise HTTPError(HTTPStatus.FORBIDDEN)
    allowed: Any = handler.authorizer.is_authorized(handler, user, action, resource)
    if inspect.isawaitable(allowed):
        allowed = await allowed
    if not allowed:
        raise HTTPError(HTTPStatus.FORBIDDEN, f"may not {action} {resource}")

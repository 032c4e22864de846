"""Names that came to Jupyter's server with a later version than the oldest that will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_server.auth.decorator import allow_unauthenticated, ws_authenticated
    from jupyter_server.base.websocket import WebSocketMixin
else:
    try:
        from jupyter_server.base.websocket import WebSocketMixin
    except ImportError:  # before 2.0
        from jupyter_server.base.zmqhandlers import WebSocketMixin
    try:
        from jupyter_server.auth.decorator import allow_unauthenticated, ws_authenticated
    except ImportError:  # before 2.13 nothing asks for them

        def allow_unauthenticated(method: Callable[..., Any]) -> Callable[..., Any]:
            """Say that anybody may."""
            return method

        ws_authenticated = allow_unauthenticated

__all__ = ["WebSocketMixin", "allow_unauthenticated", "ws_authenticated"]

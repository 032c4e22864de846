"""What views say while a cell blocks the kernel and no relay reaches it: by the control channel, to the same comm.

A page that shares no machine with the kernel opens a comm (see `panel/comm.py`). The kernel's answers to it come from
the background loop and so come at once; what the page says would wait on the shell channel for the cell's end. So it
may send the same messages as requests on the control channel, which a thread of the kernel's own answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["install", "remove"]

_REQUEST = "ipymcp_request"


def install(kernel: Any, comms: Any, target: str) -> bool:
    """Hear such requests; whether this kernel can.

    Args:
        kernel: The kernel.
        comms: Its comms.
        target: What pages open comms to.
    """
    handlers = getattr(kernel, "control_handlers", None)
    if handlers is None or getattr(kernel, "control_thread", None) is None:
        return False
    handlers[_REQUEST] = _handler(comms, target)
    return True


def remove(kernel: Any) -> None:
    """Hear them no more."""
    getattr(kernel, "control_handlers", {}).pop(_REQUEST, None)


def _handler(comms: Any, target: str) -> Callable[[Any, Any, dict[str, Any]], Any]:
    async def handle(stream: Any, ident: Any, message: dict[str, Any]) -> None:
        content: Any = message.get("content")
        comm = content.get("comm_id") if is_object(content) else None
        if not isinstance(comm, str) or not is_object(content.get("data")):
            return
        known = comms.comms.get(comm)
        if known is not None and known.target_name != target:
            return  # whose messages its owner expects on the main thread
        if known is None:
            comms.comm_open(stream, ident, _said(message, comm, {}, target_name=target))
        comms.comm_msg(stream, ident, _said(message, comm, content["data"]))

    return handle


def _said(message: dict[str, Any], comm: str, data: Any, **more: str) -> dict[str, Any]:
    """The same request as a message of the shell channel."""
    return {**message, "content": {"comm_id": comm, "data": data, **more}}

"""A question of ours whose outcome is awaited on the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipymcp.protocol.rpc import Slot

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.wire import Progress

__all__ = ["put"]


def put(ask: Callable[[Slot, str, bytes], None], method: str, body: bytes) -> tuple[Slot, asyncio.Future[Raw]]:
    """Put a question.

    Args:
        ask: Sends it; `Client.ask`.
        method: Such as `tools/list`.
        body: The params without `_meta`, a JSON object.

    Returns:
        Its slot, and a future of the answer.
    """
    future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

    def deliver(progress: Progress | None) -> None:
        if progress is not None or future.done():
            return
        if slot.error is not None:
            future.set_exception(slot.error)
        elif slot.result is not None:
            future.set_result(slot.result)

    slot = Slot(deliver)
    ask(slot, method, body)
    return slot, future

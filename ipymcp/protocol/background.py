"""The tasks of one connection: kept until they are done, and cancelled with it."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

__all__ = ["Background"]


class Background:
    """Tasks that nobody awaits. Belongs to the loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task in an empty context."""
        loop = asyncio.get_running_loop()
        task = contextvars.Context().run(loop.create_task, coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel_all(self) -> None:
        """The connection is over."""
        for task in tuple(self._tasks):
            task.cancel()

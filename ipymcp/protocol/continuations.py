"""Answers of the stateless era that are no outcome yet: a `resultType` other than complete, errors with a remedy.

Every answer passes here, megabytes too: what is looked for first are a few bytes.

Source: MCP 2026-07-28, basic (resultType).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ipymcp.protocol import wire
from ipymcp.protocol.rpc import rpc_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.errors import RpcError
    from ipymcp.protocol.rpc import Slot

__all__ = ["Continuations"]

_LARGE = 1 << 20
_COMPLETE = re.compile(rb'"resultType"\s*:\s*"complete"')
_ENDS = 1000
_TOOL_ERROR = (b'"isError":true', b'"isError": true')


class Continuations:
    """Who goes on with which answer. Belongs to the loop."""

    def __init__(self) -> None:
        self._results: dict[str, Callable[[Slot, Raw], None]] = {}
        self._errors: dict[int, Callable[[Slot, RpcError], bool]] = {}
        self._tool_error: Callable[[Slot, Raw], bool] | None = None
        self._words: tuple[bytes, ...] = ()

    def on_result(self, result_type: str, handler: Callable[[Slot, Raw], None]) -> None:
        """Have answers of this `resultType` go to `handler`, which owns the slot: it fails or renews it."""
        self._results[result_type] = handler
        self._words = (*self._words, wire.encode(result_type))

    def on_error(self, code: int, handler: Callable[[Slot, RpcError], bool]) -> None:
        """Have errors of this code go to `handler`, which returns whether it failed or renewed the slot."""
        self._errors[code] = handler

    def on_tool_error(self, handler: Callable[[Slot, Raw], bool]) -> None:
        """Have tools' own errors go to `handler`, which returns whether it failed or renewed the slot."""
        self._tool_error = handler
        self._words = (*self._words, *_TOOL_ERROR)

    def has_none(self, line: bytes | bytearray) -> bool:
        """Whether a result is certainly of no type that somebody goes on with; from any thread."""
        return not self._words or _is_plainly_complete(line) or not any(word in line for word in self._words)

    def intercept(self, slot: Slot, result: Raw, error: Raw, line: bytes | bytearray) -> bool:
        """Look at one answer; see `Intercept`."""
        if len(error):
            return self.remedy(slot, rpc_error(error))
        if self.has_none(line):
            return False
        try:
            answer = wire.decode(result, _Answer)
        except ValueError:
            return False
        if answer.isError and self._tool_error is not None:
            return self._tool_error(slot, result)
        handler = self._results.get(answer.resultType)
        if handler is None:
            return False
        handler(slot, result)
        return True

    def remedy(self, slot: Slot, error: RpcError) -> bool:
        """Look at one refusal; true where it is dealt with."""
        handler = self._errors.get(error.code)
        return handler is not None and handler(slot, error)


class _Answer(Struct):
    resultType: str = "complete"
    isError: bool = False


def _is_plainly_complete(line: bytes | bytearray) -> bool:
    """Whether a large answer says so where writers put it: first or last."""
    return len(line) > _LARGE and any(_COMPLETE.search(end) for end in (line[:_ENDS], line[-_ENDS:]))

"""Objects that are ways to something alive in this process, not values."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

__all__ = ["Live"]

L = TypeVar("L", bound="Live")


class Live:
    """Belongs to the servers of this process: a copy is the object itself, and pickling is refused."""

    def __copy__(self: L) -> L:
        return self

    def __deepcopy__(self: L, memo: dict[int, Any]) -> L:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__qualname__!r} lives in this process, with its MCP servers, and cannot be pickled:"
            " call it from threads, or load the servers in the other process with ipymcp.connect"
        )

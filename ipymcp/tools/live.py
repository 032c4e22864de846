"""Objects that are ways to something alive in this process, not values."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from ipymcp.tools.tables import Table

__all__ = ["Listing", "Live"]

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


class Listing(Live):
    """What is shown as a table."""

    @property
    @abstractmethod
    def table(self) -> Table:
        """What is shown."""

    @property
    def df(self) -> Any:
        """The table as a DataFrame."""
        return self.table.df

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self.table._repr_mimebundle_(include, exclude)

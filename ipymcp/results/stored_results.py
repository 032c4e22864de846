"""Storage of the complete results of which a user or a model was shown only a part."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from ipymcp.argument_checks import shown
from ipymcp.errors import UnknownName
from ipymcp.results.tables import Table, TableView

if TYPE_CHECKING:
    from collections.abc import Iterator


_MAX_RESULTS = 50
_MAX_BYTES = 200_000_000


class StoredResults(TableView):
    """Results by number: `mcp.results[7]`. The latest 50 are kept, up to 200 MB; the last is always kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[Any, int]] = OrderedDict()

    def keep(self, number: int, result: Any, size: int) -> None:
        """Keep a result of `size` bytes and drop the oldest beyond the limits. Thread-safe."""
        with self._lock:
            self._kept[number] = result, size
            while len(self._kept) > _MAX_RESULTS or (len(self._kept) > 1 and self._bytes > _MAX_BYTES):
                self._kept.popitem(last=False)

    @property
    def _bytes(self) -> int:
        return sum(size for _, size in self._kept.values())

    def __getitem__(self, number: int) -> Any:
        """The result with this number.

        Raises:
            UnknownName: There is no such result, or it was dropped.
        """
        kept = self._kept.get(number) if isinstance(number, int) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if kept is None:
            known = ", ".join(map(str, self._kept)) or "none"
            message = f"there is no result {shown(number)}"
            raise UnknownName(message, hint=f"the latest {_MAX_RESULTS} are kept: {known}")
        return kept[0]

    def __iter__(self) -> Iterator[int]:
        return iter([*self._kept])

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number in self._kept

    def _ipython_key_completions_(self) -> list[int]:
        return list(self)

    @property
    def table(self) -> Table:
        """A table with a row per result."""
        rows = [(number, _source(result), size) for number, (result, size) in [*self._kept.items()]]
        note = "" if rows else "nothing yet: results of %mcp panel and those too long for a model are kept here"
        return Table(("number", "of", "bytes"), rows, title="MCP results", note=note)


def _source(result: Any) -> str:
    if getattr(result, "server", None) is None:  # returned by a function of the notebook
        return type(result).__name__
    names = (getattr(result, name, None) for name in ("tool", "uri", "prompt"))
    return f"{result.server} {next((name for name in names if name), '')}"

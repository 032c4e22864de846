"""What would be sent, shown without sending it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.tools.tables import Table

if TYPE_CHECKING:
    from ipymcp.tools.models.asking import Beginning

__all__ = ["dry_run"]


def dry_run(beginning: Beginning) -> Table:
    """A row for each part of what a question would send."""
    rows = [("system", beginning.system), ("prompt", beginning.prompt)]
    rows += [("tool", f"{name} ({tool})") for name, tool in beginning.names.items()]
    return Table(("part", "what"), rows, title=str(beginning), note="nothing was sent")

"""What IPython's completer asks at every Tab; the answers come from `completion`, imported at the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipymcp

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.notebook.extension import Extension

__all__ = ["matcher"]


def matcher(extension: Extension) -> Callable[[Any], Any]:
    """The matcher to put into IPython's completer (its second API, IPython 8.6)."""
    from IPython.core import completer

    api: Any = completer

    @api.context_matcher()
    def ipymcp_matcher(context: Any) -> Any:
        lines = context.full_text.split("\n")[: context.cursor_line + 1]
        lines[-1] = lines[-1][: context.cursor_position]
        try:
            from ipymcp.notebook.completion import candidates

            found = candidates("\n".join(lines), ipymcp.host(), extension.settings.namespace or "mcp")
        except Exception:  # a completer that raises would spoil Tab for everybody
            found = None
        if found is None:
            return {"completions": [], "suppress": False}
        partial, words, kind = found
        return {
            # IPython would drop the rest itself, after looking at each.
            "completions": [api.SimpleCompletion(text=word, type=kind) for word in words[: api.MATCHES_LIMIT]],
            "matched_fragment": partial,
            "suppress": True,
            "ordered": True,
        }

    return ipymcp_matcher

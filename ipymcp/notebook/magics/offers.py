"""What the words for resources and prompts have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.errors import UnknownName
from ipymcp.notebook.magics.values import Object, parse_arguments
from ipymcp.runtime.names import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.magics.expressions import Namespaces
    from ipymcp.notebook.magics.line import Word
    from ipymcp.notebook.magics.request import Request

__all__ = ["check_patterns", "texts"]


def texts(words: Sequence[Word], namespaces: Namespaces) -> dict[str, Any]:
    """`key=value` words whose values are text.

    Raises:
        LineError: A word has no key, or a key comes twice.
        ArgumentError: A value names what the notebook does not have.
    """
    return {
        name: value.value if isinstance(value, Object) else value.text
        for name, value in parse_arguments(words, namespaces)
    }


def check_patterns(request: Request, found: bool, kind: str) -> None:
    """Say that a pattern means a server that there is not, where patterns found nothing.

    Raises:
        UnknownName: It does.
    """
    for pattern in request.names if not found else ():
        server = pattern.removeprefix("!").partition(".")[0]
        known = [*request.mcp, *request.mcp._host.aliases().values()]
        if server.isidentifier() and server not in known:
            hint = nearest(server, request.mcp) or "%mcp lists the servers"
            raise UnknownName(f"no {kind} matches {pattern!r}: there is no server {server!r}", hint=hint)

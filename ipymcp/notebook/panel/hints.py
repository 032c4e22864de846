"""Hints of errors, as a panel gives them: buttons and tabs in the place of lines to type."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ipymcp.errors import AuthError, TrustError

if TYPE_CHECKING:
    from ipymcp.errors import McpError

__all__ = ["panel_hint"]

_CLAUSES: Final = re.compile(r"\s+·\s+|;\s+|,\s+or\s+")
_BUTTON: Final = re.compile(
    r"%mcp (start|stop|restart|enable|disable)(?: (?:'(?:[^']|'')*'|\S+))?(?: (?:asks|tries)(?: again)?)?"
)
_TAB: Final = re.compile(r"%mcp (logs|tools|resources|prompts|history)\b.*")
_STATES: Final = re.compile(r"%mcp( shows.*)?")
_WORTHLESS: Final = re.compile(r"\bIPYMCP_\w+=|\.result\b|\btimeout=")
"""What helps only who types: a panel shows the whole result, and there is somebody to ask."""
_CODE: Final = re.compile(r"%%?\w|\bmcp\.\w")
_TABS: Final = {"history": "Calls"}


def panel_hint(error: McpError) -> str | None:
    """What to do about an error where there are buttons; a line to type only where no button does it."""
    clauses = [_clause(one.strip(), error) for one in _CLAUSES.split(error.hint or "")]
    return "; ".join(dict.fromkeys(filter(None, clauses))) or None


def _clause(text: str, error: McpError) -> str:
    if _WORTHLESS.search(text):
        return ""
    code = text[text.index("%") :] if "%" in text else ""
    before = text[: len(text) - len(code)]
    if (button := _BUTTON.fullmatch(code)) is not None:
        return f"{before}press {_title(button[1], error)}"
    if (tab := _TAB.fullmatch(code)) is not None:
        return f"{before}see {_TABS.get(tab[1], tab[1].capitalize())}"
    if _STATES.fullmatch(code) is not None:
        return f"{before}see Servers"
    return f"in a cell: {text}" if _CODE.search(text) else text


def _title(verb: str, error: McpError) -> str:
    if verb == "start" and isinstance(error, TrustError):
        return "Trust…"
    return "Log in" if verb == "start" and isinstance(error, AuthError) else verb.capitalize()

"""Errors as the panel shows them, with hints that name its buttons and tabs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from msgspec.structs import replace

from ipymcp.errors import AuthError, ConfigError, TrustError
from ipymcp.panel.messages import Problem
from ipymcp.text import capitalized, visible

if TYPE_CHECKING:
    from ipymcp.errors import McpError


_CLAUSES: Final = re.compile(r"((?<!\s)\s+·\s+|;\s+|,\s+or\s+)")
_BUTTON: Final = re.compile(
    r"%mcp (start|stop|restart|enable|disable)(?: (?:'(?:[^']|'')*'|\S+))?(?: (?:asks|tries)(?: again| for it)?)?"
)
_TAB: Final = re.compile(r"%mcp (logs|tools|resources|prompts|history)\b.*")
_STATES: Final = re.compile(r"%mcp( shows.*)?")
_INAPPLICABLE: Final = re.compile(r"\bIPYMCP_\w+=|\.result\b|\btimeout=")
"""Hints that do not apply to a panel, because it shows whole results and can ask the user."""
_CODE: Final = re.compile(r"%%?\w|\bmcp\.\w")
_TABS: Final = {"history": "Activity", "resources": "Tools", "prompts": "Tools"}


def start_problem(error: McpError, *, without: frozenset[str] = frozenset()) -> Problem:
    """Like `problem`, for the error of a server that does not run, which is shown in sentences of its own."""
    shown = problem(error, without=without)
    return replace(shown, message=capitalized(shown.message), hint=shown.hint and capitalized(shown.hint))


def problem(error: McpError, *, without: frozenset[str] = frozenset()) -> Problem:
    """An error with its hint; see `panel_hint` for the arguments."""
    hint = panel_hint(error, without=without)
    message = "\n".join(error.lines) or visible(error.message)
    key = visible(error.key) if isinstance(error, ConfigError) and error.key else UNSET
    return Problem(message=message, hint=hint and visible(hint), type=type(error).__name__, key=key)


def panel_hint(error: McpError, *, without: frozenset[str] = frozenset()) -> str | None:
    """Adapt an error's hint to a panel: name the button or tab where there is one, else the code to type.

    Args:
        error: The error.
        without: Parts of the adapted hint that are left out.
    """
    pieces = _CLAUSES.split(error.hint or "")
    text, done = "", {"", *without}
    for separator, clause in zip(("", *pieces[1::2]), pieces[::2], strict=True):
        adapted = _clause(clause.strip(), error)
        if adapted not in done:
            done.add(adapted)
            joint = ", or " if separator.strip(" ,") == "or" else "; "
            text = f"{text}{joint}{adapted}" if text else adapted
    return text or None


def _clause(text: str, error: McpError) -> str:
    if _INAPPLICABLE.search(text):
        return ""
    code = text[text.index("%") :] if "%" in text else ""
    before = text[: len(text) - len(code)]
    if (button := _BUTTON.fullmatch(code)) is not None:
        return f"{before}choose {_title(button[1], error)}"
    if (tab := _TAB.fullmatch(code)) is not None:
        return f"{before}see {_TABS.get(tab[1], tab[1].capitalize())}"
    if _STATES.fullmatch(code) is not None:
        return f"{before}see Servers"
    return f"in a cell: {text}" if _CODE.search(text) else text


def _title(verb: str, error: McpError) -> str:
    if verb == "start" and isinstance(error, TrustError):
        return "Trust…"
    return "Log in" if verb == "start" and isinstance(error, AuthError) else verb.capitalize()

"""Permissions of the panel's views, by the mode of the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from msgspec import Struct

from ipymcp.errors import CallError, McpError, PolicyError, ServerError, UnknownName
from ipymcp.panel.messages import Malformed, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.interaction.questions import ApprovalAnswer, QuestionKind
    from ipymcp.panel.messages import StateRow


R = TypeVar("R", bound="StateRow | dict[str, Any]")
VIEW_VERBS: Final = frozenset({"logs", "tools", "tool", "icon", "history", "details"})
RUN_VERBS: Final = frozenset(
    {
        *("call", "cancel", "validate", "code", "resources", "read", "subscribe", "prompts", "prompt", "suggest"),
        *("answer", "refresh", "rows", "row", "file", "repeat", "repeat_code", "keep_result", "cells"),
        *("app_open", "app_call", "app_request", "app_leave", "app_close"),
    },
)
HIDDEN_FROM_VISITORS: Final = frozenset({"logs", "code", "repeat_code", "keep_result", "cells"})
_RUN_KINDS: Final[frozenset[QuestionKind]] = frozenset({"approval", "form", "sampling"})
_RUN_ANSWERS: Final[frozenset[ApprovalAnswer]] = frozenset({"once", "answer", "no"})
"""Answers that are valid for at most one model answer."""
UNAVAILABLE: Final = "This server cannot be used now."
"""The only error of a server that visitors see."""


class Permissions(Struct, frozen=True):
    """The permissions of one view at this moment.

    Attributes:
        mode: The mode of the panel; `view` for a view with another protocol version.
        is_visitor: Whether the user is not the notebook's author, and must not see details of the machine.
        is_our_version: Whether the view has the kernel's protocol version.
    """

    mode: Mode
    is_visitor: bool = False
    is_our_version: bool = True

    def check(self, verb: str) -> None:
        """Check whether the view may use a command.

        Raises:
            PolicyError: The view may not use it.
        """
        if self.may(verb):
            return
        if self.is_visitor:
            raise PolicyError(f"this panel may not {verb}")
        raise PolicyError(f"this panel may not {verb}: its mode is {self.mode}", hint=self._hint())

    def may(self, verb: str) -> bool:
        """Whether the view may use a command."""
        if self.is_visitor and verb in HIDDEN_FROM_VISITORS:
            return False
        return self.mode == "full" or verb in VIEW_VERBS or (self.mode == "run" and verb in RUN_VERBS)

    def may_answer(self, kind: QuestionKind) -> bool:
        """Whether the view shows questions of this kind and may answer them."""
        return self.mode == "full" or (self.mode == "run" and kind in _RUN_KINDS)

    def check_answer(self, kind: QuestionKind) -> None:
        """Check whether the view may answer questions of this kind.

        Raises:
            PolicyError: The view may not answer such questions.
        """
        if not self.may_answer(kind):
            raise PolicyError(
                f"this panel may not answer a question of {kind}: its mode is {self.mode}", hint=self._hint()
            )

    def answers(self, offered: Sequence[ApprovalAnswer]) -> list[ApprovalAnswer]:
        """The offered answers to an approval question that the view may give."""
        return [one for one in offered if self.mode == "full" or one in _RUN_ANSWERS]

    def _hint(self) -> str:
        upgrade = "panel and kernel are of different versions: upgrade the older one"
        return '%config IPyMCP.panel = "full" allows it' if self.is_our_version else upgrade

    # -- visibility ---------------------------------------------------------------------------------------------------

    def shows(self, row: StateRow | dict[str, Any]) -> bool:
        """Whether the view may see a row of the state."""
        return not isinstance(row, dict) or self.may_answer(row["kind"])

    def shown(self, row: R) -> R:
        """Return a row without the parts that the view must not see."""
        if not isinstance(row, dict):
            return row.for_visitors() if self.is_visitor else row
        return cast("R", {**row, "answers": self.answers(row["answers"])}) if "answers" in row else row

    def may_open(self, origin: str) -> bool:
        """Whether the view may see arguments and result of a call of this kernel; visitors only of panels' calls."""
        return not self.is_visitor or origin == "panel"

    def shown_error(self, error: McpError) -> McpError:
        """Return an error without details that the view must not see."""
        if not self.is_visitor:
            return error
        if isinstance(error, ServerError):
            return ServerError(UNAVAILABLE)
        if isinstance(error, CallError | UnknownName | PolicyError | Malformed):
            return error
        return McpError("Something failed in the notebook.")

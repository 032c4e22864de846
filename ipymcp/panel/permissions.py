"""Permissions of the panel's views, by the mode of the panel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct

from ipymcp.errors import CallError, McpError, PolicyError, ServerError, UnknownName
from ipymcp.panel.messages import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.interaction.questions import ApprovalAnswer, QuestionKind
    from ipymcp.panel.messages import Message


Mode: TypeAlias = Literal["full", "run", "view"]
_VIEW: Final = frozenset({"logs", "tools", "tool", "history"})
_RUN: Final = frozenset(
    {"call", "cancel", "validate", "code", "resources", "read", "prompts", "prompt", "answer"},
)
_VISITORS_LACK: Final = frozenset({"logs", "code"})
_RUN_KINDS: Final[frozenset[QuestionKind]] = frozenset({"approval", "form", "sampling"})
_RUN_ANSWERS: Final[frozenset[ApprovalAnswer]] = frozenset({"once", "answer", "no"})
"""Answers that hold no longer than one model answer."""


class Permissions(Struct, frozen=True):
    """The permissions of one view at this moment.

    Attributes:
        mode: The mode of the panel; `view` for a view with another protocol version.
        is_visitor: Whether the person is not the notebook's author, and must not see details of the machine.
        is_our_version: Whether the view has this protocol version.
    """

    mode: Mode
    is_visitor: bool = False
    is_our_version: bool = True

    def check(self, verb: str) -> None:
        """Check whether the view may use a command.

        Raises:
            PolicyError: The view may not use it.
        """
        if self._may(verb):
            return
        if self.is_visitor:
            raise PolicyError(f"this panel may not {verb}")
        raise PolicyError(f"this panel may not {verb}: its mode is {self.mode}", hint=self._hint())

    def _may(self, verb: str) -> bool:
        if self.is_visitor and verb in _VISITORS_LACK:
            return False
        return self.mode == "full" or verb in _VIEW or (self.mode == "run" and verb in _RUN)

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

    def shows(self, part: str, row: Message) -> bool:
        """Whether the view may see a row of the state."""
        return part != "questions" or self.may_answer(row["kind"])

    def shown(self, part: str, row: Message) -> Message:
        """Return a row without the parts that the view must not see."""
        if part == "questions" and "answers" in row:
            return {**row, "answers": self.answers(row["answers"])}
        if part == "servers" and self.is_visitor:
            hidden = {"where": "", "source": "", "pid": None}
            return {**row, **hidden, "error": _UNAVAILABLE if row["error"] else None}
        return row

    def shown_history(self, row: Message) -> Message:
        """Return a history row without the parts that the view must not see."""
        return {**row, "error": "failed"} if self.is_visitor and row["error"] else row

    def shown_error(self, error: McpError) -> McpError:
        """Return an error without details that the view must not see."""
        if not self.is_visitor:
            return error
        if isinstance(error, ServerError):
            return ServerError(_UNAVAILABLE["message"])
        if isinstance(error, CallError | UnknownName | PolicyError | Malformed):
            return error
        return McpError("Something failed in the notebook.")


_UNAVAILABLE: Final[dict[str, Any]] = {"message": "This server cannot be used now.", "hint": None}

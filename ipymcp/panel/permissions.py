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
"""What lasts no longer than the answer of a model."""


class Permissions(Struct, frozen=True):
    """The permissions of one view at this moment.

    Attributes:
        mode: The mode of the panel; `view` for a view that speaks another version of the protocol.
        is_visitor: Whether the person is a stranger to the notebook: nothing of the author's machine is shown.
        is_our_version: Whether the view speaks this version of the protocol.
    """

    mode: Mode
    is_visitor: bool = False
    is_our_version: bool = True

    def check(self, verb: str) -> None:
        """Let an intent pass that the view may have done.

        Raises:
            PolicyError: The view may not.
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
        """Whether the view is shown questions of this kind, and may answer them."""
        return self.mode == "full" or (self.mode == "run" and kind in _RUN_KINDS)

    def check_answer(self, kind: QuestionKind) -> None:
        """Let an answer to a question of this kind pass.

        Raises:
            PolicyError: The view may not answer such questions.
        """
        if not self.may_answer(kind):
            raise PolicyError(
                f"this panel may not answer a question of {kind}: its mode is {self.mode}", hint=self._hint()
            )

    def answers(self, offered: Sequence[ApprovalAnswer]) -> list[ApprovalAnswer]:
        """The answers to a request for approval that the view may give, of those there are."""
        return [one for one in offered if self.mode == "full" or one in _RUN_ANSWERS]

    def _hint(self) -> str:
        upgrade = "panel and kernel are of different versions: upgrade the older one"
        return '%config IPyMCP.panel = "full" allows it' if self.is_our_version else upgrade

    # -- what is shown ------------------------------------------------------------------------------------------------

    def shows(self, part: str, row: Message) -> bool:
        """Whether a row of the state is shown to the view."""
        return part != "questions" or self.may_answer(row["kind"])

    def shown(self, part: str, row: Message) -> Message:
        """A row as the view is shown it."""
        if part == "questions" and "answers" in row:
            return {**row, "answers": self.answers(row["answers"])}
        if part == "servers" and self.is_visitor:
            hidden = {"where": "", "source": "", "pid": None}
            return {**row, **hidden, "error": _UNAVAILABLE if row["error"] else None}
        return row

    def shown_history(self, row: Message) -> Message:
        """A row of the history as the view is shown it."""
        return {**row, "error": "failed"} if self.is_visitor and row["error"] else row

    def shown_error(self, error: McpError) -> McpError:
        """An error as the view is shown it: of the author's machine, visitors are told nothing."""
        if not self.is_visitor:
            return error
        if isinstance(error, ServerError):
            return ServerError(_UNAVAILABLE["message"])
        if isinstance(error, CallError | UnknownName | PolicyError | Malformed):
            return error
        return McpError("Something failed in the notebook.")


_UNAVAILABLE: Final[dict[str, Any]] = {"message": "This server cannot be used now.", "hint": None}

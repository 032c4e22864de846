"""What the user is asked before something runs, and the answers there are."""

from __future__ import annotations

from glob import escape
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from msgspec import Struct

from ipymcp.text import quoted

if TYPE_CHECKING:
    from ipymcp.policy.rules import Caller

__all__ = [
    "ALLOWING",
    "DECISIONS",
    "ApprovalAnswer",
    "ApprovalQuestion",
    "Candidate",
    "Card",
    "QuestionKind",
    "TrustAnswer",
    "TrustQuestion",
    "WantedCall",
    "beforehand",
]

QuestionKind: TypeAlias = Literal["trust", "login", "secret", "approval", "form", "sampling"]
"""What a question is about. Whoever may answer one kind may not answer every kind: `trust`, whether servers may run;
`login`, an account; `secret`, the values and passwords that a definition needs; `approval`, a call; `form`, a
server's own question; `sampling`, the use of the user's model."""

ApprovalAnswer: TypeAlias = Literal["once", "answer", "server", "notebook", "always", "never", "no"]
"""Allow this once; its tools for the rest of the model's answer; all tools of the server in this notebook; its tools in
this notebook; its tools from now on. Deny its tools from now on; deny this once."""

ALLOWING: Final[tuple[ApprovalAnswer, ...]] = ("once", "answer", "server", "notebook", "always")
DECISIONS: Final[dict[ApprovalAnswer | None, str]] = {
    None: "not answered",
    "once": "allowed once",
    "answer": "allowed for the rest of the answer",
    "server": "allowed, with all tools of the server in this notebook",
    "notebook": "allowed in this notebook",
    "always": "always allowed",
    "never": "never allowed",
    "no": "denied",
}
"""What was answered, in words."""


def beforehand(tool: str) -> str:
    """How a question to a model allows it the calls of `server.tool`: in Python and on a line."""
    pattern = escape(tool)
    return f"allow={pattern!r} in mcp.ask, --allow {quoted(pattern)} in %mcp ask"


class Card(Protocol):
    """Shows a call that may need consent. Used on the background loop."""

    @property
    def key(self) -> str:
        """Names it; empty where nobody sees it."""
        ...

    @property
    def number(self) -> int:
        """Which call of its answer it is."""
        ...

    def asks(self, key: str) -> None:
        """The user is being asked about the call.

        Args:
            key: Of the card that has the question: of several calls that are one question, the last one's.
        """
        ...

    def answered(self, answer: ApprovalAnswer | None) -> None:
        """The user has answered; None where nobody did."""
        ...


class WantedCall(Struct, frozen=True):
    """A call that somebody wants to make."""

    server: str
    tool: str
    arguments: bytes
    """A JSON object, as it would be sent."""
    caller: Caller | Literal["server"]
    """Who; a server, where it wants the user's model."""
    why: str
    """The rule that says to ask."""
    hints: str
    """What is known of what the tool does; empty if nothing is."""
    code: str = ""
    """Python that would run here, where that is what the call does: it is shown whole, line by line."""


class ApprovalQuestion(Struct, frozen=True):
    """May these calls be made? They were asked for at once, and one answer is for all of them."""

    calls: tuple[WantedCall, ...]
    answers: tuple[ApprovalAnswer, ...]
    """Those that make sense here."""
    card: str = ""
    """The key of the card that has it, in a cell's output; empty for none."""


class Candidate(Struct, frozen=True):
    """A server that would run if the user agreed."""

    name: str
    digest: str
    lines: tuple[str, ...]
    """All of its definition, what its variables give to whom, and what an agreement is bound to."""
    dangers: tuple[str, ...]
    """What is dangerous in it."""
    secrets: tuple[str, ...]
    """The kept secrets that it wants."""
    is_agreed: bool = False
    """Whether it may run already, and only its secrets are asked about."""


class TrustQuestion(Struct, frozen=True):
    """May these servers of a file run?"""

    file: str
    why: str
    """Why it is asked: a project's file, or the user's own that changed."""
    candidates: tuple[Candidate, ...]
    left_out: str = ""
    """The servers that are not shown, and to which no answer agrees, in one line."""
    is_strangers: bool = False
    """Whether a stranger wrote the file: none of it is masked, not even what is a secret elsewhere."""


class TrustAnswer(Struct, frozen=True):
    """What the user agreed to."""

    servers: frozenset[str] = frozenset()
    """Names of those that may run."""
    secrets: frozenset[tuple[str, str]] = frozenset()
    """Servers' names and the secrets they may have."""

"""Questions to the user as records, their answers, and the interface of what asks them."""

from __future__ import annotations

from glob import escape
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    pass


def is_web_address(url: str) -> bool:
    """Whether a user may be asked to visit it: what a browser opens, with nothing in it that hides the rest."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def domain(url: str) -> str:
    """Its host as a browser shows it, and in plain letters where it has others: those only look like a known one."""
    host = urlsplit(url).hostname or ""
    try:
        plain = host.encode("idna").decode()
    except UnicodeError:
        plain = ascii(host)
    return host if plain == host else f"{host} ({plain})"


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


Caller: TypeAlias = Literal["user", "model", "app"]


Action = Literal["accept", "decline", "cancel"]


class FormQuestion(msgspec.Struct, frozen=True):
    """A server wants some values (elicitation, form mode)."""

    server: str
    tool: str | None
    """The tool whose call asks, where that is known."""
    message: str
    """The server's words, as it sent them."""
    schema: Mapping[str, Any]
    """The object it wants, as JSON Schema."""


class UrlQuestion(msgspec.Struct, frozen=True):
    """A server wants the user to visit an address (elicitation, URL mode)."""

    server: str
    tool: str | None
    message: str
    url: str


class RedirectWaiter(Protocol):
    """Knows whether a browser has come back from a login."""

    def wait(self, timeout: float) -> bool:
        """Wait at most so many seconds for that; whether it has."""
        ...


class LoginQuestion(msgspec.Struct, frozen=True):
    """A server wants the user to log in, in a browser."""

    server: str
    url: str
    """Where to log in."""
    domain: str
    """Of that address."""
    scopes: tuple[str, ...]
    """What the server will be allowed to do."""
    redirected: RedirectWaiter | None
    """Where the browser comes back; None if only the user can say where it went."""
    site: str
    """The host of the server that the login is for."""
    answer_to: str
    """The host that the answer to the login goes to."""
    gives_secret: bool = False
    """Whether a configured client secret goes there too."""
    slip: Callable[[str], str] = lambda _: ""
    """Says of a pasted address what it lacks to be the answer; nothing where it is one."""

    @property
    def parties(self) -> str:
        """Who takes part, as a line for the user."""
        secret = ", with your client secret" if self.gives_secret else ""
        return f"log in at {self.domain}, for the server at {self.site}; the answer goes to {self.answer_to}{secret}"


class ElicitationAnswer(msgspec.Struct, frozen=True):
    """What the user answered to a server's question."""

    action: Action
    content: dict[str, Any] | None = None
    """The values, with `accept` of a form."""
    note: str = ""
    """Why it was not asked, for the server's log."""


CANCELLED = ElicitationAnswer("cancel")


UNANSWERED = ElicitationAnswer("cancel", note="nobody could be asked")
"""Where no front end takes input, as in nbclient and papermill."""


class UserInterface(Protocol):
    """Asks the user. Each method but `can_ask` is called where the user waits, and blocks until there is an answer."""

    def can_ask(self) -> bool:
        """Whether anybody could answer now; from any thread, at once."""
        ...

    def fill(self, question: FormQuestion) -> ElicitationAnswer:
        """Have a form filled."""
        ...

    def visit(self, question: UrlQuestion) -> ElicitationAnswer:
        """Have an address visited; `accept` says that the user agrees, not that it is done."""
        ...

    def login(self, question: LoginQuestion) -> str | None:
        """Have the user log in.

        Returns:
            The empty string once the browser has come back, the address it went to if the user gave that, or None if
            the user refuses or nobody can answer.
        """
        ...

    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Have the user look at servers and say which may run; None if nobody can answer."""
        ...

    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Have the user say whether calls may be made; None if nobody can answer."""
        ...

"""Records of questions to the user and of their answers, and the interface of user interfaces."""

from __future__ import annotations

from glob import escape
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def is_web_address(url: str) -> bool:
    """Whether a user may be asked to visit a URL: http or https, without characters that could hide a part of it."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def domain(url: str) -> str:
    """The host of a URL, followed by its ASCII form if it has other letters, which may imitate a known host."""
    host = urlsplit(url).hostname or ""
    try:
        plain = host.encode("idna").decode()
    except UnicodeError:
        plain = ascii(host)
    return host if plain == host else f"{host} ({plain})"


QuestionKind: TypeAlias = Literal["trust", "login", "secret", "approval", "form", "sampling"]
"""The kind of a question, by which front ends may be permitted to answer: `trust`, whether servers may run; `login`, an
account; `secret`, the values and passwords that a definition needs; `approval`, a call; `form`, a server's own
question; `sampling`, the use of the user's model."""

ApprovalAnswer: TypeAlias = Literal["once", "answer", "server", "notebook", "always", "never", "no"]
"""Allow the calls once; their tools for the rest of the model's answer; all tools of the server in this notebook; their
tools in this notebook; their tools from now on. Deny their tools from now on; deny the calls once."""

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
"""Descriptions of the answers."""


def beforehand(tool: str) -> str:
    """The arguments of `mcp.ask` and `%mcp ask` that allow a model the calls of `server.tool`."""
    pattern = escape(tool)
    return f"allow={pattern!r} in mcp.ask, --allow {quoted(pattern)} in %mcp ask"


class Card(Protocol):
    """Displays a call that may need consent. Used on the background loop."""

    @property
    def key(self) -> str:
        """The card's identifier; empty if the card is not displayed."""
        ...

    @property
    def number(self) -> int:
        """The number of the call within the model's answer."""
        ...

    def asks(self, key: str) -> None:
        """Show that the user is being asked about the call.

        Args:
            key: The key of the card with the question: the last one of several calls in one question.
        """
        ...

    def answered(self, answer: ApprovalAnswer | None) -> None:
        """Show the user's answer; None if there was none."""
        ...


class WantedCall(Struct, frozen=True):
    """A call that needs the user's approval."""

    server: str
    tool: str
    arguments: bytes
    """The arguments as the JSON object to send."""
    caller: Caller | Literal["server"]
    """The origin of the call; a server if it requests sampling."""
    why: str
    """The rule that requires approval."""
    hints: str
    """The server's hints about the tool in words; empty if there are none."""
    code: str = ""
    """Python code that the call would run in this kernel; it is shown completely."""


class ApprovalQuestion(Struct, frozen=True):
    """Asks whether calls may be made. They were requested together, and one answer applies to all of them."""

    calls: tuple[WantedCall, ...]
    answers: tuple[ApprovalAnswer, ...]
    """The possible answers."""
    card: str = ""
    """The key of the card with the question in a cell's output; empty for none."""


class Candidate(Struct, frozen=True):
    """A server that runs if the user agrees."""

    name: str
    digest: str
    lines: tuple[str, ...]
    """The whole definition, the recipients of its variables, and the scope of an agreement."""
    dangers: tuple[str, ...]
    """Dangerous parts of the definition."""
    secrets: tuple[str, ...]
    """The stored secrets that the definition uses."""
    is_agreed: bool = False
    """Whether the server may already run, so that only its secrets are in question."""


class TrustQuestion(Struct, frozen=True):
    """Asks whether the servers of a file may run."""

    file: str
    why: str
    """The reason for the question: a project's file, or the user's own file that changed."""
    candidates: tuple[Candidate, ...]
    left_out: str = ""
    """A line about servers that are not shown and that no answer allows."""
    is_strangers: bool = False
    """Whether the file is from someone else: nothing in it is masked, even if it equals a secret of the user."""


class TrustAnswer(Struct, frozen=True):
    """The user's answer to a `TrustQuestion`."""

    servers: frozenset[str] = frozenset()
    """The names of the servers that may run."""
    secrets: frozenset[tuple[str, str]] = frozenset()
    """Pairs of a server's name and a secret that it may use."""


Caller: TypeAlias = Literal["user", "model", "app"]


Action = Literal["accept", "decline", "cancel"]


class FormQuestion(msgspec.Struct, frozen=True):
    """A server's request for values (elicitation, form mode)."""

    server: str
    tool: str | None
    """The tool whose call led to the question, if known."""
    message: str
    """The server's message, unmodified."""
    schema: Mapping[str, Any]
    """The JSON Schema of the requested object."""


class UrlQuestion(msgspec.Struct, frozen=True):
    """A server's request to visit a URL (elicitation, URL mode)."""

    server: str
    tool: str | None
    message: str
    url: str


class RedirectWaiter(Protocol):
    """Waits for the browser's redirect after a login."""

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; return whether the redirect has arrived."""
        ...


class LoginQuestion(msgspec.Struct, frozen=True):
    """A request to log in to a server in a browser."""

    server: str
    url: str
    """The URL of the login page."""
    domain: str
    """The host of that URL."""
    scopes: tuple[str, ...]
    """The requested scopes."""
    redirected: RedirectWaiter | None
    """Waits for the redirect; None if the user has to paste the redirect URL."""
    site: str
    """The host of the server that the login is for."""
    answer_to: str
    """The host that receives the authorization code."""
    gives_secret: bool = False
    """Whether that host also receives a configured client secret."""
    slip: Callable[[str], str] = lambda _: ""
    """Returns the problem with a pasted redirect URL; empty if it is valid."""

    @property
    def parties(self) -> str:
        """A line for the user about the hosts that take part in the login."""
        secret = ", with your client secret" if self.gives_secret else ""
        return f"log in at {self.domain}, for the server at {self.site}; the answer goes to {self.answer_to}{secret}"


class ElicitationAnswer(msgspec.Struct, frozen=True):
    """The user's answer to a server's question."""

    action: Action
    content: dict[str, Any] | None = None
    """The values of an accepted form."""
    note: str = ""
    """The reason why the user was not asked, for the server's log."""


CANCELLED = ElicitationAnswer("cancel")


UNANSWERED = ElicitationAnswer("cancel", note="nobody could be asked")
"""The answer if no front end accepts input, as in nbclient and papermill."""


class UserInterface(Protocol):
    """Asks the user. All methods except `can_ask` run on a thread that the user waits for, and block until answered."""

    def can_ask(self) -> bool:
        """Whether a question can be answered now. Thread-safe; does not block."""
        ...

    def fill(self, question: FormQuestion) -> ElicitationAnswer:
        """Ask the user to fill in a form."""
        ...

    def visit(self, question: UrlQuestion) -> ElicitationAnswer:
        """Ask the user to visit a URL; `accept` means that the user agrees, not that the visit is complete."""
        ...

    def login(self, question: LoginQuestion) -> str | None:
        """Ask the user to log in.

        Returns:
            An empty string after the redirect, the redirect URL if the user pasted it, or None if the user refuses or
            no one can answer.
        """
        ...

    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Ask the user which servers may run; None if no one can answer."""
        ...

    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Ask the user whether calls may be made; None if no one can answer."""
        ...

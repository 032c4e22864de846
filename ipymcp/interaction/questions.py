"""Questions to the user as records, and the interface of the front ends that ask them.

A question shows one or several pages, one after the other, and converts the replies to its answer. A front end (panel,
cell form, terminal) only shows pages, so a new kind of question needs one subclass of `Question`, and front ends change
only for a new kind of page.
"""

from __future__ import annotations

from glob import escape
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from ipymcp.masking import LABEL, masks
from ipymcp.text import capitalized, cut, one_line, quoted, unmasked, unmasked_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


A = TypeVar("A")

QuestionKind: TypeAlias = Literal["trust", "login", "secret", "approval", "form", "sampling"]
"""The kind of a question, by which front ends may be permitted to answer: `trust`, whether servers may run; `login`, an
account; `secret`, the values and passwords that a definition needs; `approval`, a call; `form`, a server's own
question; `sampling`, the use of the user's model."""

Caller: TypeAlias = Literal["user", "model", "app"]
Action: TypeAlias = Literal["accept", "decline", "cancel"]

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
_CALLERS: Final[dict[Caller, str]] = {"model": "The model wants to", "app": "An app wants to"}
NOT_ANSWERED: Final = DECISIONS[None]
_MAX_SUMMARY: Final = 300
"""Characters of the question, and of the answer, in a summary."""
_MAX_COUNT: Final = 1_000
"""Maximum number of servers, and of secrets, in a reply."""
_UNMAPPED: Final = frozenset("ßς")
"""Letters that the codec `idna` replaces, and browsers do not."""
_REDIRECT_URL_SCHEMA: Final = {
    "type": "object",
    "properties": {"address": {"type": "string", "title": "The address the browser ended at", "minLength": 1}},
    "required": ["address"],
}


def is_web_address(url: str) -> bool:
    """Whether a user may be asked to visit a URL: http or https, visible, and with a host that browsers read alike."""
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    # Browsers read a backslash as a slash and decode a host; a user name may look like one.
    return is_web and url.isprintable() and not {" ", "\\"} & {*url} and not {"@", "%"} & {*parts.netloc}


def domain(url: str) -> str:
    """The host of a URL, followed by its ASCII form if it has other letters, which may imitate a known host."""
    host = urlsplit(url).hostname or ""
    try:
        plain = ascii(host) if _UNMAPPED & {*host} else host.encode("idna").decode()
    except UnicodeError:
        plain = ascii(host)
    return host if plain == host else f"{host} ({plain})"


def permission_hint(tool: str, *, is_doubted: bool = False) -> str:
    """How to allow a model's calls of a tool where no one can be asked, as the beginning of a hint.

    Args:
        tool: The tool, as `server.tool`.
        is_doubted: Whether the model has read untrusted content.
    """
    pattern = escape(tool)
    if is_doubted:
        return f"mcp.policy.allow({pattern!r}, doubted=True), or --allow {quoted(pattern)} in %mcp ask,"
    return f"allow={pattern!r} in mcp.ask, --allow {quoted(pattern)} in %mcp ask"


# -- pages ------------------------------------------------------------------------------------------------------------


class PageReply(Struct, frozen=True):
    """The user's reply to a page. The default is the reply of a withdrawn page."""

    action: Action | None = None
    content: dict[str, Any] | None = None
    """The values of a form. `address` in the reply to a login: the pasted redirect URL, or empty after a redirect."""
    answer: ApprovalAnswer | None = None
    servers: Annotated[frozenset[str], Meta(max_length=_MAX_COUNT)] | None = None
    secrets: Annotated[frozenset[tuple[str, str]], Meta(max_length=_MAX_COUNT)] = frozenset()


class InvalidFields(Exception):
    """Some values of a form are invalid; the page stays open for the user to correct them."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(errors)
        self.errors = errors
        """For each error its `path` in the values and a `message`."""


class QuestionPage(Struct, frozen=True, tag_field="type", omit_defaults=True):
    """One page of a question: the content that a front end shows at once, and that the user replies to."""

    server: str
    """The name of the server that the question is about; empty for several."""
    title: str
    message: str

    def read(self, reply: PageReply) -> PageReply:
        """Check a reply from a view.

        Raises:
            InvalidFields: The user can correct the reply.
            ValueError: This is not a reply to this page.
        """
        if reply.action is None:
            raise ValueError("an answer's 'action' must be accept, decline or cancel")
        return PageReply(reply.action)


class FormPage(QuestionPage, frozen=True, tag="fill"):
    """Asks for values."""

    schema: dict[str, Any]
    """The JSON Schema of an object."""

    def read(self, reply: PageReply) -> PageReply:
        """Check the action, and the values if it is `accept`. Passwords are added to the masked secrets."""
        from ipymcp.interaction.forms import format_errors
        from ipymcp.protocol.types import encode
        from ipymcp.schema.tool_schema import ToolSchema

        checked = super().read(reply)
        if reply.action != "accept":
            return checked
        schema, content = ToolSchema(self.schema, server=self.server, tool=""), reply.content or {}
        written = encode(self.schema)  # the server's own words are not the user's secret
        errors = [{"path": [*one.path], "message": visible(one.at_field)} for one in schema.problems(content)]
        if not errors:
            found = format_errors(self.schema, content)
            errors = [{"path": [*path], "message": capitalized(text)} for path, text in found]
        if errors:
            raise InvalidFields(errors)
        for each in schema.parameters:
            value = content.get(each.name)
            is_password = isinstance(each.schema, dict) and each.schema.get("format") == "password"
            if is_password and isinstance(value, str) and encode(value)[1:-1] not in written:
                masks.add(value)
        return replace(checked, content=schema.check(content))


class LinkPage(QuestionPage, frozen=True, tag="visit"):
    """Asks the user to open a URL."""

    url: str
    domain: str
    """The host of that URL."""


class WaitPage(QuestionPage, frozen=True, tag="wait"):
    """Waits for the browser's redirect, and can only be cancelled."""


class ApprovalPage(QuestionPage, frozen=True, tag="approve"):
    """Asks whether calls may be made."""

    calls: tuple[WantedCall, ...]
    answers: tuple[ApprovalAnswer, ...]
    card: str = ""
    """The key of the card in a cell's output that shows the page; empty for none."""

    def read(self, reply: PageReply) -> PageReply:
        """Check the answer, and the arguments if the user changed them."""
        if reply.answer not in self.answers:
            raise ValueError(f"the answer must be one of {', '.join(self.answers)}")
        if reply.content is None:
            return PageReply(answer=reply.answer)
        call, *others = self.calls
        if others or call.schema is None or reply.answer != "once":
            raise ValueError("the arguments of these calls cannot be changed")
        from ipymcp.schema.tool_schema import ToolSchema

        schema = ToolSchema(call.schema, server=call.server, tool=call.tool)
        problems = schema.problems(reply.content)
        if problems:
            raise InvalidFields([{"path": [*one.path], "message": visible(one.at_field)} for one in problems])
        return PageReply(answer=reply.answer, content=schema.check(reply.content))


class TrustPage(QuestionPage, frozen=True, tag="trust"):
    """Asks which servers may run."""

    candidates: tuple[Candidate, ...]

    def read(self, reply: PageReply) -> PageReply:
        """Check that the reply has a list of servers, which may be empty."""
        if reply.servers is None:
            raise ValueError("an answer's 'servers' must be a list of names")
        return PageReply(servers=reply.servers, secrets=reply.secrets)


class Show(Protocol):
    """Shows a page and blocks until the user replies."""

    def __call__(self, page: QuestionPage, login: LoginQuestion | None = None) -> PageReply:
        """Show a page; for a login, the redirect also counts as a reply."""
        ...


# -- questions --------------------------------------------------------------------------------------------------------


class Question(Struct, Generic[A], frozen=True):
    """A question to the user, with an answer of type `A`."""

    kind: ClassVar[QuestionKind]
    withdrawn: ClassVar[Any] = None
    """The answer if the user stops waiting, or the question is withdrawn."""
    unanswered: ClassVar[Any] = None
    """The answer if no one can be asked."""

    def ask(self, show: Show) -> A:
        """Show the pages of the question and return the answer."""
        raise NotImplementedError

    def summary(self, answer: A) -> str:
        """The line that remains of the question and its answer in a cell; empty for none."""
        raise NotImplementedError


def summarized(question: str, answer: str) -> str:
    """A question and its answer as one short line of visible text, without secrets."""
    lines = (" ".join(visible(masks.head(text, 2 * _MAX_SUMMARY)).split()) for text in (question, answer))
    return " · ".join(cut(line, _MAX_SUMMARY) for line in lines)


_RUN = "run_python"
"""The tool that runs its code at once; others write it into a cell."""


class WantedCall(Struct, frozen=True):
    """A call that needs the user's approval."""

    server: str
    tool: str
    arguments: dict[str, Any]
    caller: Caller | Literal["server"]
    """The origin of the call; a server if it requests sampling."""
    why: str
    """The reason for the question, such as a rule of the policy, as a line for the user."""
    hints: str
    """The server's hints about the tool in words; empty if there are none."""
    code: str = ""
    """Text that the call would run in this kernel, or write into a cell of this notebook; it is shown completely."""
    count: int = 1
    """The number of calls, of which this is the first; 0 if unknown."""
    samples: tuple[dict[str, Any], ...] = ()
    """The arguments of some of the other calls."""
    schema: dict[str, Any] | None = None
    """The JSON Schema of the arguments if the user may change them; else None."""

    @property
    def sentence(self) -> str:
        """The caller and the call as a sentence without a full stop; the user's own call as a question."""
        if self.caller == "server":
            return f"The server {self.server} wants to use your model"
        runs_code = self.code and self.tool == _RUN
        action = f"run {'code in this notebook' if runs_code else f'{self.server}.{self.tool}'}{self.times}"
        return f"R{action[1:]}?" if self.caller == "user" else f"{_CALLERS[self.caller]} {action}"

    @property
    def arguments_beside_code(self) -> dict[str, Any]:
        """The arguments without the code, which is shown line by line."""
        return {name: value for name, value in self.arguments.items() if not self.code or value != self.code}

    @property
    def times(self) -> str:
        """The number of calls, as a suffix of the tool's name; empty for one call."""
        return "" if self.count == 1 else f" {self.count:,} times" if self.count else " for every row"


def _said_with_masks(call: WantedCall) -> str:
    """The reason for a question, and whether its arguments are shown with masks."""
    values = [call.arguments_beside_code, *call.samples]
    is_masked = masks.json(values) != values
    return " · ".join(filter(None, [call.why, f"Your secrets are shown as {LABEL}" if is_masked else ""]))


class ApprovalQuestion(Question[ApprovalAnswer | None], frozen=True):
    """Asks whether calls may be made. They were requested together, and one answer applies to all of them."""

    kind: ClassVar[QuestionKind] = "approval"
    calls: tuple[WantedCall, ...]
    answers: tuple[ApprovalAnswer, ...]
    """The possible answers."""
    card: str = ""
    """The key of the card with the question in a cell's output; empty for none."""
    edits: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Receives the new arguments if the user edits them and allows the call once."""

    def ask(self, show: Show) -> ApprovalAnswer | None:
        """Show the calls."""
        calls = tuple(
            replace(
                call,
                arguments=masks.json(call.arguments_beside_code),
                samples=tuple(map(masks.json, call.samples)),
                why=capitalized(visible(_said_with_masks(call))),
                hints=visible(call.hints),
                code=unmasked(call.code),
            )
            for call in self.calls
        )
        title = calls[0].sentence if len(calls) == 1 else f"{sum(one.count for one in calls):,} calls need your consent"
        reply = show(ApprovalPage(calls[0].server, title, "", calls, self.answers, self.card))
        if reply.content is not None:
            original, masked = self.calls[0].arguments, calls[0].arguments
            edited = {
                name: original[name] if name in original and value == masked.get(name) else value
                for name, value in reply.content.items()
            }  # a value that was shown masked and not edited keeps its secret
            if edited != original:
                self.edits.append(edited)
        return reply.answer

    def summary(self, answer: ApprovalAnswer | None) -> str:
        """The calls and the decision; none if a card shows them."""
        calls = ", ".join(dict.fromkeys(f"{one.server}.{one.tool}" for one in self.calls))
        times = self.calls[0].times if len(self.calls) == 1 else ""
        return "" if self.card else summarized(f"May {calls} be called{times}?", DECISIONS[answer])


class SamplingQuestion(ApprovalQuestion, frozen=True):
    """Asks whether a server may use the user's model."""

    kind: ClassVar[QuestionKind] = "sampling"


class Candidate(Struct, frozen=True):
    """A server that runs if the user agrees."""

    name: str
    summary: str
    """The command, its folder and what it receives, as the rest of a sentence that begins with the name."""
    lines: tuple[str, ...]
    """The rest of the definition, the recipients of its variables, and the scope of an agreement: a name and a text in
    columns, or only a text."""
    dangers: tuple[str, ...]
    """Dangerous parts of the definition."""
    secrets: tuple[str, ...]
    """The stored secrets that the definition uses."""
    is_agreed: bool = False
    """Whether the server may already run, so that only its secrets are in question."""


class TrustAnswer(Struct, frozen=True):
    """The user's answer to a `TrustQuestion`."""

    servers: frozenset[str] = frozenset()
    """The names of the servers that may run."""
    secrets: frozenset[tuple[str, str]] = frozenset()
    """Pairs of a server's name and a secret that it may use."""


class TrustQuestion(Question[TrustAnswer | None], frozen=True):
    """Asks whether the servers of a file may run."""

    kind: ClassVar[QuestionKind] = "trust"
    file: str
    why: str
    """The reason for the question: a project's file, or the user's own file that changed."""
    candidates: tuple[Candidate, ...]
    remote: int = 0
    """The number of candidates that are remote servers, so that no program runs here."""
    left_out: str = ""
    """A line about servers that are not shown, and that no answer allows to run."""
    is_strangers: bool = False
    """Whether the file is from someone else: nothing in it is masked, even if it equals a secret of the user."""

    def ask(self, show: Show) -> TrustAnswer | None:
        """Show all servers."""
        line = unmasked_line if self.is_strangers else one_line
        shown = tuple(
            replace(
                one,
                summary=line(one.summary),
                lines=tuple(map(line, one.lines)),
                dangers=tuple(map(line, one.dangers)),
            )
            for one in self.candidates
        )
        left = f" {self.left_out}." if self.left_out else ""
        message = f"{one_line(self.file)} {self.why}. {self._consequence}.{left}"
        title = f"Trust {one_line(shown[0].name)}?" if len(shown) == 1 else f"Trust these {len(shown)} servers?"
        reply = show(TrustPage("", title, message, shown))
        if reply.servers is None:
            return None
        agreed = frozenset(one.name for one in shown if one.is_agreed or one.name in reply.servers)
        wanted = frozenset((one.name, secret) for one in shown for secret in one.secrets if one.name in agreed)
        return TrustAnswer(agreed, reply.secrets & wanted)

    @property
    def _consequence(self) -> str:
        if all(one.is_agreed for one in self.candidates):
            return "Servers that may already run want your secrets"
        local = len(self.candidates) - self.remote
        programs = f"run {'a program' if local == 1 else f'{local} programs'} as you" if local else ""
        servers = f"connect to {'a server' if self.remote == 1 else f'{self.remote} servers'}" if self.remote else ""
        return f"It wants to {' and to '.join(filter(None, [programs, servers]))}"

    def summary(self, answer: TrustAnswer | None) -> str:
        """The servers that may run and those that may not."""
        agreed = answer.servers if answer is not None else frozenset[str]()
        denied = [one.name for one in self.candidates if one.name not in agreed]
        parts = [f"yes: {', '.join(sorted(agreed))}"] if agreed else []
        parts += [f"no: {', '.join(denied)}"] if denied else []
        return summarized(f"Trust servers of {self.file}?", NOT_ANSWERED if answer is None else " · ".join(parts))


class RedirectWaiter(Protocol):
    """Waits for the browser's redirect after a login."""

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds; return whether the redirect has arrived."""
        ...


class LoginQuestion(Question[str | None], frozen=True):
    """A request to log in to a server in a browser.

    The answer is the redirect URL if the user pasted it, an empty string if the redirect arrived, or None if the user
    refuses.
    """

    kind: ClassVar[QuestionKind] = "login"
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
    paste_error: Callable[[str], str] = lambda _: ""
    """Returns the problem with a pasted redirect URL; empty if it is valid."""

    def ask(self, show: Show) -> str | None:
        """Show the link, then wait for the redirect or for the pasted redirect URL."""
        secret = ", with your client secret" if self.gives_secret else ""
        parties = f"at {self.domain}, for the server at {self.site}; the answer goes to {self.answer_to}{secret}"
        title = f"{self.server} wants you to log in"
        scopes = f"\n\nIt may then: {', '.join(map(one_line, self.scopes))}" if self.scopes else ""
        reply = show(LinkPage(self.server, title, f"Log in {parties}.{scopes}", self.url, self.domain), self)
        if reply.action == "accept" and reply.content is None:  # the link was opened
            if self.redirected is None:
                return self._paste(show, title)
            reply = show(WaitPage(self.server, title, "Waiting for your browser to come back."), self)
        return (reply.content or {}).get("address", "") if reply.action == "accept" else None

    def _paste(self, show: Show, title: str) -> str | None:
        message = "Log in, then paste the address here."
        while address := (show(FormPage(self.server, title, message, _REDIRECT_URL_SCHEMA)).content or {}).get(
            "address"
        ):
            error = self.paste_error(address)
            if not error:
                return address
            message = f"{error[0].upper()}{error[1:]}. Paste the whole address that the browser ended at."
        return None

    def summary(self, answer: str | None) -> str:
        """Whether the user logged in, without the redirect URL that was pasted: it contains a secret."""
        question = f"{self.server} wanted you to log in at {self.domain}"
        return summarized(question, "not logged in" if answer is None else "logged in")


class UserInterface(Protocol):
    """Asks the user, in a thread that the user waits for."""

    def can_ask(self) -> bool:
        """Whether a question can be answered now. Thread-safe; does not block."""
        ...

    def ask(self, question: Question[A]) -> A:
        """Ask a question and block until it is answered."""
        ...


class CallApp(Protocol):
    """The interactive page of a tool, shown once a model begins to write a call. Used on the background loop."""

    async def needs_no_question(self) -> bool:
        """Whether the page may be shown without asking the user, before the user has agreed to the call.

        Raises:
            McpError: The page cannot be read.
        """
        ...

    def show(self) -> None:
        """Display the app in the current cell; in the thread where the user waits."""
        ...

    def write(self, arguments: dict[str, Any]) -> None:
        """Give the page the arguments as far as the model has written them."""
        ...

    def begin(self, arguments: bytes) -> None:
        """Give the page the JSON of the complete arguments, with which the call is made now."""
        ...

    def cancel(self, reason: str, arguments: dict[str, Any] | None) -> None:
        """Note that the call has no result, unless it has one.

        Args:
            reason: The reason.
            arguments: The arguments of a call that was not made; None if they are not known.
        """
        ...


class Card(Protocol):
    """Displays a call that may need consent. Used on the background loop."""

    @property
    def app(self) -> CallApp | None:
        """The app that shows the call before it has a result; None if there is none."""
        ...

    @property
    def key(self) -> str:
        """The card's identifier; empty if the card is not displayed."""
        ...

    @property
    def number(self) -> int:
        """The number of the call within the model's answer."""
        ...

    def show_question(self, key: str) -> None:
        """Show that the user is being asked about the call.

        Args:
            key: The key of the card that shows the question: the last of the cards of the question's calls.
        """
        ...

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Show these arguments, by their exact names, in place of those that the model sent."""
        ...

    def show_answer(self, answer: ApprovalAnswer | None) -> None:
        """Show the user's answer; None if there was none."""
        ...

    def begin(self, arguments: bytes) -> bool:
        """Note that the call is about to be made; False if it must not be made, because its answer was stopped.

        Args:
            arguments: The JSON of the arguments that are sent, which the user may have changed.
        """
        ...

"""Questions to the user in the panel, their answers, and the line that remains in the cell.

A question blocks a thread of its own until a view answers it, the last view that could is gone, or it is withdrawn.
"""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct

from ipymcp.errors import UnknownName
from ipymcp.interaction.forms import CannotDraw, read_form
from ipymcp.interaction.questions import CANCELLED, DECISIONS, ElicitationAnswer, TrustAnswer, domain
from ipymcp.masking import looks_secret, masks
from ipymcp.panel.messages import Malformed, sound, texts
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.schema.tool_schema import ToolSchema
from ipymcp.text import one_line, unmasked_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from ipymcp.interaction.questions import (
        ApprovalAnswer,
        ApprovalQuestion,
        FormQuestion,
        LoginQuestion,
        QuestionKind,
        RedirectWaiter,
        TrustQuestion,
        UrlQuestion,
    )
    from ipymcp.panel.messages import Channel, Message
    from ipymcp.panel.permissions import Permissions
    from ipymcp.panel.state import PanelState
    from ipymcp.runtime.interrupts import WaitingCaller
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.question_routing import QuestionHandle


_WAITING: Final = "Waiting for your answer in the MCP panel."
_NOTHING: Final = DECISIONS[None]
_MAX_SUMMARY_CHARACTERS: Final = 300
_HIDDEN: Final = "••••"
_ACTION_WORDS: Final = {"accept": "agreed", "decline": "declined", "cancel": _NOTHING}


def fill(question: FormQuestion, answer: ElicitationAnswer) -> str:
    """Summarize a form and its answer."""
    summary = _ACTION_WORDS[answer.action]
    if answer.action == "accept":
        properties = question.schema.get("properties")
        fields = properties if is_object(properties) else {}
        given = answer.content or {}
        summary = ", ".join(f"{name} = {_value(name, fields.get(name), value)}" for name, value in given.items())
    return _line(f"{_asker(question)} asked: {question.message}", summary or "answered")


def visit(question: UrlQuestion, answer: ElicitationAnswer) -> str:
    """Summarize a request to visit a URL and its answer."""
    return _line(f"{_asker(question)} asked you to visit {domain(question.url)}", _ACTION_WORDS[answer.action])


def login(question: LoginQuestion, answer: str | None) -> str:
    """Summarize a login, without the redirect URL that the user may have pasted: it holds a secret."""
    asked = f"{question.server} wanted you to log in at {question.domain}"
    return _line(asked, "not logged in" if answer is None else "logged in")


def trust(question: TrustQuestion, answer: TrustAnswer | None) -> str:
    """Summarize a trust question and its answer."""
    agreed = answer.servers if answer is not None else frozenset[str]()
    refused = [one.name for one in question.candidates if one.name not in agreed]
    parts = [f"yes: {', '.join(sorted(agreed))}"] if agreed else []
    parts += [f"no: {', '.join(refused)}"] if refused else []
    return _line(f"May servers of {question.file} run?", _NOTHING if answer is None else " · ".join(parts))


def approve(question: ApprovalQuestion, answer: ApprovalAnswer | None) -> str:
    """Summarize an approval question and its answer."""
    calls = ", ".join(dict.fromkeys(f"{one.server}.{one.tool}" for one in question.calls))
    return _line(f"May {calls} be called?", DECISIONS[answer])


def _asker(question: FormQuestion | UrlQuestion) -> str:
    return f"{question.server}.{question.tool}" if question.tool else question.server


def _value(name: str, schema: Any, value: Any) -> str:
    is_password = is_object(schema) and schema.get("format") == "password"
    return _HIDDEN if is_password or looks_secret(name) else json.dumps(value, ensure_ascii=False)


def _line(asked: str, answered: str) -> str:
    return f"{_shortened(asked)} · {_shortened(answered)}"


def _shortened(text: str) -> str:
    line = " ".join(visible(sound(masks.head(text, 2 * _MAX_SUMMARY_CHARACTERS))).split())
    return line if len(line) <= _MAX_SUMMARY_CHARACTERS else f"{line[:_MAX_SUMMARY_CHARACTERS]}…"


Action: TypeAlias = Literal["accept", "decline", "cancel"]
_ACTIONS: Final[tuple[Action, ...]] = ("accept", "decline", "cancel")


class WrongAnswer(Struct, frozen=True):
    """An invalid answer; the question stays open until it is corrected."""

    errors: list[Message]


def action_of(message: Message) -> Action:
    """Read the action of an answer to a form or URL.

    Raises:
        Malformed: The action is missing or unknown.
    """
    for action in _ACTIONS:
        if message.get("action") == action:
            return action
    raise Malformed("an answer's 'action' is accept, decline or cancel")


def filled(message: Message, schema: ToolSchema) -> ElicitationAnswer | WrongAnswer:
    """Read the answer to a form; raises as `action_of` does."""
    action = action_of(message)
    if action != "accept":
        return ElicitationAnswer(action)
    content = message.get("content", {})
    if not is_object(content):
        raise Malformed("an answer's 'content' is an object")
    complaints = schema.problems(content)
    if complaints:
        return WrongAnswer([{"path": [*one.path], "message": visible(one.problem)} for one in complaints])
    wrong = _wrong_formats(schema, content)
    if wrong:
        return WrongAnswer(wrong)
    for each in schema.parameters:
        if is_object(each.schema) and each.schema.get("format") == "password":
            masks.add(str(content.get(each.name, "")))
    return ElicitationAnswer("accept", schema.check(content))


def _wrong_formats(schema: ToolSchema, content: Message) -> list[Message]:
    """Errors of form values whose format (email address, date, …) is wrong, as at a prompt."""
    try:
        fields = read_form(schema.tree.root)
    except CannotDraw:  # not an MCP form: only the schema validates its values
        return []
    found = [(field, field.problem(content.get(field.name))) for field in fields]
    return [{"path": [field.name], "message": problem} for field, problem in found if problem is not None]


def trusted(
    message: Message, names: frozenset[str], agreed: frozenset[str], wanted: frozenset[tuple[str, str]]
) -> TrustAnswer:
    """Read the answer to a trust question.

    Args:
        message: The view's message.
        names: The servers in question.
        agreed: Servers that may run already.
        wanted: Pairs of server and secret that the servers ask for.

    Raises:
        Malformed: The message is not a valid answer.
    """
    servers = frozenset(texts(message, "servers")) & names | agreed
    pairs = message.get("secrets", [])
    if not is_array(pairs) or not all(is_array(pair) and len(pair) == 2 for pair in pairs):
        raise Malformed("an answer's 'secrets' is a list of pairs")
    given = frozenset((str(server), str(secret)) for server, secret in pairs)
    return TrustAnswer(servers, frozenset(pair for pair in given & wanted if pair[0] in servers))


def approved(message: Message, answers: Sequence[ApprovalAnswer]) -> ApprovalAnswer:
    """Read the answer to an approval question; raises `Malformed` if it was not offered."""
    for answer in answers:
        if message.get("answer") == answer:
            return answer
    raise Malformed(f"an answer is one of {', '.join(answers)}")


if TYPE_CHECKING:
    Reader: TypeAlias = Callable[[Message, Permissions], Any]


_MAX_LENGTH: Final = 4_000
_POLL_INTERVAL: Final = 0.3
"""Seconds between two checks for the redirect of a login."""
_PASTE: Final = {
    "type": "object",
    "properties": {"address": {"type": "string", "title": "The address the browser ended at", "minLength": 1}},
    "required": ["address"],
}


class _OpenQuestion(Struct, eq=False):
    """An open question."""

    row: Message
    read: Reader
    """Reads the answer from a message: `WrongAnswer` if the user can correct it; raises `Malformed` otherwise."""
    outcome: Future[Any]


class WaitingLine:
    """A line in the output of a cell that waits for an answer in the panel; removed with the answer.

    Args:
        publisher: The shell's display publisher.
        place: The waiting caller.
    """

    def __init__(self, publisher: Any, place: WaitingCaller) -> None:
        self._publisher = publisher
        self._display = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._is_over = self._is_shown = False
        place.post(self._show, _nothing)

    def _show(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_shown = True
                self._publish({"text/plain": _WAITING}, update=False)

    def remove(self) -> None:
        """Remove the line; thread-safe."""
        with self._lock:
            if self._is_shown and not self._is_over:
                self._publish({}, update=True)
            self._is_over = True

    def _publish(self, data: dict[str, Any], *, update: bool) -> None:
        self._publisher.publish(data, {}, transient={"display_id": self._display}, update=update)


def _nothing() -> None: ...


class PanelQuestions:
    """Questions to the views of a panel.

    Args:
        loop: The background loop.
        state: The rows that views are shown.
        channels: Lists the channels of the views that may answer a question of a kind.
        is_own: Whether its argument is a call that a view made.
        publisher: The shell's publisher of displays; None where waiting cells show nothing.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        state: PanelState,
        channels: Callable[[QuestionKind], Sequence[Channel]],
        is_own: Callable[[object], bool],
        publisher: Any = None,
    ) -> None:
        self._loop = loop
        self._state = state
        self._channels = channels
        self._is_own = is_own
        self._publisher = publisher
        self._numbers = itertools.count(1)
        self._open: dict[str, _OpenQuestion] = {}
        """Open questions by id; the thread that pops one sets its outcome."""

    def can_ask(self, kind: QuestionKind) -> bool:
        """Whether a view shows questions of this kind and may answer them."""
        return bool(self._channels(kind))

    def reaches(self, kind: QuestionKind, place: WaitingCaller | None, subject: object) -> bool:
        """Whether a view may answer, and its answer arrives while the caller waits."""
        running = place is not None and not self._is_own(subject)
        blocked = running and place is not None and place.is_blocked
        return any(channel.serves(blocked=blocked, running=running) for channel in self._channels(kind))

    def begin(self, kind: QuestionKind, rests: Callable[[], object], place: WaitingCaller | None) -> QuestionHandle:
        """Begin to ask a question, with a line in the waiting cell."""
        return _PanelQuestionHandle(self, kind, rests, place)

    def wait_in(self, place: WaitingCaller | None) -> WaitingLine | None:
        """Show in the caller's cell that it waits for an answer in the panel."""
        return WaitingLine(self._publisher, place) if self._publisher is not None and place is not None else None

    def answered(self, question: str, message: Message, permissions: Permissions) -> Any:
        """Handle a view's answer, on the background loop.

        Args:
            question: The id of the question.
            message: The view's message.
            permissions: The view's permissions.

        Raises:
            PolicyError: The view may not give this answer.
            UnknownName: The question is not open.
            Malformed: The message is not a valid answer.
        """
        asked = self._open.get(question)
        if asked is None:
            raise UnknownName("the question is no longer open", hint="it was answered or withdrawn")
        permissions.check_answer(asked.row["kind"])
        answer = asked.read(message, permissions)
        if isinstance(answer, WrongAnswer):
            return {"errors": answer.errors}
        self.close(asked, answer)
        return None

    def drop_unanswerable(self) -> None:
        """Withdraw the questions that no remaining view may answer."""
        for asked in [*self._open.values()]:
            if not self.can_ask(asked.row["kind"]):
                self.close(asked, None)

    def put(self, row: Message, read: Reader) -> _OpenQuestion:
        """Show a question; thread-safe."""
        asked = _OpenQuestion({**row, "id": f"q{next(self._numbers)}"}, read, Future())
        self._open[asked.row["id"]] = asked
        self._loop.call(self._show, asked)
        return asked

    def close(self, asked: _OpenQuestion, answer: Any) -> None:
        """Close a question with its answer, or with None to withdraw it; thread-safe."""
        if self._open.pop(asked.row["id"], None) is not None:
            asked.outcome.set_result(answer)
            if self._loop.is_running:
                self._loop.call(self._state.withdraw, asked.row["id"])
            else:  # the loop is being stopped, and must not start again
                self._state.withdraw(asked.row["id"])

    def _show(self, asked: _OpenQuestion) -> None:
        if not asked.outcome.done():
            self._state.ask(asked.row)


class _PanelQuestionHandle:
    """A `QuestionHandle` for one question; its methods block their thread."""

    def __init__(
        self, questions: PanelQuestions, kind: QuestionKind, rests: Callable[[], object], place: WaitingCaller | None
    ) -> None:
        self._questions = questions
        self._kind: QuestionKind = kind
        self._rests = rests
        self._place = place
        self._waiting: WaitingLine | None = None
        self._asked: _OpenQuestion | None = None
        self._is_withdrawn = False

    def can_ask(self) -> bool:
        """Whether a view shows the question and may answer it."""
        return self._questions.can_ask(self._kind)

    def withdraw(self) -> None:
        """Withdraw the question; thread-safe."""
        self._is_withdrawn = True  # first: a question put later checks this flag
        if self._waiting is not None:
            self._waiting.remove()
        if self._asked is not None:
            self._questions.close(self._asked, None)

    def fill(self, question: FormQuestion) -> ElicitationAnswer:
        """Ask for the values of a form."""
        row = {"type": "fill", "title": f"{_asker(question)} asks", "message": question.message}
        row |= {"schema": dict(question.schema)}
        schema = ToolSchema(question.schema, server=question.server, tool=question.tool or "")
        return self._ask(question.server, row, lambda message, _: filled(message, schema), CANCELLED)

    def visit(self, question: UrlQuestion) -> ElicitationAnswer:
        """Ask the user to visit a URL."""
        row = {"type": "visit", "title": f"{_asker(question)} asks you to visit an address"}
        row |= {"message": question.message, "url": question.url, "domain": domain(question.url)}
        return self._ask(question.server, row, lambda message, _: ElicitationAnswer(action_of(message)), CANCELLED)

    def login(self, question: LoginQuestion) -> str | None:
        """Ask the user to log in; wait for the browser's redirect, or for the pasted redirect URL."""
        title = f"{question.server} wants you to log in"
        may = f"\n\nIt may then: {', '.join(question.scopes)}" if question.scopes else ""
        parties = f"{question.parties[0].upper()}{question.parties[1:]}."
        row = {
            "type": "visit",
            "title": title,
            "message": f"{parties}{may}",
            "url": question.url,
            "domain": question.domain,
        }
        visited = self._put(question.server, row, _action)
        if not self._is_agreed(visited, question.redirected):
            return None
        if question.redirected is None:
            return self._pasted(question, title)
        row = {"type": "wait", "title": title, "message": "Waiting for your browser to come back."}
        waiting = self._put(question.server, row, _action)
        self._rests()
        return "" if self._is_agreed(waiting, question.redirected) else None

    def _pasted(self, question: LoginQuestion, title: str) -> str | None:
        """Ask for the redirect URL until it is plausible."""
        message = "Log in, then paste the address here."
        schema = ToolSchema(_PASTE, server=question.server, tool="")
        while True:
            row = {"type": "fill", "title": title, "message": message, "schema": _PASTE}
            pasted = self._ask(question.server, row, lambda message, _: filled(message, schema), CANCELLED)
            if not pasted.content:
                return None
            address = str(pasted.content["address"])
            if not (slip := question.slip(address)):
                return address
            message = f"{slip[0].upper()}{slip[1:]}. Paste the whole address that the browser ended at."

    def _is_agreed(self, asked: _OpenQuestion, redirected: RedirectWaiter | None) -> bool:
        """Whether the user agrees; a browser redirect counts as agreement."""
        while redirected is not None and not asked.outcome.done():
            if redirected.wait(_POLL_INTERVAL):
                self._questions.close(asked, "accept")
        return asked.outcome.result() == "accept"

    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Ask which servers may run."""
        candidates = question.candidates
        line = unmasked_line if question.is_strangers else one_line
        shown = [
            {
                "name": one.name,
                "lines": [line(text) for text in one.lines],
                "dangers": [line(danger) for danger in one.dangers],
                "secrets": [*one.secrets],
            }
            for one in candidates
        ]
        row = {"type": "trust", "title": "May these servers run?", "candidates": shown}
        left = f" {question.left_out}." if question.left_out else ""
        row |= {"message": f"{question.file} {question.why}. They would run with your rights.{left}"}
        agreed = frozenset(one.name for one in candidates if one.is_agreed)
        wanted = frozenset((one.name, secret) for one in candidates for secret in one.secrets)
        names = frozenset(one.name for one in candidates)
        return self._ask("", row, lambda message, _: trusted(message, names, agreed, wanted), None)

    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Ask whether calls may be made."""
        shown: list[Message] = [
            {
                "server": one.server,
                "tool": one.tool,
                "arguments": masks.json(types.loads(one.arguments)) if one.arguments else {},
                "caller": one.caller,
                "why": visible(one.why),
                "hints": visible(one.hints),
                "code": visible(one.code),
            }
            for one in question.calls
        ]
        several = len(shown) > 1
        title = f"May these {len(shown)} calls be made?" if several else "May this call be made?"
        row = {"type": "approve", "title": title, "message": "", "calls": shown, "answers": [*question.answers]}
        row |= {"card": question.card} if question.card else {}

        def read(message: Message, permissions: Permissions) -> ApprovalAnswer:
            return approved(message, permissions.answers(question.answers))

        return self._ask(question.calls[0].server, row, read, None)

    def _ask(self, server: str, row: Message, read: Reader, otherwise: Any) -> Any:
        answer = self._put(server, row, read).outcome.result()
        return otherwise if answer is None else answer

    def _put(self, server: str, row: Message, read: Reader) -> _OpenQuestion:
        shown = {
            "title": visible(row["title"]),
            "message": visible(row["message"][:_MAX_LENGTH]),
            "server": server,
            "kind": self._kind,
        }
        if self._waiting is None and "card" not in row:
            self._waiting = self._questions.wait_in(self._place)
        asked = self._asked = self._questions.put(row | shown, read)
        if self._is_withdrawn:
            if self._waiting is not None:
                self._waiting.remove()
            self._questions.close(asked, None)
        return asked


def _action(message: Message, _: Permissions) -> str:
    return action_of(message)

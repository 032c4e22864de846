"""Questions asked with `input()` and `getpass()`, in a notebook or a terminal.

Text of a server is shown behind a vertical bar, with control and invisible characters made visible, so that it cannot
pass for text of ipymcp.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, Any

from ipymcp.interaction.forms import MISSING, NO, YES, CannotDraw, Field, read_choice, read_form
from ipymcp.interaction.questions import CANCELLED, UNANSWERED, ElicitationAnswer, TrustAnswer, domain
from ipymcp.masking import masks
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.text import one_line, unmasked_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import TextIO

    from ipymcp.interaction.questions import (
        ApprovalAnswer,
        ApprovalQuestion,
        Candidate,
        FormQuestion,
        LoginQuestion,
        TrustQuestion,
        UrlQuestion,
        WantedCall,
    )


class Printed(io.StringIO):
    """A replacement for standard output that captures printed text.

    Args:
        screen: The replaced stream.
    """

    def __init__(self, screen: TextIO) -> None:
        super().__init__()
        self.screen = screen


@contextlib.contextmanager
def on_screen() -> Generator[None]:
    """Print to the user even while the output of a model's code is captured for the model."""
    output = sys.stdout
    with contextlib.redirect_stdout(output.screen) if isinstance(output, Printed) else contextlib.nullcontext():
        yield


_MAX_VALUE = 2_000
_ABBREVIATIONS = {"once": YES, "no": NO}
_CALLERS = {
    "user": "You call",
    "model": "A model wants to call",
    "app": "An app wants to call",
    "server": "A server wants your model to answer",
}
_MEANINGS = {
    "once": "once",
    "answer": "answer (the rest of this answer)",
    "server": "server (what of its tools is not denied, in this notebook)",
    "notebook": "notebook (this tool, in this notebook)",
    "always": "always",
    "never": "never",
    "no": "no",
}


def ask_trust(question: TrustQuestion) -> TrustAnswer:
    """Show all servers of a file and ask which of them may run."""
    candidates = question.candidates
    wanting = [candidate for candidate in candidates if not candidate.is_agreed]
    _print_unmasked(f"{_line(question.file)} {question.why}. {_consequence(len(wanting), len(candidates))}:")
    for number, candidate in enumerate(candidates, start=1):
        _show(number, candidate, unmasked_line if question.is_strangers else _line)
    if question.left_out:
        _print_unmasked(f"  {_line(question.left_out)}")
    agreed = {candidate.name for candidate in candidates if candidate.is_agreed} | _choose_servers(wanting)
    secrets = [
        (candidate.name, secret)
        for candidate in candidates
        if candidate.name in agreed
        for secret in candidate.secrets
        if _confirm(f"give {_line(candidate.name)} your secret {_line(secret)}? [y/N] ")
    ]
    return TrustAnswer(frozenset(agreed), frozenset(secrets))


def ask_approval(question: ApprovalQuestion) -> ApprovalAnswer:
    """Show calls and ask whether they may be made."""
    calls = question.calls
    for caller, text in _CALLERS.items():
        for call in (call for call in calls if call.caller == caller):
            _print_unmasked(f"{text} {_line(f'{call.server}.{call.tool}')}{_about(call)}")
            for line in _code(call.code) if call.code else _arguments(call.arguments):
                _print_unmasked(f"  │ {line}")
    _print_unmasked(" · ".join(_MEANINGS[answer] for answer in question.answers))
    prompt = "allow? [no] " if len(calls) == 1 else f"allow these {len(calls)}? [no] "
    typed = read_choice(prompt, {answer: _ABBREVIATIONS.get(answer, ()) for answer in question.answers}, "no")
    return next(answer for answer in (*question.answers, "no") if answer == typed)


def _show(number: int, candidate: Candidate, shown: Callable[[str], str]) -> None:
    _print_unmasked(f"{number} {shown(candidate.name)}")
    for line in candidate.lines:
        _print_unmasked(f"  │ {' '.join(shown(line).split())}")
    for danger in candidate.dangers:
        _print_unmasked(f"  ! {shown(danger)}")


def _consequence(running: int, all_of_them: int) -> str:
    if not running:
        return "What may run already wants secrets of yours"
    return f"It would run {'a server' if all_of_them == 1 else f'{all_of_them} servers'} with your rights"


def _choose_servers(candidates: Sequence[Candidate]) -> set[str]:
    if not candidates:
        return set()
    prompt = "run it? [yes, no] " if len(candidates) == 1 else "run them? [all, choose, none] "
    one, several = {"yes": ("all", *YES), "no": ("none", *NO)}, {"all": YES, "choose": (), "none": NO}
    match read_choice(prompt, one if len(candidates) == 1 else several, "no" if len(candidates) == 1 else "none"):
        case "yes" | "all":
            return {candidate.name for candidate in candidates}
        case "choose":
            return {candidate.name for candidate in candidates if _confirm(f"run {_line(candidate.name)}? [y/N] ")}
        case _:
            return set()


def _confirm(prompt: str) -> bool:
    return read_choice(prompt, {"yes": YES, "no": NO}, "no") == "yes"


def _about(call: WantedCall) -> str:
    hints = f"; the server says that it {call.hints}" if call.hints else ""
    return f" ({_line(call.why)}{hints}):"


def _arguments(arguments: bytes) -> list[str]:
    values: Any = types.loads(arguments) if arguments else {}
    if not is_object(values) or not values:
        return ["no arguments"]
    return [f"{_line(key)} = {_shortened(types.encode(value).decode())}" for key, value in values.items()]


def _code(code: str) -> list[str]:
    """All lines of code with their numbers: the user agrees only to visible code."""
    lines = visible(code).split("\n")
    return [f"{number:{len(str(len(lines)))}} {line}" for number, line in enumerate(lines, start=1)]


def _shortened(text: str) -> str:
    line = _line(text)
    hidden = len(line) - _MAX_VALUE
    half = _MAX_VALUE // 2
    return line if hidden <= 0 else f"{line[:half]}… ({hidden:,} characters that are not shown) …{line[-half:]}"


def _line(text: str) -> str:
    """Untrusted text as one line with visible line breaks, which a shell would interpret."""
    return " ".join(one_line(text).split())


def _print_unmasked(text: str) -> None:
    print(unmasked_line(text), flush=True)  # noqa: T201 - meant for the cell


_NO_INPUT_ERRORS = (EOFError, NotImplementedError, OSError, RuntimeError)
"""Errors of reading if no one can answer; a kernel's `StdinNotImplementedError` is a `NotImplementedError`."""
_MAX_TEXT = 4000
_MAX_LABEL = 80
_LEAVE_OUT = "-"
_COMMANDS = {"!decline": ElicitationAnswer("decline"), "!cancel": CANCELLED}
_REDIRECT_TIMEOUT = 3.0
"""Seconds to wait for the redirect after the user confirmed the login."""


class _FormEnded(Exception):
    """The user declined or cancelled."""

    def __init__(self, answer: ElicitationAnswer) -> None:
        self.answer = answer


class TerminalPrompts:
    """A `UserInterface` of plain prompts."""

    def can_ask(self) -> bool:
        """Whether there is a front end that accepts input, or a terminal."""
        kernel: Any = _kernel()
        if kernel is not None:
            return bool(getattr(kernel, "_allow_stdin", True))
        try:
            return sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]
        except ValueError:  # closed
            return False

    @on_screen()
    def fill(self, question: FormQuestion) -> ElicitationAnswer:
        """Ask for each value in turn."""
        try:
            fields = read_form(question.schema)
        except CannotDraw as error:
            _print(f"{question.server} asked for a form that cannot be shown; declined ({error})")
            return ElicitationAnswer("decline", note=f"a form that cannot be shown: {error}")
        _print(f"{_origin(question)} asks:")
        _quote(question.message)
        _print(_rules(fields))
        try:
            return ElicitationAnswer("accept", _fill(fields))
        except _FormEnded as end:
            return end.answer
        except _NO_INPUT_ERRORS:
            return UNANSWERED

    @on_screen()
    def visit(self, question: UrlQuestion) -> ElicitationAnswer:
        """Show the whole URL and its host, and ask whether the user agrees."""
        _print(f"{_origin(question)} asks you to visit {visible(domain(question.url))}:")
        _quote(question.message)
        _print(f"  {visible(question.url)}")
        _print("Nothing is opened for you. Enter: I agree, and open it myself · !decline · !cancel")
        try:
            agreed = read_choice("visited? ", {"yes": YES, "no": NO}, "yes", _read)
            return ElicitationAnswer("accept" if agreed == "yes" else "decline")
        except _FormEnded as end:
            return end.answer
        except _NO_INPUT_ERRORS:
            return UNANSWERED

    @on_screen()
    def login(self, question: LoginQuestion) -> str | None:
        """Show the login URL and wait for the redirect or the user's confirmation."""
        _print(f"{visible(question.server)} wants you to {visible(question.parties)}:")
        _print(f"  {visible(question.url)}")
        if question.scopes:
            _print(f"  It may then: {', '.join(question.scopes)}")
        _print("Open that address in a browser and log in. Then press Enter here, or paste the address the browser")
        _print("ended at (needed where the browser runs on another machine) · !cancel")
        try:
            while True:
                text = input("logged in? ").strip()
                if text in _COMMANDS or text.casefold() in NO:
                    return None
                if text and text.casefold() not in YES:
                    slip = question.slip(text)
                    if not slip:
                        return text
                    _print(f"{visible(slip)}: paste the whole address that the browser ended at · !cancel")
                    continue
                if question.redirected is not None and question.redirected.wait(_REDIRECT_TIMEOUT):
                    return ""
                _print("The browser has not come back here. Enter once it has, or paste the address it shows · !cancel")
        except _NO_INPUT_ERRORS:
            return None

    @on_screen()
    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Show servers and ask which may run."""
        try:
            return ask_trust(question)
        except _NO_INPUT_ERRORS:
            return None

    @on_screen()
    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Show calls and ask whether they may be made."""
        try:
            return ask_approval(question)
        except _NO_INPUT_ERRORS:
            return None


def _fill(fields: list[Field]) -> dict[str, Any]:
    while True:
        content: dict[str, Any] = {}
        for field in fields:
            value = _value(field)
            if value is not MISSING:
                content[field.name] = value
        if len(fields) == 1:
            return content
        if read_choice("send? [Enter: yes, again] ", {"yes": YES, "again": ("again", "a", *NO)}, "yes", _read) == "yes":
            return content


def _value(field: Field) -> Any:
    """Ask for the value of a field; `MISSING` if the user omits it."""
    if field.description:
        _quote(field.description)
    for number, choice in enumerate(field.choices, start=1):
        named = f" ({choice.value})" if choice.title != choice.value else ""
        _print(f"  {number}  {_plain_line(choice.title + named)}")
    prompt = _prompt(field)
    while True:
        text = _read(prompt, hidden=field.format == "password")
        if not text and field.default is not MISSING:
            return field.default
        if text in ("", _LEAVE_OUT) and not field.required:
            return MISSING
        if not text:
            _print("  this one is needed" + ('; "" is an empty text' if field.kind == "string" else ""))
            continue
        try:
            return field.read(_unquoted(text))
        except ValueError as error:
            _print(f"  {error}")


def _read(prompt: str, *, hidden: bool = False) -> str:
    if hidden:
        import getpass

        text = getpass.getpass(one_line(prompt))
    else:
        text = input(one_line(prompt))
    text = text.strip()
    if hidden and text not in _COMMANDS:
        masks.add(text)
    if text in _COMMANDS:
        raise _FormEnded(_COMMANDS[text])
    return text


def _unquoted(text: str) -> str:
    """Remove the quotes of `"-"`, `"!cancel"` and `""`, which have a meaning without them."""
    inner = text[1:-1]
    special = inner in ("", _LEAVE_OUT) or inner in _COMMANDS
    return inner if len(text) >= 2 and text[0] == text[-1] == '"' and special else text


def _prompt(field: Field) -> str:
    wanted = "" if field.kind == "choice" else field.wanted
    notes = [note for note in (wanted, "" if field.required else "optional") if note]
    default = "" if field.default is MISSING else f" [{_shown(field, field.default)}]"
    about = f" ({', '.join(notes)})" if notes else ""
    return f"{_plain_line(field.title)}{about}{default}: "


def _shown(field: Field, value: Any) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    if isinstance(value, list):
        return ", ".join(_shown(field, item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    titles = {choice.value: choice.title for choice in field.choices}
    return _plain_line(titles.get(value, str(value)) if isinstance(value, str) else str(value))


def _rules(fields: list[Field]) -> str:
    rules = ["!decline", "!cancel"]
    if any(not field.required for field in fields):
        rules.insert(0, "- leaves an optional one empty")
    if any(field.default is not MISSING for field in fields):
        rules.insert(0, "Enter accepts the value in [ ]")
    return " · ".join(rules)


def _origin(question: FormQuestion | UrlQuestion) -> str:
    return visible(f"{question.server}.{question.tool}" if question.tool else question.server)


def _quote(text: str) -> None:
    shown = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    for line in visible(shown).splitlines():
        _print(f"  │ {line}")


def _plain_line(text: str) -> str:
    line = " ".join(visible(text).split())
    return line if len(line) <= _MAX_LABEL else f"{line[:_MAX_LABEL]}…"


def _print(text: str) -> None:
    print(one_line(text), flush=True)  # noqa: T201 - meant for the cell


def _kernel() -> Any:
    """The kernel of this process; None in a script or a terminal."""
    module: Any = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None)

"""Questions asked with `input()` and `getpass()`, in a notebook or a terminal.

Text of a server is shown behind a vertical bar, with control and invisible characters made visible, so that it cannot
pass for text of ipymcp.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING, Any, Final

from ipymcp.interaction.forms import MISSING, NO, YES, Field, UnsupportedForm, read_choice, read_form
from ipymcp.interaction.questions import Action, ApprovalPage, FormPage, InvalidFields, LinkPage, PageReply, TrustPage
from ipymcp.masking import masks
from ipymcp.protocol import types
from ipymcp.text import capitalized, cut, one_line, quoted, shortened, unmasked, unmasked_line, visible

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import TextIO

    from ipymcp.interaction.questions import A, Candidate, LoginQuestion, Question, QuestionPage


class CapturedStdout(io.StringIO):
    """A replacement for standard output that captures printed text.

    Args:
        original: The replaced stream.
    """

    def __init__(self, original: TextIO) -> None:
        super().__init__()
        self.original = original


@contextlib.contextmanager
def uncaptured_stdout() -> Generator[None]:
    """Print to the user, even while the output of a model's code is captured for the model."""
    output = sys.stdout
    with (
        contextlib.redirect_stdout(output.original) if isinstance(output, CapturedStdout) else contextlib.nullcontext()
    ):
        yield


_MAX_VALUE = 2_000
"""Characters shown of an argument."""
_MAX_TEXT = 4_000
"""Characters shown of a server's message."""
_MAX_LABEL = 80
_OMIT = "-"
_COMMANDS: Final[dict[str, Action]] = {"!decline": "decline", "!cancel": "cancel"}
_REDIRECT_TIMEOUT = 3.0
"""Seconds to wait for the redirect after the user confirmed the login."""
NO_INPUT_ERRORS = (EOFError, NotImplementedError, OSError, RuntimeError)
"""Errors of `input` if no one can answer; a kernel's `StdinNotImplementedError` is a `NotImplementedError`."""
_ANSWER_LABELS = {
    "once": "once",
    "answer": "answer (the rest of this answer)",
    "server": "server (all of its tools that are not denied, in this notebook)",
    "notebook": "notebook (this tool, in this notebook)",
    "always": "always",
    "never": "never",
    "no": "no",
}
_ABBREVIATIONS = {"once": YES, "no": NO}


class _Declined(Exception):
    """The user declined or cancelled."""

    def __init__(self, action: Action) -> None:
        self.reply = PageReply(action)


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

    @uncaptured_stdout()
    def ask(self, question: Question[A]) -> A:
        """Ask a question at prompts."""
        try:
            return question.ask(_show)
        except NO_INPUT_ERRORS:
            return question.unanswered


def _show(page: QuestionPage, login: LoginQuestion | None = None) -> PageReply:
    """Show a page and read the reply."""
    try:
        match page:
            case FormPage():
                return _show_form(page)
            case LinkPage():
                return _show_link(page) if login is None else _show_login(page, login)
            case ApprovalPage():
                return _show_approval(page)
            case TrustPage():
                return _show_trust(page)
            case _:
                raise TypeError(f"no prompt for {type(page).__name__}")
    except _Declined as refused:
        return refused.reply


def _show_form(page: FormPage) -> PageReply:
    """Ask for each value in turn."""
    try:
        fields = read_form(page.schema)
    except UnsupportedForm as error:
        _print(f"{page.server} asked for a form that cannot be shown; declined ({error})")
        raise
    _print(f"{page.title}:")
    _quote(page.message)
    _print(_rules(fields))
    return PageReply("accept", _read_values(fields))


def _show_link(page: LinkPage) -> PageReply:
    """Show the whole URL, and ask whether the user agrees."""
    _print(f"{page.title}:")
    _quote(page.message)
    _print(f"  {visible(page.url)}")
    _print("Nothing is opened for you. Enter: I agree, and open it myself · !decline · !cancel")
    return PageReply("accept" if read_choice("Visited? ", {"yes": YES, "no": NO}, "yes", _read) == "yes" else "decline")


def _show_login(page: LinkPage, login: LoginQuestion) -> PageReply:
    """Show the login URL, and wait for the redirect or the pasted redirect URL."""
    _print(f"{page.title}:")
    for line in filter(None, [*unmasked(page.message).splitlines(), page.url]):
        _print_unmasked(f"  {line}")
    _print("Open that address in a browser and log in. Then press Enter here, or paste the address the browser")
    _print("ended at (needed where the browser runs on another machine) · !cancel")
    while True:
        text = input("Logged in? ").strip()
        if text in _COMMANDS or text.casefold() in NO:
            return PageReply("cancel")
        if text and text.casefold() not in YES:
            error = login.paste_error(text)
            if not error:
                return PageReply("accept", {"address": text})
            _print(f"{visible(error)}: paste the whole address that the browser ended at · !cancel")
        elif login.redirected is not None and login.redirected.wait(_REDIRECT_TIMEOUT):
            return PageReply("accept", {"address": ""})
        else:
            _print(
                "The redirect has not arrived here. Enter once it has, or paste the address the browser shows · !cancel"
            )


def _show_approval(page: ApprovalPage) -> PageReply:
    """Show calls, and ask whether they may be made."""
    for call in page.calls:
        hints = f"The server says: {call.hints}" if call.hints else ""
        _print_unmasked(call.sentence if call.sentence.endswith("?") else f"{call.sentence}:")
        for line in filter(None, (call.why, hints)):
            _print_unmasked(f"  {_line(line)}")
        if call.count != 1:
            _print_unmasked("  The arguments of the first call:")
        arguments = _arguments(call.arguments) if call.arguments or not call.code else []
        for line in [*arguments, *(_numbered_lines(call.code) if call.code else ())]:
            _print_unmasked(f"  │ {line}")
        if call.samples:
            _print_unmasked("  Some of the others:")
        for sample in call.samples:
            _print_unmasked(f"  │ {_shortened(types.encode(sample).decode())}")
    _print_unmasked(" · ".join(_ANSWER_LABELS[answer] for answer in page.answers))
    prompt = "Allow? [no] " if len(page.calls) == 1 else f"Allow these {len(page.calls)}? [no] "
    choices = {answer: _ABBREVIATIONS.get(answer, ()) for answer in page.answers}
    if page.calls[0].schema is not None and len(page.calls) == 1:
        _print("edit (once, with other arguments)")
        choices |= {"edit": ()}
    typed = read_choice(prompt, choices, "no")
    if typed == "edit":
        return _edit_arguments(page)
    return PageReply(answer=next(answer for answer in (*page.answers, "no") if answer == typed))


def _edit_arguments(page: ApprovalPage) -> PageReply:
    """Ask for other arguments until they match the tool's schema; an empty line denies the call."""
    while True:
        text = input("Arguments as a JSON object (Enter: deny the call): ").strip()
        if not text:
            return PageReply(answer="no")
        try:
            content = types.loads(text.encode())
            if types.is_object(content):
                return page.read(PageReply(answer="once", content=content))
            _print("  This is not a JSON object")
        except InvalidFields as invalid:
            for error in invalid.errors:
                _print(f"  {'.'.join(map(str, error['path']))}: {error['message']}".replace("  : ", "  "))
        except ValueError as error:
            _print(f"  This is not JSON: {error}")


def _show_trust(page: TrustPage) -> PageReply:
    """Show all servers of a file, and ask which of them may run."""
    _print_unmasked(page.message)
    for number, candidate in enumerate(page.candidates, start=1):
        margin = number if len(page.candidates) > 1 else ""
        # A name of several words is quoted, so that it cannot be taken for the sentence.
        _print_unmasked(f"{margin:<2}│ {quoted(unmasked_line(candidate.name))} {candidate.summary}")
        for line in candidate.lines:
            _print_unmasked(f"  │ {' '.join(line.split())}")
        for danger in candidate.dangers:
            _print_unmasked(f"  ! {danger}")
    agreed = {candidate.name for candidate in page.candidates if candidate.is_agreed}
    agreed |= _choose_servers([candidate for candidate in page.candidates if not candidate.is_agreed])
    secrets = frozenset(
        (candidate.name, secret)
        for candidate in page.candidates
        if candidate.name in agreed
        for secret in candidate.secrets
        if _confirm(f"Give {_line(candidate.name)} your secret {_line(secret)}? [y/N] ")
    )
    return PageReply(servers=frozenset(agreed), secrets=secrets)


def _choose_servers(candidates: Sequence[Candidate]) -> set[str]:
    if not candidates:
        return set()
    prompt = "Run it? [yes, no] " if len(candidates) == 1 else "Run them? [all, choose, none] "
    one, several = {"yes": ("all", *YES), "no": ("none", *NO)}, {"all": YES, "choose": (), "none": NO}
    match read_choice(prompt, one if len(candidates) == 1 else several, "no" if len(candidates) == 1 else "none"):
        case "yes" | "all":
            return {candidate.name for candidate in candidates}
        case "choose":
            return {candidate.name for candidate in candidates if _confirm(f"Run {_line(candidate.name)}? [y/N] ")}
        case _:
            return set()


def _confirm(prompt: str) -> bool:
    return read_choice(prompt, {"yes": YES, "no": NO}, "no") == "yes"


def _arguments(arguments: Mapping[str, Any]) -> list[str]:
    values = [f"{_line(key)} = {_shortened(types.encode(value).decode())}" for key, value in arguments.items()]
    return values or ["no arguments"]


def _numbered_lines(code: str) -> list[str]:
    """All lines of code with their numbers: nothing is cut, because the user agrees to all of it."""
    lines = unmasked(code).split("\n")
    return [f"{number:{len(str(len(lines)))}} {line}" for number, line in enumerate(lines, start=1)]


def _shortened(text: str) -> str:
    line = _line(text)
    hidden = len(line) - _MAX_VALUE
    half = _MAX_VALUE // 2
    return line if hidden <= 0 else f"{line[:half]}… ({hidden:,} characters that are not shown) …{line[-half:]}"


def _line(text: str) -> str:
    """Untrusted text on one line. Line breaks stay visible, because a shell would interpret them."""
    return " ".join(one_line(text).split())


def _print_unmasked(text: str) -> None:
    print(unmasked_line(text), flush=True)  # noqa: T201 - meant for the cell


def _read_values(fields: list[Field]) -> dict[str, Any]:
    while True:
        content: dict[str, Any] = {}
        for field in fields:
            value = _read_value(field)
            if value is not MISSING:
                content[field.name] = value
        if len(fields) == 1:
            return content
        if read_choice("Send? [Enter: yes, again] ", {"yes": YES, "again": ("again", "a", *NO)}, "yes", _read) == "yes":
            return content


def _read_value(field: Field) -> Any:
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
        if text in ("", _OMIT) and not field.required:
            return MISSING
        if not text:
            _print("  This value is required" + ('; "" is an empty text' if field.kind == "string" else ""))
            continue
        try:
            return field.parse(_unquoted(text))
        except ValueError as error:
            _print(f"  {capitalized(str(error))}")


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
        raise _Declined(_COMMANDS[text])
    return text


def _unquoted(text: str) -> str:
    """Remove the quotes of `"-"`, `"!cancel"` and `""`, which have a meaning without them."""
    inner = text[1:-1]
    special = inner in ("", _OMIT) or inner in _COMMANDS
    return inner if len(text) >= 2 and text[0] == text[-1] == '"' and special else text


def _prompt(field: Field) -> str:
    wanted = "" if field.kind == "choice" else field.expected_input
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
        rules.insert(0, "- omits an optional value")
    if any(field.default is not MISSING for field in fields):
        rules.insert(0, "Enter accepts the value in [ ]")
    return " · ".join(rules)


def _quote(text: str) -> None:
    for line in visible(cut(text, _MAX_TEXT)).splitlines():
        _print(f"  │ {line}")


def _plain_line(text: str) -> str:
    return shortened(visible(text), _MAX_LABEL)


def _print(text: str) -> None:
    print(one_line(text), flush=True)  # noqa: T201 - meant for the cell


def _kernel() -> Any:
    """The kernel of this process; None in a script or a terminal."""
    module: Any = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None)

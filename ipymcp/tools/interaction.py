"""Asks the user by `input()` and `getpass()`, in any front end: a notebook's prompt, a terminal.

What a server wrote is shown behind a bar at the left, with control and invisible characters made visible, so that it
cannot pass for our own words.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ipymcp.masking import masks
from ipymcp.runtime.interaction import CANCELLED, UNANSWERED, Answer
from ipymcp.runtime.web import domain
from ipymcp.text import one_line, visible
from ipymcp.tools.forms import MISSING, CannotDraw, Field, read_form
from ipymcp.tools.screen import on_screen
from ipymcp.tools.typed_choice import NO, YES, read_choice

if TYPE_CHECKING:
    from ipymcp.policy.questions import ApprovalAnswer, ApprovalQuestion, TrustAnswer, TrustQuestion
    from ipymcp.runtime.interaction import FormQuestion, LoginQuestion, UrlQuestion

__all__ = ["Prompts"]

_NOBODY = (EOFError, NotImplementedError, OSError, RuntimeError)
"""What reading raises where nobody can answer; a kernel's `StdinNotImplementedError` is a `NotImplementedError`."""
_LONGEST_TEXT = 4000
_LONGEST_LABEL = 80
_LEAVE_OUT = "-"
_ENDS = {"!decline": Answer("decline"), "!cancel": CANCELLED}
_BACK_IN = 3.0
"""Seconds that a browser's way back may take after the user said that it is done."""


class _Ended(Exception):
    """The user did not fill the form."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


class Prompts:
    """An `Interaction` of plain prompts."""

    def can_ask(self) -> bool:
        """Whether a prompt would reach anybody: a front end that takes input, or a terminal."""
        kernel: Any = _kernel()
        if kernel is not None:
            return bool(getattr(kernel, "_allow_stdin", True))
        try:
            return sys.stdin is not None and sys.stdin.isatty()  # pyright: ignore[reportUnnecessaryComparison]
        except ValueError:  # closed
            return False

    @on_screen()
    def fill(self, question: FormQuestion) -> Answer:
        """Ask for each value in turn."""
        try:
            fields = read_form(question.schema)
        except CannotDraw as error:
            _say(f"{question.server} asked for what no form can give; declined ({error})")
            return Answer("decline", note=f"a form that cannot be drawn: {error}")
        _say(f"{_asker(question)} asks:")
        _quote(question.message)
        _say(_rules(fields))
        try:
            return Answer("accept", _fill(fields))
        except _Ended as end:
            return end.answer
        except _NOBODY:
            return UNANSWERED

    @on_screen()
    def visit(self, question: UrlQuestion) -> Answer:
        """Show the whole address and its domain, and ask whether the user agrees."""
        _say(f"{_asker(question)} asks you to visit {visible(domain(question.url))}:")
        _quote(question.message)
        _say(f"  {visible(question.url)}")
        _say("Nothing is opened for you. Enter: I agree, and open it myself · !decline · !cancel")
        try:
            agreed = read_choice("visited? ", {"yes": YES, "no": NO}, "yes", _read)
            return Answer("accept" if agreed == "yes" else "decline")
        except _Ended as end:
            return end.answer
        except _NOBODY:
            return UNANSWERED

    @on_screen()
    def login(self, question: LoginQuestion) -> str | None:
        """Show where to log in, and wait until the user says that it is done."""
        _say(f"{visible(question.server)} wants you to {visible(question.parties)}:")
        _say(f"  {visible(question.url)}")
        if question.scopes:
            _say(f"  It may then: {', '.join(question.scopes)}")
        _say("Open that address in a browser and log in. Then press Enter here, or paste the address the browser")
        _say("ended at (needed where the browser runs on another machine) · !cancel")
        try:
            while True:
                text = input("logged in? ").strip()
                if text in _ENDS or text.casefold() in NO:
                    return None
                if text and text.casefold() not in YES:
                    slip = question.slip(text)
                    if not slip:
                        return text
                    _say(f"{visible(slip)}: paste the whole address that the browser ended at · !cancel")
                    continue
                if question.redirected is not None and question.redirected.wait(_BACK_IN):
                    return ""
                _say("The browser has not come back here. Enter once it has, or paste the address it shows · !cancel")
        except _NOBODY:
            return None

    @on_screen()
    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Show servers, and ask which may run."""
        from ipymcp.tools.consent import ask_trust

        try:
            return ask_trust(question)
        except _NOBODY:
            return None

    @on_screen()
    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Show calls, and ask whether they may be made."""
        from ipymcp.tools.consent import ask_approval

        try:
            return ask_approval(question)
        except _NOBODY:
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
    """What the user gives for a field; `MISSING` for nothing."""
    if field.description:
        _quote(field.description)
    for number, choice in enumerate(field.choices, start=1):
        named = f" ({choice.value})" if choice.title != choice.value else ""
        _say(f"  {number}  {_line(choice.title + named)}")
    prompt = _prompt(field)
    while True:
        text = _read(prompt, hidden=field.format == "password")
        if not text and field.default is not MISSING:
            return field.default
        if text in ("", _LEAVE_OUT) and not field.required:
            return MISSING
        if not text:
            _say("  this one is needed" + ('; "" is an empty text' if field.kind == "string" else ""))
            continue
        try:
            return field.read(_unquoted(text))
        except ValueError as error:
            _say(f"  {error}")


def _read(prompt: str, *, hidden: bool = False) -> str:
    if hidden:
        import getpass

        text = getpass.getpass(one_line(prompt))
    else:
        text = input(one_line(prompt))
    text = text.strip()
    if hidden and text not in _ENDS:
        masks.add(text)
    if text in _ENDS:
        raise _Ended(_ENDS[text])
    return text


def _unquoted(text: str) -> str:
    """What stands for itself in quotes: `"-"`, `"!cancel"`, `""`."""
    inner = text[1:-1]
    special = inner in ("", _LEAVE_OUT) or inner in _ENDS
    return inner if len(text) >= 2 and text[0] == text[-1] == '"' and special else text


def _prompt(field: Field) -> str:
    wanted = "" if field.kind == "choice" else field.wanted
    notes = [note for note in (wanted, "" if field.required else "optional") if note]
    default = "" if field.default is MISSING else f" [{_shown(field, field.default)}]"
    about = f" ({', '.join(notes)})" if notes else ""
    return f"{_line(field.title)}{about}{default}: "


def _shown(field: Field, value: Any) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    if isinstance(value, list):
        return ", ".join(_shown(field, item) for item in value)  # pyright: ignore[reportUnknownVariableType]
    titles = {choice.value: choice.title for choice in field.choices}
    return _line(titles.get(value, str(value)) if isinstance(value, str) else str(value))


def _rules(fields: list[Field]) -> str:
    rules = ["!decline", "!cancel"]
    if any(not field.required for field in fields):
        rules.insert(0, "- leaves an optional one empty")
    if any(field.default is not MISSING for field in fields):
        rules.insert(0, "Enter takes what stands in [ ]")
    return " · ".join(rules)


def _asker(question: FormQuestion | UrlQuestion) -> str:
    return visible(f"{question.server}.{question.tool}" if question.tool else question.server)


def _quote(text: str) -> None:
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    for line in visible(shown).splitlines():
        _say(f"  │ {line}")


def _line(text: str) -> str:
    line = " ".join(visible(text).split())
    return line if len(line) <= _LONGEST_LABEL else f"{line[:_LONGEST_LABEL]}…"


def _say(text: str) -> None:
    print(one_line(text), flush=True)  # noqa: T201 - meant for the cell


def _kernel() -> Any:
    """The kernel this runs in; None in a script or a terminal."""
    module: Any = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None)

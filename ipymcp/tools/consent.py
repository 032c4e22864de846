"""Asks at prompts what may run: servers that a project defines, and calls that a rule says to ask about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.policy.questions import TrustAnswer
from ipymcp.protocol import wire
from ipymcp.protocol.jsontypes import is_object
from ipymcp.text import one_line, unmasked_line, visible
from ipymcp.tools.typed_choice import NO, YES, read_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.policy.questions import ApprovalAnswer, ApprovalQuestion, Candidate, TrustQuestion, WantedCall

__all__ = ["ask_approval", "ask_trust"]

_LONGEST_VALUE = 2_000
_SHORT = {"once": YES, "no": NO}
_ASKERS = {
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
    """Show every server of a file, and ask which of them may run."""
    candidates = question.candidates
    wanting = [candidate for candidate in candidates if not candidate.is_agreed]
    _say(f"{_line(question.file)} {question.why}. {_would(len(wanting), len(candidates))}:")
    for number, candidate in enumerate(candidates, start=1):
        _show(number, candidate, unmasked_line if question.is_strangers else _line)
    if question.left_out:
        _say(f"  {_line(question.left_out)}")
    agreed = {candidate.name for candidate in candidates if candidate.is_agreed} | _agreed(wanting)
    secrets = [
        (candidate.name, secret)
        for candidate in candidates
        if candidate.name in agreed
        for secret in candidate.secrets
        if _yes(f"give {_line(candidate.name)} your secret {_line(secret)}? [y/N] ")
    ]
    return TrustAnswer(frozenset(agreed), frozenset(secrets))


def ask_approval(question: ApprovalQuestion) -> ApprovalAnswer:
    """Show calls that somebody wants to make, and ask whether they may be."""
    calls = question.calls
    for caller, text in _ASKERS.items():
        for call in (call for call in calls if call.caller == caller):
            _say(f"{text} {_line(f'{call.server}.{call.tool}')}{_about(call)}")
            for line in _code(call.code) if call.code else _arguments(call.arguments):
                _say(f"  │ {line}")
    _say(" · ".join(_MEANINGS[answer] for answer in question.answers))
    prompt = "allow? [no] " if len(calls) == 1 else f"allow these {len(calls)}? [no] "
    typed = read_choice(prompt, {answer: _SHORT.get(answer, ()) for answer in question.answers}, "no")
    return next(answer for answer in (*question.answers, "no") if answer == typed)


def _show(number: int, candidate: Candidate, shown: Callable[[str], str]) -> None:
    _say(f"{number} {shown(candidate.name)}")
    for line in candidate.lines:
        _say(f"  │ {' '.join(shown(line).split())}")
    for danger in candidate.dangers:
        _say(f"  ! {shown(danger)}")


def _would(running: int, all_of_them: int) -> str:
    if not running:
        return "What may run already wants secrets of yours"
    return f"It would run {'a server' if all_of_them == 1 else f'{all_of_them} servers'} with your rights"


def _agreed(candidates: Sequence[Candidate]) -> set[str]:
    if not candidates:
        return set()
    prompt = "run it? [yes, no] " if len(candidates) == 1 else "run them? [all, choose, none] "
    one, several = {"yes": ("all", *YES), "no": ("none", *NO)}, {"all": YES, "choose": (), "none": NO}
    match read_choice(prompt, one if len(candidates) == 1 else several, "no" if len(candidates) == 1 else "none"):
        case "yes" | "all":
            return {candidate.name for candidate in candidates}
        case "choose":
            return {candidate.name for candidate in candidates if _yes(f"run {_line(candidate.name)}? [y/N] ")}
        case _:
            return set()


def _yes(prompt: str) -> bool:
    return read_choice(prompt, {"yes": YES, "no": NO}, "no") == "yes"


def _about(call: WantedCall) -> str:
    said = f"; the server says that it {call.hints}" if call.hints else ""
    return f" ({_line(call.why)}{said}):"


def _arguments(arguments: bytes) -> list[str]:
    values: Any = wire.loads(arguments) if arguments else {}
    if not is_object(values) or not values:
        return ["no arguments"]
    return [f"{_line(key)} = {_shortened(wire.encode(value).decode())}" for key, value in values.items()]


def _code(code: str) -> list[str]:
    """All of it, each line with its number: what is not shown is not agreed to."""
    lines = visible(code).split("\n")
    return [f"{number:{len(str(len(lines)))}} {line}" for number, line in enumerate(lines, start=1)]


def _shortened(text: str) -> str:
    line = _line(text)
    hidden = len(line) - _LONGEST_VALUE
    half = _LONGEST_VALUE // 2
    return line if hidden <= 0 else f"{line[:half]}… ({hidden:,} characters that are not shown) …{line[-half:]}"


def _line(text: str) -> str:
    """One line of what strangers wrote; what breaks its lines is shown, for a shell would see it."""
    return " ".join(one_line(text).split())


def _say(text: str) -> None:
    print(unmasked_line(text), flush=True)  # noqa: T201 - meant for the cell

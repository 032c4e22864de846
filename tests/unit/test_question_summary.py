"""The lines that a notebook keeps of questions and answers."""

from __future__ import annotations

from ipymcp.interaction.questions import (
    Candidate,
    ElicitationAnswer,
    FormQuestion,
    LoginQuestion,
    TrustAnswer,
    TrustQuestion,
)
from ipymcp.masking import masks
from ipymcp.panel import questions


def test_no_secret_is_in_the_line_of_a_form() -> None:
    fields = {"user": {}, "pin": {"type": "string", "format": "password"}, "api_key": {"type": "string"}, "note": {}}
    question = FormQuestion("crm", "sync", "Log\nin, \u202eplease", {"type": "object", "properties": fields})
    masks.add("known-secret-value")
    content = {"user": "ada", "pin": "1234", "api_key": "sk-abc", "note": "known-secret-value", "odd": "\ud800"}
    line = questions.fill(question, ElicitationAnswer("accept", content))
    given = 'user = "ada", pin = ••••, api_key = ••••, note = "[secret]", odd = "?"'
    assert line == f"crm.sync asked: Log in, ⟨U+202E⟩please · {given}"


def test_a_form_without_values_was_answered_all_the_same() -> None:
    question = FormQuestion("crm", None, "Go on?", {"type": "object"})
    assert questions.fill(question, ElicitationAnswer("accept", {})) == "crm asked: Go on? · answered"


def test_a_line_is_short() -> None:
    question = FormQuestion("crm", None, "x" * 10_000, {"type": "object"})
    assert len(questions.fill(question, ElicitationAnswer("accept", {"a": "y" * 10_000}))) < 700


def test_a_login_is_told_without_its_address() -> None:
    question = LoginQuestion(
        "crm", "https://a.example/login?state=s", "a.example", (), None, site="crm.example", answer_to="a.example"
    )
    assert (
        questions.login(question, "https://b.example/?code=secret")
        == "crm wanted you to log in at a.example · logged in"
    )
    assert questions.login(question, None) == "crm wanted you to log in at a.example · not logged in"


def test_trust_names_what_may_run_and_what_may_not() -> None:
    candidates = tuple(Candidate(name, name, (), (), ()) for name in ("a", "b", "c"))
    question = TrustQuestion(".mcp.json", "is new", candidates)
    assert (
        questions.trust(question, TrustAnswer(frozenset({"c", "a"})))
        == "May servers of .mcp.json run? · yes: a, c · no: b"
    )
    assert questions.trust(question, TrustAnswer()) == "May servers of .mcp.json run? · no: a, b, c"
    assert questions.trust(question, None) == "May servers of .mcp.json run? · not answered"

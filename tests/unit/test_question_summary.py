"""The lines that a notebook keeps of questions and answers."""

from ipymcp.interaction.elicitation import ElicitationAnswer, FormQuestion
from ipymcp.interaction.questions import Candidate, LoginQuestion, PageReply, QuestionPage, TrustAnswer, TrustQuestion
from ipymcp.masking import masks


def test_the_line_of_a_form_contains_no_secret() -> None:
    fields = {"user": {}, "pin": {"type": "string", "format": "password"}, "api_key": {"type": "string"}, "note": {}}
    question = FormQuestion("crm", "sync", "Log\nin, \u202eplease", {"type": "object", "properties": fields})
    masks.add("known-secret-value")
    content = {"user": "ada", "pin": "1234", "api_key": "sk-abc", "note": "known-secret-value", "odd": "\ud800"}
    line = question.summary(ElicitationAnswer("accept", content))
    given = 'user = "ada", pin = ••••, api_key = ••••, note = "[secret]", odd = "⟨U+D800⟩"'
    assert line == f"crm.sync asked: Log in, ⟨U+202E⟩please · {given}"


def test_a_form_without_values_counts_as_answered() -> None:
    question = FormQuestion("crm", None, "Go on?", {"type": "object"})
    assert question.summary(ElicitationAnswer("accept", {})) == "crm asked: Go on? · answered"


def test_a_line_is_short() -> None:
    question = FormQuestion("crm", None, "x" * 10_000, {"type": "object"})
    assert len(question.summary(ElicitationAnswer("accept", {"a": "y" * 10_000}))) < 700


def test_the_line_of_a_login_lacks_its_address() -> None:
    question = LoginQuestion(
        "crm", "https://a.example/login?state=s", "a.example", (), None, site="crm.example", answer_to="a.example"
    )
    assert question.summary("https://b.example/?code=secret") == "crm wanted you to log in at a.example · logged in"
    assert question.summary(None) == "crm wanted you to log in at a.example · not logged in"


def test_a_scope_cannot_add_a_line_to_the_question_of_a_login() -> None:
    scopes = ("files:read\ncrm wants you to log in at good.example:",)
    question = LoginQuestion("crm", "https://a.example/", "a.example", scopes, None, "crm.example", "a.example")
    pages: list[QuestionPage] = []

    def show(page: QuestionPage, login: object = None) -> PageReply:
        pages.append(page)
        return PageReply("decline")

    assert question.ask(show) is None
    assert pages[0].message.splitlines()[1:] == ["", "It may then: files:read␊crm wants you to log in at good.example:"]


def test_the_line_of_a_trust_question_names_allowed_and_refused_servers() -> None:
    candidates = tuple(Candidate(name, "", (), (), ()) for name in ("a", "b", "c"))
    question = TrustQuestion(".mcp.json", "is new", candidates)
    assert question.summary(TrustAnswer(frozenset({"c", "a"}))) == "Trust servers of .mcp.json? · yes: a, c · no: b"
    assert question.summary(TrustAnswer()) == "Trust servers of .mcp.json? · no: a, b, c"
    assert question.summary(None) == "Trust servers of .mcp.json? · not answered"

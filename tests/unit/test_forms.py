"""Forms of elicitation: fields from schemas, values from typed text, and the questions at a prompt."""

from typing import Any

import pytest

from ipymcp.interaction.elicitation import ElicitationAnswer, FormQuestion, UrlQuestion, read_elicitation
from ipymcp.interaction.forms import MISSING, Field, UnsupportedForm, format_errors, read_form
from ipymcp.interaction.questions import domain
from ipymcp.interaction.terminal import TerminalPrompts

TITLED = [{"const": "#F00", "title": "Red"}, {"const": "#0F0", "title": "Green"}]


def field(**schema: Any) -> Field:
    return read_form({"type": "object", "properties": {"x": schema}})[0]


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "true", "true"),
        ({"type": "string", "format": "email"}, "ada@example.org", "ada@example.org"),
        ({"type": "string", "format": "uri"}, "https://example.org/a?b", "https://example.org/a?b"),
        ({"type": "string", "format": "date"}, "2026-07-28", "2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28T09:30:00Z", "2026-07-28T09:30:00Z"),
        ({"type": "string", "format": "unheard-of"}, "anything", "anything"),
        ({"type": "integer"}, "-7", -7),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "number"}, "5", 5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["a", "b"]}, "b", "b"),
        ({"type": "string", "enum": ["a", "b"]}, "2", "b"),
        ({"type": "string", "enum": ["2", "1"]}, "2", "2"),
        ({"type": "string", "enum": ["p1", "p2"], "enumNames": ["Cat", "Dog"]}, "dog", "p2"),
        ({"type": "string", "oneOf": TITLED}, "Green", "#0F0"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}, "c, 1", ["c", "a"]),
        ({"type": "array", "items": {"anyOf": TITLED}}, "red,green,red", ["#F00", "#0F0"]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}, "3", 3),
    ],
)
def test_typed_text_is_read_as_the_type_of_the_field(schema: dict[str, Any], typed: str, value: object) -> None:
    assert field(**schema).parse(typed) == value


@pytest.mark.parametrize(
    ("schema", "typed", "complaint"),
    [
        ({"type": "integer"}, "1.5", "must be a whole number"),
        ({"type": "number"}, "nan", "must be a number"),
        ({"type": "number", "minimum": 0, "maximum": 1}, "2", "must be 0 to 1"),
        ({"type": "integer", "maximum": 9}, "10", "must be at most 9"),
        ({"type": "string", "minLength": 2}, "a", "must have at least 2 characters"),
        ({"type": "string", "minLength": 1}, "", "must have at least 1 character"),
        ({"type": "string", "minLength": 2, "maxLength": 2}, "abc", "must have 2 characters"),
        ({"type": "string", "format": "email"}, "ada", "must be an email address"),
        ({"type": "string", "format": "uri"}, "a b", "must be an address, such as https://host/path"),
        ({"type": "string", "format": "date"}, "20260728", "must be a date, such as 2026-07-28"),
        ({"type": "string", "format": "date-time"}, "2026-07-28", "must be a timestamp, such as 2026-07-28T09:30:00Z"),
        ({"type": "boolean"}, "perhaps", "must be y or n"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "must be a number from 1 to 2, or one of the names"),
        ({"type": "array", "minItems": 1, "maxItems": 1, "items": {"enum": ["a", "b"]}}, "a,b", "choose 1 of them"),
    ],
)
def test_an_invalid_value_is_refused_with_the_expected_form(schema: dict[str, Any], typed: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{complaint}$"):
        field(**schema).parse(typed)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "properties": {}},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"x": {"type": "object"}}},
        {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"x": {"$ref": "https://example.org/schema"}}},
        {"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"$ref": "#/$defs/y"}}},
        {"type": "object", "properties": {"x": True}},
        {"type": "object", "properties": {f"x{number}": {"type": "string"} for number in range(51)}},
    ],
)
def test_a_schema_without_a_form_is_unsupported(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedForm):
        read_form(schema)


def test_a_definition_within_the_schema_is_resolved() -> None:
    schema = {"properties": {"x": {"$ref": "#/$defs/C"}}, "$defs": {"C": {"type": "string", "enum": ["a"]}}}
    assert [choice.value for choice in read_form(schema)[0].choices] == ["a"]


def test_a_default_of_another_type_is_ignored() -> None:
    assert field(type="integer", default="5").default is MISSING
    assert field(type="boolean", default=0).default is MISSING
    assert field(type="string", enum=["a"], default="b").default is MISSING


# -- at the prompt ----------------------------------------------------------------------------------------------------


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A prompt that gets these lines, and then the end of input."""
    answers: list[str] = []

    def read(prompt: str) -> str:
        if not answers:
            raise EOFError
        return answers.pop(0)

    monkeypatch.setattr("builtins.input", read)
    return answers


STRING, WITH_DEFAULT = {"type": "string"}, {"type": "string", "default": "d"}


@pytest.mark.parametrize(
    ("lines", "properties", "answer"),
    [
        (["", "-", "", ""], {"a": WITH_DEFAULT, "b": WITH_DEFAULT, "c": STRING}, ("accept", {"a": "d"})),
        (
            ['"-"', '"!cancel"', '"quoted"', '""', ""],
            {"a": STRING, "b": STRING, "c": STRING, "needed": STRING},
            ("accept", {"a": "-", "b": "!cancel", "c": '"quoted"', "needed": ""}),
        ),
        ([""], {}, ("accept", {})),
        (["!decline"], {"a": STRING}, ("decline", None)),
        (["!cancel"], {"a": STRING}, ("cancel", None)),
        (["x", "y", "!decline"], {"a": STRING, "b": STRING}, ("decline", None)),
        (["x", "y", "!cancel"], {"a": STRING, "b": STRING}, ("cancel", None)),
        ([], {"a": STRING}, ("cancel", None)),
    ],
    ids=[
        "an empty line sends the default and a dash omits the field",
        "quoted text is taken literally",
        "no fields",
        "declined at a field",
        "cancelled at a field",
        "declined at the end",
        "cancelled at the end",
        "end of input",
    ],
)
def test_a_form_is_filled_at_the_prompt(
    typed: list[str], lines: list[str], properties: dict[str, Any], answer: tuple[str, object]
) -> None:
    typed += lines
    schema = {"type": "object", "properties": properties, "required": ["needed"]}
    filled = TerminalPrompts().ask(FormQuestion("server", None, "Please.", schema))
    assert (filled.action, filled.content) == answer


def test_a_schema_that_cannot_be_drawn_is_declined_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "object"}}}
    answer = TerminalPrompts().ask(FormQuestion("server", None, "Please.", schema))
    assert (answer.action, answer.note) == ("decline", "a form that cannot be shown: 'x' is an object")
    assert capsys.readouterr().out == "server asked for a form that cannot be shown; declined ('x' is an object)\n"


def test_a_servers_text_cannot_imitate_the_prompt(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    typed += [""]
    url = "https://good.example@xn--80ak6aa92e.com/\u202efdp"
    TerminalPrompts().ask(UrlQuestion("server", "tool", "\x1b[2JHi\r\nserver.tool asks:\u200b", url))
    assert capsys.readouterr().out == (
        "server wants you to open xn--80ak6aa92e.com:\n"
        "  │ ␛[2JHi\n"
        "  │ server.tool asks:⟨U+200B⟩\n"
        "  https://good.example@xn--80ak6aa92e.com/⟨U+202E⟩fdp\n"
        "Nothing is opened for you. Enter: I agree, and open it myself · !decline · !cancel\n"
    )


def test_a_domain_in_foreign_letters_is_shown_in_both_ways(
    typed: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    host = "\u0430\u0440\u0440\u04cf\u0435.com"
    TerminalPrompts().ask(UrlQuestion("server", None, "", f"https://{host}/"))
    assert capsys.readouterr().out.startswith(f"server wants you to open {host} (xn--80ak6aa92e.com):\n")


def test_letters_that_only_browsers_preserve_are_shown_escaped() -> None:
    assert domain("https://stra\u00dfe.example/") == "stra\u00dfe.example ('stra\\xdfe.example')"


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example\\@good.example/login", "https://other.example\\.good.example/login",
        "https://good.example/\\other.example", "https://good.example@other.example/",
        "https://good.example:443@other.example/", "https://good.example%2f@other.example/",
        "https://good.example%2fother.example/", "https://%6fther.example/",
        "https://good.example\uff0fother.example/", "https://good.example\t.other.example/",
        "https://good.example:x/", "https:good.example", "https:///good.example", "ftp://good.example/",
        "https://[good.example/",
    ],
)  # fmt: skip
def test_a_url_that_browsers_may_interpret_differently_is_declined(url: str) -> None:
    answer = read_elicitation("server", "tool", {"mode": "url", "message": "Please.", "url": url})
    assert answer == ElicitationAnswer("decline", note=f"asked to visit a URL that is not a web address: {url!r}")


def test_formats_are_checked_in_nested_values_too() -> None:
    email, when = {"type": "string", "format": "email"}, {"type": "string", "format": "date-time"}
    person = {"type": "object", "properties": {"mail": email, "seen": {"anyOf": [when, {"type": "null"}]}}}
    schema = {
        "type": "object",
        "properties": {"people": {"type": "array", "items": {"$ref": "#/$defs/person"}}, "site": {"format": "uri"}},
        "$defs": {"person": person},
    }
    right = {"mail": "ada@example.org", "seen": "2026-07-28T09:30:00Z"}
    assert [*format_errors(schema, {"people": [right, {"seen": None}], "site": "urn:a", "more": "x"})] == []
    assert [*format_errors(schema, {"people": [right, {"mail": "ada", "seen": "today"}], "site": "a b"})] == [
        (("people", 1, "mail"), "must be an email address"),
        (("people", 1, "seen"), "must be a timestamp, such as 2026-07-28T09:30:00Z"),
        (("site",), "must be an address, such as https://host/path"),
    ]

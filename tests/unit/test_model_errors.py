"""What a provider says is wrong, in one line for people."""

from __future__ import annotations

import pytest

from ipymcp.llm.pydantic_ai import _problem


class Refusal(Exception):
    """As the libraries raise one: with the status, and the body as it was read."""

    def __init__(self, body: object, status: int = 400) -> None:
        super().__init__("refused")
        self.body, self.status_code = body, status


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"message": "too long", "type": "some", "code": 400}, "too long"),
        ({"type": "error", "error": {"type": "some", "message": "too long"}}, "too long"),
        ({"error": "too long"}, "too long"),
        (
            "<p>\n  bad \x1b[31mgateway\u202e\n</p>",
            "<p> bad ␛[31mgateway⟨U+202E⟩ </p>",
        ),
        (["odd"], "['odd']"),
        (None, "no more than that"),
    ],
    ids=["openai", "anthropic", "a word", "a page", "a list", "nothing"],
)
def test_a_refusal_is_the_providers_message_on_one_line(body: object, said: str) -> None:
    assert str(_problem(Refusal(body))).splitlines()[0] == f"the provider answered 400: {said}"


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "is the key right? It is in the provider's variable, such as OPENAI_API_KEY"),
        (404, "is the model's name right, and the address?"),
        (429, "ask again"),
    ],
)
def test_what_to_do_depends_on_what_the_provider_says(status: int, hint: str) -> None:
    assert _problem(Refusal("no", status)).hint == hint

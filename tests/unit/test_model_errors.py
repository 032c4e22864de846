"""Errors of providers in one line for people."""

import pytest

from ipymcp.llm.backend import as_mcp_error


class Refusal(Exception):
    """An error as the libraries raise it, with the status and the decoded body."""

    def __init__(self, body: object, status: int = 400) -> None:
        super().__init__("refused")
        self.body, self.status_code = body, status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"message": "too long", "type": "some", "code": 400}, "too long"),
        ({"type": "error", "error": {"type": "some", "message": "too long"}}, "too long"),
        ({"error": "too long"}, "too long"),
        ("<p>\n  bad \x1b[31mgateway\u202e\n</p>", "<p> bad ␛[31mgateway⟨U+202E⟩ </p>"),
        (["odd"], "['odd']"),
        (None, "no message"),
    ],
    ids=["openai", "anthropic", "a word", "a page", "a list", "nothing"],
)
def test_a_refusal_is_the_providers_message_on_one_line(body: object, message: str) -> None:
    assert str(as_mcp_error(Refusal(body))).splitlines()[0] == f"the provider answered 400: {message}"


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "is the key right? It is in the provider's variable, such as OPENAI_API_KEY"),
        (404, "are the model's name and the URL right?"),
        (429, "ask again"),
    ],
)
def test_the_hint_depends_on_the_providers_error(status: int, hint: str) -> None:
    assert as_mcp_error(Refusal("no", status)).hint == hint


@pytest.mark.parametrize(
    ("text", "variable", "hint"),
    [
        (
            "Set the `OLLAMA_BASE_URL` environment variable or pass it via `OllamaProvider(base_url=...)`to use it.",
            "OLLAMA_BASE_URL",
            "%mcp ask --base-url http://localhost:11434/v1 -m NAME …, or ask(…, base_url=…) · or ",
        ),
        ("Set the `OPENAI_API_KEY` environment variable or pass it via `OpenAIProvider(api_key=...)`.",
         "OPENAI_API_KEY", ""),
        ("Must provide the `AZURE_OPENAI_ENDPOINT` environment variable.", "AZURE_OPENAI_ENDPOINT", ""),
    ],
)  # fmt: skip
def test_a_variable_that_a_provider_needs_is_named(text: str, variable: str, hint: str) -> None:
    error = as_mcp_error(Exception(text))
    assert error.message == f"this model needs the variable {variable}"
    assert error.hint == f"{hint}%env {variable}=… · or set it before Jupyter"

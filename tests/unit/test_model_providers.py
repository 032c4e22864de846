"""The provider whose limits apply to a model."""

import pytest

from ipymcp.llm.providers import PLAIN, PROVIDERS, profile_of


class Model:
    """A model of pydantic-ai, as far as this looks."""

    def __init__(self, system: object) -> None:
        self.system = system


@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("openai:gpt-5", "openai"),
        ("openai-chat:gpt-5", "openai"),
        ("openai-responses:gpt-5", "openai"),
        ("gateway/openai:gpt-5", "openai"),
        ("anthropic:claude-opus-4-5", "anthropic"),
        ("google:gemini-3", "gemini"),
        ("google-gla:gemini-3", "gemini"),
        (Model("openai"), "openai"),
        (Model("anthropic"), "anthropic"),
    ],
)
def test_a_model_has_its_providers_limits(model: object, dialect: str) -> None:
    assert profile_of(model) is PROVIDERS[dialect].profile  # type: ignore[index]


@pytest.mark.parametrize("model", ["llama3.2", "mistral:large", None, Model("fallback:a,b"), Model(5), object()])
def test_a_model_of_an_unknown_provider_has_the_narrowest_limits(model: object) -> None:
    assert profile_of(model) is PLAIN
    assert PLAIN.description == min(provider.profile.description for provider in PROVIDERS.values())
    assert PLAIN.functions == min(provider.profile.functions for provider in PROVIDERS.values())
    assert all(PLAIN.depth <= provider.profile.depth for provider in PROVIDERS.values())
    for name in ("max_results", "max-results", "a.b", "1st", "@odata.type", "größe", "n" * 65):
        takes = [
            provider.profile.key is None or bool(provider.profile.key.fullmatch(name))
            for provider in PROVIDERS.values()
        ]
        assert PLAIN.key is not None and bool(PLAIN.key.fullmatch(name)) <= all(takes)
    assert profile_of(model, "http://localhost:11434/v1") is PROVIDERS["openai"].profile

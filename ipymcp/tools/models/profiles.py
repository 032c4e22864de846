"""What each provider takes as the declaration of a function: which words of JSON Schema, how long, how deep.

What a provider refuses makes it refuse the whole request, with every other tool in it, so these are its narrowest
limits, as its documentation and its errors have them.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

__all__ = ["PLAIN", "PROFILES", "Profile", "profile_of"]

_ANNOTATIONS: Final = frozenset({"title", "description", "default", "enum"})
_LIMITS: Final = frozenset({"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern"})
_MORE_LIMITS: Final = frozenset({"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "const"})
_FORMATS: Final = frozenset(
    {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Profile(Struct, frozen=True):
    """The limits of one provider.

    Attributes:
        name: What errors and reports call it.
        words: The keywords that may stay, beside those that the compiler writes itself.
        formats: The values of `format` that may stay; None for all.
        type_lists: Whether `type` may be a list.
        any_choices: Whether `enum` may have anything; else texts and numbers.
        references: Whether a schema may have `$ref` into its `$defs`.
        recursion: Whether a schema may refer to itself.
        beside: What may stand beside a `$ref`.
        key: What the name of a property must match; None for anything.
        depth: How many objects and arrays may stand in one another.
        description: The longest description of a function, in characters.
        functions: How many functions one request may declare.
    """

    name: str
    words: frozenset[str]
    formats: frozenset[str] | None = None
    type_lists: bool = True
    any_choices: bool = True
    references: bool = True
    recursion: bool = True
    beside: tuple[str, ...] = ("title", "description", "default")
    key: re.Pattern[str] | None = None
    depth: int = 10
    description: int = 10_000
    functions: int = 1_000


PLAIN: Final = Profile(
    "any provider",
    _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"},
    key=_KEY,
    description=1_024,
    functions=128,
)
"""Where the provider is not known: a library rewrites the keywords, and the limits are the narrowest."""
_OPENAI: Final = Profile("OpenAI", _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"}, description=1_024, functions=128)
_ANTHROPIC: Final = Profile(
    "Anthropic", _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"}, _FORMATS, key=_KEY, depth=20
)
_GEMINI: Final = Profile(
    "Gemini",
    (_ANNOTATIONS - {"default"}) | _LIMITS - {"pattern", "minLength", "maxLength"} | {"format"},
    frozenset({"date-time", "date", "time"}),
    type_lists=False,
    any_choices=False,
    recursion=False,
    beside=("description",),
    key=re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}"),
    description=8_000,
    functions=512,
)
PROFILES: Final = {
    **dict.fromkeys(("openai", "openai_responses", "ollama"), _OPENAI),
    "anthropic": _ANTHROPIC,
    "gemini": _GEMINI,
}
"""By dialect."""
_PROVIDERS: Final = {
    **dict.fromkeys(("openai", "openai-chat", "openai-responses", "azure"), _OPENAI),
    "anthropic": _ANTHROPIC,
    **dict.fromkeys(("google", "google-gla", "google-vertex", "google-cloud"), _GEMINI),
}
"""By what pydantic-ai calls a provider."""


def profile_of(model: Any, base_url: str | None = None) -> Profile:
    """The limits of the provider of a model; the narrowest where it cannot be seen which that is.

    Args:
        model: `provider:name`, or a model of pydantic-ai.
        base_url: An address that speaks Chat Completions, where that is the provider.
    """
    if base_url is not None:
        return _OPENAI
    provider = model.partition(":")[0] if isinstance(model, str) else getattr(model, "system", None)
    return _PROVIDERS.get(provider.removeprefix("gateway/"), PLAIN) if isinstance(provider, str) else PLAIN

"""Prices of models, from the list that genai-prices ships with; nothing is downloaded."""

from __future__ import annotations

import importlib
from typing import Any

from msgspec import Struct


class PricedTokens(Struct, frozen=True):
    """Token counts as genai-prices reads them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    input_audio_tokens: int = 0
    cache_audio_read_tokens: int = 0
    output_audio_tokens: int = 0
    requests: int = 1


def price(usage: Any, model: Any, base_url: str | None = None) -> float | None:
    """The price of a request in dollars; None if it is unknown.

    Args:
        usage: The tokens: a `PricedTokens`, or the usage of a response of pydantic-ai.
        model: `provider:name`, or a model of pydantic-ai.
        base_url: URL of an OpenAI-compatible provider; its prices are only known if genai-prices lists the URL.
    """
    if base_url is not None:
        return _calculated(usage, str(model).removeprefix("openai:"), url=base_url)
    if isinstance(model, str):
        provider, colon, name = model.removeprefix("gateway/").partition(":")
        return _calculated(usage, name, provider=_provider(provider)) if colon else None
    name, system = getattr(model, "model_name", None), getattr(model, "system", None)
    known = isinstance(name, str) and isinstance(system, str)
    return _calculated(usage, str(name), provider=_provider(str(system))) if known else None


def response_price(response: Any, model: Any, base_url: str | None = None) -> float | None:
    """The price of a response of pydantic-ai in dollars; None if it is unknown or the provider reports no usage.

    Args:
        response: The response.
        model: The model that was asked, whose name is used if the name in the response is unknown.
        base_url: As for `price`.
    """
    usage = response.usage
    if getattr(usage, "unmeasured_requests", 0):
        return None
    if base_url is not None:
        named = _calculated(usage, str(response.model_name), url=base_url)
        return named if named is not None else price(usage, model, base_url)
    cost = getattr(usage, "cost", None)  # from a gateway, which is exact, or calculated by pydantic-ai
    return float(cost) if cost is not None else price(usage, model)


def dollars(amount: float) -> str:
    """Format an amount of dollars, with two significant digits below a dollar."""
    if amount >= 1 or amount == 0:
        return f"${amount:,.2f}"
    digits = 2
    while round(amount, digits) == 0 or amount < 10 ** (1 - digits):
        digits += 1
        if digits > _MAX_DIGITS:
            return f"less than ${10**-_MAX_DIGITS:.{_MAX_DIGITS}f}"
    return f"${amount:.{digits}f}"


_MAX_DIGITS = 6
_NAMES = {"google-gla": "google", "google-vertex": "google", "google-cloud": "google", "bedrock": "aws"}
"""Names of providers that differ in genai-prices."""


def _provider(name: str) -> str:
    plain = name.removesuffix("-chat").removesuffix("-responses")
    return _NAMES.get(plain, plain)


def _calculated(usage: Any, name: str, provider: str | None = None, url: str | None = None) -> float | None:
    where = {"provider_id": provider} if url is None else {"provider_api_url": url}
    try:
        library: Any = importlib.import_module("genai_prices")
        return float(library.calc_price(usage, name, **where).total_price)
    except (ImportError, LookupError, ValueError):
        return None

"""The settings of a question, translated for pydantic-ai, without combinations that a provider refuses.

Source: Anthropic's documentation, "Extended thinking" (the budget is below `max_tokens`; no other temperature than 1),
and Google's, "Gemini thinking" (thoughts count as output).
"""

from __future__ import annotations

import contextlib
import importlib
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import McpError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.llm.backend import Effort, ModelSettings


_GEMINI_BUDGETS: Final = {"minimal": 128, "low": 2_048, "medium": 8_192, "high": 24_576, "xhigh": 24_576, "max": 24_576}
"""The thinking budgets that pydantic-ai requests from models of Gemini without thinking levels."""


def provider_settings(model: Any, given: ModelSettings, *, is_known: bool) -> dict[str, Any]:
    """Translate the settings of a question.

    Args:
        model: The model of pydantic-ai.
        given: The settings.
        is_known: Whether the provider is known; if not, only the user knows what it supports.

    Raises:
        McpError: The model does not accept one of the settings, or two of them together.
    """
    profile: dict[str, Any] = {}
    with contextlib.suppress(NotImplementedError):  # a model that delegates to others
        profile = getattr(model, "profile", None) or {}
    name = getattr(model, "model_name", "the model")
    own: dict[str, Any] = getattr(model, "settings", None) or {}
    found: dict[str, Any] = {} if "cache" in own else {"cache": True}
    if given.temperature is not None:
        found["temperature"] = given.temperature
    if given.max_tokens is not None:
        found["max_tokens"] = given.max_tokens
    if not is_known:
        return found if given.effort is None else {**found, "openai_reasoning_effort": given.effort}
    if given.effort is not None:
        found["thinking"] = given.effort if given.effort != "none" else False
    if unsupported := _unsupported(model, profile, given):
        raise McpError(f"{name} accepts no {unsupported}", hint=f"omit the {unsupported.partition(' ')[0]}")
    budget, limit = _budget(profile, given.effort), given.max_tokens
    if limit is not None and limit <= budget:
        raise McpError(
            f"{name} reasons with up to {budget:,} tokens at this effort, which leaves no room within {limit:,}",
            hint=f"max_tokens={2 * budget}, or a lower effort",
        )
    return found


def _unsupported(model: Any, profile: Mapping[str, Any], given: ModelSettings) -> str:
    """The setting that a model does not accept; empty if it accepts all of them."""
    if given.effort is not None and profile:
        can_think = profile.get("supports_thinking") or profile.get("thinking_always_enabled")
        if not can_think:
            return "effort"
    if given.temperature is None:
        return ""
    thinks = given.effort not in (None, "none") or profile.get("thinking_enabled_by_default")
    if "temperature" in getattr(model, "unsupported_settings", ()) or (
        profile.get("anthropic_disallows_sampling_settings")
        or (profile.get("openai_supports_reasoning") and thinks)
        or ("anthropic_supports_adaptive_thinking" in profile and thinks and given.temperature != 1)
    ):
        return "temperature with an effort" if given.effort else "temperature"
    return ""


def _budget(profile: Mapping[str, Any], effort: Effort | None) -> int:
    """The tokens that a model may use for reasoning; 0 if its provider has no budget, or the model does not reason."""
    if effort is None or effort == "none":
        return 0
    if profile.get("anthropic_supports_adaptive_thinking") is False:
        anthropic: Any = importlib.import_module("pydantic_ai.profiles.anthropic")
        return anthropic.ANTHROPIC_THINKING_BUDGET_MAP[effort]
    return _GEMINI_BUDGETS[effort] if profile.get("google_supports_thinking_level") is False else 0

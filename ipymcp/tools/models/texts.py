"""Strangers' words as a model is given them: data, with nothing in it that a person would not see."""

from __future__ import annotations

from typing import Final

from ipymcp.text import stripped

__all__ = ["described", "tokens"]

_CHARACTERS_PER_TOKEN: Final = 4


def described(server: str, description: str, longest: int) -> tuple[str, bool]:
    """A tool's description, with its server before it, and whether it had to be cut."""
    text = f"[{stripped(server)}] {stripped(description).strip()}".rstrip()
    return (text, False) if len(text) <= longest else (text[: longest - 1] + "…", True)


def tokens(characters: int) -> int:
    """About how many tokens so much text is: an estimate, by English and JSON."""
    return -(-characters // _CHARACTERS_PER_TOKEN)

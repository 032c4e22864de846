"""One of a few answers, typed at a prompt: the same words mean yes and no wherever a person is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["NO", "YES", "read_choice"]

YES: Final = ("yes", "y", "ok", "okay", "true", "1")
NO: Final = ("no", "n", "false", "0")


def read_choice(
    prompt: str,
    choices: Mapping[str, Sequence[str]],
    default: str | None = None,
    read: Callable[[str], str] | None = None,
) -> str:
    """Ask until one of the choices is typed, in any case; what was not understood is repeated with what is expected.

    Args:
        prompt: What to show.
        choices: What each choice may be called besides its own name.
        default: The choice that Enter alone means; None where something must be typed.
        read: Shows the prompt and gives what was typed; `input` as it is then, which a kernel replaces, by default.

    Returns:
        The choice's own name.
    """
    while True:
        typed = (read or input)(one_line(prompt)).strip()
        word = typed.casefold()
        if not word and default is not None:
            return default
        for choice, names in choices.items():
            if word == choice.casefold() or word in names:
                return choice
        print(one_line(f"  {typed!r} is not one of: {', '.join(choices)}"), flush=True)  # noqa: T201 - meant for the cell

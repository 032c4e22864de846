"""A call that a model asks for, and what came of it, as the model is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipymcp.errors import ArgumentError
from ipymcp.protocol.jsontypes import is_object
from ipymcp.tools.content import Image

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SHOWN", "Asked", "Outcome", "read_arguments"]

SHOWN: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""The images that models take; Gemini none that moves."""
_LARGEST: Final = 5_000_000
"""Characters of an image in base64 above which a provider may refuse the whole request."""


class Asked(Struct, frozen=True):
    """A call that a model asks for."""

    id: str
    name: str
    arguments: Any
    """A mapping, or the JSON of one as the model wrote it."""


class Outcome(Struct, frozen=True):
    """What came of it, as the model is told."""

    asked: Asked
    text: str
    images: tuple[Image, ...] = ()
    is_error: bool = False
    value: Any = None
    """What came back, for the notebook."""

    @property
    def shown(self) -> list[tuple[str, Image]]:
        """The images that models take, with what they truly are."""
        return self.parted(SHOWN)[1]

    @property
    def named(self) -> str:
        """The text, with the images named that no model takes."""
        return self.parted(SHOWN)[0]

    def parted(self, kinds: Sequence[str]) -> tuple[str, list[tuple[str, Image]]]:
        """The text, with the images named that are of none of these kinds or too large, and the others."""
        words, shown = [self.text], list[tuple[str, Image]]()
        for image in self.images:
            kind = image.display_type
            if kind is not None and kind in kinds and len(image.base64) <= _LARGEST:
                shown.append((kind, image))
            else:
                words.append(str(image))
        return "\n".join(filter(None, words)), shown


def read_arguments(value: Any) -> dict[str, Any]:
    """The arguments a model gave.

    Raises:
        ArgumentError: They are no JSON object; the message is for the model.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value or "{}")
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"the arguments are no JSON: {error}", hint="send one JSON object") from error
    if value is None:
        return {}
    if not is_object(value):
        raise ArgumentError("the arguments are no JSON object", hint="send one JSON object")
    return value

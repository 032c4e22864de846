"""Results cut to what a page can show. The whole stays in the kernel, under `mcp.results[N]`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ipymcp.masking import masks
from ipymcp.text import shown_json, visible
from ipymcp.tools.content import Embedded, Image, Link
from ipymcp.tools.rendering import is_shown_as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.panel.messages import Message
    from ipymcp.tools.content import Part
    from ipymcp.tools.prompts import PromptResult
    from ipymcp.tools.readings import ResourceResult
    from ipymcp.tools.results import ToolResult

__all__ = ["preview", "prompt_preview"]

_LONGEST_TEXT = 50_000
_LARGEST_HTML = 300_000
_LARGEST_JSON = 100_000
_LARGEST_IMAGE = 4_000_000
"""Characters, of base64 as well."""
_MOST_LINKS = 100
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/svg+xml")


def preview(result: ToolResult | ResourceResult, variable: str | None) -> Message:
    """What a call, or the reading of a resource, gave.

    Args:
        result: It.
        variable: What is typed for it in the notebook.
    """
    bundle = result._repr_mimebundle_()
    image = _image(bundle)
    is_text = is_shown_as_text(result)
    html = None if is_text else bundle.get("text/html")
    html = html if html is not None and len(html) <= _LARGEST_HTML else None
    text = result.text
    data = None if is_text else _small_json(result.data)
    shown = _head(text)
    is_cut = len(text) > _LONGEST_TEXT or (data is None and not is_text and not isinstance(result.data, str | bytes))
    is_cut |= _has_images(result.content) and image is None and html is None
    size = memoryview(result._raw).nbytes
    return _preview(shown, html, image, data, _links(result.content), is_cut, size, variable)


def prompt_preview(result: PromptResult, variable: str | None) -> Message:
    """The messages of a prompt. Arguments as for `preview`."""
    text = "\n\n".join(f"{message.role}: {message.text}" for message in result.messages)
    html = result._repr_mimebundle_()["text/html"] if _has_images([one.content for one in result.messages]) else None
    html = html if html is not None and len(html) <= _LARGEST_HTML else None
    links = _links([one.content for one in result.messages])
    size = memoryview(result._raw).nbytes
    return _preview(_head(text), html, None, None, links, len(text) > _LONGEST_TEXT, size, variable)


def _preview(
    text: str,
    html: str | None,
    image: Message | None,
    data: Any,
    links: list[Message],
    is_cut: bool,
    size: int,
    variable: str | None,
) -> Message:
    return {
        "text": text or None,
        "html": html,
        "image": image,
        "json": data,
        "links": links,
        "truncated": is_cut,
        "size": size,
        "variable": variable,
    }


def _head(text: str) -> str:
    return visible(masks.head(text, _LONGEST_TEXT))


def _image(bundle: dict[str, Any]) -> Message | None:
    """The image that the result is, where it is one and not too large."""
    kind = next((kind for kind in _IMAGES if kind in bundle), None)
    if kind is None:
        return None
    data = bundle[kind]
    if kind == "image/svg+xml":
        import base64

        data = base64.b64encode(data.encode()).decode()
    return {"mime": kind, "data": data} if len(data) <= _LARGEST_IMAGE else None


def _small_json(data: Any) -> Any:
    """Data that is no text, masked; None where there is too much of it."""
    if isinstance(data, str | bytes):
        return None
    size = 0
    for piece in json.JSONEncoder(default=str).iterencode(data):
        size += len(piece)
        if size > _LARGEST_JSON:
            return None
    return shown_json(data)


def _has_images(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, Image) or (isinstance(part, Embedded) and part.image is not None) for part in parts)


def _links(parts: Sequence[Part]) -> list[Message]:
    links = [part for part in parts if isinstance(part, Link)][:_MOST_LINKS]
    return [{"uri": visible(link.uri), "name": visible(link.title or link.name or link.uri)} for link in links]

"""An answer in the cell as it comes: what is sent, in one line, then words and cards in the order of their coming."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.tools import markdown, sanitize

if TYPE_CHECKING:
    from ipymcp.tools.models.answer import Answer, ModelCall
    from ipymcp.tools.models.asking import Beginning

__all__ = ["CellAudience"]


class CellAudience:
    """Shows an answer in a cell; a terminal gets its text.

    Args:
        ip: The shell.
        as_markdown: Whether the words are Markdown; else they are shown as they are.
    """

    def __init__(self, ip: Any, *, as_markdown: bool) -> None:
        self._is_notebook = hasattr(ip, "kernel")
        self._as_markdown = as_markdown
        self._text = ""
        self._words: Any = None
        """The display of the words that are coming; another begins after each call."""
        self._cards: dict[int, Any] = {}

    def begins(self, beginning: Beginning) -> None:
        """What is sent, in one line."""
        line = sanitize.visible(str(beginning))
        self._show({"text/plain": line, "text/html": f"<small>{sanitize.text(line)}</small>"})

    def says(self, text: str) -> None:
        """More words."""
        self._text += text
        plain = sanitize.visible(self._text)
        bundle = {"text/plain": plain}
        if self._as_markdown:
            bundle["text/markdown"] = markdown.markdown(self._text)
        if not self._is_notebook:
            print(sanitize.visible(text), end="", flush=True)  # noqa: T201 - the answer itself
            return
        if self._words is None:
            self._words = self._show(bundle)
        else:
            self._words.update(bundle, raw=True)

    def calls(self, call: ModelCall) -> None:
        """A card, and what follows begins below it."""
        self._text, self._words = "", None
        bundle = {"text/plain": sanitize.visible(call.summary), "text/html": call.html()}
        known = self._cards.get(id(call))
        if known is None:
            self._cards[id(call)] = self._show(bundle)
        elif self._is_notebook:
            known.update(bundle, raw=True)

    def ended(self, answer: Answer) -> None:
        """What it cost."""
        line = str(answer.usage)
        if not self._is_notebook:
            line = f"\n{line}"
        self._show({"text/plain": line, "text/html": f"<small>{sanitize.text(line)}</small>"})

    def _show(self, bundle: dict[str, Any]) -> Any:
        if not self._is_notebook:
            print(bundle["text/plain"], flush=True)  # noqa: T201
            return None
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

        return display(bundle, raw=True, display_id=True)

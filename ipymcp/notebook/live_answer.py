"""A model's answer in the cell as it arrives: a line about the request, then text and cards of calls in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ipymcp.results import markdown
from ipymcp.text import escaped, visible

if TYPE_CHECKING:
    from ipymcp.llm.answer import Answer, ModelCall
    from ipymcp.llm.backend import RequestPreview
    from ipymcp.notebook.display import PanelDisplay


_ENDS = {
    "length": "cut off: the model may not write longer answers",
    "content_filter": "cut off by the provider's content filter",
}
"""Stop reasons that the user is told."""


class CellOutput:
    """The output of an answer in a cell or a terminal.

    Args:
        display: Renders the questions of calls; None in a terminal.
        as_markdown: Whether to render the text as Markdown.
    """

    def __init__(self, display: PanelDisplay | None, *, as_markdown: bool) -> None:
        self._display = display
        self._is_notebook = display is not None
        self._as_markdown = as_markdown
        self._text = ""
        self._text_display: Any = None
        """The display of the current text; each call begins a new one."""
        self._cards: dict[str, Any] = {}
        """Displays of calls, by card."""
        self._open: dict[str, ModelCall] = {}
        """Unfinished calls, by card."""

    def show_request(self, beginning: RequestPreview) -> None:
        """Show a line about the request."""
        line = visible(str(beginning))
        self._show({"text/plain": line, "text/html": f"<small>{escaped(line)}</small>"})

    def show_text(self, text: str) -> None:
        """Append text."""
        self._text += text
        plain = visible(self._text)
        bundle = {"text/plain": plain}
        if self._as_markdown:
            bundle["text/markdown"] = markdown.markdown(self._text)
        if not self._is_notebook:
            print(visible(text), end="", flush=True)  # noqa: T201 - the answer itself
            return
        if self._text_display is None:
            self._text_display = self._show(bundle)
        else:
            self._text_display.update(bundle, raw=True)

    def show_call(self, call: ModelCall) -> None:
        """Show or update the card of a call; later text begins below it."""
        if not self._is_notebook and self._text and not self._text.endswith("\n"):
            print(flush=True)  # noqa: T201
        self._text, self._text_display = "", None
        if call.is_done:
            self._open.pop(call.card, None)
        else:
            self._open[call.card] = call
        if call.card not in self._cards:
            self._cards[call.card] = self._show(self._card(call))
        elif self._is_notebook:
            self._cards[call.card].update(self._card(call), raw=True)
        elif call.is_done:
            self._show(self._card(call))

    def broke_off(self) -> None:
        """Mark unfinished calls as cancelled."""
        how = {"text": "cancelled", "is_error": True, "is_done": True, "is_refused": True, "decision": "stopped"}
        for call in [*self._open.values()]:
            self.show_call(replace(call, **how))

    def _card(self, call: ModelCall) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": visible(call.summary), "text/html": call.html()}
        if call.asked_at and not call.is_done and self._display is not None:
            bundle |= self._display.question(call.asked_at, is_here=call.asked_at == call.card)
        return bundle

    def ended(self, answer: Answer) -> None:
        """Show the usage of the answer."""
        line = str(answer.usage)
        if answer.reason in _ENDS:
            line = f"{line} · {_ENDS[answer.reason]}"
        if not self._is_notebook:
            line = f"\n{line}"
        self._show({"text/plain": line, "text/html": f"<small>{escaped(line)}</small>"})

    def _show(self, bundle: dict[str, Any]) -> Any:
        if not self._is_notebook:
            print(visible(bundle["text/plain"]), flush=True)  # noqa: T201
            return None
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

        return display(bundle, raw=True, display_id=True)

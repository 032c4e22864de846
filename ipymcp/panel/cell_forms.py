"""Questions as forms in the output of the waiting cell, where no panel is open.

Only an attempt shows whether a page draws widgets and can answer while a cell blocks the kernel. If no message arrives
from a displayed form, the form is removed, and this and all later questions use a prompt.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any, Final

from ipymcp.import_guard import is_installed
from ipymcp.protocol.types import is_object
from ipymcp.runtime.question_routing import CallerGone, CrossThreadTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.interaction.questions import A, Question, QuestionKind
    from ipymcp.panel.messages import Channel
    from ipymcp.panel.panel import Panel
    from ipymcp.runtime.question_routing import QuestionHandle
    from ipymcp.runtime.waiting import WaitingCaller


_FALLBACK_TEXT: Final = "ipymcp has a question. If no form appears here, a prompt follows in a moment."
_FIRST_MESSAGE_TIMEOUT: Final = 2.0
"""Seconds for the first message of a page that draws widgets."""
_HELLO_TIMEOUT: Final = 15.0
"""Seconds for such a page to load the panel's code and say hello."""
_FIRST_WITH_COMMS: Final = 7
"""The first ipykernel that handles comms while a cell awaits: in subshells, since 7.4 also without."""


class CellForms:
    """Factory of forms in cells.

    Args:
        ip: The IPython shell.
        panel: Returns the notebook's panel.
    """

    def __init__(self, ip: Any, panel: Callable[[], Panel]) -> None:
        self._ip = ip
        self._panel = panel
        self._unseen: set[bool] = set()
        """Values of `is_blocked` of the callers whose forms were not seen; no form is tried again for these."""

    async def draw(self, kind: QuestionKind, caller: WaitingCaller) -> CellForm | None:
        """Display a form, on the background loop; None if the user would not see it, or its answer could not arrive.

        Raises:
            CallerGone: The caller no longer waits.
        """
        if not self._may_be_seen(kind, caller):
            return None
        form = CellForm(self._panel(), self._ip.display_pub, is_blocked=caller.is_blocked)
        displaying = CrossThreadTask(lambda: form.show() or True, False)
        caller.post(displaying.run, displaying.give_up)
        is_seen = False
        try:
            is_seen = await self._is_displayed(displaying) and await self._is_seen(form, caller)
        finally:
            if not is_seen:
                displaying.outcome.add_done_callback(lambda _: form.end())
        return form if is_seen else None

    def _may_be_seen(self, kind: QuestionKind, caller: WaitingCaller) -> bool:
        ipykernel: Any = sys.modules.get("ipykernel")
        kernel: Any = getattr(self._ip, "kernel", None)
        return (
            caller.is_blocked not in self._unseen
            and kernel is not None
            and self._panel().permissions().may_answer(kind)
            and ipykernel is not None
            and ipykernel.version_info[0] >= _FIRST_WITH_COMMS
            and (not caller.is_blocked or _may_have_subshells(kernel))
            and is_installed("anywidget")
        )

    async def _is_displayed(self, displaying: CrossThreadTask[bool]) -> bool:
        try:
            # Shielded, because the cell may be displaying the form while the question is withdrawn.
            is_displayed = await asyncio.shield(displaying.outcome)
        except Exception:  # broken widgets must not prevent the question
            self._unseen |= {True, False}
            return False
        if not is_displayed:
            raise CallerGone
        return True

    async def _is_seen(self, form: CellForm, caller: WaitingCaller) -> bool:
        seen = CrossThreadTask(lambda: True, False)
        caller.post(_nothing, seen.give_up)
        form.on_hello(seen.run)
        done, _ = await asyncio.wait({seen.outcome}, timeout=_FIRST_MESSAGE_TIMEOUT)
        if not done and form.has_messages:
            done, _ = await asyncio.wait({seen.outcome}, timeout=_HELLO_TIMEOUT)
        if not done:
            self._unseen.add(caller.is_blocked)
        if done and not seen.outcome.result():
            raise CallerGone
        return bool(done)


def _may_have_subshells(kernel: Any) -> bool:
    """Whether messages may arrive while a cell blocks the kernel; JupyterLab creates a subshell for widgets."""
    if not getattr(kernel, "_supports_kernel_subshells", False):
        return False
    return "JPY_SESSION_NAME" in os.environ or bool(kernel.shell_channel_thread.manager.list_subshell())


def _nothing() -> None: ...


class CellForm:
    """A `QuestionUI` that shows one question in a cell.

    Args:
        panel: The notebook's panel.
        publisher: The shell's display publisher.
        is_blocked: Whether the cell blocks the kernel.
    """

    def __init__(self, panel: Panel, publisher: Any, *, is_blocked: bool) -> None:
        self._panel = panel
        self._is_blocked = is_blocked
        self._publisher = publisher
        self._display = uuid.uuid4().hex
        self._widget: Any = None
        self._on_hello: Callable[[], None] | None = None
        self.has_messages = False
        """Whether a page has sent any message."""
        self._is_greeted = False

    def show(self) -> None:
        """Display the form, in the waiting cell, so that the output belongs to this cell."""
        from ipymcp.panel.widget import PanelWidget  # imports anywidget

        self._widget = PanelWidget(self._panel, asks=True)
        self._widget.on_msg(self._handle)
        bundle, metadata = self._widget._repr_mimebundle_()
        self._publish({**bundle, "text/plain": _FALLBACK_TEXT}, metadata)

    def _handle(self, _: object, content: object, __: object) -> None:
        self.has_messages = True
        if is_object(content) and content.get("kind") == "hello":
            self._is_greeted = True
            if self._on_hello is not None:
                self._on_hello()

    def on_hello(self, act: Callable[[], None]) -> None:
        """Call a function once a page has drawn the form."""
        self._on_hello = act
        if self._is_greeted:
            act()

    def reaches(self, kind: QuestionKind, caller: WaitingCaller | None, subject: object) -> bool:
        """Whether an answer can arrive while the caller waits."""
        return self._panel.questions.reaches(kind, caller, subject)

    def begin(
        self, question: Question[A], caller: WaitingCaller | None, next_may_start: Callable[[], object]
    ) -> QuestionHandle[A]:
        """Prepare to ask the question."""
        from ipymcp.panel.questions import PanelQuestionHandle  # not at %load_ext

        return PanelQuestionHandle(self._panel.questions, question, None, next_may_start, self)

    def supersede(self, channel: Channel) -> None:
        """Remove the form if another view, which shows its question as well, can deliver the answer."""
        is_own = self._widget is None or channel is self._widget.channel
        if not is_own and channel.delivers_answers(blocked=self._is_blocked, running=True):
            self.end()

    def _publish(self, data: dict[str, Any], metadata: dict[str, Any], *, update: bool = False) -> None:
        self._publisher.publish(data, metadata, transient={"display_id": self._display}, update=update)

    def end(self, line: str = "") -> None:
        """Replace the form, if it was displayed, with a line; without one, remove the form."""
        widget, self._widget = self._widget, None
        if widget is not None:
            self._publish({"text/plain": line} if line else {}, {}, update=True)
            widget.end()

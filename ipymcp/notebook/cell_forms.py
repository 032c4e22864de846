"""Questions as forms in the output of the waiting cell, where no panel is open.

Whether a page draws widgets, and can answer while a cell blocks the kernel, shows only when one is displayed. If no
message arrives from it, it is removed, and this and all later questions use a prompt.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from ipymcp.import_guard import is_installed
from ipymcp.runtime.question_routing import CallerGone, CrossThreadTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.interaction.questions import QuestionKind
    from ipymcp.panel.cell_form import CellForm
    from ipymcp.panel.panel import Panel
    from ipymcp.runtime.interrupts import WaitingCaller


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
        """Whether the kernel was blocked when a form was not seen; such forms are not tried again."""

    async def draw(self, kind: QuestionKind, place: WaitingCaller) -> CellForm | None:
        """Display a form, on the background loop; None if it would not be seen or its answer could not arrive.

        Args:
            kind: The kind of the question.
            place: The waiting caller.

        Raises:
            CallerGone: The caller no longer waits.
        """
        if not self._may_be_seen(kind, place):
            return None
        displaying = CrossThreadTask(self._display, None)
        place.post(displaying.run, displaying.give_up)
        try:
            form = await displaying.outcome
        except Exception:  # broken widgets must not prevent the question
            self._unseen |= {True, False}
            return None
        if form is None:
            raise CallerGone
        is_seen = False
        try:
            is_seen = await self._is_seen(form, place)
        finally:
            if not is_seen:
                form.remove()
        return form if is_seen else None

    def _may_be_seen(self, kind: QuestionKind, place: WaitingCaller) -> bool:
        ipykernel: Any = sys.modules.get("ipykernel")
        kernel: Any = getattr(self._ip, "kernel", None)
        return (
            place.is_blocked not in self._unseen
            and kernel is not None
            and self._panel().permissions().may_answer(kind)
            and ipykernel is not None
            and ipykernel.version_info[0] >= _FIRST_WITH_COMMS
            and (not place.is_blocked or _may_have_subshells(kernel))
            and is_installed("anywidget")
        )

    def _display(self) -> CellForm:
        """Display a form; runs in the waiting cell, which its output belongs to."""
        from ipymcp.panel.cell_form import CellForm

        form = CellForm(self._panel(), self._ip.display_pub)
        form.show()
        return form

    async def _is_seen(self, form: CellForm, place: WaitingCaller) -> bool:
        seen = CrossThreadTask(lambda: True, False)
        place.post(_nothing, seen.give_up)
        form.on_hello(seen.run)
        done, _ = await asyncio.wait({seen.outcome}, timeout=_FIRST_MESSAGE_TIMEOUT)
        if not done and form.has_messages:
            done, _ = await asyncio.wait({seen.outcome}, timeout=_HELLO_TIMEOUT)
        if not done:
            self._unseen.add(place.is_blocked)
        if done and not seen.outcome.result():
            raise CallerGone
        return bool(done)


def _may_have_subshells(kernel: Any) -> bool:
    """Whether messages may arrive while a cell blocks the kernel; JupyterLab creates a subshell for widgets."""
    if not getattr(kernel, "_supports_kernel_subshells", False):
        return False
    return "JPY_SESSION_NAME" in os.environ or bool(kernel.shell_channel_thread.manager.list_subshell())


def _nothing() -> None: ...

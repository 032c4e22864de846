"""Questions asked by a form in the output of the cell that waits, where no panel is open.

Whether a page draws widgets, and is heard while a cell blocks the kernel, shows only by what comes of one: it is
displayed, and taken away again if nothing does. Then the question is asked at a prompt, and so is every one after it.
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


_SIGN: Final = 2.0
"""Seconds within which a page that draws widgets says something."""
_CODE: Final = 15.0
"""Seconds within which it has the panel's code, and says hello."""
_SERVES_COMMS: Final = 7
"""The ipykernel from which on comms may be served while a cell awaits: in subshells, from 7.4 on also without."""


class CellForms:
    """Draws them.

    Args:
        ip: The IPython shell.
        panel: Gives the notebook's panel.
    """

    def __init__(self, ip: Any, panel: Callable[[], Panel]) -> None:
        self._ip = ip
        self._panel = panel
        self._in_vain: set[bool] = set()
        """Where nobody saw the last one: while a cell blocked the kernel, or not."""

    async def draw(self, kind: QuestionKind, place: WaitingCaller) -> CellForm | None:
        """Draw one, on the background loop; None where nobody would see it, or its answer would not come through.

        Args:
            kind: What the question is about.
            place: Where the user waits.

        Raises:
            GaveUp: The user waits no more.
        """
        if not self._may_be_seen(kind, place):
            return None
        displaying = CrossThreadTask(self._display, None)
        place.post(displaying.run, displaying.give_up)
        try:
            form = await displaying.outcome
        except Exception:  # widgets that are broken here are no reason not to ask
            self._in_vain |= {True, False}
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
            place.is_blocked not in self._in_vain
            and kernel is not None
            and self._panel().permissions().may_answer(kind)
            and ipykernel is not None
            and ipykernel.version_info[0] >= _SERVES_COMMS
            and (not place.is_blocked or _may_have_subshells(kernel))
            and is_installed("anywidget")
        )

    def _display(self) -> CellForm:
        """Where the user waits: what it imports takes time, and it belongs to that cell."""
        from ipymcp.panel.cell_form import CellForm

        form = CellForm(self._panel(), self._ip.display_pub)
        form.show()
        return form

    async def _is_seen(self, form: CellForm, place: WaitingCaller) -> bool:
        seen = CrossThreadTask(lambda: True, False)
        place.post(_nothing, seen.give_up)
        form.on_hello(seen.run)
        done, _ = await asyncio.wait({seen.outcome}, timeout=_SIGN)
        if not done and form.has_spoken:
            done, _ = await asyncio.wait({seen.outcome}, timeout=_CODE)
        if not done:
            self._in_vain.add(place.is_blocked)
        if done and not seen.outcome.result():
            raise CallerGone
        return bool(done)


def _may_have_subshells(kernel: Any) -> bool:
    """Whether a page may be heard while a cell blocks it. JupyterLab makes a subshell with the first widget."""
    if not getattr(kernel, "_supports_kernel_subshells", False):
        return False
    return "JPY_SESSION_NAME" in os.environ or bool(kernel.shell_channel_thread.manager.list_subshell())


def _nothing() -> None: ...

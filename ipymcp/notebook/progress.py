"""Progress of calls and of starting servers in a cell.

In a notebook a display is updated, in a terminal or another front end a line is rewritten; its last state remains. Only
the main thread shows progress, because the output of other threads could appear in the wrong cell.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from ipymcp.masking import masks
from ipymcp.notebook.display import updates_displays
from ipymcp.runtime.events import ServerChanged
from ipymcp.runtime.server_status import State
from ipymcp.text import counted, escaped, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.settings import IPyMCP
    from ipymcp.runtime.call_options import RunningCall
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession


def print_notice(text: str) -> None:
    """Print a notice to the cell's stderr."""
    print(one_line(f"ipymcp: {text}"), file=sys.stderr)  # noqa: T201 - meant for the cell


SHOW_DELAY = 0.5
"""Seconds after the start of a call before its progress is shown."""
REDRAW_INTERVAL = 0.1
MAX_SERVERS = 100
"""Maximum number of servers in the display; for others only their number is shown."""
_BAR = 20


class ProgressLine:
    """A part of the cell's output that can be replaced."""

    def __init__(self, ip: Any) -> None:
        self.is_display = updates_displays(ip)
        """Whether it is a display, which is replaced as a whole; else the last line of the output is rewritten."""
        self._handle: Any = None
        self._width = 0

    def show(self, plain: str, html: str) -> None:
        """Replace the content. Texts of servers are visible in both forms, each on one line."""
        if not self.is_display:
            self._rewrite(plain)
            return
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

        bundle = {"text/plain": visible(plain), "text/html": html}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def end(self) -> None:
        """Finish the line and keep its content."""
        if not self.is_display and self._width:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._width = 0

    def _rewrite(self, plain: str) -> None:
        last = plain.rsplit("\n", 1)[-1]
        sys.stdout.write("\r")
        sys.stdout.write(visible(plain + " " * max(0, self._width - len(last))))
        sys.stdout.flush()
        self._width = len(last)


class CellPresenter:
    """Progress of calls that run longer than half a second.

    Args:
        ip: The shell.
        settings: The settings; `quiet` disables progress.
    """

    def __init__(self, ip: Any, settings: IPyMCP) -> None:
        self._ip = ip
        self._settings = settings
        self._shown: dict[int, tuple[ProgressLine, float]] = {}

    def progress(self, call: RunningCall) -> None:
        """Show the progress of a call."""
        now = time.monotonic()
        if self._settings.quiet or now - call.started < SHOW_DELAY or not _is_main_thread():
            return
        line, drawn = self._shown.get(call.number) or (ProgressLine(self._ip), 0.0)
        if now - drawn >= REDRAW_INTERVAL:
            line.show(*_bar(call, ended=False))
            drawn = now
        self._shown[call.number] = line, drawn

    def finished(self, call: RunningCall) -> None:
        """Replace the progress bar of a finished call by one line."""
        line, _ = self._shown.pop(call.number, (None, 0.0))
        if line is not None:
            line.show(*_bar(call, ended=True))
            line.end()


class LoadDisplay:
    """Progress of starting servers.

    Args:
        ip: The IPython shell.
        host: The host of the servers.
        names: The servers to show.
        quiet: Whether to show nothing.
    """

    def __init__(self, ip: Any, host: Host, names: Sequence[str], *, quiet: bool) -> None:
        self._host = host
        self._names = dict.fromkeys(names)
        self._drawn = 0.0
        self._details: dict[str, str] = {}
        self._line = None if quiet or not _is_main_thread() else ProgressLine(ip)
        self._shown: tuple[str, str] | None = None
        self._raised: str | None = None

    def update(self, event: Event) -> None:
        """Show a change of a server."""
        if not isinstance(event, ServerChanged) or event.server not in self._names or self._line is None:
            return
        self._details[event.server] = event.detail
        now = time.monotonic()
        if not self._line.is_display:
            record = State(event.state).record
            if event.detail and record.is_moving and len(self._names) <= MAX_SERVERS:
                self._line.show(one_line(f"… {event.server}: {record.label}: {event.detail}"), "")
                self._line.end()
        elif len(self._names) <= MAX_SERVERS or now - self._drawn >= REDRAW_INTERVAL:
            self._drawn = now
            self._draw()

    def finish(self, raised: str | None = None) -> None:
        """Show the final states.

        Args:
            raised: The server whose failure is raised as an error, so that its message is not shown here.
        """
        self._raised = raised
        self._draw()
        if self._line is not None:
            self._line.end()

    def _draw(self) -> None:
        sessions = [self._host.sessions[name] for name in self._names if name in self._host.sessions]
        if self._line is None or not sessions:
            return
        rows = [self._row(session) for session in sessions[:MAX_SERVERS]]
        if len(sessions) > MAX_SERVERS:
            rows.append(("…", "#888888", f"{len(sessions) - MAX_SERVERS:,} more", "%mcp shows them"))
        plain = "\n".join(one_line(f"{mark} {name}: {text}") for mark, _, name, text in rows)
        html = "".join(
            f'<div><span style="color:{colour}">{mark}</span> <b>{escaped(name)}</b> {escaped(text)}</div>'
            for mark, colour, name, text in rows
        )
        if (plain, html) != self._shown:
            self._shown = plain, html
            self._line.show(plain, html)

    def _row(self, session: ServerSession) -> tuple[str, str, str, str]:
        state, tools = session.state.record.label, counted(len(session.catalog.tools), "tool")
        if session.is_lazy:
            return "✓", "#2a8a4a", session.name, f"lazy, {tools}; starts when called"
        if session.state is State.READY:
            found = len(self._host.guard.findings.get(session.name, ()))
            scan = f"; {found:,} suspicious in its descriptions: %mcp pins scan" if found else ""
            return "✓", "#2a8a4a", session.name, f"ready, {tools}{scan}"
        if session.status.error is not None:
            message = state if session.name == self._raised else session.status.error.message
            return "✗", "#c0392b", session.name, message
        detail = self._details.get(session.name)
        return "…", "#888888", session.name, f"{state}: {detail}" if detail else state


def _bar(call: RunningCall, *, ended: bool) -> tuple[str, str]:
    progress = call.progress
    name = one_line(f"{call.session.name}.{call.tool}")
    if progress is None:
        return name, escaped(name)
    done, total = progress.progress, progress.total
    share = min(max(done / total, 0.0), 1.0) if total else None
    amount = f"{done:g}/{total:g}" if total else f"{done:g}" + (" s" if call.task else "")
    message = one_line(masks.head(progress.message or "", 80))
    words = " ".join(part for part in (amount, message) if part)
    filled = round(_BAR * share) if share is not None else 0
    bar = "" if share is None or ended else f" [{'#' * filled}{'.' * (_BAR - filled)}]"
    meter = "" if share is None or ended else f'<progress value="{share:.3f}" max="1"></progress> '
    return f"{name}{bar} {words}", f"<div><code>{escaped(name)}</code> {meter}{escaped(words)}</div>"


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()

"""What a view may ask for: one coroutine a verb, on the background loop. Here those about servers and what they did."""

from __future__ import annotations

import asyncio
import glob
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from ipymcp.errors import McpError, UnknownName
from ipymcp.notebook.panel.logs import LogReader
from ipymcp.notebook.panel.messages import Malformed, Message, text, texts
from ipymcp.notebook.panel.state import where
from ipymcp.notebook.panel.tooling import TOOL_VERBS
from ipymcp.runtime.states import State
from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ipymcp.notebook.panel.panel import Panel
    from ipymcp.notebook.panel.view import View

__all__ = ["VERBS", "Act"]

Act: TypeAlias = Callable[["Panel", "View", Message], Awaitable[Any]]
_SOON = 1.0
"""Seconds that a reply waits for a server to start or stop. After that its state, and its error, say how it went."""
_MOST_HISTORY = 2_000


async def _soon(coroutine: Coroutine[Any, Any, object], panel: Panel) -> None:
    """Do it; what fails soon is raised, what takes longer goes on."""

    async def act() -> None:
        await coroutine

    task = panel.spawn(act())
    done, _ = await asyncio.wait({task}, timeout=_SOON)
    if done:
        return task.result()
    task.add_done_callback(_look_away)
    return None


def _look_away(task: asyncio.Task[None]) -> None:
    """What failed late is in the server's state and log."""
    if not task.cancelled():
        task.exception()


async def _start(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.start.aio(_server(panel, message)), panel)


async def _stop(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.stop.aio(_server(panel, message)), panel)


async def _restart(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.restart.aio(_server(panel, message)), panel)


async def _unload(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.unload.aio(_server(panel, message)), panel)


async def _start_all(panel: Panel, view: View, message: Message) -> None:
    sessions = panel.host.sessions.values()
    await _soon(panel.host.start([one.name for one in sessions if one.state is not State.DISABLED]), panel)


async def _stop_all(panel: Panel, view: View, message: Message) -> None:
    sessions = panel.host.sessions.values()
    await _soon(panel.host.stop([one.name for one in sessions if one.state is not State.DISABLED]), panel)


async def _enable(panel: Panel, view: View, message: Message) -> None:
    await _switch(panel, message, on=True)


async def _disable(panel: Panel, view: View, message: Message) -> None:
    await _switch(panel, message, on=False)


async def _switch(panel: Panel, message: Message, *, on: bool) -> None:
    session = panel.host.find(text(message, "server"))
    if message.get("tool") is not None:
        entry = panel.host.entry(session, text(message, "tool"))
        panel.host.guard.policy.filters.set(glob.escape(f"{entry.server}.{entry.name}"), allowed=on)
    elif on:
        await _soon(panel.mcp.start.aio(session.name), panel)
    else:
        await _soon(panel.host.stop([session.name], State.DISABLED), panel)


async def _load(panel: Panel, view: View, message: Message) -> None:
    what = texts(message, "what")
    if not what:
        raise Malformed("'load' needs 'what', a list of names")
    await _soon(panel.mcp.load.aio(*what), panel)


async def _known(panel: Panel, view: View, message: Message) -> list[Message]:
    """The servers of the configuration that are not loaded."""
    found = await asyncio.to_thread(panel.host.discovery.peek)
    return [
        {"name": name, "source": visible(str(definition.source)), "where": where(definition)}
        for name, definition in found.definitions.items()
        if name not in panel.host.sessions
    ]


async def _memory(panel: Panel, view: View, message: Message) -> Message:
    session = panel.host.find(text(message, "server"))
    if session.pid is None:
        raise McpError("has no process", server=session.name)
    size, count = await asyncio.to_thread(_measure, session.pid)
    return {"bytes": size, "processes": count}


def _measure(pid: int) -> tuple[int, int]:
    """The resident memory of a process and all below it, and how many these are."""
    import psutil

    sizes: list[int] = []
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            try:
                sizes.append(process.memory_info().rss)
            except psutil.Error:  # it has just ended
                continue
    except psutil.Error as error:
        raise McpError(f"its process {pid} is gone") from error
    return sum(sizes), len(sizes)


async def _logs(panel: Panel, view: View, message: Message) -> None:
    on, since = message.get("on"), message.get("since")
    if not isinstance(on, bool) or not (since is None or isinstance(since, int)):
        raise Malformed("'logs' needs 'on', true or false, and 'since' is a number")
    if not on:
        view.logs.pop(text(message, "server"), None)
        return
    name = _server(panel, message)
    view.logs[name] = LogReader(name, panel.host, panel.numbers, since)
    view.look()


async def _history(panel: Panel, view: View, message: Message) -> list[Message]:
    limit = message.get("limit")
    limit = min(limit, _MOST_HISTORY) if isinstance(limit, int) and limit > 0 else 100
    panel.host.history.flush()
    entries = await panel.host.history.entries(
        server=glob.escape(text(message, "server")) if message.get("server") is not None else None,
        tool=glob.escape(text(message, "tool")) if message.get("tool") is not None else None,
        failed=message.get("failed") is True,
        limit=limit,
    )
    rows = [
        {
            "id": entry.id,
            "time": entry.time,
            "duration": entry.duration,
            "caller": entry.caller,
            "server": entry.server,
            "tool": entry.tool,
            "sent": entry.sent,
            "received": entry.received,
            "outcome": entry.outcome,
            "error": visible(entry.error),
        }
        for entry in entries
    ]
    return [view.permissions.shown_history(row) for row in rows]


async def _cancel(panel: Panel, view: View, message: Message) -> None:
    number = message.get("call")
    call = panel.host.running.get(number) if isinstance(number, int) else None
    if call is None:
        raise UnknownName(f"no call {number} is running", hint="it may be over")
    call.cancel()


async def _answer(panel: Panel, view: View, message: Message) -> Any:
    return panel.questions.answered(text(message, "question"), message, view.permissions)


def _server(panel: Panel, message: Message) -> str:
    return panel.host.find(text(message, "server")).name


VERBS: dict[str, Act] = {
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "unload": _unload,
    "start_all": _start_all,
    "stop_all": _stop_all,
    "enable": _enable,
    "disable": _disable,
    "trust": _start,  # a start asks for what it needs: trust, and a login
    "login": _start,
    "load": _load,
    "known": _known,
    "memory": _memory,
    "logs": _logs,
    "history": _history,
    "cancel": _cancel,
    "answer": _answer,
    **TOOL_VERBS,
}

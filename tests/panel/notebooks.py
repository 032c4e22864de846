"""Notebooks with a panel, without a kernel: real servers, views in the same process."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import ipymcp
from ipymcp import Mcp
from ipymcp.interaction.questions import Question
from ipymcp.notebook import call_code
from ipymcp.panel.panel import Panel, PanelContext
from ipymcp.panel.subjects import COMMANDS, SECTIONS
from ipymcp.runtime.server_status import State
from tests.environments import ROOT, server_command
from tests.panels import DirectView, Message
from tests.processes import wait_until

NAMED = str(ROOT / "tests" / "servers" / "named.py")
HOSTILE = "<img src=x onerror=alert(1)>\u202e"
Definition = Mapping[str, Any]


def command(*words: str) -> Definition:
    return {"command": words[0], "args": list(words[1:])}


def named(*tools: Message) -> Definition:
    """Define a server that has these tools."""
    return command(sys.executable, NAMED, *(json.dumps(tool) for tool in tools))


DEMO = command(*server_command("demo"))
OWN = command(*server_command("misbehaving"))


class Notebook:
    """The part of a notebook that a panel needs."""

    def __init__(self, mcp: Mcp) -> None:
        self.mcp = mcp
        self.host = mcp._host
        self.mode: Any = "full"
        self._set_panel(has_visitors=False)

    def _set_panel(self, *, has_visitors: bool) -> None:
        context = PanelContext(lambda: self.mode, lambda: "mcp", "one life", call_code, has_visitors=has_visitors)
        self.panel = Panel(self.mcp, context, COMMANDS, SECTIONS)

    def view(self, **hello: Any) -> DirectView:
        view = DirectView(self.panel)
        view.hello(**hello)
        return view

    def visitor(self) -> DirectView:
        """Open the panel to visitors, as Voilà does, and give the view of one."""
        self.mode = "run"
        self._set_panel(has_visitors=True)
        return self.view()

    def ask(self, question: Question[Any]) -> Future[Any]:
        """Ask the user a question, as the host does."""
        return asyncio.run_coroutine_threadsafe(self.host.questions.ask(question), self.host.loop.loop)

    def forget_calls(self) -> None:
        """Drop the kernel's memory of its calls, as a restart does. What is stored stays."""
        history = self.host.history
        history.flush()
        self.host.store.database.query("SELECT 1")  # in the database's thread, after the flush
        history._kept.clear()
        history._kept_bytes = 0


OpenNotebook = Callable[..., Notebook]


@contextlib.contextmanager
def notebooks() -> Iterator[OpenNotebook]:
    """Open notebooks with the named servers, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda **servers: Notebook(stack.enter_context(ipymcp.connect(servers)))


@contextlib.contextmanager
def shared_host(name: str, definition: Definition) -> Iterator[Mcp]:
    """Run a host with one server for several notebooks, one after the other."""
    with ipymcp.connect({name: definition}) as mcp:
        mcp._host.store.database.query("SELECT 1")  # starts its thread
        yield mcp


@contextlib.contextmanager
def notebook_of(mcp: Mcp) -> Iterator[Notebook]:
    """Give a notebook on a shared host; afterwards, check that the host is as it was, but for calls and rules."""
    notebook = Notebook(mcp)
    host, history = notebook.host, notebook.host.history
    servers = {name: session.pid for name, session in host.sessions.items()}
    path = history._notebook
    yield notebook
    for view in [*notebook.panel.views]:
        host.loop.call(notebook.panel.detach, view)
    wait_until(
        lambda: not (host.calls.running or host.questions.subjects or host.trials.sessions or notebook.panel.views)
    )
    mcp.policy.reset()
    host.guard.policy.filters.__init__()
    mcp.results.__init__()
    notebook.forget_calls()
    host.store.database.execute("DELETE FROM history")
    history.mode, history._notebook = "sizes", path
    assert {name: session.pid for name, session in host.sessions.items()} == servers
    assert {session.state for session in host.sessions.values()} == {State.READY}

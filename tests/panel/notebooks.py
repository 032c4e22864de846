"""Notebooks with a panel, without a kernel: real servers, views in the same process."""

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import ipymcp
from ipymcp import Mcp
from ipymcp.notebook import call_code
from ipymcp.panel.commands import COMMANDS
from ipymcp.panel.panel import Panel, PanelContext
from tests.environments import ROOT
from tests.panels import DirectView, Message

NAMED = str(ROOT / "tests" / "servers" / "named.py")
Definition = Mapping[str, Any]


def command(*words: str) -> Definition:
    return {"command": words[0], "args": list(words[1:])}


def named(*tools: Message) -> Definition:
    return command(sys.executable, NAMED, *(json.dumps(tool) for tool in tools))


class Notebook:
    """The part of a notebook that a panel needs."""

    def __init__(self, mcp: Mcp) -> None:
        self.mcp = mcp
        self.mode: Any = "full"
        self.panel = Panel(mcp, PanelContext(lambda: self.mode, lambda: "mcp", "one life", call_code), COMMANDS)

    def view(self, **hello: Any) -> DirectView:
        view = DirectView(self.panel)
        view.hello(**hello)
        return view


Open = Callable[..., Notebook]


@contextlib.contextmanager
def notebooks() -> Iterator[Open]:
    """Opens notebooks with these servers, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda **servers: Notebook(stack.enter_context(ipymcp.connect(servers)))


def quiet(view: DirectView, seconds: float = 0.5) -> None:
    """Hear what comes until nothing has for a while."""
    count = -1
    while count != len(view.heard):
        count = len(view.heard)
        with pytest.raises(TimeoutError):
            view.listen(lambda: False, seconds)

"""Kernels with a panel that several tests use, one after the other."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests import kernels
from tests.environments import ROOT, server_command
from tests.integration.notebooks import done, opened, text
from tests.kernels import Kernel
from tests.panels import CommView, wait_for_views

_ASKS = [server_command("sdk2")[0], str(ROOT / "tests" / "servers" / "sdk_asks.py")]
_TICKS = """
import time
state, ticks = get_ipython()._ipymcp_extension.panel.shown, []
update = state.update
state.update = lambda: (update(), ticks.append(1))
while len(ticks) < {count}:
    time.sleep(0.01)
del state.update
"""
_RESTORE = """
import ipywidgets
ipywidgets.Widget.close_all()
panel, view = get_ipython()._ipymcp_extension.panel, None
for view in [*panel.views]:
    panel.host.loop.call(panel.detach, view)
mcp.unload(*({*mcp.servers} - {"demo", "asks"}))
mcp.policy.reset()
mcp.start("demo")
%config IPyMCP.panel = "full"
"""
_LEFT = "mcp.servers['demo'].state, panel.host.calls.running, panel.host.questions.subjects, panel.host.trials.sessions"


@contextlib.contextmanager
def shared_kernel(name: str, folder: Path) -> Iterator[Kernel]:
    """Run a kernel with ipymcp and the demo server for several tests."""
    with opened(name, folder, {}) as kernel:
        yield kernel


def restore(kernel: Kernel) -> None:
    """Close the panels and servers of a test, and check that nothing else of it is left."""
    done(kernel, _RESTORE)
    wait_for_views(kernel, 0)
    assert text(kernel, _LEFT) == "('ready', {}, [], ())"
    kernel.comms.clear()


def load_asks(kernel: Kernel) -> None:
    """Load a server whose tools ask the user, unless it is loaded."""
    done(kernel, f'if "asks" not in mcp:\n    get_ipython().run_line_magic("mcp", "load asks -- {shlex.join(_ASKS)};")')


def load_misbehaving(kernel: Kernel, *words: str) -> None:
    done(kernel, f"%mcp load own -- {shlex.join(server_command('misbehaving', *words))};")


def panel(kernel: Kernel, cell: str = "%mcp panel") -> CommView:
    """Show a panel in a cell, and give its view."""
    outcome = done(kernel, cell, answers=())
    return CommView(kernel, [*outcome.displays, *([outcome.result] if outcome.result else [])])


def wait_for_ticks(kernel: Kernel, count: int) -> None:
    """Wait until the panel has looked for changes so many times. A view must be open."""
    done(kernel, _TICKS.format(count=count))


@contextlib.contextmanager
def blocked(kernel: Kernel) -> Iterator[kernels.Cell]:
    """Block the kernel by a cell until the end of the block."""
    flag = kernel.folder / "go"
    flag.unlink(missing_ok=True)
    cell = kernel.start(f"import pathlib, time\nwhile not pathlib.Path({str(flag)!r}).exists():\n    time.sleep(0.01)")
    yield cell
    assert not cell.done
    flag.touch()
    cell.wait()

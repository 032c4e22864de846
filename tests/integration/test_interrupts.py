"""The user can always get out: a call that is interrupted ends at once, the server is told, and the next one works."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests import kernels
from tests.environments import server_command
from tests.kernels import KERNELS, Cell, Kernel, Outcome

every_kernel = pytest.mark.kernels(*KERNELS)
WITHIN = 0.5
"""Seconds from the signal to its effect."""


def misbehaving(*words: str) -> str:
    return shlex.join(server_command("misbehaving", *words))


@pytest.fixture(scope="module")
def shared(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel for many tests, with a server that behaves, in the cell's own and in the background."""
    with kernels.started(kernel_name, tmp_path_factory.mktemp(kernel_name)) as kernel:
        setup = f"""
            import asyncio, signal, time
            %load_ext ipymcp
            %mcp load m -- {misbehaving()}
            def on_progress(progress):
                print('in my code', flush=True)
                while True: time.sleep(0.01)
            async def mark(): print('waiting', flush=True)
            handler = signal.getsignal(signal.SIGINT)
        """
        outcome = kernel.run("\n".join(line.strip() if "%" in line else line[12:] for line in setup.splitlines()))
        assert outcome.status == "ok", outcome
        yield kernel


def value(kernel: Kernel, expression: str) -> Any:
    outcome = kernel.run(f"import json; print(json.dumps({expression}))")
    assert outcome.status == "ok", outcome.error
    return json.loads(outcome.stdout)


def sent(kernel: Kernel, name: str) -> list[int]:
    """The ids of the calls of one tool that the server has seen."""
    frames = value(kernel, "mcp.m.seen().data['frames']")
    calls = [frame for frame in frames if frame.get("method") == "tools/call"]
    return [frame["id"] for frame in calls if frame["params"]["name"] == name]


def until_in_flight(kernel: Kernel, cell: Cell) -> None:
    cell.wait_for_output("waiting")
    time.sleep(0.3)  # what follows the print in the same cell has no other sign


def interrupt(kernel: Kernel, cell: Cell) -> Outcome:
    """Interrupt the kernel; the cell ends in time."""
    before = time.monotonic()
    kernel.interrupt()
    outcome = cell.wait(timeout=20)
    took = time.monotonic() - before
    assert took < WITHIN, f"{took:.2f} s: {outcome}"
    return outcome


BLOCKED = {
    "a plain cell": ("print('waiting', flush=True); mcp.m.sleep(60)", "KeyboardInterrupt"),
    "a cell with an await": ("await mark(); mcp.m.sleep(60)", "KeyboardInterrupt"),
    "an awaited call": ("await mark(); await mcp.m.sleep.aio(60)", "CancelledError"),
    "the magic": ("print('waiting', flush=True)\n%mcp call m.sleep seconds=60", "KeyboardInterrupt"),
    "the magic in a cell with an await": ("await mark()\n%mcp call m.sleep seconds=60", "KeyboardInterrupt"),
    "many awaited calls": (
        "await mark(); await asyncio.gather(*(mcp.m.sleep.aio(60) for _ in range(50)))",
        "CancelledError",
    ),
}


@every_kernel
@pytest.mark.parametrize(("code", "error"), BLOCKED.values(), ids=BLOCKED)
def test_an_interrupted_call_ends_at_once_and_the_server_is_told(shared: Kernel, code: str, error: str) -> None:
    known = set(sent(shared, "sleep"))
    cell = shared.start(code)
    until_in_flight(shared, cell)
    outcome = interrupt(shared, cell)

    assert outcome.error is not None
    assert outcome.error.ename == error
    assert shared.run("mcp.m.echo('next').text").text == "'next'"
    new = set(sent(shared, "sleep")) - known
    assert new
    assert new <= set(value(shared, "mcp.m.seen().data['cancelled']"))
    assert (
        value(shared, "[s.method for s in mcp.m._session().client._peer._slots.values() if 'call' in s.method]") == []
    )
    assert value(shared, "len(mcp.calls)") == 0
    assert value(shared, "signal.getsignal(signal.SIGINT) is handler") is True


@every_kernel
@pytest.mark.parametrize("first", ["pass", "await mark()"], ids=["in a plain cell", "in a cell with an await"])
def test_the_users_own_progress_function_is_interrupted_where_it_stands(shared: Kernel, first: str) -> None:
    cell = shared.start(f"{first}; mcp.m.progress.options(on_progress=on_progress)(interval=0.01)")
    cell.wait_for_output("in my code")
    outcome = interrupt(shared, cell)

    assert outcome.error is not None
    assert outcome.error.ename == "KeyboardInterrupt"
    assert "in on_progress" in outcome.error.traceback
    assert set(sent(shared, "progress")) <= set(value(shared, "mcp.m.seen().data['cancelled']"))

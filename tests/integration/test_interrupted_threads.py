"""An interrupt reaches the tools that a library runs in threads of its own, and waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import kernels, processes
from tests.environments import server_command
from tests.integration.notebooks import done, received
from tests.kernels import Cell, Kernel, Outcome

pytestmark = pytest.mark.timed

WITHIN = 0.5
"""Seconds from the signal to its effect."""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with prepared("models", tmp_path_factory.mktemp("models")) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with prepared("agents", tmp_path_factory.mktemp("agents")) as kernel:
        done(kernel, AGENT)
        yield kernel


@contextmanager
def prepared(name: str, folder: Path) -> Iterator[Kernel]:
    """A kernel with the libraries, and a server that records what it is told."""
    command, *args = server_command("misbehaving", f"record={folder / 'record'}")
    server = {"command": command, "args": args, "concurrency": 4}
    with kernels.started(name, folder) as kernel:
        lines = (
            "import threading, time",
            "from concurrent.futures import ThreadPoolExecutor",
            "%load_ext ipymcp",
            "from ipymcp import mcp",
            f"mcp.load({{'m': {server!r}}}, trust=True)",
            "mcp.policy.allow('*')",
            "def named(tools, name): return next(tool for tool in tools if tool.name == name)",
            "async def tick(): pass",
        )
        done(kernel, "\n".join(lines))
        yield kernel


def started(kernel: Kernel, code: str, calls: int) -> Cell:
    """Start a cell that notes when it ends, and wait until the server has so many more calls of `sleep`."""
    before = recorded(kernel)
    cell = kernel.start_timed(code)
    processes.wait_until(lambda: recorded(kernel) >= before + calls)
    return cell


def recorded(kernel: Kernel) -> int:
    return received(kernel.folder / "record", '"name":"sleep"')


def interrupted(kernel: Kernel, cell: Cell) -> Outcome:
    """Interrupt the kernel; the cell's code ends in time, and the next one works."""
    outcome = kernel.interrupt_within(WITHIN, cell)
    assert kernel.run("mcp.m.echo('next').text").text == "'next'"
    return outcome


def sleeps(kernel: Kernel) -> tuple[list[int], list[int]]:
    """The ids of all calls of `sleep` that the server has seen, and of those it was told to stop."""
    seen = kernel.value("mcp.m.seen().data")
    ids = [
        frame["id"]
        for frame in seen["frames"]
        if frame.get("method") == "tools/call" and frame["params"]["name"] == "sleep"
    ]
    return ids, [number for number in ids if number in seen["cancelled"]]


AGENT = """
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **options): return self

def agent():
    call = {"name": "m__sleep", "args": {"seconds": 60}, "type": "tool_call"}
    calls = [{**call, "id": f"c{number}"} for number in range(3)]
    return create_agent(Model(messages=iter([AIMessage("", tool_calls=calls)])), mcp.tools.to_langchain())
"""
ASKED = "{'messages': [('user', 'hey')]}"
SLEEP = "sleep = named(mcp.tools.to_langchain(), 'm__sleep')\n"
BATCH = "sleep.batch([{'seconds': 60}] * 3)"
POOL = "with ThreadPoolExecutor(2) as pool:\n    list(pool.map({}, [60, 60]))"
WAITING = {
    "a batch": (SLEEP + BATCH, "KeyboardInterrupt", 3),
    "a batch, of tools made in another cell": (BATCH, "KeyboardInterrupt", 3),
    "a batch in a cell with an await": ("await tick()\n" + BATCH, "CallCancelled", 3),
    "llm's tools in threads": (
        "of_llm = named(mcp.tools.to_llm(), 'm__sleep')\n"
        + POOL.format("lambda seconds: of_llm.implementation(seconds=seconds)"),
        "KeyboardInterrupt",
        2,
    ),
    "chatlas' tools in threads": (
        "of_chatlas = named(mcp.tools.to_chatlas(), 'm__sleep')\n"
        + POOL.format("lambda seconds: of_chatlas.func(seconds=seconds)"),
        "KeyboardInterrupt",
        2,
    ),
}


@pytest.mark.parametrize(("code", "error", "calls"), WAITING.values(), ids=WAITING)
def test_the_threads_that_a_cell_waits_for_end_and_the_server_is_told(
    kernel: Kernel, code: str, error: str, calls: int
) -> None:
    done(kernel, SLEEP)
    known = len(sleeps(kernel)[0])

    outcome = interrupted(kernel, started(kernel, code, calls))

    assert outcome.error is not None
    assert outcome.error.ename == error
    assert len(outcome.error.traceback.splitlines()) <= 2, outcome.error.traceback
    made, cancelled = sleeps(kernel)
    assert len(made) == known + calls
    assert made == cancelled
    assert kernel.value("len(mcp.calls)") == 0


@pytest.mark.parametrize("code", [f"agent().invoke({ASKED})", f"await agent().ainvoke({ASKED})"])
def test_an_agent_that_is_interrupted_ends_and_the_server_is_told(agents: Kernel, code: str) -> None:
    known = len(sleeps(agents)[0])

    outcome = interrupted(agents, started(agents, code, 3))

    assert outcome.error is not None
    assert outcome.error.ename in ("KeyboardInterrupt", "CancelledError", "CallCancelled", "CallInterrupted")
    made, cancelled = sleeps(agents)
    assert len(made) == known + 3
    assert made == cancelled
    assert agents.value("len(mcp.calls)") == 0


def test_what_is_queued_for_these_threads_is_not_begun(kernel: Kernel) -> None:
    done(kernel, SLEEP)
    known = len(sleeps(kernel)[0])
    code = "list(sleep.batch_as_completed([{'seconds': 60}] * 6, config={'max_concurrency': 2}))"

    interrupted(kernel, started(kernel, code, 2))

    made, cancelled = sleeps(kernel)
    assert len(made) == known + 2
    assert made == cancelled


def test_after_an_interrupt_that_the_cell_catches_new_threads_work(kernel: Kernel) -> None:
    done(kernel, SLEEP + "echo = named(mcp.tools.to_langchain(), 'm__echo')")
    code = f"try: {BATCH}\nexcept KeyboardInterrupt: print(echo.batch([{{'text': 'a'}}, {{'text': 'b'}}]))\n{BATCH}"
    cell = started(kernel, code, 3)
    before = recorded(kernel)
    kernel.interrupt()
    processes.wait_until(lambda: recorded(kernel) >= before + 3)

    outcome = interrupted(kernel, cell)

    assert outcome.stdout == "['a', 'b']\n"
    assert outcome.error is not None
    assert outcome.error.ename == "KeyboardInterrupt"


def test_a_thread_of_an_earlier_cell_is_left_alone(kernel: Kernel) -> None:
    done(kernel, SLEEP)
    before = recorded(kernel)
    done(kernel, "done = []\nthread = threading.Thread(target=lambda: done.append(sleep.invoke({'seconds': 2})))")
    done(kernel, "thread.start()")
    processes.wait_until(lambda: recorded(kernel) > before)
    cell = kernel.start(
        "try:\n    print('here', flush=True)\n    time.sleep(60)\n"
        "except BaseException:\n    ended = time.monotonic(); raise"
    )
    cell.wait_for_output("here")

    outcome = interrupted(kernel, cell)

    assert outcome.error is not None
    assert "time.sleep(60)" in outcome.error.traceback, "the user's own code is shown as ever"
    assert kernel.value("(thread.join(), len(done))[1]") == 1


def test_only_cells_with_such_tools_handle_sigint_otherwise(tmp_path: Path) -> None:
    with kernels.started("models", tmp_path) as kernel:
        done(kernel, "import gc, signal\nplain = signal.getsignal(signal.SIGINT)\n%load_ext ipymcp")
        assert kernel.value("signal.getsignal(signal.SIGINT) is plain") is True
        done(kernel, "tools = mcp.tools.to_langchain()\nassert signal.getsignal(signal.SIGINT) is not plain")
        assert kernel.value("signal.getsignal(signal.SIGINT) is plain") is False
        done(kernel, "del tools; gc.collect()")
        assert kernel.value("signal.getsignal(signal.SIGINT) is plain") is True

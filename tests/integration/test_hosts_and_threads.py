"""Hosts, sessions and calls in one process, without a kernel: threads, loops, forks, the end of a script."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import ipymcp
from ipymcp import errors
from tests import processes
from tests.bad_servers import PATIENCE, bad, connected, log_of
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def mcp() -> Iterator[ipymcp.Mcp]:
    """A host of the module, for tests that leave its server as it was."""
    with connected({"one": bad()}) as mcp:
        mcp.one.progress.options(on_progress=lambda _: None).submit(count=1).result()  # starts the handlers' thread
        yield mcp


# -- threads and loops ------------------------------------------------------------------------------------------------


def test_sixteen_threads_and_many_awaits_at_once_get_their_own_answers() -> None:
    sizes = [10, 1000, 4000, 4096, 20_000, 200_000]
    with connected({"one": bad()}) as mcp:

        def call(thread: int) -> bool:
            texts = [f"{thread}-{n}-" + "x" * sizes[(thread + n) % len(sizes)] for n in range(40)]
            return all(mcp.one.echo(text).text == text for text in texts)

        async def call_all() -> bool:
            texts = [f"async-{n}-" + "y" * sizes[n % len(sizes)] for n in range(200)]
            results = await asyncio.gather(*(mcp.one.echo.aio(text) for text in texts))
            return [result.text for result in results] == texts

        with ThreadPoolExecutor(17) as pool:
            asynchronous = pool.submit(asyncio.run, call_all())
            assert all(pool.map(call, range(16)))
            assert asynchronous.result()
        assert not log_of(mcp, "one", "host")


def test_connect_in_worker_threads_is_each_threads_own() -> None:
    def work(number: int) -> str:
        with ipymcp.connect({"one": bad()}) as mcp:
            return mcp.one.echo(f"{number}").text

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == ["0", "1", "2", "3"]


def test_aconnect_under_asyncio_run_leaves_the_loop_free() -> None:
    async def main() -> list[str]:
        asyncio.get_running_loop().slow_callback_duration = 0.3
        async with ipymcp.aconnect({"one": bad()}, {"two": bad()}) as mcp:
            results = await asyncio.gather(mcp.one.echo.aio("1"), mcp.two.echo.aio("2"))
            with pytest.raises(errors.RpcError):
                await mcp.one.refuse.aio()
            await mcp.stop.aio("one")
            await mcp.start.aio("one")
            return [result.text for result in results]

    assert asyncio.run(main()) == ["1", "2"]


def test_a_connect_that_fails_stops_what_it_started() -> None:
    servers = {"one": bad(), "two": {"command": "no-such-program"}}

    async def main() -> None:
        async with ipymcp.aconnect(servers):
            pytest.fail("not reached")

    with pytest.raises(errors.CommandNotFound):
        asyncio.run(main())
    with pytest.raises(errors.CommandNotFound), ipymcp.connect(servers):
        pytest.fail("not reached")


def test_a_cancelled_await_tells_the_server(mcp: ipymcp.Mcp) -> None:
    async def main(mcp: ipymcp.Mcp) -> list[int]:
        task = asyncio.create_task(mcp.one.sleep.aio(60))
        while not mcp.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await mcp.one.seen.aio()).data["cancelled"]

    before = mcp.one.seen().data["cancelled"]
    assert len(asyncio.run(main(mcp))) == len(before) + 1
    assert mcp.calls == []


def test_an_awaited_call_has_its_deadline_and_its_progress(mcp: ipymcp.Mcp) -> None:
    async def main(mcp: ipymcp.Mcp) -> list[float]:
        steps: list[float] = []
        tool = mcp.one.progress.options(timeout=1, on_progress=lambda progress: steps.append(progress.progress))
        await tool.aio(interval=0.02, count=3)
        with pytest.raises(errors.CallTimeout):
            await mcp.one.sleep.options(timeout=0.2).aio(60)
        return steps

    assert asyncio.run(main(mcp)) == [1, 2, 3]


def test_a_progress_function_that_fails_fails_its_call_and_tells_the_server(mcp: ipymcp.Mcp) -> None:
    def fail(progress: object) -> None:
        raise ZeroDivisionError

    before = len(mcp.one.seen().data["cancelled"])
    with pytest.raises(ZeroDivisionError):
        mcp.one.progress.options(on_progress=fail)(interval=0.01)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(awaited(mcp.one.progress.options(on_progress=fail)))
    assert len(mcp.one.seen().data["cancelled"]) == before + 2
    assert mcp.calls == []


async def awaited(tool: ipymcp.Tool) -> ipymcp.ToolResult:
    return await tool.aio(interval=0.01)


def test_a_submitted_call_gives_result_progress_and_cancel(mcp: ipymcp.Mcp) -> None:
    steps = []
    enough = threading.Event()

    def take(progress: object) -> None:
        steps.append(progress)
        if len(steps) == 2:
            enough.set()

    waiting = mcp.one.sleep.submit(60)
    assert not waiting.done
    assert mcp.calls == [waiting]
    with pytest.raises(TimeoutError):
        waiting.result(0.01)
    assert mcp.cancel(waiting.number) == 1
    call = mcp.one.sleep.submit(0.1)
    assert call.result(PATIENCE).text == "slept 0.1 s"
    assert call.result() == call.result()
    assert call.done
    running = mcp.one.progress.options(on_progress=take).submit(interval=0.02)
    assert enough.wait(PATIENCE)
    assert running.progress is not None and running.progress.progress >= 2
    assert mcp.cancel(running.number) == 1
    with pytest.raises(errors.CallCancelled):
        running.result()
    assert mcp.cancel() == 0
    assert mcp.one.seen().data["cancelled"][-1] == running._pending.id


def test_a_submitted_call_is_awaited_on_any_loop_by_several(mcp: ipymcp.Mcp) -> None:
    async def main(call: ipymcp.Call[ipymcp.ToolResult]) -> list[str]:
        return [result.text for result in await asyncio.gather(wait(call), wait(call), wait(call))]

    async def wait(call: ipymcp.Call[ipymcp.ToolResult]) -> ipymcp.ToolResult:
        return await call

    call = mcp.one.sleep.submit(0.2)
    assert asyncio.run(main(call)) == ["slept 0.2 s"] * 3
    assert asyncio.run(main(call)) == ["slept 0.2 s"] * 3


def test_a_coroutine_function_is_called_with_progress(mcp: ipymcp.Mcp) -> None:
    steps: list[float] = []
    done = threading.Event()

    async def take(progress: object) -> None:
        steps.append(progress.progress)
        if len(steps) == 3:
            done.set()

    mcp.one.progress.options(on_progress=take)(interval=0.02, count=3)
    assert done.wait(PATIENCE)
    assert steps == [1, 2, 3]


def test_waiting_on_ipymcps_own_loop_is_refused_and_names_aio(mcp: ipymcp.Mcp) -> None:
    call = mcp.one.sleep.submit(60)
    for wait in (lambda: mcp.one.echo("x"), lambda: mcp.stop("one"), call.result):
        error = on_loop_thread(mcp, wait)
        assert error._render_traceback_() == [
            "LoopError: a synchronous call cannot wait on ipymcp's own loop"
            if error.where == ""
            else f"LoopError: {error.where}: a synchronous call cannot wait on ipymcp's own loop",
            "  await its .aio instead",
        ]
    assert mcp.cancel(call.number) == 1
    assert mcp.one.echo("x").text == "x"


def on_loop_thread(mcp: ipymcp.Mcp, function: Callable[[], object]) -> errors.LoopError:
    caught: list[BaseException] = []
    done = threading.Event()

    def run() -> None:
        try:
            function()
        except BaseException as error:
            caught.append(error)
        done.set()

    mcp._host.loop.loop.call_soon_threadsafe(run)
    assert done.wait(PATIENCE)
    assert isinstance(caught[0], errors.LoopError)
    return caught[0]


# -- forks ------------------------------------------------------------------------------------------------------------


def in_fork(function: Callable[[], object]) -> str:
    """The repr of the function's value in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = repr(function())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_call_in_a_forked_child_is_refused_and_the_parent_goes_on(size: int) -> None:
    with connected({"one": bad()}) as mcp:
        said = in_fork(lambda: mcp.one.echo("x" * size))
        assert said == "LoopError: one.echo: this process was forked after its servers were started"
        said = in_fork(lambda: mcp.load({"two": bad()}))
        assert said == "LoopError: this process was forked after ipymcp started"
        said = in_fork(lambda: asyncio.run(awaited(mcp.one.progress)))
        assert said == "LoopError: this process was forked after ipymcp started"
        assert mcp.one.echo("x" * size).text == "x" * size
        assert mcp.servers["one"].state == "ready"


def refused_in_child(answers: object) -> None:
    try:
        KEPT["mcp"].one.echo("x")
    except errors.LoopError as error:
        answers.put(str(error))


KEPT: dict[str, ipymcp.Mcp] = {}


def test_a_child_of_multiprocessing_is_refused_and_ends() -> None:
    context = multiprocessing.get_context("fork")
    with connected({"one": bad()}) as mcp:
        KEPT["mcp"] = mcp
        answers = context.SimpleQueue()
        child = context.Process(target=refused_in_child, args=(answers,))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        assert "forked" in answers.get()
        child.close()
        answers.close()
        assert mcp.one.echo("x").text == "x"
        KEPT.clear()


def test_a_forked_child_that_lives_on_does_not_keep_a_servers_input_open() -> None:
    read, write = os.pipe()
    with connected({"one": bad("ignore-sigterm")}) as mcp:
        server = psutil.Process(mcp.servers["one"].pid)
        child = os.fork()
        if child == 0:
            os.read(read, 1)
            os._exit(0)
        mcp._host.sessions["one"].connection.transport.close_input()
        processes.wait_until_gone([server], PATIENCE)  # its input has ended: that ends it, though the child lives
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        os.write(write, b"x")
        os.waitpid(child, 0)
    os.close(read)
    os.close(write)


def test_a_child_forked_before_the_first_use_has_a_host_of_its_own() -> None:
    def work() -> str:
        with ipymcp.connect({"one": bad()}) as mcp:
            return mcp.one.echo("x").text

    assert in_fork(work) == "'x'"


# -- the end of a script ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "1 / 0"])
def test_a_script_that_forgets_its_servers_leaves_none(ending: str, tmp_path: Path) -> None:
    script = (
        "import ipymcp, sys\n"
        f"mcp = ipymcp.connect({{'one': {bad('stubborn', 'child')!r}}}).__enter__()\n"
        "print(mcp.one.pid().data['pid'], flush=True)\n"
        f"{ending}\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert time.monotonic() - began < 30
    assert "Traceback" not in done.stderr.replace("ZeroDivisionError", "") or ending == "1 / 0", done.stderr
    assert "ipymcp" not in done.stderr.replace(str(Path(__file__).parents[2]), ""), done.stderr
    processes.wait_until_group_gone(int(done.stdout), 1)


def test_calls_that_are_over_are_forgotten(mcp: ipymcp.Mcp) -> None:
    for _ in range(3):
        calls = [mcp.one.echo.submit(f"{n}") for n in range(100)]
        assert [call.result(PATIENCE).text for call in calls] == [f"{n}" for n in range(100)]
    assert mcp._host.calls.running == {}
    assert len(mcp._host.sessions["one"].client._peer) == 1  # the subscription

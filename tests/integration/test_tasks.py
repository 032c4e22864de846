"""Calls that become tasks, in the stateless era (the extension) and in the handshake era (2025-11-25)."""

import asyncio
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ipymcp import Call, CallCancelled, CallError, CallTimeout, ConnectionLost, Mcp, RpcError, ToolError
from ipymcp.protocol.types import Progress
from tests.bad_servers import PATIENCE, bad, connected, rendered
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture
from tests.integration.test_resources import offering
from tests.processes import wait_until


@pytest.fixture(scope="module", params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def mcp(era: str) -> Iterator[Mcp]:
    with connected({"s": offering(era=era)}) as mcp:
        yield mcp


def begun(call: Call[Any]) -> str:
    """Wait until a call has become a task, and give the task's id."""
    wait_until(lambda: call.task is not None)
    assert call.task is not None
    return call.task.id


def wait_until_cancelled(mcp: Mcp, task: str) -> None:
    """Wait until the server is told that a task is cancelled."""
    wait_until(lambda: task in mcp.s.counts().data["cancelled"])


def test_a_call_that_becomes_a_task_is_one_call_with_progress(mcp: Mcp) -> None:
    steps: list[Progress] = []
    result = mcp.s.work.options(on_progress=steps.append)(steps=3)
    assert (result.text, result.tool, result.server) == ("worked for no one", "work", "s")
    assert steps[0].message == "working: step 0"
    assert [step.progress for step in steps] == sorted(step.progress for step in steps)
    assert {step.total for step in steps} == {None}


def test_it_is_awaited_submitted_and_called_from_many_threads(mcp: Mcp) -> None:
    async def main() -> list[str]:
        calls = [mcp.s.work.aio(steps=1) for _ in range(5)]
        return [result.text for result in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == ["worked for no one"] * 5
    with ThreadPoolExecutor(4) as pool:
        assert [result.text for result in pool.map(lambda _: mcp.s.work(steps=1), range(8))] == [
            "worked for no one"
        ] * 8
    call = mcp.s.work.submit(steps=1)
    assert call.result(PATIENCE).text == "worked for no one"
    assert call.task is not None
    assert (call.task.status, call.done) == ("completed", True)


def test_a_task_shows_itself_in_one_line_without_secrets(era: str) -> None:
    with connected({"s": offering(era=era, env={"STEP_TOKEN": "a-secret-value"})}) as mcp:
        call = mcp.s.work.submit(steps=2, said="about a-secret-value\n\u202eand more " + "x" * 500)
        task = begun(call)
        wanted = rf"<task {re.escape(task)}, working: step \d about \[secret\]␊⟨U\+202E⟩and more x+…>"
        seen: list[str] = []

        def look() -> bool:
            seen.append(repr(call.task))
            return seen[-1].startswith(f"<task {task}, working: ")

        wait_until(look)
        shown = seen[-1]
        assert re.fullmatch(wanted, shown), shown
        assert len(shown) < 300
        call.result(PATIENCE)
        assert repr(call.task) == f"<task {task}, completed>"
        assert call.task is not None
        assert call.task.__rich_repr__() == [("id", task), ("status", "completed")]


def test_a_tools_error_and_a_failed_task_are_told_apart(mcp: Mcp) -> None:
    with pytest.raises(ToolError, match="worked for no one"):
        mcp.s.work(steps=1, is_error=True)
    with pytest.raises(RpcError) as caught:
        mcp.s.work(steps=1, fail=True)
    assert str(caught.value) == "s.work: out of ideas"
    assert caught.value.code == -32603


def test_it_is_left_and_picked_up_by_its_id(mcp: Mcp) -> None:
    call = mcp.s.work.submit(steps=20)
    task = begun(call)
    assert call.leave() == task
    with pytest.raises(CallCancelled) as caught:
        call.result(PATIENCE)
    assert rendered(caught.value) == [
        f"CallCancelled: s.work: call {call.number} was ended by leave()",
        f"  its task continues: mcp.servers['s'].task({task!r})",
    ]
    again = mcp.servers["s"].task(task, tool="work")
    assert again.result(PATIENCE).text == "worked for no one"
    assert again.result().tool == "work"
    assert task not in mcp.s.counts().data["cancelled"]


def test_a_task_can_be_picked_up_by_two(mcp: Mcp) -> None:
    task = begun(call := mcp.s.work.submit(steps=5))
    again = mcp.servers["s"].task(task)
    assert again.result(PATIENCE).text == call.result(PATIENCE).text == "worked for no one"


def test_only_a_task_can_be_left(mcp: Mcp) -> None:
    call = mcp.s.counts.submit()
    call.result(PATIENCE)
    with pytest.raises(CallError, match=f"call {call.number} is over"):
        call.leave()
    with connected({"m": bad("mute=tools/call")}) as other:
        call = other.m.echo.submit("x")
        with pytest.raises(CallError) as caught:
            call.leave()
        assert rendered(caught.value) == [
            f"CallError: m.echo: call {call.number} has not become a task",
            "  call.leave() is only for tasks; call.cancel() cancels the call",
        ]
        call.cancel()


def test_cancelling_the_call_cancels_the_task(mcp: Mcp) -> None:
    call = mcp.s.work.submit(forever=True)
    task = begun(call)
    assert call.cancel()
    with pytest.raises(CallCancelled):
        call.result(PATIENCE)
    wait_until_cancelled(mcp, task)
    with pytest.raises(CallCancelled, match="its task was cancelled"):
        mcp.servers["s"].task(task).result(PATIENCE)


def test_an_interrupt_cancels_the_task(mcp: Mcp) -> None:
    tasks: list[str] = []

    def interrupt(progress: Progress) -> None:
        tasks.extend(call.task.id for call in mcp.calls if call.task)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        mcp.s.work.options(on_progress=interrupt)(forever=True)
    wait_until_cancelled(mcp, tasks[0])
    assert mcp.s.work(steps=1).text == "worked for no one"


def test_a_cancelled_await_cancels_the_task(mcp: Mcp) -> None:
    async def main() -> str:
        has_begun = asyncio.Event()
        tool = mcp.s.work.options(on_progress=lambda _: has_begun.set())
        waiting = asyncio.ensure_future(tool.aio(forever=True))
        await asyncio.wait_for(has_begun.wait(), PATIENCE)
        [task] = [call.task.id for call in mcp.calls if call.task]
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        return task

    wait_until_cancelled(mcp, asyncio.run(main()))


def test_a_task_that_takes_too_long_is_left_to_itself(mcp: Mcp) -> None:
    call = mcp.s.work.submit(steps=30)
    task = begun(call)
    object.__setattr__(call, "options", call.options.__class__(timeout=30, max_timeout=0.3))
    with pytest.raises(CallTimeout) as caught:
        call.result(PATIENCE)
    assert rendered(caught.value) == [
        "CallTimeout: s.work: no answer within 0.3 s",
        f"  its task continues: mcp.servers['s'].task({task!r})",
    ]
    assert mcp.servers["s"].task(task).result(PATIENCE).text == "worked for no one"


def test_what_a_task_asks_for_is_answered(era: str) -> None:
    asked: list[str] = []

    def answer(question: Any) -> dict[str, str]:
        asked.append(question.message)
        return {"name": "Ada"}

    with connected({"s": offering(era=era)}, load=False) as mcp:
        mcp.on_elicitation(answer)
        mcp.load({"s": offering(era=era)})
        assert mcp.s.work(ask=True).text == "worked for Ada"
    assert asked == ["Who is it for?"]


def test_a_task_that_asks_when_no_one_can_be_asked_goes_on(mcp: Mcp) -> None:
    assert mcp.s.work(ask=True).text == "worked for no one"


def test_a_task_that_asks_for_something_the_host_does_not_support_ends_in_two_lines() -> None:
    with connected({"s": offering()}) as mcp:
        call = mcp.s.work.submit(ask="sampling")
        task = begun(call)
        with pytest.raises(CallError) as caught:
            call.result(PATIENCE)
        assert rendered(caught.value) == [
            "CallError: s.work: the server sent an input request that is not allowed: "
            "sampling/createMessage is not supported by this host",
            "  a fault of the server",
        ]
        wait_until_cancelled(mcp, task)


def test_a_task_the_server_does_not_know_ends_in_two_lines(mcp: Mcp) -> None:
    with pytest.raises(RpcError) as caught:
        mcp.servers["s"].task("nope").result(PATIENCE)
    assert rendered(caught.value) == [
        "RpcError: s.task: its task nope cannot be followed: Task not found",
        "  the server keeps a task only for some time",
    ]


def test_a_server_without_tasks_says_so() -> None:
    with connected({"m": bad(era="legacy", ours="legacy")}) as mcp, pytest.raises(CallError) as caught:
        mcp.servers["m"].task("x")
    assert rendered(caught.value) == ["CallError: m: has no tasks", "  its calls return their results directly"]


def test_a_call_whose_task_runs_on_a_server_that_is_stopped_has_lost_its_connection(era: str) -> None:
    with connected({"s": offering(era=era)}) as mcp:
        call = mcp.s.work.submit(forever=True)
        begun(call)
        stop = threading.Thread(target=mcp.stop, args=("s",))
        stop.start()
        with pytest.raises(ConnectionLost):
            call.result(PATIENCE)
        stop.join()


def test_plain_calls_of_the_same_server_are_answered_meanwhile(mcp: Mcp) -> None:
    call = mcp.s.work.submit(forever=True)
    begun(call)
    assert [mcp.s.write(uri="note://a", text="x").text for _ in range(20)] == ["done"] * 20
    call.cancel()


def test_a_server_that_answers_a_task_at_once_is_as_well(era: str) -> None:
    with connected({"s": offering("poll=1", era=era)}) as mcp:
        assert mcp.s.work(steps=0).text == "worked for no one"

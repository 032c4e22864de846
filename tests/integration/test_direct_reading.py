"""A call whose thread reads the answer itself: other messages of the server meanwhile keep their order."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ipymcp import Mcp
from ipymcp.protocol.transports.stdio import CAN_LEASE_READS
from tests.bad_servers import PATIENCE, bad, connected, log_of, scripted

pytestmark = pytest.mark.skipif(not CAN_LEASE_READS, reason="needs epoll")


def readers(mcp: Mcp, name: str) -> list[str]:
    """The names of the threads in which the messages of a server arrive from now on."""
    threads: list[str] = []
    peer = mcp._host.find(name).require()._peer
    receive, receive_own = peer.receive, peer.receive_own

    def receive_noted(*arguments: Any) -> None:
        threads.append(threading.current_thread().name)
        receive(*arguments)

    def receive_own_noted(*arguments: Any) -> bool:
        is_own = receive_own(*arguments)
        if is_own:
            threads.append(threading.current_thread().name)
        return is_own

    peer.receive, peer.receive_own = receive_noted, receive_own_noted  # type: ignore[method-assign]
    return threads


def test_an_answer_that_comes_soon_is_read_by_the_thread_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipymcp.runtime.call._DIRECT_READ_TIMEOUT", PATIENCE)  # soon, on a busy machine too
    monkeypatch.setattr("ipymcp.protocol.transports.stdio._LEASE_TIMEOUT", PATIENCE)
    with connected({"one": bad()}) as mcp:
        threads = readers(mcp, "one")
        for number in range(200):
            assert mcp.one.echo(str(number)).text == str(number)
        assert threads == ["MainThread"] * 200


def test_an_answer_that_comes_late_is_read_by_the_loop() -> None:
    with connected({"one": bad()}) as mcp:
        threads = readers(mcp, "one")
        mcp.one.sleep(0.1)
        assert threads == ["ipymcp-loop"]


def test_a_message_logged_before_an_answer_is_in_the_log_when_the_call_returns() -> None:
    logging = """
def on(method, message):
    if method == "tools/call":
        for number in range(3):
            say(method="notifications/message", params={"level": "info", "data": f"line {number}"})
        return {"content": []}
"""
    with connected({"one": scripted(logging)}) as mcp:
        for times in range(1, 30):
            mcp.one.work()
            assert log_of(mcp, "one", "server") == ["line 0", "line 1", "line 2"] * times


def test_progress_and_the_answer_keep_their_order() -> None:
    working = """
def on(method, message):
    if method == "tools/call":
        for number in range(3):
            token = message["params"]["_meta"]["progressToken"]
            say(method="notifications/progress", params={"progressToken": token, "progress": number})
        return {"content": []}
"""
    with connected({"one": scripted(working)}) as mcp:
        for _ in range(30):
            seen: list[float] = []
            mcp.one.work.options(on_progress=lambda progress, seen=seen: seen.append(progress.progress))()
            assert seen == [0, 1, 2]


def test_threads_that_call_one_server_at_once_get_their_own_answers() -> None:
    with connected({"one": bad()}) as mcp, ThreadPoolExecutor(8) as pool:
        texts = [str(number) for number in range(400)]
        assert [result.text for result in pool.map(mcp.one.echo, texts, timeout=PATIENCE)] == texts

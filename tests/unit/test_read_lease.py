"""A pipe with two readers, a waiting thread and the loop: who reads what, and that nothing is lost in between."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator

import pytest

from ipymcp.protocol.transports.stdio import CAN_LEASE_READS, LeasedReader
from tests.unit.test_pipes import PATIENCE, loop, on

__all__ = ["loop"]
pytestmark = pytest.mark.skipif(not CAN_LEASE_READS, reason="needs epoll")


class Pipe:
    """A pipe, its reader, and the chunks that its loop delivered."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.delivered: list[bytes] = []
        self.changed = threading.Event()
        self.read_end, self.end = os.pipe()
        self.reader: LeasedReader = on(loop, lambda: LeasedReader(loop, self.read_end, self._deliver))  # type: ignore[assignment]

    def _deliver(self, chunk: bytes) -> None:
        self.delivered.append(chunk)
        self.changed.set()

    def wait(self) -> None:
        assert self.changed.wait(PATIENCE)
        self.changed.clear()


@pytest.fixture
def pipe(loop: asyncio.AbstractEventLoop) -> Iterator[Pipe]:
    pipe = Pipe(loop)
    yield pipe
    with contextlib.suppress(OSError):
        os.close(pipe.end)
    on(loop, pipe.reader.close)


def never() -> bool:
    return False


def test_the_lease_holder_reads_its_answer_and_the_loop_the_rest(pipe: Pipe) -> None:
    mine: list[bytes] = []
    assert pipe.reader.take()
    os.write(pipe.end, b"answer")
    pipe.reader.read(mine.append, lambda: bool(mine), 5)
    os.write(pipe.end, b"later")
    on(pipe.loop, lambda: None)
    assert (mine, pipe.delivered) == ([b"answer"], [])
    pipe.reader.give_back()
    pipe.wait()
    assert pipe.delivered == [b"later"]


def test_there_is_one_lease(pipe: Pipe) -> None:
    assert pipe.reader.take()
    assert not pipe.reader.take()
    pipe.reader.give_back()
    assert pipe.reader.take()
    pipe.reader.give_back()


def test_reading_ends_when_its_time_has_passed(pipe: Pipe) -> None:
    assert pipe.reader.take()
    begun = time.monotonic()
    pipe.reader.read(pipe.delivered.append, never, 0.05)
    pipe.reader.give_back()
    assert 0.05 <= time.monotonic() - begun < PATIENCE
    assert pipe.delivered == []


def test_reading_does_not_begin_when_all_is_done(pipe: Pipe) -> None:
    assert pipe.reader.take()
    os.write(pipe.end, b"not mine")
    pipe.reader.read(pytest.fail, lambda: True, PATIENCE)
    pipe.reader.give_back()
    pipe.wait()
    assert pipe.delivered == [b"not mine"]


def test_the_loop_delivers_the_end(pipe: Pipe) -> None:
    mine: list[bytes] = []
    assert pipe.reader.take()
    os.write(pipe.end, b"last words")
    os.close(pipe.end)
    pipe.reader.read(mine.append, never, PATIENCE)
    assert (mine, pipe.delivered) == ([b"last words"], [])
    pipe.reader.give_back()
    pipe.wait()
    assert pipe.delivered == [b""]
    assert not pipe.reader.take()


def test_closing_waits_until_no_thread_reads(pipe: Pipe) -> None:
    assert pipe.reader.take()
    closed = asyncio.run_coroutine_threadsafe(_call(pipe.reader.close), pipe.loop)
    with pytest.raises(TimeoutError):
        closed.result(0.05)
    pipe.reader.give_back()
    closed.result(PATIENCE)
    assert not pipe.reader.take()


def test_dropping_in_a_forked_child_does_not_wait(pipe: Pipe) -> None:
    assert pipe.reader.take()
    child = os.fork()
    if child == 0:
        pipe.reader.drop()
        with contextlib.suppress(OSError):
            os.fstat(pipe.read_end)
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pipe.reader.give_back()


async def _call(function: object) -> None:
    function()  # type: ignore[operator]


def test_nothing_is_lost_or_reordered_between_a_thread_and_the_loop(pipe: Pipe) -> None:
    """One thread writes, another takes the turn again and again; the loop reads in between."""
    read: list[bytes] = []
    count = 20_000
    done = threading.Event()

    def write() -> None:
        for number in range(count):
            os.write(pipe.end, b"%d\n" % number)

    def deliver(chunk: bytes) -> None:  # both readers hold the turn here: one list takes all
        read.append(chunk)
        if chunk.endswith(b"%d\n" % (count - 1)):
            done.set()

    pipe.reader._on_chunk = deliver
    writer = threading.Thread(target=write)
    writer.start()
    taken = 0
    while not done.is_set():
        if pipe.reader.take():
            taken += 1
            pipe.reader.read(deliver, done.is_set, 0.001)
            pipe.reader.give_back()
    writer.join()
    assert taken > 0
    assert b"".join(read) == b"".join(b"%d\n" % number for number in range(count))

"""Our ends of a child's pipes: whole frames in order from any number of senders to a slow reader."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from ipymcp.errors import ConnectionLost
from ipymcp.protocol.transports.pipes import LoopReader, LoopWriter, ThreadReader, ThreadWriter

pytestmark = pytest.mark.posix

WRITERS = pytest.mark.parametrize("kind", [LoopWriter, ThreadWriter])
READERS = pytest.mark.parametrize("kind", [LoopReader, ThreadReader])
PATIENCE = 20.0


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def on(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> object:
    """Run it on the loop's thread and give what it gives."""

    async def run() -> object:
        return function()

    return asyncio.run_coroutine_threadsafe(run(), loop).result(PATIENCE)


@contextlib.contextmanager
def writing(
    kind: type[LoopWriter] | type[ThreadWriter], loop: asyncio.AbstractEventLoop, broken: Callable[[], None] = bool
) -> Iterator[tuple[LoopWriter | ThreadWriter, int]]:
    read, write = os.pipe()
    writer = kind(loop, write, broken)
    try:
        yield writer, read
    finally:
        on(loop, writer.close)
        with contextlib.suppress(OSError):
            os.close(read)


def read_lines(fd: int, count: int, size: int = 1 << 16) -> list[bytes]:
    data, ends = bytearray(), 0
    while ends < count:
        chunk = os.read(fd, size)
        ends += chunk.count(b"\n")
        data += chunk
    return bytes(data).splitlines()


@WRITERS
def test_no_frame_of_sixteen_senders_is_torn_or_out_of_order(kind: type, loop: asyncio.AbstractEventLoop) -> None:
    sizes = [0, 10, 4094, 4095, 4096, 5000, 70_000]
    with writing(kind, loop) as (writer, fd):

        def send(sender: int) -> None:
            for number in range(30):
                letter = bytes([97 + sender])
                writer.send(b"%d %d %s" % (sender, number, letter * sizes[(sender + number) % len(sizes)]))

        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(16)]
        for thread in threads:
            thread.start()
        lines = read_lines(fd, 16 * 30, 3000)
        for thread in threads:
            thread.join()
        assert len(lines) == 16 * 30
        for sender in range(16):
            mine = [line.split(b" ") for line in lines if line.startswith(b"%d " % sender)]
            assert [int(number) for _, number, _ in mine] == list(range(30))
            assert all(
                text == bytes([97 + sender]) * sizes[(sender + number) % len(sizes)]
                for number, (_, _, text) in enumerate(mine)
            )
        assert writer.queued == 0


@WRITERS
def test_a_frame_larger_than_the_pipe_is_queued_and_counted(kind: type, loop: asyncio.AbstractEventLoop) -> None:
    with writing(kind, loop) as (writer, fd):
        writer.send(b"x" * 1_000_000)
        writer.send(b"small")
        assert 900_000 <= writer.queued <= 1_000_007
        assert [len(line) for line in read_lines(fd, 2)] == [1_000_000, 5]


@WRITERS
def test_a_closed_writer_refuses_and_its_pipe_is_closed(kind: type, loop: asyncio.AbstractEventLoop) -> None:
    with writing(kind, loop) as (writer, fd):
        writer.send(b"last")
        assert read_lines(fd, 1) == [b"last"]
        on(loop, writer.close)
        on(loop, writer.close)
        assert os.read(fd, 1) == b""
        with pytest.raises(ConnectionLost, match="the connection is closed"):
            writer.send(b"more")


@WRITERS
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_closed_read_end_is_reported_once_and_later_frames_are_dropped(
    kind: type, size: int, loop: asyncio.AbstractEventLoop
) -> None:
    broken = threading.Event()
    with writing(kind, loop, broken.set) as (writer, fd):
        os.close(fd)
        writer.send(b"x" * size)
        assert broken.wait(PATIENCE)
        broken.clear()
        writer.send(b"more")
        on(loop, lambda: None)
        assert not broken.is_set()
        assert writer.queued == 0


def test_a_small_frame_is_written_by_its_sender_when_nothing_is_queued() -> None:
    class NoLoop:
        def call_soon_threadsafe(self, *_: object) -> None:
            pytest.fail("the loop was needed")

        def is_closed(self) -> bool:
            return True

    read, write = os.pipe()
    writer = LoopWriter(NoLoop(), write, bool)
    writer.send(b"small")
    assert os.read(read, 100) == b"small\n"
    writer.close()
    os.close(read)


@contextlib.contextmanager
def reading(
    kind: type[LoopReader] | type[ThreadReader], loop: asyncio.AbstractEventLoop
) -> Iterator[tuple[LoopReader | ThreadReader, int, list[bytes], threading.Event]]:
    read, write = os.pipe()
    chunks: list[bytes] = []
    ended = threading.Event()

    def deliver(chunk: bytes) -> None:
        chunks.append(chunk)
        if not chunk:
            ended.set()

    reader = on(loop, lambda: kind(loop, read, deliver))
    try:
        yield reader, write, chunks, ended
    finally:
        with contextlib.suppress(OSError):
            os.close(write)
        on(loop, reader.close)


@READERS
def test_a_reader_delivers_all_bytes_and_then_the_end(kind: type, loop: asyncio.AbstractEventLoop) -> None:
    data = os.urandom(3_000_000)
    with reading(kind, loop) as (_, fd, chunks, ended):
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.close(fd)
        assert ended.wait(PATIENCE)
        assert b"".join(chunks) == data
        assert chunks.count(b"") == 1


@READERS
def test_a_closed_reader_delivers_nothing_more(kind: type, loop: asyncio.AbstractEventLoop) -> None:
    with reading(kind, loop) as (reader, fd, chunks, ended):
        on(loop, reader.close)
        on(loop, reader.close)
        with contextlib.suppress(BrokenPipeError):
            os.write(fd, b"late")
        on(loop, lambda: None)
        assert chunks == []
        assert not ended.is_set()

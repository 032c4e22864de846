"""The splitter of a byte stream into lines."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.protocol.transports.pipes import LineSplitter, Oversized


def feed_all(splitter: LineSplitter, data: bytes, size: int) -> list[bytes | Oversized]:
    lines: list[bytes | Oversized] = []
    for start in range(0, len(data), size):
        lines += splitter.feed(data[start : start + size])
    return lines


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.integers(1, 40))
def test_the_lines_do_not_depend_on_how_the_stream_is_split(lines: list[bytes], size: int) -> None:
    expected = [stripped for line in lines if (stripped := line.removesuffix(b"\r"))]
    splitter = LineSplitter(100)
    assert feed_all(splitter, b"".join(line + b"\n" for line in lines), size) == expected
    assert splitter.finish() == b""


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_unfinished_line_is_returned_at_the_end(size: int) -> None:
    splitter = LineSplitter(100)
    assert feed_all(splitter, b"whole\r\nrest", size) == [b"whole"]
    assert splitter.finish() == b"rest"
    assert splitter.finish() == b""


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_line_over_the_limit_is_reported_with_its_head_and_tail_only(size: int) -> None:
    long = b"HEAD" + b"x" * 20_000 + b"TAIL"
    lines = feed_all(LineSplitter(10_000), b"a\n" + long + b"\nb\n", size)
    assert lines[0] == b"a"
    assert lines[-1] == b"b"
    *early, last = lines[1:-1]
    assert isinstance(last, Oversized)
    assert last.done
    assert last.size == len(long)
    assert (last.head, last.tail) == (long[:4096], long[-4096:])
    assert [(over.done, over.head) for over in early] == ([(False, long[:4096])] if size < 10_000 else [])


def test_a_line_of_exactly_the_limit_is_whole() -> None:
    assert LineSplitter(5).feed(b"12345\n123456\n")[0] == b"12345"
    assert isinstance(LineSplitter(5).feed(b"123456\n")[0], Oversized)


def test_an_unfinished_oversized_line_is_dropped_at_the_end() -> None:
    splitter = LineSplitter(5)
    splitter.feed(b"1234567890")
    assert splitter.finish() == b""


@pytest.mark.timed
def test_the_time_is_linear_in_the_size_of_a_line() -> None:
    def seconds(size: int) -> float:
        splitter, chunk = LineSplitter(1 << 30), b"x" * 65_536
        began = time.process_time()
        for _ in range(size // len(chunk)):
            splitter.feed(chunk)
        (line,) = splitter.feed(b"\n")
        assert len(line) == size // len(chunk) * len(chunk)
        return time.process_time() - began

    small, large = (min(seconds(size) for _ in range(3)) for size in (8_000_000, 64_000_000))
    assert large < 8 * small * 4 + 0.05

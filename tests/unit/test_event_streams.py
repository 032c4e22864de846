"""The parser of server-sent events."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.protocol.transports.http import Event, EventParser
from ipymcp.protocol.transports.pipes import Oversized


def parse(data: bytes, size: int | None = None, limit: int = 1000) -> list[Event | Oversized]:
    parser = EventParser(limit)
    events: list[Event | Oversized] = []
    for start in range(0, len(data), size or max(1, len(data))):
        events += parser.feed(data[start : start + (size or len(data))])
    return events


def without_early_reports(events: list[Event | Oversized]) -> list[object]:
    """The events without what depends on how the stream was split."""
    whole = [event for event in events if not isinstance(event, Oversized) or event.done]
    return [(event.size, event.tail) if isinstance(event, Oversized) else event for event in whole]


PIECES = [
    b"data: {}", b"data:x", b"data", b"data:", b"data:  two", b"dat", b"database: no", b"event: endpoint", b"event",
    b"id: 7", b"id", b"id: a\0b", b"retry: 250", b"retry: soon", b": comment", b"unknown: field", b"\xef\xbb\xbf",
    b"data: \xff\xfe", b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\r\r",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES)), st.lists(st.integers(1, 9), min_size=1))
def test_the_events_do_not_depend_on_how_the_stream_is_split(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces)
    whole, cut = EventParser(10), EventParser(10)
    expected = whole.feed(data)
    events: list[Event | Oversized] = []
    start = 0
    while start < len(data):
        size = sizes[start % len(sizes)]
        events += cut.feed(data[start : start + size])
        start += size
    assert without_early_reports(events) == without_early_reports(expected)
    assert (cut.last_id, cut.retry) == (whole.last_id, whole.retry)


@pytest.mark.parametrize("size", [1, 2, 3, None])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_a_byte_order_mark_and_comments_are_read(end: bytes, size: int | None) -> None:
    lines = [b"\xef\xbb\xbf: hello", b"event: greeting", b"data: a", b"data:b", b"", b"data: c", b"", b"data: cut off"]
    assert parse(end.join(lines), size) == [Event(b"a\nb", "greeting"), Event(b"c", "message")]


def test_the_last_id_is_that_of_the_last_complete_event() -> None:
    parser = EventParser(100)
    assert parser.feed(b"id: 1\ndata:\n\nid: 2\ndata: x\n") == [Event(b"", "message")]
    assert parser.last_id == "1"
    assert parser.feed(b"\ndata: y\n\n") == [Event(b"x", "message"), Event(b"y", "message")]
    assert parser.last_id == "2"
    parser.feed(b"id: with\0nul\n\n")
    assert parser.last_id == "2"
    parser.feed(b"id\n\n")
    assert parser.last_id == ""


def test_a_block_without_data_is_not_an_event() -> None:
    assert parse(b"event: nothing\n\nid: 5\n\ndata: x\n\n") == [Event(b"x", "message")]


@pytest.mark.parametrize(("line", "retry"), [(b"250", 0.25), (b"0", 0.0), (b"-1", None), (b"1.5", None), (b"", None)])
def test_retry_is_milliseconds_and_nothing_else(line: bytes, retry: float | None) -> None:
    parser = EventParser(100)
    parser.feed(b"retry: " + line + b"\n")
    assert parser.retry == retry


@pytest.mark.parametrize("size", [1, 7, 4096, None])
def test_an_event_over_the_limit_is_reported_with_its_head_and_tail_only(size: int | None) -> None:
    long = b"HEAD" + b"x" * 20_000 + b"TAIL"
    events = parse(b"data: a\n\ndata: " + long + b"\n\ndata: b\n\n", size, limit=10_000)
    assert (events[0], events[-1]) == (Event(b"a", "message"), Event(b"b", "message"))
    early, last = events[1:-1]
    assert isinstance(early, Oversized)
    assert isinstance(last, Oversized)
    assert (early.done, early.head) == (False, long[:4096])
    assert (last.done, last.head, last.tail, last.size) == (True, long[:4096], long[-4096:], len(long))


def test_an_event_of_exactly_the_limit_is_whole() -> None:
    assert parse(b"data: 12345\n\n", 1, limit=5) == [Event(b"12345", "message")]
    assert parse(b"data: 12\ndata: 45\n\n", 1, limit=5) == [Event(b"12\n45", "message")]
    assert isinstance(parse(b"data: 12\ndata: 456\n\n", 1, limit=5)[0], Oversized)


def test_a_line_without_data_may_have_any_length() -> None:
    parser = EventParser(10)
    for _ in range(100):
        assert parser.feed(b":" + b"x" * 10_000) == []
    assert len(parser._line) < 100_000
    assert parser.feed(b"\ndata: a\n\n") == [Event(b"a", "message")]


def test_the_parsing_time_is_linear() -> None:
    def seconds(size: int) -> float:
        stream = b"data: " + b"x" * size + b"\n\n"
        begun = time.process_time()  # what runs beside this test counts for nothing
        parser = EventParser(1 << 30)
        assert sum(len(parser.feed(stream[start : start + 65_536])) for start in range(0, len(stream), 65_536)) == 1
        return time.process_time() - begun

    small = min(seconds(8_000_000) for _ in range(3))
    assert min(seconds(64_000_000) for _ in range(3)) < 40 * small

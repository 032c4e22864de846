"""A server's log: lines are kept up to a limit, counted, and mirrored to loggers."""

import logging
import threading

import pytest

from ipymcp.masking import masks
from ipymcp.runtime.events import MAX_LINE, RollingLog


def texts(log: RollingLog) -> list[str]:
    return [line.text for line in log.tail()]


def test_the_last_lines_are_kept_and_all_are_counted() -> None:
    log = RollingLog("a", 10)
    for chunk in range(100):
        log.add_stderr([f"{chunk}.{line}" for line in range(7)])
    assert log.total == 700
    assert len(log) == 10
    assert texts(log) == [f"98.{line}" for line in range(4, 7)] + [f"99.{line}" for line in range(7)]
    log.add_stderr([str(line) for line in range(25)])
    assert texts(log) == [str(line) for line in range(15, 25)]


def test_lines_of_all_sources_are_kept_in_order_of_arrival() -> None:
    log = RollingLog("a", 10)
    log.add_stderr(["1", "2"])
    log.add("server", "warning", "3")
    log.add_stderr(["4"])
    assert [(line.source, line.level, line.text) for line in log.tail()] == [
        ("stderr", "info", "1"),
        ("stderr", "info", "2"),
        ("server", "warning", "3"),
        ("stderr", "info", "4"),
    ]
    assert log.last_stderr(2) == ("2", "4")
    assert log.last_stderr(2, since=3) == ("4",)
    assert [line.text for line in log.tail(1, "server")] == ["3"]


def test_long_lines_are_cut_and_secrets_masked() -> None:
    log = RollingLog("a", 10)
    masks.add("a-secret-of-the-log")
    log.add_stderr(["x" * 5_000, "token a-secret-of-the-log"])
    assert texts(log) == [f"{'x' * MAX_LINE}… (5,000 characters)", "token [secret]"]


def test_lines_are_mirrored_to_loggers_with_a_listener(caplog: pytest.LogCaptureFixture) -> None:
    log = RollingLog("mirrored", 10)
    with caplog.at_level(logging.INFO, "ipymcp.server.mirrored"):
        log.add_stderr(["one", "two"])
        assert caplog.messages == ["stderr: one", "stderr: two"]


def test_a_log_can_be_read_from_any_thread() -> None:
    log = RollingLog("a", 100)
    over = threading.Event()
    counts: list[int] = []

    def read() -> None:
        while not over.is_set():
            counts.append(len(log.tail()))

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(2_000):
        log.add_stderr(["a", "b", "c"])
    over.set()
    thread.join()
    assert log.total == 6_000
    assert max(counts, default=0) <= 100
    assert len(log) == 100

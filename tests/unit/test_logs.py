"""A server's log: lines are kept up to a limit, counted, and mirrored to loggers."""

import logging
import queue
import threading
from logging.handlers import QueueHandler

import pytest

from ipymcp.masking import masks
from ipymcp.runtime.events import MAX_LINE, RollingLog, stderr_level


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


@pytest.mark.parametrize(
    ("owner", "records"), [("", []), ("ipymcp.server", [("INFO", "stderr: one"), ("CRITICAL", "stderr: CRITICAL: 2")])]
)
def test_lines_go_to_handlers_of_the_servers_loggers_and_not_to_those_of_the_program(
    owner: str, records: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, logger, heard = RollingLog("mirrored", 10), logging.getLogger(owner), queue.SimpleQueue[logging.LogRecord]()
    monkeypatch.setattr(logger, "handlers", [QueueHandler(heard)])
    monkeypatch.setattr(logging.getLogger("ipymcp.server.mirrored"), "level", logging.INFO)
    log.add_stderr(["one", "CRITICAL: 2"])
    said = [heard.get() for _ in range(heard.qsize())]
    assert [(record.levelname, record.getMessage()) for record in said] == records


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("ERROR:root:it broke", "error"),
        ("ERROR it broke", "error"),
        ("[11/28/26 10:00:00] ERROR    it broke          server.py:12", "error"),
        ("                    CRITICAL it broke", "critical"),
        ("2026-11-28 10:00:00,123 - my-server - ERROR - it broke", "error"),
        ("2026-11-28 10:00:00,123 [ERROR] it broke", "error"),
        ("[2026-11-28 10:00:00,123] ERROR in app: it broke", "error"),
        ("2026-11-28T10:00:00.000Z | WARN     | a:b:1 - careful", "warning"),
        ("FATAL: it broke", "critical"),
        ("INFO:     ERROR is a word here", "info"),
        ("DEBUG: details", "debug"),
        ("ERRORS: 0", "info"),
        ("ERROR_LOG=/tmp/errors", "info"),
        ("no ERROR here", "info"),
        ("", "info"),
    ],
)
def test_a_line_of_standard_error_has_the_level_that_it_begins_with(line: str, level: str) -> None:
    assert stderr_level(line) == level


def test_the_tail_can_be_limited_to_a_level() -> None:
    log = RollingLog("a", 10)
    log.add_stderr(["ERROR: 1", "2", "WARNING: 3"])
    log.add("server", "emergency", "4")
    log.add("server", "unheard-of", "5")
    assert [line.text for line in log.tail(level="warning")] == ["ERROR: 1", "WARNING: 3", "4"]
    assert [line.text for line in log.tail(2, level="warning")] == ["WARNING: 3", "4"]
    assert (log.last_error(), log.last_error(since=1)) == ("ERROR: 1", "")


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

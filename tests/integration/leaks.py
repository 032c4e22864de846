"""Leaks that a test must not leave: descriptors of pipes and loops, complaints of asyncio."""

import functools
import gc
import logging
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_leaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fails the test that leaves a pipe, a pidfd or a loop open, or makes asyncio complain."""
    _freeze()
    before = _descriptors()
    yield
    gc.collect()
    left = {link: fd for link, fd in _descriptors().items() if link not in before}
    assert not left, f"still open: {left}"
    complaints = [record.getMessage() for record in caplog.get_records("call") if _is_complaint(record)]
    assert not complaints


@functools.cache
def _freeze() -> None:
    """Keep what was imported out of the later collections, each of which would take 0.4 s."""
    gc.collect()
    gc.freeze()


def _is_complaint(record: logging.LogRecord) -> bool:
    return record.name == "asyncio" and record.levelno >= logging.ERROR


def _descriptors() -> dict[str, int]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # the listing's own
            continue
        if link.startswith(("pipe:", "socket:", "anon_inode:")):
            found[link if not link.startswith("anon_inode:") else f"{link}#{name}"] = int(name)
    return found

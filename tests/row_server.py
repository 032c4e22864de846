"""The server of the tests of maps, `servers/rows.py`, and the calls that it records."""

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.processes import wait_until

SERVER = str(Path(__file__).parent / "servers" / "rows.py")
HELD = 60
"""Seconds that a call takes which a test holds up until `hurry`."""


def server(record: Path, *words: str, **more: Any) -> dict[str, Any]:
    """Its definition; `more` are other members."""
    return {"rows": {"command": sys.executable, "args": [SERVER, str(record), *words], "era": "legacy", **more}}


def keys(count: int) -> list[str]:
    """Rows for a map: the numbers from 0 on as text."""
    return [str(number) for number in range(count)]


def calls(record: Path) -> Counter[str]:
    """The number of calls by tool and key."""
    return Counter(record.read_text().split("\n")[:-1]) if record.exists() else Counter()


def hurry(record: Path) -> None:
    """Let no call take time from now on."""
    Path(f"{record}.hurry").touch()


def held_from(number: int, count: int) -> list[dict[str, Any]]:
    """Rows, those from a number on of calls that are held up."""
    return [{"key": str(row), "seconds": 0 if row < number else HELD} for row in range(count)]


def when(condition: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Do something in another thread once a condition holds."""

    def wait_and_act() -> None:
        wait_until(condition)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def after_calls(count: int, record: Path, act: Callable[[], object]) -> threading.Thread:
    """Do something in another thread once the server has received so many calls."""
    return when(lambda: calls(record).total() >= count, act)


def interrupt() -> None:
    """Interrupt this process."""
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_after(count: int, record: Path) -> threading.Thread:
    """Interrupt this process once the server has received so many calls."""
    return after_calls(count, record, interrupt)

"""The server of the tests of maps, `servers/rows.py`, and the calls that it records."""

import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.processes import wait_until

SERVER = str(Path(__file__).parent / "servers" / "rows.py")


def server(record: Path, *words: str, **more: Any) -> dict[str, Any]:
    """Its definition; `more` are other members."""
    return {"rows": {"command": sys.executable, "args": [SERVER, str(record), *words], "era": "legacy", **more}}


def calls(record: Path) -> Counter[str]:
    """The number of calls by tool and key."""
    return Counter(record.read_text().split("\n")[:-1]) if record.exists() else Counter()


def interrupt_after(count: int, record: Path) -> threading.Thread:
    """Interrupt this process once the server has received so many calls."""

    def interrupt() -> None:
        wait_until(lambda: sum(calls(record).values()) >= count)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    return thread

"""The server of the tests of maps, `servers/rows.py`, and the calls that it records."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

SERVER = str(Path(__file__).parent / "servers" / "rows.py")


def server(record: Path, *words: str, **more: Any) -> dict[str, Any]:
    """Its definition; `more` are other members."""
    return {"rows": {"command": sys.executable, "args": [SERVER, str(record), *words], "era": "legacy", **more}}


def calls(record: Path) -> Counter[str]:
    """The number of calls by tool and key."""
    return Counter(record.read_text().split("\n")[:-1])

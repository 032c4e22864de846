"""Reads back what the tap wrote: the frames of each session, in order."""

import base64
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Record:
    """One frame. `number` counts the session's frames from 1; `data` is None where it was too large to keep."""

    number: int
    direction: str
    at: float
    data: bytes | None


def read(directory: Path) -> dict[str, list[Record]]:
    """Every session under `directory`: its tag and its process's file, and its frames."""
    sessions: dict[str, list[Record]] = {}
    times: Counter[str] = Counter()
    for path in sorted(directory.glob("*.jsonl")):
        lines = path.read_bytes().split(b"\n")
        for line in lines[:-1]:  # what follows the last newline was cut off with its process
            entry = json.loads(line)
            name = f"{entry['session']} ({path.stem})"
            if entry["direction"] == "reopened":
                times[name] += 1
                continue
            records = sessions.setdefault(name + "'" * times[name], [])
            records.append(Record(len(records) + 1, entry["direction"], entry.get("at", 0.0), _data(entry)))
    return sessions


def _data(entry: dict[str, str]) -> bytes | None:
    if "frame" in entry:
        return entry["frame"].encode("utf-8", "surrogatepass")
    return base64.b64decode(entry["base64"]) if "base64" in entry else None

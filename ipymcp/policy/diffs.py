"""What differs between two definitions of a tool, for people: nothing that differs may look the same."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from ipymcp.masking import mask
from ipymcp.policy.findings import skeleton

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["diff"]

_BLANKS = re.compile(r"[^\S \n]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")
"""Blanks that look like another, and what moves the cursor."""
_LONG = 160
_AROUND = 50
"""Characters of a long line that are shown on either side of what differs."""


def diff(old: str, new: str) -> list[str]:
    """What differs between two canonical definitions: unified, three lines around each change."""
    import difflib  # by whoever looks

    lines = list(difflib.unified_diff(_lines(old), _lines(new), "pinned", "now", lineterm=""))
    return [*lines[:2], *_readable(lines[2:])]


def _lines(text: str) -> list[str]:
    """One line a value, but the description as its own lines: a change in it is to be read."""
    definition = json.loads(mask(text))  # as what is kept is
    description = definition.pop("description", None)
    told = [] if description is None else str(description).split("\n")
    shown = json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False).split("\n")
    return [_BLANKS.sub(_spelled, line) for line in (*(f"description: {line}" for line in told), *shown)]


def _readable(lines: Sequence[str]) -> Iterator[str]:
    """The same with each line that replaces another beside it compared to that."""
    place = 0
    while place < len(lines):
        gone = _run(lines, place, "-")
        come = _run(lines, place + len(gone), "+")
        if len(gone) == len(come) and gone:
            pairs = [_compared(old, new) for old, new in zip(gone, come, strict=True)]
            yield from (old for old, _ in pairs)
            yield from (new for _, new in pairs)
        else:
            yield from (*gone, *come)
        place += len(gone) + len(come)
        if not gone and not come:
            yield lines[place]
            place += 1


def _run(lines: Sequence[str], start: int, mark: str) -> list[str]:
    end = start
    while end < len(lines) and lines[end].startswith(mark):
        end += 1
    return list(lines[start:end])


def _compared(old: str, new: str) -> tuple[str, str]:
    """Two lines, each with its mark, so that one sees where they differ."""
    before = _common(old[1:], new[1:]) + 1
    behind = _common(old[: before - 1 : -1], new[: before - 1 : -1])
    looks_same = skeleton(old) == skeleton(new)  # letters of other scripts, say, or characters that nobody sees
    return _shown(old, before, behind, looks_same), _shown(new, before, behind, looks_same)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (mine, theirs) in pairs if mine != theirs), min(len(one), len(other)))


def _shown(line: str, before: int, behind: int, looks_same: bool) -> str:
    """A line around the part by which it differs."""
    head, part, tail = line[1:before], line[before : len(line) - behind], line[len(line) - behind :]
    if looks_same:
        part = part.encode("ascii", "backslashreplace").decode()
    if len(line) > _LONG:
        head = head if len(head) <= _AROUND else f"…{head[-_AROUND:]}"
        tail = tail if len(tail) <= _AROUND else f"{tail[:_AROUND]}…"
    return f"{line[0]}{head}{part}{tail}"


def _spelled(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")

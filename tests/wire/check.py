"""Checks the frames that the tap recorded. Runs in the test servers' environment, with the official wire types.

    .envs/sdk2/bin/python tests/wire/check.py DIR

Prints a line for each violation by ipymcp or its own servers, then those by other servers, then a summary.
Exits with 1 on a violation.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from incoming import Incoming
from outgoing import Outgoing
from session import Fault, Session, requests
from specification import Specification
from transcript import Record, read

OURS = ("ipymcp-demo",)
MISBEHAVING = ("misbehaving*", "ipymcp-misbehaving*")
WARNINGS_SHOWN = 20
EXCERPT = 160


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check recorded MCP frames against the specification.")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--ours", action="append", default=list(OURS), metavar="GLOB", help="servers whose frames must be right too"
    )
    parser.add_argument(
        "--misbehaving",
        action="append",
        default=list(MISBEHAVING),
        metavar="GLOB",
        help="servers whose frames are not looked at",
    )
    options = parser.parse_args(arguments)
    specification = Specification()
    report = Report(options.ours, options.misbehaving)
    for name, records in read(options.directory).items():
        session, faults = judge(records, specification)
        report.add(name, session, records, faults)
    report.print()
    return 1 if report.violations else 0


def judge(records: Sequence[Record], specification: Specification) -> tuple[Session, list[Fault]]:
    """Judge a session's frames in order."""
    session = Session(asked=requests(records))
    judges = {"out": Outgoing(session, specification), "in": Incoming(session, specification)}
    faults = [
        Fault(record.number, record.direction, rule, text)
        for record in records
        if record.data is not None
        for rule, text in judges[record.direction].judge(record.data, record.at)
    ]
    return session, faults


class Report:
    """Sorts faults into violations and the servers' own, and counts."""

    def __init__(self, ours: Sequence[str], misbehaving: Sequence[str]) -> None:
        self._ours, self._misbehaving = ours, misbehaving
        self.violations: list[str] = []
        self._warnings: list[str] = []
        self._frames: Counter[str] = Counter()
        self._revisions: Counter[str] = Counter()

    def add(self, name: str, session: Session, records: Sequence[Record], faults: Iterable[Fault]) -> None:
        self._frames.update(record.direction for record in records)
        self._revisions[session.revision] += 1
        names = (name.partition("#")[0].partition(" (")[0], session.server)
        for fault in faults:
            line = _line(name, fault, records[fault.number - 1])
            if fault.direction == "out" or _matches(names, self._ours):
                self.violations.append(f"VIOLATION {line}")
            elif not _matches(names, self._misbehaving):
                self._warnings.append(f"server's {line}")

    def print(self) -> None:
        shown, hidden = self._warnings[:WARNINGS_SHOWN], len(self._warnings[WARNINGS_SHOWN:])
        for line in [*self.violations, *shown, *([f"server's … and {hidden} more"] if hidden else [])]:
            print(line)
        revisions = ", ".join(f"{revision}: {count}" for revision, count in sorted(self._revisions.items()))
        print(
            f"{self._revisions.total()} sessions{f' ({revisions})' if revisions else ''}, {self._frames['out']} frames "
            f"out, {self._frames['in']} in; {len(self.violations)} violations, {len(self._warnings)} by servers"
        )


def _matches(names: Iterable[str], globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def _line(name: str, fault: Fault, record: Record) -> str:
    frame = (record.data or b"").decode(errors="replace")
    excerpt = frame if len(frame) <= EXCERPT else frame[:EXCERPT] + "…"
    return f"{name} frame {fault.number} {fault.direction} [{fault.rule}] {fault.text} | {excerpt!r}"


if __name__ == "__main__":
    sys.exit(main())

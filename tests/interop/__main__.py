"""Try ipymcp with many servers of others, and write what came of it to docs/interoperability.md.

    python -m tests.interop                    all of them, and the page
    python -m tests.interop '*chart' mcp-proxy those, without the page

One line for each server and transport. The exit status is not 0 if one does not do what it did before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from ipymcp import Mcp, McpError, ToolError
from tests.environments import ROOT
from tests.interop.candidates import CANDIDATES, Candidate
from tests.interop.features import User
from tests.interop.page import page

PAGE = ROOT / "docs" / "interoperability.md"
LONGEST = 60


@dataclass(frozen=True)
class Row:
    """What came of one candidate."""

    candidate: Candidate
    era: str = ""
    tools: int = 0
    resources: int = 0
    templates: int = 0
    prompts: int = 0
    outcome: str = ""
    problem: str = ""
    """Why it is not as it should be; empty if it is."""

    def __str__(self) -> str:
        counts = (
            f"{self.tools:3} tools {self.resources:3} resources {self.templates:2} templates {self.prompts:2} prompts"
        )
        verdict = f"FAILED: {self.problem}" if self.problem else self.outcome
        return f"{self.candidate.package:<48} {self.candidate.transport:<5} {self.era:<10} {counts}  {verdict}"


def try_out(candidate: Candidate) -> Row:
    """Start a server, load it, count what it has, make its call."""
    with tempfile.TemporaryDirectory(prefix="ipymcp-interop-", ignore_cleanup_errors=True) as name:
        try:
            with candidate.start(Path(name)) as definition, User().connect(candidate.name, definition) as mcp:
                return look(candidate, mcp)
        except (McpError, AssertionError) as error:
            return Row(candidate, problem=shortened(str(error)))


def look(candidate: Candidate, mcp: Mcp) -> Row:
    server = mcp[candidate.name]
    problem = ""
    try:
        outcome = server[candidate.tool].call(candidate.arguments).text
    except ToolError as error:
        outcome = f"isError: {error.result.text}"
    if candidate.answer not in outcome:
        problem = f"{candidate.tool} answers {outcome!r}, and not {candidate.answer!r}"
    return Row(
        candidate,
        era=mcp.servers[candidate.name].protocol_version,
        tools=len(server),
        resources=len(server.resources),
        templates=len(server.resources.templates),
        prompts=len(server.prompts),
        outcome=shortened(outcome),
        problem=problem,
    )


def shortened(text: str) -> str:
    """The first line of it, not too long."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def main(patterns: Sequence[str]) -> int:
    """Try out what the patterns select, all if there are none. Give the exit status."""
    rows: list[Row] = []
    started = time.monotonic()
    for candidate in CANDIDATES:
        if not patterns or any(fnmatch(candidate.package, pattern) for pattern in patterns):
            rows.append(try_out(candidate))
            print(rows[-1], flush=True)
    ...
    if not patterns:
        PAGE.write_text(page(rows))
    bad = sum(bool(row.problem) for row in rows)
    print(f"\n{len(rows) - bad} of {len(rows)} as they should be, in {time.monotonic() - started:.0f} s")
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", metavar="PACKAGE")
    sys.exit(main(parser.parse_args().patterns))

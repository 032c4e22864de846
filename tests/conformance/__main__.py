"""Run the official suite's client scenarios against ipymcp, one process a scenario.

    python -m tests.conformance                 both scored sets, and what ipymcp implements beside them
    python -m tests.conformance 'auth/*'        those scenarios of it

One line a scenario; the whole output of one that fails; the counts at the end. The exit status is not 0 if any failed.
"""

import argparse
import compileall
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.environments import ROOT, environment

AT_ONCE = 2
SECONDS = 30
"""What a client may take; it is the suite's own limit."""

REVISIONS = ("2025-11-25", "2026-07-28")

BESIDE = (
    ("auth/client-credentials-jwt", "2026-07-28"),
    ("auth/client-credentials-basic", "2026-07-28"),
    ("auth/enterprise-managed-authorization", "2026-07-28"),
    ("auth/2025-03-26-oauth-metadata-backcompat", "2025-03-26"),
    ("auth/2025-03-26-oauth-endpoint-fallback", "2025-03-26"),
    ("json-schema-2020-12-preservation", "2025-11-25"),
    ("json-schema-2020-12-preservation", "2026-07-28"),
)
"""What ipymcp implements and no revision's score counts: extensions, older revisions, what came after the release."""

MEASURES_TIME = ("sse-retry",)
"""Scenarios that allow a delay of 0.2 s: nothing runs beside them."""


@dataclass(frozen=True)
class Scenario:
    """One scenario at one revision of the protocol."""

    name: str
    revision: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of a scenario."""

    scenario: Scenario
    has_passed: bool
    checks: Counter[str]
    seconds: float
    output: str

    @property
    def line(self) -> str:
        """The one line that is shown of it."""
        counts = [f"{self.checks['SUCCESS']} passed"]
        counts += [
            f"{self.checks[status]} {status.lower()}" for status in ("FAILURE", "WARNING") if self.checks[status]
        ]
        verdict = "ok    " if self.has_passed else "FAILED"
        return f"  {verdict} {self.scenario.name:<42} {', '.join(counts):<30} {self.seconds:4.1f} s"


class Suite:
    """The suite, as it is installed in `.envs/conformance`."""

    def __init__(self, results: Path) -> None:
        modules = environment("conformance").folder / "node_modules"
        self._command = (
            str(modules / "node" / "bin" / "node"),
            str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
        )
        self._results = results
        client = shlex.join((sys.executable, str(ROOT / "tests" / "conformance" / "client.py")))
        self._client = f"exec {client}"  # in place of the shell, so that the suite can end it

    def scored(self, revision: str) -> list[Scenario]:
        """The client scenarios that a revision requires, in the suite's order."""
        listed = self._run("list", "--client", "--requirements", revision)
        if listed.returncode:
            raise SystemExit(listed.stdout + listed.stderr)
        required = listed.stdout.partition("Client scenarios")[2].partition("\n\n")[0]
        names = [line.removeprefix("  - ") for line in required.splitlines() if line.startswith("  - ")]
        return [Scenario(name, revision) for name in names]

    def run(self, scenario: Scenario) -> Outcome:
        """Run one scenario to its end."""
        folder = self._results / scenario.revision / scenario.name
        started = time.monotonic()
        done = self._run(
            "client",
            *("--command", self._client, "--scenario", scenario.name, "--spec-version", scenario.revision),
            *("--force", "--timeout", str(SECONDS * 1000), "--output-dir", str(folder)),
            state=folder / "state",
        )
        seconds = time.monotonic() - started
        checks: list[Any] = [each for path in folder.rglob("checks.json") for each in json.loads(path.read_text())]
        return Outcome(
            scenario,
            has_passed=done.returncode == 0 and bool(checks),
            checks=Counter(check["status"] for check in checks),
            seconds=seconds,
            output="\n".join([*_complaints(checks, done.stderr), *_written(folder)]),
        )

    def _run(self, *arguments: str, state: Path | None = None) -> subprocess.CompletedProcess[str]:
        # Scenarios may get the same port one after the other; a token stored for the first would open the second.
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "IPYMCP_STATE_DIR": str(state or self._results / "state")}
        return subprocess.run(
            [*self._command, *arguments],
            cwd=ROOT,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def _complaints(checks: Iterable[dict[str, Any]], output: str) -> Iterator[str]:
    """The suite's complaints: failed checks, a timeout, a bad exit."""
    for check in checks:
        if check["status"] in ("FAILURE", "WARNING"):
            yield f"{check['status']} {check['id']}: {check.get('errorMessage') or check['description']}"
            if check.get("details"):
                yield f"  {json.dumps(check['details'])}"
    yield from (line for line in output.splitlines() if "CLIENT " in line) if checks else output.splitlines()


def _written(folder: Path) -> Iterator[str]:
    for name in ("stdout", "stderr"):
        for path in folder.rglob(f"{name}.txt"):
            yield f"the client's {name}:"
            yield from (f"  {line}" for line in path.read_text().splitlines())


def _outcomes(suite: Suite, scenarios: Sequence[Scenario]) -> Iterator[Outcome]:
    """Run them, two at a time, in their order."""
    alone = [each for each in scenarios if each.name in MEASURES_TIME]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(suite.run, [each for each in scenarios if each not in alone])
    yield from map(suite.run, alone)


def _report(title: str, outcomes: Iterable[Outcome]) -> tuple[str, bool]:
    """Show outcomes as they come. Give the count, and whether all have passed."""
    print(title, flush=True)
    seen: list[Outcome] = []
    for outcome in outcomes:
        seen.append(outcome)
        print(outcome.line, flush=True)
        if not outcome.has_passed:
            print("\n".join(f"    {line}" for line in outcome.output.splitlines()), flush=True)
    passed = sum(outcome.has_passed for outcome in seen)
    return f"{title}: {passed}/{len(seen)}", passed == len(seen)


def main(patterns: Sequence[str]) -> int:
    """Run what the patterns select, all if there are none. Give the exit status."""

    def selected(scenarios: Iterable[Scenario]) -> list[Scenario]:
        return [each for each in scenarios if not patterns or any(fnmatch(each.name, one) for one in patterns)]

    compileall.compile_dir(ROOT / "ipymcp", quiet=2)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ipymcp-conformance-") as folder:
        suite = Suite(Path(folder))
        groups = {f"MCP {revision}": selected(suite.scored(revision)) for revision in REVISIONS}
        groups["not scored"] = selected(Scenario(*each) for each in BESIDE)
        reports = [_report(title, _outcomes(suite, scenarios)) for title, scenarios in groups.items() if scenarios]
    if not reports:
        raise SystemExit(f"no scenario matches {' '.join(patterns)}")
    print("", *(count for count, _ in reports), f"in {time.monotonic() - started:.0f} s", sep="\n")
    return 0 if all(all_passed for _, all_passed in reports) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", metavar="SCENARIO")
    sys.exit(main(parser.parse_args().patterns))

"""The driver: every contender in turn, round after round, then medians and ratios. See README.md.

python -m benchmarks.run [--rounds N] [--only NAME…] [--quick] [--write]
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import datetime
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # so that `python benchmarks/run.py` works too

from benchmarks.contenders import CONTENDERS, ROOT, SDK_SERVER, Worker, WorkerError, http_server
from benchmarks.report import Samples, markdown, table, verdicts
from benchmarks.scenarios import Scenario, scenarios

HERE = ROOT / "benchmarks"


def main() -> None:
    options = parse()
    compileall.compile_dir(ROOT / "ipymcp", quiet=1)  # pip does so for the others; a checkout may be without byte code
    with tempfile.TemporaryDirectory(prefix="ipymcp-bench-") as folder:
        os.environ["IPYMCP_STATE_DIR"] = folder  # nobody's history, and nobody's remembered rules
        run_all(options)


def run_all(options: argparse.Namespace) -> None:
    """Every chosen scenario, and what was found."""
    chosen = [scenario for scenario in scenarios(options.quick) if not options.only or scenario.name in options.only]
    absent = {name: reason for name, one in CONTENDERS.items() if (reason := one.absence())}
    about = describe(absent, options)
    say(about["text"])
    sections, targets, results = [about["text"]], [], {}
    for scenario in chosen:
        before = os.getloadavg()[0]
        samples, missing = run(scenario, options.rounds, absent)
        rounds = max(map(len, samples.values()), default=0)
        load = f"{rounds} rounds; load average {before:.1f} before, {os.getloadavg()[0]:.1f} after"
        section = f"## {scenario.name}: {scenario.title}\n\n{table(scenario, samples, missing)}\n\n{load}"
        say(f"\n{section}")
        sections.append(section)
        targets += verdicts(scenario, samples)
        results[scenario.name] = {"samples": samples, "not measured": missing, "load": load}
    summary = "## What must be reached\n\n" + markdown(["target", "of", "found", ""], targets)
    say(f"\n{summary}")
    if options.write:
        write_results(about, [sections[0], summary, *sections[1:]], results)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure ipymcp beside its peers.")
    names = [scenario.name for scenario in scenarios(quick=False)]
    parser.add_argument("--rounds", type=int, help="how often each contender is measured (default 9, quick 3)")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=f"of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer calls")
    parser.add_argument("--write", action="store_true", help="keep it in results.json and RESULTS.md")
    options = parser.parse_args()
    if options.write and (options.only or options.quick):
        parser.error("--write keeps whole runs only: without --only and --quick")
    options.rounds = options.rounds or (3 if options.quick else 9)
    return options


def describe(absent: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    contenders = [
        [one.label, "-" if name in absent else one.versions(), absent.get(name, "measured")]
        for name, one in CONTENDERS.items()
    ]
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    intro = f"# Benchmarks, {when}\n\n{machine}; {options.rounds} rounds, interleaved. README.md says how to read this."
    text = f"{intro}\n\n{markdown(['contender', 'versions', ''], contenders)}"
    return {"text": text, "machine": machine, "date": when, "contenders": contenders}


def run(scenario: Scenario, rounds: int, absent: dict[str, str]) -> tuple[Samples, dict[str, str]]:
    """A B C A B C; a contender that fails is out of this scenario, with its reason."""
    missing = {name: absent[name] for name in scenario.contenders if name in absent}
    if scenario.name == "first-sdk" and "sdk" in absent:
        return {}, dict.fromkeys(scenario.contenders, f"no interpreter for {Path(SDK_SERVER.split()[-1]).name}")
    samples: Samples = {}
    workers: dict[str, Worker] = {}
    needs_url = any("{url}" in line for line in scenario.setup)
    with http_server() if needs_url else contextlib.nullcontext("") as url:
        measure(scenario, rounds, [line.format(url=url) for line in scenario.setup], workers, samples, missing)
    return samples, missing


def measure(
    scenario: Scenario,
    rounds: int,
    setup: list[str],
    workers: dict[str, Worker],
    samples: Samples,
    missing: dict[str, str],
) -> None:
    try:
        for turn in range(min(rounds, scenario.most_rounds)):
            for name in scenario.contenders:
                if name in missing:
                    continue
                try:
                    if setup and name not in workers:
                        workers[name] = Worker(CONTENDERS[name])
                        workers[name].ask(*setup)
                    sample = scenario.measure(CONTENDERS[name], workers.get(name))
                except WorkerError as error:
                    missing[name] = str(error)
                    samples.pop(name, None)
                else:
                    samples.setdefault(name, {})[turn] = sample
    finally:
        for worker in workers.values():
            worker.close()


def write_results(about: dict[str, Any], sections: list[str], results: dict[str, Any]) -> None:
    (HERE / "RESULTS.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    kept = {key: value for key, value in about.items() if key != "text"}
    (HERE / "results.json").write_text(json.dumps({**kept, "scenarios": results}, indent=1) + "\n", encoding="utf-8")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

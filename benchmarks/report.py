"""Medians, ratios and verdicts from the samples, as Markdown that reads as well in a terminal."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import CONTENDERS

if TYPE_CHECKING:
    from benchmarks.scenarios import Scenario, Target

REFERENCES = ("floor", "httpx", "sdk")
Samples = dict[str, dict[int, dict[str, Any]]]
"""Contender to round to sample."""


def median(samples: Samples, who: str, metric: str) -> float | None:
    values = [sample[metric] for sample in samples.get(who, {}).values() if metric in sample]
    return statistics.median(values) if values else None


def ratios(samples: Samples, who: str, metric: str, of: str) -> list[float]:
    """Each round's own ratio: what slowed the machine then slowed both."""
    mine, theirs = samples.get(who, {}), samples.get(of, {})
    return sorted(
        mine[turn][metric] / theirs[turn][metric]
        for turn in mine.keys() & theirs.keys()
        if metric in mine[turn] and theirs[turn].get(metric)
    )


def ratio_text(values: list[float]) -> str:
    if not values:
        return "-"
    low, high = values[len(values) // 4], values[-1 - len(values) // 4]
    spread = f" ({low:.2f}..{high:.2f})" if len(values) > 2 else ""
    return f"{statistics.median(values):.2f}{spread}"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 20 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}"


def table(scenario: Scenario, samples: Samples, missing: dict[str, str]) -> str:
    """One row a contender; who was not measured is named, with the reason."""
    metrics = list(
        dict.fromkeys(key for turns in samples.values() for sample in turns.values() for key in sample if key != "note")
    )
    compared = [(metric, of) for metric in scenario.compare for of in REFERENCES if of in scenario.contenders]
    head = ["", *metrics, *(f"{metric} / {of}" for metric, of in compared)]
    rows = []
    for who in scenario.contenders:
        if who in missing:
            rows.append([CONTENDERS[who].label, f"not measured: {missing[who]}"])
            continue
        cells = [number(median(samples, who, metric)) for metric in metrics]
        cells += [ratio_text(ratios(samples, who, metric, of)) if of != who else "1" for metric, of in compared]
        rows.append([CONTENDERS[who].label, *cells])
    return markdown(head, rows)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    rows = [row + [""] * (len(head) - len(row)) for row in rows]
    # A reason may be longer than any figure; it is let run over the columns after it.
    widths = [
        max(len(line[column]) for line in [head, *rows] if not line[column].startswith("not measured"))
        for column in range(len(head))
    ]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def verdict(target: Target, samples: Samples) -> tuple[str, str]:
    """What was found, and `reached`, `MISSED` or `not measured`."""
    if target.of:
        values = ratios(samples, target.who, target.metric, target.of)
        found = statistics.median(values) if values else None
    else:
        found = median(samples, target.who, target.metric)
    if found is None:
        return "-", "not measured"
    reached = found >= target.bound if target.at_least else found <= target.bound
    return number(found), "reached" if reached else "MISSED"


def verdicts(scenario: Scenario, samples: Samples) -> list[list[str]]:
    return [
        [f"{scenario.name}: {target}", CONTENDERS[target.who].label, *verdict(target, samples)]
        for target in scenario.targets
    ]

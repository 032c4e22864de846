"""What the first cell of a notebook costs. Apart from cell.py, whose imports would make it look cheaper."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.workers.harness import Sample, Stopwatch, expect, forget_peak, resident_mb

HEAVY = ("httpx", "ipywidgets", "jsonschema_rs", "cryptography", "sqlite3")


def load_extension(shell: Any) -> Sample:
    """`import ipymcp` and `%load_ext ipymcp`, as the first cell of a notebook."""
    before = set(sys.modules)
    base = forget_peak()
    with Stopwatch() as watch:
        import ipymcp  # noqa: F401

        shell.run_line_magic("load_ext", "ipymcp")
    grown = resident_mb() - base
    expect("ipymcp" in shell.extension_manager.loaded, "ipymcp is no extension")
    heavy = [name for name in HEAVY if name in sys.modules and name not in before]
    return {**watch.per(1), "mb": grown, "heavy": len(heavy), "note": ", ".join(heavy)}

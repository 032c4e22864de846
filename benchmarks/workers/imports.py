"""What importing a package costs in a process that has asyncio: `python -m benchmarks.workers.imports MODULE:NAME`."""

from __future__ import annotations

import importlib
import sys

from benchmarks.workers.harness import Stopwatch, forget_peak, reply, resident_mb

if __name__ == "__main__":
    module, name = sys.argv[1].split(":")
    base = forget_peak()
    with Stopwatch() as watch:
        getattr(importlib.import_module(module), name)  # some packages are lazy about their names
    reply({**watch.per(1), "mb": resident_mb() - base})

"""What runs inside the kernel for kernel.py: nothing here but what a user's own cells could do."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.workers.harness import Sample, Stopwatch, expect, forget_peak, resident_mb

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAVY = ("httpx", "ipywidgets", "jsonschema_rs", "cryptography", "sqlite3")
TAB_LINES = ("mcp.big.tool_012", "mcp.big.", "%mcp call big.tool_012", "mcp.big.tool_00012(li")


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


def load_catalog(shell: Any, tools: int, command: Sequence[str]) -> Sample:
    """One server with many tools by `%mcp load`; `build_ms` is what it takes beyond a server with three."""
    line = " ".join(command)
    shell.run_line_magic("load_ext", "ipymcp")
    shell.run_line_magic("mcp", f"load warm -- {line};")
    with Stopwatch() as small:
        shell.run_line_magic("mcp", f"load small -- {line};")
    base = forget_peak()
    with Stopwatch() as watch:
        shell.run_line_magic("mcp", f"load big -- {line} --tools {tools};")
    grown = resident_mb() - base
    return {**watch.per(1), "build_ms": (watch.wall - small.wall) * 1e3, "mb": grown}


def tab_inside(shell: Any) -> Sample:
    """Tab without the wire: the slowest of several lines, each by its median."""
    from IPython.core.completer import provisionalcompleter

    def once(line: str) -> float:
        with Stopwatch() as watch, provisionalcompleter():
            found = list(shell.Completer.completions(line, len(line)))
        expect(bool(found), f"nothing completes {line}")
        return watch.wall * 1e3

    return {"tab_inside_ms": max(statistics.median(once(line) for _ in range(5)) for line in TAB_LINES)}

"""A kernel with ipymcp in it, as a notebook's first cells leave it."""

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests import kernels
from tests.kernels import Kernel, Outcome

TIMEOUT = 60


@contextlib.contextmanager
def opened(name: str, folder: Path, servers: Mapping[str, list[str]], *, cold: bool = False) -> Iterator[Kernel]:
    """Run a kernel of that name with the extension, the demo server and further servers by their commands loaded."""
    with kernels.started(name, folder, cold=cold) as kernel:
        done(kernel, "%load_ext ipymcp")
        done(kernel, "%mcp load demo;")
        for server, command in servers.items():
            done(kernel, f"%mcp load {server} -- {shlex.join(command)};")
        yield kernel


def done(kernel: Kernel, cell: str, answers: Sequence[str] | None = None) -> Outcome:
    """Run a cell that must not fail. With answers there is a page, which may draw widgets."""
    outcome = kernel.run(cell, timeout=TIMEOUT, answers=answers)
    assert outcome.error is None, f"{cell}\n{outcome.error}\n{outcome.stderr}"
    return outcome


def text(kernel: Kernel, cell: str) -> str:
    """The result of a cell in plain text."""
    shown = done(kernel, cell).text
    assert shown is not None, f"{cell} shows nothing"
    return shown


def received(record: Path, word: str) -> int:
    """The number of messages with a word that a server with `record=PATH` has received."""
    lines = record.read_text().splitlines() if record.exists() else []
    return sum(line.startswith("< ") and word in line for line in lines)


def error(kernel: Kernel, cell: str) -> list[str]:
    """The lines of the error in which a cell ends, as a notebook shows them."""
    outcome = kernel.run(cell, timeout=TIMEOUT)
    assert outcome.error is not None, f"{cell} did not fail: {outcome.text}"
    assert outcome.error.ename == outcome.error.traceback.partition(":")[0], outcome.error.traceback
    return outcome.error.traceback.splitlines()

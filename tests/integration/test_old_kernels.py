"""A condensed tour of everything a user does, on the older kernels: what works there, and what cannot."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import kernel_python
from tests.integration.notebooks import done, error, opened, text
from tests.kernels import Kernel

pytestmark = [pytest.mark.kernels("kernel-6", "kernel-colab"), pytest.mark.nightly]
MISBEHAVING = Path(__file__).parent.parent / "servers" / "misbehaving.py"


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    own = [str(kernel_python(kernel_name)), str(MISBEHAVING)]
    with opened(kernel_name, tmp_path_factory.mktemp("tour"), {"own": own}) as kernel:
        yield kernel


def test_the_versions_are_those_the_name_promises(kernel: Kernel, kernel_name: str) -> None:
    versions = done(kernel, "import ipykernel, IPython; print(ipykernel.__version__, IPython.__version__)").stdout

    assert versions.startswith("6.17.1 7.34.0" if kernel_name == "kernel-colab" else "6.")
    assert kernel_name == "kernel-colab" or versions.split()[1].startswith("8.")


def test_lines_and_cells(kernel: Kernel) -> None:
    done(kernel, "n, name = 3, 'Ada'")
    assert text(kernel, "%mcp").splitlines()[2:] == [
        "demo    ready  2026-07-28      5      0",
        "own     ready  2026-07-28     13      0",
    ]
    assert text(kernel, "%mcp tools dem?.ech?").splitlines()[2].startswith("demo.echo  text")
    assert text(kernel, "%mcp call demo.echo text=what?") == "ToolResult demo.echo: what?"
    assert text(kernel, "%mcp call demo.echo text=$name # said") == "ToolResult demo.echo: Ada"
    assert done(kernel, "%mcp call demo.echo text=a;").result is None
    assert text(kernel, "r = %mcp call demo.echo text=data/{n}.csv;\nr.text") == "'data/3.csv'"
    body = '{"table": "penguins", "limit": n}'
    assert len(text(kernel, f"%%mcp call demo.query\n{body}").splitlines()) == 2 + 3
    loop = "def f(x):\n    r = %mcp call demo.echo text=$x\n    return r.text\n[f(word) for word in 'ab']"
    assert text(kernel, loop) == "['a', 'b']"
    assert "%mcp load [NAME…]" in done(kernel, "%mcp help").stdout
    assert done(kernel, "%mcp help call").stdout == done(kernel, "%mcp call?").stdout


def test_errors(kernel: Kernel) -> None:
    lines = ["ToolError: demo.fail: oops", "  reported by the tool · in: "]
    assert error(kernel, "%mcp call demo.fail message=oops") == [
        lines[0],
        lines[1] + "%mcp call demo.fail message=oops",
    ]
    assert error(kernel, "mcp.demo.fail(message='oops')") == [lines[0], lines[1] + "mcp.demo.fail(message='oops')"]
    assert kernel.run("%mcp tolls").stderr.startswith("UsageError: there is no %mcp tolls; did you mean 'tools'?")
    done(kernel, "%config IPyMCP.tracebacks = True")
    assert "Traceback (most recent call last)" in (kernel.run("mcp.demo.fail()").error or pytest.fail()).traceback
    done(kernel, "%config IPyMCP.tracebacks = False")


def test_tools_as_functions(kernel: Kernel) -> None:
    assert text(kernel, "mcp.demo.query('penguins', limit=2)['count']") == "2"
    assert text(kernel, "(await mcp.demo.echo.aio('awaited')).text") == "'awaited'"
    assert text(kernel, "mcp.demo.echo.submit('later').result().text") == "'later'"
    assert "limit: int = 10" in (kernel.inspect("mcp.demo.query(") or "")
    assert "Rows of a small table" in kernel.run("mcp.demo.query?").pager


def test_results_progress_and_servers_are_shown(kernel: Kernel) -> None:
    assert "text/html" in (done(kernel, "mcp.demo.query('penguins', limit=2)").result or {})
    (line,) = done(kernel, "mcp.demo.slow(seconds=0.9, steps=9);").displays
    assert line["text/plain"] == "demo.slow 9/9 step 9 of 9"
    (row,) = done(kernel, "%mcp load demo").displays
    assert row["text/plain"] == "✓ demo: ready, 5 tools"
    assert "ready" in text(kernel, "%mcp restart own")


def test_tab_in_code(kernel: Kernel) -> None:
    assert "query" in [match.rpartition(".")[2] for match in kernel.complete("mcp.demo.q").matches]
    assert "demo" in [match.rpartition(".")[2] for match in kernel.complete("mcp.de").matches]
    assert any("echo" in match for match in kernel.complete('mcp.demo["e').matches)
    assert any("table=" in match for match in kernel.complete("mcp.demo.query(ta").matches)


def test_tab_in_lines_needs_ipython_8(kernel: Kernel, kernel_name: str) -> None:
    matches = kernel.complete("%mcp call demo.ec").matches
    assert ("demo.echo" in matches) == (kernel_name == "kernel-6")

"""Starts that fail: retries, and what the cell shows meanwhile."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipymcp import errors
from ipymcp.runtime.failures import cannot_improve
from tests.bad_servers import QUICK, News, connected
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture
from tests.serving import reserved_port


def counting(count: Path, code: str) -> dict[str, Any]:
    """A program that counts its runs in a file, and runs this code."""
    return {"command": sys.executable, "args": ["-c", f"open({str(count)!r}, 'a').write('.')\n{code}"]}


def started(count: Path, code: str, **definition: Any) -> errors.McpError:
    """Have it fail to start."""
    with connected({}, load=False) as mcp, pytest.raises(errors.McpError) as caught:
        mcp.load({"one": counting(count, code) | definition})
    return caught.value


def times(count: Path) -> int:
    return len(count.read_text())


def test_a_program_that_exits_with_0_and_writes_no_message_is_not_a_server(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    error = started(count, "print('file.txt')")
    assert error._render_traceback_() == [
        "StartError: one: the program ended at once, with exit code 0, and sent no MCP message: "
        "it does not look like an MCP server",
        "  check its command; %mcp logs one has what it wrote",
    ]
    assert times(count) == 2  # with the probe of its era, and without


@pytest.mark.parametrize(
    "code",
    [
        "import herring_of_no_package",
        "from sys import herring",
        "import argparse; argparse.ArgumentParser().parse_args(['--herring'])",
        "import sys; sys.exit(127)",
        "import sys; sys.exit(126)",
        "import sys; print('Error: Cannot find module herring', file=sys.stderr); sys.exit(1)",
        "import sys; print('npm error code E404', file=sys.stderr); sys.exit(1)",
    ],
)
def test_a_failure_that_cannot_improve_is_not_retried(tmp_path: Path, code: str) -> None:
    count = tmp_path / "runs"
    started(count, code)
    assert times(count) == 1


def test_a_misspelt_package_is_not_retried_and_the_error_names_it(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    recorded = Path(__file__).parent.parent / "fixtures" / "failed_starts" / "npx-misspelt.txt"
    output = recorded.read_text().split("\n", 2)[2]
    error = started(count, f"import sys; sys.stderr.write({output!r}); sys.exit(1)")
    assert error.message == (
        "did not start: the server exited with code 1; it last wrote: npm error code E404"
        " / npm error 404 Not Found - GET https://registry.npmjs.org/@modelcontextprotocol%2fserver-filesystme"
        " / npm error 404  The requested resource '@modelcontextprotocol/server-filesystme@*' could not be found"
        " or you do not have permission to access it."
    )
    assert times(count) == 1


def test_a_server_of_a_known_era_that_no_longer_starts_is_not_probed_again(tmp_path: Path) -> None:
    count, works = tmp_path / "runs", tmp_path / "works"
    works.touch()
    code = (
        "import os, runpy, sys\n"
        f"if os.path.exists({str(works)!r}): runpy.run_module('ipymcp.demo', run_name='__main__')\n"
        "print('Error: Cannot find module herring', file=sys.stderr); sys.exit(1)"
    )
    with connected({}, load=False) as mcp:
        mcp.load({"one": counting(count, code)})
        works.unlink()
        with pytest.raises(errors.StartError):
            mcp.servers["one"].restart()
    assert times(count) == 2


def test_a_program_that_is_not_to_be_restarted_is_not_tried_again(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    started(count, "raise SystemExit(3)", restart=False)
    assert times(count) == 2


def test_another_failure_is_retried_and_each_attempt_shows_its_cause(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({}, load=False) as mcp:
        details: list[str] = []
        mcp._host.events.subscribe(lambda event: details.append(getattr(event, "detail", "")))
        with News(mcp), pytest.raises(errors.StartError):
            mcp.load({"one": counting(count, "import sys; print('no database', file=sys.stderr); sys.exit(3)")})
    attempts = [detail for detail in details if detail.startswith("attempt")]
    assert attempts == [
        "attempt 2 of 4 in 0.05 s: no database",
        "attempt 3 of 4 in 0.1 s: no database",
        "attempt 4 of 4 in 0.2 s: no database",
    ]
    assert times(count) == 8


def test_a_server_that_died_after_it_was_ready_is_started_again_whatever_it_wrote() -> None:
    assert not cannot_improve(0, ("usage: herring",))
    assert not cannot_improve(None, ("ImportError: herring",))
    assert not cannot_improve(1, ("connection refused", "see the ImportError page"))


def test_a_refused_connection_is_not_retried_on_a_first_load() -> None:
    with reserved_port() as port, connected({}, load=False) as mcp, News(mcp) as news:
        with pytest.raises(errors.McpError, match="connection refused"):
            mcp.load({"one": {"url": f"http://127.0.0.1:{port}/mcp"}})
        assert not news.says("starting it again")


def test_start_timeout_can_be_given_in_python_and_is_checked() -> None:
    mute = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "restart": False}
    with connected({}, load=False) as mcp:
        with pytest.raises(errors.StartError, match="did not answer within"):
            mcp.load({"one": mute}, start_timeout=0.3)
        for wrong in (0, -1, "3", True, float("nan")):
            with pytest.raises(errors.ArgumentError, match="start_timeout: expected"):
                mcp.load({"one": mute}, start_timeout=wrong)  # type: ignore[arg-type]


def test_a_long_start_shows_what_the_server_wrote_last() -> None:
    code = "import sys; print('building the index', file=sys.stderr, flush=True); sys.stdin.read()"
    with connected({}, timing=msgspec.structs.replace(QUICK, download_hint=0.5), load=False) as mcp:
        details: list[str] = []
        mcp._host.events.subscribe(lambda event: details.append(getattr(event, "detail", "")))
        with pytest.raises(errors.StartError):
            mcp.load({"one": {"command": sys.executable, "args": ["-c", code], "restart": False}}, start_timeout=3)
    assert "still starting; it has not answered yet; it last wrote: building the index" in details

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
        "StartError: one: the program ended at once, with exit code 0, and does not look like an MCP server: "
        "it wrote lines that are not MCP messages: file.txt",
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
        "could not start: exited with code 1. Last output: npm error code E404"
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
    assert "still starting; it has not answered yet; last output: building the index" in details


# -- what is written in place of messages ------------------------------------------------------------------------------

SERVER = """
import json, sys

def answer(request):
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}
        },
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "echoed"}]},
    }
    result = results.get(request["method"])
    answered = {"result": result} if result else {"error": {"code": -32601, "message": "no such method"}}
    return {"jsonrpc": "2.0", "id": request["id"], **answered}

for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        WRITE
"""


def writing(write: str) -> dict[str, Any]:
    """A server that writes its answers in a way of its own."""
    return {"command": sys.executable, "args": ["-c", SERVER.replace("WRITE", write)], "restart": False}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\x1b[?25l", ""),
        ("\x1b[2K\r\u280b Connecting {1/3} ...\r", "\x1b[0m"),
        ("Server ready ", ""),
        ("", "\x1b[?25h"),
        ("\x1b[32m", "\x1b[39m \x1b[0m"),
    ],
)
def test_output_beside_a_message_on_its_line_is_skipped_and_logged(before: str, after: str) -> None:
    write = f"print({before!r} + json.dumps(answer(request)) + {after!r}, flush=True)"
    with connected({"one": writing(write)}) as mcp:
        assert mcp.one.echo().text == "echoed"
        logged = [row["text"] for row in mcp.servers["one"].logs() if "output beside a message" in row["text"]]
        assert logged


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (
            "text = json.dumps(answer(request))\n"
            "        print(f'Content-Length: {len(text)}\\r\\n\\r\\n{text}', end='', flush=True)",
            "it wrote lines that are not MCP messages: Content-Length: 83",
        ),
        (
            "print(json.dumps(answer(request), indent=2), flush=True)",
            'not MCP messages: { / "jsonrpc": "2.0", / "id": 1,',
        ),
        ("print(json.dumps(answer(request)), end='', flush=True)", "it wrote 83 bytes without a line end"),
        (
            "sys.stdout.buffer.write((json.dumps(answer(request)) + '\\n').encode('utf-16')); sys.stdout.flush()",
            "it wrote lines that are not MCP messages: ",
        ),
        ("print('INFO: got', request['method'], flush=True)", "not MCP messages: INFO: got server/discover"),
    ],
)
def test_what_a_server_writes_in_place_of_messages_is_named_while_it_starts_and_in_the_error(
    write: str, named: str
) -> None:
    with connected({}, timing=msgspec.structs.replace(QUICK, download_hint=0.5), load=False) as mcp:
        details: list[str] = []
        mcp._host.events.subscribe(lambda event: details.append(getattr(event, "detail", "")))
        with pytest.raises(errors.StartError, match="did not answer within 1 s") as caught:
            mcp.load({"one": writing(write)}, start_timeout=1)
    assert named in caught.value.message
    assert any(detail.startswith("still starting; it has not answered yet; it wrote ") for detail in details)


def test_a_server_in_python_need_not_flush() -> None:
    with connected({"one": writing("print(json.dumps(answer(request)))")}) as mcp:
        assert mcp.one.echo().text == "echoed"


def test_a_server_that_answers_and_lists_no_tools_is_said_to_have_answered() -> None:
    silent = "request['method'] == 'tools/list' or print(json.dumps(answer(request)))"
    with connected({}, load=False) as mcp, pytest.raises(errors.StartError) as caught:
        mcp.load({"one": writing(silent)}, start_timeout=1)
    assert caught.value.message.startswith("answered, but did not list its tools within 1 s")


# -- programs that cannot be run ---------------------------------------------------------------------------------------


@pytest.mark.posix
@pytest.mark.parametrize(
    ("first", "problem", "hint"),
    [
        ("#!/bin/sh\r", "names the interpreter '/bin/sh\\r', which does not exist", "Unix line ends"),
        ("#!/nowhere/python -u", "names the interpreter '/nowhere/python', which does not exist", "correct that line"),
        ("#!/usr/bin/env no-such-python\r", "Last output: ", "Unix line ends"),
        ("echo hello", "nor a script whose first line names its interpreter", "make the interpreter its command"),
        ("#!/", "names the interpreter '/', which may not be run", "correct that line"),
    ],
)
def test_a_script_that_does_not_start_is_told_by_its_first_line(
    first: str, problem: str, hint: str, tmp_path: Path
) -> None:
    script = tmp_path / "server.py"
    script.write_bytes(first.encode() + b"\nprint()\n")
    script.chmod(0o755)
    with connected({}, load=False) as mcp, pytest.raises(errors.StartError) as caught:
        mcp.load({"one": {"command": str(script)}})
    assert problem in caught.value.message
    assert hint in (caught.value.hint or "")


@pytest.mark.posix
def test_a_command_that_is_no_program_is_told_by_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("#!/usr/bin/env python3\n")
    found = {
        str(tmp_path / "server.py"): (f"its program is not executable: {tmp_path}/server.py", "chmod +x"),
        str(tmp_path): (f"its command is a folder, not a program: {tmp_path}", "name the program in it"),
        "npx -y @scope/server 'a b'": (
            'there is no program "npx -y',
            'the arguments belong in args: "command": "npx", "args": ["-y", "@scope/server", "a b"]',
        ),
        "sh -c 'open": ('there is no program "sh -c', '"command": "sh", "args": ["-c", "\'open"]'),
        "no such program": ("there is no program 'no such program'", "install it"),
    }
    with connected({}, load=False) as mcp:
        for command, (problem, hint) in found.items():
            with pytest.raises(errors.StartError) as caught:
                mcp.load({"one": {"command": command}})
            assert caught.value.message.startswith(problem)
            assert hint in (caught.value.hint or "")

"""What programs that did not start wrote: which of it is shown, and whether another start is tried."""

from pathlib import Path

import pytest

from ipymcp.runtime.failures import cannot_improve, cause

RECORDED = Path(__file__).parent.parent / "fixtures" / "failed_starts"
"""Outputs of real runners: the command line, the exit code, and what was written to standard error."""
CAUSES = {
    "bunx-misspelt": "error: GET https://registry.npmjs.org/nosuch-pkg-qzx-1 - 404",
    "deno-misspelt": "error: npm package '@nosuch-scope-q/xyz' does not exist.",
    "deno-no-file": 'error: Module not found "file:///home/me/project/nofile.ts".',
    "docker-no-daemon": "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
    "Is the docker daemon running?",
    "docker-no-image": "docker: Error response from daemon: pull access denied for mcp/tiem, repository does not exist "
    "or may require 'docker login': denied: requested access to the resource is denied",
    "docker-no-tag": "docker: Error response from daemon: manifest for mcp/time:99 not found: "
    "manifest unknown: manifest unknown.",
    "node-bad-option": "node: bad option: --nosuch",
    "node-no-file": "Error: Cannot find module '/home/me/project/server.js'",
    "npx-8-misspelt": "npm ERR! 404  'nosuch-pkg-qzx-1@latest' is not in this registry.",
    "npx-misspelt": "npm error 404  The requested resource '@modelcontextprotocol/server-filesystme@*' could not be "
    "found or you do not have permission to access it.",
    "npx-no-executable": "npm error could not determine executable to run",
    "npx-no-folder": "npm error enoent Could not read package.json: Error: ENOENT: no such file or directory, "
    "open '/home/me/project/nodir/package.json'",
    "npx-no-version": "npm error notarget No matching version found for "
    "@modelcontextprotocol/server-filesystem@99.9.9.",
    "npx-unreachable": "npm error FetchError: request to https://registry.npmjs.org/nosuch-pkg-qzx-2 failed, "
    "reason: connect ECONNREFUSED 127.0.0.1:9",
    "pipx-misspelt": "ERROR: No matching distribution found for mcp-server-tiem",
    "pnpm-misspelt": "nosuch-pkg-qzx-1 is not in the npm registry, or you have no permission to fetch it.",
    "podman-no-image": "Error: initializing source docker://mcp/tiem:latest: reading manifest latest in "
    "docker.io/mcp/tiem: requested access to the resource is denied",
    "python-no-file": "python3: can't open file '/home/me/project/nofile.py': [Errno 2] No such file or directory",
    "python-no-module": "/usr/bin/python3: No module named nosuch",
    "uv-run-no-file": "error: Failed to spawn: nofile.py",
    "uvx-0.6-misspelt": "╰─▶ Because mcp-server-tiem was not found in the package registry and you",
    "uvx-misspelt": "cause: Because mcp-server-tiem was not found in the package registry and you require "
    "mcp-server-tiem, we can conclude that your requirements are unsatisfiable.",
    "uvx-no-executable": "An executable named `nosuchcmd` is not provided by package `mcp-server-time`.",
    "uvx-no-folder": "cause: Distribution not found at: file:///home/me/project/nonexist",
    "uvx-no-version": "cause: Because there is no version of mcp-server-time==99.0 and you require "
    "mcp-server-time==99.0, we can conclude that your requirements are unsatisfiable.",
    "uvx-unreachable": "error: Request failed after 3 retries in 7.0s",
}
UNREACHABLE = {"docker-no-daemon", "npx-unreachable", "uvx-unreachable"}


def recorded(name: str) -> tuple[int, list[str]]:
    _command, code, *lines = (RECORDED / f"{name}.txt").read_text().split("\n")
    return int(code), [line for line in lines if line.strip()]


def test_each_recorded_output_is_asserted() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == set(CAUSES)


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_among_the_lines_that_are_shown(name: str) -> None:
    lines = cause(recorded(name)[1])
    assert CAUSES[name] in lines
    assert not any(word in line for line in lines for word in ("npm notice", "complete log", "\x1b", "node:internal"))


@pytest.mark.parametrize("name", CAUSES)
def test_a_start_that_cannot_succeed_is_not_tried_again(name: str) -> None:
    code, lines = recorded(name)
    assert cannot_improve(code, lines, is_first=True)
    assert cannot_improve(code, lines) == (name not in UNREACHABLE)  # a network may come back under a running server


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("Error: BRAVE_API_KEY environment variable is required", 1),
        ("GITHUB_PERSONAL_ACCESS_TOKEN not set", 1),
        ("missing environment variable DATABASE_URL", 1),
        ("error: unexpected argument '--herring' found", 2),
        ("flag provided but not defined: -herring", 2),
        ("it is configured wrongly", 78),
        ("it was called wrongly", 64),
        ("    | ModuleNotFoundError: No module named 'herring'", 1),
    ],
)
def test_missing_settings_and_refused_options_are_final(line: str, code: int) -> None:
    assert cannot_improve(code, [line])


@pytest.mark.parametrize(
    "line", ["no database", "ConnectionRefusedError: [Errno 111]", "panic: boom", "API_KEY is set"]
)
def test_other_failures_are_tried_again(line: str) -> None:
    assert not cannot_improve(1, [line], is_first=True)
    assert not cannot_improve(2, [line], is_first=True)


def test_the_exceptions_of_a_group_are_shown_without_their_frames() -> None:
    output = """\
  + Exception Group Traceback (most recent call last):
  |   File "server.py", line 9, in <module>
  |     main()
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "server.py", line 5, in main
    |     raise RuntimeError("no licence")
    | RuntimeError: no licence
    +------------------------------------"""
    assert cause(output.split("\n")) == (
        "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "RuntimeError: no licence",
    )


def test_an_error_is_shown_even_if_the_program_wrote_more_after_it() -> None:
    output = ["starting", "fatal: the index is damaged", "closing the cache", "closing the store", "closed", "bye"]
    assert cause(output) == ("fatal: the index is damaged", "closing the cache", "closing the store")


def test_the_last_lines_are_shown_where_nothing_looks_like_an_error() -> None:
    assert cause(["one", "two", "three", "four"]) == ("two", "three", "four")
    assert cause(["npm notice", "npm notice one"]) == ("npm notice", "npm notice one")
    assert cause([]) == ()

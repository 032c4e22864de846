"""Failures of servers: causes in the output of programs, decisions about a retry, and explanations for users."""

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ipymcp.config.definition import ServerDefinition
from ipymcp.errors import ConnectionLost, RpcError, StartError, doing, interrupted, render_briefly, track_work
from ipymcp.runtime.failures import cannot_improve, cause, explain

PAY = "https://herring.example/pay?for=1"


def explained(*elicitations: object) -> RpcError:
    error = RpcError("Pay first.", code=-32042, data={"elicitations": list(elicitations)}, tool="buy")
    explain(error, ServerDefinition(name="shop", command="shop"), (), None)
    return error


def test_a_call_that_needs_a_visit_to_a_url_first_names_it() -> None:
    error = explained({"mode": "url", "elicitationId": "1", "url": PAY, "message": "Pay"}, {"mode": "form"}, 5)
    assert error._render_traceback_() == [
        f"RpcError: shop.buy: Pay first: visit {PAY} (at herring.example)",
        "  then call it again",
    ]


def test_a_domain_with_non_ascii_letters_is_also_shown_in_ascii() -> None:
    assert (
        "(at h\u0435rring.example (xn--hrring-3of.example))"
        in explained({"url": "https://h\u0435rring.example/"}).message
    )


@pytest.mark.parametrize(
    "elicitation",
    [
        *({"url": url} for url in ("javascript:alert(1)", f"{PAY} x", "https://other.example\\@herring.example/", 5)),
        {},
        "no object",
    ],
)
def test_a_url_that_is_not_a_web_address_is_not_shown(elicitation: Any) -> None:
    error = explained(elicitation)
    assert (error.message, error.hint) == ("Pay first.", None)


def explain_death(command: str, *output: str) -> str | None:
    """The hint after a server `time` has written this and ended."""
    return explain(ConnectionLost("died"), ServerDefinition(name="time", command=command), output, 1).hint


def test_a_container_program_without_its_engine_is_told_to_have_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example")  # which is not the cause
    line = "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    error = explain(StartError("exited"), ServerDefinition(name="time", command="docker"), (line,), 1)
    assert error.hint == "start Docker or Podman, then %mcp start time"


@pytest.mark.parametrize("command", ["python", "python3.12"])
def test_a_module_that_the_python_on_the_path_lacks_names_this_kernels_python(command: str) -> None:
    output = ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'mcp_server.time'")
    assert explain_death(command, *output) == (
        f"the {command} on PATH lacks mcp_server.time: install it there, or write"
        f' "command": {json.dumps(sys.executable)}, this kernel\'s Python'
    )


@pytest.mark.parametrize(
    ("command", "args", "names"),
    [
        ("uvx", ("x",), ["UV_DEFAULT_INDEX"]),
        ("uv", ("run", "x"), ["UV_INDEX_URL"]),
        ("npx", ("-y", "x"), ["npm_config_registry"]),
        ("/usr/bin/npx", ("-y", "x"), ["NPM_CONFIG_REGISTRY", "npm_config_strict_ssl"]),
        ("bunx", ("x",), ["BUN_CONFIG_REGISTRY"]),
        ("pipx", ("run", "x"), ["PIP_INDEX_URL", "PIP_TRUSTED_HOST"]),
        ("env", ("A=b", "uvx", "x"), ["UV_INDEX"]),
    ],
)
def test_the_mirror_that_a_package_runner_did_not_get_is_named(
    command: str, args: tuple[str, ...], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.lower().startswith(("uv_", "pip_", "npm_", "bun_"))]:
        monkeypatch.delenv(name)
    for name in names:
        monkeypatch.setenv(name, "https://mirror.example/simple")
    of_others = "PIP_INDEX_URL" if "npx" in command or command == "bunx" else "npm_config_registry"
    monkeypatch.setenv(of_others, "https://mirror.example/simple")
    definition = ServerDefinition(name="x", command=command, args=args)

    def hint(line: str, **changes: Any) -> str | None:
        return explain(StartError("could not start"), definition.replace(**changes), (line,), 1).hint

    are, they = ("is", "passes it") if len(names) == 1 else ("are", "passes them")
    options = " ".join(f"--env {name}" for name in names)
    expected = f"{' and '.join(names)} {are} set here but not passed on: {options} {they} on"
    assert hint("error: Failed to fetch: https://pypi.org/simple/x/") == expected
    assert hint("npm error code ENOTFOUND") == expected
    assert hint("bad DSN") == hint("Failed to fetch", inherit_env=tuple(names)) == "%mcp logs x · %mcp restart x"
    assert hint("Failed to fetch", env=dict.fromkeys(names, "")) == "%mcp logs x · %mcp restart x"
    assert hint("Failed to fetch", command="python", args=()) == "%mcp logs x · %mcp restart x"


def test_a_module_that_another_program_lacks_is_left_to_its_log() -> None:
    output = "ModuleNotFoundError: No module named 'time_server'"
    assert explain_death("/opt/python", output) == "%mcp logs time · %mcp restart time"


@pytest.mark.parametrize(
    "line",
    [
        "AttributeError: 'Server' object has no attribute 'list_tools'",
        "ImportError: cannot import name 'McpError' from 'mcp.shared.exceptions' (/lib/mcp/shared/exceptions.py)",
        "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed to "
        "MCPServer and other APIs changed; see the migration guide or pin 'mcp<2' to keep running v1 code.",
    ],
)
@pytest.mark.parametrize("command", ["uvx", "python"])
def test_a_server_of_the_older_sdk_is_told_how_to_get_it(command: str, line: str) -> None:
    assert explain_death(command, "Traceback (most recent call last):", line) == (
        "it was written for version 1 of the MCP SDK and has version 2: `uvx --with mcp<2`, or install mcp<2"
    )


@pytest.mark.parametrize("line", ["AttributeError: 'NoneType' object has no attribute 'cursor'", "TypeError: no host"])
def test_errors_that_may_come_from_elsewhere_are_retried(line: str) -> None:
    assert not cannot_improve(1, [line], is_first=True)


@pytest.mark.parametrize(
    ("filename", "first"),
    [
        ("/home/me/plot.py", "KeyboardInterrupt: interrupted in draw()"),
        ("zmq/backend/cython/_zmq.py", "KeyboardInterrupt: demo.slow.map was interrupted"),
        ("<string>", "KeyboardInterrupt: demo.slow.map was interrupted"),
    ],
    ids=["the user's file", "a module compiled by Cython", "generated code"],
)
def test_an_interrupt_names_the_users_function_only(filename: str, first: str) -> None:
    called: dict[str, Any] = {"__name__": "called"}
    exec(compile("def draw(): raise KeyboardInterrupt", filename, "exec"), called)
    own: dict[str, Any] = {"__name__": "ipymcp.runtime.progress", "draw": called["draw"]}
    exec("def show(): draw()", own)
    with pytest.raises(KeyboardInterrupt) as caught:
        own["show"]()
    render_briefly(caught.value, "demo.slow.map was interrupted")
    assert caught.value._render_traceback_()[0] == first  # type: ignore[attr-defined]


def test_an_interrupt_names_at_most_three_of_what_it_interrupts() -> None:
    work = track_work()
    with contextlib.ExitStack() as stack:
        for name in ("a", "b", "b", "c", "d"):
            stack.enter_context(doing(f"waiting for {name}"))
        message = interrupted(work)
    assert message == "interrupted while waiting for a, waiting for b, waiting for c and 1 more"
    assert interrupted(work) == "interrupted"


# -- output of programs ------------------------------------------------------------------------------------------------


RECORDED = Path(__file__).parent.parent / "fixtures" / "failed_starts"
"""Outputs of real runners: the command line, the exit code, and the standard error."""
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
    "node-too-old": "Fatal error: Error [ERR_UNKNOWN_BUILTIN_MODULE]: No such built-in module: node:sqlite",
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
    "uvx-sdk-2": "AttributeError: 'Server' object has no attribute 'list_tools'",
    "uvx-unreachable": "error: Request failed after 3 retries in 7.0s",
}
NOISE = ("npm notice", "complete log", "\x1b", "node:internal", "Installed ", "Downloaded ")
FINAL_AT_FIRST = {"docker-no-daemon", "npx-unreachable", "uvx-unreachable", "node-too-old", "uvx-sdk-2"}


def recorded(name: str) -> tuple[int, list[str]]:
    _command, code, *lines = (RECORDED / f"{name}.txt").read_text().split("\n")
    return int(code), [line for line in lines if line.strip()]


def test_each_recorded_output_has_its_cause_here() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == set(CAUSES)


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_is_among_the_lines_that_are_shown(name: str) -> None:
    lines = cause(recorded(name)[1])
    assert CAUSES[name] in lines
    assert not any(word in line for line in lines for word in NOISE)


@pytest.mark.parametrize("name", CAUSES)
def test_a_start_that_cannot_succeed_is_not_retried(name: str) -> None:
    code, lines = recorded(name)
    assert cannot_improve(code, lines, is_first=True)
    # A network may come back under a running server, and what such a server has logged may be about one call.
    assert cannot_improve(code, lines) == (name not in FINAL_AT_FIRST)


@pytest.mark.parametrize(
    ("line", "code", "is_final"),
    [
        ("Error: BRAVE_API_KEY environment variable is required", 1, True),
        ("GITHUB_PERSONAL_ACCESS_TOKEN not set", 1, True),
        ("missing environment variable DATABASE_URL", 1, True),
        ("error: unexpected argument '--herring' found", 2, True),
        ("flag provided but not defined: -herring", 2, True),
        ("it is configured wrongly", 78, True),
        ("it was called wrongly", 64, True),
        ("    | ModuleNotFoundError: No module named 'herring'", 1, True),
        *((line, code, False) for line in ("no database", "panic: boom", "API_KEY is set") for code in (1, 2)),
        *(("ConnectionRefusedError: [Errno 111]", code, False) for code in (1, 2)),
    ],
)
def test_missing_settings_and_refused_options_are_not_retried(line: str, code: int, is_final: bool) -> None:
    assert cannot_improve(code, [line], is_first=True) is is_final
    if is_final:
        assert cannot_improve(code, [line])


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

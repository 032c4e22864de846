"""Error messages: two lines that name the server and the remedy; other servers are not affected; nothing hangs."""

import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

import ipymcp
from ipymcp import Mcp, McpError, errors
from ipymcp.panel.problems import problem
from ipymcp.protocol.types import Progress
from ipymcp.runtime.context import Timing
from tests.bad_servers import (
    PATIENCE,
    News,
    bad,
    calls_read,
    connected,
    frames_read,
    log_of,
    pid_of,
    rendered,
    runs,
    scripted,
)
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture

E = TypeVar("E", bound=McpError)


@pytest.fixture(scope="module")
def shared() -> Iterator[Mcp]:
    """A host of the module, for tests that leave its two servers as they were."""
    with connected({"one": bad(), "good": bad()}) as mcp:
        yield mcp


@pytest.fixture
def mcp(shared: Mcp) -> Iterator[Mcp]:
    yield shared
    assert shared.calls == []
    assert shared.one.echo("x").text == shared.good.echo("x").text == "x"


@pytest.fixture(scope="module")
def demo() -> Iterator[Mcp]:
    with ipymcp.connect("demo") as mcp:
        yield mcp


def raised(kind: type[E], act: Callable[[], object]) -> E:
    """Give the error in which a function ends."""
    with pytest.raises(kind) as caught:
        act()
    return caught.value


def sent_to(mcp: Mcp, tool: str) -> list[int]:
    """The ids of the calls of a tool that the server `one` has received."""
    messages = mcp.one.seen().data["frames"]
    return [each["id"] for each in messages if each.get("method") == "tools/call" and each["params"]["name"] == tool]


@pytest.mark.parametrize(
    ("look_up", "lines", "far", "hint"),
    [
        (
            lambda mcp: mcp.goud,
            ["UnknownName: there is no server 'goud'", "  did you mean 'good'?"],
            lambda mcp: mcp["zzz"],
            "loaded: one, good",
        ),
        (
            lambda mcp: mcp.one.ecko,
            ["UnknownName: one: there is no tool 'ecko'", "  did you mean 'echo'?"],
            lambda mcp: mcp.one["zzzzz"],
            "%mcp tools one",
        ),
    ],
    ids=["server", "tool"],
)
def test_an_unknown_name_is_answered_with_its_near_misses(
    mcp: Mcp, look_up: Callable[[Mcp], object], lines: list[str], far: Callable[[Mcp], object], hint: str
) -> None:
    error = raised(errors.UnknownName, lambda: look_up(mcp))
    assert rendered(error) == lines
    assert isinstance(error, AttributeError | KeyError)
    assert (error.server, error.tool) == ("one" if "one:" in lines[0] else None, None)
    assert raised(errors.UnknownName, lambda: far(mcp)).hint == hint


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ({}, "text", "missing argument 'text'"),
        ({"text": "x", "txt": 1}, "txt", "no argument 'txt'; did you mean 'text'?"),
        ({"text": [1]}, "text", "text: expected string, got [1]"),
    ],
    ids=["missing", "surplus", "mistyped"],
)
def test_a_wrong_argument_is_named_and_nothing_is_sent(
    mcp: Mcp, arguments: dict[str, object], named: str, message: str
) -> None:
    before = sent_to(mcp, "echo")
    error = raised(errors.ArgumentError, lambda: mcp.one.echo(**arguments))
    assert message in error.message
    assert (error.server, error.tool, error.argument) == ("one", "echo", named)
    assert len(rendered(error)) == 2
    assert isinstance(error, TypeError) and isinstance(error, ValueError)
    assert sent_to(mcp, "echo") == before


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("npx", "install Node.js, or name the program's full path"),
        ("node", "install Node.js, or name the program's full path"),
        ("uvx", "pip install uv, or run the server's own module: -- python -m …"),
        ("no-such-program", "install it, or name its full path"),
    ],
)
def test_a_command_that_is_not_there_says_what_was_looked_for(
    command: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # whose folder is looked into, last
    with connected({}, load=False) as mcp:
        error = raised(errors.CommandNotFound, lambda: mcp.load({"one": {"command": command}}))
        assert rendered(error) == [
            f"CommandNotFound: one: there is no program {command!r} (looked for {command}, on the PATH)",
            f"  {hint}",
        ]
        assert error.server == "one"
        assert "starting it again" not in " ".join(log_of(mcp, "one"))
        assert mcp.servers["one"].state == "error"


def test_a_command_with_a_folder_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with connected({}, folder=tmp_path, load=False) as mcp:
        error = raised(errors.CommandNotFound, lambda: mcp.load({"one": {"command": "bin/server"}}))
        assert error.message == f"there is no program 'bin/server' (looked for {tmp_path}/bin/server)"


def test_a_program_that_may_not_run_is_refused_without_a_retry(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_bytes(b"\x00\x01 no program of this machine")
    program.chmod(0o755)
    with connected({}, load=False) as mcp:
        error = raised(errors.StartError, lambda: mcp.load({"one": {"command": str(program)}}))
        assert rendered(error) == [
            f"StartError: one: could not be started ({program} is neither a program for this machine"
            " nor a script whose first line names its interpreter)",
            "  make the interpreter its command, such as python or bash, and the file its first argument",
        ]
        assert "starting it again" not in " ".join(log_of(mcp, "one"))


def test_the_waits_before_a_retry_are_one_two_and_four_seconds() -> None:
    assert Timing().retries == (1.0, 2.0, 4.0)
    assert (Timing().grace.eof, Timing().grace.term) == (2.0, 3.0)


def test_a_server_that_exits_at_start_is_tried_four_times_and_its_last_lines_are_told(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({"good": bad()}) as mcp, News(mcp) as news:
        error = raised(errors.StartError, lambda: mcp.load({"one": bad("die-start=7", f"runs={count}", ours="legacy")}))
        assert rendered(error) == [
            "StartError: one: could not start: exited with code 7. Last output: "
            "reading the configuration / looking for what it needs / cannot start: no herring",
            "  %mcp logs one · %mcp restart one",
        ]
        assert error.stderr[-1] == "cannot start: no herring"
        assert error.exit_code == 7
        assert runs(count) == 4
        assert [event.detail for event in news.events if event.detail.startswith("attempt")] == [
            "attempt 2 of 4 in 0.05 s: cannot start: no herring",
            "attempt 3 of 4 in 0.1 s: cannot start: no herring",
            "attempt 4 of 4 in 0.2 s: cannot start: no herring",
        ]
        states = [event.state for event in news.events if event.server == "one"]
        assert list(dict.fromkeys(states)) == ["starting", "error"]
        assert mcp.good.echo("x").text == "x"
        with pytest.raises(errors.StartError, match="no herring"):
            mcp.one.echo("x")


def test_a_server_that_starts_at_the_second_attempt_is_loaded(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({"one": bad("die-start=1", f"runs={count}", "bad-runs=2")}) as mcp:
        assert mcp.one.echo("x").text == "x"
        assert runs(count) == 3


def test_a_server_that_names_a_variable_that_was_not_passed_on_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERRING_TOKEN", "a-secret-value")
    with connected({}, load=False) as mcp:
        server = bad("die-start=1", "die-says=HERRING_TOKEN is not set")
        error = raised(errors.StartError, lambda: mcp.load({"one": server}))
        in_file = '"env": {"HERRING_TOKEN": "${HERRING_TOKEN}"} in its definition'
        way = f"add it by --env HERRING_TOKEN, or {in_file}"
        assert error.hint == f"HERRING_TOKEN is set here but not passed on: {way}"
        assert "a-secret-value" not in "".join(rendered(error))


def test_a_server_that_never_answers_fails_at_its_start_timeout() -> None:
    with connected({"good": bad()}) as mcp:
        began = time.monotonic()
        error = raised(errors.StartError, lambda: mcp.load({"one": bad("mute", start_timeout=0.5)}))
        assert 0.5 <= time.monotonic() - began < PATIENCE
        assert rendered(error) == [
            "StartError: one: did not answer within 0.5 s",
            "  %mcp logs one · %mcp restart one",
        ]
        assert mcp.servers["one"].state == "error"
        assert mcp.good.echo("x").text == "x"


def test_a_server_that_never_lists_its_tools_fails_at_its_start_timeout() -> None:
    with (
        connected({}, load=False) as mcp,
        pytest.raises(errors.StartError, match=r"answered, but did not list its tools within 0\.5 s"),
    ):
        mcp.load({"one": bad("mute=tools/list", start_timeout=0.5)})


def test_a_death_in_mid_call_fails_all_calls_in_flight_and_replays_none(tmp_path: Path) -> None:
    record, count = tmp_path / "record", tmp_path / "runs"
    servers = {"one": bad(f"record={record}", f"runs={count}", "bad-runs=9"), "good": bad()}
    with connected(servers) as mcp, News(mcp) as news:
        others = [mcp.one.sleep.submit(60) for _ in range(3)]
        alive = mcp.good.sleep.submit(0.3)
        error = raised(errors.ConnectionLost, lambda: mcp.one.die())
        assert rendered(error) == [
            "ConnectionLost: one.die: the server exited with code 3. Last output: misbehaving: dying as told",
            "  %mcp logs one · %mcp restart one",
        ]
        assert (error.server, error.tool, error.exit_code) == ("one", "die", 3)
        assert error.stderr == ("misbehaving: dying as told",)
        for call in others:
            with pytest.raises(errors.ConnectionLost, match="exited with code 3"):
                call.result(PATIENCE)
        news.until(lambda: mcp.servers["one"].state == "ready" and runs(count) == 2)
        assert mcp.one.echo("again").text == "again"
        assert alive.result(PATIENCE).text == "slept 0.3 s"
        assert calls_read(record, "die") == 1
        assert calls_read(record, "sleep") == 3
        assert mcp.calls == []


def test_a_call_made_while_a_server_restarts_waits_for_it(tmp_path: Path) -> None:
    with connected({"one": bad()}) as mcp:
        with pytest.raises(errors.ConnectionLost):
            mcp.one.die()
        assert mcp.one.echo("x").text == "x"


def test_the_default_host_restarts_a_dead_server_after_a_second() -> None:
    with ipymcp.connect({"one": bad()}) as mcp:
        with pytest.raises(errors.ConnectionLost):
            mcp.one.die()
        began = time.monotonic()
        assert mcp.one.echo("x").text == "x"
        assert time.monotonic() - began >= 0.9


def test_a_server_that_keeps_dying_is_given_up_after_three_restarts(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({"one": bad("die-idle=0.5", f"runs={count}")}) as mcp, News(mcp) as news:
        news.until(lambda: mcp.servers["one"].state == "error")
        assert runs(count) == 4
        with pytest.raises(errors.ConnectionLost, match="exited with code 3"):
            mcp.one.echo("x")


def test_a_server_told_not_to_restart_stays_down(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({"one": bad(f"runs={count}", restart="no")}) as mcp, News(mcp) as news:
        with pytest.raises(errors.ConnectionLost):
            mcp.one.die()
        news.until(lambda: mcp.servers["one"].state == "error")
        error = raised(errors.ConnectionLost, lambda: mcp.one.echo("x"))
        assert error.hint == "%mcp logs one · %mcp restart one"
        assert runs(count) == 1
        mcp.restart("one")
        assert mcp.one.echo("x").text == "x"


def test_an_answer_cut_off_by_death_is_a_lost_connection() -> None:
    dying = """
def on(method, message):
    if method == "tools/call":
        print('{"jsonrpc":"2.0","id":%d,"result":{"cont' % message["id"], end="", flush=True)
        sys.exit(5)
"""
    with connected({"one": scripted(dying)}) as mcp, pytest.raises(errors.ConnectionLost, match="exited with code 5"):
        mcp.one.work()


def test_a_server_that_closes_its_output_is_lost_and_ended() -> None:
    with connected({"one": bad("close-stdout=tools/call"), "good": bad()}) as mcp, News(mcp) as news:
        old = psutil.Process(mcp.servers["one"].pid)
        error = raised(errors.ConnectionLost, lambda: mcp.one.echo("x"))
        assert rendered(error) == [
            "ConnectionLost: one.echo: the server closed its output",
            "  %mcp logs one · %mcp restart one",
        ]
        news.until(lambda: mcp.servers["one"].state == "ready" and mcp.servers["one"].pid != old.pid)
        assert not old.is_running() or old.status() == psutil.STATUS_ZOMBIE
        assert mcp.good.echo("x").text == "x"


@pytest.mark.parametrize("era", ["legacy", "modern", "both"])
def test_a_server_that_negotiates_an_unknown_version_is_refused_and_not_retried(era: str, tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({"good": bad()}) as mcp:
        server = bad("negotiate=1999-01-01", f"runs={count}", era=era)
        error = raised(errors.ProtocolError, lambda: mcp.load({"one": server}))
        said = {
            "legacy": "the server answered with the unknown protocol version '1999-01-01'",
            "modern": "the server supports only 1999-01-01",
            "both": "the server supports only 1999-01-01",
        }
        assert rendered(error) == [
            f"ProtocolError: one: {said[era]}",
            "  ipymcp supports 2026-07-28, 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        ]
        assert runs(count) == 1
        assert mcp.servers["one"].state == "error"
        assert mcp.good.echo("x").text == "x"


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ("legacy", "modern", "the server does not support the stateless era"),
        ("modern", "legacy", "the server does not support the handshake era"),
    ],
)
def test_an_era_that_was_forced_and_is_not_spoken_is_refused_and_not_retried(
    theirs: str, ours: str, message: str, tmp_path: Path
) -> None:
    count = tmp_path / "runs"
    with connected({}, load=False) as mcp:
        error = raised(errors.ProtocolError, lambda: mcp.load({"one": bad(f"runs={count}", era=theirs, ours=ours)}))
        hint = '  write "era": "auto" in its definition, or load it with --era auto on a %mcp line'
        assert rendered(error) == [f"ProtocolError: one: {message}", hint]
        assert runs(count) == 1


@pytest.mark.parametrize("words", [[], ["id-last"]], ids=["id-first", "id-last"])
def test_a_result_over_the_limit_fails_its_call_alone_and_is_not_kept(words: list[str]) -> None:
    with connected({"one": bad(*words, max_result_bytes=1_000_000), "good": bad()}) as mcp:
        pid = pid_of(mcp, "one")
        other = mcp.one.sleep.submit(0.5)
        before = psutil.Process().memory_info().rss
        error = raised(errors.ResultTooLarge, lambda: mcp.one.big(60))
        assert psutil.Process().memory_info().rss - before < 20_000_000
        assert rendered(error) == [
            "ResultTooLarge: one.big: the response is larger than 1,000,000 bytes and was discarded",
            "  ask for less, or load the server with a larger max_result_bytes",
        ]
        assert error.limit == 1_000_000
        assert other.result(PATIENCE).text == "slept 0.5 s"
        assert pid_of(mcp, "one") == pid
        assert mcp.good.echo("x").text == "x"
        assert re.search(
            r"a line of 60,\d{3},\d{3} bytes was discarded; the limit is 1,000,000", "\n".join(log_of(mcp, "one"))
        )


def test_a_malformed_answer_fails_its_own_call_at_once() -> None:
    with connected({"one": bad("malformed"), "good": bad()}) as mcp:
        began = time.monotonic()
        error = raised(errors.CallError, lambda: mcp.one.echo("x"))
        assert time.monotonic() - began < PATIENCE
        assert rendered(error) == [
            "CallError: one.echo: the server's answer is not valid JSON (Expecting value at character 46)",
            "  a fault of the server; see its log",
        ]
        assert mcp.servers["one"].state == "ready"
        assert '{"content":[,]}' in "".join(log_of(mcp, "one", "host"))
        assert mcp.good.echo("x").text == "x"


def test_a_refused_request_is_an_error_with_code_and_data(mcp: Mcp) -> None:
    refuse = partial(mcp.one.refuse, code=-32002, message="no such herring", data={"herring": [1, None]})
    error = raised(errors.RpcError, refuse)
    assert (error.code, error.data) == (-32002, {"herring": [1, None]})
    assert (error.server, error.tool) == ("one", "refuse")
    assert rendered(error)[0] == "RpcError: one.refuse: no such herring"
    error = raised(errors.RpcError, partial(mcp.one.refuse, code=1, message="no such\n  herring", data=None))
    assert rendered(error) == ["RpcError: one.refuse: no such", "│   herring"]
    error.message = f"on the worker w: {error.message}"
    assert rendered(error) == ["RpcError: one.refuse: on the worker w: no such␊  herring"]


def test_a_tool_that_fails_is_a_tool_error_that_holds_its_answer(demo: Mcp) -> None:
    error = raised(errors.ToolError, demo.demo.fail)
    assert error.result.is_error
    assert error.result.text
    assert (error.server, error.tool) == ("demo", "fail")
    assert rendered(error)[1] == "  reported by the tool"
    longest = "x" * 300
    whole = raised(errors.ToolError, lambda: demo.demo.fail(message=longest))
    assert rendered(whole) == [f"ToolError: demo.fail: {longest}", "  reported by the tool"]
    cut = raised(errors.ToolError, lambda: demo.demo.fail(message=f"{longest}y"))
    hint = "  reported by the tool; .result has all of it"
    assert rendered(cut) == [f"ToolError: demo.fail: {longest[:-1]}…", hint]
    assert cut.result.text == f"{longest}y"
    trace = 'Traceback:\n  File "srv.py", line 3\n    raise \x1b[31mE\nE'
    several = raised(errors.ToolError, lambda: demo.demo.fail(message=trace))
    assert several.message == 'Traceback: / File "srv.py", line 3 / raise ␛[31mE / E'
    assert rendered(several) == [
        "ToolError: demo.fail: Traceback:",
        '│   File "srv.py", line 3',
        "│     raise ␛[31mE",
        "│ E",
        "  reported by the tool",
    ]
    assert problem(several).message == 'Traceback:\n  File "srv.py", line 3\n    raise ␛[31mE\nE'
    long = raised(errors.ToolError, lambda: demo.demo.fail(message="\n".join(map(str, range(20)))))
    assert long.lines == [*"012345", "… 9 more lines", "15", "16", "17", "18", "19"]
    assert (demo.servers["demo"].error, demo.servers["demo"].state) == ("", "ready")


def test_a_call_without_an_answer_times_out_and_the_server_is_told(mcp: Mcp) -> None:
    began = time.monotonic()
    error = raised(errors.CallTimeout, lambda: mcp.one.sleep.options(timeout=0.3)(60))
    assert 0.3 <= time.monotonic() - began < PATIENCE
    assert rendered(error) == [
        "CallTimeout: one.sleep: no answer within 0.3 s",
        "  give it longer: mcp.one.sleep.options(timeout=0.6)(…)",
    ]
    assert isinstance(error, TimeoutError)
    call = mcp.one.sleep.options(timeout=0.3).submit(60)
    raised(errors.CallTimeout, lambda: call.result(PATIENCE))  # though nothing waited for it
    assert mcp.one.seen().data["cancelled"][-2:] == sent_to(mcp, "sleep")[-2:]


def test_progress_resets_the_clock(mcp: Mcp) -> None:
    steps: list[Progress] = []
    result = mcp.one.progress.options(timeout=1.0, on_progress=steps.append)(interval=0.3, count=6)
    assert result.text == "6 steps"
    assert [(step.progress, step.total, step.message) for step in steps[:2]] == [(1, 6, "step 1"), (2, 6, "step 2")]


def test_a_call_ends_at_its_last_deadline_in_spite_of_progress() -> None:
    with connected({"one": bad(timeout=0.5, max_timeout=1)}) as mcp:
        error = raised(errors.CallTimeout, lambda: mcp.one.progress(interval=0.1))
        assert error.message == "no answer within 1 s"
        assert len(mcp.one.seen().data["cancelled"]) == 1


def test_a_stopped_or_disabled_server_says_how_to_start_it() -> None:
    with connected({"one": bad()}) as mcp:
        echo = mcp.one.echo
        mcp.stop("one")
        error = raised(errors.ServerStopped, lambda: echo("x"))
        assert rendered(error) == ["ServerStopped: one: is stopped", "  %mcp start one"]
        mcp.disable("one")
        error = raised(errors.ServerStopped, lambda: mcp.one.echo("x"))
        assert rendered(error) == ["ServerStopped: one: is disabled", "  %mcp enable one"]


def test_a_server_that_dies_of_the_probe_is_started_once_more_with_initialize_alone(tmp_path: Path) -> None:
    record, count = tmp_path / "record", tmp_path / "runs"
    words = ("die-on=server/discover", f"record={record}", f"runs={count}", "bad-runs=9")
    with connected({"one": bad(*words, era="legacy")}) as mcp:
        assert mcp.servers["one"].protocol_version == "2025-11-25"
        assert [frame["method"] for frame in frames_read(record)] == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/list",
        ]
        assert "starting it again" not in " ".join(log_of(mcp, "one"))
        assert runs(count) == 2
        mcp.restart("one")
        assert runs(count) == 3
        assert [frame["method"] for frame in frames_read(record)][4] == "initialize"


def test_a_server_silent_to_the_probe_is_sent_initialize_after_two_seconds(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with connected({}, load=False) as mcp:
        began = time.monotonic()
        mcp.load({"one": bad("mute=server/discover", "delay=initialize:0.3", f"record={record}", era="legacy")})
        assert time.monotonic() - began >= 2.3
        assert [frame["method"] for frame in frames_read(record)[:2]] == ["server/discover", "initialize"]
        assert mcp.one.echo("x").text == "x"
        mcp.restart("one")  # an era decided after silence is not remembered
        assert [frame["method"] for frame in frames_read(record)].count("server/discover") == 2


def test_a_slow_server_of_the_stateless_era_is_asked_both_and_its_first_success_decides(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with connected({"one": bad("slow-start=2.5", f"record={record}", era="modern")}) as mcp:
        assert mcp.servers["one"].protocol_version == "2026-07-28"
        assert mcp.one.echo("x").text == "x"
        assert {"server/discover", "initialize"} <= {frame["method"] for frame in frames_read(record)}


def test_an_era_that_was_answered_is_remembered_per_definition(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with connected({"one": bad(f"record={record}", era="legacy")}) as mcp:
        mcp.restart("one")
        assert [frame["method"] for frame in frames_read(record)].count("server/discover") == 1
        mcp.load({"two": bad(f"record={record}", "tools=1", era="legacy")})  # another definition is asked
        assert [frame["method"] for frame in frames_read(record)].count("server/discover") == 2


@pytest.mark.parametrize(("first", "then"), [("legacy", "modern"), ("modern", "legacy")])
def test_a_server_that_changed_its_era_is_asked_again(first: str, then: str, tmp_path: Path) -> None:
    choice = tmp_path / "era"
    choice.write_text(first)
    script = f"exec {sys.executable} {Path(__file__).parents[1] / 'servers' / 'misbehaving.py'} --era $(cat {choice})"
    with connected({"one": {"command": "sh", "args": ["-c", script]}}) as mcp:
        before = mcp.servers["one"].protocol_version
        choice.write_text(then)
        mcp.restart("one")
        after = mcp.servers["one"].protocol_version
        assert {before, after} == {"2025-11-25", "2026-07-28"}
        assert mcp.one.echo("x").text == "x"


def test_a_script_that_ends_in_an_error_prints_the_hint_too(tmp_path: Path) -> None:
    script = "import ipymcp\nwith ipymcp.connect() as mcp:\n    mcp.demmo.echo('x')\n"
    environment = {**os.environ, "IPYMCP_STATE_DIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert ended.stderr.splitlines()[-2:] == [
        "ipymcp.errors.UnknownName: there is no server 'demmo'",
        "nothing is loaded yet: %mcp load demo",
    ]


def test_notes_of_others_stand_below_the_hint() -> None:
    error = errors.McpError("failed", hint="do this")
    error.add_note("and this")
    assert error.__notes__ == ["do this", "and this"]
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["do this", "and this"]

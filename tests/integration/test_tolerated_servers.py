"""Faults of servers that are tolerated: the log reports them, and the call works."""

import asyncio
import logging
import math
import threading
import time
from pathlib import Path

import psutil
import pytest

from ipymcp import errors
from ipymcp.protocol.transports.process import Grace
from ipymcp.runtime import call as runtime_calls
from ipymcp.runtime.context import Timing
from ipymcp.runtime.events import ToolsChanged
from tests import processes
from tests.bad_servers import (
    PATIENCE,
    News,
    bad,
    calls_read,
    connected,
    frames_read,
    log_of,
    runs,
    scripted,
)
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("junk", "not a message: Listening on nothing in particular {"),
        ("bom", "not a message: \ufeff"),
        ("invalid-utf8", 'not a JSON-RPC message: {"text": "\ufffd\ufffd\ufffd"}'),
        ("nan", 'not a JSON-RPC message: {"value": NaN}'),
        ("surrogate", 'not a JSON-RPC message: {"value": "\\ud800"}'),
        ("hello", 'not a JSON-RPC message: {"hello": 1}'),
    ],
)
def test_noise_between_messages_is_logged_and_calls_work(kind: str, said: str) -> None:
    with connected({"one": bad(f"noise={kind}")}) as mcp:
        assert mcp.one.echo("x").text == "x"
        assert any(said in line for line in log_of(mcp, "one", "host")), log_of(mcp, "one")


@ERAS
def test_all_noise_at_once_with_a_banner_in_small_pieces(era: str) -> None:
    with connected({"one": bad("banner", "noise=all", "crlf", "chunks=7", "stderr=100", era=era)}) as mcp:
        assert [mcp.one.echo(f"{n}").text for n in range(20)] == [f"{n}" for n in range(20)]
        assert any("Welcome to the misbehaving server" in line for line in log_of(mcp, "one", "host"))


def test_nan_reaches_the_data_as_a_float() -> None:
    with connected({"one": bad("taint=nan")}) as mcp:
        value = mcp.one.echo("x").data["value"]
        assert isinstance(value, float) and math.isnan(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("surrogate", "x\ufffd"),
        ("invalid-utf8", "x\ufffd\ufffd"),
        ("bom", "x"),
        ("surrogate,invalid-utf8,nan,bom", "x\ufffd\ufffd\ufffd"),
    ],
)
def test_a_spoiled_answer_is_mended(kind: str, text: str) -> None:
    with connected({"one": bad(f"taint={kind}")}) as mcp:
        result = mcp.one.echo("x")
        assert result.text == text
        result.text.encode()


def test_a_second_answer_and_answers_to_unknown_ids_are_ignored() -> None:
    with connected({"one": bad("twice", "unknown-id")}) as mcp:
        assert [mcp.one.echo(text).text for text in "abc"] == ["a", "b", "c"]
        lines = "\n".join(log_of(mcp, "one", "host"))
        assert "an answer to no request in flight (id 999999): a result" in lines
        assert "an answer to no request in flight (id 'stranger'): a result" in lines


@pytest.mark.parametrize("kind", ["string", "float"])
def test_ids_given_back_as_text_or_floats_are_understood(kind: str) -> None:
    with connected({"one": bad(f"id-as={kind}")}) as mcp:
        assert mcp.one.echo("x").text == "x"


@pytest.mark.timed
def test_a_line_of_50_megabytes_is_read_while_another_server_answers() -> None:
    with connected({"one": bad(), "good": bad()}) as mcp:
        big = mcp.one.big.submit(50)
        waits = []
        while not big.done:
            began = time.monotonic()
            mcp.good.echo("x")
            waits.append(time.monotonic() - began)
        assert len(big.result().text) == 50_000_000
        assert max(waits) < 1.0


@pytest.mark.timed
def test_fifty_thousand_lines_a_second_on_stderr_delay_no_other_server() -> None:
    with connected({"one": bad("stderr=50000"), "good": bad()}) as mcp:
        log = mcp._host.sessions["one"].log
        waits = []
        while log.total < 25_000:
            began = time.monotonic()
            assert mcp.good.echo("x").text == "x"
            waits.append(time.monotonic() - began)
        waits.sort()
        assert waits[len(waits) // 2] < 0.05
        assert waits[-1] < 1.0
        assert len(log) == 1000
        assert mcp.one.echo("x").text == "x"


@pytest.mark.timed
@ERAS
def test_a_flood_of_list_changed_is_a_few_questions(era: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    timing = Timing(grace=Grace(0.5, 0.5))
    with connected({"one": bad("flood=2000", f"record={record}", era=era), "good": bad()}, timing=timing) as mcp:
        end = time.monotonic() + 2
        waits = []
        while time.monotonic() < end:
            began = time.monotonic()
            assert mcp.good.echo("x").text == "x"
            waits.append(time.monotonic() - began)
        asked = sum(frame.get("method") == "tools/list" for frame in frames_read(record))
        assert 2 <= asked <= 6  # at the start, then after 0.25, 0.5 and 1 s
        assert max(waits) < 1.0
        assert mcp.one.echo("x").text == "x"


def test_a_deaf_server_gets_everything_whole_once_it_reads(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with connected({"one": bad("deaf=1", f"record={record}"), "good": bad()}) as mcp:
        texts = [f"{n}-" + "x" * (n * 997 % 200_000) for n in range(60)]
        calls = [mcp.one.echo.submit(text) for text in texts]
        assert mcp.good.echo("x").text == "x"
        assert [call.result(PATIENCE).text for call in calls] == texts
        assert calls_read(record, "echo") == 60


@pytest.mark.timed
def test_a_call_waits_while_64_megabytes_for_a_deaf_server_are_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime_calls.MAX_QUEUED == 64_000_000
    monkeypatch.setattr(runtime_calls, "MAX_QUEUED", 6_400_000)  # the same, sooner
    with connected({"one": bad("deaf=1.5"), "good": bad()}) as mcp:
        block = "x" * 1_500_000
        sent = [mcp.one.echo.submit(block) for _ in range(4)]
        assert mcp._host.sessions["one"].client.queued > 4_000_000
        with pytest.raises(errors.CallTimeout) as caught:
            mcp.one.echo.options(timeout=0.2)(block)
        assert caught.value._render_traceback_() == [
            "CallTimeout: one.echo: not sent: the server did not read the earlier messages within 0.2 s",
            "  give it longer: mcp.one.echo.options(timeout=0.4)(…), or %mcp restart one",
        ]
        assert mcp._host.sessions["one"].client.queued < 6_100_000
        assert mcp.good.echo("x").text == "x"

        async def wait() -> tuple[int, bool]:
            ticked = False

            def tick() -> None:
                nonlocal ticked
                ticked = True

            asyncio.get_running_loop().call_later(0.05, tick)
            return len((await mcp.one.echo.aio(block)).text), ticked

        assert asyncio.run(wait()) == (1_500_000, True)
        assert [len(call.result(PATIENCE).text) for call in sent] == [1_500_000] * 4
        assert len(mcp.one.echo(block).text) == 1_500_000


def test_a_call_that_waits_for_a_deaf_server_that_dies_is_lost() -> None:
    with connected({"one": bad("deaf=60", restart=False)}) as mcp:
        block = "x" * 40_000_000
        first = mcp.one.echo.submit(block)
        waiting: list[BaseException] = []

        def call() -> None:
            try:
                mcp.one.echo(block)
            except errors.McpError as error:
                waiting.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        psutil.Process(mcp.servers["one"].pid).kill()
        thread.join(PATIENCE)
        assert isinstance(waiting[0], errors.ConnectionLost)
        with pytest.raises(errors.ConnectionLost, match="ended by SIGKILL"):
            first.result(PATIENCE)


@pytest.mark.timed
@pytest.mark.parametrize("word", ["ignore-eof", "ignore-sigterm", "stubborn"])
def test_a_server_that_will_not_end_is_ended(word: str) -> None:
    with connected({"one": bad(word, "child")}) as mcp:
        group = mcp.servers["one"].pid
        assert len(processes.group_members(group)) >= 3
        began = time.monotonic()
    assert time.monotonic() - began < 4
    processes.wait_until_group_gone(group, 1)


@pytest.mark.parametrize("word", ["child", "child-setsid"])
def test_grandchildren_are_gone_after_a_stop(word: str) -> None:
    with connected({"one": bad(word)}) as mcp:
        children = [psutil.Process(pid) for pid in mcp.one.pid().data["children"]]
        assert len(children) == 2
        mcp.stop("one")
        assert [child for child in children if processes.is_alive(child)] == []


def test_a_wrapper_of_a_shell_and_all_below_it_are_gone_after_a_stop() -> None:
    definition = bad("stubborn", "child")
    line = " ".join([definition["command"], *definition["args"]])
    with connected({"one": {"command": "sh", "args": ["-c", f"{line}; true"]}}) as mcp:
        below = processes.descendants(mcp.servers["one"].pid)
        assert len(below) >= 3
        mcp.stop("one")
        assert [process for process in below if processes.is_alive(process)] == []


def test_five_thousand_tools_come_in_pages(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with connected({"one": bad("tools=5000", "page=250", f"record={record}")}) as mcp:
        assert len(mcp.one) == 5013
        assert mcp.one.tool_04999().text == "tool_04999"
        assert sum(frame.get("method") == "tools/list" for frame in frames_read(record)) == 21


def test_a_repeated_cursor_ends_the_list() -> None:
    with connected({"one": bad("endless=same")}) as mcp:
        assert mcp.one.echo("x").text == "x"
        assert "page_00001" in mcp.one
        assert "tools/list repeats its cursor 'page-1'; the list ends here" in log_of(mcp, "one", "host")


def test_the_thousandth_page_ends_the_list() -> None:
    with connected({"one": bad("endless=new")}) as mcp:
        assert mcp.one.echo("x").text == "x"
        assert len(mcp.one) == 13 + 999
        assert "tools/list has more than 1,000 pages; the list ends here" in log_of(mcp, "one", "host")


def test_a_server_that_dies_while_idle_is_started_again(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({"one": bad("die-idle=0.2", f"runs={count}", "bad-runs=1")}) as mcp, News(mcp) as news:
        news.until(lambda: runs(count) == 2 and mcp.servers["one"].state == "ready")
        assert mcp.one.echo("x").text == "x"
        assert news.says("the server exited with code 3; starting it again in 0.05 s (1 of 3)")


def test_batches_are_understood() -> None:
    with connected({"one": bad("batch", era="legacy", version="2025-03-26")}) as mcp:
        assert mcp.servers["one"].protocol_version == "2025-03-26"
        assert [mcp.one.echo(text).text for text in "abc"] == ["a", "b", "c"]
        assert "in a batch" in log_of(mcp, "one", "server")


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
def test_every_handshake_version_is_spoken(version: str) -> None:
    with connected({"one": bad(era="legacy", version=version)}) as mcp:
        assert mcp.servers["one"].protocol_version == version
        assert mcp.one.echo("x").text == "x"


def test_a_ping_is_answered_and_undeclared_requests_are_refused_in_the_handshake_era() -> None:
    with connected({"one": bad("asks=ping,sampling/createMessage", era="legacy")}) as mcp:
        assert mcp.one.ask("ping").data["answer"] == {"jsonrpc": "2.0", "id": "ask-3", "result": {}}
        [root] = mcp.one.ask("roots/list").data["answer"]["result"]["roots"]
        assert root["uri"] == Path.cwd().as_uri()
        for method in ("sampling/createMessage", "no/such"):
            answer = mcp.one.ask(method).data["answer"]
            assert answer["error"] == {"code": -32601, "message": f"{method} is not supported by this host"}
        answers = mcp.one.seen().data["answers"]
        assert {answer["id"]: "result" in answer for answer in answers[:2]} == {"ask-1": True, "ask-2": False}
        assert "the server sent no/such, which this host does not offer" in log_of(mcp, "one", "host")


def test_a_request_of_the_server_is_not_answered_in_the_stateless_era() -> None:
    with connected({"one": bad(era="modern")}) as mcp:
        assert mcp.one.ask(method="ping", seconds=0.3).data["answer"] is None
        assert mcp.one.seen().data["answers"] == []
        said = "request ping from the server is not part of this era: not answered"
        assert said in log_of(mcp, "one", "host")


def test_a_flood_of_requests_from_a_server_that_does_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipymcp.protocol.client._MAX_UNREAD", 100_000)
    asking = """
def on(method, message):
    if method == "tools/list":
        say(id=message["id"], result={"tools": tools})
        for number in range(5000):
            say(id=f"{number}-" + "x" * 1000, method="ping")
        threading.Event().wait()
"""
    with connected({}, load=False) as mcp, News(mcp) as news:
        mcp.load({"one": scripted(asking)})
        news.until(lambda: news.says("request ping from the server not answered: the server does not read its input"))
        assert mcp._host.sessions["one"].client.queued < 102_000


def test_progress_with_an_unknown_token_is_ignored() -> None:
    reporting = """
def on(method, message):
    if method == "tools/call":
        for token in (message["params"]["_meta"]["progressToken"], 999, "stranger", None, [1], 1.5):
            say(method="notifications/progress", params={"progressToken": token, "progress": 1})
        say(method="notifications/progress")
        say(method="notifications/progress", params=5)
        return {"content": []}
"""
    with connected({"one": scripted(reporting)}) as mcp:
        reports: list[object] = []
        mcp.one.work.options(on_progress=reports.append)()
        assert len(reports) == 1
        assert any("progress without a usable token" in line for line in log_of(mcp, "one", "host"))


def test_a_late_answer_to_a_cancelled_call_is_ignored() -> None:
    late = """
def on(method, message):
    if method == "notifications/cancelled":
        say(id=message["params"]["requestId"], result={"content": []})
        say(method="notifications/message", params={"level": "info", "data": "answered late"})
"""
    with connected({"one": scripted(late)}) as mcp, News(mcp) as news:
        call = mcp.one.work.submit()
        call.cancel()
        news.until(lambda: news.says("answered late"))
        assert log_of(mcp, "one", "host") == []
        assert mcp.servers["one"].state == "ready"


@ERAS
def test_a_changed_list_of_tools_is_read_again(era: str) -> None:
    with connected({"one": bad(era=era)}) as mcp, News(mcp) as news:
        for _ in range(2):
            name = mcp.one.change().text
            news.until(lambda name=name: name in mcp.one)
            assert mcp.one[name]().text == name
        added = [("added_00000",), ("added_00001",)]
        news.until(lambda: [event.added for event in news.events if isinstance(event, ToolsChanged)] == added)


def test_a_subscription_that_the_server_ends_is_taken_again() -> None:
    ending = """
listens = 0

def on(method, message):
    global listens
    tools[0]["name"] = f"after_{listens}"
    if method == "subscriptions/listen":
        listens += 1
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        acknowledged = {**about, "notifications": {"toolsListChanged": True}}
        say(method="notifications/subscriptions/acknowledged", params=acknowledged)
        if listens == 2:
            say(method="notifications/cancelled", params={"requestId": message["id"]})
        return {"resultType": "complete", **about} if listens == 1 else None
"""
    with connected({}, load=False) as mcp, News(mcp) as news:
        mcp.load({"one": scripted(ending, ours="modern")})
        news.until(lambda: "after_3" in mcp.one)


LEFT_OUT = "it does not know server/discover, and wrote 3 lines about it (left out); using the handshake"


@pytest.mark.parametrize(
    "first",
    [
        "Failed to validate request: 31 validation errors for ClientRequest",
        "WARNING:root:Failed to validate request: Received request before initialization was complete",
        "[11/28/26 10:00:00] WARNING  Failed to validate request: 31 validation     session.py:379",
        "2026-11-28 10:00:00,123 - low - DEBUG - Received message: 31 validation errors for ClientRequest",
        "level=WARN msg='unknown method' method=server/discover",
        "-32601: Method not found",
    ],
)
def test_what_a_server_writes_about_the_probe_is_one_line_and_its_own_lines_are_kept(first: str) -> None:
    complaining = f"""
def on(method, message):
    lines = {{
        "server/discover": ["loading models", {first!r}, "PingRequest.method", "  Input should be 'ping'"],
        "tools/list": ["ERROR: it broke"],
    }}
    print(*lines.get(method, []), sep="\\n", file=sys.stderr, flush=True)
    return {{"nothing": 1}} if method == "server/discover" else None
"""
    with connected({"one": scripted(complaining, ours="auto")}) as mcp:
        assert log_of(mcp, "one") == ["loading models", LEFT_OUT, "ERROR: it broke"]
        assert mcp.servers["one"].error == "ERROR: it broke"
        assert mcp.servers.table.df["last error"].tolist() == ["ERROR: it broke"]


def test_what_a_server_writes_about_the_probe_is_kept_if_it_does_not_start() -> None:
    dying = """
def on(method, message):
    print("Method not found", method, file=sys.stderr, flush=True)
    sys.exit(3)
"""
    with connected({}, load=False) as mcp:
        with pytest.raises(errors.McpError, match="Method not found initialize"):
            mcp.load({"one": scripted(dying, ours="auto")})
        assert "Method not found server/discover" in log_of(mcp, "one", "stderr")


@ERAS
def test_log_messages_reach_the_logs_and_logging_and_nothing_is_printed(
    era: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with connected({"one": bad(era=era)}) as mcp, caplog.at_level(logging.DEBUG, "ipymcp.server.one"):
        mcp.one.log(level="warning", data="herring")
        mcp.one.log(level="info", data={"a": [1]})
        assert log_of(mcp, "one", "server") == ["misbehaving: herring", 'misbehaving: {"a":[1]}']
        said = [
            (record.levelname, record.getMessage()) for record in caplog.records if record.name == "ipymcp.server.one"
        ]
        assert ("WARNING", "server: misbehaving: herring") in said
        assert ("INFO", 'server: misbehaving: {"a":[1]}') in said
        with pytest.raises(errors.ConnectionLost):
            mcp.one.die()
        assert mcp.one.echo("x").text == "x"
    assert capfd.readouterr() == ("", "")


def test_an_answer_nested_too_deeply_fails_its_call_alone() -> None:
    deep = """
calls = 0

def on(method, message):
    global calls
    if method == "tools/call":
        calls += 1
        if calls > 1:
            return {"content": []}
        nested = "[" * 100_000 + "]" * 100_000
        print('{"jsonrpc":"2.0","id":%d,"result":{"content":%s}}' % (message["id"], nested), flush=True)
"""
    with connected({"one": scripted(deep)}) as mcp:
        with pytest.raises(errors.CallError, match="nested too deeply"):
            mcp.one.work()
        assert mcp.one.work().content == []


def test_an_answer_without_result_or_error_fails_its_call_and_a_null_error_is_none() -> None:
    empty = """
calls = 0

def on(method, message):
    global calls
    if method == "tools/call":
        calls += 1
        if calls == 1:
            say(id=message["id"])
        else:
            say(id=message["id"], error=None, result={"content": []})
"""
    with connected({"one": scripted(empty)}) as mcp:
        with pytest.raises(errors.CallError) as caught:
            mcp.one.work()
        assert caught.value.message == "the server's answer contains neither a result nor an error"
        assert mcp.one.work().content == []


def test_a_server_that_closes_its_input_is_lost() -> None:
    closing = """
def on(method, message):
    import os
    if method == "tools/list":
        os.close(0)
        say(id=message["id"], result={"tools": tools})
        threading.Event().wait()
"""
    with (
        connected({"one": scripted(closing) | {"restart": False}}) as mcp,
        pytest.raises(errors.ConnectionLost, match="the server closed its input"),
    ):
        mcp.one.work()

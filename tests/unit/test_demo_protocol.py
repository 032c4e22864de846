"""The demo server's protocol in both eras, over raw pipes."""

import json
import signal
import subprocess
import sys

import pytest

from tests.demo_peer import META, PACKAGE, STATELESS, both_eras, newest_of_each_era


def test_in_the_handshake_era_calls_are_logged_from_info_up_until_told_otherwise(connect):
    peer = connect()
    peer.request("tools/call", name="query", arguments={"table": "penguins", "where": "year = 2007"})
    log = peer.next()
    assert log["params"] == {
        "level": "info",
        "logger": "demo",
        "data": "SELECT * FROM penguins WHERE (year = 2007) LIMIT 10",
    }
    peer.next()
    peer.ask("logging/setLevel", level="debug")
    peer.request("tools/call", name="echo", arguments={"text": "four"})
    assert peer.next()["params"]["data"] == "echo of 4 characters"
    peer.next()
    peer.ask("logging/setLevel", level="error")
    peer.request("tools/call", name="query", arguments={"table": "penguins"})
    assert "result" in peer.next()
    assert peer.ask("logging/setLevel", level="loud")["error"] == {"code": -32602, "message": "no such log level: loud"}


def test_in_the_stateless_era_a_call_is_logged_only_where_it_asks_for_that(connect):
    peer = connect(STATELESS)
    arguments = {"table": "penguins"}
    peer.request("tools/call", name="query", arguments=arguments)
    assert "result" in peer.next()
    peer.request("tools/call", meta={META + "logLevel": "info"}, name="query", arguments=arguments)
    assert peer.next()["params"]["data"] == "SELECT * FROM penguins LIMIT 10"
    assert "result" in peer.next()
    peer.request("tools/call", meta={META + "logLevel": "warning"}, name="query", arguments=arguments)
    assert "result" in peer.next()
    refused = peer.ask("tools/call", meta={META + "logLevel": "loud"}, name="query", arguments=arguments)
    assert refused["error"]["code"] == -32602


def test_a_subscription_is_acknowledged_with_what_can_change_and_ends_silently(connect):
    peer = connect(STATELESS)
    listening = peer.request("subscriptions/listen", notifications={"toolsListChanged": True})
    assert peer.next() == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {META + "subscriptionId": listening}, "notifications": {}},
    }
    peer.notify("notifications/cancelled", requestId=listening)
    assert peer.call("echo", text="after")["content"][0]["text"] == "after"
    assert peer.close()[0] == []


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({META + "protocolVersion": 1}, f"params._meta[{META}protocolVersion] must be a string"),
        ({META + "clientCapabilities": None}, f"params._meta lacks {META}clientCapabilities"),
    ],
)
def test_a_request_with_a_broken_envelope_is_refused(connect, meta, message):
    answer = connect(STATELESS).ask("tools/list", meta=meta)
    assert answer["error"] == {"code": -32602, "message": message}


def test_a_request_without_an_envelope_or_a_handshake_is_refused(connect):
    peer = connect(STATELESS)
    peer.stateless = False
    message = f"params._meta lacks {META}protocolVersion, and there was no initialize"
    assert peer.ask("server/discover")["error"] == {"code": -32602, "message": message}


def test_an_unsupported_version_is_refused_with_the_supported_one(connect):
    peer = connect(STATELESS)
    answer = peer.ask("server/discover", meta={META + "protocolVersion": "2031-01-01"})
    assert answer["error"] == {
        "code": -32022,
        "message": "Unsupported protocol version",
        "data": {"supported": [STATELESS], "requested": "2031-01-01"},
    }


@pytest.mark.parametrize(
    ("version", "method"),
    [
        ("2025-11-25", "server/discover"),
        ("2025-11-25", "roots/list"),
        ("2025-11-25", "subscriptions/listen"),
        (STATELESS, "initialize"),
        (STATELESS, "ping"),
        (STATELESS, "logging/setLevel"),
    ],
)
def test_a_method_of_the_other_era_or_of_none_is_not_found(connect, version, method):
    assert connect(version).ask(method)["error"] == {"code": -32601, "message": f"Method not found: {method}"}


def test_both_eras_are_served_by_one_process(connect):
    peer = connect()
    peer.stateless = True
    peer.version = STATELESS
    assert peer.ask("tools/list")["result"]["resultType"] == "complete"
    peer.stateless = False
    peer.version = "2025-11-25"
    assert "resultType" not in peer.ask("tools/list")["result"]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"name": "quack"}, "Unknown tool: quack"),
        ({}, "Unknown tool: None"),
        ({"name": "echo", "arguments": [1]}, "arguments must be an object"),
    ],
)
@newest_of_each_era
def test_a_malformed_call_is_refused(connect, version, params, message):
    assert connect(version).ask("tools/call", **params)["error"] == {"code": -32602, "message": message}


def test_ping_is_answered(connect):
    assert connect().ask("ping")["result"] == {}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", -32700),
        (b"\xff\xfe", -32700),
        (b"[" * 200_000, -32700),
        (b"3", -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32600),
    ],
)
def test_a_line_that_is_no_message_is_refused_and_the_next_one_served(connect, line, code):
    peer = connect()
    peer.line(line)
    answer = peer.next()
    assert "id" not in answer
    assert answer["error"]["code"] == code
    assert peer.ask("ping")["result"] == {}


def test_older_revisions_have_no_answer_without_an_id_so_none_is_sent(connect):
    peer = connect("2025-06-18")
    peer.line(b"hello")
    assert peer.ask("ping")["result"] == {}
    assert "ipymcp-demo: not JSON: " in peer.close()[1]


def test_an_answer_nobody_asked_for_and_empty_lines_are_ignored(connect):
    peer = connect()
    peer.line(b'{"jsonrpc": "2.0", "id": 5, "result": {}}')
    peer.line(b"\r")
    assert peer.ask("ping")["result"] == {}


def test_a_batch_is_answered_by_a_batch_without_what_was_cancelled(connect):
    peer = connect("2025-03-26")
    slow = {"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": {"name": "slow"}}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}}
    pings = [{"jsonrpc": "2.0", "id": name, "method": "ping"} for name in "ab"]
    peer.line(json.dumps([pings[0], slow, pings[1], cancelled]).encode())
    while not isinstance(answers := peer.next(), list):
        assert answers["method"] == "notifications/message"
    assert answers == [{"jsonrpc": "2.0", "id": name, "result": {}} for name in "ab"]


@pytest.mark.parametrize("command", [("-m", "ipymcp.demo"), ("-I", "-S", str(PACKAGE / "demo" / "__main__.py"))])
def test_it_runs_as_a_module_and_by_path_and_says_so_on_stderr(connect, command):
    peer = connect("2025-11-25", *command)
    assert peer.call("echo", text="hello")["content"][0]["text"] == "hello"
    rest, stderr = peer.close()
    assert (rest, stderr) == ([], "ipymcp-demo: ready, tools: query, plot, slow, fail, echo\n")


def test_it_ends_with_its_stdin_though_a_call_is_under_way(connect):
    peer = connect()
    peer.request("tools/call", name="slow", arguments={"seconds": 300})
    assert peer.next()["method"] == "notifications/message"
    assert peer.close()[0] == []
    assert peer.process.returncode == 0


def test_requests_before_the_end_of_stdin_are_answered(connect):
    peer = connect()
    echo = peer.request("tools/call", name="echo", arguments={"text": "last"})
    assert [frame["id"] for frame in peer.close()[0]] == [echo]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send")
def test_an_interrupt_is_ignored_quietly(connect):
    peer = connect()
    peer.process.send_signal(signal.SIGINT)
    assert peer.ask("ping")["result"] == {}
    assert peer.close()[1].count("\n") == 1


def test_starting_imports_nothing_that_only_a_tool_needs():
    heavy = ["sqlite3", "zlib", "base64", "struct", "typing", "asyncio", "dataclasses", "ipymcp"]
    code = (
        f"import sys; sys.path.append({str(PACKAGE)!r}); import demo.__main__; "
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@both_eras
def test_resources_and_templates_are_listed_and_read_in_the_words_of_the_revision(connect, version):
    peer = connect(version)
    resources = peer.ask("resources/list")["result"]["resources"]
    [template] = peer.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert [resource["uri"] for resource in resources] == ["demo://penguins.csv", "demo://notes.md"]
    assert all(("title" in resource) == (version >= "2025-06-18") for resource in [*resources, template])
    result = peer.ask("resources/read", uri="demo://penguins.csv")["result"]
    assert ("ttlMs" in result) == (version == STATELESS)
    lines = result["contents"][0]["text"].splitlines()
    assert lines[0].startswith("species,island,bill_length_mm")
    assert len(lines) == 1 + 42
    rows = peer.ask("resources/read", uri=template["uriTemplate"].replace("{species}", "Gentoo"))["result"]["contents"]
    assert {row["species"] for row in json.loads(rows[0]["text"])} == {"Gentoo"}
    assert "# Penguins" in peer.ask("resources/read", uri="demo://notes.md")["result"]["contents"][0]["text"]


@pytest.mark.parametrize(("version", "code"), [("2025-11-25", -32002), (STATELESS, -32602)])
def test_a_resource_that_is_not_there_is_refused_in_the_words_of_the_revision(connect, version, code):
    error = connect(version).ask("resources/read", uri="demo://penguins/Emperor")["error"]
    assert error == {
        "code": code,
        "message": "Resource not found: demo://penguins/Emperor",
        "data": {"uri": "demo://penguins/Emperor"},
    }


@both_eras
def test_the_prompt_is_listed_completed_and_given(connect, version):
    peer = connect(version)
    [prompt] = peer.ask("prompts/list")["result"]["prompts"]
    assert [argument["name"] for argument in prompt["arguments"]] == ["species", "tone"]
    result = peer.ask("prompts/get", name="describe", arguments={"species": "Adelie", "tone": "playful"})["result"]
    text, rows = (message["content"] for message in result["messages"])
    assert text["text"] == "Describe the Adelie penguins in a playful tone, in three sentences, from these rows."
    assert rows["resource"]["uri"] == "demo://penguins/Adelie"
    for reference, argument, typed, values in [
        ({"type": "ref/prompt", "name": "describe"}, "species", "", ["Adelie", "Chinstrap", "Gentoo"]),
        ({"type": "ref/prompt", "name": "describe"}, "tone", "play", ["playful"]),
        ({"type": "ref/resource", "uri": "demo://penguins/{species}"}, "species", "g", ["Gentoo"]),
        ({"type": "ref/resource", "uri": "demo://penguins/{species}"}, "tone", "", []),
    ]:
        completion = peer.ask("completion/complete", ref=reference, argument={"name": argument, "value": typed})
        assert completion["result"]["completion"]["values"] == values


@newest_of_each_era
@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("resources/list", {"cursor": "2"}, "unknown cursor: the list fits on one page"),
        ("resources/read", {}, "uri is missing"),
        ("prompts/get", {"name": "nope"}, "Unknown prompt: nope"),
        ("prompts/get", {"name": "describe"}, "species must be one of Adelie, Chinstrap, Gentoo"),
        (
            "prompts/get",
            {"name": "describe", "arguments": {"species": "Adelie", "tone": "grim"}},
            "tone must be one of plain, playful",
        ),
        ("completion/complete", {}, "ref or argument is missing"),
    ],
)
def test_what_cannot_be_read_or_given_is_refused(connect, version, method, params, message):
    assert connect(version).ask(method, **params)["error"] == {"code": -32602, "message": message}

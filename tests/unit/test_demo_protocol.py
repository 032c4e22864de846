"""The demo server's protocol in both eras, over raw pipes."""

import json
import signal
import subprocess
import sys

import pytest

from tests.demo_peer import META, PACKAGE, STATELESS, every_version, newest_of_each_era

stateless = pytest.mark.parametrize("peer", [STATELESS], indirect=True)
INVALID_PARAMS = -32602


def test_in_the_handshake_era_calls_are_logged_from_the_level_that_was_set_and_by_default_from_info(connect):
    peer = connect()
    peer.request("tools/call", name="query", arguments={"table": "penguins", "where": "year = 2007"})
    data = "SELECT * FROM penguins WHERE (year = 2007) LIMIT 10"
    assert peer.next()["params"] == {"level": "info", "logger": "demo", "data": data}
    peer.next()
    peer.ask("logging/setLevel", level="debug")
    peer.request("tools/call", name="echo", arguments={"text": "four"})
    assert peer.next()["params"]["data"] == "echo of 4 characters"
    peer.next()
    peer.ask("logging/setLevel", level="error")
    peer.request("tools/call", name="query", arguments={"table": "penguins"})
    assert "result" in peer.next()


@stateless
def test_in_the_stateless_era_a_call_is_logged_only_where_it_asks_for_that(peer):
    def frames(**meta):
        identifier = peer.request("tools/call", meta=meta, name="query", arguments={"table": "penguins"})
        received = [peer.next()]
        while received[-1].get("id") != identifier:
            received.append(peer.next())
        return received

    assert ["result" in frame for frame in frames()] == [True]
    log, answer = frames(**{META + "logLevel": "info"})
    assert log["params"]["data"] == "SELECT * FROM penguins LIMIT 10"
    assert "result" in answer
    assert ["result" in frame for frame in frames(**{META + "logLevel": "warning"})] == [True]
    [refused] = frames(**{META + "logLevel": "loud"})
    assert refused["error"]["code"] == INVALID_PARAMS


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
@stateless
def test_a_request_with_a_broken_envelope_is_refused(peer, meta, message):
    assert peer.ask("tools/list", meta=meta)["error"] == {"code": INVALID_PARAMS, "message": message}


def test_a_request_without_an_envelope_or_a_handshake_is_refused(connect):
    peer = connect(STATELESS)
    peer.stateless = False
    message = f"params._meta lacks {META}protocolVersion, and there was no initialize"
    assert peer.ask("server/discover")["error"] == {"code": INVALID_PARAMS, "message": message}


@stateless
def test_an_unsupported_version_is_refused_with_the_supported_one(peer):
    assert peer.ask("server/discover", meta={META + "protocolVersion": "2031-01-01"})["error"] == {
        "code": -32022,
        "message": "Unsupported protocol version",
        "data": {"supported": [STATELESS], "requested": "2031-01-01"},
    }


@pytest.mark.parametrize(
    ("peer", "method"),
    [
        *(("2025-11-25", method) for method in ("server/discover", "roots/list", "subscriptions/listen")),
        *((STATELESS, method) for method in ("initialize", "ping", "logging/setLevel")),
    ],
    indirect=["peer"],
)
def test_a_method_of_the_other_era_or_of_none_is_not_found(peer, method):
    assert peer.ask(method)["error"] == {"code": -32601, "message": f"Method not found: {method}"}


def test_both_eras_are_served_by_one_process(connect):
    peer = connect()
    peer.stateless = True
    peer.version = STATELESS
    assert peer.ask("tools/list")["result"]["resultType"] == "complete"
    peer.stateless = False
    peer.version = "2025-11-25"
    assert "resultType" not in peer.ask("tools/list")["result"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        *((line, -32700) for line in (b"hello", b"\xff\xfe", b"[" * 200_000)),
        *((line, -32600) for line in (b"3", b"[]", b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]')),
        (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', -32600),
    ],
)
def test_a_line_that_is_not_a_message_is_refused_and_the_next_one_served(peer, line, code):
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


def test_an_answer_to_no_request_and_empty_lines_are_ignored(peer):
    peer.line(b'{"jsonrpc": "2.0", "id": 5, "result": {}}')
    peer.line(b"\r")
    assert peer.ask("ping")["result"] == {}


def test_a_batch_is_answered_by_a_batch_without_the_cancelled_call(connect):
    peer = connect("2025-03-26")
    slow = {"jsonrpc": "2.0", "id": "s", "method": "tools/call", "params": {"name": "slow"}}
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "s"}}
    pings = [{"jsonrpc": "2.0", "id": name, "method": "ping"} for name in "ab"]
    peer.line(json.dumps([pings[0], slow, pings[1], cancelled]).encode())
    while not isinstance(answers := peer.next(), list):
        assert answers["method"] == "notifications/message"
    assert answers == [{"jsonrpc": "2.0", "id": name, "result": {}} for name in "ab"]


@pytest.mark.parametrize("command", [("-m", "ipymcp.demo"), ("-I", "-S", str(PACKAGE / "demo" / "__main__.py"))])
def test_it_runs_as_a_module_and_by_path_and_announces_itself_on_stderr(connect, command):
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
        f"import sys; sys.path.append({str(PACKAGE)!r}); import demo.__main__; print({{*{heavy}}} & {{*sys.modules}})"
    )
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "set()\n"


@every_version
def test_resources_and_templates_are_listed_and_read_with_the_members_of_the_revision(peer):
    resources = peer.ask("resources/list")["result"]["resources"]
    [template] = peer.ask("resources/templates/list")["result"]["resourceTemplates"]
    assert [resource["uri"] for resource in resources] == ["demo://penguins.csv", "demo://notes.md"]
    assert all(("title" in resource) == (peer.version >= "2025-06-18") for resource in [*resources, template])
    result = peer.ask("resources/read", uri="demo://penguins.csv")["result"]
    assert ("ttlMs" in result) == (peer.version == STATELESS)
    lines = result["contents"][0]["text"].splitlines()
    assert lines[0].startswith("species,island,bill_length_mm")
    assert len(lines) == 1 + 42
    rows = peer.ask("resources/read", uri=template["uriTemplate"].replace("{species}", "Gentoo"))["result"]["contents"]
    assert {row["species"] for row in json.loads(rows[0]["text"])} == {"Gentoo"}
    assert "# Penguins" in peer.ask("resources/read", uri="demo://notes.md")["result"]["contents"][0]["text"]


@pytest.mark.parametrize(("peer", "code"), [("2025-11-25", -32002), (STATELESS, INVALID_PARAMS)], indirect=["peer"])
def test_a_missing_resource_is_refused_with_the_code_of_the_revision(peer, code):
    uri = "demo://penguins/Emperor"
    error = {"code": code, "message": f"Resource not found: {uri}", "data": {"uri": uri}}
    assert peer.ask("resources/read", uri=uri)["error"] == error


@every_version
def test_the_prompt_is_listed_completed_and_rendered(peer):
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
        ("tools/call", {"name": "quack"}, "Unknown tool: quack"),
        ("tools/call", {}, "Unknown tool: None"),
        ("tools/call", {"name": "echo", "arguments": [1]}, "arguments must be an object"),
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
def test_invalid_params_are_refused_with_the_reason(peer, method, params, message):
    assert peer.ask(method, **params)["error"] == {"code": INVALID_PARAMS, "message": message}


def test_an_unknown_log_level_is_refused(peer):
    error = {"code": INVALID_PARAMS, "message": "no such log level: loud"}
    assert peer.ask("logging/setLevel", level="loud")["error"] == error

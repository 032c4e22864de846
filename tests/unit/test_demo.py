"""The demo server over raw pipes, in both eras; every frame it writes is checked against its revision's schema."""

from __future__ import annotations

import base64
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import ipymcp

PACKAGE = Path(ipymcp.__file__).parent
SCHEMAS = Path(os.environ.get("IPYMCP_MCP_SCHEMAS") or PACKAGE.parent.parent / "shared" / "mcp-schema")
HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
STATELESS = "2026-07-28"
RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
}
META = "io.modelcontextprotocol/"
BOUND = 20


class Schema:
    """The published schema of one revision, where the folder is there."""

    def __init__(self, version: str) -> None:
        path = SCHEMAS / f"{version}.json"
        self.document: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        self.validators: dict[str, Any] = {}

    def check(self, name: str, value: Any) -> None:
        if self.document is None:
            return
        if name not in self.validators:
            root = "$defs" if "$defs" in self.document else "definitions"
            schema = {**self.document, "$ref": f"#/{root}/{name}"}
            self.validators[name] = jsonschema_rs.validator_for(schema)
        self.validators[name].validate(value)


class Peer:
    """A client of a few lines: sends what it is told, checks all it gets."""

    def __init__(self, version: str, *command: str) -> None:
        self.version, self.schema = version, Schema(version)
        self.stateless = version == STATELESS
        command = command or ("-I", "-S", str(PACKAGE / "demo"))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, *command], stdin=pipe, stdout=pipe, stderr=pipe)
        self.frames: queue.Queue[Any] = queue.Queue()
        self.asked: dict[Any, str] = {}
        self.ids = iter(range(1, 1000))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.frames.put(json.loads(line))
        self.frames.put(None)

    def line(self, text: bytes) -> None:
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.line(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def request(self, method: str, /, meta: dict[str, Any] | None = None, **params: Any) -> int:
        identifier = next(self.ids)
        self.asked[identifier] = method
        envelope = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}} if self.stateless else {}
        if envelope or meta:
            params["_meta"] = {**envelope, **(meta or {})}
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        self.line(json.dumps(message).encode())
        return identifier

    def next(self) -> Any:
        frame = self.frames.get(timeout=BOUND)
        if isinstance(frame, dict):
            self.check(frame)
        return frame

    def check(self, frame: dict[str, Any]) -> None:
        self.schema.check("JSONRPCMessage", frame)
        if "result" in frame:
            self.schema.check(RESULTS[self.asked[frame["id"]]], frame["result"])
        elif "method" in frame:
            self.schema.check("ServerNotification", frame)

    def ask(self, method: str, /, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """The answer, past any notifications."""
        identifier = self.request(method, meta=meta, **params)
        while (frame := self.next()).get("id") != identifier:
            assert "method" in frame
        return frame

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def handshake(self, version: str) -> None:
        client = {"name": "test", "version": "1"}
        answer = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        self.handshake_result = answer["result"]
        self.notify("notifications/initialized")

    def close(self) -> tuple[list[Any], str]:
        """Close stdin; the frames that were left, and stderr."""
        self.process.stdin.close()
        rest = list(iter(self.next, None))
        stderr = self.process.stderr.read().decode()
        self.process.wait(BOUND)
        return rest, stderr


@pytest.fixture
def connect():
    peers: list[Peer] = []

    def start(version: str = HANDSHAKE_VERSIONS[-1], *command: str, ask_for: str = "") -> Peer:
        peers.append(peer := Peer(version, *command))
        if version != STATELESS:
            peer.handshake(ask_for or version)
        return peer

    yield start
    for peer in peers:
        peer.process.kill()
        peer.process.wait()
        for stream in (peer.process.stdin, peer.process.stdout, peer.process.stderr):
            stream.close()


both_eras = pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, STATELESS])
newest_of_each_era = pytest.mark.parametrize("version", [HANDSHAKE_VERSIONS[-1], STATELESS])


@pytest.mark.parametrize(("asked", "answered"), [*((v, v) for v in HANDSHAKE_VERSIONS), (STATELESS, "2025-11-25")])
def test_a_handshake_is_answered_with_the_revision_asked_for_or_the_newest(connect, asked, answered):
    result = connect(answered, ask_for=asked).handshake_result
    assert result["protocolVersion"] == answered
    words = ("tools", "resources", "prompts", "completions", "logging")
    assert result["capabilities"] == {word: {} for word in words}
    assert result["serverInfo"]["name"] == "ipymcp-demo"


def test_discover_names_the_stateless_revision_and_the_server(connect):
    result = connect(STATELESS).ask("server/discover")["result"]
    assert result["supportedVersions"] == [STATELESS]
    assert result["resultType"] == "complete"
    assert result["_meta"][META + "serverInfo"]["name"] == "ipymcp-demo"
    assert result["ttlMs"] > 0
    assert result["cacheScope"] == "public"


@both_eras
def test_tools_are_listed_in_the_words_of_the_revision(connect, version):
    tools = connect(version).ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["query", "plot", "slow", "fail", "echo"]
    assert all(tool["description"] and tool["inputSchema"]["additionalProperties"] is False for tool in tools)
    assert all(("annotations" in tool) == (version >= "2025-03-26") for tool in tools)
    assert all(("title" in tool) == (version >= "2025-06-18") for tool in tools)
    assert ("outputSchema" in tools[0]) == (version >= "2025-06-18")


@both_eras
def test_query_answers_rows_that_fit_its_output_schema(connect, version):
    peer = connect(version)
    result = peer.call("query", table="penguins", where="island = 'Dream' AND body_mass_g > 3900", limit=3)
    rows = json.loads(result["content"][0]["text"])["rows"]
    assert [row["island"] for row in rows] == ["Dream"] * 3
    assert all(row["body_mass_g"] > 3900 for row in rows)
    if version < "2025-06-18":
        assert "structuredContent" not in result
    else:
        schema = peer.ask("tools/list")["result"]["tools"][0]["outputSchema"]
        jsonschema_rs.validator_for(schema).validate(result["structuredContent"])
        assert result["structuredContent"] == {"rows": rows, "count": 3}


def test_query_gives_ten_rows_unless_told_otherwise_and_forty_two_at_most(connect):
    peer = connect()
    assert peer.call("query", table="penguins")["structuredContent"]["count"] == 10
    rows = peer.call("query", table="penguins", limit=1000)["structuredContent"]["rows"]
    assert len(rows) == 42
    assert {row["species"] for row in rows} == {"Adelie", "Chinstrap", "Gentoo"}
    assert sum(row["body_mass_g"] is None for row in rows) == 1


def test_a_comment_in_a_condition_does_not_swallow_the_limit(connect):
    assert connect().call("query", table="penguins", where="1 -- all", limit=2)["structuredContent"]["count"] == 2


@pytest.mark.parametrize(
    "where",
    [
        "1) UNION SELECT 1, 2, 3, 4, 5, 6, 7, 8 WHERE (1",
        "year IN (SELECT 2007)",
        "1); DROP TABLE penguins; --",
        "length(randomblob(1000000000))",
        "load_extension('x')",
        "nonsense >",
        "nul\0",
    ],
)
def test_a_condition_can_only_be_a_condition(connect, where):
    peer = connect()
    result = peer.call("query", table="penguins", where=where)
    assert result["isError"] is True
    assert result["content"][0]["text"].startswith("where: ")
    assert peer.call("query", table="penguins")["structuredContent"]["count"] == 10


def test_the_columns_are_named_where_a_condition_is_wrong(connect):
    text = connect().call("query", table="penguins", where="wings = 2")["content"][0]["text"]
    assert text == (
        "where: no such column: wings. The columns are species, island, bill_length_mm, bill_depth_mm, "
        "flipper_length_mm, body_mass_g, sex, year."
    )


def read_png(data: str) -> tuple[int, int, bytes, bytes]:
    """Width, height, palette and pixels, every checksum checked."""
    png = base64.b64decode(data, validate=True)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length])[0] == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (depth, colour) == (8, 3)
    rows = zlib.decompress(chunks[b"IDAT"])
    assert len(rows) == height * (width + 1)
    assert b"IEND" in chunks
    return width, height, chunks[b"PLTE"], rows


@pytest.mark.parametrize(
    ("arguments", "caption", "colours"),
    [
        ({}, "A bar chart of mean body_mass_g: Adelie 3652.9, Chinstrap 3725.0, Gentoo 5050.0.", {0, 1, 2, 3, 5}),
        (
            {"kind": "scatter", "column": "bill_depth_mm"},
            "A scatter chart of bill_depth_mm over bill_length_mm, 41 penguins.",
            {0, 1, 2, 3, 5},
        ),
        ({"values": [3, -2, 5.5]}, "A bar chart of 3 values.", {3, 4, 5}),
        ({"values": [-1e15, 1e15], "kind": "scatter"}, "A scatter chart of 2 values.", {3, 4, 5}),
        ({"values": [0], "width": 160, "height": 120}, "A bar chart of 1 value.", {3, 5}),
        ({"values": [7] * 1000}, "A bar chart of 1000 values.", {3, 4, 5}),
    ],
)
def test_plot_draws_a_png_in_the_colours_of_what_it_shows(connect, arguments, caption, colours):
    image, text = connect().call("plot", **arguments)["content"]
    width, height, palette, rows = read_png(image["data"])
    pixels = b"".join(rows[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height))
    assert image["mimeType"] == "image/png"
    assert (width, height) == (arguments.get("width", 480), arguments.get("height", 320))
    assert set(pixels) == colours
    assert len(palette) > 3 * max(colours)
    assert text["text"] == caption


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("fail", {}, "This tool always fails."),
        ("fail", {"message": "out of fish"}, "out of fish"),
        ("echo", {}, "missing argument: text"),
        ("echo", {"text": 1}, "text must be of type string"),
        ("echo", {"text": "a", "loud": True}, "unknown argument: loud (there are: text)"),
        ("query", {"table": "whales"}, "table must be one of penguins"),
        ("query", {"table": "penguins", "limit": True}, "limit must be of type integer"),
        ("query", {"table": "penguins", "limit": 0}, "limit must be between 1 and 1000"),
        ("plot", {"kind": "pie"}, "kind must be one of bar, scatter"),
        ("plot", {"values": []}, "values must be an array of 1 to 1000 items"),
        ("plot", {"values": [1, 1e300]}, "values[1] must be between -1e+15 and 1e+15"),
        ("plot", {"values": [1], "column": "body_mass_g"}, "give values or column, not both"),
        ("slow", {"steps": 1.5}, "steps must be of type integer"),
    ],
)
def test_what_a_tool_cannot_do_is_an_error_that_says_why(connect, tool, arguments, text):
    assert connect().call(tool, **arguments) == {"content": [{"type": "text", "text": text}], "isError": True}


def test_a_whole_number_may_be_written_as_a_float(connect):
    assert connect().call("query", table="penguins", limit=2.0)["structuredContent"]["count"] == 2


@both_eras
def test_slow_reports_progress_and_does_not_hold_up_an_echo(connect, version):
    peer = connect(version)
    slow = peer.request("tools/call", meta={"progressToken": "t"}, name="slow", arguments={"seconds": 0.5, "steps": 5})
    echo = peer.request("tools/call", name="echo", arguments={"text": "meanwhile"})
    answers, progress = [], []
    while slow not in answers:
        frame = peer.next()
        if "id" in frame:
            answers.append(frame["id"])
        elif frame["method"] == "notifications/progress":
            progress.append(frame["params"])
    assert answers == [echo, slow]
    assert [step["progress"] for step in progress] == [1, 2, 3, 4, 5]
    assert all(step["progressToken"] == "t" and step["total"] == 5 for step in progress)
    assert progress[0].get("message") == (None if version == "2024-11-05" else "step 1 of 5")


@newest_of_each_era
def test_without_a_token_there_is_no_progress(connect, version):
    peer = connect(version)
    peer.request("tools/call", name="slow", arguments={"seconds": 0, "steps": 3})
    rest, _ = peer.close()
    assert not [frame for frame in rest if frame.get("method") == "notifications/progress"]


@both_eras
def test_a_cancelled_call_stops_at_once_and_nothing_more_comes(connect, version):
    peer = connect(version)
    slow = peer.request("tools/call", meta={"progressToken": 1}, name="slow", arguments={"seconds": 300, "steps": 3000})
    while peer.next().get("method") != "notifications/progress":
        pass
    peer.notify("notifications/cancelled", requestId=slow)
    echo = peer.request("tools/call", name="echo", arguments={"text": "still here"})
    while peer.next().get("id") != echo:
        pass
    assert peer.close()[0] == []


def test_a_cancellation_of_nothing_is_ignored(connect):
    peer = connect()
    for request_id in (99, "99", None, [1]):
        peer.notify("notifications/cancelled", requestId=request_id)
    assert peer.call("echo", text="fine")["content"][0]["text"] == "fine"


@pytest.mark.parametrize("text", ["", "ÅÖ 🐧\n\t\0", "\ud800 alone", "x" * 300_000])
@newest_of_each_era
def test_echo_gives_back_any_text(connect, version, text):
    assert connect(version).call("echo", text=text)["content"] == [{"type": "text", "text": text}]


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
    peer.schema.check("UnsupportedProtocolVersionError", answer)


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
    peer.schema = Schema(STATELESS)
    assert peer.ask("tools/list")["result"]["resultType"] == "complete"
    peer.stateless = False
    peer.schema = Schema("2025-11-25")
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
    peer.schema.check("JSONRPCBatchResponse", answers)


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
    assert text["text"] == "Describe the Adelie penguins in a playful tone, in three sentences, by these rows."
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

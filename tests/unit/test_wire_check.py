"""The frame checker, fed transcripts written by hand: it must find the planted faults and no others."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.wire.plugin import check_command, checker

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientInfo": {"name": "ipymcp", "version": "0.1.0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}
FAULT = re.compile(r"(VIOLATION|server's) (\S+)#1 \(log\) frame (\d+) (?:out|in) \[(\w+)\]")

Entry = dict[str, Any]


def out(message: Any, at: float = 0.0, direction: str = "out") -> Entry:
    return {"direction": direction, "at": at, "frame": message if isinstance(message, str) else json.dumps(message)}


def came(message: Any, at: float = 0.0) -> Entry:
    return out(message, at, "in")


def request(identifier: Any, method: str, params: Any = None) -> dict[str, Any]:
    return {**note(method, params), "id": identifier}


def note(method: str, params: Any = None) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def result(identifier: Any, value: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "result": value}


def error(identifier: Any, code: int, **extra: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": "no", **extra}}


def initialize(version: str, identifier: int = 1) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "ipymcp", "version": "0.1.0"}}
    return request(identifier, "initialize", params)


def initialize_result(version: str, identifier: int = 1, server: str = "stranger") -> dict[str, Any]:
    info = {"name": server, "version": "1"}
    return result(identifier, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})


def opened(version: str, server: str = "stranger") -> list[Entry]:
    """A handshake: three frames."""
    return [
        out(initialize(version)),
        came(initialize_result(version, server=server)),
        out(note("notifications/initialized")),
    ]


def call(identifier: Any, token: Any = None) -> dict[str, Any]:
    params: dict[str, Any] = {"name": "echo", "arguments": {"text": "hi"}}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return request(identifier, "tools/call", params)


def enveloped(identifier: Any, method: str, /, **params: Any) -> dict[str, Any]:
    return request(identifier, method, {"_meta": META, **params})


def discovered(server: str = "stranger") -> list[Entry]:
    """A discover and its answer: two frames."""
    meta = {"io.modelcontextprotocol/serverInfo": {"name": server, "version": "1"}}
    answer = {
        "resultType": "complete", "supportedVersions": [STATELESS], "capabilities": {"tools": {}},
        "ttlMs": 0, "cacheScope": "private", "_meta": meta,
    }  # fmt: skip
    return [out(enveloped(1, "server/discover")), came(result(1, answer))]


def good_handshake(version: str) -> list[Entry]:
    return [
        *opened(version),
        out(request(2, "tools/list", {})),
        came(result(2, {"tools": [TOOL]})),
        out(call(3, token=3)),
        came(note("notifications/progress", {"progressToken": 3, "progress": 0.5})),
        came(request("s1", "ping")),
        out(result("s1", {})),
        came(request("s2", "roots/list")),
        out(error("s2", -32601)),
        came(result(3, {"content": [{"type": "text", "text": "hi"}]})),
        out(call(4), 5.0),
        out(note("notifications/cancelled", {"requestId": 4, "reason": "timeout"}), 6.0),
        out(call(5), 7.0),
        came(result(5, {"content": []}), 7.1),
        out(note("notifications/cancelled", {"requestId": 5}), 7.2),
        out(request(6, "ping")),
        came(result(6, {})),
    ]


GOOD: dict[str, list[Entry]] = {version: good_handshake(version) for version in HANDSHAKE}
GOOD[STATELESS] = [
    *discovered(),
    out(enveloped(2, "tools/list")),
    came(result(2, {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private"})),
    out(enveloped(3, "subscriptions/listen", notifications={"toolsListChanged": True})),
    came(
        note(
            "notifications/subscriptions/acknowledged",
            {"_meta": {"io.modelcontextprotocol/subscriptionId": 3}, "notifications": {"toolsListChanged": True}},
        )
    ),
    came(note("notifications/tools/list_changed", {"_meta": {"io.modelcontextprotocol/subscriptionId": 3}})),
    out(enveloped(4, "tools/call", name="echo", arguments={})),
    out(note("notifications/cancelled", {"requestId": 4})),
    out(enveloped(5, "tools/call", name="echo", arguments={})),
    came(result(5, {"resultType": "complete", "content": []})),
    out(note("notifications/cancelled", {"requestId": 3})),
]
GOOD["probe-refused"] = [
    out(enveloped(0, "server/discover")),
    came(error(0, -32601)),
    *opened("2025-11-25"),
    out(call(2)),
]
GOOD["probe-silent"] = [out(enveloped(0, "server/discover")), *opened("2025-06-18"), out(request(2, "tools/list"))]
GOOD["initialize-beside-the-probe"] = [
    out(enveloped(1, "server/discover")),
    out(initialize("2025-11-25", 2)),
    discovered()[1],
    came(error(2, -32022, data={"supported": [STATELESS], "requested": "2025-11-25"})),
    out(enveloped(3, "tools/list")),
]
GOOD["batch-in-2025-03-26"] = [
    *opened("2025-03-26"),
    out(call(2)),
    out(call(3)),
    came([result(2, {"content": []}), result(3, {"content": []})]),
]

TASK = {
    "taskId": "t", "status": "working", "ttl": 60_000,
    "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z",
}  # fmt: skip


def task_capable() -> list[Entry]:
    """A handshake with a server that has tasks: three frames."""
    answer = initialize_result("2025-11-25")
    answer["result"]["capabilities"]["tasks"] = {"requests": {"tools": {"call": {}}}}
    return [out(initialize("2025-11-25")), came(answer), out(note("notifications/initialized"))]


def call_with_task(identifier: int) -> dict[str, Any]:
    return request(identifier, "tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 60_000}})


GOOD["a-task-of-2025-11-25"] = [
    *task_capable(),
    out(call_with_task(2)),
    came(result(2, {"task": TASK})),
    out(request(3, "tasks/get", {"taskId": "t"})),
    came(result(3, {**TASK, "status": "completed"})),
    came(note("notifications/tasks/status", {**TASK, "status": "completed"})),
    out(request(4, "tasks/result", {"taskId": "t"})),
    came(result(4, {"content": []})),
    out(request(5, "tasks/cancel", {"taskId": "t"})),
    came(result(5, {**TASK, "status": "cancelled"})),
]

FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ABLE = {**META, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
NEEDED = {
    "resultType": "input_required",
    "inputRequests": {"who": {"method": "elicitation/create", "params": FORM}},
    "requestState": "sealed",
}
ADA = {"who": {"action": "accept", "content": {"name": "Ada"}}}


def rounds(needed: Any = NEEDED, meta: Any = ABLE, **brought: Any) -> list[Entry]:
    """A discover, a call that needs input, and the call again with what is brought: five frames."""
    question = {"name": "echo", "arguments": {}, "_meta": meta}
    return [
        *discovered(),
        out(request(2, "tools/call", question)),
        came(result(2, needed)),
        out(request(3, "tools/call", {**question, **brought})),
    ]


GOOD["a-round-of-input"] = [
    *rounds(inputResponses=ADA, requestState="sealed"),
    came(result(3, {"resultType": "complete", "content": []})),
]
GOOD["a-question-asked-again"] = rounds()

BAD: dict[str, tuple[list[Entry], list[tuple[int, str]]]] = {
    "no-json": ([*opened("2025-11-25"), out("{nope")], [(4, "json")]),
    "a-newline-within": ([*opened("2025-11-25"), out(json.dumps(call(2), indent=1))], [(4, "json")]),
    "NaN": ([*opened("2025-11-25"), out(request(2, "tools/call", {"name": "e", "arguments": {"x": float("nan")}}))],
            [(4, "json")]),
    "a-lone-surrogate": ([*opened("2025-11-25"), out(request(2, "tools/call", {"name": "\ud800"}))], [(4, "json")]),
    "a-key-twice": ([*opened("2025-11-25"), out('{"jsonrpc":"2.0","id":2,"id":2,"method":"ping"}')], [(4, "json")]),
    "no-version-of-jsonrpc": ([*opened("2025-11-25"), out({"id": 2, "method": "ping"})], [(4, "envelope")]),
    "a-null-id": ([*opened("2025-11-25"), out(request(None, "ping"))], [(4, "envelope")]),
    "a-float-id": ([*opened("2025-11-25"), out(request(2.5, "ping"))], [(4, "envelope")]),
    "params-null": ([*opened("2024-11-05"), out({**request(2, "ping"), "params": None})], [(4, "envelope")]),
    "a-surplus-member": ([*opened("2025-06-18"), out({**request(2, "ping"), "extra": 1})], [(4, "envelope")]),
    "a-batch": ([*opened("2025-06-18"), out([call(2), call(3)])], [(4, "batch")]),
    "an-id-again": ([*opened("2025-03-26"), out(call(2)), came(result(2, {"content": []})), out(call(2))],
                    [(6, "id")]),
    "an-unknown-method": ([*opened("2025-11-25"), out(request(2, "tools/cull", {}))], [(4, "message")]),
    "a-later-method": ([*opened("2025-11-25"), out(request(2, "subscriptions/listen", {}))], [(4, "message")]),
    "a-call-without-a-name": ([*opened("2024-11-05"), out(request(2, "tools/call", {"arguments": {}}))],
                              [(4, "message")]),
    "arguments-a-list": ([*opened("2025-03-26"), out(request(2, "tools/call", {"name": "e", "arguments": []}))],
                         [(4, "message")]),
    "a-number-for-a-cursor": ([*opened("2025-06-18"), out(request(2, "tools/list", {"cursor": 7}))],
                              [(4, "message")]),
    "a-surplus-parameter": ([*opened("2025-11-25"), out(request(2, "tools/call", {"name": "e", "requestState": "x"}))],
                            [(4, "message")]),
    "initialize-without-client": (
        [out(request(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}))], [(1, "message")]
    ),
    "initialize-offers-2026": ([out(initialize(STATELESS))], [(1, "version")]),
    "a-call-before-initialized": ([*opened("2025-11-25")[:2], out(call(2))], [(3, "lifecycle")]),
    "a-list-before-the-answer": ([*opened("2024-11-05")[:1], out(request(2, "tools/list"))], [(2, "lifecycle")]),
    "initialized-before-the-answer": ([*opened("2025-11-25")[::2]], [(2, "lifecycle")]),
    "initialized-twice": ([*opened("2025-03-26"), opened("2025-03-26")[2]], [(4, "lifecycle")]),
    "initialize-twice": ([*opened("2025-06-18"), out(initialize("2025-06-18", 2))], [(4, "lifecycle")]),
    "initialize-cancelled": (
        [out(initialize("2025-11-25")), out(note("notifications/cancelled", {"requestId": 1}))], [(2, "cancel")]
    ),
    "goes-on-with-an-unknown-version": (
        [out(initialize("2025-11-25")), came(initialize_result("1999-01-01")), out(note("notifications/initialized"))],
        [(3, "lifecycle")],
    ),
    "an-envelope-after-the-handshake": ([*opened("2025-11-25"), out(enveloped(2, "tools/list"))], [(4, "lifecycle")]),
    "cancels-what-was-not-asked": (
        [*opened("2024-11-05"), out(note("notifications/cancelled", {"requestId": 9}))], [(4, "cancel")]
    ),
    "cancels-with-the-id-as-text": (
        [*opened("2025-11-25"), out(call(2)), out(note("notifications/cancelled", {"requestId": "2"}))], [(5, "cancel")]
    ),
    "cancels-twice": (
        [*opened("2025-03-26"), out(call(2)), *[out(note("notifications/cancelled", {"requestId": 2}))] * 2],
        [(6, "cancel")],
    ),
    "cancels-long-after-the-answer": (
        [*opened("2025-11-25"), out(call(2)), came(result(2, {"content": []}), 1.0),
         out(note("notifications/cancelled", {"requestId": 2}), 4.0)],
        [(6, "cancel")],
    ),
    "a-token-in-use": ([*opened("2025-11-25"), out(call(2, token=7)), out(call(3, token=7))], [(5, "progress")]),
    "a-float-token": ([*opened("2025-11-25"), out(call(2, token=1.5))], [(4, "progress"), (4, "message")]),
    "unrequested-progress": (
        [*opened("2025-06-18"), out(note("notifications/progress", {"progressToken": 1, "progress": 1}))],
        [(4, "progress")],
    ),
    "an-answer-to-nothing": ([*opened("2024-11-05"), out(result("s9", {}))], [(4, "response")]),
    "two-answers": ([*opened("2025-11-25"), came(request(1, "ping")), out(result(1, {})), out(result(1, {}))],
                    [(6, "response")]),
    "a-result-for-what-was-not-declared": (
        [*opened("2025-11-25"), came(request(1, "roots/list")), out(result(1, {"roots": []}))], [(5, "capability")]
    ),
    "a-malformed-result": (
        [*opened("2025-11-25"), came(request(1, "roots/list")), out(result(1, {"roots": 5}))],
        [(5, "capability"), (5, "message")],
    ),
    "an-error-without-text": (
        [*opened("2025-11-25"), came(request(1, "ping")), out({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}})],
        [(5, "envelope")],
    ),
    "what-the-server-did-not-declare": ([*opened("2025-11-25"), out(request(2, "prompts/list"))], [(4, "capability")]),
    "no-envelope": ([*discovered(), out(request(2, "tools/list", {}))], [(3, "message")]),
    "an-envelope-without-capabilities": (
        [*discovered(), out(request(2, "tools/list", {"_meta": {k: META[k] for k in list(META)[:2]}}))],
        [(3, "message")],
    ),
    "an-envelope-of-an-older-revision": (
        [out(request(1, "server/discover", {"_meta": {**META, next(iter(META)): "2025-11-25"}}))], [(1, "version")]
    ),
    "a-ping-in-2026": ([*discovered(), out(enveloped(2, "ping"))], [(3, "message")]),
    "initialized-in-2026": (
        [*discovered(), out(note("notifications/initialized"))], [(3, "lifecycle"), (3, "message")]
    ),
    "roots-changed-in-2026": ([*discovered(), out(note("notifications/roots/list_changed"))], [(3, "message")]),
    "a-response-in-2026": ([*discovered(), came(request(1, "ping")), out(result(1, {}))], [(4, "response")]),
    "unneeded-input": (
        [*discovered(), out(enveloped(2, "tools/call", name="echo", inputResponses=ADA))], [(3, "rounds")]
    ),
    "another-question-with-the-state": (
        [*rounds()[:4], out(enveloped(3, "tools/call", name="other", requestState="sealed"))], [(5, "rounds")]
    ),
    "the-state-forgotten": (rounds(inputResponses=ADA), [(5, "rounds")]),
    "the-state-changed": (rounds(inputResponses=ADA, requestState="Sealed"), [(5, "rounds")]),
    "half-the-input": (rounds(requestState="sealed"), [(5, "rounds")]),
    "malformed-input": (rounds(inputResponses={"who": {"action": "perhaps"}}, requestState="sealed"),
                        [(5, "message"), (5, "rounds")]),
    "the-input-twice": (
        [*rounds(inputResponses=ADA, requestState="sealed"),
         {**rounds(inputResponses=ADA, requestState="sealed")[4],
          "frame": json.dumps(enveloped(4, "tools/call", name="echo", arguments={}, requestState="sealed"))}],
        [(6, "rounds")],
    ),
    "a-task-asked-for-without-its-id": ([*task_capable(), out(request(2, "tasks/get", {}))], [(4, "message")]),
    "a-surplus-parameter-beside-a-task-id": (
        [*task_capable(), out(request(2, "tasks/get", {"taskId": "t", "requestState": "x"}))], [(4, "message")]
    ),
    "a-task-of-an-older-revision": ([*opened("2025-06-18"), out(request(2, "tasks/get", {"taskId": "t"}))],
                                    [(4, "capability"), (4, "message")]),
    "initialize-after-stateless-calls": (
        [*discovered(), out(enveloped(2, "tools/list")), out(initialize("2025-11-25", 3))], [(4, "lifecycle")]
    ),
    "initialize-although-stateless-only": (
        [out(enveloped(1, "server/discover")),
         came(error(1, -32022, data={"supported": ["2027-01-01"], "requested": STATELESS})),
         out(initialize("2025-11-25", 2))],
        [(3, "lifecycle")],
    ),
}  # fmt: skip

SERVERS: dict[str, tuple[list[Entry], list[tuple[int, str]]]] = {
    "a-batch-that-is-read-all-the-same": (
        [*opened("2025-11-25"), out(call(2)), came([result(2, {"content": []})]), came(result(2, {"content": []}))],
        [(5, "batch"), (6, "response")],
    ),
    "too-deep": ([*opened("2025-11-25"), came("[" * 100_000)], [(4, "json")]),
    "a-banner": ([came("Server running on stdio"), *opened("2025-11-25")], [(1, "json")]),
    "an-answer-to-nothing": ([*opened("2025-11-25"), came(result(77, {}))], [(4, "response")]),
    "two-answers": ([*opened("2025-11-25"), out(call(2)), *[came(result(2, {"content": []}))] * 2], [(6, "response")]),
    "a-malformed-result": ([*opened("2025-06-18"), out(call(2)), came(result(2, {"content": 5}))], [(5, "message")]),
    "a-task-without-an-id": (
        [*task_capable(), out(call_with_task(2)), came(result(2, {"task": {**TASK, "taskId": None}}))], [(5, "message")]
    ),
    "a-task-with-an-unknown-status": (
        [*task_capable(), out(request(2, "tasks/get", {"taskId": "t"})), came(result(2, {**TASK, "status": "odd"}))],
        [(5, "message")],
    ),
    "a-later-notification": (
        [*opened("2025-11-25"), came(note("notifications/subscriptions/acknowledged", {"notifications": {}}))],
        [(4, "message")],
    ),
    "progress-without-a-token": (
        [*opened("2025-11-25"), came(note("notifications/progress", {"progressToken": 1, "progress": 1}))],
        [(4, "progress")],
    ),
    "progress-that-stands-still": (
        [*opened("2025-11-25"), out(call(2, token=2)),
         *[came(note("notifications/progress", {"progressToken": 2, "progress": 1}))] * 2],
        [(6, "progress")],
    ),
    "an-unknown-version": ([out(initialize("2025-11-25")), came(initialize_result("1999-01-01"))], [(2, "version")]),
    "a-request-in-2026": ([*discovered(), came(request(1, "ping"))], [(3, "message")]),
    "a-cancel-in-2026": (
        [*discovered(), out(enveloped(2, "tools/list")), came(note("notifications/cancelled", {"requestId": 2}))],
        [(4, "cancel")],
    ),
    "input-that-was-not-declared": (rounds(meta=META, inputResponses=ADA, requestState="sealed"), [(4, "rounds")]),
    "input-without-saying-which": (rounds({"resultType": "input_required"}), [(4, "rounds")]),
    "a-change-without-a-subscription": (
        [*discovered(), came(note("notifications/tools/list_changed"))], [(3, "subscription")]
    ),
}  # fmt: skip

DEMO = [*opened("2025-11-25", server="ipymcp-demo"), came(result(77, {}))]
MISBEHAVING = [*opened("2025-11-25"), came("junk"), came(result(77, {})), out(call(2))]


def check(folder: Path, sessions: dict[str, list[Entry]], *, tail: str = "") -> tuple[int, list[str]]:
    if not checker().exists():
        pytest.fail(f"{checker()} is missing: `make test` makes it")
    lines = [json.dumps({"session": f"{name}#1", **entry}) for name, entries in sessions.items() for entry in entries]
    (folder / "log.jsonl").write_text("".join(f"{line}\n" for line in lines) + tail)
    done = subprocess.run(check_command(folder), capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
    """The verdict on sessions in which only servers of others are at fault."""
    sessions = {**GOOD, "misbehaving": MISBEHAVING, **{name: entries for name, (entries, _) in SERVERS.items()}}
    return check(tmp_path_factory.mktemp("wire"), sessions, tail='{"session": "2025-11-25#1", "dir')


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
    """The verdict on sessions in which the client or a server of ours is at fault."""
    sessions = {"ours": DEMO, **{name: entries for name, (entries, _) in BAD.items()}}
    return check(tmp_path_factory.mktemp("wire"), sessions)


def faults(lines: list[str]) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Frame and rule of each fault, in the order printed, by the side at fault and the session."""
    faults: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for line in lines[:-1]:
        match = FAULT.match(line)
        assert match, line
        faults.setdefault((match[1], match[2]), []).append((int(match[3]), match[4]))
    return faults


def test_faults_of_third_party_servers_are_reported_but_are_not_violations(accepted: tuple[int, list[str]]) -> None:
    code, lines = accepted
    assert faults(lines) == {("server's", name): planted for name, (_, planted) in SERVERS.items()}
    assert code == 0


def test_good_sessions_of_every_revision_a_misbehaving_server_and_a_half_written_line_have_no_fault(
    accepted: tuple[int, list[str]],
) -> None:
    assert accepted[1][-1] == (
        "30 sessions (2024-11-05: 1, 2025-03-26: 2, 2025-06-18: 3, 2025-11-25: 15, 2026-07-28: 9), "
        "120 frames out, 94 in; 0 violations, 18 by servers"
    )


def test_exactly_the_planted_faults_of_the_client_and_of_our_own_server_are_violations(
    refused: tuple[int, list[str]],
) -> None:
    code, lines = refused
    violations = {session: planted for (side, session), planted in faults(lines).items() if side == "VIOLATION"}
    assert violations == {"ours": [(4, "response")], **{name: planted for name, (_, planted) in BAD.items()}}
    assert code == 1


def test_a_violation_names_session_frame_rule_and_what_was_sent(refused: tuple[int, list[str]]) -> None:
    [line] = [line for line in refused[1] if line.startswith("VIOLATION cancels-what-was-not-asked#1 ")]
    assert line == (
        "VIOLATION cancels-what-was-not-asked#1 (log) frame 4 out [cancel] cancels 9, which was never asked | "
        """'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}'"""
    )

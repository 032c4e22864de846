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
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = {"_meta": {"io.modelcontextprotocol/subscriptionId": 3}}
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


def empty(identifier: int) -> dict[str, Any]:
    """The result of a call, without content."""
    return result(identifier, {"content": []})


def cancel(identifier: Any, **params: str) -> dict[str, Any]:
    return note("notifications/cancelled", {"requestId": identifier, **params})


def progress(token: int, value: float) -> dict[str, Any]:
    return note("notifications/progress", {"progressToken": token, "progress": value})


def initialize(version: str = "2025-11-25", identifier: int = 1) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "ipymcp", "version": "0.1.0"}}
    return request(identifier, "initialize", params)


def initialize_result(version: str, identifier: int = 1, server: str = "stranger") -> dict[str, Any]:
    info = {"name": server, "version": "1"}
    return result(identifier, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})


def opened(version: str = "2025-11-25", server: str = "stranger") -> list[Entry]:
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
        came(progress(3, 0.5)),
        came(request("s1", "ping")),
        out(result("s1", {})),
        came(request("s2", "roots/list")),
        out(error("s2", -32601)),
        came(result(3, {"content": [{"type": "text", "text": "hi"}]})),
        out(call(4), 5.0),
        out(cancel(4, reason="timeout"), 6.0),
        out(call(5), 7.0),
        came(empty(5), 7.1),
        out(cancel(5), 7.2),
        out(request(6, "ping")),
        came(result(6, {})),
    ]


GOOD: dict[str, list[Entry]] = {version: good_handshake(version) for version in HANDSHAKE}
GOOD[STATELESS] = [
    *discovered(),
    out(enveloped(2, "tools/list")),
    came(result(2, {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private"})),
    out(enveloped(3, "subscriptions/listen", notifications={"toolsListChanged": True})),
    came(note(ACKNOWLEDGED, {**SUBSCRIPTION, "notifications": {"toolsListChanged": True}})),
    came(note("notifications/tools/list_changed", SUBSCRIPTION)),
    out(enveloped(4, "tools/call", name="echo", arguments={})),
    out(cancel(4)),
    out(enveloped(5, "tools/call", name="echo", arguments={})),
    came(result(5, {"resultType": "complete", "content": []})),
    out(cancel(3)),
]
GOOD["probe-refused"] = [
    out(enveloped(0, "server/discover")),
    came(error(0, -32601)),
    *opened(),
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
    came([empty(2), empty(3)]),
]

TASK = {
    "taskId": "t", "status": "working", "ttl": 60_000,
    "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:01Z",
}  # fmt: skip


def task_capable() -> list[Entry]:
    """A handshake with a server that has tasks: three frames."""
    answer = initialize_result("2025-11-25")
    answer["result"]["capabilities"]["tasks"] = {"requests": {"tools": {"call": {}}}}
    return [out(initialize()), came(answer), out(note("notifications/initialized"))]


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
    came(empty(4)),
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


def faulty(rules: str, *entries: Entry) -> tuple[list[Entry], list[tuple[int, str]]]:
    """A session whose last frame breaks these rules."""
    return [*entries], [(len(entries), rule) for rule in rules.split()]


BAD: dict[str, tuple[list[Entry], list[tuple[int, str]]]] = {
    "no-json": faulty("json", *opened(), out("{nope")),
    "a-newline-within": faulty("json", *opened(), out(json.dumps(call(2), indent=1))),
    "NaN": faulty("json", *opened(), out(request(2, "tools/call", {"name": "e", "arguments": {"x": float("nan")}}))),
    "a-lone-surrogate": faulty("json", *opened(), out(request(2, "tools/call", {"name": "\ud800"}))),
    "a-key-twice": faulty("json", *opened(), out('{"jsonrpc":"2.0","id":2,"id":2,"method":"ping"}')),
    "no-version-of-jsonrpc": faulty("envelope", *opened(), out({"id": 2, "method": "ping"})),
    "a-null-id": faulty("envelope", *opened(), out(request(None, "ping"))),
    "a-float-id": faulty("envelope", *opened(), out(request(2.5, "ping"))),
    "params-null": faulty("envelope", *opened("2024-11-05"), out({**request(2, "ping"), "params": None})),
    "a-surplus-member": faulty("envelope", *opened("2025-06-18"), out({**request(2, "ping"), "extra": 1})),
    "a-batch": faulty("batch", *opened("2025-06-18"), out([call(2), call(3)])),
    "an-id-again": faulty("id", *opened("2025-03-26"), out(call(2)), came(empty(2)), out(call(2))),
    "an-unknown-method": faulty("message", *opened(), out(request(2, "tools/cull", {}))),
    "a-later-method": faulty("message", *opened(), out(request(2, "subscriptions/listen", {}))),
    "a-call-without-a-name": faulty("message", *opened("2024-11-05"), out(request(2, "tools/call", {"arguments": {}}))),
    "arguments-a-list": faulty(
        "message", *opened("2025-03-26"), out(request(2, "tools/call", {"name": "e", "arguments": []}))
    ),
    "a-number-for-a-cursor": faulty("message", *opened("2025-06-18"), out(request(2, "tools/list", {"cursor": 7}))),
    "a-surplus-parameter": faulty(
        "message", *opened(), out(request(2, "tools/call", {"name": "e", "requestState": "x"}))
    ),
    "initialize-without-client": faulty(
        "message", out(request(1, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}}))
    ),
    "initialize-offers-2026": faulty("version", out(initialize(STATELESS))),
    "a-call-before-initialized": faulty("lifecycle", *opened()[:2], out(call(2))),
    "a-list-before-the-answer": faulty("lifecycle", *opened("2024-11-05")[:1], out(request(2, "tools/list"))),
    "initialized-before-the-answer": faulty("lifecycle", *opened()[::2]),
    "initialized-twice": faulty("lifecycle", *opened("2025-03-26"), opened("2025-03-26")[2]),
    "initialize-twice": faulty("lifecycle", *opened("2025-06-18"), out(initialize("2025-06-18", 2))),
    "initialize-cancelled": faulty("cancel", out(initialize()), out(cancel(1))),
    "goes-on-with-an-unknown-version": faulty(
        "lifecycle", out(initialize()), came(initialize_result("1999-01-01")),
        out(note("notifications/initialized"))
    ),
    "an-envelope-after-the-handshake": faulty("lifecycle", *opened(), out(enveloped(2, "tools/list"))),
    "cancels-what-was-not-asked": faulty("cancel", *opened("2024-11-05"), out(cancel(9))),
    "cancels-with-the-id-as-text": faulty("cancel", *opened(), out(call(2)), out(cancel("2"))),
    "cancels-twice": faulty("cancel", *opened("2025-03-26"), out(call(2)), *[out(cancel(2))] * 2),
    "cancels-long-after-the-answer": faulty(
        "cancel", *opened(), out(call(2)), came(empty(2), 1.0),
        out(cancel(2), 4.0)
    ),
    "a-token-in-use": faulty("progress", *opened(), out(call(2, token=7)), out(call(3, token=7))),
    "a-float-token": faulty("progress message", *opened(), out(call(2, token=1.5))),
    "unrequested-progress": faulty("progress", *opened("2025-06-18"), out(progress(1, 1))),
    "an-answer-to-nothing": faulty("response", *opened("2024-11-05"), out(result("s9", {}))),
    "two-answers": faulty("response", *opened(), came(request(1, "ping")), out(result(1, {})), out(result(1, {}))),
    "a-result-for-what-was-not-declared": faulty(
        "capability", *opened(), came(request(1, "roots/list")), out(result(1, {"roots": []}))
    ),
    "a-malformed-result": faulty(
        "capability message", *opened(), came(request(1, "roots/list")), out(result(1, {"roots": 5}))
    ),
    "an-error-without-text": faulty(
        "envelope", *opened(), came(request(1, "ping")),
        out({"jsonrpc": "2.0", "id": 1, "error": {"code": 1}})
    ),
    "what-the-server-did-not-declare": faulty("capability", *opened(), out(request(2, "prompts/list"))),
    "no-envelope": faulty("message", *discovered(), out(request(2, "tools/list", {}))),
    "an-envelope-without-capabilities": faulty(
        "message", *discovered(), out(request(2, "tools/list", {"_meta": {k: META[k] for k in list(META)[:2]}}))
    ),
    "an-envelope-of-an-older-revision": faulty(
        "version", out(request(1, "server/discover", {"_meta": {**META, next(iter(META)): "2025-11-25"}}))
    ),
    "a-ping-in-2026": faulty("message", *discovered(), out(enveloped(2, "ping"))),
    "initialized-in-2026": faulty("lifecycle message", *discovered(), out(note("notifications/initialized"))),
    "roots-changed-in-2026": faulty("message", *discovered(), out(note("notifications/roots/list_changed"))),
    "a-response-in-2026": faulty("response", *discovered(), came(request(1, "ping")), out(result(1, {}))),
    "unneeded-input": faulty("rounds", *discovered(), out(enveloped(2, "tools/call", name="echo", inputResponses=ADA))),
    "another-question-with-the-state": faulty(
        "rounds", *rounds()[:4], out(enveloped(3, "tools/call", name="other", requestState="sealed"))
    ),
    "the-state-forgotten": faulty("rounds", *rounds(inputResponses=ADA)),
    "the-state-changed": faulty("rounds", *rounds(inputResponses=ADA, requestState="Sealed")),
    "half-the-input": faulty("rounds", *rounds(requestState="sealed")),
    "malformed-input": faulty(
        "message rounds", *rounds(inputResponses={"who": {"action": "perhaps"}}, requestState="sealed")
    ),
    "the-input-twice": faulty(
        "rounds", *rounds(inputResponses=ADA, requestState="sealed"),
        out(enveloped(4, "tools/call", name="echo", arguments={}, requestState="sealed"))
    ),
    "a-task-asked-for-without-its-id": faulty("message", *task_capable(), out(request(2, "tasks/get", {}))),
    "a-surplus-parameter-beside-a-task-id": faulty(
        "message", *task_capable(), out(request(2, "tasks/get", {"taskId": "t", "requestState": "x"}))
    ),
    "a-task-of-an-older-revision": faulty(
        "capability message", *opened("2025-06-18"), out(request(2, "tasks/get", {"taskId": "t"}))
    ),
    "initialize-after-stateless-calls": faulty(
        "lifecycle", *discovered(), out(enveloped(2, "tools/list")), out(initialize("2025-11-25", 3))
    ),
    "initialize-although-stateless-only": faulty(
        "lifecycle", out(enveloped(1, "server/discover")),
        came(error(1, -32022, data={"supported": ["2027-01-01"], "requested": STATELESS})),
        out(initialize("2025-11-25", 2))
    ),
}  # fmt: skip

SERVERS: dict[str, tuple[list[Entry], list[tuple[int, str]]]] = {
    "a-batch-that-is-read-all-the-same": (
        [*opened(), out(call(2)), came([empty(2)]), came(empty(2))],
        [(5, "batch"), (6, "response")],
    ),
    "too-deep": faulty("json", *opened(), came("[" * 100_000)),
    "a-banner": ([came("Server running on stdio"), *opened()], [(1, "json")]),
    "an-answer-to-nothing": faulty("response", *opened(), came(result(77, {}))),
    "two-answers": faulty("response", *opened(), out(call(2)), *[came(empty(2))] * 2),
    "a-malformed-result": faulty("message", *opened("2025-06-18"), out(call(2)), came(result(2, {"content": 5}))),
    "a-task-without-an-id": faulty(
        "message", *task_capable(), out(call_with_task(2)), came(result(2, {"task": {**TASK, "taskId": None}}))
    ),
    "a-task-with-an-unknown-status": faulty(
        "message", *task_capable(), out(request(2, "tasks/get", {"taskId": "t"})),
        came(result(2, {**TASK, "status": "odd"}))
    ),
    "a-later-notification": faulty(
        "message", *opened(),
        came(note("notifications/subscriptions/acknowledged", {"notifications": {}}))
    ),
    "progress-without-a-token": faulty("progress", *opened(), came(progress(1, 1))),
    "progress-that-stands-still": faulty("progress", *opened(), out(call(2, token=2)), *[came(progress(2, 1))] * 2),
    "an-unknown-version": faulty("version", out(initialize()), came(initialize_result("1999-01-01"))),
    "a-request-in-2026": faulty("message", *discovered(), came(request(1, "ping"))),
    "a-cancel-in-2026": faulty("cancel", *discovered(), out(enveloped(2, "tools/list")), came(cancel(2))),
    "input-that-was-not-declared": (rounds(meta=META, inputResponses=ADA, requestState="sealed"), [(4, "rounds")]),
    "input-without-saying-which": (rounds({"resultType": "input_required"}), [(4, "rounds")]),
    "a-change-without-a-subscription": faulty(
        "subscription", *discovered(), came(note("notifications/tools/list_changed"))
    ),
}  # fmt: skip

DEMO = [*opened(server="ipymcp-demo"), came(result(77, {}))]
MISBEHAVING = [*opened(), came("junk"), came(result(77, {})), out(call(2))]


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
def rejected(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, list[str]]:
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
    rejected: tuple[int, list[str]],
) -> None:
    code, lines = rejected
    violations = {session: planted for (side, session), planted in faults(lines).items() if side == "VIOLATION"}
    assert violations == {"ours": [(4, "response")], **{name: planted for name, (_, planted) in BAD.items()}}
    assert code == 1


def test_a_violation_names_session_frame_rule_and_what_was_sent(rejected: tuple[int, list[str]]) -> None:
    [line] = [line for line in rejected[1] if line.startswith("VIOLATION cancels-what-was-not-asked#1 ")]
    assert line == (
        "VIOLATION cancels-what-was-not-asked#1 (log) frame 4 out [cancel] cancels 9, which was never asked | "
        """'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}'"""
    )

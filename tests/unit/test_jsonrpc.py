"""The JSON-RPC peer: a pending request has one owner, who settles it."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ipymcp.errors import CallError, ConnectionLost, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import Peer, PendingRequest, excerpt, find_id


class Owner:
    """A recorder of the requests, notifications and warnings of a peer."""

    def __init__(self) -> None:
        self.requests: list[types.Envelope] = []
        self.notifications: list[tuple[str, bytes]] = []
        self.warnings: list[str] = []

    def peer(self) -> Peer:
        return Peer(self.on_request, self.on_notification, self.warnings.append, "test#1")

    def on_request(self, request: types.Envelope, origin_request_id: object) -> None:
        self.requests.append(request)

    def on_notification(self, method: str, params: Any) -> None:
        self.notifications.append((method, bytes(params)))


class InFlight:
    """A peer with one request in flight."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.peer = self.owner.peer()
        self.steps: list[types.Progress | None] = []
        """Its progress, and None at its end."""
        self.pending = PendingRequest(self.steps.append)
        self.id = self.peer.open(self.pending, "tools/call")

    def receive(self, *messages: object) -> None:
        for message in messages:
            self.peer.receive(message if isinstance(message, bytes) else json.dumps(message).encode())

    def receive_own(self, line: bytes, *, is_free: bool = True) -> bool:
        """Offer the line to the waiting thread."""
        return self.peer.receive_own(line, self.pending, lambda line: is_free)


@pytest.fixture
def call() -> InFlight:
    return InFlight()


def pendings(peer: Peer, count: int) -> list[PendingRequest]:
    requests = [PendingRequest(lambda progress: None) for _ in range(count)]
    for pending in requests:
        peer.open(pending, "tools/call")
    return requests


@pytest.mark.parametrize(
    ("line", "is_handled"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}', True),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"a": 1}, "error": null}', True),
        (b'{"jsonrpc": "2.0", "id": 2, "result": {"a": 1}}', False),
        (b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}', False),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "roots/list"}', False),
        (b'[{"jsonrpc": "2.0", "id": 1, "result": {"a": 1}}]', False),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {"a"', False),
    ],
)
def test_the_waiting_thread_handles_only_its_own_result(
    monkeypatch: pytest.MonkeyPatch, call: InFlight, line: bytes, is_handled: bool
) -> None:
    decoded: list[bytes] = []
    read_envelope = types.read_envelope
    monkeypatch.setattr(types, "read_envelope", lambda line: (decoded.append(line), read_envelope(line))[1])
    assert call.receive_own(line) is is_handled
    assert (call.steps, call.pending.is_settled()) == ([None] if is_handled else [], is_handled)
    assert decoded == [line]


def test_the_waiting_thread_leaves_intercepted_and_late_results_to_the_loop(call: InFlight) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": call.id, "result": {}}).encode()
    assert not call.receive_own(line, is_free=False)
    call.peer.claim(call.pending)
    assert not call.receive_own(line)
    call.receive(line)
    assert (call.steps, call.owner.warnings) == ([], [])


def test_the_waiting_thread_handles_its_own_progress(call: InFlight) -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress"}
    for token, is_handled in ((call.id, True), (call.id + 1, False)):
        line = json.dumps({**progress, "params": {"progressToken": token, "progress": 1}}).encode()
        assert call.receive_own(line) is is_handled
    assert [step and step.progress for step in call.steps] == [1]
    line = json.dumps({**progress, "id": 9, "params": {"progressToken": call.id, "progress": 2}}).encode()
    assert not call.receive_own(line), "a request is answered on the loop"


def test_a_result_settles_its_request_once(call: InFlight) -> None:
    call.receive({"jsonrpc": "2.0", "id": call.id, "result": {"a": 1}})
    call.receive({"jsonrpc": "2.0", "id": call.id, "result": {"a": 2}})
    assert bytes(call.pending.result) == b'{"a": 1}'
    assert call.steps == [None]
    assert len(call.peer) == 0
    assert call.owner.warnings == [f"an answer to no request in flight (id {call.id}): a result"]


@pytest.mark.parametrize("identifier", ["{}", '"{}"', "{}.0"])
def test_ids_come_back_as_numbers_or_text(call: InFlight, identifier: str) -> None:
    call.receive(b'{"id":%s,"result":{}}' % identifier.format(call.id).encode())
    assert call.steps == [None]


def test_an_error_has_code_message_and_data(call: InFlight) -> None:
    call.receive({"id": call.id, "error": {"code": -32602, "message": "no", "data": [1, float("nan")]}})
    error = call.pending.error
    assert isinstance(error, RpcError)
    assert (error.message, error.code, error.data[0]) == ("no", -32602, 1)


@pytest.mark.parametrize(
    ("answer", "error_type", "message"),
    [
        *(
            ({"error": error}, RpcError, "the server refused: ")
            for error in ("broken", 5, {"code": "x"}, {"code": 1, "message": None}, [])
        ),
        ({"jsonrpc": "2.0"}, CallError, ""),
        (b'{"jsonrpc":"2.0","id":%d,"result":{,}}', CallError, "the server's answer is not valid JSON ("),
        (b'{"result":{,},"id":%d}', CallError, "the server's answer is not valid JSON ("),
    ],
)
def test_an_invalid_answer_fails_its_request(
    call: InFlight, answer: Any, error_type: type[CallError], message: str
) -> None:
    call.receive(answer % call.id if isinstance(answer, bytes) else {"id": call.id, **answer})
    assert isinstance(call.pending.error, error_type)
    assert call.pending.error.message.startswith(message)


def test_a_null_error_beside_a_result_is_not_an_error(call: InFlight) -> None:
    call.receive({"id": call.id, "error": None, "result": {}})
    assert call.pending.error is None


def test_progress_is_delivered_until_the_end_and_not_after(call: InFlight) -> None:
    progress = {"method": "notifications/progress", "params": {"progressToken": call.id, "progress": 1}}
    call.receive(progress, {"id": call.id, "result": {}}, progress)
    assert [step and step.progress for step in call.steps] == [1, None]
    assert call.owner.warnings == []


def test_requests_and_notifications_go_to_the_owner(call: InFlight) -> None:
    call.receive({"id": "a", "method": "ping"}, {"method": "notifications/x", "params": {"b": 2}})
    assert [(request.id, request.method) for request in call.owner.requests] == [("a", "ping")]
    assert call.owner.notifications == [("notifications/x", b'{"b": 2}')]


def test_a_broken_message_of_a_batch_leaves_the_others_valid(call: InFlight) -> None:
    call.receive([1, {"id": [1], "result": {}}, {"hello": 1}, [], {"id": call.id, "result": {}}])
    assert call.steps == [None]
    assert len(call.owner.warnings) == 4


@pytest.mark.parametrize(
    ("line", "warnings"),
    [
        *((line, 1) for line in (b"junk", b"\xef\xbb\xbf", b"5", b"null", b'"text"', b'{"hello":1}', b"[1]", b"\xff")),
        (b"[" * 100_000, 1),
        (b"[]", 0),
    ],
)
def test_a_line_that_is_not_a_message_is_a_warning_and_an_empty_batch_is_ignored(
    call: InFlight, line: bytes, warnings: int
) -> None:
    call.receive(line)
    assert (len(call.owner.warnings), call.steps) == (warnings, [])


def test_a_claimed_request_receives_nothing_more(call: InFlight) -> None:
    assert call.peer.claim(call.pending)
    assert not call.peer.claim(call.pending)
    call.receive({"id": call.id, "result": {}})
    assert call.steps == []


def test_all_requests_fail_each_with_an_error_of_its_own() -> None:
    peer = Owner().peer()
    requests = pendings(peer, 3)
    peer.fail_all(lambda: ConnectionLost("gone"))
    assert len({id(pending.error) for pending in requests}) == 3
    assert len(peer) == 0


def test_only_one_of_many_threads_claims_a_request() -> None:
    peer = Owner().peer()
    requests = pendings(peer, 500)
    claimed: list[PendingRequest] = []
    start = threading.Barrier(4)

    def claim_all() -> None:
        start.wait()
        claimed.extend(pending for pending in requests if peer.claim(pending))

    threads = [threading.Thread(target=claim_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(pending.id for pending in claimed) == [pending.id for pending in requests]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":', 7),
        (b'{ "id" : 7 , "result":', 7),
        (b'{"jsonrpc": "2.0", "id": "a\\"b", "result":', 'a\\"b'),
        (b'{"jsonrpc":"2.0","id":"7","result":', 7),
        (b'{"result":{"id":1},"id":7}', 7),
        (b'{"result":{},"id":7,"jsonrpc":"2.0"} ', 7),
        (b'{"jsonrpc":"2.0","method":"x","id":7}', None),
        (b'{"result":{"id":7}}', None),
        (b"", None),
    ],
)
def test_the_id_of_a_line_that_cannot_be_decoded_is_found_first_or_last(line: bytes, expected: object) -> None:
    assert find_id(line, line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"  \xff short ", "\ufffd short"),
        (b"x" * 200, "x" * 200),
        (b"x" * 201, "x" * 200 + "…"),
        (b"x" * 300, "x" * 200 + "…"),
        (b"plain", "plain"),
        (b'{"id":1,"requestState":"secret"', '{"id":1,…'),
    ],
)
def test_an_excerpt_is_short_and_readable_without_a_servers_private_state(line: bytes, expected: str) -> None:
    assert excerpt(line) == expected


def test_a_renewed_request_is_answered_under_its_new_id_only(call: InFlight) -> None:
    peer, pending = call.peer, call.pending
    assert peer.reassign_id(pending)
    assert pending.id != call.id
    assert peer.is_pending(pending)
    assert (peer.find(call.id), peer.find(pending.id)) == (None, pending)
    call.receive({"jsonrpc": "2.0", "id": call.id, "result": {}})
    assert pending.result is None
    call.receive({"jsonrpc": "2.0", "id": pending.id, "result": {"a": 1}})
    assert bytes(pending.result) == b'{"a": 1}'
    assert not peer.reassign_id(pending)
    assert len(peer) == 0


def test_a_request_that_is_renewed_and_claimed_at_the_same_time_has_one_owner() -> None:
    peer = Owner().peer()
    with ThreadPoolExecutor(1) as pool:
        for _ in range(300):
            [pending] = pendings(peer, 1)
            start = threading.Barrier(2)
            claimed = pool.submit(lambda pending=pending, start=start: (start.wait(), peer.claim(pending))[1])
            start.wait()
            for _ in range(10):
                peer.reassign_id(pending)
            assert claimed.result()
            assert len(peer) == 0

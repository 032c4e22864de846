"""The JSON-RPC peer: whoever takes a pending owns its outcome."""

import json
import threading
from typing import Any

import pytest

from ipymcp.errors import CallError, ConnectionLost, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import Peer, PendingRequest, excerpt, find_id


class Owner:
    """Keeps what the peer tells."""

    def __init__(self) -> None:
        self.requests: list[types.Envelope] = []
        self.notifications: list[tuple[str, bytes]] = []
        self.noise: list[str] = []

    def peer(self) -> Peer:
        return Peer(self.on_request, self.on_notification, self.protocol_warning, "test#1")

    def on_request(self, request: types.Envelope, origin_request_id: object) -> None:
        self.requests.append(request)

    def on_notification(self, method: str, params: Any) -> None:
        self.notifications.append((method, bytes(params)))

    def protocol_warning(self, text: str) -> None:
        self.noise.append(text)


class Asked:
    """A peer with one request in flight."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.peer = self.owner.peer()
        self.heard: list[types.Progress | None] = []
        self.pending = PendingRequest(self.heard.append)
        self.id = self.peer.open(self.pending, "tools/call")

    def receive(self, *messages: object) -> None:
        for message in messages:
            self.peer.receive(message if isinstance(message, bytes) else json.dumps(message).encode())


@pytest.fixture
def asked() -> Asked:
    return Asked()


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
    monkeypatch: pytest.MonkeyPatch, asked: Asked, line: bytes, is_handled: bool
) -> None:
    decoded: list[bytes] = []
    read_envelope = types.read_envelope
    monkeypatch.setattr(types, "read_envelope", lambda line: (decoded.append(line), read_envelope(line))[1])
    assert asked.peer.receive_own(line, asked.pending, lambda line: True) is is_handled
    assert (asked.heard, asked.pending.is_settled()) == ([None] if is_handled else [], is_handled)
    assert decoded == [line]


def test_the_waiting_thread_leaves_what_needs_an_interceptor_or_is_late_to_the_loop(asked: Asked) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": asked.id, "result": {}}).encode()
    assert not asked.peer.receive_own(line, asked.pending, lambda line: False)
    asked.peer.claim(asked.pending)
    assert not asked.peer.receive_own(line, asked.pending, lambda line: True)
    asked.receive(line)
    assert (asked.heard, asked.owner.noise) == ([], [])


def test_the_waiting_thread_handles_its_own_progress(asked: Asked) -> None:
    for token, is_handled in ((asked.id, True), (asked.id + 1, False)):
        params = {"progressToken": token, "progress": 1}
        line = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).encode()
        assert asked.peer.receive_own(line, asked.pending, lambda line: True) is is_handled
    assert [each and each.progress for each in asked.heard] == [1]
    request = {"jsonrpc": "2.0", "id": 9, "method": "notifications/progress"}
    line = json.dumps({**request, "params": {"progressToken": asked.id, "progress": 2}}).encode()
    assert not asked.peer.receive_own(line, asked.pending, lambda line: True), "a request is answered on the loop"


def test_a_result_settles_its_request_once(asked: Asked) -> None:
    asked.receive({"jsonrpc": "2.0", "id": asked.id, "result": {"a": 1}})
    asked.receive({"jsonrpc": "2.0", "id": asked.id, "result": {"a": 2}})
    assert bytes(asked.pending.result) == b'{"a": 1}'
    assert asked.heard == [None]
    assert len(asked.peer) == 0
    assert asked.owner.noise == [f"an answer to no request in flight (id {asked.id}): a result"]


@pytest.mark.parametrize("identifier", ["{}", '"{}"', "{}.0"])
def test_ids_come_back_as_numbers_or_text(asked: Asked, identifier: str) -> None:
    asked.receive(b'{"id":%s,"result":{}}' % identifier.format(asked.id).encode())
    assert asked.heard == [None]


def test_an_error_has_code_message_and_data(asked: Asked) -> None:
    asked.receive({"id": asked.id, "error": {"code": -32602, "message": "no", "data": [1, float("nan")]}})
    error = asked.pending.error
    assert isinstance(error, RpcError)
    assert (error.message, error.code, error.data[0]) == ("no", -32602, 1)


@pytest.mark.parametrize("error", ["broken", 5, {"code": "x"}, {"code": 1, "message": None}, []])
def test_an_error_of_another_shape_still_fails_the_request(asked: Asked, error: object) -> None:
    asked.receive({"id": asked.id, "error": error})
    assert isinstance(asked.pending.error, RpcError)
    assert asked.pending.error.message.startswith("the server refused: ")


def test_a_null_error_beside_a_result_is_none(asked: Asked) -> None:
    asked.receive({"id": asked.id, "error": None, "result": {}})
    assert asked.pending.error is None


def test_an_answer_with_neither_result_nor_error_fails_the_request(asked: Asked) -> None:
    asked.receive({"jsonrpc": "2.0", "id": asked.id})
    assert isinstance(asked.pending.error, CallError)


def test_progress_is_delivered_until_the_end_and_not_after(asked: Asked) -> None:
    progress = {"method": "notifications/progress", "params": {"progressToken": asked.id, "progress": 1}}
    asked.receive(progress, {"id": asked.id, "result": {}}, progress)
    assert [step and step.progress for step in asked.heard] == [1, None]
    assert asked.owner.noise == []


def test_requests_and_notifications_go_to_the_owner(asked: Asked) -> None:
    asked.receive({"id": "a", "method": "ping"}, {"method": "notifications/x", "params": {"b": 2}})
    assert [(request.id, request.method) for request in asked.owner.requests] == [("a", "ping")]
    assert asked.owner.notifications == [("notifications/x", b'{"b": 2}')]


def test_a_broken_message_of_a_batch_costs_the_others_nothing(asked: Asked) -> None:
    asked.receive([1, {"id": [1], "result": {}}, {"hello": 1}, [], {"id": asked.id, "result": {}}])
    assert asked.heard == [None]
    assert len(asked.owner.noise) == 4


def test_an_empty_batch_is_nothing(asked: Asked) -> None:
    asked.receive(b"[]")
    assert asked.owner.noise == []


@pytest.mark.parametrize(
    "line", [b"junk", b"\xef\xbb\xbf", b"5", b"null", b'"text"', b'{"hello":1}', b"[1]", b"\xff", b"[" * 100_000]
)
def test_what_is_no_message_is_noise(asked: Asked, line: bytes) -> None:
    asked.receive(line)
    assert len(asked.owner.noise) == 1
    assert asked.heard == []


@pytest.mark.parametrize("line", [b'{"jsonrpc":"2.0","id":%d,"result":{,}}', b'{"result":{,},"id":%d}'])
def test_a_malformed_answer_fails_the_request_it_was_meant_for(asked: Asked, line: bytes) -> None:
    asked.receive(line % asked.id)
    assert isinstance(asked.pending.error, CallError)
    assert asked.pending.error.message.startswith("the server's answer is not valid JSON (")


def test_a_request_that_was_taken_hears_nothing_more(asked: Asked) -> None:
    assert asked.peer.claim(asked.pending)
    assert not asked.peer.claim(asked.pending)
    asked.receive({"id": asked.id, "result": {}})
    assert asked.heard == []


def test_all_fail_each_with_an_error_of_its_own() -> None:
    peer = Owner().peer()
    requests = [PendingRequest(lambda _: None) for _ in range(3)]
    for pending in requests:
        peer.open(pending, "x")
    peer.fail_all(lambda: ConnectionLost("gone"))
    assert len({id(pending.error) for pending in requests}) == 3
    assert len(peer) == 0


def test_of_many_threads_that_take_a_request_one_gets_it() -> None:
    peer = Owner().peer()
    requests = [PendingRequest(lambda _: None) for _ in range(500)]
    for pending in requests:
        peer.open(pending, "x")
    taken: list[PendingRequest] = []
    start = threading.Barrier(4)

    def take_all() -> None:
        start.wait()
        taken.extend(pending for pending in requests if peer.claim(pending))

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(pending.id for pending in taken) == [pending.id for pending in requests]


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
def test_the_id_of_what_cannot_be_decoded_is_found_first_or_last(line: bytes, expected: object) -> None:
    assert find_id(line, line) == expected


def test_an_excerpt_is_short_and_readable() -> None:
    assert excerpt(b"  \xff short ") == "\ufffd short"
    assert excerpt(b"x" * 201) == "x" * 200 + "…"


def test_a_renewed_request_is_answered_under_its_new_id_only(asked: Asked) -> None:
    peer, pending = asked.peer, asked.pending
    assert peer.reassign_id(pending)
    assert pending.id != asked.id
    assert peer.is_pending(pending)
    assert (peer.find(asked.id), peer.find(pending.id)) == (None, pending)
    asked.receive({"jsonrpc": "2.0", "id": asked.id, "result": {}})
    assert pending.result is None
    asked.receive({"jsonrpc": "2.0", "id": pending.id, "result": {"a": 1}})
    assert bytes(pending.result) == b'{"a": 1}'
    assert not peer.reassign_id(pending)
    assert len(peer) == 0


def test_a_request_that_is_renewed_and_given_up_at_once_has_one_owner() -> None:
    peer = Owner().peer()
    for _ in range(300):
        pending = PendingRequest(lambda progress: None)
        peer.open(pending, "tools/call")
        taken: list[bool] = []
        start = threading.Barrier(2)

        def take(
            pending: PendingRequest = pending, taken: list[bool] = taken, start: threading.Barrier = start
        ) -> None:
            start.wait()
            taken.append(peer.claim(pending))

        thread = threading.Thread(target=take)
        thread.start()
        start.wait()
        for _ in range(10):
            peer.reassign_id(pending)
        thread.join()
        assert taken == [True]
        assert len(peer) == 0


def test_what_a_server_wants_kept_to_itself_is_in_no_excerpt() -> None:
    assert excerpt(b'{"id":1,"requestState":"secret"') == '{"id":1,…'
    assert excerpt(b"plain") == "plain"
    assert excerpt(b"x" * 300) == "x" * 200 + "…"

"""The JSON-RPC peer: whoever takes a slot owns its outcome."""

from __future__ import annotations

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

    def on_request(self, request: types.Envelope, origin_request_id: object) -> None:
        self.requests.append(request)

    def on_notification(self, method: str, params: Any) -> None:
        self.notifications.append((method, bytes(params)))

    def on_protocol_warning(self, text: str) -> None:
        self.noise.append(text)


class Asked:
    """A peer with one request in flight."""

    def __init__(self) -> None:
        self.owner = Owner()
        self.peer = Peer(self.owner, "test#1")
        self.heard: list[types.Progress | None] = []
        self.slot = PendingRequest(self.heard.append)
        self.id = self.peer.open(self.slot, "tools/call")

    def receive(self, *messages: object) -> None:
        for message in messages:
            self.peer.receive(message if isinstance(message, bytes) else json.dumps(message).encode())


@pytest.fixture
def asked() -> Asked:
    return Asked()


def test_a_result_settles_its_slot_once(asked: Asked) -> None:
    asked.receive({"jsonrpc": "2.0", "id": asked.id, "result": {"a": 1}})
    asked.receive({"jsonrpc": "2.0", "id": asked.id, "result": {"a": 2}})
    assert bytes(asked.slot.result) == b'{"a": 1}'
    assert asked.heard == [None]
    assert len(asked.peer) == 0
    assert asked.owner.noise == [f"an answer to no request in flight (id {asked.id}): a result"]


@pytest.mark.parametrize("identifier", ["{}", '"{}"', "{}.0"])
def test_ids_come_back_as_numbers_or_text(asked: Asked, identifier: str) -> None:
    asked.receive(b'{"id":%s,"result":{}}' % identifier.format(asked.id).encode())
    assert asked.heard == [None]


def test_an_error_has_code_message_and_data(asked: Asked) -> None:
    asked.receive({"id": asked.id, "error": {"code": -32602, "message": "no", "data": [1, float("nan")]}})
    error = asked.slot.error
    assert isinstance(error, RpcError)
    assert (error.message, error.code, error.data[0]) == ("no", -32602, 1)


@pytest.mark.parametrize("error", ["broken", 5, {"code": "x"}, {"code": 1, "message": None}, []])
def test_an_error_of_another_shape_still_fails_the_request(asked: Asked, error: object) -> None:
    asked.receive({"id": asked.id, "error": error})
    assert isinstance(asked.slot.error, RpcError)
    assert asked.slot.error.message.startswith("the server refused: ")


def test_a_null_error_beside_a_result_is_none(asked: Asked) -> None:
    asked.receive({"id": asked.id, "error": None, "result": {}})
    assert asked.slot.error is None


def test_an_answer_with_neither_result_nor_error_fails_the_request(asked: Asked) -> None:
    asked.receive({"jsonrpc": "2.0", "id": asked.id})
    assert isinstance(asked.slot.error, CallError)


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
    assert isinstance(asked.slot.error, CallError)
    assert asked.slot.error.message.startswith("the server's answer is not valid JSON (")


def test_a_slot_that_was_taken_hears_nothing_more(asked: Asked) -> None:
    assert asked.peer.claim(asked.slot)
    assert not asked.peer.claim(asked.slot)
    asked.receive({"id": asked.id, "result": {}})
    assert asked.heard == []


def test_all_fail_each_with_an_error_of_its_own() -> None:
    peer = Peer(Owner(), "test#1")
    slots = [PendingRequest(lambda _: None) for _ in range(3)]
    for slot in slots:
        peer.open(slot, "x")
    peer.fail_all(lambda: ConnectionLost("gone"))
    assert len({id(slot.error) for slot in slots}) == 3
    assert len(peer) == 0


def test_of_many_threads_that_take_a_slot_one_gets_it() -> None:
    peer = Peer(Owner(), "test#1")
    slots = [PendingRequest(lambda _: None) for _ in range(500)]
    for slot in slots:
        peer.open(slot, "x")
    taken: list[PendingRequest] = []
    start = threading.Barrier(4)

    def take_all() -> None:
        start.wait()
        taken.extend(slot for slot in slots if peer.claim(slot))

    threads = [threading.Thread(target=take_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(slot.id for slot in taken) == [slot.id for slot in slots]


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
    peer, slot = asked.peer, asked.slot
    assert peer.reassign_id(slot)
    assert slot.id != asked.id
    assert peer.is_pending(slot)
    assert (peer.slot(asked.id), peer.slot(slot.id)) == (None, slot)
    asked.receive({"jsonrpc": "2.0", "id": asked.id, "result": {}})
    assert slot.result is None
    asked.receive({"jsonrpc": "2.0", "id": slot.id, "result": {"a": 1}})
    assert bytes(slot.result) == b'{"a": 1}'
    assert not peer.reassign_id(slot)
    assert len(peer) == 0


def test_a_request_that_is_renewed_and_given_up_at_once_has_one_owner() -> None:
    peer = Peer(Owner(), "test#1")
    for _ in range(300):
        slot = PendingRequest(lambda progress: None)
        peer.open(slot, "tools/call")
        taken: list[bool] = []
        start = threading.Barrier(2)

        def take(slot: PendingRequest = slot, taken: list[bool] = taken, start: threading.Barrier = start) -> None:
            start.wait()
            taken.append(peer.claim(slot))

        thread = threading.Thread(target=take)
        thread.start()
        start.wait()
        for _ in range(10):
            peer.reassign_id(slot)
        thread.join()
        assert taken == [True]
        assert len(peer) == 0


def test_what_a_server_wants_kept_to_itself_is_in_no_excerpt() -> None:
    assert excerpt(b'{"id":1,"requestState":"secret"') == '{"id":1,…'
    assert excerpt(b"plain") == "plain"
    assert excerpt(b"x" * 300) == "x" * 200 + "…"

"""A recording of the messages of one server: kinds and methods, bounds, and masks."""

import json
import time

import msgspec
import pytest

from ipymcp.masking import LABEL, Masks
from ipymcp.protocol import recording
from ipymcp.protocol.recording import MAX_MESSAGE_BYTES, MessageRecorder, without_secrets


@pytest.fixture
def recorder() -> MessageRecorder:
    return MessageRecorder()


def test_requests_responses_and_notifications_are_distinguished_and_paired(recorder: MessageRecorder) -> None:
    recorder.sent(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', "request", 1, "tools/call")
    recorder.received(b'{"jsonrpc":"2.0","method":"notifications/progress","params":{}}')
    recorder.received(b'{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}')
    recorder.sent(b'{"jsonrpc":"2.0","id":7,"result":{}}', "response", 7, "")
    recorder.received(b'{"jsonrpc":"2.0","id":"1","error":{"code":-1,"message":"no"}}')
    recorder.received(b'[{"jsonrpc":"2.0","method":"x"}]')
    recorder.received(b"not JSON")
    recorder.sent(b'{"jsonrpc":"2.0","id":8,"error":{"code":-1,"message":"no"}}', "response", 8, "")
    messages = recorder.tail(100)
    assert [(message.is_sent, message.kind, message.method) for message in messages] == [
        (True, "request", "tools/call"),
        (False, "notification", "notifications/progress"),
        (False, "request", "elicitation/create"),
        (True, "response", "elicitation/create"),
        (False, "error", "tools/call"),
        (False, "batch", ""),
        (False, "malformed", ""),
        (True, "error", ""),
    ]
    assert [message.number for message in messages] == [*range(1, 9)]
    assert [message.duration is not None for message in messages] == [False] * 3 + [True, True] + [False] * 3
    assert recorder.tail(2) == messages[-2:] and recorder.tail(0) == []


def test_a_recording_is_bounded_in_messages_and_bytes_and_cuts_long_ones(
    recorder: MessageRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_MESSAGES", 10)
    monkeypatch.setattr(recording, "MAX_BYTES", 50_000)
    for _ in range(30):
        recorder.received(b'{"jsonrpc":"2.0","method":"x"}')
    assert [message.number for message in recorder.tail(100)] == [*range(21, 31)]
    assert recorder.total == 30
    long = b'{"jsonrpc":"2.0","id":5,"result":"%s"}' % (b"x" * 3_000_000)
    recorder.sent(b'{"jsonrpc":"2.0","id":5,"method":"m"}', "request", 5, "m")
    for _ in range(4):
        recorder.received(long)
    messages = recorder.tail(100)
    assert sum(len(message.head) for message in messages) <= 50_000
    assert (messages[-1].size, len(messages[-1].head)) == (len(long), MAX_MESSAGE_BYTES)
    assert messages[-1].text.endswith("x…")


def test_requests_without_a_response_are_forgotten(recorder: MessageRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MAX_OPEN", 3)
    for number in range(5):
        recorder.sent(b"{}", "request", number, "m")
    for number in range(5):
        recorder.received(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % number)
    assert [message.method for message in recorder.tail(5)] == ["", "", "m", "m", "m"]


def test_secrets_are_masked_by_their_value_and_by_the_name_of_the_member(
    recorder: MessageRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_masks = Masks()
    monkeypatch.setattr(recording, "mask", own_masks)
    message = {
        "method": "tools/call",
        "params": {
            "arguments": {"text": "hunter2-hunter2", "password": 'a "b', "api_key": "k" * 40, "key_count": "3"},
            "_meta": {"progressToken": "17"},
            "requestState": "opaque",
        },
    }
    recorder.received(msgspec.json.encode(message))
    recorder.received(b'{"result":"%s hunter2-hunter2' % (b"x" * (MAX_MESSAGE_BYTES - 18)))
    recorder.received(b'{"result":{"padding":"%s","password":"secret word"}}' % (b"x" * (MAX_MESSAGE_BYTES - 45)))
    own_masks.add("hunter2-hunter2")  # learned later
    whole, cut, named = (one.text for one in recorder.tail(3))
    assert msgspec.json.decode(whole) == {
        "method": "tools/call",
        "params": {
            "arguments": {"text": LABEL, "password": LABEL, "api_key": LABEL, "key_count": "3"},
            "_meta": {"progressToken": "17"},
            "requestState": LABEL,
        },
    }
    assert "hunter" not in cut and cut.endswith(f"{LABEL}…")
    assert "secret" not in named.replace(LABEL, "")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"password": 12345678, "pin_key": 1234, "key": 7}, {"password": LABEL, "pin_key": LABEL, "key": 7}),
        ('{"password": "a \\"b\\\\", "n": "c"}', '{"password": "[secret]", "n": "c"}'),
        ('[{"api_key":"x"},{"token":"y"}]', '[{"api_key":"[secret]"},{"token":"[secret]"}]'),
        ('{"token": 123456}', '{"token": "[secret]"}'),
        ('{"name": "no secret", "q": "\\"password\\": none"}', '{"name": "no secret", "q": "\\"password\\": none"}'),
    ],
)
def test_secrets_are_masked_in_numbers_and_in_json_within_json(value: object, shown: object) -> None:
    masked = without_secrets(json.dumps({"text": value, "more": "x"}))
    assert json.loads(masked) == {"text": shown, "more": "x"}


def test_a_secret_that_is_cut_within_inner_json_is_masked() -> None:
    assert "hunter" not in without_secrets(json.dumps({"text": '{"password": "hunter two"}'})[:-6])


@pytest.mark.parametrize("text", ['\\"', '"', '\\"a\\": \\"\\\\', '\\"a\\":', '"a":', '"a\\"', "\\", '\\"a'])
def test_hostile_text_is_masked_in_linear_time(text: str) -> None:
    began = time.process_time()
    without_secrets(text * 100_000)
    assert time.process_time() - began < 5


def test_invisible_characters_of_a_message_are_shown(recorder: MessageRecorder) -> None:
    recorder.received('{"method":"a\u202eb"}'.encode())
    assert recorder.tail(1)[0].text == '{"method":"a⟨U+202E⟩b"}'

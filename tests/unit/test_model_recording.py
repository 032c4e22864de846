"""Recorded answers: how they are found again, how a change is named, and the contents of the file."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ipymcp.errors import McpError
from ipymcp.llm import recording
from ipymcp.llm.answer import Usage
from ipymcp.llm.recording import AnswerKey, RecordedAnswer, RecordedCall, Recording, digest, repeatable_part
from ipymcp.masking import Masks
from tests.errors import refused

KEY = AnswerKey(model="echo", prompt="p", system="s", conversation="c", returns="r", tools={"a.x": "1", "a.y": "1"})
ANSWER = RecordedAnswer(
    key=KEY,
    question="hey",
    recorded="2026-11-23",
    text="Yes.",
    data=None,
    reason="stop",
    usage=Usage(1, 2, 3),
    events=["Let me see. ", RecordedCall("a__x", "a", "x", {"n": 1}, "one"), "Yes."],
    messages=[{"kind": "request", "parts": []}],
)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        (replace(KEY, model="tools"), "the model changed from echo to tools"),
        (replace(KEY, system="t"), "the instructions changed"),
        (replace(KEY, conversation="d"), "the conversation before changed"),
        (replace(KEY, returns="q"), "the wanted type changed"),
        (replace(KEY, tools={"a.x": "2", "b.z": "1"}), "b.z was added and a.y was removed and a.x was changed"),
        (replace(KEY, tools={}), "a.x, a.y were removed"),
        (replace(KEY, prompt="q"), "the prompt or a variable in it changed, or is new"),
    ],
)
def test_an_answer_is_found_by_its_key_or_the_change_is_named(tmp_path: Path, key: AnswerKey, change: str) -> None:
    recording = Recording(tmp_path / "answers.json")
    assert recording.find(KEY) == "nothing is recorded yet"
    recording.add(ANSWER)
    assert recording.find(KEY) == ANSWER
    assert recording.find(key) == change


def test_a_new_answer_replaces_the_one_with_the_same_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_MAX_ANSWERS", 2)
    recorded = Recording(tmp_path / "answers.json")
    for text, prompt in (("one", "p"), ("two", "p"), ("three", "q")):
        recorded.add(replace(ANSWER, text=text, key=replace(KEY, prompt=prompt)))
    answer = recorded.find(KEY)
    assert isinstance(answer, RecordedAnswer) and answer.text == "two"
    recorded.add(replace(ANSWER, key=replace(KEY, prompt="r")))
    kept = msgspec.json.decode((tmp_path / "answers.json").read_bytes())["answers"]
    assert [answer["key"]["prompt"] for answer in kept] == ["q", "r"], "the latest"


def test_a_recording_has_no_secrets_and_digests_are_those_of_masked_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = Masks()
    monkeypatch.setattr(recording, "mask", masks)
    before = digest("say [secret]")
    masks.add("hunter2hunter2")
    file = tmp_path / "answers.json"
    call = RecordedCall("a__x", "a", "x", {"token": "hunter2hunter2"}, "it is hunter2hunter2")
    Recording(file).add(replace(ANSWER, text="hunter2hunter2", events=[call], messages=["hunter2hunter2"]))
    assert "hunter2" not in file.read_text()
    assert digest("say hunter2hunter2") == before


def test_results_are_equal_under_any_stored_number() -> None:
    text = "Stored as result {0}: call read_result with handle={0}. The user has it as mcp.results[{0}].]\nx"
    call = RecordedCall("a__x", "a", "x", {}, text.format(7))
    assert call.is_answered_by(text.format(12))
    assert not call.is_answered_by(text.format(7) + "y")


def test_a_conversation_is_the_same_at_another_time() -> None:
    def message(time: str, args: dict[str, object]) -> list[object]:
        part = {"part_kind": "tool-call", "tool_name": "x", "args": args, "tool_call_id": time}
        return [{"kind": "response", "timestamp": time, "parts": [part]}]

    assert repeatable_part(message("1", {"id": 1})) == repeatable_part(message("2", {"id": 1}))
    assert repeatable_part(message("1", {"id": 1})) != repeatable_part(message("1", {"id": 2}))


@pytest.mark.parametrize("content", ["{", "[]", '{"answers": [{}]}', '{"version": 2}'])
def test_a_file_that_is_not_a_recording_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "answers.json"
    file.write_text(content)
    message, hint = refused(McpError, Recording(file).find, KEY)
    assert message.startswith("answers.json cannot be read: ")
    assert hint == "restore it, or delete it and record again"


@pytest.mark.posix
def test_a_recording_that_is_a_link_to_a_device_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.symlink_to("/dev/zero")
    problem = "answers.json is not a regular file"
    assert refused(McpError, Recording(file).find, KEY) == (problem, "delete it and record again")

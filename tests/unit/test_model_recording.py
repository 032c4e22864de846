"""Recorded answers: what is found again, what is repeatable_part to have changed, and what the file holds."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ipymcp.errors import McpError
from ipymcp.llm import recording
from ipymcp.llm.answer import Usage
from ipymcp.llm.recording import AnswerKey, RecordedAnswer, RecordedCall, Recording, digest, repeatable_part
from ipymcp.masking import Masks

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
    ("key", "changed"),
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
def test_what_changed_is_said(tmp_path: Path, key: AnswerKey, changed: str) -> None:
    recorded = Recording(tmp_path / "answers.json")
    assert recorded.find(KEY) == "nothing is recorded yet"
    recorded.add(ANSWER)
    assert recorded.find(KEY) == ANSWER
    assert recorded.find(key) == changed


def test_a_new_answer_takes_the_place_of_that_with_the_same_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_MAX_ANSWERS", 2)
    recorded = Recording(tmp_path / "answers.json")
    for text, prompt in (("one", "p"), ("two", "p"), ("three", "q")):
        recorded.add(replace(ANSWER, text=text, key=replace(KEY, prompt=prompt)))
    found = recorded.find(KEY)
    assert isinstance(found, RecordedAnswer) and found.text == "two"
    recorded.add(replace(ANSWER, key=replace(KEY, prompt="r")))
    kept = msgspec.json.decode((tmp_path / "answers.json").read_bytes())["answers"]
    assert [one["key"]["prompt"] for one in kept] == ["q", "r"], "the latest"


def test_a_recording_has_no_secrets_and_digests_are_those_of_masked_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks = Masks()
    monkeypatch.setattr(recording, "masks", masks)
    before = digest("say [secret]")
    masks.add("hunter2hunter2")
    file = tmp_path / "answers.json"
    call = RecordedCall("a__x", "a", "x", {"token": "hunter2hunter2"}, "it is hunter2hunter2")
    Recording(file).add(replace(ANSWER, text="hunter2hunter2", events=[call], messages=["hunter2hunter2"]))
    assert "hunter2" not in file.read_text()
    assert digest("say hunter2hunter2") == before


def test_results_are_the_same_whatever_number_they_were_stored_by() -> None:
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
def test_a_file_that_is_no_recording_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "answers.json"
    file.write_text(content)
    with pytest.raises(McpError, match=r"^answers\.json cannot be read: ") as caught:
        Recording(file).find(KEY)
    assert caught.value.hint == "restore it, or delete it and record again"


@pytest.mark.posix
def test_a_recording_that_is_a_link_to_a_device_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.symlink_to("/dev/zero")
    with pytest.raises(McpError) as caught:
        Recording(file).find(KEY)
    assert caught.value._render_traceback_() == [
        "McpError: answers.json is not a regular file",
        "  delete it and record again",
    ]

"""Responses of models in each provider's format, and the answers to them."""

from typing import Any

import pytest

from ipymcp.errors import ArgumentError
from ipymcp.llm.answer import ToolCallOutcome, ToolCallRequest, read_arguments
from ipymcp.llm.providers import Dialect, messages, read_response
from ipymcp.results.content import Image
from tests.errors import refused

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CHAT = {"id": "c1", "type": "function", "function": {"name": "fs__read", "arguments": '{"path": "a"}'}}
RESPONSES = {"type": "function_call", "id": "f", "call_id": "c1", "name": "fs__read", "arguments": '{"path": "a"}'}
ANTHROPIC = {"type": "tool_use", "id": "c1", "name": "fs__read", "input": {"path": "a"}}
GEMINI = {"functionCall": {"id": "c1", "name": "fs__read", "args": {"path": "a"}}}
TEXT = ToolCallRequest("c1", "fs__read", '{"path": "a"}')
MAPPING = ToolCallRequest("c1", "fs__read", {"path": "a"})


class Dumped:
    """An object as providers' libraries give it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def model_dump(self) -> Any:
        return self._value


CASES: list[tuple[object, str, ToolCallRequest]] = [
    ({"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [CHAT]}}]}, "openai", TEXT),
    ({"role": "assistant", "content": None, "tool_calls": [CHAT]}, "openai", TEXT),
    ([CHAT], "openai", TEXT),
    (CHAT, "openai", TEXT),
    ({"output": [{"type": "reasoning"}, {"type": "message", "content": []}, RESPONSES]}, "openai_responses", TEXT),
    ([RESPONSES], "openai_responses", TEXT),
    ({"role": "assistant", "content": [{"type": "text", "text": "so"}, ANTHROPIC]}, "anthropic", MAPPING),
    ([ANTHROPIC], "anthropic", MAPPING),
    ({"candidates": [{"content": {"parts": [{"text": "so"}, GEMINI]}}]}, "gemini", MAPPING),
    ({"candidates": [{"content": {"parts": [{"function_call": GEMINI["functionCall"]}]}}]}, "gemini", MAPPING),
    ({"role": "model", "parts": [GEMINI]}, "gemini", MAPPING),
    ([GEMINI["functionCall"]], "gemini", MAPPING),
    ({"content": "", "tool_calls": [{"type": "tool_call", **GEMINI["functionCall"]}]}, "openai", MAPPING),
]


@pytest.mark.parametrize(("response", "dialect", "call"), CASES)
def test_calls_are_found_in_every_form_of_a_response(response: object, dialect: str, call: ToolCallRequest) -> None:
    assert read_response(response) == (dialect, [call])
    assert read_response(Dumped(response)) == (dialect, [call])
    if isinstance(response, list):
        assert read_response([Dumped(each) for each in response]) == (dialect, [call])


@pytest.mark.parametrize(
    ("response", "dialect"),
    [
        ({"role": "assistant", "content": [Dumped(ANTHROPIC)]}, "anthropic"),
        ({"role": "assistant", "tool_calls": [Dumped(CHAT)]}, "openai"),
        ({"role": "model", "parts": [Dumped(GEMINI)]}, "gemini"),
        ({"candidates": [{"content": Dumped({"parts": [GEMINI]})}]}, "gemini"),
    ],
)
def test_calls_are_found_in_objects_of_a_library_within_a_message(response: object, dialect: str) -> None:
    assert read_response(response) == (dialect, [TEXT if dialect == "openai" else MAPPING])


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"id": "c1", "type": "function"}, ""),
        ({"id": "c1", "type": "function", "function": "fs__read"}, ""),
        ({"id": "c1", "function": {}}, ""),
        ({"id": "c1", "type": "custom", "custom": {"name": "fs__read", "input": "so"}}, "fs__read"),
    ],
)
def test_a_malformed_call_is_a_call_since_it_needs_an_answer(item: object, name: str) -> None:
    broken = ToolCallRequest("c1", name, None)
    assert read_response({"role": "assistant", "tool_calls": [item, None, CHAT]}) == ("openai", [broken, TEXT])
    assert read_response([item]) == ("openai", [broken])


def test_a_call_of_a_message_that_names_nothing_is_a_call_since_it_needs_an_answer() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}, {"id": "2", "function": None}]}
    for response in (message, {"choices": [{"message": message}]}):
        dialect, calls = read_response(response)
        assert (dialect, [call.id for call in calls]) == ("openai", ["1", "2"])


@pytest.mark.parametrize(
    "response",
    [
        [],
        {"choices": [{"message": {"role": "assistant", "content": "Done."}}]},
        {"choices": []},
        {"role": "assistant", "content": "Done.", "tool_calls": None},
        {"role": "assistant", "content": "Done."},
        {"output": [{"type": "message", "content": []}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        {"candidates": [{"content": {"parts": [{"text": "Done."}]}}]},
        {"candidates": [{"content": None, "finishReason": "SAFETY"}]},
        {"candidates": None, "prompt_feedback": {"block_reason": "SAFETY"}},
        {"promptFeedback": {"blockReason": "SAFETY"}},
    ],
)
def test_an_answer_without_calls_has_none(response: object) -> None:
    dialect, calls = read_response(response)
    assert calls == []
    assert messages(dialect, []) == []


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("fs__read", "not a model's response: str"),
        (7, "not a model's response: int"),
        ({}, "not a model's response: a dict of nothing"),
        ({"error": {"code": 429}, "id": "x"}, "not a model's response: a dict of error, id"),
        ([1, "a"], "not a model's tool calls: a list of int, str"),
    ],
)
def test_a_value_that_is_not_a_response_is_refused(value: object, message: str) -> None:
    hint = "give the provider's response, one of its messages, or a list of its tool calls"
    assert refused(ArgumentError, read_response, value) == (message, hint)


IMAGE = Image(PIXEL, "image/x-whatever")
SHOWN = ToolCallOutcome(MAPPING, "a chart", (IMAGE,))
FAILED = ToolCallOutcome(ToolCallRequest("c2", "fs__write", {}), "no room", is_error=True)


SENT: dict[Dialect, list[Any]] = {
    "openai": [
        {"role": "tool", "tool_call_id": "c1", "content": f"a chart\n{IMAGE}"},
        {"role": "tool", "tool_call_id": "c2", "content": "no room"},
    ],
    "openai_responses": [
        {"type": "function_call_output", "call_id": "c1", "output": [
            {"type": "input_text", "text": "a chart"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
        ]},
        {"type": "function_call_output", "call_id": "c2", "output": "no room"},
    ],
    "anthropic": [
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": [
                {"type": "text", "text": "a chart"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
            ]},
            {"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "no room"}],
             "is_error": True},
        ]},
    ],
    "gemini": [
        {"role": "user", "parts": [
            {"functionResponse": {"name": "fs__read", "response": {"output": "a chart"}, "id": "c1",
                                  "parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]}},
            {"functionResponse": {"name": "fs__write", "response": {"error": "no room"}, "id": "c2"}},
        ]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", SENT)
def test_results_images_and_errors_have_each_providers_format(dialect: Dialect) -> None:
    assert messages(dialect, [SHOWN, FAILED]) == SENT[dialect]


FAKE = Image("PHNjcmlwdD4=", "image/png")
LARGE = Image(PIXEL[:-4] + "A" * 5_000_000, "image/png")
MOVING = Image("R0lGODlhAQABAAAAACw=", "image/gif")


@pytest.mark.parametrize("dialect", SENT)
@pytest.mark.parametrize("image", [FAKE, LARGE])
def test_an_image_that_is_malformed_or_too_large_is_named_and_not_sent(dialect: Dialect, image: Image) -> None:
    (message,) = messages(dialect, [ToolCallOutcome(MAPPING, "so", (IMAGE, image))])
    text = str(message)
    assert image.base64 not in text
    assert f"so\\n{IMAGE}\\n{image}" in text if dialect == "openai" else f"so\\n{image}'" in text
    assert (PIXEL in text) is (dialect != "openai")


def test_gemini_takes_no_moving_pictures() -> None:
    assert MOVING.base64 in str(messages("anthropic", [ToolCallOutcome(MAPPING, "", (MOVING,))]))
    assert messages("gemini", [ToolCallOutcome(MAPPING, "", (MOVING,))])[0]["parts"] == [
        {"functionResponse": {"name": "fs__read", "response": {"output": str(MOVING)}, "id": "c1"}}
    ]


def test_spaces_round_a_text_stay() -> None:
    assert messages("openai", [ToolCallOutcome(MAPPING, "  indented\n")])[0]["content"] == "  indented\n"


@pytest.mark.parametrize("written", ["", None, "{}", '{"a": 1}', {"a": 1}])
def test_arguments_are_read_as_models_write_them(written: object) -> None:
    assert read_arguments(written) == ({"a": 1} if "a" in str(written) else {})


@pytest.mark.parametrize("written", ['{"a"', "[1]", '"a"', 7, '{"a": ' + "[" * 100_000])
def test_arguments_that_are_not_an_object_are_refused(written: object) -> None:
    with pytest.raises(ArgumentError, match="the arguments are not"):
        read_arguments(written)


def test_a_call_by_ollama_is_answered_by_the_tools_name() -> None:
    call = {"function": {"name": "fs__read", "arguments": {"path": "a"}}}
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    for response in (message, {"model": "m", "done": True, "message": message}):
        assert read_response(response) == ("ollama", [ToolCallRequest("", "fs__read", {"path": "a"})])
    outcome = ToolCallOutcome(ToolCallRequest("", "fs__read", {"path": "a"}), "text")
    assert messages("ollama", [outcome]) == [{"role": "tool", "tool_name": "fs__read", "content": "text"}]
    words = {"model": "m", "done": True, "message": {"role": "assistant", "content": "Hey."}}
    assert read_response(words) == ("ollama", [])


def test_bedrocks_responses_are_distinguished_from_anthropics() -> None:
    use = {"toolUse": {"toolUseId": "u", "name": "fs__read", "input": {"path": "a"}}}
    message = {"role": "assistant", "content": [{"text": "I look."}, use]}
    for response in ({"output": {"message": message}, "stopReason": "tool_use"}, message, [use]):
        assert read_response(response) == ("bedrock", [ToolCallRequest("u", "fs__read", {"path": "a"})])
    assert read_response({"output": {"message": {"role": "assistant", "content": [{"text": "x"}]}}}) == ("bedrock", [])

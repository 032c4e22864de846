"""Responses of models in each provider's format, and the answers to them."""

from typing import Any

import pytest

from ipymcp.errors import ArgumentError
from ipymcp.llm.answer import ToolCallOutcome, ToolCallRequest, read_arguments
from ipymcp.llm.providers import Dialect, messages, read_response
from ipymcp.results.content import Image

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
def test_calls_are_found_in_whatever_a_provider_answers(response: object, dialect: str, call: ToolCallRequest) -> None:
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
def test_a_message_may_be_put_together_of_a_librarys_objects(response: object, dialect: str) -> None:
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
def test_what_is_no_answer_is_refused(value: object, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read_response(value)
    assert (caught.value.message, caught.value.hint) == (
        message,
        "give the provider's response, one of its messages, or a list of its tool calls",
    )


IMAGE = Image(PIXEL, "image/x-whatever")
SHOWN = ToolCallOutcome(MAPPING, "a chart", (IMAGE,))
FAILED = ToolCallOutcome(ToolCallRequest("c2", "fs__write", {}), "no room", is_error=True)


def test_chat_completions_takes_a_message_a_call_and_images_by_name() -> None:
    assert messages("openai", [SHOWN, FAILED]) == [
        {"role": "tool", "tool_call_id": "c1", "content": f"a chart\n{IMAGE}"},
        {"role": "tool", "tool_call_id": "c2", "content": "no room"},
    ]


def test_responses_takes_images() -> None:
    shown = [
        {"type": "input_text", "text": "a chart"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
    ]
    assert messages("openai_responses", [SHOWN, FAILED]) == [
        {"type": "function_call_output", "call_id": "c1", "output": shown},
        {"type": "function_call_output", "call_id": "c2", "output": "no room"},
    ]


def test_anthropic_takes_all_results_in_one_message_and_is_told_what_failed() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    blocks = [{"type": "text", "text": "a chart"}, {"type": "image", "source": source}]
    failed = {
        "type": "tool_result",
        "tool_use_id": "c2",
        "content": [{"type": "text", "text": "no room"}],
        "is_error": True,
    }
    assert messages("anthropic", [SHOWN, FAILED]) == [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": blocks}, failed]}
    ]


def test_gemini_takes_all_results_in_one_message_by_name() -> None:
    shown = {"name": "fs__read", "response": {"output": "a chart"}, "id": "c1"}
    shown |= {"parts": [{"inlineData": {"mimeType": "image/png", "data": PIXEL}}]}
    failed = {"name": "fs__write", "response": {"error": "no room"}, "id": "c2"}
    assert messages("gemini", [SHOWN, FAILED]) == [
        {"role": "user", "parts": [{"functionResponse": shown}, {"functionResponse": failed}]}
    ]


FAKE = Image("PHNjcmlwdD4=", "image/png")
LARGE = Image(PIXEL[:-4] + "A" * 5_000_000, "image/png")
MOVING = Image("R0lGODlhAQABAAAAACw=", "image/gif")


@pytest.mark.parametrize("dialect", ["openai", "openai_responses", "anthropic", "gemini"])
@pytest.mark.parametrize("image", [FAKE, LARGE])
def test_what_is_no_picture_or_too_large_is_named_and_not_sent(dialect: Dialect, image: Image) -> None:
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


@pytest.mark.parametrize(
    ("given", "read"), [("", {}), (None, {}), ("{}", {}), ('{"a": 1}', {"a": 1}), ({"a": 1}, {"a": 1})]
)
def test_arguments_are_read_as_models_write_them(given: object, read: dict[str, object]) -> None:
    assert read_arguments(given) == read


@pytest.mark.parametrize("given", ['{"a"', "[1]", '"a"', 7, '{"a": ' + "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(given: object) -> None:
    with pytest.raises(ArgumentError, match="the arguments are not"):
        read_arguments(given)


def test_every_call_of_a_message_is_answered_even_if_it_names_nothing() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}, {"id": "2", "function": None}]}
    for response in (message, {"choices": [{"message": message}]}):
        dialect, calls = read_response(response)
        assert (dialect, [one.id for one in calls]) == ("openai", ["1", "2"])


def test_a_message_of_ollama_alone_is_answered_by_the_tools_name() -> None:
    call = {"function": {"name": "fs__read", "arguments": {"path": "a"}}}
    dialect, calls = read_response({"role": "assistant", "content": "", "tool_calls": [call]})
    assert (dialect, calls) == ("ollama", [ToolCallRequest("", "fs__read", {"path": "a"})])


def test_ollama_answers_with_one_message_and_is_answered_by_the_tools_name() -> None:
    call = {"function": {"name": "fs__read", "arguments": {"path": "a"}}}
    response = {"model": "m", "done": True, "message": {"role": "assistant", "content": "", "tool_calls": [call]}}
    dialect, (given,) = read_response(response)
    assert (dialect, given) == ("ollama", ToolCallRequest("", "fs__read", {"path": "a"}))
    assert messages(dialect, [ToolCallOutcome(given, "text")]) == [
        {"role": "tool", "tool_name": "fs__read", "content": "text"}
    ]
    assert read_response({"model": "m", "done": True, "message": {"role": "assistant", "content": "Hey."}}) == (
        "ollama",
        [],
    )


def test_bedrocks_responses_are_told_from_anthropics() -> None:
    use = {"toolUse": {"toolUseId": "u", "name": "fs__read", "input": {"path": "a"}}}
    message = {"role": "assistant", "content": [{"text": "I look."}, use]}
    for response in ({"output": {"message": message}, "stopReason": "tool_use"}, message, [use]):
        dialect, [given] = read_response(response)
        assert (dialect, given) == ("bedrock", ToolCallRequest("u", "fs__read", {"path": "a"}))
    assert read_response({"output": {"message": {"role": "assistant", "content": [{"text": "x"}]}}}) == ("bedrock", [])

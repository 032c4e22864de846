"""The cards of a model's calls."""

import asyncio
import base64
import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ipymcp.llm.answer import ModelCall
from ipymcp.llm.live_output import LiveOutput
from ipymcp.notebook.magics.ask import CellOutput
from ipymcp.results.tool_result import ToolResult

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(20)).decode()


def call(arguments: Any = None, **fields: Any) -> ModelCall:
    return ModelCall("demo", "slow", arguments or {}, **fields)


def result(*content: Any, **fields: Any) -> ToolResult:
    return ToolResult(json.dumps({"content": content, **fields}).encode(), server="demo", tool="slow")


STATES = {
    "running": (call(), "…", "demo.slow …"),
    "waiting": (call(asked_at="a"), "?", "demo.slow · waits for your answer"),
    "done": (call(is_done=True, seconds=0.04, decision="allowed once"), "✓", "demo.slow · allowed once"),
    "failed": (call(is_done=True, is_error=True, seconds=1.26), "✗", "demo.slow · failed · 1.3 s"),
    "failed with text": (
        call(is_done=True, is_error=True, text="no such\x07 bird\nin line 3"),
        "✗",
        "demo.slow · failed: no such␇ bird",
    ),
    "refused": (call(is_done=True, is_error=True, is_refused=True, seconds=3), "⊘", "demo.slow · refused"),
    "cancelled": (call(is_done=True, is_error=True, is_cancelled=True, seconds=3), "■", "demo.slow · cancelled"),
}


@pytest.mark.parametrize("state", STATES)
def test_each_state_has_its_own_mark_and_words(state: str) -> None:
    shown, mark, summary = STATES[state]
    assert (shown.state, shown.summary) == (state.split()[0], summary)
    line = re.search(r"<summary>(.*?)</summary>", shown.html())
    assert line is not None
    text = re.sub(r"<[^>]+>", "", line[1])
    assert text == f"{mark} {summary.removesuffix(' …')}"
    assert "<b>demo.slow</b>" in line[1]


@pytest.mark.parametrize("decision", ["", "not answered"])
def test_a_call_cancelled_during_a_question_is_shown_as_cancelled(decision: str) -> None:
    cancelled = call(is_done=True, is_cancelled=True, is_refused=bool(decision), decision=decision)
    assert cancelled.summary == "demo.slow · cancelled"


class ResultWithApp:
    def __init__(self) -> None:
        self.app = self
        self.shown = 0

    def show(self) -> None:
        self.shown += 1


def test_a_call_that_ends_before_its_first_event_is_shown_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    value = ResultWithApp()
    ended = call(is_done=True, result=value, card="1")
    output = CellOutput(None, as_markdown=False, can_show_apps=lambda: True)
    for _event in ("began", "ended"):
        output.show_call(ended)
    assert value.shown == 1
    assert capsys.readouterr().out == "demo.slow\n"


def test_arguments_are_names_and_values() -> None:
    html = call({"<b>": "one\n  two <i>", "n": 3, "list": [1, 2]}, is_done=True).html()
    assert re.findall(r"<th[^>]*>(.*?)</th><td[^>]*>(.*?)</td>", html, re.DOTALL) == [
        ("&lt;b&gt;", "one\n  two &lt;i&gt;"),
        ("n", "3"),
        ("list", "[1, 2]"),
    ]
    assert "<th" in call('{"a": 1}').html(), "a model wrote them as text"
    assert "not &lt;json&gt;</pre>" in call("not <json>").html()


def test_long_arguments_are_whole_while_the_user_is_asked() -> None:
    long = {"text": "x" * 9_000}
    assert "x" * 9_000 in call(long, asked_at="a").html()
    assert "(7,000 characters more)" in call(long, is_done=True).html()


def test_images_of_a_result_are_shown() -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    for content in ([image], [image, {"type": "text", "text": "a <b>chart"}]):
        html = call(is_done=True, result=result(*content)).html()
        assert html.startswith("<details open ") and f'<img src="data:image/png;base64,{PNG}"' in html
        assert ("a &lt;b&gt;chart" in html) == (len(content) == 2)


def test_a_result_is_the_table_of_a_cell_and_text_is_the_models() -> None:
    html = call(is_done=True, result=result(structuredContent=[{"a": 1.23456789}])).html()
    assert ">1.234568</td>" in html
    marked = call(is_done=True, text="# a <script>", result=result({"type": "text", "text": "# a <script>"})).html()
    assert "# a &lt;script&gt;</pre>" in marked


class Listener(SimpleNamespace):
    """A listener that notes what it is told, and the host and the caller of its answer."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.questions = SimpleNamespace(caller=lambda: self)

    def post(self, show: Callable[[], None]) -> None:
        show()

    def show_waiting(self, seconds: int | None) -> None:
        if self.seen[-1:] != [seconds]:
            self.seen.append(seconds)

    def show_text(self, text: str) -> None:
        self.seen.append(text)

    def show_call(self, call: ModelCall) -> None:
        self.seen.append(call.state)


def test_the_model_is_thinking_from_the_request_on_until_it_answers_or_calls_and_again_after_its_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ipymcp.llm.live_output._TICK", 0.001)
    listener = Listener()

    async def answer() -> None:
        output = LiveOutput(listener, listener)  # type: ignore[arg-type]
        output.begin_waiting()
        await asyncio.sleep(0.02)
        first, second = call(card="1"), call(card="2")
        output.show_call(first)
        output.show_call(second)
        for each in (first, second):
            each.is_done = True
            output.show_call(each)
        await asyncio.sleep(0.02)
        output.add_text("Done.")
        output.flush()
        output.end_waiting()

    asyncio.run(answer())
    assert listener.seen == [0, None, "running", "running", "done", "done", 0, None, "Done."]

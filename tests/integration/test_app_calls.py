"""The messages to an app about a model's call: arguments as they are written, all of them, then the end."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import apps
from tests.asking import ask_line, shown
from tests.kernels import Cell, Kernel
from tests.panels import SocketView, View, relay_file

APP = "application/vnd.ipymcp.app+json"
TEXT = "a text that a model needs a while to write"
NOT_MADE = "the call of this app was not made, so the app has no access to the server"


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """The folder of a server with an app `slider`."""
    apps.write(tmp_path / "pages", "slider", apps.page(""))
    return tmp_path / "pages"


@pytest.fixture
def kernel(asking: Kernel, pages: Path) -> Kernel:
    """A kernel with that server, whose tools a model has to ask about."""
    assert asking.run(f"{apps.load(pages)}\n%mcp policy ask apps.*").error is None
    return asking


@pytest.fixture
def view(kernel: Kernel) -> Iterator[SocketView]:
    """A page that shows the notebook, also while a cell runs."""
    with SocketView(relay_file(kernel)["socket"]) as view:
        view.hello()
        yield view


def begin(kernel: Kernel, text: Any, model: str = "typing") -> Cell:
    """Let a model call the tool with the app."""
    call = f"apps__slider({json.dumps({'text': text})})"
    return kernel.start(ask_line(kernel, call, model), answers=[])


def numbers(cell: Cell) -> list[int]:
    """The numbers of the apps that a cell displays."""
    return [one[APP]["app"] for one in cell.outcome.displays if APP in one]


def opened(cell: Cell, view: View) -> dict[str, Any]:
    """The app that a cell displays, with its number, once it is displayed."""
    cell.wait_for(lambda _: bool(numbers(cell)))
    (number,) = numbers(cell)
    return {"number": number, **view.ask("app_open", app=number, page="1")}


def followed(view: View, app: dict[str, Any], until: str = "") -> list[dict[str, Any]]:
    """The states of the call that the page receives, to its end or until a member is there."""
    states = [app]
    while states[-1]["result"] is None and states[-1]["cancelled"] is None and (not until or states[-1][until] is None):
        states.append(view.ask("app_call", app=app["number"], page="1", version=states[-1]["version"]))
    return states


def test_an_app_gets_the_arguments_while_they_are_written_then_all_then_the_result(
    kernel: Kernel, view: SocketView
) -> None:
    kernel.run("%mcp policy allow apps.*")
    cell = begin(kernel, TEXT)
    app = opened(cell, view)
    assert "doctype" in app["html"] and (app["input"], app["result"]) == (None, None)
    began = time.monotonic()
    states = followed(view, app)
    seconds = time.monotonic() - began

    partial = [state["partial"]["text"] for state in states if state["partial"] and "text" in state["partial"]]
    assert len({*partial}) > 2 and partial == sorted(partial, key=len)
    assert all(TEXT.startswith(text) for text in partial)
    assert len(states) < 10 * seconds + 5, "at most ten a second"
    complete = [state for state in states if state["partial"] is None and state is not app]
    assert (complete[-1]["input"], complete[-1]["result"] is not None) == ({"text": TEXT}, True)
    assert all(state["input"] == {"text": TEXT} for state in complete)
    assert states[-1]["result"]["content"][0]["text"] == f"the text of slider: {TEXT}"
    outcome = cell.wait()
    assert "They answered: " in shown(outcome)[-2] and TEXT in shown(outcome)[-2]
    assert len(numbers(cell)) == 1, "the result has the same app"
    cards_and_apps = [one for one in outcome.displays if APP in one or "<details" in one.get("text/html", "")]
    assert APP in cards_and_apps[1], "below the card of the call"
    assert "doctype" not in json.dumps(outcome.displays)


def test_an_app_has_no_access_until_its_call_is_allowed_and_none_if_it_is_denied(
    kernel: Kernel, view: SocketView
) -> None:
    cell = begin(kernel, TEXT)
    app = opened(cell, view)
    for number, method, params in [
        (901, "resources/read", {"uri": f"ui://apps/slider?{TEXT}"}),
        (902, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ]:
        command = {"do": "app_request", "app": app["number"], "page": "1", "method": method, "params": params}
        view.send({"kind": "intent", "id": number, **command})
    view.until(lambda state: bool(state["questions"]))
    (question,) = view.state["questions"]
    while (app := {**app, **view.ask("app_open", app=app["number"], page="1")})["partial"] != {"text": TEXT}:
        pass
    assert app["input"] is None, "the user may change them"
    assert not any(one.get("id") in (901, 902) for one in view.received)

    view.ask("answer", question=question, answer="no")
    states = followed(view, app)
    assert (states[-1]["input"], states[-1]["result"]) == ({"text": TEXT}, None)
    assert states[-1]["cancelled"] == "the call was refused"
    for number in (901, 902):
        reply = view.wait(lambda one, number=number: one["kind"] == "reply" and one["id"] == number)
        assert reply["value"]["error"] == NOT_MADE
    later = view.ask("app_request", app=app["number"], page="1", method="resources/list", params={})
    assert later["error"] == NOT_MADE
    cell.wait()
    assert len(numbers(cell)) == 1
    assert kernel.run("print([one['tool'] for one in mcp.history()])").stdout == "['apps.slider']\n"


def test_an_app_receives_the_changed_arguments_and_then_has_access_to_its_server(
    kernel: Kernel, view: SocketView
) -> None:
    cell = begin(kernel, TEXT)
    app = opened(cell, view)
    view.until(lambda state: bool(state["questions"]))
    ((question, row),) = view.state["questions"].items()
    view.ask("answer", question=question, answer="once", content={"text": "mine"})
    states = followed(view, app)
    assert states[-1]["input"] == {"text": "mine"}, row
    assert states[-1]["result"]["content"][0]["text"] == "the text of slider: mine"
    assert states[-1]["cancelled"] is None
    reply = view.ask("app_request", app=app["number"], page="1", method="resources/list", params={})
    assert reply["result"]["resources"]
    cell.wait()


def test_an_interrupt_while_the_arguments_are_written_cancels_the_app(kernel: Kernel, view: SocketView) -> None:
    cell = begin(kernel, TEXT * 5)
    app = opened(cell, view)
    followed(view, app, until="partial")
    kernel.interrupt()
    states = followed(view, app)
    assert (states[-1]["cancelled"], states[-1]["input"]) == ("the call was cancelled", None)
    assert cell.wait().error is not None
    assert [line for line in shown(cell.outcome) if line.startswith("apps.slider ·")] == ["apps.slider · cancelled"]
    request = view.ask("app_request", app=app["number"], page="1", method="tools/list", params={})
    assert request["error"] == NOT_MADE


def test_an_interrupt_while_the_tool_runs_cancels_the_app(kernel: Kernel, view: SocketView) -> None:
    kernel.run("%mcp policy allow apps.*")
    cell = begin(kernel, "wait")
    app = opened(cell, view)
    assert followed(view, app, until="input")[-1]["input"] == {"text": "wait"}
    kernel.interrupt()
    assert followed(view, app)[-1]["cancelled"] == "the call was cancelled"
    cell.wait()


def test_an_error_of_the_tool_is_a_result_and_a_call_that_cannot_be_made_is_cancelled(
    kernel: Kernel, view: SocketView
) -> None:
    kernel.run("%mcp policy allow apps.*")
    cell = begin(kernel, "fail")
    states = followed(view, opened(cell, view))
    assert states[-1]["result"]["isError"] and states[-1]["cancelled"] is None
    cell.wait()
    cell = begin(kernel, 12345678901234567890)
    states = followed(view, opened(cell, view))
    assert (states[-1]["result"], states[-1]["input"]) == (None, {"text": 12345678901234567890})
    assert states[-1]["cancelled"].startswith("Error: ")
    cell.wait()


def test_a_stream_that_breaks_off_cancels_the_app(kernel: Kernel, view: SocketView) -> None:
    cell = begin(kernel, TEXT, "half")
    assert cell.wait().error is not None
    assert "apps.slider · cancelled" in shown(cell.outcome)


@pytest.mark.parametrize("case", ["mode ask", "domains", "granted domains"])
def test_an_app_with_a_question_or_with_network_waits_for_the_result(
    kernel: Kernel, view: SocketView, pages: Path, case: str
) -> None:
    kernel.run("%mcp policy allow apps.*")
    if case == "mode ask":
        kernel.run("%config IPyMCP.apps = 'ask'")
    else:
        apps.write(pages, "slider", apps.page(""), {"csp": {"connectDomains": ["https://data.example"]}})
    if case == "granted domains":
        cell = begin(kernel, "first", "tools")
        app = opened(cell, view)
        view.ask("app_agree", app=app["number"], hash=app["hash"], grants=True)
        cell.wait()
    cell = begin(kernel, TEXT)
    cell.wait_for(lambda outcome: any(line.startswith("apps.slider") for line in shown(outcome)))
    assert not numbers(cell)
    cell.wait()
    app = opened(cell, view)
    if case == "granted domains":
        assert app["connect"] == ["https://data.example"] and app["result"]["content"]
    else:
        assert (app["asks"], app["html"]) == ("first", None)


DRAFT = """
import asyncio, json, time
from ipymcp.llm.answer import ToolCallRequest
from ipymcp.llm.live_output import CallDraft

class Recorder:
    def __init__(self): self.written, self.parsed = [], 0.0
    def write(self, arguments): self.written.append(arguments)

async def draft(text, size, pause=0.0):
    app = Recorder()
    draft = CallDraft(ToolCallRequest("1", "t", text[:size]), None, app, lambda one: one)
    began, used = time.monotonic(), time.process_time()
    for place in range(size, len(text), size):
        draft.add(text[place:place + size])
        await asyncio.sleep(pause)
    await asyncio.sleep(0.3 if len(text) < 100_000 else 1.5)
    return app.written, time.monotonic() - began, time.process_time() - used
"""


def test_arguments_are_parsed_as_far_as_they_go_at_most_ten_times_a_second(asking: Kernel) -> None:
    kernel = asking
    kernel.run(DRAFT)
    text = json.dumps({"a": [1, {"b": 'é\n"quoted"'}], "c": None, "d": "end"})
    kernel.run(f"written, seconds, _ = await draft({text!r}, 1, 0.02)")
    written, seconds = kernel.value("[written, seconds]")
    assert written[-1] == json.loads(text)
    assert 3 < len(written) < 10 * seconds + 2
    assert all(isinstance(one, dict) for one in written)
    for wrong in ('["no", "object"]', "no JSON", '{"a": NaN, "b": 1}', '{"a": "\\ud800'):
        kernel.run(f"written, *_ = await draft({wrong!r}, 3)")
        assert kernel.value("written") in ([], [{"a": ""}]), wrong


def test_long_arguments_are_parsed_rarely_and_too_long_ones_not_at_all(asking: Kernel) -> None:
    kernel = asking
    kernel.run(DRAFT)
    long = "json.dumps({'code': 'x' * 900_000})"
    kernel.run(f"written, seconds, used = await draft({long}, 1_000)")
    count, seconds, used, last = kernel.value("[len(written), seconds, used, len(written[-1]['code'])]")
    assert last == 900_000 and count < seconds * 10 and used < 2
    kernel.run("written, *_ = await draft(json.dumps({'code': 'x' * 1_100_000}), 1_100_000)")
    assert kernel.value("written") == []

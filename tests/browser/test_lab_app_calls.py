"""Apps of a model's calls: shown while the model still writes the call, below what you are asked."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import FrameLocator, Page, expect

from tests import apps
from tests.browser.conftest import Answering
from tests.browser.notebooks import Notebook, app_in
from tests.browser.places import LAB, NOTEBOOK_7, opened
from tests.browser.test_lab_answers import asked, saved
from tests.browser.test_lab_app_servers import command
from tests.jupyter_servers import JupyterServer

TEXT = "a text that a model needs a while to write, " * 6
WHOLE = f'{{"arguments":{json.dumps({"text": TEXT}, separators=(",", ":"))}}}'
RECORDS = """
  globalThis.heard = ({ method, params }) => {
    const name = method.split("/").at(-1);
    if (name.startsWith("tool-")) write(name, params);
  };
  await new Promise((resolve) => setTimeout(resolve, DELAY));
  await begin();
"""
PARTIAL, INPUT, RESULT, CANCELLED = "tool-input-partial", "tool-input", "tool-result", "tool-cancelled"


def asking(open_answering: Answering, work: Path, policy: str, delay: int = 0, app: str = LAB) -> Notebook:
    """A notebook whose second cell asks a model that calls a tool with an app; the app writes what it receives."""
    apps.write(work / "pages", "chart", apps.page(RECORDS.replace("DELAY", str(delay)), "<i>of the server</i>"))
    notebook = open_answering(f"-m openai-chat:typing apps__chart({json.dumps({'text': TEXT})})", app)
    notebook.write(0, f"{notebook.source(0)}\n{apps.load(work / 'pages')}\n%mcp policy {policy} apps.*;")
    notebook.run(0)
    return notebook


def received(app: FrameLocator) -> list[str]:
    """The names of what the app has received, in order."""
    return app.locator("p").evaluate_all("lines => lines.map(line => line.id)")


@pytest.mark.parametrize("place", [LAB, NOTEBOOK_7])
def test_an_app_receives_the_arguments_as_they_are_written_then_all_then_the_result(
    open_answering: Answering, work: Path, place: str
) -> None:
    notebook = asking(open_answering, work, "allow", app=place)
    notebook.begin(1)
    app = app_in(notebook, 1)
    expect(app.locator(f"#{PARTIAL}").nth(1)).to_be_visible()
    assert INPUT not in received(app), "the model still writes"
    notebook.until_idle()
    expect(app.locator(f"#{RESULT}")).to_contain_text(f"the text of chart: {TEXT}")
    expect(app.locator(f"#{INPUT}")).to_have_text(WHOLE)
    names = received(app)
    assert names == [*[PARTIAL] * (len(names) - 2), INPUT, RESULT] and len(names) > 4
    texts = [json.loads(each)["arguments"].get("text", "") for each in app.locator(f"#{PARTIAL}").all_inner_texts()]
    assert texts == sorted(texts, key=len) and all(TEXT.startswith(each) for each in texts)
    expect(notebook.output(1).locator(".ipymcp-app-frame")).to_have_count(1)
    expect(notebook.output(1)).to_contain_text("They answered: ")
    notebook.save()
    assert "of the server" not in saved(work) and PARTIAL not in saved(work)


def test_the_app_of_a_refused_call_receives_its_end_and_is_below_the_question(
    open_answering: Answering, page: Page, work: Path, jupyter: JupyterServer
) -> None:
    notebook = asking(open_answering, work, "ask")
    notebook.begin(1)
    question = asked(notebook, name="The model wants to run apps.chart")
    app = app_in(notebook, 1)
    expect(app.locator(f"#{PARTIAL}").last).to_have_text(WHOLE)
    assert INPUT not in received(app)
    frame = notebook.output(1).locator(".ipymcp-app-frame")
    above, below = question.bounding_box(), frame.bounding_box()
    assert above is not None and below is not None
    assert above["y"] + above["height"] <= below["y"], "an app that changes its height must not move the buttons"
    question.get_by_role("button", name="Deny", exact=True).press("Enter")
    notebook.until_idle()
    expect(app.locator(f"#{CANCELLED}")).to_have_text('{"reason":"the call was refused"}')
    expect(app.locator(f"#{INPUT}")).to_have_text(WHOLE)
    assert received(app)[-2:] == [INPUT, CANCELLED] and received(app)[0] == PARTIAL
    notebook.save()
    opened(page, jupyter, notebook.path)
    expect(app.locator(f"#{CANCELLED}")).to_have_text('{"reason":"the call was refused"}')
    assert received(app) == [INPUT, CANCELLED]


def test_an_app_that_begins_late_receives_what_is_left_in_order(open_answering: Answering, work: Path) -> None:
    notebook = asking(open_answering, work, "allow", delay=10_000)
    notebook.run(1)
    app = app_in(notebook, 1)
    expect(app.locator(f"#{RESULT}")).to_contain_text(TEXT)
    assert received(app) == [INPUT, RESULT]


def test_an_interrupted_answer_ends_its_app(open_answering: Answering, work: Path) -> None:
    notebook = asking(open_answering, work, "allow")
    notebook.begin(1)
    app = app_in(notebook, 1)
    expect(app.locator(f"#{PARTIAL}").first).to_be_visible()
    notebook.interrupt()
    expect(app.locator(f"#{CANCELLED}")).to_have_text('{"reason":"the call was cancelled"}')
    assert set(received(app)) == {PARTIAL, CANCELLED}


def test_an_example_server_draws_the_code_that_a_model_writes(open_answering: Answering) -> None:
    code = "const scene = new THREE.Scene(); // " + "and so on, " * 20
    notebook = open_answering(f"-m openai-chat:typing threejs__show_threejs_scene({json.dumps({'code': code})})")
    setup = f"{notebook.source(0)}\n%mcp load threejs -- {command('threejs')};\n%mcp policy allow threejs.*;"
    notebook.write(0, setup)
    notebook.run(0)
    notebook.begin(1)
    app = app_in(notebook, 1)
    expect(app.locator("body")).to_contain_text("const scene = new THREE.Scene(); // and so on")
    expect(notebook.output(1).locator("summary")).to_contain_text("… threejs.show_threejs_scene")
    notebook.interrupt()

"""The oldest JupyterLab that the extension is for, with an older kernel."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.places import PANEL, in_cell, lab, sidebar
from tests.browser.tour import FORM, MISBEHAVING
from tests.jupyter_servers import JupyterServer

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    with lab(tmp_path_factory.mktemp("oldest"), "lab-4.0") as server:
        yield server


@pytest.mark.nightly
def test_a_tool_runs_and_a_question_is_answered_in_jupyterlab_4_0(open_notebook: Open, page: Page) -> None:
    notebook = open_notebook(f"%mcp load asks -- {MISBEHAVING} --era legacy;", PANEL, f"{FORM}\nasked.data['answer']")
    assert page.evaluate("jupyterapp.version").startswith("4.0.")
    panel = sidebar(page)
    panel.press("Load ipymcp")
    panel.press("Load the demo server")
    panel.expect_state("demo", "ready")
    tools = panel.find_tool("echo", "demo.echo")
    tools.get_by_label("text").fill("said in 4.0")
    panel.press("Run")
    expect(panel.outcome).to_contain_text("said in 4.0")
    expect(panel.calls().first).to_contain_text("demo.echo")

    notebook.run(0)
    notebook.run(1)
    in_cell(notebook, 1).expect_state("asks", "ready")
    notebook.begin(2)
    question = panel.root.get_by_role("alertdialog")
    question.get_by_label("Island").select_option("Dream")
    question.get_by_label("Birds").fill("12")
    question.get_by_role("button", name="Send").click()
    notebook.until_idle()
    expect(notebook.output(2)).to_contain_text("Dream")

"""JupyterLab without our extension in the page: what cells show is the kernel's widgets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from tests import apps
from tests.browser.conftest import Answering, Open, ShowApp
from tests.browser.notebooks import app_in
from tests.browser.panels import Panel
from tests.browser.places import PANEL, SharedLab, in_cell
from tests.browser.test_lab_amounts import PANEL_JS, expect_ten_cards
from tests.browser.test_lab_answers import ECHO, asked, saved
from tests.browser.test_lab_app_calls import INPUT, RESULT, TEXT, asking, received
from tests.browser.test_lab_calls import DEMO
from tests.browser.test_lab_kernels import GONE, kill
from tests.jupyter_servers import JupyterServer


@pytest.fixture(scope="module")
def shared_lab(context: BrowserContext, jupyter: JupyterServer) -> Iterator[SharedLab]:
    shared = SharedLab(context, jupyter, with_extension=False)
    yield shared
    shared.close()


def test_the_form_below_the_cards_answers_while_the_cell_blocks(open_answering: Answering, work: Path) -> None:
    notebook = open_answering(ECHO)
    notebook.run(0)
    notebook.begin(1)
    question = asked(notebook)
    expect(notebook.output(1).locator("summary")).to_contain_text("? demo.echo · waits for your answer")
    question.get_by_role("button", name="Allow once").click()
    notebook.until_idle()
    expect(notebook.output(1).locator("summary")).to_contain_text("✓ demo.echo · allowed once")
    expect(notebook.output(1).get_by_role("alertdialog")).to_have_count(0)
    notebook.save()
    assert "widget-view" not in saved(work)


def test_an_app_is_a_widget(show_app: ShowApp) -> None:
    script = """
      await begin();
      const { result } = await request("ui/update-model-context", { content: [{ type: "text", text: "hi" }] });
      write("done", result);
    """
    notebook = show_app("chart", apps.page(script), "r.app.context", call="r = mcp.apps.chart()\nr")
    expect(app_in(notebook, 1).locator("#done")).to_have_text("{}")
    expect(notebook.output(1)).to_contain_text("the text of chart")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("'hi'")


def test_an_app_that_receives_nothing_while_the_cell_runs_shows_the_whole_call_after_it(
    open_answering: Answering, work: Path
) -> None:
    notebook = asking(open_answering, work, "allow")
    notebook.run(1)
    app = app_in(notebook, 1)
    expect(app.locator(f"#{RESULT}")).to_contain_text(TEXT)
    assert received(app)[-2:] == [INPUT, RESULT]


def test_a_panel_says_that_its_kernel_is_gone(open_notebook: Open, jupyter: JupyterServer) -> None:
    notebook = open_notebook(DEMO, PANEL)

    def shown() -> Panel:
        notebook.run(0)
        notebook.run(1)
        panel = in_cell(notebook, 1)
        panel.expect_state("demo", "ready")
        return panel

    panel = shown()
    notebook.restart()
    expect(panel.root.locator(".mcp-banner")).to_have_text(GONE)
    panel = shown()
    kill(notebook, jupyter)
    expect(panel.root.locator(".mcp-banner")).to_have_text(GONE)
    panel = shown()
    jupyter.http.delete(f"api/kernels/{notebook.kernel_id()}").raise_for_status()
    expect(panel.root.locator(".mcp-banner")).to_have_text(GONE)


def test_ten_cards_cost_the_panel_once_and_the_notebook_keeps_none_of_it(
    open_notebook: Open, clean_lab: SharedLab, jupyter: JupyterServer
) -> None:
    clean_lab.close()  # the page of the other tests has the panel's code
    expect_ten_cards(open_notebook, clean_lab.page, jupyter, PANEL_JS.stat().st_size)

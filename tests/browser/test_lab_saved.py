"""Notebooks that have shown panels, opened again: with their kernel, without it, trusted or not."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.notebooks import Notebook
from tests.browser.places import PANEL, in_cell, opened
from tests.browser.test_lab_calls import DEMO
from tests.browser.test_lab_kernels import PAST
from tests.jupyter_servers import JupyterServer

CARD = 'mcp.servers["demo"]'


@pytest.fixture
def saved(open_notebook: Open, page: Page, jupyter: JupyterServer) -> Path:
    """The file of a notebook that has shown a panel and a card."""
    notebook = open_notebook(DEMO, PANEL, CARD)
    for index in range(3):
        notebook.run(index)
    for index in (1, 2):
        in_cell(notebook, index).expect_state("demo", "ready")
    notebook.save()
    return jupyter.folder / notebook.path


def again(page: Page, jupyter: JupyterServer, file: Path) -> Notebook:
    return opened(page, jupyter, f"{file.parent.name}/{file.name}")


def test_opened_again_with_its_kernel_a_panel_is_live(saved: Path, page: Page, jupyter: JupyterServer) -> None:
    notebook = again(page, jupyter, saved)
    for index in (1, 2):
        in_cell(notebook, index).expect_state("demo", "ready")
    in_cell(notebook, 2).press("Stop demo")
    in_cell(notebook, 1).expect_state("demo", "stopped")


@pytest.mark.parametrize("trusted", [True, False])
def test_opened_again_without_its_kernel_a_panel_is_a_table(
    trusted: bool, saved: Path, page: Page, jupyter: JupyterServer
) -> None:
    for session_id in jupyter.session_ids():
        jupyter.end_session(session_id)
    file = saved
    if not trusted:
        document = json.loads(saved.read_text())
        document["cells"][1]["outputs"][0]["data"]["text/html"] += "<script>window.pwned = 1</script>"
        file = saved.with_name("foreign.ipynb")
        file.write_text(json.dumps(document))
    notebook = again(page, jupyter, file)
    for index in (1, 2):
        output = notebook.output(index)
        expect(output).to_contain_text(f"{PAST} For a live panel, run %load_ext ipymcp, then run this cell again.")
        expect(output).to_contain_text("demo")
        expect(output.locator("table, dl").first).to_be_visible()
        expect(output.locator(".ipymcp-cell")).to_have_count(0)
    assert page.evaluate("window.pwned") is None
    assert notebook.is_trusted() is trusted

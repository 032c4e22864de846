"""JupyterLab with kernels that are several, restarted, killed or taken away."""

import json
import os
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.notebooks import Notebook, write_notebook
from tests.browser.panels import Panel
from tests.browser.places import LOAD, PANEL, in_cell, sidebar
from tests.browser.test_lab_calls import DEMO, MISBEHAVING
from tests.jupyter_servers import JupyterServer

PAST = "This is a snapshot from when the cell ran."
LOAD_AGAIN = "For a live panel, run %load_ext ipymcp, then run this cell again."
GONE = "The kernel is gone. Run the cell again for a new panel."


def test_two_notebooks_have_two_panels_and_nothing_of_one_is_in_the_other(
    open_notebook: Open, page: Page, work: Path
) -> None:
    write_notebook(work / "other.ipynb", [f"{LOAD}\n%mcp load other -- {MISBEHAVING};", ""])
    one = open_notebook(DEMO, "mcp.demo.slow(seconds=60)")
    panel = sidebar(page)
    one.run(0)
    panel.expect_state("demo", "ready")
    one.begin(1)
    expect(panel.root.get_by_role("tab", name="Activity")).to_contain_text("1 running")

    other = one.open_beside(f"{work.name}/other.ipynb")
    expect(panel.root.get_by_role("heading", name="ipymcp is not loaded in this notebook")).to_be_visible()
    other.run(0)
    panel.expect_state("other", "ready")
    expect(panel.server("demo")).to_have_count(0)
    expect(panel.root.get_by_role("tab", name="Activity")).to_have_text("Activity")
    panel.press("Stop other")
    panel.expect_state("other", "stopped")

    one.activate()
    panel.expect_state("demo", "ready")
    expect(panel.server("other")).to_have_count(0)
    panel.show("Activity")
    panel.press("Cancel demo.slow")
    one.until_idle()
    panel.show("Servers")
    panel.press("Stop demo")
    panel.expect_state("demo", "stopped")

    other.activate()
    panel.expect_state("other", "stopped")
    panel.press("Start other")
    panel.expect_state("other", "ready")
    one.activate()
    panel.expect_state("demo", "stopped")


@pytest.fixture
def loaded(open_notebook: Open, page: Page) -> tuple[Notebook, Panel, Panel]:
    """A notebook, the panel in its second cell, and the sidebar."""
    notebook = open_notebook(DEMO, PANEL, "")
    side = sidebar(page)
    notebook.run(0)
    notebook.run(1)
    cell = in_cell(notebook, 1)
    for panel in (cell, side):
        panel.expect_state("demo", "ready")
    return notebook, cell, side


def test_a_restart_clears_the_sidebar_and_leaves_a_table_and_what_is_loaded_then_is_shown(
    loaded: tuple[Notebook, Panel, Panel],
) -> None:
    notebook, cell, side = loaded
    bar = notebook.page.locator("#jp-main-statusbar")
    expect(bar).to_contain_text("MCP 1/1")
    notebook.restart()
    expect(side.root.get_by_role("heading", name="ipymcp is not loaded in this notebook")).to_be_visible()
    expect(side.server("demo")).to_have_count(0)
    expect(bar).not_to_contain_text("MCP")
    expect(cell.root).to_have_count(0)
    expect(notebook.output(1)).to_contain_text(f"{PAST} {LOAD_AGAIN}")
    expect(notebook.output(1).get_by_role("cell", name="demo")).to_be_visible()

    notebook.run(0)
    side.expect_state("demo", "ready")
    expect(notebook.output(1)).to_contain_text(f"{PAST} The kernel has changed")
    side.press("Stop demo")
    side.expect_state("demo", "stopped")
    expect(bar).to_contain_text("MCP 0/1")
    notebook.run(1)
    in_cell(notebook, 1).expect_state("demo", "stopped")
    notebook.shut_down()
    expect(side.root.get_by_role("heading")).to_have_text("This notebook has no kernel")


def test_a_killed_kernel_has_a_successor_and_one_that_is_shut_down_leaves_a_sidebar_that_says_so(
    loaded: tuple[Notebook, Panel, Panel], jupyter: JupyterServer
) -> None:
    notebook, cell, side = loaded
    kill(notebook, jupyter)
    expect(side.root.get_by_role("heading", name="ipymcp is not loaded in this notebook")).to_be_visible()
    expect(cell.root).to_have_count(0)
    expect(notebook.output(1)).to_contain_text(PAST)

    side.press("Restore")
    side.expect_state("demo", "ready")
    notebook.run(1)
    in_cell(notebook, 1).expect_state("demo", "ready")
    jupyter.http.delete(f"api/kernels/{notebook.kernel_id()}").raise_for_status()
    expect(side.root.get_by_role("heading")).to_have_text("This notebook has no kernel")
    expect(cell.root).to_have_count(0)
    expect(notebook.output(1)).to_contain_text(PAST)


def kill(notebook: Notebook, jupyter: JupyterServer) -> None:
    """Kill the kernel; the Jupyter server starts another."""
    announced = json.loads((jupyter.runtime / f"ipymcp-kernel-{notebook.kernel_id()}.json").read_text())
    os.kill(announced["pid"], signal.SIGKILL)
    notebook.page.get_by_role("dialog").get_by_role("button", name="Ok").click()  # Lab's own word of it

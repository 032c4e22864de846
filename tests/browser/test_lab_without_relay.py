"""JupyterLab whose server's extension is off: the sidebar reaches the kernel over a comm, and says what that means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.places import sidebar
from tests.browser.test_lab_calls import DEMO
from tests.environments import environment
from tests.jupyter_servers import JupyterServer, started

BUSY = "a cell runs, and this Jupyter server has no relay to the kernel: answers may wait for its end"


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    settings = {"ServerApp": {"jpserver_extensions": {"ipymcp": False}}, "LabApp": {"expose_app_in_browser": True}}
    with started(tmp_path_factory.mktemp("jupyter"), settings, lab=environment("browser").python) as server:
        yield server


def test_the_sidebar_works_over_a_comm_and_says_that_answers_may_wait_while_a_cell_runs(
    jupyter: JupyterServer, open_notebook: Open, page: Page
) -> None:
    assert jupyter.http.get("ipymcp/sessions").status_code == 404
    notebook = open_notebook(DEMO, "mcp.demo.slow(seconds=3)")
    panel = sidebar(page)
    notebook.run(0)
    panel.expect_state("demo", "ready")
    notebook.begin(1)
    expect(panel.root.get_by_text(BUSY)).to_be_visible()
    notebook.until_idle()
    expect(panel.root.get_by_text(BUSY)).to_be_hidden()
    panel.press("Stop demo")
    panel.expect_state("demo", "stopped")

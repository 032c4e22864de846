"""JupyterLab whose server's extension is off: the sidebar reaches the kernel over a comm and the control channel."""

from collections.abc import Iterator

import pytest

from tests.browser.conftest import WithSidebar
from tests.browser.test_lab_calls import DEMO
from tests.environments import environment
from tests.jupyter_servers import JupyterServer, started


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    settings = {"ServerApp": {"jpserver_extensions": {"ipymcp": False}}, "LabApp": {"expose_app_in_browser": True}}
    with started(tmp_path_factory.mktemp("jupyter"), settings, lab=environment("browser").python) as server:
        yield server


def test_without_the_relay_a_sidebar_sees_a_call_that_blocks_the_kernel_and_cancels_it(
    jupyter: JupyterServer, open_with_sidebar: WithSidebar
) -> None:
    assert jupyter.http.get("ipymcp/oauth/callback").status_code == 404
    notebook, panel = open_with_sidebar(DEMO, "mcp.demo.slow(seconds=60)")
    panel.expect_state("demo", "ready")
    notebook.begin(1)
    panel.show("Activity")
    panel.press("Cancel demo.slow")
    notebook.until_idle()
    panel.show("Servers")
    panel.press("Stop demo")
    panel.expect_state("demo", "stopped")

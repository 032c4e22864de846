"""Apps in cells: what a user sees, what the page is told, and what it may ask."""

from pathlib import Path

from playwright.sync_api import FrameLocator, Page, expect

from tests import apps
from tests.browser.conftest import Open
from tests.browser.notebooks import Notebook
from tests.browser.places import LOAD

ALLOW = "mcp.policy.allow('apps.*', caller='app')"


def app_in(notebook: Notebook, index: int) -> FrameLocator:
    """The page of the app in a cell's output."""
    return notebook.output(index).frame_locator(".ipymcp-app-frame").frame_locator("iframe")


def test_an_app_is_shown_above_the_text_and_told_what_it_shows(open_notebook: Open, page: Page, work: Path) -> None:
    html = apps.page("""
      globalThis.heard = ({ method, params }) => write(method.split("/").at(-1), params);
      const { hostContext, hostInfo } = await begin();
      write("context", hostContext);
      write("host", hostInfo.name);
    """)
    apps.write(work / "pages", "chart", html)
    notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", "r = mcp.apps.chart(text='t')\nr", "r.app")
    notebook.run(0)
    notebook.run(1)
    app = app_in(notebook, 1)
    expect(app.locator("#host")).to_have_text("ipymcp")
    expect(app.locator("#tool-input")).to_have_text('{"arguments":{"text":"t"}}')
    expect(app.locator("#tool-result")).to_contain_text("text/html;profile=mcp-app")
    expect(app.locator("#context")).to_contain_text('"theme":"light"')
    expect(notebook.output(1)).to_contain_text("the text of chart: t")
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("<app of apps.chart, ui://apps/chart>")

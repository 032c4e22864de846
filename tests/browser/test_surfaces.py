"""First steps in every front end that shows the panel: load a server, insert a call into the notebook."""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests import apps
from tests.browser.conftest import Open
from tests.browser.panels import Panel
from tests.browser.places import LAB, LOAD, NOTEBOOK_7, PANEL, SharedLab, Voila, in_cell, sidebar

TEXT = "it's a <b>penguin</b>"
CALL = f'mcp.demo.echo(text="{TEXT}")'
SENDS_ITS_ID = "print('cellId' in get_ipython().kernel.get_parent('shell')['metadata'])"
"""Whether the front end sends the id of a cell with its code, by which ipymcp knows that it updates displays."""
WITHOUT = "Lab's cell without our extension"
PLACES = (
    WITHOUT,
    "Lab's cell",
    "Lab's sidebar",
    "Notebook 7's cell",
    "Notebook 7's sidebar",
    "Voilà",
)


@dataclass
class Place:
    """A panel of a kernel that has no servers yet."""

    panel: Panel
    run_what_was_inserted: Callable[[], str]
    """Runs it in a cell; gives what the cell showed. Where there are no cells, it is what was copied."""


@pytest.fixture(params=PLACES)
def place(
    request: pytest.FixtureRequest, context: BrowserContext, clean_lab: SharedLab, open_notebook: Open, voila: Voila
) -> Iterator[Place]:
    where = request.param
    with contextlib.ExitStack() as stack:
        if where == "Voilà":
            page = stack.enter_context(context.new_page())
            panel = voila.open(page, f'{LOAD}\n%config IPyMCP.panel = "full"', PANEL)
            yield Place(panel, lambda: str(page.evaluate("navigator.clipboard.readText()")))
            return
        if where == WITHOUT:
            stack.enter_context(clean_lab.without_extension())
        notebook = open_notebook(LOAD, PANEL, "", SENDS_ITS_ID, app=LAB if where.startswith("Lab") else NOTEBOOK_7)
        if "cell" in where:
            notebook.run(0)
            notebook.run(1)
            notebook.run(3)
            assert notebook.output(3).inner_text().strip() == "True"
            panel = in_cell(notebook, 1)
        else:
            notebook.choose(2)
            panel = sidebar(notebook.page)
            panel.press("Load ipymcp")

        def run() -> str:
            if where == WITHOUT:
                notebook.cell(2).locator(".cm-content").click()
                notebook.page.keyboard.press("Control+V")
            assert notebook.source(2).strip() == CALL
            notebook.run(2)
            return notebook.output(2).inner_text()

        yield Place(panel, run)


def test_a_user_loads_a_server_calls_a_tool_and_has_the_call_in_the_notebook(place: Place) -> None:
    panel = place.panel
    panel.press("Load the demo server")
    panel.expect_state("demo", "ready")
    panel.press("demo")
    panel.press("Details")
    assert not is_cut_off(panel.root)
    first = process(panel)

    panel.press("Stop demo")
    panel.expect_state("demo", "stopped")
    panel.press("Start demo")
    panel.expect_state("demo", "ready")
    second = process(panel)
    panel.press("Actions of demo")
    menu = panel.root.get_by_role("menuitem")
    for offers in ("5 tools", "3 resources", "1 prompt"):
        expect(menu.get_by_text(offers)).to_be_visible()
    menu.get_by_text("Restart").click()
    expect(panel.fact("demo", "PID")).not_to_contain_text(second)
    panel.expect_state("demo", "ready")
    assert len({first, second, process(panel)}) == 3

    tools = panel.find_tool("ECHO text", "demo.echo")
    tools.get_by_label("text").fill(TEXT)
    panel.press("Run")
    expect(panel.outcome).to_contain_text(TEXT)
    expect(panel.calls().first).to_contain_text("demo.echo")
    panel.press("Protocol…")
    expect(panel.root.get_by_label("Search messages")).to_be_visible()
    panel.root.get_by_role("button", name="Calls").click()
    panel.show("Servers")
    panel.press("Add server…")
    panel.root.get_by_role("tab", name="Command").click()
    expect(panel.button("Start and test")).to_be_visible()
    panel.press("Close")
    panel.show("Tools")
    panel.press("Insert as code")
    expect(panel.root.locator(".mcp-notice")).to_contain_text(re.compile("^(Inserted|Copied)"))
    assert TEXT in place.run_what_was_inserted()


def is_cut_off(element: Locator) -> bool:
    """Whether an element is wider than the area of the page that it is in."""
    script = """element => {
        const { right } = element.getBoundingClientRect();
        for (let area = element.parentElement; area; area = area.parentElement)
            if (right > area.getBoundingClientRect().right + 1) return true;
        return false;
    }"""
    return bool(element.evaluate(script))


APP = """
  await begin();
  const { result } = await request("ui/update-model-context", { structuredContent: { rate: 1 } });
  write("done", result);
  await fetch("https://data.example/").catch((error) => write("network", error.name));
"""


def test_voila_runs_tools_and_shows_apps_and_offers_nothing_that_only_the_author_may_do(
    voila: Voila, new_page: Page, tmp_path: Path
) -> None:
    declares = {"csp": {"connectDomains": ["https://data.example"]}}
    apps.write(tmp_path / "pages", "map", apps.page(APP), declares)
    load = f"{LOAD}\n%mcp load demo;\n{apps.load(tmp_path / 'pages')}"
    panel = voila.open(new_page, load, PANEL, "mcp.apps.map()")
    panel.expect_state("demo", "ready")
    expect(panel.status).to_contain_text("Servers cannot be changed here")
    for name in ("Stop demo", "Restart demo", "Configured servers…"):
        expect(panel.button(name)).to_have_count(0)
    panel.press("Actions of all servers")
    expect(panel.root.get_by_role("menuitem")).to_have_text(["List all tools again"])
    panel.press("Actions of all servers")
    panel.press("Actions of demo")
    expect(panel.root.get_by_role("menuitem")).to_have_text(["5 tools", "3 resources", "1 prompt"])
    panel.press("Actions of demo")

    tools = panel.find_tool("echo", "demo.echo")
    panel.press("Actions of echo")
    expect(panel.root.get_by_role("menuitem")).to_have_text(["Show schema"])
    panel.press("Actions of echo")
    tools.get_by_label("text").fill(TEXT)
    panel.press("Run")
    expect(panel.outcome).to_contain_text(TEXT)
    expect(panel.button("Insert as code")).to_have_count(0)  # visitors have no notebook

    app = new_page.frame_locator(".ipymcp-app-frame").frame_locator("iframe")
    expect(app.locator("#done")).to_have_text("{}")
    expect(app.locator("#network")).to_have_text("TypeError")
    expect(new_page.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
    new_page.locator("summary", has_text="Data").click()
    expect(new_page.get_by_text("the text of map")).to_be_visible()


def process(panel: Panel) -> str:
    """The process of the demo server."""
    return panel.fact("demo", "PID").inner_text().split()[0]

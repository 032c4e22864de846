"""A server whose every text tries to run or to load something: in JupyterLab nothing of it does."""

import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.panels import Panel
from tests.browser.places import LOAD, PANEL, in_cell, sidebar
from tests.environments import ROOT

SERVER = f"{sys.executable} {ROOT}/tests/servers/hostile.py"
KINDS = ("markdown", "html", "svg", "links", "data", "text")
CELLS = (
    "mcp.servers['evil']",
    "%mcp tools evil",
    "%mcp tools evil.show",
    "%mcp resources evil",
    "%mcp prompts evil",
    "%mcp logs evil",
    *(f"mcp.evil.show(what={kind!r})" for kind in KINDS),
    "mcp.evil.resources['evil://text/markdown'].read()",
    "mcp.evil.fail()",
    "mcp.evil.refuse()",
    "%mcp history",
)


@pytest.fixture
def watched(page: Page) -> Iterator[Page]:
    """A page of which nothing may be asked for elsewhere, and in which nothing planted may run."""
    elsewhere: list[str] = []
    page.on("request", lambda request: "evil.invalid" in request.url and elsewhere.append(request.url))
    page.on("dialog", lambda dialog: elsewhere.append(dialog.message))
    yield page
    page.wait_for_load_state("networkidle")
    assert elsewhere == []
    assert page.evaluate("window.pwned") is None
    # Also within shadow roots: what a click would run, what the parser would have loaded.
    for selector in (
        "a[href^='javascript:' i]",
        "[onerror], [onload], [ontoggle]",
        "[src*='evil.invalid']",
        "[data*='evil.invalid']",
    ):
        assert page.locator(selector).count() == 0, selector


@pytest.mark.parametrize("where", ["cell", "sidebar"])
def test_nothing_that_a_server_planted_runs_or_loads_in_the_panel(
    where: str, open_notebook: Open, watched: Page
) -> None:
    notebook = open_notebook(f"{LOAD}\n%mcp load evil -- {SERVER};", PANEL, "print(await mcp.evil.ask.aio())")
    panel = sidebar(watched) if where == "sidebar" else None
    notebook.run(0)
    if panel is None:
        notebook.run(1)
        panel = in_cell(notebook, 1)
    panel.expect_state("evil", "ready")
    panel.root.get_by_role("button", name="evil", exact=True).click()
    panel.press("Instructions")
    expect(panel.root.locator(".mcp-prose")).to_contain_text("# Title")

    tools = panel.show("Tools")
    expect(tools.get_by_role("treeitem")).to_have_count(7)
    for name in ("show", "fail", "refuse", "talk"):
        choose(panel, name)
        panel.choose(f"Actions of {name}", "Show schema")
        for kind in KINDS if name == "show" else ("",):
            if kind:
                tools.locator("select").and_(tools.get_by_label("what", exact=False)).first.select_option(kind)
            panel.press("Run")
            expect(
                tools.get_by_text("The call failed." if name in ("fail", "refuse") else "The call succeeded.")
            ).to_have_count(1)
            expect(panel.outcome.locator(".mcp-call")).to_have_count(0)

    for view in ("Resources", "Prompts"):
        offers = panel.list(view)
        rows = offers.get_by_role("tree").locator("[aria-level='2']")
        expect(rows.first).to_be_visible()
        for index in range(rows.count()):
            panel.go_back()
            rows.nth(index).click()
            if view == "Prompts":
                offers.get_by_role("button", name="Get").click()
            expect(offers.locator(".mcp-preview:visible")).to_contain_text("Title")
    calls = panel.calls()
    for index in range(3):
        calls.nth(index).click()
        expect(panel.root.get_by_role("region", name="Selected call")).to_contain_text("Arguments")
        panel.go_back()
    expect(panel.show("Logs").locator(".mcp-line").last).to_be_visible()

    notebook.begin(2)
    question = panel.root.get_by_role("alertdialog")
    expect(question).to_contain_text("# Title")
    question.get_by_role("button", name="Send").click()
    expect(question).to_have_count(0)


def test_nothing_that_a_server_planted_runs_or_loads_in_what_cells_show(open_notebook: Open, watched: Page) -> None:
    notebook = open_notebook(f"{LOAD}\n%mcp load evil -- {SERVER};", *CELLS)
    for index in range(len(CELLS) + 1):
        notebook.run(index)
    notebook.cell(len(CELLS)).scroll_into_view_if_needed()
    for index in range(1, len(CELLS) + 1):
        notebook.cell(index).scroll_into_view_if_needed()
        expect(notebook.output(index)).not_to_be_empty()


def choose(panel: Panel, name: str) -> None:
    panel.go_back()
    panel.tool(f"evil.{name}").click()

"""JupyterLab's panel in light and dark, by the keyboard alone, and for screen readers."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Open
from tests.browser.notebooks import Notebook, execute
from tests.browser.panels import Panel
from tests.browser.places import DARK, LIGHT, PANEL, in_cell, sidebar
from tests.browser.test_lab_calls import DEMO
from tests.browser.tour import tour, traveller
from tests.environments import environment

HIGH_CONTRAST = "JupyterLab Dark High Contrast"
BACK = {LIGHT: r"rgb\(255, 255, 255\)", DARK: r"rgb\((\d\d?), \1, \1\)"}
SIDEBAR = "#ipymcp-sidebar"


def faults(panel: Panel, *rules: str) -> list[str]:
    """The findings of axe in a panel, by those rules or all."""
    page = panel.root.page
    if not page.evaluate("'axe' in window"):
        page.evaluate((environment("npm-axe").folder / "node_modules" / "axe-core" / "axe.min.js").read_text())
    violations: list[dict[str, Any]] = panel.root.evaluate(
        "async (root, rules) => (await axe.run(root, rules.length ? {runOnly: rules} : {})).violations", rules
    )
    return [f"{each['id']}: {[node['html'] for node in each['nodes']]}" for each in violations]


def change_theme(page: Page, theme: str) -> None:
    execute(page, "apputils:change-theme", theme=theme)
    expect(page.locator(f"body[data-jp-theme-name='{theme}']")).to_have_count(1)


def colours(element: Locator) -> str:
    return str(element.evaluate("e => getComputedStyle(e).backgroundColor + getComputedStyle(e).color"))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("theme", [LIGHT, DARK, HIGH_CONTRAST])
def test_all_that_the_sidebar_shows_is_accessible(
    theme: str, open_notebook: Open, page: Page, work: Path, tmp_path: Path
) -> None:
    rules = () if theme == LIGHT else ("color-contrast",)  # of the others only the colours differ
    change_theme(page, theme)
    panel = Panel(page.locator(SIDEBAR))
    with traveller(tmp_path / "home", work) as cells:
        found = {place: faults(panel, *rules) for place in tour(open_notebook(*cells), page)}
    assert len(found) > 40
    assert {place: some for place, some in found.items() if some} == {}


def test_a_panel_has_the_colours_of_the_theme(open_notebook: Open, page: Page) -> None:
    notebook = open_notebook(DEMO, PANEL)
    panels = (shown("cell", notebook), sidebar(page))
    seen: dict[str, list[str]] = {}
    for theme in (DARK, LIGHT):
        change_theme(page, theme)
        expect(panels[0].root).to_have_css("background-color", re.compile(BACK[theme]))
        seen[theme] = [look for panel in panels for look in (colours(panel.root), colours(panel.button("Stop demo")))]
        assert seen[theme][0] == seen[theme][2], "one look in a cell and in the sidebar"
    assert not set(seen[DARK]) & set(seen[LIGHT])


def test_the_keyboard_alone_starts_a_server_and_runs_a_tool(open_notebook: Open, page: Page) -> None:
    notebook = open_notebook(f"{DEMO}\n%mcp stop demo;")
    panel = shown("sidebar", notebook)
    panel.expect_state("demo", "stopped")
    panel.root.get_by_role("tab", name="Servers").focus()

    def tab_to(target: Locator) -> None:
        """Press Tab until the focus is there."""
        for _ in range(30):
            page.keyboard.press("Tab")
            if target.evaluate("e => e === document.activeElement"):
                return
        raise AssertionError("30 times Tab do not lead there")

    tab_to(panel.button("Start demo"))
    page.keyboard.press("Enter")
    panel.expect_state("demo", "ready")
    page.keyboard.press("Shift+Tab")

    for _ in range(30):
        if page.evaluate("document.activeElement.role || document.activeElement.getAttribute('role')") == "tab":
            break
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowRight")
    tools = panel.root.get_by_role("tabpanel", name="Tools")
    expect(tools).to_be_visible()
    tab_to(tools.get_by_role("searchbox"))
    page.keyboard.type("echo")
    tab_to(tools.get_by_role("tree"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(tools.get_by_label("text")).to_be_focused()
    page.keyboard.type("typed")
    tab_to(panel.button("Run"))
    page.keyboard.press("Enter")
    expect(panel.outcome).to_contain_text("typed")


def shown(where: str, notebook: Notebook) -> Panel:
    """The panel there, of a notebook whose first cell loads servers and whose second shows it."""
    panel = sidebar(notebook.page) if where == "sidebar" else None
    notebook.run(0)
    if panel is None:
        notebook.run(1)
        panel = in_cell(notebook, 1)
    return panel

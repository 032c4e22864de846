"""The panel in the main area, its servers in JupyterLab's list of what runs, and the keys that lead to it."""

import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, WithSidebar
from tests.browser.panels import Panel
from tests.browser.places import sidebar

NAME = "notebook.ipynb"
ALL_SELECTED = "(e => e.selectionEnd - e.selectionStart === e.value.length)(document.activeElement)"


def test_a_wide_panel_follows_its_notebook(open_with_sidebar: WithSidebar, page: Page) -> None:
    notebook, panel = open_with_sidebar("%load_ext ipymcp", "%mcp load demo;", "%mcp stop demo;")
    expect(panel.root.get_by_role("heading", name="MCP servers")).to_contain_text(NAME)
    panel.press("Open in main area")
    tab = page.get_by_role("tab", name=f"MCP: {NAME}")
    expect(tab).to_be_visible()
    wide = Panel(page.locator(".jp-MainAreaWidget .ipymcp-sidebar"))
    notebook.run(1)
    wide.expect_state("demo", "ready")
    wide.find_tool("echo", "demo.echo")
    expect(panel.root.get_by_role("tab", name="Servers")).to_have_attribute("aria-selected", "true")
    panel.show("Activity")
    panel.press("Open in main area")
    panel.show("Tools")
    expect(wide.root.get_by_role("tab", name="Activity")).to_have_attribute("aria-selected", "true")
    notebook.restart()
    expect(wide.root.get_by_role("heading", name="ipymcp is not loaded in this notebook")).to_be_visible()
    notebook.run(0)
    notebook.run(1)
    wide.expect_state("demo", "ready")
    page.evaluate("[...jupyterapp.shell.widgets('main')].find(each => each.context).dispose()")
    expect(tab).to_have_count(0)


def test_a_dot_on_the_icon_says_that_a_server_failed(open_with_sidebar: WithSidebar, page: Page) -> None:
    notebook, panel = open_with_sidebar("%load_ext ipymcp", "%mcp load gone --no-wait -- python -c 'exit(1)'")
    icon = page.locator(".lm-TabBar-tab[data-id=ipymcp-sidebar]")
    expect(icon).to_have_attribute("title", "MCP servers")
    notebook.run(1)
    panel.expect_state("gone", "failed")
    expect(icon).to_have_class(re.compile("ipymcp-attention mcp-tone-bad"))
    expect(icon).to_have_attribute("title", "MCP servers · A server failed")


def test_servers_are_among_the_running_and_can_be_stopped_there(open_notebook: Open, page: Page) -> None:
    notebook = open_notebook("%load_ext ipymcp\n%mcp load demo;")
    notebook.run(0)
    sidebar(page).expect_state("demo", "ready")
    page.evaluate("jupyterapp.shell.activateById('jp-running-sessions')")
    running = page.locator("#jp-running-sessions")
    row = running.locator(".jp-RunningSessions-item", has_text=f"demo · {NAME}")
    expect(row).to_be_visible()
    row.hover()
    row.locator(".jp-RunningSessions-itemShutdown").click()
    sidebar(page).expect_state("demo", "stopped")
    expect(row).to_have_count(0)


def test_keys_open_the_panel_and_find_a_tool_also_inside_of_it_and_replace_old_search_words(
    open_notebook: Open, page: Page
) -> None:
    notebook = open_notebook("%load_ext ipymcp\n%mcp load demo;", "")
    notebook.run(0)
    editor = notebook.cell(1).locator(".cm-content")
    editor.click()
    expect(page.get_by_role("button", name="MCP 1/1")).to_be_visible()
    page.keyboard.press("Alt+Shift+M")
    root = page.locator("#ipymcp-sidebar")
    expect(root.get_by_role("tab", name="Servers")).to_be_focused()
    search = root.get_by_role("searchbox", name="Search tools")
    editor.click()
    page.keyboard.press("Alt+Shift+T")
    expect(search).to_be_focused()

    page.keyboard.press("Alt+Shift+A")
    expect(root.get_by_role("tab", name="Activity")).to_have_attribute("aria-selected", "true")
    for words in ("echo", "query"):
        page.keyboard.press("Alt+Shift+T")
        expect(search).to_be_focused()
        page.wait_for_function(ALL_SELECTED)  # a frame later, so that what is typed replaces the old words
        page.keyboard.type(words)
        expect(search).to_have_value(words)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(root.get_by_role("heading", name="demo.query")).to_be_visible()
    page.keyboard.press("Alt+Shift+A")
    expect(root.get_by_role("tab", name="Activity")).to_have_attribute("aria-selected", "true")

"""The panel's activity in JupyterLab: every call as it starts, what is known of one, and a server's messages."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import WithSidebar
from tests.browser.notebooks import Notebook
from tests.browser.panels import Panel
from tests.browser.test_lab_calls import DEMO, WATCH_CLICKS

SECRET = "planted-secret-9f3a"
FAIL = "mcp.demo.fail(message='on purpose')"
SLOW = "mcp.demo.slow(seconds=60, steps=600)"


def started(open_with_sidebar: WithSidebar, *cells: str) -> tuple[Notebook, Panel]:
    """A notebook whose first cell has loaded the demo server, and the sidebar."""
    notebook, panel = open_with_sidebar(DEMO, *cells)
    panel.expect_state("demo", "ready")
    return notebook, panel


def chosen(panel: Panel) -> Locator:
    return panel.root.get_by_role("region", name="Selected call")


def test_each_call_appears_as_it_starts_and_ends_in_a_word_of_its_own(
    open_with_sidebar: WithSidebar, page: Page
) -> None:
    notebook, panel = started(
        open_with_sidebar,
        SLOW,
        "mcp.demo.echo('said')",
        FAIL,
        "mcp.policy.deny('demo.echo')",
    )
    calls = panel.calls()
    running = panel.root.get_by_role("region", name="Running calls")
    for end in (lambda: panel.press("Cancel demo.slow"), notebook.interrupt):
        notebook.begin(1)
        expect(running).to_contain_text(re.compile(r"demo\.slowcell \d+"))
        end()
        notebook.until_idle()
        expect(running).to_have_count(0)
    for index in (2, 3, 4, 2):
        notebook.run(index)
    expect(calls.first).to_contain_text("refused")
    said = [re.sub(r"\s+", " ", row.inner_text()) for row in calls.all()[:5]]
    words = ["⊖ refused", "✕ failed", "✓ done", "■ interrupted", "⊘ cancelled"]
    tools = ["demo.echo", "demo.fail", "demo.echo", "demo.slow", "demo.slow"]
    for row, tool, word in zip(said, tools, words, strict=True):
        assert re.fullmatch(rf"{re.escape(tool)} {word} \d\d:\d\d:\d\d cell \d+ [\d.]+ m?s", row), row
    colours = {row.locator(".mcp-figure").first.evaluate("e => getComputedStyle(e).color") for row in calls.all()[:5]}
    assert len(colours) >= 4


def test_a_call_that_is_clicked_has_its_arguments_result_and_error_and_is_made_again(
    open_with_sidebar: WithSidebar, page: Page
) -> None:
    notebook, panel = started(open_with_sidebar, "mcp.demo.query('penguins', limit=2)", FAIL, "")
    calls = panel.calls()
    call = chosen(panel)
    notebook.run(1)
    calls.first.hover()
    page.mouse.down()
    notebook.run(2)
    expect(calls.first).to_contain_text("demo.fail")
    page.mouse.up()
    expect(call.get_by_role("heading", name="demo.query")).to_be_visible()  # which was pressed, though another came
    panel.go_back()

    calls.first.click()
    expect(call.get_by_role("region", name="Arguments")).to_have_text('{\n  "message": "on purpose"\n}')
    expect(call.locator(".mcp-problem")).to_contain_text("on purpose")
    panel.go_back()

    calls.nth(1).click()
    expect(call.get_by_role("region", name="Arguments")).to_contain_text('"limit": 2')
    expect(call.get_by_role("row")).to_have_count(3)
    panel.press("Run again")
    expect(call.locator(".mcp-muted").first).to_contain_text("panel")
    expect(call.get_by_role("row")).to_have_count(3)

    notebook.choose(3)
    panel.press("Open result in a new cell")
    expect(notebook.cell(3)).to_contain_text(re.compile(r"mcp\.results\[\d+\]"))
    notebook.run(3)
    expect(notebook.output(3).get_by_role("row")).to_have_count(3)
    panel.press("Copy as code")
    expect(panel.root.get_by_text("Copied.")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "mcp.demo.query(table='penguins', limit=2)"
    panel.press("Open tool")
    expect(panel.root.get_by_role("heading", name="demo.query")).to_be_visible()


def test_the_messages_of_a_server_are_shown_without_a_planted_secret(
    open_with_sidebar: WithSidebar, page: Page
) -> None:
    plant = f"from ipymcp.masking import masks\nmasks.add({SECRET!r})"
    # The view is there before the kernel has heard of it and records.
    recorded = "import time\nwhile mcp._host.sessions['demo'].recorder is None: time.sleep(0.01)"
    calls = f"{recorded}\nmcp.demo.echo({SECRET!r}); mcp.demo.query('penguins')"
    notebook, panel = started(open_with_sidebar, plant, calls)
    notebook.run(1)
    panel.show("Activity")
    panel.press("Protocol…")
    expect(panel.root.get_by_label("Search messages")).to_be_visible()
    notebook.run(2)
    rows = panel.root.get_by_role("listbox", name="Messages of demo").get_by_role("option")
    expect(rows).to_have_count(3)
    expect(rows.nth(2)).to_contain_text(re.compile(r"sent\W*received\s*tools/call\s*\d+ B · [\d.]+ m?s"))
    expect(rows.nth(1)).to_contain_text(re.compile(r"received\s*notifications/message"))
    rows.nth(2).click()
    message = panel.root.get_by_role("region", name="Selected message").first
    expect(message.get_by_role("region", name="Text of the")).to_contain_text('"text": "[secret]"')
    assert SECRET not in panel.root.inner_text()
    panel.go_back()
    panel.root.get_by_role("button", name="Calls").click()
    expect(panel.root.get_by_role("listbox", name="Calls")).to_be_visible()


@pytest.mark.timed
def test_with_10_000_calls_another_tab_is_there_within_50_ms(open_with_sidebar: WithSidebar, page: Page) -> None:
    make = "calls = [mcp.demo.echo.submit('x') for _ in range(10_000)]\nfor call in calls: call.result()"
    notebook, panel = started(open_with_sidebar, make)
    notebook.run(1)
    expect(panel.calls().first).to_contain_text("demo.echo")
    page.evaluate(WATCH_CLICKS)
    for _ in range(5):
        panel.show("Servers")
        expect(panel.calls().first).to_be_visible()
    page.wait_for_function("window.delays.length === 10")
    delays = sorted(page.evaluate("window.delays"))
    assert delays[len(delays) // 2] < 50, delays
    rows = panel.root.get_by_role("listbox", name="Calls")
    row = rows.get_by_role("option").first
    for _ in range(3):
        size = str(row.get_attribute("aria-setsize"))
        rows.evaluate("list => list.scrollTop = list.scrollHeight")
        expect(row).not_to_have_attribute("aria-setsize", size)
    assert int(row.get_attribute("aria-setsize") or 0) > 400

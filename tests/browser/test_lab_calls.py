"""JupyterLab while something goes on: calls that block the kernel, floods of log lines, questions."""

import re
import sys
import time

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Open, WithSidebar
from tests.browser.places import LOAD, PANEL, in_cell, sidebar
from tests.environments import ROOT

DEMO = f"{LOAD}\n%mcp load demo;"
MISBEHAVING = f"{sys.executable} {ROOT}/tests/servers/misbehaving.py"
SCHEMA = {
    "type": "object",
    "properties": {
        "island": {"type": "string", "title": "Island", "enum": ["Biscoe", "Dream"]},
        "birds": {"type": "integer", "title": "Birds", "minimum": 1},
    },
    "required": ["island", "birds"],
}
ASKING = f"""
asked = await mcp.asks.ask.aio(
    method="elicitation/create", params={{"message": "Which birds?", "requestedSchema": {SCHEMA}}}, seconds=60
)
print(asked.data["answer"]["result"])
"""
# From the system's event of the click until the page has drawn what came of it.
WATCH_CLICKS = """
if (!window.delays) document.addEventListener("click", event => requestAnimationFrame(() => requestAnimationFrame(() =>
    window.delays.push(performance.now() - event.timeStamp))), true);
window.delays = [];
"""


@pytest.mark.timed
def test_a_call_that_blocks_the_kernel_shows_how_far_it_is_and_is_over_within_a_second_of_cancel(
    open_with_sidebar: WithSidebar,
) -> None:
    notebook, panel = open_with_sidebar(DEMO, "mcp.demo.slow(seconds=30, steps=60)")
    notebook.begin(1)
    calls = panel.show("Activity")
    expect(calls.get_by_text(re.compile(r"step \d+ of 60"))).to_be_visible()
    expect(calls.get_by_role("progressbar")).to_have_attribute("aria-valuenow", re.compile("[3-9]"))

    pressed = time.monotonic()
    panel.press("Cancel demo.slow")
    expect(calls.get_by_role("progressbar")).to_have_count(0)
    notebook.until_idle()
    assert time.monotonic() - pressed < 1
    expect(notebook.output(1)).to_contain_text("CallCancelled: demo.slow: cancelled by you in the panel")


@pytest.mark.timed
def test_a_page_flooded_with_log_lines_answers_a_click_within_200_ms(
    open_with_sidebar: WithSidebar, page: Page
) -> None:
    notebook, panel = open_with_sidebar(f"{LOAD}\n%mcp load loud -- {MISBEHAVING} stderr=10000;", "6 * 7")
    logs = panel.show("Logs")
    line = logs.locator(".mcp-line")
    expect(line.last).to_be_visible()
    count = logs.locator(".mcp-figure").last
    expect(count).to_contain_text(re.compile(r"2,000 lines, .* earlier lines not shown"))

    page.evaluate(WATCH_CLICKS)
    for _ in range(5):
        panel.press("Pause")
        expect(panel.button("Resume")).to_be_visible()
        panel.press("Resume")
        expect(panel.button("Pause")).to_be_visible()
    page.wait_for_function("window.delays.length === 10")
    delays = page.evaluate("window.delays")
    assert max(delays) < 200
    assert line.count() < 200, "rows out of sight are not drawn"
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("42")


def test_a_question_of_a_server_to_an_awaiting_cell_is_answered_in_a_form_wherever_that_is_shown(
    open_notebook: Open, page: Page
) -> None:
    notebook = open_notebook(f"{LOAD}\n%mcp load asks -- {MISBEHAVING} --era legacy;", PANEL, ASKING)
    notebook.run(0)

    def panel_in_a_cell() -> Locator:
        notebook.run(1)
        return in_cell(notebook, 1).root

    def opened_sidebar() -> Locator:
        panel = sidebar(page)
        panel.expect_state("asks", "ready")
        return panel.root

    for open_place in (lambda: notebook.output(2), panel_in_a_cell, opened_sidebar):
        root = open_place()
        notebook.begin(2)
        question = root.get_by_role("alertdialog", name="asks.ask asks for your input")
        expect(question).to_contain_text("Which birds?")
        question.get_by_label("Island").select_option("Dream")
        question.get_by_label("Birds").fill("0")
        question.get_by_role("button", name="Send").click()
        expect(question.get_by_role("alert").first).to_contain_text("Must be at least 1")
        question.get_by_label("Birds").fill("7")
        question.get_by_role("button", name="Send").click()
        expect(question).to_have_count(0)
        notebook.until_idle()
        assert page.locator("#ipymcp-sidebar").is_visible() == (open_place is opened_sidebar), "asked in two places"
        expect(notebook.output(2)).to_contain_text("{'action': 'accept', 'content': {'island': 'Dream', 'birds': 7}}")

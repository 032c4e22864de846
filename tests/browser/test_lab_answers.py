"""A model's answer in JupyterLab and in Notebook 7: calls that need consent are asked about in their cards."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Answering
from tests.browser.notebooks import Notebook
from tests.browser.panels import Panel
from tests.browser.places import LAB, NOTEBOOK_7, sidebar
from tests.browser.test_lab_looks import faults
from tests.browser.test_lab_panel import is_in_sight

ECHO = 'demo__echo({"text": "<b>hey</b>"})'
AFTER_RENDERING = "new Promise(done => setTimeout(done, 701))"
"""Waits until a timer of RENDER_TIMEOUT (lab/index.ts) has ended that began before this one."""
QUESTION = "The model wants to run demo.echo"


def asked(notebook: Notebook, index: int = 1, name: str = QUESTION) -> Locator:
    """The question in the output of a cell, once it is there."""
    question = notebook.output(index).get_by_role("alertdialog", name=name)
    expect(question).to_be_visible()
    return question


def saved(work: Path, index: int = 1) -> str:
    notebook = json.loads((work / "notebook.ipynb").read_text())
    return json.dumps(notebook["cells"][index]["outputs"], ensure_ascii=False)


@pytest.mark.parametrize("app", [LAB, NOTEBOOK_7])
def test_a_call_is_approved_in_its_card_and_the_notebook_keeps_no_form(
    app: str, open_answering: Answering, work: Path
) -> None:
    notebook = open_answering(ECHO, app)
    page = notebook.page
    notebook.run(0)
    notebook.begin(1)
    question = asked(notebook)
    expect(question).to_contain_text("Rule: ask demo.* (this notebook)")
    expect(question).to_contain_text("The server says: read-only")
    expect(question).to_contain_text("<b>hey</b>")
    expect(question).to_be_focused()
    page.evaluate(AFTER_RENDERING)  # when the sidebar would have opened, had no card been seen
    expect(page.locator("#ipymcp-sidebar")).to_be_hidden()

    for key in ("Tab", "Tab", "Enter", "End", "Home", "Escape"):  # opens the menu of what holds longer, and leaves it
        page.keyboard.press(key)
    expect(question.get_by_role("button", name="Allow for longer")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")  # Allow once
    notebook.until_idle()
    expect(notebook.output(1).get_by_role("alertdialog")).to_have_count(0)
    card = notebook.output(1).locator("details")
    expect(card.locator("summary")).to_contain_text("✓ demo.echo · allowed once")
    card.locator("summary").click()
    expect(card.locator("pre").last).to_have_text("<b>hey</b>")
    expect(notebook.output(1)).to_contain_text("They answered: ")
    notebook.save()
    assert "vnd.ipymcp.panel" not in saved(work)


def test_a_question_that_is_answered_in_the_sidebar_goes_from_the_card(open_answering: Answering, page: Page) -> None:
    notebook = open_answering(f"{ECHO} {ECHO}")
    panel = sidebar(page)
    notebook.run(0)
    panel.expect_state("demo", "ready")
    notebook.begin(1)
    question = asked(notebook, name="2 calls need your consent")
    expect(notebook.output(1).locator("details:visible")).to_have_count(0)

    panel.press("Deny")
    notebook.until_idle()
    expect(question).to_have_count(0)
    expect(notebook.output(1).locator("summary")).to_have_text(["⊘ demo.echo · denied"] * 2)


def test_a_card_that_waits_is_accessible_and_an_interrupt_takes_it_back(open_answering: Answering, page: Page) -> None:
    notebook = open_answering(ECHO)
    notebook.run(0)
    notebook.begin(1)
    asked(notebook).get_by_role("button", name="Allow for longer").click()
    expect(page.get_by_role("menuitem", name="Always allow the tool")).to_be_visible()
    assert faults(Panel(notebook.output(1).locator(".ipymcp"))) == []

    notebook.interrupt()
    expect(notebook.output(1).locator("summary")).to_have_text("■ demo.echo · cancelled")
    expect(notebook.output(1)).to_contain_text("KeyboardInterrupt: the model was stopped, and its calls with it")
    expect(notebook.output(1).get_by_role("alertdialog")).to_have_count(0)
    notebook.begin(2)
    asked(notebook, 2).get_by_role("button", name="Allow once").click()
    expect(notebook.output(2).locator("summary")).to_contain_text("✓ demo.echo · allowed once")


@pytest.mark.parametrize("where", ["card", "sidebar"])
def test_all_lines_of_a_models_code_can_be_read_before_it_is_agreed_to(
    where: str, open_answering: Answering, page: Page
) -> None:
    lines = [f"value_{number} = {number}" for number in range(200)]
    lines[50:53] = ["", "if value_1:", "    value_2 = '" + "long " * 100 + "'"]
    code = "\n".join([*lines, "print(value_199)"])
    notebook = open_answering(f"--code run_python({json.dumps({'code': code})})")
    panel = sidebar(page) if where == "sidebar" else None
    notebook.run(0)
    if panel is not None:
        panel.expect_state("demo", "ready")
    notebook.begin(1)
    title = "The model wants to run code in this notebook"
    card = asked(notebook, name=title)
    question = panel.root.get_by_role("alertdialog", name=title) if panel is not None else card
    expect(question).to_be_visible()

    shown = question.get_by_role("list", name="The code that would run").get_by_role("listitem")
    assert shown.all_text_contents() == code.split("\n")
    heights = shown.evaluate_all("lines => lines.map(line => line.getBoundingClientRect().height)")
    assert min(heights) > 10, "blank lines have their place"
    assert shown.evaluate_all("lines => lines.filter(line => line.scrollWidth > line.clientWidth).length") == 0
    assert shown.nth(50).evaluate("line => getComputedStyle(line).display") == "list-item", "lines are numbered"
    expect(page.locator(".mcp-click-guard")).to_have_count(0)
    for line in (shown.first, shown.nth(52), shown.last):
        line.scroll_into_view_if_needed()
        assert is_in_sight(line), line.text_content()
        for name in ("Allow once", "Deny"):
            assert where == "card" or is_in_sight(question.get_by_role("button", name=name)), name
    question.get_by_role("button", name="Allow once").click()
    notebook.until_idle()
    expect(notebook.output(1)).to_contain_text("They answered: 199")

"""Servers are added in the sidebar: searched in a registry on the loopback, tried, kept, and loaded by a cell."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.notebooks import Notebook, execute
from tests.browser.panels import Panel
from tests.browser.places import sidebar
from tests.browser.test_lab_looks import faults
from tests.browser.tour import DEMO, KEY, home
from tests.registry import RegistryServer, registry_server


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as served:
        yield served


@pytest.fixture
def notebook(open_notebook: Open, registry: RegistryServer, tmp_path: Path) -> Notebook:
    """A notebook of a user who can run `uvx`, and whose kernel asks the registry."""
    notebook = open_notebook(home(tmp_path / "home", registry.address), "")
    notebook.run(0)
    return notebook


def begin(page: Page) -> Panel:
    panel = sidebar(page)
    expect(panel.button("Add server…")).to_be_visible()
    execute(page, "ipymcp:add-server")
    expect(panel.root.get_by_role("heading", name="Add a server")).to_be_visible()
    return panel


def field(panel: Panel, label: str) -> Any:
    found = panel.root.locator("textarea, input").and_(panel.root.get_by_label(label, exact=True))
    return found.filter(visible=True)  # the other ways to add a server keep what was typed, hidden


def test_a_server_is_searched_asked_for_its_values_tried_and_saved_with_its_cell(
    notebook: Notebook, registry: RegistryServer, page: Page, tmp_path: Path
) -> None:
    panel = begin(page)
    search = panel.root.get_by_role("searchbox", name="Search the MCP registry")
    expect(search).to_be_focused()
    host = registry.address.partition("://")[2]
    expect(panel.root).to_contain_text(f"Searches names, titles and descriptions in the MCP registry at {host}.")
    expect(panel.root.get_by_role("combobox", name="Save for")).to_have_count(0)
    search.fill("clock")
    search.press("Enter")
    entries = panel.root.get_by_role("list", name="Servers of the registry")
    entries.get_by_role("button", name="Clock 1.1.0").click()
    expect(entries).to_contain_text("uvx clock-mcp@1.1.0")
    expect(entries).to_contain_text("io.github.example (not verified)")
    for width in (300, 420):
        page.screenshot(path=tmp_path / f"search-{width}.png")
    assert faults(panel) == []
    where = entries.get_by_role("combobox", name="Save for")
    expect(where).to_have_value("me")  # as %mcp add
    where.select_option("notebook")
    panel.press("Try Clock")
    question = panel.root.get_by_role("alertdialog")
    question.get_by_label("CLOCK_KEY").fill(KEY)
    page.screenshot(path=tmp_path / "values.png")
    question.get_by_role("button", name="Send").click()
    expect(question).to_contain_text("is to be added to this notebook")
    expect(question).to_contain_text("uvx clock-mcp@1.1.0 --format=iso")
    page.screenshot(path=tmp_path / "trust.png")
    question.get_by_role("button", name="Trust and start").click()
    expect(panel.root.get_by_role("list", name="Tools of clock")).to_contain_text("settings")
    page.screenshot(path=tmp_path / "tried.png")
    assert faults(panel) == []
    panel.press("Save")
    panel.expect_state("clock", "ready")
    notebook.until_idle()
    cell = notebook.source(1)
    assert "clock-mcp@1.1.0" in cell
    assert KEY not in cell
    assert "${secret:clock-CLOCK_KEY}" in cell


def test_a_command_a_url_and_json_are_ways_too(notebook: Notebook, page: Page, tmp_path: Path) -> None:
    panel = begin(page)
    panel.root.get_by_role("tab", name="Command").click()
    field(panel, "Program").fill(" ".join(DEMO))
    panel.root.get_by_role("combobox", name="Save for").select_option("notebook")
    field(panel, "Name").fill("mine")
    page.screenshot(path=tmp_path / "command.png")
    assert faults(panel) == []
    panel.press("Start and test")
    expect(panel.root.get_by_role("list", name="Tools of mine")).to_contain_text("echo")
    panel.root.get_by_label("Also insert the cell that loads it").uncheck()
    panel.press("Save")
    panel.expect_state("mine", "ready")
    assert notebook.source(1) == ""

    panel = begin(page)
    panel.root.get_by_role("tab", name="URL").click()
    field(panel, "Address").fill("http://127.0.0.1:9/mcp")
    page.screenshot(path=tmp_path / "url.png")
    panel.press("Start and test")
    expect(panel.root.get_by_role("alert").filter(has_text="could not be opened")).to_be_visible()
    expect(panel.button("Try again")).to_be_visible()
    expect(field(panel, "Address")).to_have_value("http://127.0.0.1:9/mcp")
    page.screenshot(path=tmp_path / "failed.png")

    panel.root.get_by_role("tab", name="Paste JSON").click()
    field(panel, "Definition as JSON").fill(json.dumps({"comand": DEMO[0], "args": DEMO[1:]}))
    panel.press("Start and test")
    expect(panel.root.get_by_role("alert").filter(has_text="did you mean 'command'?")).to_be_visible()
    field(panel, "Name").fill("")
    document = {
        "mcpServers": {"pasted": {"command": DEMO[0], "args": DEMO[1:], "env": {"API_KEY": "abcdefgh12345678"}}}
    }
    field(panel, "Definition as JSON").fill(json.dumps(document))
    panel.press("Try again")
    expect(panel.root.get_by_role("list", name="Tools of pasted")).to_contain_text("echo")
    panel.press("Save")
    panel.expect_state("pasted", "ready")
    notebook.until_idle()
    assert notebook.source(1) == "%mcp load pasted"
    file = tmp_path / "home" / "config" / "ipymcp" / "mcp.json"
    assert json.loads(file.read_text())["mcpServers"]["pasted"]["env"] == {"API_KEY": "${secret:pasted-API_KEY}"}

    panel.root.get_by_role("button", name="Actions of pasted").click()
    page.get_by_role("menuitem", name="Edit…").click()
    expect(panel.root.get_by_role("heading", name="Edit pasted")).to_be_visible()
    expect(field(panel, "Value of API_KEY")).to_have_value("${secret:pasted-API_KEY}")
    assert faults(panel) == []
    panel.press("Edit as JSON")
    editor = panel.root.get_by_placeholder("JSON")
    editor.fill(editor.input_value().replace("{", '{\n  "timeout": 5,', 1))
    panel.press("Edit as fields")
    expect(field(panel, "Timeout in seconds")).to_have_value("5")
    field(panel, "Timeout in seconds").fill("7")
    page.screenshot(path=tmp_path / "edit.png")
    panel.press("Start and test")
    panel.press("Save")
    expect(panel.root.get_by_role("heading", name="Edit pasted")).to_have_count(0)
    assert json.loads(file.read_text())["mcpServers"]["pasted"]["timeout"] == 7
    panel.root.get_by_role("button", name="Actions of pasted").click()
    page.get_by_role("menuitem", name="Remove…").click()
    panel.press("Remove")
    expect(panel.server("pasted")).to_have_count(0)
    assert json.loads(file.read_text())["mcpServers"] == {}


def test_a_trial_shows_how_its_start_goes_and_can_be_cancelled(notebook: Notebook, page: Page, tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text("import sys, time\nprint('unpacking', file=sys.stderr, flush=True)\ntime.sleep(600)\n")
    panel = begin(page)
    panel.root.get_by_role("tab", name="Command").click()
    field(panel, "Program").fill(f"{DEMO[0]} {program}")
    panel.press("Start and test")
    expect(panel.root.locator(".mcp-starting")).to_have_text(re.compile(r"^\d+ s · unpacking$"))
    panel.press("Cancel")
    expect(field(panel, "Program")).to_be_visible()


def test_the_menu_and_the_launcher_offer_it_and_the_file_browser_loads_the_servers_of_a_file(
    notebook: Notebook, work: Path, page: Page
) -> None:
    page.get_by_role("menuitem", name="MCP", exact=True).click()
    expect(page.get_by_role("menuitem", name="Add MCP Server…")).to_be_visible()
    page.keyboard.press("Escape")
    execute(page, "launcher:create")
    expect(page.locator(".jp-LauncherCard", has_text="Add MCP Server")).to_be_visible()
    notebook.activate()

    document = {"mcpServers": {"theirs": {"command": DEMO[0], "args": DEMO[1:]}}}
    (work / "theirs.json").write_text(json.dumps(document))
    panel = sidebar(page)
    expect(panel.button("Add server…")).to_be_visible()
    execute(page, "filebrowser:go-to-path", path=work.name)
    item = page.get_by_role("listitem", name="theirs.json")
    item.click(button="right")
    page.get_by_role("menuitem", name="Load MCP Servers of This File").click()
    question = panel.root.get_by_role("alertdialog")
    expect(question).to_contain_text("theirs")
    question.get_by_role("button", name="Trust and start").click()
    panel.expect_state("theirs", "ready")


def test_before_ipymcp_is_loaded_the_launcher_leads_to_the_form_and_the_cell_loads_ipymcp_too(
    open_notebook: Open, page: Page
) -> None:
    notebook = open_notebook("1 + 1", "")
    execute(page, "launcher:create")
    page.locator(".jp-LauncherCard", has_text="Add MCP Server").click()
    welcome = page.locator("#ipymcp-sidebar")
    expect(welcome).to_contain_text("Add MCP Server needs ipymcp: load it first.")
    welcome.get_by_role("button", name="Load ipymcp").click()
    panel = sidebar(page)
    expect(panel.root.get_by_role("heading", name="Add a server")).to_be_visible()
    panel.root.get_by_role("tab", name="Command").click()
    field(panel, "Program").fill(" ".join(DEMO))
    field(panel, "Name").fill("mine")
    panel.root.get_by_role("combobox", name="Save for").select_option("notebook")
    panel.press("Start and test")
    warning = panel.root.get_by_text("Lasts only until the kernel stops.")
    expect(warning).to_have_count(0)
    panel.root.get_by_label("Also insert the cell that loads it").uncheck()
    expect(warning).to_be_visible()
    panel.root.get_by_label("Also insert the cell that loads it").check()
    panel.press("Save")
    panel.expect_state("mine", "ready")
    cells = [notebook.source(index) for index in range(3)]
    assert f"%load_ext ipymcp\n%mcp load mine -- {' '.join(DEMO)}" in cells


def test_without_a_notebook_the_command_asks_for_one_and_goes_on_in_it(page: Page) -> None:
    page.locator(".jp-LauncherCard", has_text="Add MCP Server").click()
    welcome = page.locator("#ipymcp-sidebar")
    expect(welcome).to_contain_text("Add MCP Server needs a notebook: open one.")
    welcome.get_by_role("button", name="New notebook").click()
    select = page.get_by_role("button", name="Select Kernel").or_(welcome.get_by_role("button", name="Load ipymcp"))
    select.first.click()
    welcome.get_by_role("button", name="Load ipymcp").click()
    expect(sidebar(page).root.get_by_role("heading", name="Add a server")).to_be_visible()

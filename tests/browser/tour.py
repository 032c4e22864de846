"""A walk through all that the sidebar shows, for tests that look at all of it and for pictures.

with traveller(folder) as cells:
    notebook = open_notebook(*cells)
    for place in tour(notebook, page): ...
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

from tests.browser.notebooks import Notebook
from tests.browser.panels import Panel
from tests.browser.places import LOAD, sidebar
from tests.environments import ROOT, server_command
from tests.registry import package_index, registry_server
from tests.servers.oauth_server import running

DEMO = server_command("demo")
MISBEHAVING = f"{sys.executable} {ROOT}/tests/servers/misbehaving.py"
KEY = "the key of my clock"
SCHEMA = {
    "type": "object",
    "properties": {
        "island": {"type": "string", "title": "Island", "enum": ["Biscoe", "Dream"]},
        "birds": {"type": "integer", "title": "Birds", "minimum": 1},
        "note": {"type": "string", "title": "Note"},
    },
    "required": ["island", "birds"],
}
FORM = f"""
asked = await mcp.asks.ask.aio(
    method="elicitation/create", params={{"message": "Which birds?", "requestedSchema": {SCHEMA}}}, seconds=60
)"""
SETUP, SERVERS, CELL, ASK, FAIL, SLOW, SAID, LOGIN, THEIRS, NEEDY = range(10)


def home(folder: Path, registry: str) -> str:
    """Make a home folder of a user who can run `uvx`; gives the cell of a kernel that has it and asks the registry."""
    package_index(folder)
    variables = {
        "HOME": str(folder),
        "PATH": f"{ROOT / '.venv/bin'}:/usr/bin:/bin",
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "IPYMCP_STATE_DIR": str(folder / "state"),
        "IPYMCP_KEYRING": "off",
    }
    return f"import os\nos.environ.update({variables!r})\n{LOAD}\n%config IPyMCP.registry = {registry!r}"


@contextlib.contextmanager
def traveller(folder: Path, work: Path) -> Generator[list[str]]:
    """Give the cells of a notebook in `work` whose user has a home, a registry, and a server that wants a login."""
    needy = {"command": DEMO[0], "args": DEMO[1:], "env": {"KEY": "${SUCH_A_KEY}"}}
    theirs = {name: {"command": DEMO[0], "args": [*DEMO[1:], f"--name={name}"]} for name in ("theirs", "also-theirs")}
    for name, servers in ((".mcp.json", theirs), ("needy.json", {"needy": needy})):
        (work / name).write_text(json.dumps({"mcpServers": servers}))
    with registry_server() as registry, running() as site:
        yield [
            home(folder, registry.address),
            f"%mcp load asks -- {MISBEHAVING} --era legacy;",
            "%mcp panel",
            FORM,
            "mcp.demo.fail(message='on purpose')",
            "mcp.demo.slow(seconds=60, steps=600)",
            "mcp.demo.echo('said'); mcp.demo.query('penguins')",
            f"%mcp load docs {site.url}",
            "%mcp load theirs also-theirs",
            "mcp.load('needy.json', trust=True, wait=False);",
        ]


def tour(notebook: Notebook, page: Page) -> Iterator[str]:
    """Open all views and questions of the sidebar, one after the other; gives the name of each."""
    panel = sidebar(page)
    expect(panel.button("Load ipymcp")).to_be_visible()
    yield "not-loaded"
    notebook.run(SETUP)
    expect(panel.root.get_by_role("heading", name="No servers yet")).to_be_visible()
    yield "no-servers"
    yield from _adding(notebook, page, panel)
    yield from _servers(notebook, page, panel)
    yield from _tools(panel)
    yield from _questions(notebook, page, panel)
    yield from _activity(notebook, panel)
    notebook.restart()
    expect(panel.button("Restore")).to_be_visible()
    yield "restarted"
    notebook.run(SETUP)
    expect(panel.button("Insert as first cell")).to_be_visible()
    yield "restore"


def _field(panel: Panel, label: str) -> Locator:
    found = panel.root.locator("textarea, input").and_(panel.root.get_by_label(label, exact=True))
    return found.filter(visible=True)  # a chosen entry of the registry keeps its name, hidden


def _adding(notebook: Notebook, page: Page, panel: Panel) -> Iterator[str]:
    root = panel.root
    notebook.choose(SERVERS)
    panel.press("Add server…")
    search = root.get_by_role("searchbox", name="Search the MCP registry")
    expect(search).to_be_visible()
    yield "add-search"
    search.fill("clock")
    search.press("Enter")
    entries = root.get_by_role("list", name="Servers of the registry")
    expect(entries.get_by_role("listitem").first).to_be_visible()
    yield "add-found"
    entries.get_by_role("button", name="Clock 1.1.0").click()
    root.get_by_role("combobox", name="Save for").select_option("notebook")
    yield "add-entry"
    panel.press("Try Clock")
    question = root.get_by_role("alertdialog")
    question.get_by_label("CLOCK_KEY").fill(KEY)
    yield "question-values"
    question.get_by_role("button", name="Send").click()
    expect(question).to_contain_text("is to be added to this notebook")
    yield "question-trust-package"
    question.get_by_role("button", name="Trust and start").click()
    expect(root.get_by_role("list", name="Tools of clock")).to_contain_text("settings")
    yield "add-tried"
    panel.press("Cancel")
    root.get_by_role("tab", name="Command").click()
    _field(panel, "Program").fill("no-such-program --with=this")
    _field(panel, "Name").fill("mine")
    yield "add-command"
    panel.press("Start and test")
    expect(root.get_by_role("alert").filter(has_text="no-such-program")).to_be_visible()
    yield "add-failed"
    root.get_by_role("tab", name="URL").click()
    yield "add-url"
    root.get_by_role("tab", name="Paste JSON").click()
    yield "add-json"
    root.get_by_role("combobox", name="Save for").select_option("me")
    definition = {"mcpServers": {"mine": {"command": DEMO[0], "args": DEMO[1:]}}}
    _field(panel, "Definition as JSON").fill(json.dumps(definition))
    panel.press("Start and test")
    expect(root.get_by_role("list", name="Tools of mine")).to_contain_text("echo")
    root.get_by_label("Also insert the cell that loads it").uncheck()
    panel.press("Save")
    panel.expect_state("mine", "ready")


def _servers(notebook: Notebook, page: Page, panel: Panel) -> Iterator[str]:
    root = panel.root
    panel.press("Configured servers…")
    expect(panel.button("Load demo")).to_be_visible()
    yield "servers-load"
    panel.press("Load demo")
    panel.press("Configured servers…")
    notebook.run(SERVERS)
    for name in ("asks", "demo"):
        panel.expect_state(name, "ready")
    yield "servers"
    panel.press("Actions of mine")
    yield "server-menu"
    page.get_by_role("menuitem", name="Edit…").click()
    expect(root.get_by_role("heading", name="Edit mine")).to_be_visible()
    yield "server-edit"
    panel.press("Close")
    panel.press("Actions of mine")
    page.get_by_role("menuitem", name="Remove…").click()
    yield "server-remove"
    panel.press("Remove")
    expect(panel.server("mine")).to_have_count(0)
    root.get_by_role("button", name="demo", exact=True).click()
    yield "server"
    panel.press("Details")
    panel.press("Measure the memory of demo")
    yield "server-details"


def _tools(panel: Panel) -> Iterator[str]:
    root = panel.root
    tools = panel.show("Tools")
    expect(panel.tool("demo.query")).to_be_visible()
    yield "tools"
    panel.press("Enable or disable several tools")
    panel.tool("demo.query").click()
    yield "tools-picked"
    panel.press("Enable or disable several tools")
    panel.find_tool("table of", "demo.query")
    yield "tool"
    tools.get_by_label("table").select_option("penguins")
    tools.get_by_label("limit").fill("0")
    panel.press("Run")
    expect(tools.get_by_role("alert")).to_contain_text("Must be at least")
    yield "tool-errors"
    tools.get_by_label("limit").fill("60")
    panel.press("Run")
    expect(panel.outcome).to_contain_text("Adelie")
    panel.outcome.scroll_into_view_if_needed()
    yield "tool-grid"
    panel.press("Row 1")
    expect(panel.outcome.get_by_role("region", name="Row 1")).to_be_visible()
    yield "tool-grid-row"
    panel.choose("Actions of query", "Show schema")
    yield "tool-schema"
    panel.choose("Actions of query", "Hide schema")
    panel.press("Edit as JSON")
    yield "tool-json"
    panel.go_back()
    panel.find_tool("", "demo.plot")
    panel.press("Run")
    expect(panel.outcome.get_by_role("img")).to_be_visible()
    panel.outcome.scroll_into_view_if_needed()
    yield "tool-image"

    resources = panel.list("Resources")
    expect(resources.get_by_role("treeitem", name="About the penguins")).to_be_visible()
    yield "resources"
    resources.get_by_role("treeitem", name="About the penguins").click()
    expect(resources.locator(".mcp-preview:visible")).to_be_visible()
    yield "resource"
    panel.go_back()
    resources.get_by_role("treeitem").filter(has_text="template").click()
    yield "resource-template"
    prompts = panel.list("Prompts")
    yield "prompts"
    prompts.get_by_role("treeitem", name="Describe a species").click()
    root.get_by_role("textbox", name="species").fill("Gentoo")
    panel.press("Get")
    expect(prompts.locator(".mcp-preview:visible")).to_be_visible()
    yield "prompt"
    panel.go_back()
    panel.list("Tools")


def _questions(notebook: Notebook, page: Page, panel: Panel) -> Iterator[str]:
    root = panel.root
    panel.show("Servers")
    question = root.get_by_role("alertdialog")
    guard = page.locator(".mcp-click-guard")
    notebook.begin(ASK)
    expect(question.get_by_label("Birds")).to_be_visible()
    yield "question-form"
    expect(guard).to_have_count(0)
    question.get_by_role("button", name="Send").click()
    expect(question.get_by_text("required").first).to_be_visible()
    yield "question-form-errors"
    panel.press("Decline")
    notebook.until_idle()
    notebook.begin(LOGIN)
    expect(panel.button("Open link")).to_be_visible()
    yield "question-login"
    expect(guard).to_have_count(0)
    question.get_by_role("button", name="Cancel").click()
    notebook.until_idle()
    notebook.begin(THEIRS)
    expect(question.get_by_role("button", name=re.compile("^Trust (and start|selected)$"))).to_be_visible()
    yield "question-trust"
    expect(guard).to_have_count(0)
    panel.press("Don't trust")
    notebook.until_idle()
    notebook.run(NEEDY)
    panel.expect_state("needy", "failed")
    yield "server-needs-a-value"
    notebook.write(NEEDY, "%mcp policy ask demo.*;")
    notebook.run(NEEDY)
    panel.find_tool("echo", "demo.echo")
    root.get_by_role("textbox", name="text", exact=True).fill("a text that is said back")
    panel.press("Run")
    expect(panel.button("Allow once")).to_be_visible()
    yield "question-approval"
    expect(guard).to_have_count(0)
    panel.press("Allow for longer")
    yield "question-approval-menu"
    page.keyboard.press("Escape")
    panel.press("Deny")
    notebook.write(NEEDY, "%mcp policy allow demo.*;")
    notebook.run(NEEDY)


def _activity(notebook: Notebook, panel: Panel) -> Iterator[str]:
    root = panel.root
    notebook.run(SAID)
    notebook.run(FAIL)
    calls = panel.calls()
    expect(calls.first).to_contain_text("demo.fail")
    notebook.begin(SLOW)
    expect(root.get_by_role("progressbar")).to_be_visible()
    yield "activity"
    panel.press("Cancel demo.slow")
    notebook.until_idle()
    calls.filter(has_text="demo.query").first.click()
    expect(root.get_by_role("heading", name="Arguments")).to_be_visible()
    yield "call"
    panel.go_back()
    calls.filter(has_text="demo.fail").first.click()
    expect(root.get_by_role("heading", name="demo.fail")).to_be_visible()
    yield "call-failed"
    panel.go_back()
    panel.press("Protocol…")
    root.get_by_role("combobox", name="Server", exact=True).locator("visible=true").select_option("demo")
    notebook.run(SAID)
    messages = root.get_by_role("listbox", name="Messages of demo").get_by_role("option")
    expect(messages.first).to_be_visible()
    yield "protocol"
    messages.first.click()
    expect(root.get_by_role("region", name="Selected message").first).to_be_visible()
    yield "protocol-message"
    panel.go_back()
    root.get_by_role("button", name="Calls").click()
    logs = panel.show("Logs")
    logs.get_by_role("combobox", name="Server", exact=True).select_option("demo")
    expect(logs.locator(".mcp-line").first).to_be_visible()
    yield "logs"
    panel.show("Servers")

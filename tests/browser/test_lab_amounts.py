"""JupyterLab with very much of everything."""

import csv
import json
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, WithSidebar
from tests.browser.places import LOAD
from tests.browser.test_lab_calls import DEMO, MISBEHAVING, WATCH_CLICKS
from tests.environments import ROOT
from tests.jupyter_servers import JupyterServer

PANEL_JS = ROOT / "ipymcp" / "panel" / "static" / "panel.js"
NAMED = f"{sys.executable} {ROOT}/tests/servers/named.py"
CARDS = 10
_HEADER = 200
"""Bytes of a frame within which its own type stands, and its parent's not yet."""
MANY_SERVERS = 200
MANY = f"""
idle = {{"command": "python", "args": ["-c", "pass"], "disabled": True}}
mcp.load({{f"server-{{number:03}}": idle for number in range({MANY_SERVERS})}})
%mcp load many -- {NAMED} --many 5000;
"""


def test_ten_cards_cost_no_panel_and_the_notebook_keeps_none_of_it(
    open_notebook: Open, page: Page, jupyter: JupyterServer
) -> None:
    expect_ten_cards(open_notebook, page, jupyter, 0)


def expect_ten_cards(open_notebook: Open, page: Page, jupyter: JupyterServer, library: int) -> None:
    """Show ten cards. They cost the library, in bytes, and little more, and nothing in the saved notebook."""
    received: list[int] = []

    def take(frame: bytes | str) -> None:
        if isinstance(frame, bytes) and b'"msg_type": "comm_' in frame[:_HEADER]:
            received.append(len(frame))

    page.on("websocket", lambda socket: "/channels" in socket.url and socket.on("framereceived", take))
    notebook = open_notebook(DEMO, *['mcp.servers["demo"]'] * CARDS)
    notebook.run(0)
    for index in range(CARDS):
        notebook.run(index + 1)
        expect(notebook.output(index + 1).locator(".mcp-card .mcp-state")).to_have_text("ready")
    assert library < sum(received) < library + 50_000

    notebook.save()
    saved = (jupyter.folder / notebook.path).read_text()
    assert "mcp-card-line" not in saved
    assert "export default" not in saved
    assert len(saved) < 50_000


def test_a_result_of_20_mb_is_a_preview_that_names_the_whole(open_with_sidebar: WithSidebar) -> None:
    notebook, panel = open_with_sidebar(f"{LOAD}\n%mcp load loud -- {MISBEHAVING};", "")
    tools = panel.find_tool("megabytes", "loud.big")
    tools.get_by_label("megabytes").fill("20")
    panel.press("Run")
    foot = panel.outcome.locator(".mcp-foot")
    expect(foot).to_contain_text("20 MB, truncated · full value in mcp.results[1]")
    assert len(panel.outcome.inner_text()) < 500_000
    notebook.write(1, f"len({foot.locator('code').inner_text()}.text)")
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("20000000")


def test_a_large_table_is_paged_sorted_saved_and_used(open_with_sidebar: WithSidebar, page: Page) -> None:
    notebook, panel = open_with_sidebar(f"{LOAD}\n%mcp load own -- {MISBEHAVING};", "")
    view = panel.find_tool("echo", "own.echo")
    rows = [{"place": place, "weight": place * 7919 % 2_003 / 7, "name": f"bird {place}"} for place in range(2_003)]
    view.get_by_label("text").fill(json.dumps(rows))
    panel.press("Run")
    outcome = panel.outcome
    expect(outcome).to_contain_text("50 of 2,003 rows")
    assert outcome.get_by_role("row").count() == 51
    panel.press("Next rows")
    expect(outcome.get_by_role("row").nth(1)).to_contain_text("bird 50")
    panel.press("weight")
    panel.press("weight")
    expect(outcome.get_by_role("columnheader", name="weight")).to_have_attribute("aria-sort", "descending")
    expect(outcome.get_by_role("row").nth(1)).to_contain_text("286.000000")
    panel.press("Row 1")
    expect(outcome.get_by_role("region", name="Row 1")).to_contain_text("286.0")

    for name, read in (("CSV", csv.DictReader), ("JSON", json.load)):
        with page.expect_download() as download:
            panel.press(name)
        assert download.value.suggested_filename == f"result-1.{name.lower()}"
        with download.value.path().open(newline="") as file:
            saved = list(read(file))
        assert [row["name"] for row in saved] == [row["name"] for row in rows]
    panel.press("Parquet")
    expect(outcome.locator(".mcp-problem")).to_contain_text("Parquet needs pyarrow, which is not installed")

    notebook.cell(1).click()
    panel.press("Insert variable")
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("… 1,983 more rows · all in .data")  # there is no pandas


@pytest.mark.timed
def test_5000_tools_and_200_servers_leave_a_panel_that_answers(open_with_sidebar: WithSidebar, page: Page) -> None:
    notebook, panel = open_with_sidebar(LOAD, MANY)
    notebook.run(1)
    panel.expect_state("many", "ready")
    expect(panel.root.locator(".mcp-card")).to_have_count(201)
    panel.root.get_by_role("button", name="server-199", exact=True).click()
    expect(panel.fact("server-199", "Command")).to_have_text("python -c pass")

    page.evaluate(WATCH_CLICKS)
    tools = panel.find_tool("tool_4999", "many.tool_4999")
    panel.go_back()
    tools.get_by_role("searchbox").fill("")
    expect(tools.get_by_role("status").first).to_have_text("5,000 tools")
    assert tools.get_by_role("treeitem").count() < 100, "rows out of sight are not drawn"
    panel.show("Servers")
    panel.find_tool("tool_77", "many.tool_770")
    panel.press("Run")
    expect(panel.outcome).to_contain_text("tool_770")
    assert max(page.evaluate("window.delays")) < 1000

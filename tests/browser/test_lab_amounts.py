"""JupyterLab with very much of everything."""

from __future__ import annotations

import json
import re
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.panels import Panel
from tests.browser.places import LOAD, PANEL, in_cell, sidebar, without_extension
from tests.browser.test_lab_calls import DEMO, MISBEHAVING
from tests.environments import ROOT
from tests.jupyter_servers import JupyterServer

PANEL_JS = ROOT / "ipymcp" / "notebook" / "panel" / "static" / "panel.js"
NAMED = f"{sys.executable} {ROOT}/tests/servers/named.py"
CARDS = 10
_HEADER = 200
"""Bytes of a frame within which its own type stands, and its parent's not yet."""
MANY_SERVERS = 200
MANY = f"""
{LOAD}
import ipymcp
mcp.load({{"mcpServers": {{f"server-{{n:03}}": {{"command": "python", "disabled": True}} for n in range({MANY_SERVERS})}}}})
%mcp load many -- {NAMED} --many 5000;
"""


@pytest.mark.parametrize("with_extension", [True, False])
def test_ten_cards_cost_the_panel_once_and_the_notebook_keeps_none_of_it(
    with_extension: bool, open_notebook: Open, page: Page, jupyter: JupyterServer
) -> None:
    received: list[int] = []

    def take(frame: bytes | str) -> None:
        if isinstance(frame, bytes) and b'"msg_type": "comm_' in frame[:_HEADER]:
            received.append(len(frame))

    page.on("websocket", lambda socket: "/channels" in socket.url and socket.on("framereceived", take))
    if not with_extension:
        without_extension(page)
    notebook = open_notebook(DEMO, *['mcp.servers["demo"]'] * CARDS)
    notebook.run(0)
    for index in range(CARDS):
        notebook.run(index + 1)
        expect(notebook.output(index + 1).locator(".mcp-card .mcp-state")).to_have_text("ready")
    library = 0 if with_extension else PANEL_JS.stat().st_size
    assert library < sum(received) < library + 50_000

    notebook.save()
    saved = (jupyter.folder / notebook.path).read_text()
    assert "mcp-card-line" not in saved
    assert "export default" not in saved
    assert len(saved) < 50_000

"""Take the pictures of the panel that the documents show: `.venv/bin/python docs/images/panel.py [FOLDER]`.

`--all FOLDER` takes pictures of everything that the sidebar shows instead, to be looked at: at three widths, light and
dark. `make all-envs` makes what it needs. Nothing of the user's own Jupyter is touched.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.browser import chromium
from tests.browser.notebooks import Notebook, write_notebook
from tests.browser.places import LOAD, in_cell, lab, opened, resize_sidebar, sidebar
from tests.browser.tour import tour, traveller
from tests.environments import ROOT, environment

SIZE = {"width": 1280, "height": 700}
DARK = "JupyterLab Dark"
CELLS = [
    f"""{LOAD}
%mcp load demo -- python -m ipymcp.demo;
%mcp load time -- {environment("server-time").python} -m mcp_server_time;
%mcp load git -- {environment("server-git").python} -m mcp_server_git;
%mcp load booking -- python {ROOT}/examples/servers/booking.py;
%mcp stop git;""",
    "%mcp panel",
    'await mcp.booking.book.aio("2026-12-24")',
    'mcp.demo.query("penguins", where="body_mass_g > 5400", limit=20)',
    'mcp.demo.plot(kind="bar", height=200)',
    "mcp.demo.slow(seconds=30, steps=60)",
]
QUESTION, QUERY, SLOW = 2, 3, 5


WIDTHS = (300, 420, 1000)


def main() -> int:
    """Take all of them; give the exit status."""
    if sys.argv[1:2] == ["--all"]:
        return everything(Path(sys.argv[2]))
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder)) as server, sync_playwright() as playwright:
        write_notebook(server.folder / "penguins.ipynb", CELLS)
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, device_scale_factor=1.25)
        notebook = opened(page, server, "penguins.ipynb")
        notebook.run(0)
        page.evaluate("jupyterapp.commands.execute('application:toggle-left-area')")
        for name, take in (("question", question), ("cell", cell), ("form", form), ("sidebar", whole), ("dark", dark)):
            picture = target / f"panel-{name}.png"
            take(notebook, page, picture)
            print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")
        browser.close()
    return 0


def everything(target: Path) -> int:
    """Take pictures of all views and questions of the sidebar; give the exit status."""
    with tempfile.TemporaryDirectory() as folder, lab(Path(folder)) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 800})
        for theme in ("JupyterLab Light", DARK):
            name = theme.rpartition(" ")[2].lower()
            work = server.folder / name
            work.mkdir()
            with traveller(server.folder / f"user-{name}", work) as cells:
                write_notebook(work / "penguins.ipynb", cells)
                notebook = opened(page, server, f"{name}/penguins.ipynb")
                page.evaluate("jupyterapp.commands.execute('application:toggle-left-area')")
                page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
                for number, place in enumerate(tour(notebook, page)):
                    for width in WIDTHS:
                        resize_sidebar(page, width)
                        picture = target / f"{name}-{number:02}-{place}-{width}.png"
                        page.locator("#ipymcp-sidebar").screenshot(path=picture)
        browser.close()
    return 0


def cell(notebook: Notebook, page: Page, picture: Path) -> None:
    """A panel in a cell, a server of it opened."""
    notebook.run(1)
    panel = in_cell(notebook, 1)
    for server in ("demo", "time", "booking"):
        panel.expect_state(server, "ready")
    panel.root.get_by_role("button", name="demo", exact=True).click()
    expect(panel.button("Details")).to_be_visible()
    shoot(notebook, 1, picture)
    panel.root.get_by_role("button", name="demo", exact=True).click()


def question(notebook: Notebook, page: Page, picture: Path) -> None:
    """What a server asks, below the cell that waits for it: no panel is open yet."""
    notebook.begin(QUESTION)
    asked = notebook.output(QUESTION).get_by_role("alertdialog")
    asked.get_by_label("Seat").select_option("Garden")
    asked.get_by_label("Guests").fill("4")
    shoot(notebook, QUESTION, picture)
    asked.get_by_role("button", name="Send").click()
    notebook.until_idle()


def form(notebook: Notebook, page: Page, picture: Path) -> None:
    """A tool's form, and what came of it, in the sidebar."""
    panel = sidebar(page)
    tools = panel.find_tool("table", "demo.query")
    tools.get_by_label("table").select_option("penguins")
    tools.get_by_label("where").fill("species = 'Gentoo'")
    tools.get_by_label("limit").fill("4")
    page.set_viewport_size({**SIZE, "height": 900})
    panel.press("Run")
    expect(panel.outcome).to_contain_text("Biscoe")
    page.mouse.move(0, 0)
    panel.root.screenshot(path=picture)
    page.set_viewport_size(SIZE)


def whole(notebook: Notebook, page: Page, picture: Path) -> None:
    """JupyterLab with the sidebar, while a call blocks the kernel."""
    panel = sidebar(page)
    notebook.run(QUERY)
    notebook.run(QUERY + 1)
    notebook.begin(SLOW)
    calls = panel.show("Activity")
    expect(calls.get_by_role("progressbar")).to_be_visible()
    notebook.cell(QUERY).evaluate("cell => cell.scrollIntoView()")
    expect(calls.get_by_text(re.compile(r"step [1-4]\d of 60"))).to_be_visible(timeout=20_000)
    page.screenshot(path=picture)
    panel.press("Cancel demo.slow")
    notebook.until_idle()


def dark(notebook: Notebook, page: Page, picture: Path) -> None:
    """The same notebook in the dark theme, its sidebar with the servers."""
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", DARK)
    expect(page.locator(f"body[data-jp-theme-name='{DARK}']")).to_have_count(1)
    panel = sidebar(page)
    panel.show("Servers")
    notebook.cell(QUERY).evaluate("cell => cell.scrollIntoView()")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=picture)


def shoot(notebook: Notebook, index: int, picture: Path) -> None:
    """Take a picture of one cell."""
    found = notebook.cell(index)
    found.evaluate("cell => cell.scrollIntoView()")
    notebook.page.mouse.move(0, 0)
    found.screenshot(path=picture)


if __name__ == "__main__":
    sys.exit(main())

"""Run a notebook and take a picture of it in JupyterLab.

    .venv/bin/python docs/images/take.py examples/quickstart.ipynb docs/images/quickstart.png --cells 1,3,6,8,10,16,22

`make browser` makes what it needs: the notebook is run by this interpreter, and shown by JupyterLab of `.envs/browser`,
in Chromium. Nothing of the user's own Jupyter is touched.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.sign import NotebookNotary
from playwright.sync_api import Locator, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.browser import chromium
from tests.browser.places import lab
from tests.jupyter_servers import TOKEN, JupyterServer

OWN = ("HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
SCALE = 4 / 3
"""Pixels of the picture for one of the page."""
MARGINS = 70
"""What JupyterLab shows left and right of the cells, in pixels of the page."""
DRAWN = """wanted => {
    const cells = [...document.querySelectorAll(".jp-Notebook .jp-Cell")];
    const outputs = [...document.querySelectorAll(".jp-Notebook .jp-OutputArea-output")];
    const filled = cells.filter(cell => cell.querySelector(".jp-OutputArea-output"));
    return cells.length === wanted.cells && filled.length === wanted.filled
        && cells.every(cell => cell.querySelector(".cm-line, .jp-RenderedMarkdown"))
        && outputs.every(output => output.getBoundingClientRect().height > 0)
        && [...document.images].every(image => image.complete && image.naturalWidth > 0);
}"""
"""Whether all cells, their outputs and the pictures in these are drawn: Markdown and pictures come last."""
STYLE = """
.jp-Notebook-footer, .jp-Cell .jp-Toolbar { display: none !important }
.jp-Cell { border-color: transparent !important; box-shadow: none !important }
.jp-Collapser { visibility: hidden !important }
.jp-mod-active .jp-InputPrompt { color: var(--jp-cell-prompt-not-active-font-color) !important }
"""


def main() -> int:
    """Take the picture that the command line asks for; give the exit status."""
    parser = argparse.ArgumentParser(description="Run a notebook and take a picture of it in JupyterLab.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--cells", metavar="N,N,…", help="run and show only these, counted from 0 (default: all)")
    parser.add_argument("--width", type=int, default=1200, metavar="PX", help="of the picture (default: 1200)")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, lab(Path(folder)) as server:
        wanted = run(options.notebook, options.cells, server)
        take(f"{server.url}doc/tree/{options.notebook.name}?reset&token={TOKEN}", wanted, options)
    print(f"{options.picture}: {options.picture.stat().st_size / 1000:.0f} kB")
    return 0


def run(notebook: Path, cells: str | None, server: JupyterServer) -> dict[str, int]:
    """Execute the notebook and write it, trusted, so that all its outputs are shown. Jupyter is the server's for it.

    Returns:
        How many cells it has, and how many of them have outputs.
    """
    os.environ.update({name: server.environment[name] for name in OWN})
    content = nbformat.read(notebook, as_version=4)
    if cells is not None:
        content.cells = [content.cells[int(number)] for number in cells.split(",")]
    NotebookClient(content, timeout=120, kernel_name="python3").execute()
    nbformat.write(content, server.folder / notebook.name)
    NotebookNotary().sign(content)
    return {"cells": len(content.cells), "filled": sum(bool(cell.get("outputs")) for cell in content.cells)}


def take(address: str, wanted: dict[str, int], options: argparse.Namespace) -> None:
    """Open the page and write the picture, once what is wanted is drawn."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        width = round(options.width / SCALE) + MARGINS
        # Tall, because the cells out of sight are not drawn.
        page = browser.new_page(viewport={"width": width, "height": 6000}, device_scale_factor=SCALE)
        page.goto(address, timeout=120_000)
        page.add_style_tag(content=STYLE)
        cells = page.locator(".jp-Notebook .jp-Cell")
        page.wait_for_function(DRAWN, arg=wanted, timeout=120_000)
        page.evaluate("document.fonts.ready")
        page.wait_for_load_state("networkidle")
        first, last = box(cells.first), box(cells.last)
        margin = 8
        clip = {"x": first["x"] - margin, "y": first["y"] - margin, "width": first["width"] + 2 * margin}
        clip["height"] = last["y"] + last["height"] - first["y"] + 2 * margin
        page.screenshot(path=options.picture, clip=clip)
        browser.close()


def box(cell: Locator) -> dict[str, float]:
    """Where a cell is on the page."""
    found = cell.bounding_box()
    assert found is not None
    return dict(found)


if __name__ == "__main__":
    sys.exit(main())

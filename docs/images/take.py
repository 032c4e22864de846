"""Run a notebook and take a picture of it in JupyterLab.

    python docs/images/take.py examples/quickstart.ipynb docs/images/quickstart.png --cells 1,3,6,8,10,16,22

Needs ipymcp, pandas, jupyterlab, nbclient and playwright (pip install) in the interpreter that runs it, and Chromium
(Debian: apt-get install chromium), on the PATH or named with --browser. Nothing of the user's own Jupyter is touched.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.sign import NotebookNotary
from playwright.sync_api import Locator, sync_playwright

SCALE = 4 / 3
"""Pixels of the picture for one of the page."""
MARGINS = 70
"""What JupyterLab shows left and right of the cells, in pixels of the page."""
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
    parser.add_argument("--browser", default=shutil.which("chromium") or "chromium", metavar="PROGRAM")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder, private_jupyter(Path(folder)):
        work = Path(folder, "notebooks")
        work.mkdir()
        run(options.notebook, options.cells, work / options.notebook.name)
        with jupyterlab(work) as address:
            take(f"{address}/doc/tree/{options.notebook.name}?reset", options)
    print(f"{options.picture}: {options.picture.stat().st_size / 1000:.0f} kB")
    return 0


@contextlib.contextmanager
def private_jupyter(folder: Path) -> Iterator[None]:
    """Have Jupyter keep all its files under this folder."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTERLAB_WORKSPACES_DIR")
    before = dict(os.environ)
    os.environ.update({name: str(folder / name.lower()) for name in names})
    os.environ["JUPYTERLAB_SETTINGS_DIR"] = str(folder / "settings")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(notebook: Path, cells: str | None, executed: Path) -> None:
    """Execute the notebook and write it, trusted, so that all its outputs are shown."""
    content = nbformat.read(notebook, as_version=4)
    if cells is not None:
        content.cells = [content.cells[int(number)] for number in cells.split(",")]
    NotebookClient(content, timeout=120, kernel_name="python3").execute()
    nbformat.write(content, executed)
    NotebookNotary().sign(content)


@contextlib.contextmanager
def jupyterlab(root: Path) -> Iterator[str]:
    """A JupyterLab of this folder, for nobody else; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    options = [f"--port={port}", "--ip=127.0.0.1", "--no-browser", "--allow-root", f"--ServerApp.root_dir={root}"]
    options += ["--IdentityProvider.token=", "--ServerApp.password=", "--LabApp.news_url=None", "--log-level=CRITICAL"]
    server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options])
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"{address}/api", timeout=5).close()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def take(address: str, options: argparse.Namespace) -> None:
    """Open the page and write the picture."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.browser, args=["--no-sandbox"])
        width = round(options.width / SCALE) + MARGINS
        # Tall, because the cells out of sight are not drawn.
        page = browser.new_page(viewport={"width": width, "height": 6000}, device_scale_factor=SCALE)
        page.goto(address, timeout=120_000)
        page.add_style_tag(content=STYLE)
        cells = page.locator(".jp-Notebook .jp-Cell")
        page.locator(".jp-Notebook .jp-OutputArea-output").first.wait_for(timeout=120_000)
        page.wait_for_load_state("networkidle")
        page.wait_for_function("[...document.images].every(image => image.complete)")
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

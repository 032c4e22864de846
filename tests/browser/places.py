"""The places where a panel is shown: cells and sidebars of JupyterLab and Notebook 7, and Voilà's pages."""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.browser.notebooks import Notebook, write_notebook
from tests.browser.panels import Panel
from tests.environments import environment
from tests.jupyter_servers import TOKEN, JupyterServer, started
from tests.kernels import private_environment
from tests.processes import descendants, wait_until_gone

LOAD = "%load_ext ipymcp\n%config IPyMCP.quiet = True"
PANEL = "%mcp panel"
_NO_NEWS = {"fetchNews": "false", "checkForUpdates": False}
"""They would cover the page."""
LAB = "lab/tree"
"""JupyterLab; Notebook 7 is `notebooks`."""


@contextlib.contextmanager
def lab(folder: Path, name: str = "browser") -> Iterator[JupyterServer]:
    """A server of that environment, with settings of its own, whose pages let themselves be driven."""
    settings = folder / "jupyter" / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(_NO_NEWS))
    exposed = {"expose_app_in_browser": True}
    config = {"LabApp": exposed, "JupyterNotebookApp": exposed}
    with started(folder, config, lab=environment(name).python) as server:
        yield server


def opened(page: Page, server: JupyterServer, path: str, app: str = LAB) -> Notebook:
    """Open the notebook of that path, and wait for its kernel.

    JupyterLab opens it in a workspace of its own: a page that was just closed may still save its layout, with the
    sidebar open, into the one they share.
    """
    folder = f"lab/workspaces/{secrets.token_hex(4)}/tree" if app == LAB else app
    page.goto(f"{server.url}{folder}/{quote(path)}?token={TOKEN}")
    page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext")
    notebook = Notebook(page, path)
    notebook.wait()
    return notebook


def sidebar(page: Page) -> Panel:
    """The sidebar, opened."""
    page.evaluate("jupyterapp.commands.execute('ipymcp:open')")
    root = page.locator("#ipymcp-sidebar")
    expect(root).to_be_visible()
    return Panel(root)


def resize_sidebar(page: Page, width: int) -> None:
    """Make the sidebar on the right so many pixels wide, and close that on the left."""
    sizes = "panels.setRelativeSizes([0, panels.node.clientWidth - width, width])"
    page.evaluate(f"width => {{ const panels = jupyterapp.shell._hsplitPanel; {sizes}; }}", width)


def without_extension(page: Page) -> None:
    """Have no page load JupyterLab's extension: what cells show is the kernel's widgets then."""
    page.route("**/extensions/ipymcp/**", lambda route: route.abort())


def in_cell(notebook: Notebook, index: int) -> Panel:
    """The panel that a cell has displayed."""
    root = notebook.output(index).locator(".ipymcp-cell")
    expect(root).to_be_visible()
    return Panel(root)


class Voila:
    """Serves a folder of notebooks, each run anew for each page."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def open(self, page: Page, *cells: str) -> Panel:
        """Open a notebook of these cells; gives the panel in it."""
        write_notebook(self.folder / "page.ipynb", cells)
        page.goto(f"{self.url}voila/render/page.ipynb", timeout=60_000)
        root = page.locator(".ipymcp-cell")
        expect(root).to_be_visible()
        return Panel(root)

    @staticmethod
    @contextlib.contextmanager
    def started(folder: Path) -> Iterator[Voila]:
        python = environment("browser").python
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [str(python), "-m", "voila", str(folder), "--no-browser", f"--port={port}", "--base_url=/some/where/"]
        variables = private_environment(python, folder, {"IPYMCP_KEYRING": "off"})
        log = folder / "voila.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=variables, cwd=folder, stdout=output, stderr=output)
        url = f"http://127.0.0.1:{port}/some/where/"
        try:
            deadline = time.monotonic() + 60
            while not _answers(url):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
            yield Voila(folder, url)
        finally:
            below = descendants(process.pid)
            process.terminate()
            process.wait(timeout=30)
            wait_until_gone(below, within=15)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True

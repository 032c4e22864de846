"""The places where a panel is shown: cells and sidebars of JupyterLab and Notebook 7, and Voilà's pages."""

from __future__ import annotations

import contextlib
import json
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
from playwright.sync_api import BrowserContext, Page, ViewportSize, expect

from tests.browser.notebooks import Notebook, execute, write_notebook
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
"""JupyterLab."""
NOTEBOOK_7 = "notebooks"
SIZE: ViewportSize = {"width": 1400, "height": 900}
LAPTOP: ViewportSize = {"width": 1280, "height": 800}
LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"
_SIZES = "jupyterapp.shell._hsplitPanel.relativeSizes()"
_RESET = """async ([sizes, theme]) => {
    const { shell, commands } = jupyterapp;
    for (const widget of [...shell.widgets("main")]) widget.dispose();
    if (document.body.dataset.jpThemeName !== theme) await commands.execute("apputils:change-theme", { theme });
    await commands.execute("apputils:dismiss-notification", {});
    shell.activateById("filebrowser");
    shell.expandRight();
    shell._hsplitPanel.setRelativeSizes(sizes);
    shell.collapseRight();
    document.activeElement?.blur();
    // What is drawn in frames goes in a later one.
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    return !document.querySelector(".jp-Dialog, .lm-Menu");
}"""
"""Close all and show the file browser alone; give whether nothing is left over the page."""


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
    folder = f"{_new_workspace()}/tree" if app == LAB else app
    page.goto(f"{server.url}{folder}/{quote(path)}?token={TOKEN}")
    page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.sessionContext")
    notebook = Notebook(page, path)
    notebook.wait()
    return notebook


def _new_workspace() -> str:
    return f"lab/workspaces/{secrets.token_hex(4)}"


class SharedLab:
    """JupyterLab in a page that tests share, one after the other. It is loaded when the first of them needs it.

    Args:
        context: The browser context of the page.
        server: The server.
        with_extension: Whether the page loads ipymcp's extension: without it, cells show the kernel's widgets.
    """

    def __init__(self, context: BrowserContext, server: JupyterServer, *, with_extension: bool = True) -> None:
        self._context = context
        self._server = server
        self._with_extension = with_extension
        self._page: Page | None = None
        self._sizes: list[float] = []

    @property
    def page(self) -> Page:
        """The page, with JupyterLab and no notebook."""
        if self._page is None:
            self._page = page = self._context.new_page()
            if not self._with_extension:
                page.route("**/extensions/ipymcp/**", lambda route: route.abort())
            page.goto(f"{self._server.url}{_new_workspace()}?token={TOKEN}")
            page.wait_for_function("() => window.jupyterapp")
            page.evaluate("async () => { await jupyterapp.restored; }")
            self._sizes = page.evaluate(_SIZES)
        return self._page

    def open(self, path: str) -> Notebook:
        """Open a notebook beside nothing else, and wait for its kernel."""
        execute(self.page, "docmanager:open", path=path)
        self.page.evaluate(
            "for (const each of [...jupyterapp.shell.widgets('main')]) if (!each.context) each.dispose()"
        )
        notebook = Notebook(self.page, path)
        notebook.wait()
        return notebook

    @contextlib.contextmanager
    def without_extension(self) -> Iterator[None]:
        """Have the page loaded again without ipymcp's extension, and once more afterwards."""
        self.close()
        self._with_extension = False
        yield
        self.close()
        self._with_extension = True

    def reset(self) -> None:
        """Close what is open."""
        if self._page is not None:
            self._page.set_viewport_size(SIZE)
            self._page.mouse.move(0, 0)
            if not self._page.evaluate(_RESET, [self._sizes, LIGHT]):
                self.close()

    def close(self) -> None:
        """Close the page; the next test loads another."""
        if self._page is not None:
            self._page.close()
            self._page = None


def sidebar(page: Page) -> Panel:
    """The sidebar, opened."""
    execute(page, "ipymcp:open")
    root = page.locator("#ipymcp-sidebar")
    expect(root).to_be_visible()
    return Panel(root)


def resize_sidebar(page: Page, width: int) -> None:
    """Make the sidebar on the right so many pixels wide, and close that on the left."""
    sizes = "panels.setRelativeSizes([0, panels.node.clientWidth - width, width])"
    page.evaluate(f"width => {{ const panels = jupyterapp.shell._hsplitPanel; {sizes}; }}", width)


def in_cell(notebook: Notebook, index: int) -> Panel:
    """The panel that a cell has displayed."""
    root = notebook.output(index).locator(".ipymcp-cell")
    expect(root).to_be_visible()
    return Panel(root)


class Voila:
    """Serves a folder of notebooks, run again for each page."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url

    def open(self, page: Page, *cells: str) -> Panel:
        """Open a notebook of these cells; gives the panel in it."""
        write_notebook(self.folder / "page.ipynb", cells)
        page.goto(f"{self.url}voila/render/page.ipynb", timeout=60_000)
        root = page.locator(".ipymcp-cell").first
        expect(root).to_be_visible()
        return Panel(root)

    @staticmethod
    @contextlib.contextmanager
    def started(folder: Path) -> Iterator[Voila]:
        python = environment("browser").python
        options = ["--no-browser", "--port=0", "--base_url=/some/where/", "--KernelManager.transport=ipc"]
        command = [str(python), "-m", "voila", str(folder), *options]
        variables = private_environment(python, folder, {"IPYMCP_KEYRING": "off"})
        log = folder / "voila.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, env=variables, cwd=folder, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 60
            while not (port := _listening_port(process.pid)):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.05)
            yield Voila(folder, f"http://127.0.0.1:{port}/some/where/")
        finally:
            below = descendants(process.pid)
            process.terminate()
            process.wait(timeout=30)
            wait_until_gone(below, within=15)


def _listening_port(pid: int) -> int | None:
    """The port that a process has bound and listens on; its own log names the one it was started with."""
    connections = psutil.Process(pid).net_connections("tcp4")
    return next((each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN), None)

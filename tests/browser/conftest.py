"""One browser and one Jupyter server for the whole run; pages, and the kernels behind them, for one test each."""

import contextlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser import chromium
from tests.browser.notebooks import Notebook, write_notebook
from tests.browser.places import LAB, Voila, lab, opened
from tests.environments import environment
from tests.jupyter_servers import JupyterServer
from tests.scripted import DEMO

SIZE = {"width": 1400, "height": 900}
PATIENCE = 30_000
"""Milliseconds after which what should be on a page is missing: the machine may be busy."""

MODELS = "models"
"""The environment of kernels that ask models."""
_OURS = re.compile(r"extensions/ipymcp/static|blob:")

Answering = Callable[..., Notebook]
"""`open_answering(ECHO)`: a notebook whose first cell loads all, and that asks a model this; the next asks it again."""

Open = Callable[..., Notebook]
"""`open_notebook("%load_ext ipymcp", "%mcp panel")`: those cells in JupyterLab, with a kernel."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JupyterServer]:
    """JupyterLab and Notebook 7, with a login."""
    with lab(tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture(scope="module")
def voila(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Voila]:
    with Voila.started(tmp_path_factory.mktemp("voila")) as server:
        yield server


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """Pages that share what was loaded, and the clipboard."""
    context = browser.new_context(viewport=SIZE)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, tmp_path: Path) -> Iterator[Page]:
    """An empty page. What our code throws in it fails the test; `tmp_path` takes the picture of a test that fails."""
    with watched(context) as page:
        yield page


@contextlib.contextmanager
def watched(context: BrowserContext) -> Iterator[Page]:
    """An empty page, in which our code must not throw."""
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: _OURS.search(error.stack or "") and faults.append(error.stack or ""))
    yield page
    page.close()
    assert not faults


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Iterator[None]:
    """Keep a picture of the page where a test failed."""
    report = yield
    if report.when != "teardown" and report.failed and "page" in item.funcargs:
        picture = item.funcargs["tmp_path"] / "page.png"
        item.funcargs["page"].screenshot(path=picture)
        report.sections.append(("the page", f"{picture}\n"))
    return report


@pytest.fixture
def work(jupyter: JupyterServer) -> Iterator[Path]:
    """A folder for the test's notebooks, below the server's; its kernels end with the test. No other has its name."""
    folder = Path(tempfile.mkdtemp(prefix="work-", dir=jupyter.folder))
    yield folder
    jupyter.end_sessions()
    shutil.rmtree(folder)


@pytest.fixture
def open_notebook(jupyter: JupyterServer, page: Page, work: Path) -> Open:
    def open_it(*cells: str, name: str = "notebook", app: str = LAB) -> Notebook:
        write_notebook(work / f"{name}.ipynb", cells)
        return opened(page, jupyter, f"{work.name}/{name}.ipynb", app)

    return open_it


@pytest.fixture
def open_answering(jupyter: JupyterServer, page: Page, work: Path, models: str) -> Answering:
    spec = jupyter.folder / "jupyter" / "data" / "kernels" / MODELS
    spec.mkdir(parents=True, exist_ok=True)
    argv = [str(environment(MODELS).python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    keys = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{models}/v1"}
    kernel = {"argv": argv, "display_name": MODELS, "language": "python", "env": keys}
    (spec / "kernel.json").write_text(json.dumps(kernel))
    setup = ["%load_ext ipymcp", f"%mcp load demo -- {sys.executable} -I -S {DEMO};", "%mcp policy ask demo.*;"]

    def open_it(text: str, app: str = LAB) -> Notebook:
        cells = ["\n".join([*setup, "%config IPyMCP.model = 'openai-chat:tools'"]), *[f"%mcp ask {text}"] * 2]
        named = {"name": MODELS, "display_name": MODELS, "language": "python"}
        write_notebook(work / "notebook.ipynb", cells, kernelspec=named)
        return opened(page, jupyter, f"{work.name}/notebook.ipynb", app)

    return open_it

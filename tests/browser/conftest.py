"""One browser and one Jupyter server for the whole run, one page of JupyterLab for the tests of a module.

Each test opens notebooks of its own, with their kernels, in that page; what is about loading a page has one of its own.
"""

import contextlib
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, WebError, expect, sync_playwright

from tests import apps
from tests.browser import chromium
from tests.browser.notebooks import Notebook, write_notebook
from tests.browser.panels import Panel
from tests.browser.places import LAB, LAPTOP, LOAD, SIZE, SharedLab, Voila, lab, opened, sidebar
from tests.environments import environment
from tests.jupyter_servers import JupyterServer
from tests.scripted import DEMO, scripted_models

PATIENCE = 30_000
"""Milliseconds after which what should be on a page is missing: the machine may be busy."""

MODELS = "models"
"""The environment of kernels that ask models, and their kernelspec."""
MODELS_KERNEL = {"display_name": MODELS, "language": "python"}
_OURS = re.compile(r"extensions/ipymcp/static|blob:")

Answering = Callable[..., Notebook]
"""`open_answering(ECHO)`: a notebook whose first cell loads all, and that asks a model this; the next asks it again."""

Open = Callable[..., Notebook]
"""`open_notebook("%load_ext ipymcp", "%mcp panel")`: those cells in JupyterLab, with a kernel."""

WithSidebar = Callable[..., tuple[Notebook, Panel]]
"""`open_with_sidebar("%load_ext ipymcp", "1 + 1")`: those cells, of which the first has run, and the sidebar."""

ShowApp = Callable[..., Notebook]
"""`show_app("chart", html, "1 + 1")`: a notebook whose cell 1 has shown the app of `apps.chart`; more cells follow."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=chromium.ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def models() -> Iterator[str]:
    """The address of models that answer by a script, without `/v1`."""
    with scripted_models() as address:
        yield address


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory, models: str) -> Iterator[JupyterServer]:
    """JupyterLab and Notebook 7, with a login, and kernels that ask models."""
    folder = tmp_path_factory.mktemp("jupyter")
    spec = folder / "jupyter" / "data" / "kernels" / MODELS
    spec.mkdir(parents=True)
    argv = [str(environment(MODELS).python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    keys = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{models}/v1"}
    (spec / "kernel.json").write_text(json.dumps({**MODELS_KERNEL, "argv": argv, "env": keys}))
    with lab(folder) as server:
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


@pytest.fixture(scope="session")
def faults(context: BrowserContext) -> list[str]:
    """Stacks of what our code has thrown in a page."""
    faults: list[str] = []

    def take(error: WebError) -> None:
        stack = error.error.stack or ""
        if _OURS.search(stack):
            faults.append(stack)

    context.on("weberror", take)
    return faults


@pytest.fixture(autouse=True)
def nothing_is_thrown(context: BrowserContext, faults: list[str], tmp_path: Path) -> Iterator[None]:
    """Fails the test in which our code throws in a page. `tmp_path` takes the pictures of a test that fails."""
    yield
    for page in context.pages:
        page.evaluate("0")  # what was thrown before comes first
    thrown, faults[:] = [*faults], []
    assert thrown == []


@pytest.fixture(scope="module")
def shared_lab(context: BrowserContext, jupyter: JupyterServer) -> Iterator[SharedLab]:
    shared = SharedLab(context, jupyter)
    yield shared
    shared.close()


@pytest.fixture
def work(jupyter: JupyterServer, ending: ThreadPoolExecutor) -> Iterator[Path]:
    """A folder for the test's notebooks, below the server's; their kernels end after the test."""
    yield Path(tempfile.mkdtemp(prefix="work-", dir=jupyter.folder))
    for session_id in jupyter.session_ids():
        ending.submit(jupyter.end_session, session_id)


@pytest.fixture(scope="session")
def ending() -> Iterator[ThreadPoolExecutor]:
    """Waits for the end of kernels of earlier tests, while the next test runs."""
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def clean_lab(shared_lab: SharedLab, work: Path, request: pytest.FixtureRequest) -> Iterator[SharedLab]:
    """The module's JupyterLab, in which nothing is open."""
    yield shared_lab
    if _FAILED in request.node.stash:
        shared_lab.close()
    else:
        shared_lab.reset()


@pytest.fixture
def page(clean_lab: SharedLab) -> Page:
    """The page of the module's JupyterLab."""
    return clean_lab.page


@pytest.fixture
def new_page(context: BrowserContext) -> Iterator[Page]:
    """An empty page."""
    with context.new_page() as page:
        yield page


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Iterator[None]:
    """Keep pictures of the pages where a test failed."""
    report = yield
    if report.when != "teardown" and report.failed and {"context", "tmp_path"} <= item.funcargs.keys():
        item.stash[_FAILED] = True
        for number, page in enumerate(item.funcargs["context"].pages):
            picture = item.funcargs["tmp_path"] / f"page-{number}.png"
            with contextlib.suppress(Error):  # of a page that does not respond there is none
                page.screenshot(path=picture)
            report.sections.append((f"page {number}: {page.url}", f"{picture}\n"))
    return report


@pytest.fixture
def open_file(
    context: BrowserContext, jupyter: JupyterServer, clean_lab: SharedLab
) -> Iterator[Callable[[str, str], Notebook]]:
    """Opens the notebook of a path in an app: the module's JupyterLab, or a page of its own for another."""
    with contextlib.ExitStack() as pages:

        def open_it(path: str, app: str) -> Notebook:
            if app == LAB:
                return clean_lab.open(path)
            other = pages.enter_context(context.new_page())
            other.set_viewport_size(LAPTOP)
            return opened(other, jupyter, path, app)

        yield open_it


@pytest.fixture
def open_notebook(open_file: Callable[[str, str], Notebook], work: Path) -> Open:
    def open_it(*cells: str, name: str = "notebook", app: str = LAB) -> Notebook:
        write_notebook(work / f"{name}.ipynb", cells)
        return open_file(f"{work.name}/{name}.ipynb", app)

    return open_it


@pytest.fixture
def open_with_sidebar(open_notebook: Open, page: Page) -> WithSidebar:
    def open_it(*cells: str, name: str = "notebook") -> tuple[Notebook, Panel]:
        notebook = open_notebook(*cells, name=name)
        notebook.run(0)
        return notebook, sidebar(page)

    return open_it


@pytest.fixture
def show_app(open_notebook: Open, work: Path) -> ShowApp:
    def show(name: str, html: str, *more: str, call: str = "", ui: Any = None) -> Notebook:
        apps.write(work / "pages", name, html, ui)
        notebook = open_notebook(f"{LOAD}\n{apps.load(work / 'pages')}", call or f"mcp.apps.{name}()", *more)
        notebook.run(0)
        notebook.run(1)
        return notebook

    return show


@pytest.fixture
def open_answering(open_file: Callable[[str, str], Notebook], work: Path) -> Answering:
    def open_it(text: str, app: str = LAB) -> Notebook:
        write_answering(work / "notebook.ipynb", *[f"%mcp ask {text}"] * 2)
        return open_file(f"{work.name}/notebook.ipynb", app)

    return open_it


def write_answering(path: Path, *cells: str) -> None:
    """Write a notebook whose first cell loads the demo server and names a model; these cells follow."""
    load = f"%load_ext ipymcp\n%mcp load demo -- {sys.executable} -I -S {DEMO};\n%mcp policy ask demo.*;"
    setup = f"{load}\n%config IPyMCP.model = 'openai-chat:tools'"
    write_notebook(path, [setup, *cells], kernelspec={"name": MODELS, **MODELS_KERNEL})

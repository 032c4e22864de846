"""A notebook that is open in JupyterLab or in Notebook 7, driven as their own commands drive it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import FrameLocator, Locator, Page, expect

_FIND = """
const find = path => [...jupyterapp.shell.widgets("main")].find(each => each.context?.path === path);
"""


class Notebook:
    """One notebook in a page.

    Args:
        page: The page.
        path: The notebook's, below the server's root.
    """

    def __init__(self, page: Page, path: str) -> None:
        self.page = page
        self.path = path

    @property
    def root(self) -> Locator:
        """The visible notebook."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def cell(self, index: int) -> Locator:
        return self.root.locator(".jp-CodeCell").nth(index)

    def output(self, index: int) -> Locator:
        return self.cell(index).locator(".jp-OutputArea").first

    def wait(self) -> None:
        """Wait until it has a kernel."""
        expect(self.root).to_have_count(1)
        self._do("await notebook.sessionContext.ready; await notebook.sessionContext.session.kernel.info")

    def activate(self) -> None:
        """Bring its tab to the front."""
        self._do("jupyterapp.shell.activateById(notebook.id)")

    def open_beside(self, path: str) -> Notebook:
        """Open another notebook in the same page; it is the active one then."""
        execute(self.page, "docmanager:open", path=path)
        other = Notebook(self.page, path)
        other.wait()
        return other

    def run(self, index: int) -> None:
        """Run a cell to its end."""
        self._do(_RUN, index)

    def begin(self, index: int) -> None:
        """Run a cell, and do not wait for it."""
        self._do(_RUN.replace("await jupyterapp", "jupyterapp"), index)

    def interrupt(self) -> None:
        """Interrupt the kernel."""
        self._do("await notebook.sessionContext.session.kernel.interrupt()")

    def until_idle(self) -> None:
        """Wait for the end of what runs."""
        self._do("await notebook.sessionContext.session.kernel.requestKernelInfo()")

    def choose(self, index: int) -> None:
        """Make a cell the active one."""
        self._do("notebook.content.activeCellIndex = argument", index)

    def source(self, index: int) -> str:
        return str(self._do("return notebook.content.widgets[argument].model.sharedModel.getSource()", index))

    def sources(self) -> list[str]:
        return list(self._do("return notebook.content.widgets.map(each => each.model.sharedModel.getSource())"))

    def cell_id(self, index: int) -> str:
        return str(self._do("return notebook.content.widgets[argument].model.id", index))

    def replace_after(self, index: int, *sources: str) -> None:
        """Replace the cells after one by cells that were not run."""
        trusted = {"cell_type": "code", "metadata": {"trusted": True}}  # as a cell that a user inserts
        self._do(_REPLACE, [index + 1, [{**trusted, "source": source} for source in sources]])

    def write(self, index: int, source: str) -> None:
        """Replace what is in a cell."""
        self._do("notebook.content.widgets[argument[0]].model.sharedModel.setSource(argument[1])", [index, source])

    def save(self) -> None:
        self._do("await notebook.context.save()")

    def is_trusted(self) -> bool:
        """Whether all its cells are."""
        return bool(self._do("return notebook.content.widgets.every(each => each.model.trusted)"))

    def kernel_id(self) -> str:
        return str(self._do("return notebook.sessionContext.session.kernel.id"))

    def restart(self) -> None:
        """Restart the kernel, as the menu does once one has agreed."""
        self._do("await notebook.sessionContext.session.kernel.restart()")

    def shut_down(self) -> None:
        """Shut the kernel down, as the menu does."""
        self._do("await notebook.sessionContext.shutdown()")

    def _do(self, script: str, argument: Any = None) -> Any:
        # The page keeps the promise: one that nothing there refers to may be collected before it is settled.
        run = f"async ([path, argument]) => {{ {_FIND} const notebook = find(path); {script} }}"
        body = f"given => (globalThis.pendingOfTest = ({run})(given))"
        return self.page.evaluate(body, [self.path, argument])


_RUN = """
jupyterapp.shell.activateById(notebook.id);
notebook.content.activeCellIndex = argument;
await jupyterapp.commands.execute("notebook:run-cell");
"""


_REPLACE = """
const [start, cells] = argument;
const shared = notebook.content.model.sharedModel;
shared.transact(() => {
    shared.deleteCellRange(start, shared.cells.length);
    shared.insertCells(start, cells);
});
"""


def execute(page: Page, command: str, **arguments: Any) -> None:
    """Execute one of JupyterLab's commands. What it gives stays in the page: a widget takes seconds to serialize."""
    script = "async ([command, args]) => { await jupyterapp.commands.execute(command, args); }"
    page.evaluate(script, [command, arguments])


def app_in(notebook: Notebook, index: int) -> FrameLocator:
    """The page of the app in a cell's output."""
    return notebook.output(index).frame_locator(".ipymcp-app-frame").frame_locator("iframe")


def write_notebook(path: Path, cells: Iterable[str], **metadata: Any) -> None:
    """Write a notebook of these code cells, not run."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata.update(metadata)
    nbformat.write(notebook, path)

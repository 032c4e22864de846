"""A model's answer as a source of cells, in JupyterLab and in Notebook 7."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Answering
from tests.browser.notebooks import Notebook


def sources(notebook: Notebook) -> list[str]:
    script = "[...jupyterapp.shell.currentWidget.content.widgets].map((each) => each.model.sharedModel.getSource())"
    return notebook.page.evaluate(script)


@pytest.mark.parametrize("app", ["lab/tree", "notebooks"])
def test_a_call_and_a_code_block_are_inserted_as_cells_and_not_run(
    app: str, open_answering: Answering, page: Page, work: Path
) -> None:
    notebook = open_answering('demo__echo({"text": "\\n```python\\nx = 1\\nprint(x)\\n```"})', app)
    notebook.run(0)
    notebook.begin(1)
    notebook.output(1).get_by_role("button", name="Allow once").click()
    notebook.until_idle()
    before = sources(notebook)
    buttons = notebook.output(1).get_by_role("button", name="Insert as cell")
    expect(buttons).to_have_count(2)

    buttons.first.click()
    call = r"mcp.demo.echo(text='\n```python\nx = 1\nprint(x)\n```')"
    assert sources(notebook) == [*before[:2], call, *before[2:]]
    buttons.last.click()
    assert sources(notebook) == [*before[:2], "x = 1\nprint(x)", call, *before[2:]]
    expect(notebook.output(2)).to_be_empty()

    notebook.save()
    saved = json.loads((work / "notebook.ipynb").read_text())
    assert "<button" not in json.dumps(saved), "no page made from it has a dead button"

"""The notebooks of `examples/` run from top to bottom, in a kernel of their own, with no network."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.environments import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook after a run in an empty folder; a failing cell raises, unless it is marked as one that does."""
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=60, kernel_name="python3", resources=resources).execute()
    return notebook


@pytest.fixture
def private_jupyter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_without_an_error_it_does_not_announce(
    path: Path, tmp_path: Path, private_jupyter: None
) -> None:
    notebook = executed(path, tmp_path)

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    announced = [cell for cell in notebook.cells if "raises-exception" in cell.metadata.get("tags", ())]
    assert len([output for output in outputs if output.output_type == "error"]) == len(announced)
    assert [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"] == []


def test_the_quickstart_shows_a_table_a_chart_progress_and_an_error(tmp_path: Path, private_jupyter: None) -> None:
    notebook = executed(ROOT / "examples" / "quickstart.ipynb", tmp_path)

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    shown = [output.data for output in outputs if output.output_type in ("display_data", "execute_result")]
    texts = [data.get("text/plain", "") for data in shown]
    assert "✓ demo: ready, 5 tools" in texts
    assert any("text/html" in data and "bill_length_mm" in data["text/html"] for data in shown)
    assert any('<img src="data:image/png;base64,' in data.get("text/html", "") for data in shown)
    assert "demo.slow 8/8 step 8 of 8" in texts
    assert [output.ename for output in outputs if output.output_type == "error"] == ["ArgumentError"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)

    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.execution_count, cell.outputs) for cell in code] == [(None, [])] * len(code)

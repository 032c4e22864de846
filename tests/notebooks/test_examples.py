"""The notebooks of `examples/` run from top to bottom, in a kernel of their own, with no network."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.environments import ROOT, environment

EXAMPLES = ROOT / "examples"
NOTEBOOKS = {path.stem: path for path in sorted(EXAMPLES.rglob("*.ipynb")) if ".ipynb_checkpoints" not in path.parts}
AT_ONCE = 4
NEEDS_LLM = ("ask-a-model",)
"""Notebooks that need `ipymcp[llm]`: they run in the environment of the model libraries."""
OWN_FOLDERS = ("IPYMCP_STATE_DIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR")
SHOWN = {
    "ask-a-model": [
        "**2** penguins weigh more than 5,600 g, on Biscoe; the heaviest 6,000 g.",
        "I got an image of 320 x 200 pixels.",
        "(2, 5)",
        "nothing was sent",
    ],
    "files-and-databases": [
        "ToolResult files.write_file: wrote 1,932 characters to penguins.csv",
        "ToolResult birds.execute: 41 rows changed",
        "{'island': 'Biscoe', 'species': 'Gentoo', 'birds': 14, 'mean_g': 5050.0}",
    ],
    "model-with-tools": [
        "['demo__query', 'demo__plot', 'demo__slow', 'demo__echo', 'today']",
        "**2** penguins weigh more than 5,600 g, on Biscoe; the heaviest 6,000 g.",
        "Error: no argument 'tabel'; did you mean 'table'?",
    ],
    "panel-and-results": ["demo · ready · 2026-07-28 · 5 tools", "(4, 'Adelie', 4, 1601)", "True"],
    "policy-and-trust": [
        "needs your trust",
        "✓ library: ready, 3 tools",
        "library.write_file: needs your consent",
        "library.write_file: denied by the rule",
        "nothing has changed since it was pinned",
    ],
    "questions-of-a-server": ["Booked for 2026-12-24: Bar, 4 guests.", "Nothing was booked."],
    "quickstart": ["✓ demo: ready, 5 tools", "demo.slow 8/8 step 8 of 8"],
    "remote-server-with-login": [
        "and no one can be asked",
        'ToolResult station.forecast: {"day": "2026-12-24", "sky": "sunny", "celsius": 30}',
    ],
    "tools-over-tables": [
        "mcp.birds.describe: 4 calls for 5 rows",
        "mcp.birds.describe: 5 rows: 4 succeeded, 1 failed",
        "ToolError: there is no island Atlantis",
        "'cached': 3",
        "Biscoe 168",
    ],
    "resources-and-prompts": [
        "('text/csv', 2232, (42, 8))",
        "{'Adelie': 18, 'Chinstrap': 10, 'Gentoo': 14}",
        "('user', 'Describe the Gentoo penguins in a playful tone, in three sen')",
    ],
}
"""What each notebook shows, among other things."""

WARNED = {
    "questions-of-a-server": [
        "ipymcp: booking.book asked a question that was cancelled: on_elicitation returned values that do not match "
        "the schema: guests: must be at most 8, got 400\n"
    ]
}
"""What each notebook shows on stderr."""

every_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, nbformat.NotebookNode]:
    """All notebooks after a run, each in a copy of the examples; an error in a cell that announces none raises."""
    kernels = tmp_path_factory.mktemp("kernels")
    argv = [str(environment("models").python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernels / "kernels" / "llm").mkdir(parents=True)
    spec = {"argv": argv, "display_name": "llm", "language": "python"}
    (kernels / "kernels" / "llm" / "kernel.json").write_text(json.dumps(spec))

    async def execute(name: str, turn: asyncio.Semaphore) -> nbformat.NotebookNode:
        folder = tmp_path_factory.mktemp(name)
        shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
        own = {variable: str(folder / variable.lower()) for variable in OWN_FOLDERS}
        Path(own["TMPDIR"]).mkdir()
        path = folder / NOTEBOOKS[name].relative_to(ROOT)
        client = NotebookClient(
            nbformat.read(path, as_version=4),
            timeout=60,
            kernel_name="llm" if name in NEEDS_LLM else "python3",
            resources={"metadata": {"path": str(path.parent)}},
        )
        async with turn:
            return await client.async_execute(env={**os.environ, **own})

    async def execute_all() -> list[nbformat.NotebookNode]:
        turn = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(execute(name, turn) for name in NOTEBOOKS))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", str(kernels))
        return dict(zip(NOTEBOOKS, asyncio.run(execute_all()), strict=True))


def outputs_of(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def shown(notebook: nbformat.NotebookNode) -> str:
    """Everything that a notebook shows, as plain text."""
    displays = [output.get("data", {}).get("text/plain", output.get("text", "")) for output in outputs_of(notebook)]
    return "\n".join(displays)


@every_notebook
def test_a_notebook_runs_without_an_error_it_does_not_announce(
    name: str, executed: dict[str, nbformat.NotebookNode]
) -> None:
    notebook = executed[name]

    announced = [cell for cell in notebook.cells if "raises-exception" in cell.metadata.get("tags", ())]
    assert len([one for one in outputs_of(notebook) if one.output_type == "error"]) == len(announced)
    warned = [one.text for one in outputs_of(notebook) if one.output_type == "stream" and one.name == "stderr"]
    assert warned == WARNED.get(name, [])


@every_notebook
def test_a_notebook_shows_what_it_is_about(name: str, executed: dict[str, nbformat.NotebookNode]) -> None:
    text = shown(executed[name])

    assert [wanted for wanted in SHOWN[name] if wanted not in text] == []


def test_the_quickstart_shows_a_table_a_chart_and_an_error(executed: dict[str, nbformat.NotebookNode]) -> None:
    outputs = outputs_of(executed["quickstart"])

    pages = [one.data.get("text/html", "") for one in outputs if one.output_type in ("display_data", "execute_result")]
    assert any("bill_length_mm" in page for page in pages)
    assert any('<img src="data:image/png;base64,' in page for page in pages)
    assert [one.ename for one in outputs if one.output_type == "error"] == ["ArgumentError"]


@every_notebook
def test_a_notebook_is_committed_without_outputs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)

    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [(cell.execution_count, cell.outputs) for cell in code] == [(None, [])] * len(code)


def test_every_notebook_is_listed() -> None:
    text = (EXAMPLES / "README.md").read_text()

    assert [name for name in NOTEBOOKS if f"[{name}](" not in text] == []

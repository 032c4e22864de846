"""Run a notebook in a fresh kernel and show in the terminal what a notebook would show.

    python examples/run.py examples/quickstart.ipynb [--save executed.ipynb]

Exits with 1 if a cell fails. The notebook itself is left as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def main() -> int:
    """Run the notebook named on the command line; give the exit status."""
    parser = argparse.ArgumentParser(description="Run a notebook and show what it shows.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the executed notebook to FILE")
    parser.add_argument("--timeout", type=int, default=300, metavar="S", help="seconds a cell may take (default: 300)")
    options = parser.parse_args()

    notebook = nbformat.read(options.notebook, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=options.timeout,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(options.notebook.parent)}},
        on_cell_start=lambda cell, cell_index: show_source(cell),
        on_cell_executed=lambda cell, cell_index, execute_reply: show_outputs(cell),
    )
    try:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["IPYMCP_STATE_DIR"] = folder  # nothing of it is kept
            client.execute()
    except CellExecutionError:
        print(f"\n{options.notebook} failed.", file=sys.stderr)
        return 1
    except DeadKernelError as error:
        print(f"\n{options.notebook} failed: {error}", file=sys.stderr)
        return 1
    finally:
        if options.save:
            nbformat.write(notebook, options.save)
    return 0


def show_source(cell: nbformat.NotebookNode) -> None:
    """Print a cell: prose as it is, code after prompts."""
    if cell.cell_type == "code":
        first, *rest = cell.source.splitlines() or [""]
        print("\n".join([f"\n>>> {first}", *(f"... {line}".rstrip() for line in rest)]), flush=True)
    else:
        print(f"\n{wrapped(cell.source)}", flush=True)


def wrapped(prose: str) -> str:
    """Fold long paragraphs to the terminal's width."""
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in prose.splitlines())


def show_outputs(cell: nbformat.NotebookNode) -> None:
    """Print what a code cell has shown."""
    for output in cell.outputs:
        if text := shown(output):
            print(text, flush=True)


def shown(output: dict[str, Any]) -> str:
    """Give one output as text."""
    match output["output_type"]:
        case "stream":
            return output["text"].rstrip("\n")
        case "error":
            return _ANSI.sub("", "\n".join(output["traceback"]))
    data = output["data"]
    # An image's own plain text is only its repr.
    images = [f"[{mime}]" for mime in data if mime.startswith("image/")]
    return "\n".join(images) or data.get("text/plain") or f"[{', '.join(data)}]"


if __name__ == "__main__":
    sys.exit(main())

"""A server for the text files of one folder: `python files.py FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from minimal import Server, ToolFailure

ROOT = Path(sys.argv[1]).resolve()
PATH = {"type": "string", "description": "Relative to the folder."}
server = Server("files", f"The text files below {ROOT}.")


def inside(path: str) -> Path:
    """The file of that name, if it is in the folder."""
    found = (ROOT / path).resolve()
    if not found.is_relative_to(ROOT):
        raise ToolFailure(f"{path} is outside of the folder")
    return found


@server.tool("List the files with their sizes.", readOnlyHint=True, openWorldHint=False)
def list_files() -> dict[str, Any]:
    """All files below the folder."""
    files = sorted(path for path in ROOT.rglob("*") if path.is_file())
    return {"files": [{"path": path.relative_to(ROOT).as_posix(), "bytes": path.stat().st_size} for path in files]}


@server.tool("Read a text file.", {"path": PATH}, readOnlyHint=True, openWorldHint=False)
def read_file(path: str) -> str:
    """Its text."""
    found = inside(path)
    if not found.is_file():
        raise ToolFailure(f"there is no file {path}")
    return found.read_text(encoding="utf-8")


@server.tool(
    "Write a text file.",
    {"path": PATH, "text": {"type": "string"}},
    readOnlyHint=False,
    destructiveHint=True,
    idempotentHint=True,
    openWorldHint=False,
)
def write_file(path: str, text: str) -> str:
    """Create or replace it."""
    found = inside(path)
    found.parent.mkdir(parents=True, exist_ok=True)
    found.write_text(text, encoding="utf-8")
    return f"wrote {len(text):,} characters to {path}"


server.run()

"""Which files of a project are a part of a definition that names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipymcp.config.definition import ServerDefinition, Source


def define(folder: Path, **values: Any) -> ServerDefinition:
    source = Source(scope="project", file=str(folder / "mcp.json"), folder=str(folder))
    return ServerDefinition(**{"name": "fs", "command": "node", "source": source, **values})


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("x.js", {"args": ("x.js",)}),
        ("x.js", {"args": ("x",)}),
        ("x.js", {"args": ("${workspaceFolder}/x.js",)}),
        ("x.js", {"args": ("${UNSET_VARIABLE:-./x.js}",)}),
        ("x.js", {"args": ("${DIR}/x.js",), "env": {"DIR": "${workspaceFolder}"}}),
        ("x.js", {"args": ("--require=./x.js", "y")}),
        ("x.js", {"env": {"NODE_OPTIONS": "--no-warnings --require ./x.js"}}),
        ("x.js", {"command": "sh", "args": ("-c", 'cd . && node "x.js"; true')}),
        ("x.tgz", {"command": "npx", "args": ("-y", "file:./x.tgz")}),
        ("sub/x.js", {"cwd": "sub", "args": ("x.js",)}),
        ("sub/x.js", {"cwd": "${workspaceFolder}/sub", "args": ("x.js",)}),
        (".env", {"cwd": "sub", "env_file": ".env"}),
        ("app/index.js", {"args": ("app",)}),
        ("app/package.json", {"args": ("app/",)}),
        ("app/__main__.py", {"command": "python3", "args": ("app",)}),
        ("mod.py", {"command": "python", "args": ("-m", "mod")}),
        ("pkg/__init__.py", {"command": "python", "args": ("-u", "-m", "pkg.sub")}),
        ("pkg/sub/__main__.py", {"command": "uv", "args": ("run", "python", "-Bm", "pkg.sub")}),
        ("pkg/sub.py", {"command": "python", "args": ("-mpkg.sub",)}),
        ("bin/tool", {"command": "./bin/tool"}),
        ("bin/tool", {"command": "bin/../bin/tool"}),
    ],
    ids=str,
)
def test_a_file_that_a_definition_names_is_a_part_of_it(tmp_path: Path, file: str, values: dict[str, Any]) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / file, "one")
    before = define(tmp_path, **values).digest()
    write(tmp_path / file, "other")
    assert define(tmp_path, **values).digest() != before


def test_a_link_counts_as_what_it_leads_to_also_outside_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("harmless.js", "harmful.js"):
        (tmp_path / name).write_text(name)
    link = project / "server.js"
    link.symlink_to(tmp_path / "harmless.js")
    before = define(project, args=("server.js",)).digest()
    link.unlink()
    link.symlink_to(tmp_path / "harmful.js")
    after = define(project, args=("server.js",)).digest()
    assert after != before
    (tmp_path / "harmful.js").write_text("changed")
    assert define(project, args=("server.js",)).digest() != after


def test_other_files_are_no_part_of_it(tmp_path: Path) -> None:
    values = {"command": "npx", "args": ("-y", "@scope/server-files", ".")}
    before = define(tmp_path, **values).digest()
    write(tmp_path / "package.json", "{}")
    write(tmp_path / "notes.txt", "text")
    assert define(tmp_path, **values).digest() == before

"""The published packages, their build, and how Jupyter lists an installed wheel."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import ROOT, environment
from tests.kernels import private_environment

LAB = ROOT / "ipymcp" / "labextension"
STATIC = ROOT / "ipymcp" / "panel" / "static"
WHERE_LAB_LOOKS = "data/share/jupyter/labextensions/ipymcp"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Built from the sdist."""
    with zipfile.ZipFile(build("wheel", sdist, tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


def build(target: str, source: Path, folder: Path) -> Path:
    """Build as pip does without Node: the PATH is empty."""
    command = [str(environment("build").python), "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, env={"PATH": ""}, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return next(folder.iterdir())


def below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


def test_an_sdist_has_the_front_ends_source_and_no_build_products(sdist: Path) -> None:
    for name in ("src/cell.ts", "src/lab/index.ts", "tests/build.test.ts", "build.mjs", "package-lock.json", ".npmrc"):
        assert (sdist / "labextension" / name).is_file(), name
    assert below(sdist / "ipymcp" / "labextension") == below(LAB)
    assert below(sdist / "ipymcp" / "panel" / "static") == below(STATIC)
    products = {"node_modules", "__pycache__", ".envs", ".venv", "lib"}
    assert not [path for path in below(sdist) if products & set(path.parts)]


def test_a_wheel_is_built_from_the_sdist_without_node_and_has_the_files_that_jupyter_needs(
    wheel: zipfile.ZipFile,
) -> None:
    data = next(name for name in wheel.namelist() if ".data/" in name).partition("/")[0]

    def installed(name: str) -> bytes:
        return wheel.read(f"{data}/{name}")

    for path in below(LAB):
        assert installed(f"{WHERE_LAB_LOOKS}/{path}") == (LAB / path).read_bytes(), path
    assert installed(f"{WHERE_LAB_LOOKS}/install.json") == (ROOT / "labextension" / "install.json").read_bytes()
    enabled = "etc/jupyter/jupyter_server_config.d/ipymcp.json"
    assert installed(f"data/{enabled}") == (ROOT / enabled).read_bytes()
    for name in below(STATIC):
        assert wheel.read(f"ipymcp/panel/static/{name}") == (STATIC / name).read_bytes(), name
    elsewhere = ("ipymcp/labextension/", "labextension/", "tests/")
    assert not [name for name in wheel.namelist() if name.startswith(elsewhere)]


def test_a_wheel_has_the_licences_of_bundled_libraries(wheel: zipfile.ZipFile) -> None:
    [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    named = re.findall("^License-File: (.*)$", wheel.read(metadata).decode(), re.MULTILINE)
    assert named == ["LICENSE", "ipymcp/panel/static/LICENSES.txt"]
    text = wheel.read(metadata.replace("METADATA", f"licenses/{named[1]}")).decode()
    assert "preact" in text and "Permission is hereby granted" in text


def test_an_sdist_has_the_projects_files_and_no_others(sdist: Path) -> None:
    folders = {".ci", "benchmarks", "docs", "etc", "examples", "ipymcp", "labextension", "tests"}
    texts = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
    files = texts | {"Makefile", "mkdocs.yml", "pyproject.toml"}
    made_by_hatchling = {".gitignore", "PKG-INFO"}
    assert {path.name for path in sdist.iterdir()} == folders | files | made_by_hatchling
    assert not (sdist / "tests" / "unit" / "test_repository.py").exists()  # it reads .github
    metadata = (sdist / "PKG-INFO").read_text()
    assert "Project-URL: Repository, https://github.com/ipymcp/ipymcp\n" in metadata
    assert metadata.endswith((ROOT / "README.md").read_text())


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        (("jupyter-labextension", "list"), r"ipymcp v\S+ enabled OK \(python, ipymcp\)"),
        (("jupyter-server", "extension", "list"), r"ipymcp enabled\n.*- Validating ipymcp\.\.\.\n.*ipymcp \S* OK"),
    ],
    ids=["labextension", "server extension"],
)
def test_jupyter_lists_the_extension_as_enabled(command: tuple[str, ...], pattern: str, tmp_path: Path) -> None:
    python = environment("readme").python
    script, *words = command
    done = subprocess.run(
        [str(python), str(python.parent / script), *words],
        env=private_environment(python, tmp_path, {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert re.search(pattern, re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)), done.stdout


USER_PROGRAM = """\
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
import asyncio
from typing import assert_type

import ipymcp


def read(mcp: ipymcp.Mcp) -> str:
    result = mcp.demo.query("penguins", limit=3)
    assert_type(result, ipymcp.ToolResult)
    assert_type(mcp.tools("demo.*"), ipymcp.Toolset)
    assert_type(mcp.demo.slow.submit(seconds=1), ipymcp.Call[ipymcp.ToolResult])
    mcp.demo.query.options(timeout="soon")  # pyright: ignore[reportArgumentType]
    return result.text


async def wait(mcp: ipymcp.Mcp) -> ipymcp.ToolResult:
    return await mcp.demo.echo.aio("hello")


with ipymcp.connect("demo") as mcp:
    try:
        print(read(mcp), asyncio.run(wait(mcp)).data)
    except ipymcp.ToolError as error:
        assert_type(error.tool, str | None)
"""


def test_a_users_program_is_type_checked_against_the_installed_wheel(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(USER_PROGRAM)
    command = [sys.executable, "-m", "pyright", "--pythonpath", str(environment("slim").python), str(program)]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.strip() == "0 errors, 0 warnings, 0 informations"

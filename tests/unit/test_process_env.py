"""The program that a definition's command runs."""

import os
import sys
from pathlib import Path

import pytest

from ipymcp.config.definition import Scope, ServerDefinition, Source
from ipymcp.runtime.process_env import launch

pytestmark = pytest.mark.posix


@pytest.fixture
def other_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Another interpreter, first on the PATH."""
    program = tmp_path / "bin" / "python"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(program.parent), os.environ["PATH"]]))
    return str(program)


@pytest.mark.parametrize("scope", ["cell", "script"])
def test_python_typed_in_a_notebook_or_script_is_its_own_interpreter(
    scope: Scope, other_python: str, tmp_path: Path
) -> None:
    definition = ServerDefinition(
        name="time", command="python", args=("-m", "mcp_server_time"), source=Source(scope=scope)
    )
    assert launch(definition, str(tmp_path)).argv == [sys.executable, "-m", "mcp_server_time"]


def test_python_in_a_file_shared_with_other_hosts_is_that_of_the_path(other_python: str, tmp_path: Path) -> None:
    definition = ServerDefinition(name="time", command="python", source=Source(scope="named"))
    assert launch(definition, str(tmp_path)).argv == [other_python]

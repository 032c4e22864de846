"""The program that a definition's command runs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ipymcp.config.definition import Scope, ServerDefinition, Source
from ipymcp.errors import CommandNotFound
from ipymcp.protocol.transports.process import Launch, ServerProcess
from ipymcp.runtime.process_env import launch
from tests.environments import ROOT
from tests.errors import refused

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


@pytest.mark.parametrize(
    ("command", "args", "program"),
    [
        ("cmd", ("/c", "npx", "-y", "pkg"), "npx"),
        ("CMD.exe", ("/C", "uvx"), "uvx"),
        ("cmd /c npx -y pkg", (), "npx"),
        ("cmd", ("/c",), "what follows"),
    ],
)
def test_a_command_for_windows_is_hinted_at_elsewhere(
    tmp_path: Path, command: str, args: tuple[str, ...], program: str
) -> None:
    definition = ServerDefinition(name="a", command=command, args=args, source=Source(scope="named"))
    assert refused(CommandNotFound, launch, definition, str(tmp_path)) == (
        f"there is no program {command!r} (looked for {command}, on the PATH)"
        if " " not in command
        else f"there is no program {command!r} (looked for {tmp_path}/{command})",
        f"leave `cmd /c` out here, it is for Windows: the command is {program}",
    )


def test_signals_that_are_blocked_here_are_not_blocked_in_a_server() -> None:
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1})
    try:
        server = ServerProcess(Launch([sys.executable, "-c", code], dict(os.environ)))
        output, _ = server.popen.communicate(timeout=20)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert output.decode().strip() == "set()"
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1} <= blocked


IN_A_FOLDER_THAT_IS_GONE = """
import os, sys, tempfile
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
import ipymcp
demo = {"command": sys.executable, "args": ["-I", "-S", sys.argv[1]]}
with ipymcp.connect({"demo": {**demo, "cwd": os.sep}}) as mcp:
    print(mcp.demo.echo("works").text)
    try:
        mcp.load({"other": demo})
    except ipymcp.StartError as error:
        print(error.message.replace(folder, "FOLDER"))
"""


def test_a_script_whose_folder_is_gone_says_so_and_what_needs_no_folder_works(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FOLDER_THAT_IS_GONE, str(ROOT / "ipymcp" / "demo" / "__main__.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT), "IPYMCP_STATE_DIR": str(tmp_path), "PWD": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == ["works", "its folder does not exist: FOLDER"], done.stderr
    assert "no longer exists: only servers with a cwd of their own start" in done.stderr
    assert "Traceback" not in done.stderr

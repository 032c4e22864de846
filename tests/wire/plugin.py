"""The pytest plugin: records every frame of the run, and fails the run where the specification was broken.

Loaded by `pytest_plugins = ["tests.wire.plugin"]` in tests/conftest.py. Subprocesses inherit the tap through
`os.environ`; a test that gives a subprocess another environment passes it through `tests.wire.tapped`.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.environments import ENVIRONMENTS
from tests.wire import DIRECTORY, environment, tap


def checker() -> Path:
    """The Python that has the official wire types: `.envs/sdk2`, or what IPYMCP_TEST_WIRE_PYTHON names."""
    return Path(os.environ.get("IPYMCP_TEST_WIRE_PYTHON", ENVIRONMENTS["sdk2"].python))


def check_command(directory: Path) -> list[str]:
    """The command line that checks what was recorded in `directory`."""
    return [str(checker()), str(Path(__file__).with_name("check.py")), str(directory)]


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist records where its controller looks
        config.add_cleanup(tap.install(os.environ[DIRECTORY]))
    else:
        config.pluginmanager.register(Wire(), "ipymcp-wire-session")


class Wire:
    """One run's recording and its verdict."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="ipymcp-wire-"))
        self._lines: list[str] = []
        self._failed = False
        added = environment(self.directory)
        self._before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        self._uninstall = tap.install(self.directory)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._uninstall()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._check()
        if self._failed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _check(self) -> None:
        if not any(self.directory.glob("*.jsonl")):
            self._lines = ["no frames recorded"]
        elif not checker().exists():
            self._failed = True
            self._lines = [f"frames were recorded but not checked: {checker()} is missing, `make test` makes it"]
        else:
            done = subprocess.run(check_command(self.directory), capture_output=True, text=True, check=False)
            self._failed = done.returncode != 0
            self._lines = [*done.stdout.splitlines(), *done.stderr.splitlines()]
        if self._failed:
            self._lines.append(f"the frames are in {self.directory}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._failed:
            terminalreporter.section("frames against the MCP specification", red=True)
        for line in self._lines:
            terminalreporter.write_line(line if self._failed else f"wire: {line}")

"""The plugin, in pytest runs of their own: a broken rule fails the run, and a run without frames says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.posix

ROOT = Path(__file__).parents[2]
RPC = """
class Peer:
    session_tag = "demo#1"
    def receive(self, data): pass
"""
CLIENT = """
from ipymcp.protocol.jsonrpc import Peer
class Client:
    _peer = Peer()
    def _send(self, frame): pass
    def shake_hands(self): pass
"""


def run_pytest(folder: Path, body: str, **env: str) -> tuple[int, str]:
    """Run one test with `body` beside a product that has the seams."""
    package = folder / "ipymcp" / "protocol"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "jsonrpc.py").write_text(RPC)
    (package / "client.py").write_text(CLIENT)
    (folder / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    environment = {name: value for name, value in os.environ.items() if name != "IPYMCP_TEST_WIRE"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    environment["TMPDIR"] = str(folder)  # the frames of a failed run stay
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.wire.plugin", "-p", "no:cacheprovider", "test_it.py"],
        cwd=folder, env={**environment, **env}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


SEND = "from ipymcp.protocol.client import Client; Client()._send(b'{}')"


def test_a_violation_in_the_tests_own_process_fails_the_run(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, SEND.format('{"jsonrpc":"2.0","id":1,"method":"ping","extra":0}'))
    assert "frame 1 out [envelope] a request has no member extra" in output
    assert "1 violations, 0 by servers" in output
    assert "1 passed" in output
    assert code == pytest.ExitCode.TESTS_FAILED


def test_a_violation_in_a_subprocess_of_a_test_fails_the_run(tmp_path: Path) -> None:
    script = SEND.format('{"jsonrpc":"2.0","id":null,"method":"ping"}')
    body = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}], check=True)"
    code, output = run_pytest(tmp_path, body)
    assert "frame 1 out [envelope] the id of a request is a string or an integer, not null" in output
    assert code == pytest.ExitCode.TESTS_FAILED


def test_a_run_with_good_frames_passes_and_counts_them(tmp_path: Path) -> None:
    params = '"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"ipymcp","version":"1"}'
    good = f'{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{{params}}}}}'
    code, output = run_pytest(tmp_path, SEND.replace("{}", good))
    assert "wire: 1 sessions (2025-11-25: 1), 1 frames out, 0 in; 0 violations, 0 by servers" in output
    assert code == pytest.ExitCode.OK


def test_a_run_without_frames_says_so(tmp_path: Path) -> None:
    code, output = run_pytest(tmp_path, "pass")
    assert "wire: no frames recorded" in output
    assert code == pytest.ExitCode.OK


def test_frames_that_cannot_be_checked_fail_the_run(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere" / "python")
    code, output = run_pytest(tmp_path, SEND, IPYMCP_TEST_WIRE_PYTHON=missing)
    assert f"frames were recorded but not checked: {missing} is missing, `make test` makes it" in output
    assert code == pytest.ExitCode.TESTS_FAILED

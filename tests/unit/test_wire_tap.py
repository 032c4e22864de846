"""The tap and its plugin, in processes of their own: what passes the seams is in the log, and is checked."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environments import ROOT
from tests.unit.test_wire_check import initialize
from tests.wire import environment, tap

RPC = """
class Peer:
    session_tag = "demo#1"
    def receive(self, data, more=None): return data
    def receive_own(self, data, more=None): return more
"""
CLIENT = """
from ipymcp.protocol.jsonrpc import Peer
class Client:
    def __init__(self, peer=None): self._peer = peer or Peer()
    def _send(self, frame, kind=None): return kind
    def shake_hands(self): pass
"""
TALK = """
from ipymcp.protocol.client import Client
from ipymcp.protocol.jsonrpc import Peer
peer = Peer()
client = Client(peer)
assert client._send(b'{"id": 1}', kind="request") == "request"
assert peer.receive(memoryview(b"\\xff"), more=2) == b"\\xff"
"""


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A package that has the seams and nothing else."""
    package = tmp_path / "product" / "ipymcp" / "protocol"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "jsonrpc.py").write_text(RPC)
    (package / "client.py").write_text(CLIENT)
    return tmp_path / "product"


def run(script: str, product: Path, log: Path) -> list[dict[str, object]]:
    """Run a script beside the product, and return what it recorded."""
    command = [sys.executable, "-c", script]  # `-c` puts the working folder first on the path
    subprocess.run(command, cwd=product, env={**os.environ, **environment(log)}, check=False, timeout=60)
    entries = [json.loads(line) for path in sorted(log.glob("*.jsonl")) for line in path.read_text().splitlines()]
    for entry in entries:
        assert isinstance(entry.pop("at"), float)
    return entries


SENT = {"session": "demo#1 1", "direction": "out", "frame": '{"id": 1}'}
RECEIVED = {"session": "demo#1 1", "direction": "in", "base64": "/w=="}


DIRECT = "from ipymcp.protocol.jsonrpc import Peer\npeer = Peer()\n"
RECORDED = {
    "both directions": (TALK, [SENT, RECEIVED]),
    "two sessions of one tag": (
        TALK + TALK.replace("peer =", "first = peer; peer ="),
        [SENT, RECEIVED, {**SENT, "session": "demo#1 2"}, {**RECEIVED, "session": "demo#1 2"}],
    ),
    "a frame that a thread leaves to the loop": (
        f"{DIRECT}peer.receive_own(b'\\xff', False); peer.receive(b'\\xff')", [RECEIVED],
    ),
    "a frame that a thread handles": (f"{DIRECT}peer.receive_own(b'\\xff', True)", [RECEIVED]),
    "the size of a huge frame": (
        f"{DIRECT}peer.receive(b'x' * {tap.KEPT + 1})",
        [{"session": "demo#1 1", "direction": "in", "size": tap.KEPT + 1}],
    ),
    "a reopened session": (
        f"{TALK}client.shake_hands()", [SENT, RECEIVED, {"session": "demo#1 1", "direction": "reopened"}],
    ),
    "a process killed the moment after": (
        f"{TALK}import os, signal; os.kill(os.getpid(), signal.SIGKILL)", [SENT, RECEIVED],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("script", "entries"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.posix] if "SIGKILL" in case[0] else [])
        for name, case in RECORDED.items()
    ],
)
def test_a_process_records_its_frames(
    script: str, entries: list[dict[str, object]], product: Path, tmp_path: Path
) -> None:
    assert run(script, product, tmp_path / "log") == entries


def test_a_forked_child_writes_a_file_of_its_own(product: Path, tmp_path: Path) -> None:
    send = "client._send(b'{\"id\": 1}', 'request')"
    forked = f"{TALK}import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nelse: {send}; os._exit(0)"
    entries = run(forked, product, tmp_path / "log")
    assert sorted(map(str, entries)) == sorted(map(str, [SENT, RECEIVED, SENT]))
    assert len(list((tmp_path / "log").glob("*.jsonl"))) == 2


def test_installing_after_the_import_taps_too_and_uninstalling_restores(product: Path, tmp_path: Path) -> None:
    late = f"""
import sys; sys.path.append({str(Path(tap.__file__).parents[2])!r})
import ipymcp.protocol.jsonrpc as rpc
before = rpc.Peer.receive
from tests.wire import tap
uninstall = tap.install({str(tmp_path / "late")!r})
assert rpc.Peer.receive is not before
uninstall()
assert rpc.Peer.receive is before
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", late], cwd=product, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("seam", tap.SEAMS, ids=lambda seam: f"{seam.owner}.{seam.method}")
def test_every_seam_is_a_method_of_the_package(seam: tap.Seam) -> None:
    assert callable(getattr(getattr(importlib.import_module(seam.module), seam.owner), seam.method))


# -- the plugin: a broken rule fails the run --------------------------------------------------------------------------


def run_pytest(product: Path, body: str, **env: str) -> tuple[int, str]:
    """Run one test with `body` beside the product."""
    (product / "test_it.py").write_text(f"def test_it():\n    {body}\n")
    environment = {name: value for name, value in os.environ.items() if name != "IPYMCP_TEST_WIRE"}
    environment["PYTHONPATH"] = os.pathsep.join([str(product), str(ROOT)])
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # it needs none, and they take most of its time
    environment["TMPDIR"] = str(product)  # the frames of a failed run stay
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.wire.plugin", "-p", "no:cacheprovider", "test_it.py"],
        cwd=product, env={**environment, **env}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


SEND = "from ipymcp.protocol.client import Client; Client()._send(b'{}')"
BAD_ID = SEND.format('{"jsonrpc":"2.0","id":null,"method":"ping"}')
INITIALIZE = SEND.replace("{}", json.dumps(initialize("2025-11-25"), separators=(",", ":")))
RUNS = {
    "violation in the test": (
        SEND.format('{"jsonrpc":"2.0","id":1,"method":"ping","extra":0}'),
        ["frame 1 out [envelope] a request has no member extra", "1 violations, 0 by servers", "1 passed"],
    ),
    "violation in a subprocess": (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BAD_ID!r}], check=True)",
        ["frame 1 out [envelope] the id of a request is a string or an integer, not null"],
    ),
    "good frames": (
        INITIALIZE,
        ["wire: 1 sessions (2025-11-25: 1), 1 frames out, 0 in; 0 violations, 0 by servers"],
    ),
    "no frames": ("pass", ["wire: no frames recorded"]),
}


@pytest.mark.posix
@pytest.mark.parametrize(("body", "lines"), RUNS.values(), ids=RUNS)
def test_a_run_fails_by_a_violation_and_reports_its_frames(body: str, lines: list[str], product: Path) -> None:
    code, output = run_pytest(product, body)
    assert [line for line in lines if line not in output] == []
    assert code == (pytest.ExitCode.TESTS_FAILED if "[envelope]" in lines[0] else pytest.ExitCode.OK)


@pytest.mark.posix
def test_frames_that_cannot_be_checked_fail_the_run(product: Path) -> None:
    missing = str(product / "nowhere" / "python")
    code, output = run_pytest(product, SEND, IPYMCP_TEST_WIRE_PYTHON=missing)
    assert f"frames were recorded but not checked: {missing} is missing, `make test` makes it" in output
    assert code == pytest.ExitCode.TESTS_FAILED

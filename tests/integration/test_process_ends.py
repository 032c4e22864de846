"""Five seconds after any end of a kernel, no process of a server's group is left, and no reaper."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import ipymcp
from tests import processes
from tests.conftest import StartKernel
from tests.environments import ROOT, server_command
from tests.kernels import KERNELS, Kernel

pytestmark = pytest.mark.cold
every_kernel = pytest.mark.kernels(*KERNELS)
BARE = server_command("misbehaving", "child")
STUBBORN = server_command("misbehaving", "stubborn", "child")
SERVERS = {
    "plain": BARE,
    "stubborn": STUBBORN,
    "shell": ["sh", "-c", f"{shlex.join(BARE)}; true"],
    "stubborn_shell": ["sh", "-c", f"trap '' TERM; {shlex.join(STUBBORN)}; true"],
}
"""Each has grandchildren of its own in its group."""


def config(servers: dict[str, list[str]]) -> dict[str, Any]:
    return {name: {"command": command[0], "args": command[1:]} for name, command in servers.items()}


def load(kernel: Kernel, servers: dict[str, list[str]]) -> tuple[list[int], psutil.Process]:
    """The groups of these servers, and the reaper."""
    outcome = kernel.run(f"%load_ext ipymcp\nmcp.load({config(servers)!r})")
    assert outcome.status == "ok", outcome.error
    groups = kernel.value("[session.pid for session in mcp._host.sessions.values()]")
    return groups, psutil.Process(kernel.value("mcp._host._reaper._process.pid"))


def assert_nothing_is_left(groups: list[int], reaper: psutil.Process, within: float = 5) -> None:
    deadline = time.monotonic() + within
    for group in groups:
        processes.wait_until_group_gone(group, within=max(0.01, deadline - time.monotonic()))
    processes.wait_until_gone([reaper], within=max(0.01, deadline - time.monotonic()))


ENDS: dict[str, Callable[[Kernel], object]] = {
    "shutdown": lambda kernel: kernel.shutdown(),
    "exit()": lambda kernel: kernel.start("exit()"),
    "restart at once": lambda kernel: kernel.restart(now=True),
    "SIGTERM": lambda kernel: os.kill(kernel.pid, signal.SIGTERM),
    "SIGKILL": lambda kernel: os.kill(kernel.pid, signal.SIGKILL),
    "os._exit": lambda kernel: kernel.start("import os; os._exit(1)"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_kernel_that_ended_leaves_no_process_of_a_server(kernel: Kernel, end: Callable[[Kernel], object]) -> None:
    groups, reaper = load(kernel, SERVERS)
    assert [len(processes.group_members(group)) for group in groups] == [3, 3, 4, 4]
    end(kernel)
    assert_nothing_is_left(groups, reaper)


@pytest.mark.kernels("kernel-6", "kernel-colab")
def test_an_older_kernel_that_was_shut_down_leaves_no_process_of_a_server(kernel: Kernel) -> None:
    groups, reaper = load(kernel, SERVERS)
    kernel.shutdown()
    assert_nothing_is_left(groups, reaper)


@pytest.mark.timed
def test_unloading_the_extension_ends_the_servers_before_it_returns(kernel: Kernel) -> None:
    groups, reaper = load(kernel, SERVERS)
    assert kernel.run("%unload_ext ipymcp").status == "ok"
    assert_nothing_is_left(groups, reaper, within=0.5)


@pytest.mark.timed
def test_a_stopped_server_takes_those_along_that_left_its_group(kernel: Kernel) -> None:
    load(kernel, {"away": server_command("misbehaving", "child-setsid")})
    pids = kernel.value("mcp.away.pid().data['children']")
    children = [psutil.Process(pid) for pid in pids]
    assert len(children) == 2
    kernel.run("%mcp stop away")
    processes.wait_until_gone(children, within=0.5)


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL", "os._exit"])
def test_a_kernel_that_ended_takes_those_along_that_left_a_servers_group(kernel: Kernel, end: str) -> None:
    groups, reaper = load(kernel, {"away": server_command("misbehaving", "child-setsid")})
    children = [psutil.Process(pid) for pid in kernel.value("mcp.away.pid().data['children']")]
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        ENDS[end](kernel)
        processes.wait_until_gone(children, within=5)
        assert_nothing_is_left(groups, reaper)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_descendant_whose_parents_have_gone_is_remembered(kernel: Kernel, tmp_path: Path) -> None:
    """A process in its own session whose parent ends, like a browser started by a driver."""
    told = tmp_path / "pid"
    driver = f"setsid sleep 600 & echo $! >{told}.new; mv {told}.new {told}; sleep 4"
    server = ["sh", "-c", f"sh -c {shlex.quote(driver)} >&2 & exec {shlex.join(server_command('misbehaving'))}"]
    groups, reaper = load(kernel, {"one": server})
    browser = psutil.Process(int(told.read_text()))
    drivers = [process for process in processes.descendants(groups[0]) if process.name() == "sh"]
    psutil.wait_procs(drivers, timeout=20)
    assert groups[0] not in [parent.pid for parent in browser.parents()]
    os.kill(kernel.pid, signal.SIGKILL)
    processes.wait_until_gone([browser], within=5)
    assert_nothing_is_left(groups, reaper)


RESPAWNING = """
import os, signal, subprocess, sys, time
def again(*_):
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, file=open(sys.argv[1], "a"))
    os._exit(0)
signal.signal(signal.SIGTERM, again)
open(sys.argv[1], "a").close()
time.sleep(600)
"""


def test_what_a_descendant_starts_as_it_ends_is_ended_too(kernel: Kernel, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    driver = shlex.join([sys.executable, "-c", RESPAWNING, str(told)])
    server = ["sh", "-c", f"setsid {driver} >&2 & exec {shlex.join(server_command('misbehaving'))}"]
    groups, reaper = load(kernel, {"one": server})
    processes.wait_until(told.exists)
    os.kill(kernel.pid, signal.SIGKILL)
    processes.wait_until(lambda: told.read_text().endswith("\n"), within=5)
    with contextlib.suppress(psutil.NoSuchProcess):
        processes.wait_until_gone([psutil.Process(int(told.read_text()))], within=4)
    assert_nothing_is_left(groups, reaper)


def test_a_kernel_that_is_killed_while_it_starts_servers_leaves_none(kernel: Kernel, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    servers = {f"s{i}": server_command("misbehaving", "stubborn", "child", f"runs={runs}") for i in range(10)}
    kernel.run("%load_ext ipymcp")
    kernel.start(f"mcp.load({config(servers)!r})")
    processes.wait_until(runs.exists, within=20)
    os.kill(kernel.pid, signal.SIGKILL)
    processes.wait_until_gone(of_command(str(runs)), within=5)
    assert of_command(str(runs)) == []


def test_closing_one_host_leaves_the_servers_of_another_alone() -> None:
    servers = config({"own": server_command("misbehaving")})
    with ipymcp.connect(servers) as kept:
        server = kept._host.sessions["own"].pid
        with ipymcp.connect(servers) as closed:
            reaper = psutil.Process(closed._host._reaper._process.pid)
        processes.wait_until_gone([reaper])
        assert psutil.Process(server).is_running()


def of_command(word: str) -> list[psutil.Process]:
    """The living processes that have this word on their command line."""
    running = psutil.process_iter(["cmdline"])
    named = (process for process in running if word in " ".join(process.info["cmdline"] or ()))
    return [process for process in named if processes.is_alive(process)]


SCRIPT = """
import json, os, sys, time, ipymcp
def about(mcp):
    pids = [session.pid for session in mcp._host.sessions.values()]
    print(json.dumps([pids, mcp._host._reaper._process.pid]), flush=True)
def ending(): print(time.monotonic(), flush=True)
servers = json.loads(sys.argv[1])
"""


def run_script(code: str, folder: Path) -> tuple[int, float, list[int], psutil.Process, str]:
    """The exit status of a script, how long its end took, its servers' groups, its reaper, and its stderr."""
    command = [sys.executable, "-c", SCRIPT + code, json.dumps(config(SERVERS))]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None
        groups, pid = json.loads(script.stdout.readline())
        reaper = psutil.Process(pid)
        began = float(script.stdout.readline())
        script.wait(30)
        took = time.monotonic() - began
        stderr = script.communicate()[1]
    return script.returncode, took, groups, reaper, stderr


@pytest.mark.timed
@pytest.mark.parametrize(
    ("end", "status", "error"),
    [("", 0, ""), ("1 / 0", 1, "ZeroDivisionError"), ("sys.exit(7)", 7, "")],
    ids=["at its end", "with an exception", "with sys.exit"],
)
def test_a_script_that_closes_nothing_ends_within_two_seconds(
    tmp_path: Path, end: str, status: int, error: str
) -> None:
    code = f"from ipymcp import mcp\nmcp.load(servers); about(mcp); ending(); {end}"
    returncode, took, groups, reaper, stderr = run_script(code, tmp_path)

    assert (returncode, error in stderr) == (status, True)
    assert "ipymcp" not in stderr
    assert took < 2.0
    assert_nothing_is_left(groups, reaper, within=0.5)


@pytest.mark.timed
@pytest.mark.parametrize(("end", "status"), [("1 / 0", 1), ("sys.exit(7)", 7)], ids=["an exception", "sys.exit"])
def test_leaving_connect_in_any_way_ends_its_servers(tmp_path: Path, end: str, status: int) -> None:
    code = f"with ipymcp.connect(servers) as mcp:\n    about(mcp)\n    ending()\n    {end}"
    returncode, _, groups, reaper, _ = run_script(code, tmp_path)

    assert returncode == status
    assert_nothing_is_left(groups, reaper, within=0.5)


FORKED = """
import os, multiprocessing, time
def in_child(path):
    began = time.monotonic()
    try:
        mcp.m.echo("from the child")
    except ipymcp.McpError as error:
        told = f"{type(error).__name__}: {error}"
    with open(path, "w") as file:
        file.write(f"{told} [{time.monotonic() - began < 0.5}]")
"""
REFUSED = "LoopError: m.echo: this process was forked after its servers were started"


@pytest.mark.timed
@pytest.mark.parametrize(
    "fork",
    [
        "child = multiprocessing.get_context('fork').Process(target=in_child, args=('told',))\n"
        "child.start(); child.join(20); print(child.exitcode)",
        "child = os.fork()\nif not child:\n    in_child('told')\n    os._exit(0)\nprint(os.waitpid(child, 0)[1])",
    ],
    ids=["multiprocessing", "os.fork"],
)
def test_a_forked_child_is_refused_at_once_and_its_end_is_not_the_servers(kernel: Kernel, fork: str) -> None:
    load(kernel, {"m": server_command("misbehaving")})
    outcome = kernel.run(f"import ipymcp\n{FORKED}\n{fork}")

    assert (outcome.status, outcome.stdout) == ("ok", "0\n"), outcome
    told = (kernel.folder / "told").read_text()
    assert told.startswith(REFUSED)
    assert told.endswith("[True]")
    assert kernel.run("mcp.m.echo('still here').text").text == "'still here'"


@pytest.mark.timed
def test_a_living_forked_child_does_not_hold_a_server_back_from_its_end(kernel: Kernel) -> None:
    groups, reaper = load(kernel, {"m": server_command("misbehaving")})
    kernel.run("import os, time\nchild = os.fork()\nif not child:\n    time.sleep(60)\n    os._exit(0)")
    took = kernel.value("[time.monotonic(), mcp.stop('m'), time.monotonic()]")
    assert took[2] - took[0] < 1.0
    assert processes.group_members(groups[0]) == []
    kernel.run("os.kill(child, 9), os.waitpid(child, 0)")
    del reaper


@pytest.mark.timed
def test_the_atexit_of_a_forked_child_leaves_the_servers_alone(tmp_path: Path) -> None:
    code = (
        "import subprocess, warnings\nfrom ipymcp import mcp\nmcp.load({'m': servers['plain']})\n"
        "warnings.filterwarnings('ignore', 'This process .* is multi-threaded', DeprecationWarning)\n"  # Python 3.12
        "child = os.fork()\nif not child: sys.exit(0)\nassert os.waitpid(child, 0)[1] == 0\n"
        "mcp.m.echo('still here'); about(mcp); ending()"
    )
    returncode, took, groups, reaper, stderr = run_script(code, tmp_path)

    assert (returncode, stderr) == (0, "")
    assert took < 2.0
    assert_nothing_is_left(groups, reaper, within=0.5)


def test_the_check_itself_finds_a_process_that_a_kernel_left_behind_and_ends_it(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    code = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"
    orphan = psutil.Process(int(kernel.run(code).stdout))
    process = psutil.Process(kernel.pid)
    process.kill()
    processes.wait_until_gone([process])

    left = rf"group {orphan.pid} not gone within 0\.1 s: \['{orphan.pid} sleep 60'\]"
    with pytest.raises(AssertionError, match=left):
        processes.wait_until_group_gone(orphan.pid, within=0.1)
    processes.wait_until_group_gone(orphan.pid)

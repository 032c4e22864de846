"""Remaining processes of a server: listed by the system, waited for without polling. Linux only."""

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil


def descendants(pid: int) -> list[psutil.Process]:
    """Give the living processes below a process; none if it is gone."""
    try:
        return [process for process in psutil.Process(pid).children(recursive=True) if is_alive(process)]
    except psutil.NoSuchProcess:
        return []


def children(since: float = 0) -> list[psutil.Process]:
    """Give the children of this process that started after a moment (in seconds since the machine started).

    Linux lists them at once; psutil would look at every process of the machine, which takes 9 ms.
    """
    own = Path(f"/proc/{os.getpid()}/task")
    if not (own / str(os.getpid()) / "children").exists():
        started = psutil.Process().children()
    else:
        started = []
        for task in os.listdir(own):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
                started += [psutil.Process(int(pid)) for pid in (own / task / "children").read_text().split()]
    return [process for process in started if process.create_time() - psutil.boot_time() >= since]


def group_members(group: int) -> list[psutil.Process]:
    """Give the living processes of a process group."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and is_alive(process):
                members.append(process)
    return members


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process still runs: one that has ended and was not yet reaped does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], within: float = 60) -> None:
    """Wait for what shows only in a file or in the system's tables."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def wait_until_gone(processes: Iterable[psutil.Process], within: float = 5) -> None:
    """Wait until each of these processes has ended.

    Raises:
        AssertionError: Some have not after `within` seconds. They are killed then.
    """
    deadline = time.monotonic() + within
    left = [process for process in processes if not _wait(process, deadline)]
    assert not left, f"not gone within {within} s: {_killed(left)}"


def wait_until_group_gone(group: int, within: float = 5) -> None:
    """Wait until no process of a group is left, those it forks meanwhile included. Raises as `wait_until_gone`."""
    deadline = time.monotonic() + within
    while left := group_members(group):
        assert _wait(left[0], deadline), f"group {group} not gone within {within} s: {_killed(left)}"


def _wait(process: psutil.Process, deadline: float) -> bool:
    """Wait for the end of a process, ours or not; tell whether it came in time."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        # The id may be another's by now: only a process that still is the same one is waited for.
        if not is_alive(process):
            return True
        poller = select.poll()
        poller.register(handle, select.POLLIN)
        return bool(poller.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(handle)


def _killed(processes: Iterable[psutil.Process]) -> list[str]:
    told = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            told.append(f"{process.pid} {' '.join(process.cmdline())}")
            process.kill()
    return told

"""The kernel's side of the reaper, and the end of all server processes at the interpreter's exit."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.protocol.transports.process import SIGKILL, end_descendants, escaped_descendants, still_running
from ipymcp.runtime import reaper_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipymcp.protocol.transports.process import ServerProcess


_EXIT_INPUT_END_TIMEOUT = 0.4
_EXIT_TERM_TIMEOUT = 0.8
_HOSTS = itertools.count(1)
"""The numbers of the hosts of this process."""


class Reaper:
    """One small process per host, started with the first server; see `reaper_child`."""

    def __init__(self) -> None:
        self.mark = _new_mark()
        """Value of `reaper_child.MARK` in the environment of this host's servers, unique since boot."""
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._processes: dict[int, ServerProcess] = {}

    @property
    def processes(self) -> list[ServerProcess]:
        """The processes of the servers that run now."""
        return list(self._processes.values())

    def starting(self) -> None:
        """Start the reaper before a process is started."""
        self._send("")

    def started(self, process: ServerProcess) -> None:
        """Add a process group to the list."""
        self._processes[process.pid] = process
        self._send(f"+ {process.pid} {reaper_child.start_time(process.pid)}\n")

    def ended(self, process: ServerProcess) -> None:
        """Remove a process group from the list."""
        self._processes.pop(process.pid, None)
        if self._pipe is not None:  # otherwise `close` was called meanwhile
            self._send(f"- {process.pid}\n")

    def end_all(self, close_inputs: Iterable[Callable[[], None]]) -> None:
        """End all processes and their escaped descendants within two seconds, at the interpreter's exit.

        Args:
            close_inputs: Functions that each close one server's input.
        """
        processes = self.processes
        # Descendants are found only while their parents run.
        escaped = escaped_descendants(process.pid for process in processes) if processes else []
        for close in close_inputs:
            close()
        alive = _wait(processes, _EXIT_INPUT_END_TIMEOUT)
        for process in alive:
            process.signal_group(signal.SIGTERM)
        alive = _wait(alive, _EXIT_TERM_TIMEOUT)
        for process in alive:
            process.signal_group(SIGKILL)
        alive = _wait(alive, 0.2)
        if escaped:
            end_descendants(escaped, 0.3)
        for process in processes:
            if process not in alive:
                self.ended(process)

    def close(self) -> None:
        """Close the pipe to the reaper, which then ends the remaining processes on its list."""
        with self._lock:
            pipe, self._pipe = self._pipe, None
            process, self._process = self._process, None
        if pipe is not None:
            os.close(pipe)
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
            process.returncode = process.returncode or 0  # Popen would warn about a child that is not waited for

    def close_in_fork(self) -> None:
        """Close the pipe in a forked child, which would otherwise keep the reaper alive after the kernel."""
        self._lock = threading.Lock()  # a thread of the parent may have held the old one
        pipe, self._pipe = self._pipe, None
        self._process = None
        self._processes = {}
        self.mark = _new_mark()
        if pipe is not None:
            os.close(pipe)

    def _send(self, line: str) -> None:
        if sys.platform == "win32":
            return
        with self._lock:
            try:
                if self._pipe is None:
                    self._pipe = self._start()
                os.write(self._pipe, line.encode())
            except OSError:
                # The reaper was killed: a new one gets the whole list.
                with contextlib.suppress(OSError):
                    self._restart()

    def _start(self) -> int:
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(reaper_child.__file__)), self.mark],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except BaseException:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        return write_end

    def _restart(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
        if self._process is not None:
            self._process.poll()
        self._pipe = self._start()
        for pid in list(self._processes):
            os.write(self._pipe, f"+ {pid} {reaper_child.start_time(pid)}\n".encode())


def _new_mark() -> str:
    """Return a mark that no other host has: with several hosts in a process, each reaper ends its own servers only."""
    return f"{os.getpid()}:{reaper_child.start_time(os.getpid())}:{next(_HOSTS)}"


def _wait(processes: list[ServerProcess], seconds: float) -> list[ServerProcess]:
    """The processes still running after this many seconds."""
    deadline = time.monotonic() + seconds
    while (processes := still_running(processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return processes

"""A server's process group: started in a session of its own, and ended as a whole.

To end it: close its input, wait, SIGTERM to the group, wait, SIGKILL to the group. The leader is not reaped before its
group was signalled, so that its process id cannot have been reused.

Source: MCP 2025-11-25 lifecycle (shutdown over stdio).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from ipymcp.errors import StartError
from ipymcp.files import open_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    import psutil


_POLL = 0.02
SIGKILL: int = getattr(signal, "SIGKILL", signal.SIGTERM)


class Launch(msgspec.Struct, frozen=True):
    """The program's full path and arguments, its whole environment, and its working folder."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None


class Grace(msgspec.Struct, frozen=True):
    """Time for a server to end, in seconds: after its input closed, and after SIGTERM."""

    eof: float = 2.0
    term: float = 3.0


@contextlib.contextmanager
def _unblocked_signals() -> Generator[None]:
    """Unblock all signals of this thread, since a process that is started inherits the blocked ones."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    blocked = signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class ServerProcess:
    """A child process and its group.

    Args:
        launch: The program to run.

    Raises:
        StartError: The process could not be started.
    """

    def __init__(self, launch: Launch) -> None:
        try:
            with _unblocked_signals():
                self.popen = subprocess.Popen(
                    list(launch.argv),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    cwd=launch.cwd,
                    env=dict(launch.env),
                    start_new_session=True,
                )
        except OSError as error:
            raise _start_error(launch, error) from error
        except ValueError as error:  # a null byte or a lone surrogate
            reason = "its command, arguments or variables contain an invalid character"
            raise StartError(f"could not be started: {reason}", hint="fix its definition") from error
        self.pid = self.popen.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code; None while it runs, negative for a signal."""
        return self.popen.returncode

    def detach_pipes(self) -> tuple[int, int, int]:
        """Take over the descriptors of standard input, output and error; the caller closes them."""
        streams = (self.popen.stdin, self.popen.stdout, self.popen.stderr)
        fds: list[int] = []
        for stream in streams:
            assert stream is not None
            fds.append(os.dup(stream.fileno()))
            stream.close()
        self.popen.stdin = self.popen.stdout = self.popen.stderr = None
        return fds[0], fds[1], fds[2]

    def watch(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future that completes when the process has ended, without reaping it."""
        ended: asyncio.Future[None] = loop.create_future()

        def on_end() -> None:
            if not ended.done():
                ended.set_result(None)

        if sys.platform == "linux":
            try:
                pidfd = os.pidfd_open(self.pid)
            except OSError:
                pass
            else:
                loop.add_reader(pidfd, on_end)

                def close(_: object) -> None:
                    loop.remove_reader(pidfd)
                    os.close(pidfd)

                ended.add_done_callback(close)
                return ended

        def wait() -> None:
            if sys.platform == "win32":
                self.popen.wait()
            else:
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(on_end)

        threading.Thread(target=wait, name="ipymcp-wait", daemon=True).start()
        return ended

    def signal_group(self, number: int) -> bool:
        """Send a signal to the group. False if the group is empty."""
        try:
            if sys.platform == "win32":
                if self.popen.poll() is not None:
                    return False
                self.popen.terminate()
            else:
                os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    async def end_group(self, ended: asyncio.Future[None], grace: Grace) -> None:
        """End the whole group. Its input must be closed, or its leader have ended."""
        try:
            await asyncio.wait({ended}, timeout=grace.eof)
            self.signal_group(signal.SIGTERM)
            deadline = time.monotonic() + grace.term
            while time.monotonic() < deadline and not await self._has_ended(ended):
                await asyncio.sleep(_POLL)
        finally:  # also when this task is cancelled
            if not ended.done() or self.reap() is None or self.signal_group(0):
                self.signal_group(SIGKILL)
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and not await self._has_ended(ended):
            await asyncio.sleep(_POLL)

    async def _has_ended(self, ended: asyncio.Future[None]) -> bool:
        """Whether the leader has ended and the group has no other running member."""
        if not ended.done():
            return False
        return not await asyncio.get_running_loop().run_in_executor(None, still_running, [self])

    def reap(self) -> int | None:
        """Collect the exit code, if the process has ended."""
        return self.popen.poll()


def _start_error(launch: Launch, error: OSError) -> StartError:
    """The error for a program that the system does not run, with the cause."""
    file = launch.argv[0]
    interpreter = _interpreter(file)
    if interpreter and error.errno in (errno.ENOENT, errno.EACCES):
        missing = "does not exist" if error.errno == errno.ENOENT else "may not be run"
        reason = f"the first line of {file} names the interpreter {interpreter!r}, which {missing}"
        by_hand = "correct that line, or make the interpreter its command and the file its first argument"
        hint = "save the file with Unix line ends" if interpreter.endswith("\r") else by_hand
    elif error.errno == errno.ENOEXEC:
        reason = f"{file} is neither a program for this machine nor a script whose first line names its interpreter"
        hint = "make the interpreter its command, such as python or bash, and the file its first argument"
    else:
        reason = f"{file}: {error.strerror or error}"
        hint = f"its working folder is {launch.cwd}" if launch.cwd else "is it a program this machine can run?"
    return StartError(f"could not be started ({reason})", hint=hint)


def _interpreter(file: str) -> str:
    """The interpreter that the first line of a script names, as it is written; empty if there is none."""
    with contextlib.suppress(OSError), open_file(file) as script:
        first = script.readline(256)
        if first.startswith(b"#!"):
            return first[2:].rstrip(b"\n").strip(b" \t").decode("utf-8", "replace").partition(" ")[0]
    return ""


def still_running(processes: Sequence[ServerProcess]) -> list[ServerProcess]:
    """Filter the processes whose group still has a running member, and reap their leaders."""
    left = [process for process in processes if process.reap() is None or process.signal_group(0)]
    if sys.platform != "linux" or all(process.exit_code is None for process in left):
        return left
    # Ended orphans stay in the group until they are reaped, which does not happen in some containers.
    groups: set[int] = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                state, _, group = stat.read().rpartition(b")")[2].split()[:3]
                if state not in (b"Z", b"X"):
                    groups.add(int(group))
    return [process for process in left if process.pid in groups]


def escaped_descendants(pids: Iterable[int]) -> list[psutil.Process]:
    """Find the descendants of these processes that left their groups, by one scan of the process table."""
    import psutil

    roots = set(pids)
    children: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid"]):
        children.setdefault(process.info["ppid"], []).append(process)
    escaped: list[psutil.Process] = []
    for root in roots:
        queue = [root]
        while queue:
            for child in children.get(queue.pop(), []):
                queue.append(child.pid)
                with contextlib.suppress(psutil.Error, OSError):
                    child.create_time()
                    if sys.platform == "win32" or os.getpgid(child.pid) != root:
                        escaped.append(child)
    return escaped


def end_descendants(processes: Sequence[psutil.Process], grace: float) -> None:
    """End processes: SIGTERM, wait at most `grace` seconds, SIGKILL. A reused process id is not signalled."""
    import psutil

    alive = list(processes)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(alive, timeout=grace)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()

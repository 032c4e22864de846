"""Servers behind a port: started, waited for until they listen, ended with all they started."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"


def free_port() -> int:
    """Give a port of the loopback that nothing listens on now."""
    with socket.create_server((HOST, 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def serving(
    command: Sequence[str], port: int, folder: Path, env: Mapping[str, str] | None = None, within: float = 60
) -> Iterator[str]:
    """Run a command that serves on `port`. Give its origin, `http://127.0.0.1:PORT`, once it listens.

    Raises:
        AssertionError: It ended, or did not listen in time; its output is told.
    """
    output = folder / f"served-{port}.txt"
    with output.open("wb") as written:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        ended = os.pidfd_open(process.pid)
        try:
            deadline = time.monotonic() + within
            while not _listens(port):
                assert not select.select([ended], [], [], 0.05)[0], f"{command} ended:\n{output.read_text()}"
                assert time.monotonic() < deadline, f"{command} does not listen on {port}:\n{output.read_text()}"
        finally:
            os.close(ended)
        yield f"http://{HOST}:{port}"
    finally:
        _end(process)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except OSError:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and its group: asked first, then made to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

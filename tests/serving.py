"""Servers behind a port: started, waited for until they listen, ended with all they started. Linux only."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

HOST = "127.0.0.1"
START_TIMEOUT = 60.0


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a port of the loopback: connections to it are refused until a server that is given its number listens.

    A bound socket that does not listen holds the port, so that the kernel gives it to no other program. A server binds
    the same port beside it if it sets SO_REUSEADDR, as asyncio, uvicorn, Tornado, http.server and Node do.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind((HOST, 0))
        yield reservation.getsockname()[1]


class PortServer:
    """A program that serves on a reserved port; it can be killed, and started again on the same port.

    Args:
        command: The command line for a port. The port is in the variable PORT as well.
        port: The reserved port.
        folder: The working directory, and the folder of the program's output.
        env: Further environment variables.
    """

    def __init__(
        self, command: Callable[[int], Sequence[str]], port: int, folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        self.origin = f"http://{HOST}:{port}"
        self._command = command(port)
        self._folder = folder
        self._env = {**os.environ, "PORT": str(port), **(env or {})}
        self._output = folder / f"served-{port}.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, and wait until it listens.

        Raises:
            AssertionError: It ended, or did not listen in time; the text holds its output.
        """
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT
        ended = os.pidfd_open(self._process.pid)
        try:
            while not self._listens():
                assert not select.select([ended], [], [], 0.05)[0], f"{self._command} ended:\n{self._read()}"
                assert time.monotonic() < deadline, f"{self._command} does not listen:\n{self._read()}"
        finally:
            os.close(ended)

    def stop(self) -> None:
        """End the process and its group: with SIGTERM, after 5 seconds with SIGKILL."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process and its group at once."""
        self._end()

    def _end(self, *signals: int) -> None:
        if self._process is None:
            return
        for number in (*signals, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self._process = None

    def _listens(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def _read(self) -> str:
        return self._output.read_text(errors="replace")


@contextlib.contextmanager
def serving(
    command: Callable[[int], Sequence[str]], folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[PortServer]:
    """Run a server for as long as the `with` lasts. Arguments and errors as of `PortServer`."""
    with reserved_port() as port:
        server = PortServer(command, port, folder, env)
        try:
            server.start()
            yield server
        finally:
            server.stop()

"""Who is measured, with which interpreter, and the processes that do it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 300.0
"""Seconds a worker may take over one command."""

OWN = ("ipymcp", "ipykernel", "ipython", "msgspec")
PEERS = ("mcp", "fastmcp", "mcp-use", "langchain-mcp-adapters", "langchain-core")


class WorkerError(RuntimeError):
    """A worker said that it failed, or said nothing."""


@dataclass(frozen=True)
class Contender:
    """One client under test.

    `package` must be installed; `client` is the import a user of it writes, as MODULE:NAME; `environment` is a folder
    under `.envs`, none for the driver's own. `IPYMCP_BENCH_<NAME>` names another interpreter.
    """

    name: str
    label: str
    module: str
    package: str = "json"
    client: str = ""
    environment: str | None = None

    @property
    def python(self) -> str:
        default = str(ROOT / ".envs" / self.environment / "bin" / "python") if self.environment else sys.executable
        return os.environ.get(f"IPYMCP_BENCH_{self.name.upper()}", default)

    def absence(self) -> str | None:
        """Why it cannot be measured here, or nothing."""
        if not Path(self.python).exists():
            return "its environment is not there"
        check = f"import importlib.util as u, sys; sys.exit(u.find_spec({self.package!r}) is None)"
        if subprocess.run([self.python, "-c", check], cwd=ROOT, check=False).returncode:
            return f"{self.package} is not installed in its environment"
        return None

    def versions(self) -> str:
        """Its Python's version, and those of what matters there."""
        code = (
            "import platform, importlib.metadata as m\n"
            f"wanted = {OWN if self.environment is None else PEERS!r}\n"
            "have = {d.name.lower(): d.version for d in m.distributions()}\n"
            "print('Python', platform.python_version(), *[f'{n} {have[n]}' for n in wanted if n in have])"
        )
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
        return done.stdout.strip()


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("floor", "floor (asyncio, json)", "floor"),
        Contender("httpx", "bare httpx, msgspec", "bare_httpx", "httpx"),
        Contender("aiohttp", "bare aiohttp, msgspec", "bare_aiohttp", "aiohttp", environment="peer-aiohttp"),
        Contender("ours", "ipymcp, in a cell", "kernel", "ipykernel"),
        Contender("script", "ipymcp, in a script", "ours", "ipymcp"),
        Contender("sdk", "official SDK", "sdk", "mcp", "mcp:Client", "sdk2"),
        Contender("fastmcp", "fastmcp", "fastmcp", "fastmcp", "fastmcp:Client", "peer-fastmcp"),
        Contender("mcp_use", "mcp-use", "mcp_use", "mcp_use", "mcp_use:MCPClient", "peer-mcp-use"),
        Contender(
            "langchain",
            "langchain-mcp-adapters",
            "langchain",
            "langchain_mcp_adapters",
            "langchain_mcp_adapters.client:MultiServerMCPClient",
            "peer-langchain",
        ),
    )
}
LIGHT_SERVER = f"{sys.executable} -I -S {ROOT / 'benchmarks' / 'servers.py'}"
HTTP_SERVER = (sys.executable, "-I", "-S", str(ROOT / "benchmarks" / "http_server.py"))
SDK_SERVER = f"{CONTENDERS['sdk'].python} {ROOT / 'benchmarks' / 'sdk_server.py'}"


def worker_environment() -> dict[str, str]:
    """Ours without the ban on bytecode: pip compiles what it installs, a checkout is compiled at its first import."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "MCP_USE_ANONYMIZED_TELEMETRY": "false"}


@contextlib.contextmanager
def http_server() -> Iterator[str]:
    """The light server behind a URL, which is given."""
    process = subprocess.Popen(HTTP_SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin
    assert process.stdout
    try:
        yield process.stdout.readline().strip()
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


class Worker:
    """A contender's process: one command a line, one JSON object back."""

    def __init__(self, contender: Contender, *, module: str | None = None, arguments: tuple[str, ...] = ()) -> None:
        self.started = self.heard = time.perf_counter()
        self._process = subprocess.Popen(
            [contender.python, "-m", f"benchmarks.workers.{module or contender.module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=worker_environment(),
            text=True,
        )
        assert self._process.stderr
        self._complaints: list[str] = []
        threading.Thread(target=self._complaints.extend, args=(self._process.stderr,), daemon=True).start()

    def ask(self, *lines: str) -> list[dict[str, Any]]:
        """Send all lines at once, then wait for the answer to each.

        Raises:
            WorkerError: One of them failed.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write("".join(f"{line}\n" for line in lines))
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `hear` says why
        return [self.hear() for _ in lines]

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout
        alarm = threading.Timer(PATIENCE, self._process.kill)
        alarm.start()
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # some packages greet on stdout when imported
            line = self._process.stdout.readline()
        self.heard = time.perf_counter()
        alarm.cancel()
        if not line:
            last = self._complaints[-1].strip() if self._complaints else "no word on stderr"
            raise WorkerError(f"the worker ended: {last}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def close(self) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.close()
            self._process.wait(30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()

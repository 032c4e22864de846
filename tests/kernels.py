"""Real kernels, driven over the wire as a front end drives them.

    with kernels.started("kernel-6", folder) as kernel:
        assert kernel.run("1 + 1").text == "2"

One thread does it all: the one that waits reads the channels, and hands each message to the cell that caused it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import psutil
import zmq
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from tests.environments import ROOT, kernel_python
from tests.processes import descendants, is_alive, wait_until_gone
from tests.wire import tapped

KERNELS = ("kernel-7", "kernel-6", "kernel-colab")
FORKED = ("kernel-7", "models", "readme")
"""Kernels that are forked from a process that has imported everything, unless a test wants them cold."""

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# What would tell the kernel about this test run, or about the user's own Jupyter.
_PRIVATE = ("PYTHON", "IPYTHON", "JUPYTER", "JPY_", "IPYMCP", "PYTEST", "XDG_", "VIRTUAL_ENV")

Bundle = dict[str, Any]
"""A display's data by MIME type."""


class KernelDied(Exception):
    """The kernel's process ended while something waited for it; the text is what it wrote last."""


@dataclass(frozen=True)
class Failure:
    """The exception that ended a cell, its traceback without colours."""

    ename: str
    evalue: str
    traceback: str


@dataclass
class Outcome:
    """The outcome of a cell so far, as a front end shows it."""

    status: str = "running"
    execution_count: int | None = None
    result: Bundle | None = None
    stdout: str = ""
    stderr: str = ""
    displays: list[Bundle] = field(default_factory=list)
    """What is shown now: updates have replaced what they update, and cleared output is gone."""
    error: Failure | None = None
    prompts: list[str] = field(default_factory=list)
    """What `input()` and `getpass()` have asked."""
    payload: list[dict[str, Any]] = field(default_factory=list)
    """What the reply asks of the front end, such as the pager for `name?`."""
    messages: list[dict[str, Any]] = field(default_factory=list)
    """Every message on iopub that this cell caused, as it came."""

    @property
    def text(self) -> str | None:
        """The result as plain text."""
        return None if self.result is None else self.result.get("text/plain")

    @property
    def pager(self) -> str:
        """The plain text that `name?` shows."""
        pages = (one["data"]["text/plain"] for one in self.payload if one["source"] == "page")
        return _ANSI.sub("", "".join(pages))


@dataclass(frozen=True)
class Completion:
    """The completions that Tab offers for `code[start:end]`."""

    matches: list[str]
    start: int
    end: int
    types: list[str]
    """The kind of each match, where the kernel tells it."""


class Cell:
    """Code that was sent to a kernel, running or done."""

    def __init__(self, kernel: Kernel, answers: Sequence[str]) -> None:
        self.outcome = Outcome()
        self.answers = list(answers)
        self.replied = False
        self.idle = False
        self._kernel = kernel
        self._display_ids: dict[str, list[int]] = {}
        self._clear_first = False

    @property
    def done(self) -> bool:
        """Whether the reply has come and the kernel is idle again: no output can follow, threads aside."""
        return self.replied and self.idle

    def wait(self, timeout: float = 60) -> Outcome:
        """Wait for the end.

        Raises:
            TimeoutError: It is not done after `timeout` seconds.
            KernelDied: It never will be.
        """
        return self.wait_for(lambda _: self.done, timeout)

    def wait_for(self, condition: Callable[[Outcome], bool], timeout: float = 60) -> Outcome:
        """Wait until what has come so far meets a condition. Raises as `wait`."""
        self._kernel.read_until(lambda: condition(self.outcome), timeout, self.outcome)
        return self.outcome

    def wait_for_output(self, text: str, timeout: float = 60) -> Outcome:
        """Wait until `text` stands in what the cell has printed. Raises as `wait`."""
        return self.wait_for(lambda outcome: text in outcome.stdout, timeout)

    def take(self, message: dict[str, Any]) -> None:
        """Take in one message from iopub."""
        outcome, content = self.outcome, message["content"]
        outcome.messages.append(message)
        match message["msg_type"]:
            case "status":
                self.idle = content["execution_state"] == "idle"
            case "clear_output":
                self._clear_first = content["wait"]
                if not content["wait"]:
                    self._clear()
            case "stream":
                self._clear_if_due()
                setattr(outcome, content["name"], getattr(outcome, content["name"]) + content["text"])
            case "execute_result":
                self._clear_if_due()
                outcome.result = content["data"]
            case "display_data":
                self._clear_if_due()
                display_id = content.get("transient", {}).get("display_id")
                self._display_ids.setdefault(display_id, []).append(len(outcome.displays))
                outcome.displays.append(content["data"])
            case "error":
                self._clear_if_due()
                outcome.error = _failure(content)

    def update_display(self, content: dict[str, Any]) -> None:
        """Replace the displays of one id: any cell may have shown them."""
        for index in self._display_ids.get(content["transient"]["display_id"], []):
            self.outcome.displays[index] = content["data"]

    def take_reply(self, content: dict[str, Any]) -> None:
        """Take in the reply on the shell channel."""
        self.replied = True
        self.outcome.status = content["status"]
        self.outcome.execution_count = content.get("execution_count")
        self.outcome.payload = content.get("payload", [])
        if content["status"] == "error" and self.outcome.error is None:
            self.outcome.error = _failure(content)

    def _clear_if_due(self) -> None:
        if self._clear_first:
            self._clear()

    def _clear(self) -> None:
        self._clear_first = False
        self._display_ids.clear()
        self.outcome.displays.clear()
        self.outcome.stdout = self.outcome.stderr = ""


def _failure(content: dict[str, Any]) -> Failure:
    traceback = _ANSI.sub("", "\n".join(content.get("traceback", [])))
    return Failure(content["ename"], content["evalue"], traceback)


class ForkServer:
    """A process with everything imported, from which kernels of one environment are forked (`tests/fork_server.py`)."""

    _running: ClassVar[dict[str, ForkServer]] = {}

    def __init__(self, name: str) -> None:
        python = kernel_python(name)
        checkout = {"PYTHONPATH": str(ROOT)} if name == "kernel-7" else {}
        self._folder = Path(tempfile.mkdtemp(prefix="ipymcp-fork-"))
        self._process = subprocess.Popen(
            [str(python), str(ROOT / "tests" / "fork_server.py")],
            env=tapped(private_environment(python, self._folder, checkout)),
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @classmethod
    def of(cls, name: str) -> ForkServer:
        """Give the fork server of an environment, started at its first kernel."""
        return cls._running.get(name) or cls._running.setdefault(name, cls(name))

    @classmethod
    def processes(cls) -> set[int]:
        """The ids of the running servers' processes."""
        return {server._process.pid for server in cls._running.values()}

    @classmethod
    def stop_all(cls) -> None:
        """End the servers; kernels that still run end with them."""
        while cls._running:
            cls._running.popitem()[1]._stop()

    def fork(self, request: Mapping[str, Any]) -> psutil.Process:
        """Fork a kernel."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return psutil.Process(int(self._process.stdout.readline()))

    def _stop(self) -> None:
        self._process.communicate(timeout=30)
        shutil.rmtree(self._folder)


class ForkedProcess:
    """The part of `Popen` that Jupyter's client needs of a kernel's process."""

    stdin = stdout = stderr = None

    def __init__(self, process: psutil.Process) -> None:
        self.pid = process.pid
        self._process = process

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.send_signal(number)

    def poll(self) -> int | None:
        return None if is_alive(self._process) else 0

    def wait(self) -> int:
        wait_until_gone([self._process], within=30)
        return 0


class ForkProvisioner(LocalProvisioner):
    """Forks kernels where Jupyter's own provisioner launches them."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        request = {"argv": cmd[2:], "env": options["env"], "cwd": options["cwd"], "log": options["stdout"].name}
        process = ForkServer.of(self.parent.kernel_name).fork(request)
        self.process, self.pid, self.pgid = ForkedProcess(process), process.pid, process.pid
        return self.connection_info


class Kernel:
    """A kernel in its own process, with a home folder and settings of its own."""

    def __init__(self, name: str, folder: Path, env: Mapping[str, str] | None = None, *, cold: bool = False) -> None:
        """Prepare a kernel of one of `KERNELS` (or another environment with ipykernel) that runs in `folder`.

        Args:
            name: Its environment.
            folder: Its working folder.
            env: Further environment variables.
            cold: Whether to launch it as a front end does where it could be forked.
        """
        self.name = name
        self.folder = folder
        self._cold = cold or name not in FORKED
        self._python = kernel_python(name)
        # The newest kernel runs ipymcp from the checkout, the others the wheel that was installed in them.
        checkout = {"PYTHONPATH": str(ROOT)} if name == "kernel-7" else {}
        self.environment = tapped(private_environment(self._python, folder, {**checkout, **(env or {})}))
        """Its process's environment variables."""
        self._log = (folder / "kernel.log").open("ab")
        self.pid = 0
        """The id of the kernel's process; after its end, the one it had."""
        self._cells: dict[str, Cell] = {}
        self.comms: list[dict[str, Any]] = []
        """Every message of a comm, as it came."""
        self._replies: dict[str, dict[str, Any]] = {}

    def launch(self) -> None:
        """Start the process, and wait until it answers.

        Raises:
            KernelDied: It never will.
        """
        specs = self.folder / "kernelspecs"
        spec = specs / self.name / "kernel.json"
        spec.parent.mkdir(parents=True, exist_ok=True)
        argv = [str(self._python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec.write_text(json.dumps({"argv": argv, "display_name": self.name, "language": "python"}))
        self._sockets = Path(tempfile.mkdtemp(prefix="ipymcp-"))  # a port could be taken before the kernel binds it
        self._manager = KernelManager(
            kernel_name=self.name,
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[str(specs)], ensure_native_kernel=False),
            connection_file=str(self.folder / "connection.json"),
            transport="ipc",
            ip=str(self._sockets / "kernel"),
        )
        if not self._cold:
            spec = self._manager.kernel_spec
            self._manager.provisioner = ForkProvisioner(kernel_id=self.name, kernel_spec=spec, parent=self._manager)
        self._manager.start_kernel(env=self.environment, cwd=str(self.folder), stdout=self._log, stderr=self._log)
        try:
            self._connect()
        except BaseException:
            self.shutdown(now=True)
            raise

    def run(self, code: str, *, timeout: float = 60, **options: Any) -> Outcome:
        """Run a cell to its end, with the options of `start`. Raises as `Cell.wait`."""
        return self.start(code, **options).wait(timeout)

    def value(self, expression: str) -> Any:
        """The value of an expression in the kernel, through JSON."""
        outcome = self.run(f"import json; print(json.dumps({expression}))")
        assert outcome.status == "ok", outcome
        return json.loads(outcome.stdout)

    def start_timed(self, code: str) -> Cell:
        """Start a cell that notes when it fails, for `interrupt_within`."""
        lines = "\n".join(f"    {line}" for line in code.splitlines())
        return self.start(f"try:\n{lines}\nexcept BaseException:\n    ended = time.monotonic()\n    raise")

    def interrupt_within(self, seconds: float, cell: Cell) -> Outcome:
        """Interrupt a timed cell, whose code ends in time (that IPython then draws a traceback is not counted)."""
        before = time.monotonic()
        self.interrupt()
        outcome = cell.wait(timeout=20)
        took = self.value("ended") - before  # one clock for all processes
        assert took < seconds, f"{took:.2f} s: {outcome}"
        return outcome

    def start(
        self, code: str, *, answers: Sequence[str] | None = None, silent: bool = False, console: bool = False
    ) -> Cell:
        """Send a cell and return at once.

        Args:
            code: The cell.
            answers: What to type at each prompt in turn; a prompt beyond the last stays open. Where this is None the
                request says that no one can answer, as those of nbclient and papermill do.
            silent: Whether to run it without history and display hook.
            console: Whether to send it as a console does, without the id of a cell.
        """
        cell = Cell(self, answers or ())
        self._client.session.metadata = {} if console else {"cellId": uuid.uuid4().hex}
        message_id = self._client.execute(code, silent=silent, allow_stdin=answers is not None, stop_on_error=False)
        self._cells[message_id] = cell
        return cell

    def interrupt(self) -> None:
        """Interrupt the kernel as the stop button does."""
        self._manager.interrupt_kernel()

    def complete(self, code: str, position: int | None = None, *, timeout: float = 30) -> Completion:
        """Ask what Tab offers at `position` (the end of the code unless told)."""
        content = self._ask(self._client.complete(code, position), timeout)
        types = [one["type"] for one in content["metadata"].get("_jupyter_types_experimental", [])]
        return Completion(content["matches"], content["cursor_start"], content["cursor_end"], types)

    def inspect(self, code: str, position: int | None = None, *, detail: int = 0, timeout: float = 30) -> str | None:
        """Ask what Shift-Tab shows at `position`, without colours; None if the kernel finds nothing."""
        content = self._ask(self._client.inspect(code, position, detail), timeout)
        return _ANSI.sub("", content["data"]["text/plain"]) if content["found"] else None

    def say(self, comm: str, data: Mapping[str, Any], subshell: str | None = None) -> None:
        """Send a message over a comm, as a widget's view does, to a subshell where one is named."""
        message = self._client.session.msg("comm_msg", {"comm_id": comm, "data": data})
        if subshell is not None:
            message["header"]["subshell_id"] = subshell
        self._client.shell_channel.send(message)

    def request(self, kind: str, content: Mapping[str, Any]) -> None:
        """Send a request on the control channel, which a cell does not block."""
        self._client.control_channel.send(self._client.session.msg(kind, dict(content)))

    def open_comm(self, target: str) -> str:
        """Open a comm, as a page does, and give its id."""
        comm = uuid.uuid4().hex
        content = {"comm_id": comm, "target_name": target, "data": {}}
        self._client.shell_channel.send(self._client.session.msg("comm_open", content))
        return comm

    def make_subshell(self) -> str:
        """Have the kernel make a subshell, and give its name."""
        self._client.control_channel.send(self._client.session.msg("create_subshell_request", {}))
        return self._client.control_channel.get_msg(timeout=30)["content"]["subshell_id"]

    def answer(self, text: str) -> None:
        """Type an answer at the prompt that is open."""
        self._client.input(text)

    def read_until(self, condition: Callable[[], bool], timeout: float, so_far: object = None) -> None:
        """Read the channels until the condition holds.

        Raises:
            TimeoutError: It does not hold after `timeout` seconds; the text holds `so_far`.
            KernelDied: The kernel's process ended first.
        """
        deadline = time.monotonic() + timeout
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"not within {timeout} s: {so_far}\n{self.log()}")
            if not self._read(min(left, 0.5)) and not self._manager.is_alive():
                raise KernelDied(f"{self.name} ended: {so_far}\n{self.log()}")

    def log(self) -> str:
        """Give the last 4,000 characters of what the process itself wrote to its stdout and stderr."""
        return Path(self._log.name).read_text(errors="replace")[-4000:]

    def restart(self, *, now: bool = False) -> None:
        """Restart the kernel, as the front end's button does; `now` kills it first."""
        self._client.stop_channels()
        self._manager.restart_kernel(now=now)
        self._cells.clear()
        self._connect()

    def shutdown(self, *, now: bool = False) -> None:
        """End the kernel in good order, or kill it `now`. A second time does nothing."""
        if not self._log.closed:
            self._client.stop_channels()
            self._manager.shutdown_kernel(now=now)
            self._log.close()
            shutil.rmtree(self._sockets)

    def _connect(self) -> None:
        """Wait until the kernel answers on all channels."""
        self.pid = self._manager.provisioner.pid
        self._client = self._manager.blocking_client()
        self._client.start_channels(hb=False)
        self._poller = zmq.Poller()
        for channel in self._channels().values():
            self._poller.register(channel.socket, zmq.POLLIN)
        first = Cell(self, ())
        deadline = time.monotonic() + 60
        while not first.done:
            assert time.monotonic() < deadline, f"{self.name} does not answer\n{self.log()}"
            self._cells[self._client.kernel_info()] = first
            with contextlib.suppress(TimeoutError):
                first.wait(0.1)
        self._cells.clear()

    def _channels(self) -> dict[str, Any]:
        # iopub first: a cell's output is taken in before its reply.
        client = self._client
        return {"iopub": client.iopub_channel, "stdin": client.stdin_channel, "shell": client.shell_channel}

    def _read(self, timeout: float) -> bool:
        """Take in what has come, waiting for at most `timeout` seconds; tell whether anything had."""
        if not self._poller.poll(timeout * 1000):
            return False
        for name, channel in self._channels().items():
            while channel.msg_ready():
                getattr(self, f"_take_{name}")(channel.get_msg(timeout=1))
        return True

    def _take_iopub(self, message: dict[str, Any]) -> None:
        if message["msg_type"] in ("comm_open", "comm_msg", "comm_close"):
            self.comms.append(message)
        if message["msg_type"] == "update_display_data":
            for cell in self._cells.values():
                cell.update_display(message["content"])
        if cell := self._cells.get(message["parent_header"].get("msg_id")):
            cell.take(message)

    def _take_shell(self, message: dict[str, Any]) -> None:
        message_id = message["parent_header"].get("msg_id")
        if cell := self._cells.get(message_id):
            cell.take_reply(message["content"])
        else:
            self._replies[message_id] = message["content"]

    def _take_stdin(self, message: dict[str, Any]) -> None:
        if cell := self._cells.get(message["parent_header"].get("msg_id")):
            cell.outcome.prompts.append(message["content"]["prompt"])
            if cell.answers:
                self.answer(cell.answers.pop(0))

    def _ask(self, message_id: str, timeout: float) -> dict[str, Any]:
        self.read_until(lambda: message_id in self._replies, timeout)
        return self._replies.pop(message_id)


def strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


@contextlib.contextmanager
def started(name: str, folder: Path, env: Mapping[str, str] | None = None, *, cold: bool = False) -> Iterator[Kernel]:
    """Run a kernel; at the end it is gone, and with it every process below it within 5 seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    kernel = Kernel(name, folder, env, cold=cold)
    kernel.launch()
    try:
        yield kernel
    finally:
        below = descendants(kernel.pid)
        kernel.shutdown()
        wait_until_gone(below, within=5)


def private_environment(python: Path, folder: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of a process that has a home and a Jupyter of its own, below `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    own = {
        "HOME": str(folder / "home"),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_CONFIG_DIR": str(folder / "jupyter" / "config"),
        "JUPYTER_DATA_DIR": str(folder / "jupyter" / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter" / "runtime"),
        "PATH": os.pathsep.join([str(python.parent), kept.get("PATH", os.defpath)]),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    for path in list(own.values())[:5]:
        Path(path).mkdir(parents=True, exist_ok=True)
    return {**kept, **own, **extra}

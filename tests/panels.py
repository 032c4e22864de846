"""Views of a panel without a page: the raw protocol over a widget's comm, the relay's socket, or neither."""

from __future__ import annotations

import asyncio
import itertools
import json
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from ipymcp.panel.panel import Panel
from tests.kernels import Kernel
from tests.processes import wait_until

Message = dict[str, Any]
PARTS = ("servers", "calls", "questions")
_WIDGET = "application/vnd.jupyter.widget-view+json"


class View:
    """The messages that a view received, and its snapshot of the state."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self._ids = itertools.count(1)

    def send(self, message: object) -> None:
        """Send a message, well-formed or not."""
        raise NotImplementedError

    def listen(self, condition: Callable[[], bool], timeout: float) -> None:
        """Receive messages until the condition holds; raises TimeoutError after `timeout` seconds."""
        raise NotImplementedError

    def hello(self, **fields: Any) -> Message:
        """Send a hello; give the kernel's hello once a snapshot has come as well."""
        before = len(self.received)
        self.send({"kind": "hello", "version": 1, "client": "cell", "wants": [*PARTS], **fields})
        self.wait(lambda message: message["kind"] == "snapshot", after=before)
        return next(message for message in self.received[before:] if message["kind"] == "hello")

    def wait(self, wanted: Callable[[Message], bool], *, after: int = 0, timeout: float = 30) -> Message:
        """Wait for the first wanted message, not counting the first `after` messages."""
        self.listen(lambda: any(map(wanted, self.received[after:])), timeout)
        return next(filter(wanted, self.received[after:]))

    def reply(self, verb: str, **fields: Any) -> Message:
        """Send an intent, and give the whole reply."""
        number, before = next(self._ids), len(self.received)
        self.send({"kind": "intent", "id": number, "do": verb, **fields})
        return self.wait(lambda message: message["kind"] == "reply" and message["id"] == number, after=before)

    def ask(self, verb: str, **fields: Any) -> Any:
        """Send an intent that is not refused, and give the value of the reply."""
        reply = self.reply(verb, **fields)
        assert reply["ok"], reply
        return reply["value"]

    def call(self, server: str, tool: str, **arguments: Any) -> Message:
        """Call a tool, and give the message that says how it ended."""
        return self.result(self.ask("call", server=server, tool=tool, arguments=arguments)["call"])

    def result(self, call: int) -> Message:
        """Wait for the message that says how a call ended."""
        return self.wait(lambda message: message["kind"] == "result" and message["call"] == call)

    def of_kind(self, *kinds: str) -> list[Message]:
        """The received messages of these kinds."""
        return [message for message in self.received if message["kind"] in kinds]

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """The state by the last snapshot and the patches since, none of which may be missing."""
        state: dict[str, dict[str, Any]] = {}
        number = None
        for message in self.of_kind("snapshot", "patch"):
            if message["kind"] == "snapshot":
                state = {part: dict(rows) for part, rows in message["state"].items()}
            else:
                assert message["seq"] == number + 1
                for part, rows in message["set"].items():
                    for name, row in rows.items():
                        if row is None:
                            del state[part][name]
                        else:
                            state[part][name] = row
            number = message["seq"]
        return state

    def until(self, condition: Callable[[dict[str, dict[str, Any]]], bool], timeout: float = 30) -> None:
        """Receive messages until the state meets a condition."""
        self.listen(lambda: condition(self.state), timeout)

    def until_server(self, name: str, state: str, timeout: float = 30) -> None:
        """Receive messages until a server is in this state."""
        self.until(lambda shown: shown["servers"].get(name, {}).get("state") == state, timeout)

    def question(self, kind: str | None = None) -> Message:
        """Receive messages until exactly one question is open, of this type if one is named, and give it."""

        def is_open(state: dict[str, dict[str, Any]]) -> bool:
            types = [row["type"] for row in state["questions"].values()]
            return len(types) == 1 and kind in (None, *types)

        self.until(is_open)
        [question] = self.state["questions"].values()
        return question

    def answer(self, question: Message, **fields: Any) -> Any:
        """Answer a question; give the faults of the answer, None without any."""
        return self.ask("answer", question=question["id"], **fields)

    def until_no_question(self) -> None:
        self.until(lambda state: not state["questions"])


class DirectView(View):
    """A view in the same process, without a kernel."""

    def __init__(self, panel: Panel) -> None:
        super().__init__()
        self.taken: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.room = threading.Event()
        """While it is cleared, the view takes no messages."""
        self.room.set()
        self.is_left = False
        self.sizes: list[int] = []
        self._panel = panel
        self._view = panel.attach(self)

    async def send_line(self, line: bytes) -> None:
        while not self.room.is_set():
            await asyncio.sleep(0.01)
        self.sizes.append(len(line))
        self.taken.put(json.loads(line))

    def restart(self, hello: object) -> None: ...

    def acknowledge(self, count: int) -> None: ...

    def delivers_answers(self, *, blocked: bool, running: bool) -> bool:
        return not blocked

    def detach(self) -> None:
        self.is_left = True

    def send(self, message: object) -> None:
        self._panel.receive(self._view, message)

    def leave(self) -> None:
        self._panel.host.loop.call(self._panel.detach, self._view)

    def settle(self) -> None:
        """Have the panel look for changes now, and receive everything that it has to send."""
        self._panel.host.loop.run(self._look())
        for _ in range(2):  # the reply comes before the updates of the same wake-up, the second after them
            self.received.remove(self.reply("settle"))

    async def _look(self) -> None:
        self._panel.shown.update()
        self._view.wake_if_changed()

    def listen(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            try:
                self.received.append(self.taken.get(timeout=max(deadline - time.monotonic(), 0.001)))
            except queue.Empty:
                raise TimeoutError(f"not within {timeout} s; received last: {self.received[-3:]}") from None


class CommView(View):
    """The view of a widget that a cell has displayed."""

    def __init__(self, kernel: Kernel, displays: Iterable[Mapping[str, Any]]) -> None:
        super().__init__()
        self._kernel = kernel
        self.subshell: str | None = None
        """The subshell that receives its messages; None for the main shell."""
        self.comm: str = next(display[_WIDGET]["model_id"] for display in displays if _WIDGET in display)

    def send(self, message: object) -> None:
        self._kernel.say(self.comm, {"method": "custom", "content": message}, self.subshell)

    def listen(self, condition: Callable[[], bool], timeout: float) -> None:
        self._kernel.read_until(lambda: self._is_met(condition), timeout, self.received[-3:])

    @property
    def is_closed(self) -> bool:
        """Whether the kernel has closed the comm, by the messages that were read."""
        return any(message["msg_type"] == "comm_close" for message in self._messages())

    def _messages(self) -> list[dict[str, Any]]:
        return [message for message in self._kernel.comms if message["content"]["comm_id"] == self.comm]

    def _is_met(self, condition: Callable[[], bool]) -> bool:
        sent = (message["content"]["data"] for message in self._messages())
        self.received = [data["content"] for data in sent if data.get("method") == "custom"]
        return condition()


class PageView(CommView):
    """The view of a page that has no relay to the kernel: a comm that it opens itself."""

    def __init__(self, kernel: Kernel) -> None:
        View.__init__(self)
        self._kernel = kernel
        self.subshell = None
        self.comm = self._open()

    def _open(self) -> str:
        return self._kernel.open_comm("ipymcp")

    def send(self, message: object) -> None:
        self._kernel.say(self.comm, cast("Message", message), self.subshell)

    def _is_met(self, condition: Callable[[], bool]) -> bool:
        sent = (message for message in self._messages() if message["msg_type"] == "comm_msg")
        self.received = [message["content"]["data"] for message in sent]
        return condition()


class ControlView(PageView):
    """The view of a page that uses the control channel from the start, because the kernel was busy."""

    def _open(self) -> str:
        return uuid.uuid4().hex

    def send(self, message: object) -> None:
        self._kernel.request("ipymcp_request", {"comm_id": self.comm, "data": message})


class SocketView(View):
    """A view over the relay's socket, as the Jupyter server connects."""

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self._rest = b""

    def send(self, message: object) -> None:
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def listen(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            data = self.socket.recv(1_000_000)
            if not data:
                raise ConnectionError("the kernel has closed it")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.received += [json.loads(line) for line in lines]

    def __enter__(self) -> SocketView:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def relay_file(kernel: Kernel, timeout: float = 30) -> Message:
    """The contents of the kernel's runtime file, once it exists."""
    file = Path(kernel.folder, "jupyter", "runtime", "ipymcp-connection.json")
    wait_until(lambda: file.exists() or not kernel.run("pass"), timeout)  # it is written after a cell
    return json.loads(file.read_text()) | {"file": str(file)}


def wait_for_views(kernel: Kernel, count: int, timeout: float = 30) -> None:
    """Wait until so many views are attached to the kernel's panel."""
    cell = "len(get_ipython()._ipymcp_extension.panel.views)"
    wait_until(lambda: kernel.run(cell).text == str(count), timeout)

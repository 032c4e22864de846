"""The tools of misbehaving.py, and what they are made of."""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading

META = "io.modelcontextprotocol/"
Frame = dict[str, Any]


def text(value: str, **more: Any) -> Frame:
    return {"content": [{"type": "text", "text": value}], **more}


def structured(value: Any) -> Frame:
    return text(json.dumps(value), structuredContent=value)


class Refusal(Exception):
    """Answered as a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Call:
    """The context of a tool's call."""

    def __init__(self, identifier: Any, meta: Frame, cancelled: threading.Event, modern: bool) -> None:
        self.id, self.meta, self.cancelled, self.modern = identifier, meta, cancelled, modern


class Tools:
    """Each method is a tool: `tool_NAME(call, **arguments)`; None where there is no answer."""

    words: dict[str, str]
    extra: list[str]
    children: list[int]
    frames: list[Frame]
    answers: list[Frame]
    answered: threading.Condition
    cancelled_ids: list[Any]
    deaf_until: float

    def notify(self, method: str, params: Frame) -> None:
        raise NotImplementedError

    def ask(self, method: str, params: Frame) -> str:
        raise NotImplementedError

    def list_changed(self) -> None:
        raise NotImplementedError

    def tool_echo(self, call: Call, text: str) -> Frame:
        taint = self.words.get("taint", "").split(",")
        content = {"type": "text", "text": text + ("SPOIL" if self.words.get("taint") else "")}
        return {"content": [content], **({"structuredContent": {"value": float("nan")}} if "nan" in taint else {})}

    def tool_sleep(self, call: Call, seconds: float) -> Frame | None:
        return None if call.cancelled.wait(seconds) else text(f"slept {seconds:g} s")

    def tool_big(self, call: Call, megabytes: float, kind: str = "text") -> Frame:
        size = int(megabytes * 1_000_000)
        if kind == "text":
            return text("x" * size)
        row = {"id": 123456, "name": "a penguin", "mass": 3750.5, "tags": ["a", "b"], "sex": None}
        return text(f"{kind}", structuredContent={"rows": [row] * (size // len(json.dumps(row)))})

    def tool_die(self, call: Call, code: int = 3) -> None:
        sys.stderr.write("misbehaving: dying as told\n")
        sys.stderr.flush()
        os._exit(code)

    def tool_deaf(self, call: Call, seconds: float) -> Frame:
        self.deaf_until = time.monotonic() + seconds
        return text(f"deaf for {seconds:g} s")

    def tool_refuse(self, call: Call, code: int = -32000, message: str = "refused", data: Any = None) -> Frame:
        raise Refusal(code, message, data)

    def tool_progress(self, call: Call, interval: float = 0.05, count: int = 0) -> Frame | None:
        token = call.meta.get("progressToken")
        for step in itertools.count(1):
            if call.cancelled.wait(interval):
                return None
            if token is not None:
                total = {"total": count} if count else {}
                about = {"progressToken": token, "progress": step, **total, "message": f"step {step}"}
                self.notify("notifications/progress", about)
            if step == count:
                return text(f"{count} steps")
        return None

    def tool_ask(self, call: Call, method: str, params: Frame | None = None, seconds: float = 10) -> Frame:
        identifier = self.ask(method, params or {})
        mine: list[Frame] = []

        def arrived() -> bool:
            mine[:] = [answer for answer in self.answers if answer.get("id") == identifier]
            return bool(mine)

        with self.answered:
            self.answered.wait_for(arrived, seconds)
        return structured({"answer": mine[0] if mine else None})

    def tool_change(self, call: Call) -> Frame:
        self.extra.append(f"added_{len(self.extra):05}")
        self.list_changed()
        return text(self.extra[-1])

    def tool_log(self, call: Call, level: str = "info", data: Any = "a log message") -> Frame:
        if not call.modern or META + "logLevel" in call.meta:
            self.notify("notifications/message", {"level": level, "logger": "misbehaving", "data": data})
        return text("logged")

    def tool_env(self, call: Call) -> Frame:
        listed = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
        fds = sorted(int(fd) for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}"))  # not that of listing them
        about = {"environ": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv, "fds": fds}
        return structured(about)

    def tool_pid(self, call: Call) -> Frame:
        return structured({"pid": os.getpid(), "children": self.children})

    def tool_seen(self, call: Call) -> Frame:
        messages = [{"method": frame.get("method"), "id": frame.get("id")} for frame in self.frames]
        about = {"messages": messages, "cancelled": self.cancelled_ids, "answers": self.answers, "frames": self.frames}
        return structured(about)


def tool_definition(name: str, description: str = "Does little.", **types: str) -> Frame:
    """A tool's definition; a type that ends in `?` is an optional argument's, an empty one allows anything."""
    properties = {key: {"type": kind.rstrip("?")} if kind.rstrip("?") else {} for key, kind in types.items()}
    required = [key for key, kind in types.items() if not kind.endswith("?")]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool_definition("echo", "Gives the text back.", text="string"),
    tool_definition("sleep", "Waits, and can be cancelled.", seconds="number"),
    tool_definition("big", "A result of so many megabytes: text or rows.", megabytes="number", kind="string?"),
    tool_definition("die", "Ends the process at once.", code="integer?"),
    tool_definition("deaf", "Reads nothing for so many seconds.", seconds="number"),
    tool_definition("refuse", "Answers with a JSON-RPC error.", code="integer?", message="string?", data="?"),
    tool_definition("progress", "Reports progress, forever if count is 0.", interval="number?", count="integer?"),
    tool_definition("ask", "Asks the client, gives its answer.", method="string", params="object?", seconds="number?"),
    tool_definition("change", "Adds a tool and says so."),
    tool_definition("log", "Sends a log message.", level="string?", data="?"),
    tool_definition("env", "Environment, folder, arguments and open files of this process."),
    tool_definition("pid", "The pids of this process and of what it started."),
    tool_definition("seen", "What the client has sent so far."),
]

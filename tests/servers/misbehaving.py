"""A raw MCP server that misbehaves as its arguments say. Standard library only.

    python misbehaving.py [--era legacy|modern|both] [--version 2024-11-05] [WORD[=VALUE] ...]

Without words it behaves: both eras, the tools below. Words can be combined; a word whose value is a list takes commas.
METHOD is a method as on the wire, such as tools/list.

Around the messages
  banner               three lines of text on stdout before anything else
  noise=KIND,...       a line of each KIND before every message: junk bom invalid-utf8 nan surrogate hello empty; or all
  taint=KIND,...       spoil the result of every echo: nan (in structuredContent), surrogate (lone, escaped),
                       invalid-utf8 (two broken bytes), bom (before the frame)
  id-last              "id" is the last member of every answer's frame
  id-as=string|float   the ids of answers as "7" or 7.0
  crlf                 lines end in CR LF
  chunks=N             write N bytes at a time
  batch                every answer but that to initialize as an array, with a log message beside it
Around the answers
  twice                every tools/call is answered twice; the second says so
  unknown-id           before every answer, answers to the ids 999999 and "stranger"
  malformed            every tools/call is answered by a line that is not JSON but has the id
  mute[=METHOD,...]    never answers these methods; without a value, none at all
  delay=METHOD:S,...   answers METHOD after S seconds (the others meanwhile)
  asks=METHOD,...      sends the client these requests once it is initialized (see seen)
Tools
  tools=N              N more tools: tool_00000, ...
  page=N               tools/list in pages of N
  endless=same|new     tools/list never ends: always the same cursor, or ever new ones
  flood=N              N tools/list_changed a second, as far as the client listens for them
Life
  negotiate=V          speaks only the protocol version V, whatever is asked for
  slow-start=S         does nothing at all for S seconds
  deaf=S               reads nothing for S seconds after the first answer to tools/list
  stderr=N             N lines a second on stderr (numbered, 60 characters)
  die-start=CODE       writes three lines to stderr and exits with CODE at once
  die-says=TEXT        the last of these lines
  die-idle=S           exits with 3 when it has read nothing for S seconds after the first answer to tools/list
  die-on=METHOD,...    exits with 3 when METHOD comes (tools/call: dies in mid call)
  close-stdout=METHOD  closes stdout when METHOD comes, and lives on
  ignore-eof           lives on when stdin ends (for five minutes)
  ignore-sigterm       ignores SIGTERM
  stubborn             both
  child                has a grandchild of the shell's, in its process group (it ignores SIGTERM if we do)
  child-setsid         has one in a session of its own
  bad-runs=N           misbehaves only in its first N runs, counted in the file of runs=
  runs=PATH            appends a line with its pid to PATH when it starts
  record=PATH          appends every line read (after "< ") and written (after "> ") to PATH, as it is

Tools: echo(text) sleep(seconds) big(megabytes, kind=text|rows) die(code=3) deaf(seconds) refuse(code, message, data)
progress(interval, count=0: forever) ask(method, params) change() log(level, data) env() pid()
seen() -> {"messages": [{"method", "id"}], "cancelled": [ids], "answers": [what the client answered], "frames": [...]}
"""

import argparse
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from misbehaving_tools import META, TOOLS, Call, Frame, Refusal, Tools, text, tool_definition

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
CAPABILITIES = {"tools": {"listChanged": True}, "logging": {}}
INFO = {"name": "misbehaving", "version": "1"}
LIFETIME = 1_800
"""Seconds after which even the most stubborn process ends, so that a failed test leaves nothing for good."""
NOISE = {
    "junk": b"Listening on nothing in particular {",
    "bom": b"\xef\xbb\xbf",
    "invalid-utf8": b'{"text": "\xff\xfe\x80"}',
    "nan": b'{"value": NaN}',
    "surrogate": b'{"value": "\\ud800"}',
    "hello": b'{"hello": 1}',
    "empty": b"",
}


class Output:
    """stdout, one whole line at a time from any thread, with the noise that was ordered."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words
        self.lock = threading.Lock()
        self.closed = False
        self.end = b"\r\n" if "crlf" in words else b"\n"
        kinds = words.get("noise", "")
        self.noise = [NOISE[kind] for kind in (NOISE if kinds == "all" else filter(None, kinds.split(",")))]

    def message(self, message: Frame, *, taint: bool = False) -> None:
        frame = self.frame(message)
        self.lines([*self.noise, self.spoil(frame) if taint else frame])

    def frame(self, message: Frame) -> bytes:
        if "method" in message:
            return json.dumps(message).encode()
        if "id-as" in self.words and isinstance(message.get("id"), int):
            message["id"] = {"string": str, "float": float}[self.words["id-as"]](message["id"])
        if "id-last" in self.words:
            message["id"] = message.pop("id")
        opening = "error" in message or "protocolVersion" in message["result"]
        if "batch" in self.words and not opening:
            log = {
                "jsonrpc": "2.0",
                "method": "notifications/message",
                "params": {"level": "info", "data": "in a batch"},
            }
            return json.dumps([log, message]).encode()
        return json.dumps(message).encode()

    def spoil(self, frame: bytes) -> bytes:
        """The frame of an echo, spoiled; `SPOIL` is where."""
        taint = self.words["taint"].split(",")
        spoiled = b"\\ud800" if "surrogate" in taint else b""
        frame = frame.replace(b"SPOIL", spoiled + (b"\xff\xfe" if "invalid-utf8" in taint else b""))
        return b"\xef\xbb\xbf" + frame if "bom" in taint else frame

    def lines(self, lines: list[bytes]) -> None:
        record("> ", lines, self.words)
        data = memoryview(b"".join(line + self.end for line in lines))
        size = int(self.words.get("chunks", 1 << 20))
        with self.lock:
            while data and not self.closed:
                data = data[os.write(1, data[:size]) :]

    def close(self) -> None:
        with self.lock:
            self.closed = True
            os.close(1)


def record(mark: str, lines: list[bytes], words: dict[str, str]) -> None:
    if "record" in words:
        with open(words["record"], "ab") as file:
            file.write(b"".join(mark.encode() + line + b"\n" for line in lines))


class Server(Tools):
    """Two eras, the tools, and every deviation ordered by `words`."""

    def __init__(self, words: dict[str, str], era: str, version: str) -> None:
        self.words, self.era, self.version = words, era, version
        self.out = Output(words)
        self.frames: list[Frame] = []
        self.answers: list[Frame] = []
        self.answered = threading.Condition()
        self.cancelled: dict[Any, threading.Event] = {}
        self.cancelled_ids: list[Any] = []
        self.listeners: dict[Any, bool] = {}
        self.ids = (f"ask-{n}" for n in itertools.count(1))
        self.deaf_until = 0.0
        self.children: list[int] = []
        self.extra = [f"tool_{i:05}" for i in range(int(words.get("tools", 0)))]
        self.listed = threading.Event()
        self.last_read = time.monotonic()

    def ordered(self, word: str, method: str) -> bool:
        """Whether `word` was given for this method."""
        return method in self.words.get(word, "").split(",")

    # Reading

    def run(self) -> None:
        """Read until stdin ends, but not while deaf."""
        rest = b""
        while chunk := self.read():
            *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else [rest + chunk]
            for line in lines:
                record("< ", [line], self.words)
                for message in self.parse(line):
                    self.take(message)

    def read(self) -> bytes:
        select.select([0], [], [])
        time.sleep(max(0.0, self.deaf_until - time.monotonic()))
        self.last_read = time.monotonic()
        return os.read(0, 1 << 20)

    def parse(self, line: bytes) -> list[Frame]:
        try:
            message = json.loads(line)
        except ValueError as error:
            sys.stderr.write(f"misbehaving: the client wrote no JSON: {error}: {line[:200]!r}\n")
            return []
        return message if isinstance(message, list) else [message]

    def take(self, message: Frame) -> None:
        self.frames.append(message)
        method, params = message.get("method"), message.get("params") or {}
        if method is None:
            with self.answered:
                self.answers.append(message)
                self.answered.notify_all()
        elif self.ordered("die-on", method):
            os._exit(3)
        elif self.ordered("close-stdout", method):
            self.out.close()
        elif "id" in message:
            self.cancelled[message["id"]] = threading.Event()
            threading.Thread(target=self.answer, args=(message["id"], method, params), daemon=True).start()
        elif method == "notifications/cancelled":
            self.cancelled_ids.append(params.get("requestId"))
            self.listeners.pop(params.get("requestId"), None)
            if event := self.cancelled.get(params.get("requestId")):
                event.set()
        elif method == "notifications/initialized":
            self.listeners[None] = True
            for asked in filter(None, self.words.get("asks", "").split(",")):
                self.ask(asked, {})

    # Answering

    def answer(self, identifier: Any, method: str, params: Frame) -> None:
        if self.words.get("mute") == "" or self.ordered("mute", method):
            return
        for delay in filter(None, self.words.get("delay", "").split(",")):
            slow, seconds = delay.rsplit(":", 1)
            time.sleep(float(seconds) if slow == method else 0)
        modern = META + "protocolVersion" in (params.get("_meta") or {})
        try:
            outcome = {"result": self.dispatch(identifier, method, params, modern)}
        except Refusal as refusal:
            outcome = {"error": refusal.error}
        if outcome.get("result", 1) is None or self.cancelled[identifier].is_set():
            return
        if modern and "result" in outcome:
            more = {"ttlMs": 0, "cacheScope": "private"} if method in ("server/discover", "tools/list") else {}
            about = {"resultType": "complete", "_meta": {META + "serverInfo": INFO}, **more}
            outcome["result"] = about | outcome["result"]
        self.send(identifier, method, params, outcome)
        if method == "tools/list":
            self.after_list()

    def send(self, identifier: Any, method: str, params: Frame, outcome: Frame) -> None:
        call = method == "tools/call"
        if "unknown-id" in self.words:
            for stranger in (999999, "stranger"):
                self.out.message({"jsonrpc": "2.0", "id": stranger, "result": {"content": []}})
        if call and "malformed" in self.words:
            frame = '{"jsonrpc":"2.0","id":%s,"result":{"content":[,]}}' % json.dumps(identifier)  # noqa: UP031
            return self.out.lines([frame.encode()])
        echo = call and params.get("name") == "echo" and "taint" in self.words
        self.out.message({"jsonrpc": "2.0", "id": identifier, **outcome}, taint=echo)
        if call and "twice" in self.words:
            self.out.message({"jsonrpc": "2.0", "id": identifier, "result": text("the second answer")})
        return None

    def after_list(self) -> None:
        if self.listed.is_set():
            return
        self.listed.set()
        self.deaf_until = time.monotonic() + float(self.words.get("deaf", 0))
        if "die-idle" in self.words:
            limit = float(self.words["die-idle"])
            while time.monotonic() - self.last_read < limit:
                time.sleep(0.02)
            os._exit(3)

    def dispatch(self, identifier: Any, method: str, params: Frame, modern: bool) -> Frame | None:
        if method == "initialize":
            return self.initialize(params)
        if method == "ping" and not modern:
            return {}
        if modern:
            self.check_envelope(params["_meta"])
        elif self.era == "modern":
            raise Refusal(-32602, f"params._meta lacks {META}protocolVersion")
        if method == "server/discover" and modern:
            return {"supportedVersions": [self.modern_version], "capabilities": CAPABILITIES}
        if method == "subscriptions/listen" and modern:
            return self.listen(identifier, params)
        if method == "logging/setLevel" and not modern:
            return {}
        if method == "tools/list":
            return self.list_tools(params)
        if method == "tools/call":
            return self.call(identifier, params, modern)
        raise Refusal(-32601, f"Method not found: {method}")

    @property
    def modern_version(self) -> str:
        return self.words.get("negotiate", MODERN)

    def initialize(self, params: Frame) -> Frame:
        if self.era == "modern":
            raise Refusal(-32022, "Unsupported protocol version", {"supported": [MODERN], **requested(params)})
        asked = params.get("protocolVersion")
        version = asked if asked in LEGACY[: LEGACY.index(self.version) + 1] else self.version
        version = self.words.get("negotiate", version)
        return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}

    def check_envelope(self, meta: Frame) -> None:
        if self.era == "legacy":
            raise Refusal(-32601, "Method not found")
        asked = meta[META + "protocolVersion"]
        if asked != self.modern_version:
            data = {"supported": [self.modern_version], "requested": asked}
            raise Refusal(-32022, "Unsupported protocol version", data)
        if not isinstance(meta.get(META + "clientCapabilities"), dict):
            raise Refusal(-32602, f"params._meta lacks {META}clientCapabilities")

    def listen(self, identifier: Any, params: Frame) -> None:
        honoured = {key: True for key in ("toolsListChanged",) if params.get("notifications", {}).get(key)}
        about = {"_meta": {META + "subscriptionId": identifier}, "notifications": honoured}
        self.notify("notifications/subscriptions/acknowledged", about)
        if honoured:
            self.listeners[identifier] = True

    # Notifications and requests of our own

    def notify(self, method: str, params: Frame) -> None:
        self.out.message({"jsonrpc": "2.0", "method": method, "params": params})

    def list_changed(self) -> None:
        for listener in list(self.listeners):
            about = {} if listener is None else {"_meta": {META + "subscriptionId": listener}}
            self.notify("notifications/tools/list_changed", about)

    def ask(self, method: str, params: Frame) -> str:
        identifier = next(self.ids)
        self.out.message({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params})
        return identifier

    # Tools

    def list_tools(self, params: Frame) -> Frame:
        if "endless" in self.words:
            page = int(params.get("cursor", "0").removeprefix("page-"))
            tools = TOOLS if page == 0 else [tool_definition(f"page_{page:05}")]
            return {"tools": tools, "nextCursor": f"page-{page + 1}" if self.words["endless"] == "new" else "page-1"}
        tools = [*TOOLS, *map(tool_definition, self.extra)]
        start, size = int(params.get("cursor", 0)), int(self.words.get("page", len(tools)))
        more = {"nextCursor": str(start + size)} if start + size < len(tools) else {}
        return {"tools": tools[start : start + size], **more}

    def call(self, identifier: Any, params: Frame, modern: bool) -> Frame | None:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if name in self.extra:
            return text(name)
        run = getattr(self, f"tool_{name}", None)
        if run is None:
            raise Refusal(-32602, f"Unknown tool: {name}")
        meta = params.get("_meta") or {}
        try:
            return run(Call(identifier, meta, self.cancelled[identifier], modern), **arguments)
        except TypeError as error:
            return text(str(error), isError=True)

    # Life

    def spawn_children(self) -> None:
        for word in ("child", "child-setsid"):
            if word in self.words:
                # The shell tells its child's pid and stays, as `sh -c` wrappers do. All of our streams are theirs too.
                read, write = os.pipe()
                script = f"sleep {LIFETIME} & echo $! >&{write}; wait"
                away = word == "child-setsid"
                shell = subprocess.Popen(["sh", "-c", script], pass_fds=[write], start_new_session=away)
                os.close(write)
                with os.fdopen(read) as pids:
                    self.children += [shell.pid, int(pids.readline())]

    def start_threads(self) -> None:
        for word, act in (("stderr", self.chatter), ("flood", self.flood)):
            if word in self.words:
                threading.Thread(target=act, args=(float(self.words[word]),), daemon=True).start()

    def chatter(self, rate: float) -> None:
        for start in itertools.count(0, max(1, int(rate / 50))):
            lines = (f"{n:010} {'x' * 48}\n" for n in range(start, start + max(1, int(rate / 50))))
            os.write(2, "".join(lines).encode())
            time.sleep(1 / min(rate, 50))

    def flood(self, rate: float) -> None:
        while True:
            for _ in range(max(1, int(rate / 50))):
                self.list_changed()
            time.sleep(1 / min(rate, 50))


def requested(params: Frame) -> Frame:
    return {"requested": str(params.get("protocolVersion"))}


def ignores_sigterm(words: dict[str, str]) -> bool:
    return bool({"ignore-sigterm", "stubborn"} & words.keys())


def count_runs(words: dict[str, str]) -> dict[str, str]:
    """Note this run; the words that hold for it."""
    if "runs" not in words:
        return words
    with open(words["runs"], "a+") as file:
        file.write(f"{os.getpid()}\n")
        file.flush()
        file.seek(0)
        run = len(file.readlines())
    if run <= int(words.get("bad-runs", run)):
        return words
    return {word: value for word, value in words.items() if word == "record"}


def known_words() -> set[str]:
    """The words of the docstring: each begins a line, two blanks in."""
    lines = (line for line in (__doc__ or "").splitlines() if line.startswith("  ") and line[2:3] not in ("", " "))
    return {line.split()[0].split("=")[0].split("[")[0] for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--era", choices=["legacy", "modern", "both"], default="both")
    parser.add_argument("--version", choices=LEGACY, default=LEGACY[-1], help="the newest handshake version it knows")
    parser.add_argument("words", nargs="*")
    options = parser.parse_args()
    words = {word: value for word, _, value in (item.partition("=") for item in options.words)}
    if unknown := words.keys() - known_words():
        parser.error(f"unknown words: {', '.join(sorted(unknown))}")
    words = count_runs(words)
    if ignores_sigterm(words):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "die-start" in words:
        lines = [
            "reading the configuration",
            "looking for what it needs",
            words.get("die-says", "cannot start: no herring"),
        ]
        sys.stderr.write("".join(line + "\n" for line in lines))
        sys.exit(int(words["die-start"]))
    time.sleep(float(words.get("slow-start", 0)))
    server = Server(words, options.era, options.version)
    if "banner" in words:
        server.out.lines([b"*" * 40, b"* Welcome to the misbehaving server! *", b"*" * 40])
    server.spawn_children()
    server.start_threads()
    threading.Timer(LIFETIME, os._exit, [4]).start()
    server.run()
    if {"ignore-eof", "stubborn"} & words.keys():
        threading.Event().wait()
    os._exit(0)


if __name__ == "__main__":
    main()

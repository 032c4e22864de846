"""Models that answer by a script, over HTTP as OpenAI's, Anthropic's and Google's do: streamed, in split deltas.

python models.py           prints its port; POST /v1/chat/completions, /v1/responses, /v1/messages and
                           /v1beta/models/NAME:…; GET returns the requests so far

The model's name selects its script:
`echo`: repeats the last words of the user. `tools`: calls each tool named in the prompt as `name(json)`, all in one
answer, then repeats their results; any other name, such as that of a real model, does the same in that model's name,
with 5 tokens of a second request from a cache and 700 output tokens. `loop`: calls the first tool again and again.
`broken`: calls it with arguments that are cut off, then repeats the error; `wrong`: does so four times. `twins`: gives
all calls one id. `typing`: as `tools`, with a tenth of a second between the pieces of its calls.
`busy`: 429 with Retry-After once, then as `echo`. `down`: 503. `late`: calls once, then 503. `page`, `moved`: a web
page, a redirect in place of an answer.
`cut`: the connection breaks in mid stream. `ends`: as `tools`, but the last stream ends before its reason. `half`: the
stream ends after its first call. `short`: ends by its length. `clipped`: its length ends after the name of a call.
`slow`: waits a minute between two words. `mute`, `full`, `filtered`: no text, and ends, has no room, or is stopped by a
filter. `refuses`: a refusal (Chat Completions). `uncounted`, `negative`: no usage, an impossible one.
A request for reasoning gets some before the text. Standard library only.
"""

import json
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from typing import Any

CALL = re.compile(r"([A-Za-z0-9_-]+)\((\{.*?\})\)")
USAGE = {"in": 11, "out": 7, "cached": 5, "long": 700}
SILENT = {"mute": "", "full": "length", "filtered": "filter"}
"""Models without text, and the reasons for their end."""
OWN = {"echo", "tools", "loop", "broken", "busy", "down", "late", "cut", "ends", "short", "wrong", "slow", "half"}
OWN |= {"twins", "typing", "clipped", "refuses", "uncounted", "negative", "page", "moved", *SILENT}
WITHOUT_CALLS = ("echo", "loop", "busy", "down", "cut", "short", "wrong", "slow")
THOUGHT = ["Let me think. ", "It is <b>plain</b>."]


Calls = list[tuple[str, str]]
"""Names, and arguments as JSON."""
Events = list[tuple[str, Any]]
"""The events of a stream: types, and data."""

SEEN: list[dict[str, Any]] = []
REFUSED: set[str] = set()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        """The requests so far."""
        body = json.dumps(SEEN).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        SEEN.append(request)
        is_gemini = "/models/" in self.path
        is_streamed = "stream" in self.path if is_gemini else request.get("stream")
        model = self.path.rpartition("/")[2].partition(":")[0] if is_gemini else request["model"]
        if model == "down" or (model == "busy" and model not in REFUSED):
            REFUSED.add(model)
            return self._refuse(503 if model == "down" else 429)
        others = {"messages": Anthropic, "responses": Responses}
        kind = Gemini if is_gemini else others.get(self.path.rpartition("/")[2].partition("?")[0], OpenAI)
        dialect = kind(request)
        if model == "late" and dialect.results():
            return self._refuse(503)
        if model == "page":
            return self._send(200, "<html>Log in to this network</html>", "text/html")
        if model == "moved":
            return self._send(307, "", "text/plain", Location="http://127.0.0.1:9/v2")
        dialect.reason = "length" if model in ("short", "clipped") else SILENT.get(model, "")
        dialect.name = "script" if model in OWN else model
        dialect.cached = USAGE["cached"] if model not in OWN and dialect.results() else 0
        dialect.out = USAGE["out" if model in OWN else "long"]
        text, calls = answer(model, dialect)
        if not is_streamed:
            return self._send(200, dialect.whole(text, calls))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        events = changed(model, dialect, dialect.events(text, calls), calls)
        for number, (name, event) in enumerate(events):
            if model == "cut" and number == dialect.cut:
                return None  # without the last chunk
            if model == "slow" and number == 3:
                time.sleep(60)
            if model == "typing" and "arguments" in json.dumps(event):
                time.sleep(0.1)
            data = event if isinstance(event, str) else json.dumps(event)
            head = f"event: {name}\n" if name else ""
            self._write(f"{head}data: {data}\n\n".encode())
        self._write(b"")
        return None

    def _write(self, chunk: bytes) -> None:
        self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.flush()

    def _refuse(self, status: int) -> None:
        self._send(status, {"error": {"message": "come back later", "type": "overloaded"}})

    def _send(self, status: int, value: Any, kind: str = "application/json", **headers: str) -> None:
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)


def answer(model: str, dialect: Any) -> tuple[str, Calls]:
    """The words, and the calls with their arguments as JSON."""
    wanted = CALL.findall(dialect.prompt())
    results = dialect.results()
    again = model == "loop" or (model == "wrong" and len(results) < 4)
    if again or (model not in WITHOUT_CALLS and wanted and not results):
        if model in ("broken", "wrong"):
            return "Let me see. ", [(wanted[0][0], wanted[0][1][:-2])]
        return "Let me see. ", wanted[:1] if model == "loop" else wanted
    if model in SILENT or model == "refuses":
        return "", []
    if results:
        return "They answered: " + " | ".join(results), []
    return f"You said: {dialect.prompt()}", []


def changed(model: str, dialect: Any, events: Events, calls: Calls) -> list[Any]:
    """The events of a model that does not do as it should."""
    if model == "ends" and not calls:
        return events[: -dialect.ending]
    if model == "half" and calls:
        return dialect.half(events)
    if model == "twins":
        text = json.dumps(events).replace('"functionCall": {', '"functionCall": {"id": "call-0", ')
        return json.loads(re.sub(r'"call-\d"', '"call-0"', text))
    if model == "clipped" and calls:
        return dialect.without_arguments(events)
    if model == "refuses":
        return json.loads(json.dumps(events).replace('"content": ""', '"refusal": "I cannot do that."', 1))
    if model == "uncounted":
        return [event for event in events if "prompt_tokens" not in json.dumps(event)]
    if model == "negative":
        return json.loads(json.dumps(events).replace('"prompt_tokens": 11', '"prompt_tokens": -5'))
    return events


def words(text: str) -> list[str]:
    """The pieces in which a text is streamed."""
    return [word for word in re.findall(r"\S*\s*", text) if word]


def pieces(arguments: str) -> list[str]:
    """The pieces in which the arguments of a call are streamed, split anywhere."""
    return [arguments[place : place + 4] for place in range(0, len(arguments), 4)]


class Dialect:
    """The requests and answers of one provider's API."""

    ending: int
    """Number of events of the end of a stream, from the reason on."""
    cut: int
    """The event at which a stream that is cut ends, after some words."""
    reason = ""
    """Why it ends: `length`, `filter`, or empty for a normal end."""
    name = "script"
    cached = 0
    out = USAGE["out"]


class OpenAI(Dialect):
    """Chat Completions."""

    ending = cut = 3

    def __init__(self, request: dict[str, Any]) -> None:
        self.messages = request["messages"]
        self.thinks = "reasoning_effort" in request

    def prompt(self) -> str:
        content = next(message["content"] for message in reversed(self.messages) if message["role"] == "user")
        return content if isinstance(content, str) else content[-1]["text"]

    def results(self) -> list[str]:
        last = max(number for number, message in enumerate(self.messages) if message["role"] == "user")
        return [str(message["content"]) for message in self.messages[last:] if message["role"] == "tool"]

    def whole(self, text: str, calls: Calls) -> Any:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if calls:
            message["tool_calls"] = [
                {"id": f"call-{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for number, (name, arguments) in enumerate(calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        about = {"id": "chat-1", "object": "chat.completion", "created": 1, "model": self.name}
        return {**about, "choices": [choice], "usage": self._usage()}

    def _usage(self) -> dict[str, Any]:
        return {"prompt_tokens": USAGE["in"], "completion_tokens": self.out, "total_tokens": 11 + self.out}

    def events(self, text: str, calls: Calls) -> Events:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"reasoning_content": thought} for thought in THOUGHT if self.thinks]
        deltas += [{"content": word} for word in words(text)]
        for number, (name, _) in enumerate(calls):
            start = {"index": number, "id": f"call-{number}", "type": "function"}
            deltas.append({"tool_calls": [{**start, "function": {"name": name, "arguments": ""}}]})
        for parts in zip_longest(*(pieces(arguments) for _, arguments in calls)):  # the calls take turns
            for number, part in enumerate(parts):
                if part is not None:
                    deltas.append({"tool_calls": [{"index": number, "function": {"arguments": part}}]})
        about = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": self.name}
        chunks: list[Any] = [
            {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        reasons = {"length": "length", "filter": "content_filter"}
        reason = reasons.get(self.reason, "tool_calls" if calls else "stop")
        chunks.append({**about, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        usage = {**self._usage(), "prompt_tokens_details": {"cached_tokens": self.cached}}
        chunks.append({**about, "choices": [], "usage": usage})
        return [("", chunk) for chunk in [*chunks, "[DONE]"]]

    def half(self, events: Events) -> Events:
        return [event for event in events[: -self.ending] if '"index": 1' not in json.dumps(event)]

    def without_arguments(self, events: Events) -> Events:
        return [
            event for event in events if '"arguments"' not in (text := json.dumps(event)) or '"arguments": ""' in text
        ]


class Responses(Dialect):
    """OpenAI's Responses."""

    ending = 1
    cut = 5

    def __init__(self, request: dict[str, Any]) -> None:
        self.items = request["input"] if isinstance(request["input"], list) else [{"role": "user", **request}]

    def _users(self) -> list[tuple[int, Any]]:
        return [(number, item) for number, item in enumerate(self.items) if item.get("role") == "user"]

    def prompt(self) -> str:
        content = self._users()[-1][1]["content"]
        return content if isinstance(content, str) else content[0]["text"]

    def results(self) -> list[str]:
        outputs = [item for item in self.items[self._users()[-1][0] :] if item.get("type") == "function_call_output"]
        return [item["output"] if isinstance(item["output"], str) else item["output"][0]["text"] for item in outputs]

    def events(self, text: str, calls: Calls) -> Events:
        about = {"id": "resp-1", "object": "response", "created_at": 1, "model": self.name, "output": [], "tools": []}
        about |= {"parallel_tool_calls": True, "tool_choice": "auto"}
        part = {"type": "output_text", "text": "", "annotations": []}
        message = {"type": "message", "id": "msg-1", "role": "assistant", "status": "in_progress", "content": []}
        events: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**about, "status": "in_progress"}},
            {"type": "response.output_item.added", "output_index": 0, "item": message},
            {"type": "response.content_part.added", "item_id": "msg-1", "output_index": 0, "content_index": 0}
            | {"part": part},
        ]
        for word in words(text):
            delta = {"item_id": "msg-1", "output_index": 0, "content_index": 0, "delta": word, "logprobs": []}
            events.append({"type": "response.output_text.delta", **delta})
        for number, (name, arguments) in enumerate(calls, 1):
            item = {"type": "function_call", "id": f"item-{number}", "call_id": f"call-{number}", "name": name}
            where = {"output_index": number}
            events.append({"type": "response.output_item.added", **where, "item": {**item, "arguments": ""}})
            for piece in pieces(arguments):
                delta = {"item_id": item["id"], "delta": piece}
                events.append({"type": "response.function_call_arguments.delta", **where, **delta})
            events.append({"type": "response.output_item.done", **where, "item": {**item, "arguments": arguments}})
        usage: dict[str, Any] = {"input_tokens": USAGE["in"], "output_tokens": self.out, "total_tokens": 11 + self.out}
        usage |= {"input_tokens_details": {"cached_tokens": self.cached}}
        usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
        ending = {"status": "completed", "usage": usage}
        if self.reason:
            reason = {"length": "max_output_tokens", "filter": "content_filter"}[self.reason]
            ending |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        events.append({"type": f"response.{ending['status']}", "response": {**about, **ending}})
        return [(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]

    def half(self, events: Events) -> Events:
        return events[: next(number for number, event in enumerate(events) if "item.done" in event[0]) + 1]

    def without_arguments(self, events: Events) -> Events:
        return [event for event in events if "_arguments." not in event[0] and "item.done" not in event[0]]


class Anthropic(Dialect):
    """Messages."""

    ending = 2
    cut = 3

    def __init__(self, request: dict[str, Any]) -> None:
        self.messages = request["messages"]
        self.thinks = request.get("thinking", {}).get("type") in ("enabled", "adaptive")

    def _blocks(self, kind: str) -> list[tuple[int, Any]]:
        blocks: list[tuple[int, Any]] = []
        for number, message in enumerate(self.messages):
            content = message["content"]
            content = content if isinstance(content, list) else [{"type": "text", "text": content}]
            blocks += [(number, block) for block in content if message["role"] == "user" and block["type"] == kind]
        return blocks

    def prompt(self) -> str:
        return self._blocks("text")[-1][1]["text"]

    def results(self) -> list[str]:
        last = self._blocks("text")[-1][0]
        results = [block["content"] for number, block in self._blocks("tool_result") if number > last]
        return [
            result if isinstance(result, str) else "".join(part.get("text", "[image]") for part in result)
            for result in results
        ]

    def events(self, text: str, calls: Calls) -> Events:
        message = {"id": "msg-1", "type": "message", "role": "assistant", "model": self.name, "content": []}
        usage = {"input_tokens": USAGE["in"] - self.cached, "output_tokens": 1, "cache_read_input_tokens": self.cached}
        first = int(self.thinks)
        events: list[dict[str, Any]] = [
            {
                "type": "message_start",
                "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage},
            }
        ]
        if self.thinks:
            block: dict[str, Any] = {"type": "thinking", "thinking": "", "signature": ""}
            events.append({"type": "content_block_start", "index": 0, "content_block": block})
            deltas = [{"type": "thinking_delta", "thinking": thought} for thought in THOUGHT]
            deltas.append({"type": "signature_delta", "signature": "c2ln"})
            events += [{"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": 0})
        events.append({"type": "content_block_start", "index": first, "content_block": {"type": "text", "text": ""}})
        for word in words(text):
            delta = {"type": "text_delta", "text": word}
            events.append({"type": "content_block_delta", "index": first, "delta": delta})
        events.append({"type": "content_block_stop", "index": first})
        for number, (name, arguments) in enumerate(calls, first + 1):
            block = {"type": "tool_use", "id": f"call-{number}", "name": name, "input": {}}
            events.append({"type": "content_block_start", "index": number, "content_block": block})
            for piece in pieces(arguments):
                delta = {"type": "input_json_delta", "partial_json": piece}
                events.append({"type": "content_block_delta", "index": number, "delta": delta})
            events.append({"type": "content_block_stop", "index": number})
        reasons = {"length": "max_tokens", "filter": "refusal"}
        reason = {
            "stop_reason": reasons.get(self.reason, "tool_use" if calls else "end_turn"),
            "stop_sequence": None,
        }
        events.append({"type": "message_delta", "delta": reason, "usage": {"output_tokens": self.out}})
        events.append({"type": "message_stop"})
        return [(event["type"], event) for event in events]

    def half(self, events: Events) -> Events:
        first = next(number for number, event in enumerate(events) if '"tool_use"' in json.dumps(event))
        return events[: next(n for n in range(first, len(events)) if events[n][0] == "content_block_stop") + 1]

    def without_arguments(self, events: Events) -> Events:
        return [event for event in events if "input_json_delta" not in json.dumps(event)]


class Gemini(Dialect):
    """Its own `generateContent`."""

    ending = 1
    cut = 3

    def __init__(self, request: dict[str, Any]) -> None:
        self.parts = [part for content in request["contents"] for part in content["parts"]]

    def prompt(self) -> str:
        return next(part["text"] for part in reversed(self.parts) if "text" in part)

    def results(self) -> list[str]:
        asked = max(number for number, part in enumerate(self.parts) if "text" in part)
        parts = [part for part in self.parts[asked:] if "functionResponse" in part]
        responses = [part["functionResponse"]["response"] for part in parts]
        return [str(response.get("return_value", response)) for response in responses]

    def events(self, text: str, calls: Calls) -> Events:
        parts: list[dict[str, Any]] = [{"text": word} for word in words(text)]
        parts += [{"functionCall": {"name": name, "args": json.loads(arguments)}} for name, arguments in calls]
        counted = {"promptTokenCount": USAGE["in"], "candidatesTokenCount": self.out, "totalTokenCount": 11 + self.out}
        events: Events = [("", self._chunk(part)) for part in parts]
        reason = {"length": "MAX_TOKENS", "filter": "SAFETY"}.get(self.reason, "STOP")
        return [*events, ("", {**self._chunk({"text": ""}, finishReason=reason), "usageMetadata": counted})]

    def half(self, events: Events) -> Events:
        return events[: next(number for number, event in enumerate(events) if "functionCall" in json.dumps(event)) + 1]

    def without_arguments(self, events: Events) -> Events:
        return events  # calls come whole

    def _chunk(self, part: dict[str, Any], **more: str) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0, **more}
        return {"candidates": [candidate], "modelVersion": self.name, "responseId": "r"}


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())

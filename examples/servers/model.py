"""A model that follows a script, behind the API that OpenAI, Ollama and others have: `python model.py [PORT]`.

The first line it prints is its address, for `--base-url`. Asked for the heaviest penguins, it calls the tool
`demo__query`, then answers with what that returned; of an image it says the size; to anything else it says what it can
do. Standard library only.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CALL = {"name": "demo__query", "arguments": '{"table": "penguins", "where": "body_mass_g > 5600", "limit": 20}'}


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The next message of the conversation; `examples/model-with-tools.ipynb` imports this."""
    last = messages[-1]
    if last["role"] == "tool":
        rows = json.loads(last["content"])["rows"]
        islands = sorted({row["island"] for row in rows})
        heaviest = max(row["body_mass_g"] for row in rows)
        text = (
            f"**{len(rows)}** penguins weigh more than 5,600 g, on {', '.join(islands)}; the heaviest {heaviest:,} g."
        )
        return {"role": "assistant", "content": text}
    if isinstance(last["content"], list):
        images = [part["image_url"]["url"] for part in last["content"] if part["type"] == "image_url"]
        return {"role": "assistant", "content": f"I follow a script, but I got {', '.join(map(size, images))}."}
    if "heav" in str(last["content"]).lower():
        call = {"id": "call-1", "type": "function", "function": CALL}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    return {"role": "assistant", "content": "I follow a script: ask me which penguins are heavy."}


def size(image: str) -> str:
    """The size of a PNG image in a data URL, in words."""
    data = base64.b64decode(image.partition(",")[2])
    return f"an image of {int.from_bytes(data[16:20])} x {int.from_bytes(data[20:24])} pixels"


class Handler(BaseHTTPRequestHandler):
    """One request to `/v1/chat/completions`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Answer, in one piece or as a stream of events."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = reply(asked["messages"])
        reason = "tool_calls" if "tool_calls" in message else "stop"
        about = {"id": "chat-1", "created": 1, "model": asked["model"]}
        if asked.get("stream"):
            calls = [{"index": number, **call} for number, call in enumerate(message.get("tool_calls", []))]
            delta = {**message, **({"tool_calls": calls} if calls else {})}
            choices = [
                {"index": 0, "delta": delta, "finish_reason": None},
                {"index": 0, "delta": {}, "finish_reason": reason},
            ]
            chunks = [json.dumps({**about, "object": "chat.completion.chunk", "choices": [one]}) for one in choices]
            self.send("text/event-stream", "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"]))
        else:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self.send("application/json", json.dumps({**about, "object": "chat.completion", "choices": [choice]}))

    def send(self, kind: str, body: str) -> None:
        """Send a response."""
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())


def main() -> None:
    """Serve until the process ends."""
    listening = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
    print(f"http://127.0.0.1:{listening.server_address[1]}/v1", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # the kernel's interrupt reaches this process, too
        listening.serve_forever()


if __name__ == "__main__":
    main()

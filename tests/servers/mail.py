"""A server whose tools return untrusted text and change data. Standard library only.

    python mail.py [FILE]

Tools: read(text) returns the text; keep(text) too, as its own data (openWorldHint false); send(to) changes that data;
fail(text) fails with the text, refuse(text) with a protocol error; die(text) writes it to stderr and exits. FILE has
its instructions for models. Resource: page://front. Prompt: greet.
"""

import os
import sys
from pathlib import Path
from typing import Any

from raw_stdio import PAGE, Refusal, log, opened, serve, text_result, unknown

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TO = {"type": "object", "properties": {"to": {"type": "string"}}}
TOOLS = [
    *({"name": name, "inputSchema": TEXT} for name in ("read", "fail", "refuse", "die")),
    {"name": "keep", "inputSchema": TEXT, "annotations": {"openWorldHint": False}},
    {"name": "send", "inputSchema": TO, "annotations": {"openWorldHint": False}},
]


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            about = opened("mail", "tools", "resources", "prompts")
            return {**about, "instructions": Path(sys.argv[1]).read_text()} if sys.argv[1:] else about
        case "ping":
            return {}
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return called(params["name"], params.get("arguments", {}).get("text", "sent"))
        case "resources/list":
            return {"resources": [{"uri": "page://front", "name": "front"}]}
        case "resources/read":
            return {"contents": [{"uri": "page://front", "mimeType": "text/plain", "text": PAGE}]}
        case "prompts/list":
            return {"prompts": [{"name": "greet"}]}
        case "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": PAGE}}]}
        case _:
            raise unknown(method)


def called(name: str, text: str) -> dict[str, Any]:
    if name == "die":
        log(text)
        os._exit(3)
    if name == "refuse":
        raise Refusal(code=-32000, message=text)
    return text_result(text, isError=name == "fail")


if __name__ == "__main__":
    serve(result)

"""A raw MCP server (2025-11-25) that puts one mark into every text it gives. Standard library only.

Its argument is the mark, as a JSON string; `INJECTIONS` of raw_stdio.py are among its names and values, for completion.

Tools: say(lang)  echoes its arguments as JSON; fail  an error; refuse  a JSON-RPC error; ask  an elicitation; talk
progress and log messages; links  resource links; die  writes to stderr and exits. And one for each injection.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from raw_stdio import INJECTIONS, Refusal, initialized, log, say, serve

MARK = json.loads(sys.argv[1])


def text(value: str = "text", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value + MARK, **more}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "title": f"title {MARK}", "description": f"description {MARK}\nmore {MARK}", **more}


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "title": f"s{MARK}", "description": f"s{MARK}", "properties": properties}


def string(**more: Any) -> dict[str, Any]:
    return {"type": "string", "title": f"t{MARK}", "description": f"argument {MARK}", **more}


MARKED = f"marked{MARK}"
CHOICE = string(enum=[*INJECTIONS, MARKED], default=MARKED, examples=[MARKED])
TOOLS = [
    named("say", inputSchema=schema(lang=CHOICE, other=string())),
    *(
        named(name, inputSchema=schema(**{"n": {"type": "integer", "description": MARKED}}))
        for name in ("fail", "refuse")
    ),
    *(named(name, inputSchema={"type": "object"}) for name in ("ask", "talk", "links", "die")),
    *(named(name, inputSchema=schema(**{name: string(default=MARKED)})) for name in [*INJECTIONS, MARKED]),
]
RESOURCES = [named(f"r{number}", uri=f"mark://{name}") for number, name in enumerate([*INJECTIONS, MARK, "plain"])]
TEMPLATES = [named("template", uriTemplate="mark://t/{lang}")]
PROMPTS = [named("greet", arguments=[{"name": "lang", "description": MARKED, "required": True}])]
PROMPTS += [named(name, arguments=[{"name": name, "description": MARKED}]) for name in [*INJECTIONS, MARKED]]


def call(params: dict[str, Any]) -> dict[str, Any] | None:
    name, token = params["name"], params.get("_meta", {}).get("progressToken")
    if name == "say":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments", {}))}]}
    if name == "refuse":
        raise Refusal(code=-32601, message=MARKED, data=MARKED)
    if name == "ask":
        asked = {"message": MARKED, "requestedSchema": schema(**{"field": string(), "choice": string(enum=[MARKED])})}
        say(id="asked", method="elicitation/create", params=asked)
        return None
    if name == "talk":
        log(MARKED)
        for level in ("info", "error"):
            say(method="notifications/message", params={"level": level, "logger": MARKED, "data": {MARKED: MARKED}})
        say(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": MARKED})
    if name == "links":
        return {"content": [{"type": "resource_link", "uri": f"mark://{MARK}", "mimeType": MARKED, **named("link")}]}
    if name == "die":
        log(MARKED)
        os._exit(3)
    return {"content": [text()], "isError": name == "fail", "structuredContent": {MARKED: MARKED}}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return initialized(MARKED, MARKED, "completions")
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return call(params)
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": TEMPLATES}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "mimeType": MARKED, "text": MARKED}]}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "prompts/get":
            return {"description": MARKED, "messages": [{"role": "user", "content": text(json.dumps(params))}]}
        case "completion/complete":
            return {"completion": {"values": [*INJECTIONS, MARKED]}}
        case "ping" | "logging/setLevel":
            return {}
        case _:
            raise Refusal(code=-32601, message=MARKED, data=MARKED)


if __name__ == "__main__":
    serve(result, lambda message: {"content": [text(json.dumps(message))]})

"""A raw MCP server (2025-11-25) that puts one mark into every text it gives. Standard library only.

Its argument is the mark, as a JSON string; `INJECTIONS` are among its names and values, for completion.

Tools: say(lang)  echoes its arguments as JSON; fail  an error; refuse  a JSON-RPC error; ask  an elicitation; talk
progress and log messages; links  resource links; die  writes to stderr and exits. And one for each injection.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PWN = "open('pwned','w').close()"
INJECTIONS = [
    f"en\n{PWN}",
    f"en\n{' ' * 60}\n!touch pwned",
    f"en\r{PWN}",
    f"en\u2028{PWN}",
    f"en\x0c{PWN}",
    f"en\x1b[2K{PWN}",
    "en'+str(open('pwned','w'))+'",
    'en"+str(open("pwned","w"))+"',
    "en\\'+str(open('pwned','w'))+\\'",
    'en\\"+str(open("pwned","w"))+\\"',
    "en\\",
    "en{open('pwned','w')}",
    'en{open("pwned","w")}',
    "{open('pwned','w')}",
    "{'a': open('pwned','w')}",
    "$api_key",
    "en' other='x",
    "en ''' \"\"\"",
    "en; !touch pwned",
    "en #",
    "en?",
    "!touch pwned",
    "--trust",
    "en\u202e\u200b",
    "en } { {{ }}",
    "plain",
]
MARK = json.loads(sys.argv[1]) if __name__ == "__main__" else ""


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


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(params: dict[str, Any]) -> dict[str, Any] | None:
    name, token = params["name"], params.get("_meta", {}).get("progressToken")
    if name == "say":
        return {"content": [{"type": "text", "text": json.dumps(params.get("arguments", {}))}]}
    if name == "refuse":
        raise ValueError(MARKED)
    if name == "ask":
        asked = {"message": MARKED, "requestedSchema": schema(**{"field": string(), "choice": string(enum=[MARKED])})}
        say(id="asked", method="elicitation/create", params=asked)
        return None
    if name == "talk":
        sys.stderr.write(MARKED + "\n")
        sys.stderr.flush()
        for level in ("info", "error"):
            say(method="notifications/message", params={"level": level, "logger": MARKED, "data": {MARKED: MARKED}})
        say(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": MARKED})
    if name == "links":
        return {"content": [{"type": "resource_link", "uri": f"mark://{MARK}", "mimeType": MARKED, **named("link")}]}
    if name == "die":
        sys.stderr.write(MARKED + "\n")
        sys.stderr.flush()
        os._exit(3)
    return {"content": [text()], "isError": name == "fail", "structuredContent": {MARKED: MARKED}}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            info = {"name": MARKED, "title": MARKED, "version": MARKED, "description": MARKED}
            offers = {"tools": {}, "resources": {}, "prompts": {}, "logging": {}, "completions": {}}
            version = {"protocolVersion": "2025-11-25", "instructions": MARKED}
            return {"capabilities": offers, "serverInfo": info, **version}
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
            raise ValueError(MARKED)


def main() -> None:
    asking: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "asked" and "method" not in message:
            say(id=asking, result={"content": [text(json.dumps(message))]})
        elif "id" in message and "method" in message:
            try:
                found = result(message["method"], message.get("params", {}))
            except ValueError as refusal:
                say(id=message["id"], error={"code": -32601, "message": str(refusal), "data": MARKED})
                continue
            if found is None:
                asking = message["id"]
            else:
                say(id=message["id"], result=found)


if __name__ == "__main__":
    main()

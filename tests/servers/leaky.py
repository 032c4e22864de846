"""An MCP server that discloses its secrets in every way there is. Standard library only.

Its secrets are the values of the variables named by `--secret NAME`, of `--api-key VALUE` and `--told VALUE`, and the
last word of `--header TEXT`.
Tools: leak(how, form): how is stderr (in pieces), log, result, structured, error, refuse, progress or markdown.
`forms` gives the names of the forms. Its description, instructions, schemas, a resource and a prompt hold them all.
"""

import argparse
import base64
import html
import json
import os
import sys
import time
from typing import Any
from urllib.parse import quote, quote_plus


def forms(secret: str) -> dict[str, str]:
    """A secret as other programs write it."""
    data = secret.encode()
    url = quote(secret, safe="")
    return {
        "plain": secret,
        "json": json.dumps({"key": secret}),
        "unicode json": json.dumps({"key": secret}, ensure_ascii=False),
        "repr": repr({"key": secret}),
        "bytes": repr(data),
        "html": html.escape(secret),
        "url": url,
        "small url": "%".join(
            part[:2].lower() + part[2:] if place else part for place, part in enumerate(url.split("%"))
        ),
        "parameter": quote_plus(secret),
        "basic": base64.b64encode(b"user:" + data).decode(),
        "base64": base64.b64encode(data).decode(),
        "base64 1": base64.b64encode(b"1" + data).decode(),
        "base64 2": base64.b64encode(b"12" + data).decode(),
        "url base64": base64.urlsafe_b64encode(b"12" + data).decode(),
        "cut": "x" * 290 + secret,
        "long": "x" * 995 + secret,
    }


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


class Server:
    """Answers one client."""

    def __init__(self, secrets: list[str]) -> None:
        self.secrets = secrets
        self.all = " ".join(secrets)

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        params = message.get("params") or {}
        match message["method"]:
            case "initialize":
                version = params["protocolVersion"]
                able = {"tools": {}, "logging": {}, "resources": {}, "prompts": {}, "completions": {}}
                info = {"name": "leaky", "version": "1"}
                about = {"capabilities": able, "serverInfo": info, "instructions": f"instructed: {self.all}"}
                return {"result": {"protocolVersion": version, **about}}
            case "tools/list":
                properties = {
                    "how": {"type": "string", "description": self.all},
                    "form": {"type": "string"},
                    "key": {"type": "string", "title": self.all, "default": self.all, "examples": self.secrets},
                    "which": {"enum": [*self.secrets, "none"], "default": self.secrets[0]},
                }
                schema = {"type": "object", "title": self.all, "properties": properties, "required": ["how"]}
                gives = {"type": "object", "properties": {"deep": {}, "which": {"enum": self.secrets}}}
                about = {"title": self.all, "description": self.all, "annotations": {"title": self.all}}
                tool = {"name": "leak", **about, "inputSchema": schema, "outputSchema": gives}
                return {"result": {"tools": [tool]}}
            case "resources/list":
                return {
                    "result": {
                        "resources": [
                            {"uri": "leak://it", "name": "it", "description": self.all},
                            {"uri": f"leak://it?key={quote(self.secrets[0])}", "name": self.all, "title": self.all},
                        ]
                    }
                }
            case "resources/templates/list":
                return {"result": {"resourceTemplates": []}}
            case "resources/read":
                content = {"uri": "leak://it", "text": self.all, "mimeType": "text/plain"}
                return {"result": {"contents": [content]}}
            case "prompts/list":
                about = {"name": "about", "title": self.all, "description": self.all}
                return {"result": {"prompts": [{"name": "leaking", "description": self.all, "arguments": [about]}]}}
            case "prompts/get":
                content = {"type": "text", "text": self.all}
                return {"result": {"messages": [{"role": "user", "content": content}]}}
            case "completion/complete":
                return {"result": {"completion": {"values": self.secrets}}}
            case "tools/call":
                arguments = params["arguments"]
                token = (params.get("_meta") or {}).get("progressToken")
                return self.leak(arguments["how"], arguments.get("form", "plain"), token)
            case "ping":
                return {"result": {}}
            case _:
                return {"error": {"code": -32601, "message": f"no such method; the key is {self.all}"}}

    def leak(self, how: str, form: str, token: object) -> dict[str, Any]:
        text = "\n".join(f"{name}: {forms(secret)[form]}" for name, secret in enumerate(self.secrets))
        match how:
            case "stderr":
                for piece in text + "\n":  # split over chunks
                    sys.stderr.write(piece)
                    sys.stderr.flush()
            case "log":
                data = {"text": text, "list": self.secrets}
                send({"method": "notifications/message", "params": {"level": "warning", "data": data}})
            case "progress":
                for step in range(8):
                    values = {"progressToken": token, "progress": step, "total": 8, "message": text[:70]}
                    send({"method": "notifications/progress", "params": values})
                    time.sleep(0.1)
            case "structured":
                records = [
                    {"name": str(name), "value": forms(secret)[form]} for name, secret in enumerate(self.secrets)
                ]
                content = {"type": "text", "text": json.dumps({"deep": {"er": records}})}
                return {"result": {"content": [content], "structuredContent": {"deep": {"er": records}}}}
            case "markdown":
                return {"result": {"content": [{"type": "text", "text": f"# Keys\n\n**it is** `{text}`"}]}}
            case "error":
                return {"result": {"content": [{"type": "text", "text": text}], "isError": True}}
            case "refuse":
                return {"error": {"code": -32000, "message": text, "data": {"key": text}}}
            case "noise":
                sys.stdout.write(f"no message: {text}\n".replace("\n", " ") + "\n")
                sys.stdout.flush()
            case "die":
                sys.stderr.write(text + "\n")
                sys.stderr.flush()
                sys.exit(3)
        return {"result": {"content": [{"type": "text", "text": text}]}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--secret", action="append", default=[])
    parser.add_argument("--api-key")
    parser.add_argument("--header")
    parser.add_argument("--told")
    options = parser.parse_args()
    secrets = [line for name in options.secret for line in os.environ[name].splitlines()]
    header = (options.header or "").rpartition(" ")[2]
    server = Server(secrets + [one for one in (options.api_key, header, options.told) if one])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            send({"id": message["id"], **server.answer(message)})


if __name__ == "__main__":
    main()

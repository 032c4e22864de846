"""A server with apps over stdio, in the handshake era: `apps.py FOLDER`.

Every file NAME.html in the folder is the page of a tool NAME, with the `_meta.ui` of NAME.json, if that is there. The
tools `add` (for models and apps), `secret` (for models only) and `refresh` (for apps only) are called by pages. A tool
with a page fails with the text `fail`, and takes a while with the text `wait`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
UI = "io.modelcontextprotocol/ui"


def tool(name: str, meta: Any = None, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {
        "name": name,
        "description": f"The tool {name}.",
        "inputSchema": schema,
        **({"_meta": meta} if meta else {}),
    }


def tools() -> list[dict[str, Any]]:
    number = {"type": "number"}
    pages = sorted(path.stem for path in FOLDER.glob("*.html"))
    forms = [{"ui": {"resourceUri": f"ui://apps/{name}"}} for name in pages]
    if forms:
        forms[0] = {"ui/resourceUri": f"ui://apps/{pages[0]}"}  # the deprecated form
    own = [tool(name, meta, text={"type": "string"}) for name, meta in zip(pages, forms, strict=True)]
    return [
        *own,
        tool("add", a=number, b=number),
        tool("secret", {"ui": {"visibility": ["model"]}}),
        tool("refresh", {"ui": {"visibility": ["app"]}}),
    ]


def answer(method: str, params: dict[str, Any], client: dict[str, Any]) -> Any:
    match method:
        case "initialize":
            client.update(params["capabilities"])
            info = {"name": "apps", "version": "1"}
            return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": tools()}
        case "resources/list":
            return {
                "resources": [{"uri": f"ui://apps/{path.stem}", "name": path.stem} for path in FOLDER.glob("*.html")]
            }
        case "resources/read":
            path = FOLDER / f"{params['uri'].removeprefix('ui://apps/')}.html"
            declared = path.with_suffix(".json")
            ui = {"_meta": {"ui": json.loads(declared.read_text())}} if declared.exists() else {}
            content = {"uri": params["uri"], "mimeType": "text/html;profile=mcp-app", "text": path.read_text(), **ui}
            return {"contents": [content]}
        case "tools/call":
            name, given = params["name"], params.get("arguments", {})
            text = {"add": lambda: str(given["a"] + given["b"]), "refresh": lambda: "fresh", "secret": lambda: "secret"}
            said = text[name]() if name in text else f"the text of {name}: {given.get('text', '')}"
            if given.get("text") == "wait":
                time.sleep(20)
            extensions = list(client.get("extensions", {}).get(UI, {}).get("mimeTypes", []))
            about = {"structuredContent": {"said": said, "ui": extensions}, "isError": given.get("text") == "fail"}
            return {"content": [{"type": "text", "text": said}], **about}
    return None


def main() -> None:
    client: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params", {}), client)
            end = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **end}), flush=True)


main()

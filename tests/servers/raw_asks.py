"""A raw MCP server, both eras, that sends the client the requests it is called with. Standard library only.

Tools:
  ask(requests)  sends these requests ({"method", "params", "id"?}) at once, and answers with what was answered to them
  withdraw(id)   cancels one of them
  need(result)   stateless: answers with this result first; the retry is answered with what it brought
  stall()        never answers, neither the call nor a retry whose state is `stall`
  received()     every frame received so far
"""

import itertools
import json
import sys
from typing import Any

TOOLS = ("ask", "withdraw", "need", "stall", "received")
COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
CAPABILITIES = {"tools": {}, "resources": {}}


class Server:
    def __init__(self) -> None:
        self.ids = map("q{}".format, itertools.count())
        self.received: list[Any] = []
        self.waiting: dict[Any, dict[Any, Any]] = {}
        """By the id of a call, the answers to what was asked for it."""

    def say(self, **message: Any) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def answer(self, identifier: Any, result: dict[str, Any]) -> None:
        self.say(id=identifier, result={**COMPLETE, **result})

    def text(self, identifier: Any, value: Any) -> None:
        self.answer(identifier, {"content": [{"type": "text", "text": json.dumps(value)}]})

    def receive(self, message: dict[str, Any]) -> None:
        self.received.append(message)
        method = message.get("method")
        if method is None:
            self.settle(message)
        elif method == "initialize":
            info = {"name": "misbehaving-asks", "version": "1"}
            self.say(
                id=message["id"],
                result={"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": info},
            )
        elif method == "server/discover":
            meta = {"io.modelcontextprotocol/serverInfo": {"name": "misbehaving-asks", "version": "1"}}
            self.answer(
                message["id"],
                {"supportedVersions": ["2026-07-28"], "capabilities": CAPABILITIES, "_meta": meta},
            )
        elif method == "tools/list":
            self.answer(message["id"], {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]})
        elif method in ("tools/call", "resources/read"):
            self.call(message["id"], message["params"])

    def call(self, identifier: Any, params: dict[str, Any]) -> None:
        name, arguments = params.get("name"), params.get("arguments", {})
        if name == "ask":
            asked = [{"id": next(self.ids), **request} for request in arguments["requests"]]
            self.waiting[identifier] = {request["id"]: None for request in asked}
            for request in asked:
                self.say(**request)
        elif name == "withdraw":
            self.say(method="notifications/cancelled", params={"requestId": arguments["id"]})
            for answers in self.waiting.values():
                answers.pop(arguments["id"], None)
            self.text(identifier, None)
        elif name == "received":
            self.text(identifier, self.received)
        elif name == "need" and "inputResponses" not in params and "requestState" not in params:
            self.say(id=identifier, result=arguments["result"])
        elif name != "stall" and params.get("requestState") != "stall":
            brought = {key: params[key] for key in ("inputResponses", "requestState") if key in params}
            self.text(identifier, brought)

    def settle(self, message: dict[str, Any]) -> None:
        for call, answers in self.waiting.items():
            if message["id"] in answers:
                answers[message["id"]] = {key: message[key] for key in ("result", "error") if key in message}
                if all(answers.values()):
                    self.text(call, list(answers.values()))


def main() -> None:
    server = Server()
    for line in sys.stdin:
        server.receive(json.loads(line))


if __name__ == "__main__":
    main()

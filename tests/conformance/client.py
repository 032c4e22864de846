"""A host as any script would be one, for the official conformance suite: it loads a server and uses all it finds there.

    python tests/conformance/client.py URL

One path for every scenario, through ipymcp's public names only. What differs from one to the next is what a user would
configure: the suite's MCP_CONFORMANCE_CONTEXT has a client's id and secret, and sometimes the calls to make. The exit
status says whether the server could be loaded; what its tools answer is for the suite to judge.
"""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

import httpx

import ipymcp
from ipymcp import Mcp, McpError

CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
"""The suite knows this document by its address; nothing is ever fetched from there."""


def main(url: str, context: dict[str, Any]) -> int:
    """Load the server at `url`, and use it. Give the exit status."""
    server = {"url": url, "auth": authorization(context)}
    sys.stdin = sys.stdout = Terminal(sys.stdout)  # type: ignore[assignment]
    try:
        with ipymcp.connect({"server": server}, on_sampling=sample, on_elicitation=accept) as mcp:
            use(mcp, context)
    except McpError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return 1
    return 0


def use(mcp: Mcp, context: dict[str, Any]) -> None:
    """Call what the context says, else every tool with arguments made from its schema; read and get the rest."""
    calls = [(call["name"], call["arguments"]) for call in context.get("toolCalls", ())]
    for name, arguments in calls or [(tool.name, example(tool.input_schema)) for tool in mcp.server]:
        if name == "json_schema_echo":
            arguments = {"schema": mcp.server["json_schema_2020_12_tool"].input_schema}
        attempt(name, partial(mcp.server[name].call, arguments))
    for resource in mcp.server.resources:
        attempt(resource.uri, resource.read)
    for prompt in mcp.server.prompts:
        attempt(prompt.name, prompt)


def attempt(name: str, use_it: Callable[[], Any]) -> None:
    """Use one thing, and say what came of it."""
    try:
        print(name, use_it())
    except McpError as error:
        print(name, f"failed: {error}")


# -- what a user would configure --------------------------------------------------------------------------------------


def authorization(context: dict[str, Any]) -> dict[str, Any]:
    """The `auth` of a scenario: from its context, else an unregistered client."""
    client = {key: context[key] for key in ("client_id", "client_secret") if key in context}
    if "idp_id_token" in context:
        idp = {"idp_token": context["idp_id_token"], "idp_token_endpoint": context["idp_token_endpoint"]}
        return {"type": "enterprise", **client, "idp_client_id": context["idp_client_id"], **idp}
    if "private_key_pem" in context:
        return {"type": "client_credentials", **client, "private_key": context["private_key_pem"]}
    if context.get("name", "").startswith("auth/client-credentials"):
        return {"type": "client_credentials", **client}
    return {"type": "oauth", **client, "client_metadata_url": CLIENT_METADATA}


# -- what a user would answer -----------------------------------------------------------------------------------------


class Terminal:
    """A user who is logged in already: opens the login URL and pastes the redirect."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self._address = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._address = next((word for word in text.split() if word.startswith("http")), self._address)
        return self._screen.write(text)

    def flush(self) -> None:
        self._screen.flush()

    def readline(self, size: int = -1) -> str:
        return httpx.get(self._address).headers["Location"] + "\n"


def sample(request: Any) -> str:
    """A model's answer."""
    return "Fine."


def accept(question: Any) -> dict[str, Any]:
    """Send a form as it is, with its defaults; agree to a boolean."""
    properties = question.schema.get("properties", {})
    return {name: True for name, each in properties.items() if each.get("type") == "boolean" and "default" not in each}


# -- arguments --------------------------------------------------------------------------------------------------------


def example(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit a tool's schema: what it requires, no more."""
    properties = schema.get("properties", {})
    return {name: value(properties.get(name, {}), schema) for name in schema.get("required", ())}


def value(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """A value that fits a simple schema."""
    if schema.get("$ref", "").startswith("#/$defs/"):
        return value(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    if kind == "object":
        return example(schema)
    return {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": [], "null": None}[kind]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))))

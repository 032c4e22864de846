"""A host as any script would be one, for the official conformance suite: it loads a server and uses all it finds there.

    python tests/conformance/client.py URL

One path for every scenario, through ipymcp's public names only. What differs from one to the next is what a user would
configure: the suite's MCP_CONFORMANCE_CONTEXT has a client's id and secret, and sometimes the calls to make. The exit
status says whether the server could be loaded; what its tools answer is for the suite to judge.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import httpx

import ipymcp
from ipymcp import Mcp, McpError

CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
"""The suite knows this document by its address; nothing is ever fetched from there."""


def main(url: str, context: dict[str, Any]) -> int:
    """Load the server at `url`, and use it. Give the exit status."""
    server = {"url": url, "auth": authorization(context)}
    try:
        with ipymcp.connect(
            {"server": server}, on_sampling=sample, on_elicitation=accept, on_login=log_in, roots=[os.getcwd()]
        ) as mcp:
            use(mcp, context)
    except McpError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return 1
    return 0


def use(mcp: Mcp, context: dict[str, Any]) -> None:
    """Call what the context says, else every tool with arguments made from its schema."""
    calls = [(call["name"], call["arguments"]) for call in context.get("toolCalls", ())]
    for name, arguments in calls or [(tool.name, example(tool.input_schema)) for tool in mcp.server]:
        if name == "json_schema_echo":
            arguments = {"schema": mcp.server["json_schema_2020_12_tool"].input_schema}
        attempt(name, mcp.server[name].call, arguments)


def attempt(name: str, use_it: Any, *arguments: Any) -> None:
    """Use one thing, and say what came of it."""
    try:
        print(name, use_it(*arguments))
    except McpError as error:
        print(name, f"failed: {error}")


# -- what a user would configure --------------------------------------------------------------------------------------


def authorization(context: dict[str, Any]) -> dict[str, Any]:
    """How to log in: with what the context has, else as a client that is not known yet."""
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


def sample(params: dict[str, Any]) -> dict[str, Any]:
    """A model's answer."""
    return {"role": "assistant", "content": {"type": "text", "text": "Fine."}, "model": "none", "stopReason": "endTurn"}


def accept(question: Any) -> dict[str, Any]:
    """Send a form as it is, with its defaults; agree to a boolean."""
    properties = question.schema.get("properties", {})
    return {name: True for name, each in properties.items() if each.get("type") == "boolean" and "default" not in each}


def log_in(question: Any) -> str:
    """A browser whose user has agreed already: it is sent straight back. Give the address it is sent to."""
    return httpx.get(question.url).headers["Location"]


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

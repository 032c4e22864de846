"""The examples in the docstrings of what a user holds: every method has one, and it runs."""

import ast
import asyncio
import contextlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ipymcp
from ipymcp.api.configuration import ConfigFiles
from ipymcp.api.resources import Prompt, Resource, Template
from ipymcp.api.security import SavedSecrets, ToolPins, ToolPolicy, TrustedServers
from ipymcp.api.servers import Server
from ipymcp.api.sync_and_async import sync_and_async
from ipymcp.maps.tool_map import ToolMap

CLASSES: list[type] = [
    *[ipymcp.Mcp, ipymcp.Tool, ipymcp.Toolset, ToolMap, Server, ipymcp.Call, Resource, Template, Prompt],
    *[ipymcp.Subscription, ToolPolicy, ToolPins, TrustedServers, SavedSecrets, ConfigFiles],
]
NOT_HERE = {
    "Mcp.ask": "asks a model",
    "Mcp.add": "asks the registry",
    "Mcp.outdated": "asks the registry",
    "Mcp.search": "asks the registry",
    "Mcp.panel": "is for a notebook",
    "Mcp.restore": "is for a notebook",
    "Mcp.unload": "would take the server from the next ones",
    "Mcp.load": "starts a server that has to be fetched",
    "Server.task": "continues a task of an earlier kernel",
    "ConfigFiles.import_from": "reads the files of an editor",
    "SavedSecrets.set": "asks for the value",
    "SavedSecrets.delete": "needs a stored secret",
    "Resource.subscribe": "needs a server that announces changes",
    "Subscription.close": "closes that subscription",
    **{f"Toolset.to_{name}": "needs the library" for name in ("gemini", "llm", "pydantic_ai", "langchain", "chatlas")},
    **{f"Toolset.to_{name}": "needs the library" for name in ("openai_agents", "smolagents", "llama_index")},
    "TrustedServers.revoke": "needs a server that was agreed to",
}
"""Examples that need more than the demo server; each is compiled."""
INTERNAL = {
    *["arun", "deadline", "end_if_late", "has_request", "note_question", "pause_timeout", "run", "run_on_loop"],
    *["when_over", "leave", "open", "submit"],
}
"""Methods of a call for ipymcp itself, and those of `Tool` and `type` of the same name."""
_BLOCK = re.compile(r"\n\n((?: {4}.*\n?)(?: {4}.*\n?|\n(?= {4}))*)")
_INLINE = re.compile(r"(?:: |For example )`([^`]*\([^`…]*)`")


def methods() -> Iterator[tuple[str, str]]:
    for kind in CLASSES:
        for name, member in vars(kind).items():
            is_method = callable(member) or isinstance(member, sync_and_async)
            if is_method and not name.startswith("_") and name not in INTERNAL:
                yield f"{kind.__name__}.{name}", inspect.cleandoc(member.__doc__ or "")


def examples(text: str) -> list[str]:
    about = text.partition("\nArgs:")[0] + "\n"
    return [*(inspect.cleandoc("\n" + block) for block in _BLOCK.findall(about)), *_INLINE.findall(about)]


METHODS = dict(methods())


def test_every_method_that_a_user_calls_has_an_example() -> None:
    assert len(METHODS) > 70
    assert [name for name, text in METHODS.items() if not examples(text)] == []


@pytest.fixture
def mcp(tmp_path: Path) -> Iterator[ipymcp.Mcp]:
    with contextlib.chdir(tmp_path), ipymcp.connect("demo") as mcp:
        yield mcp


@pytest.mark.parametrize("kind", [kind.__name__ for kind in CLASSES])
def test_the_examples_run_in_the_order_of_the_class(kind: str, mcp: ipymcp.Mcp) -> None:
    names: dict[str, Any] = {"mcp": mcp, "ipymcp": ipymcp}
    for name, text in METHODS.items():
        for example in examples(text) if name.startswith(f"{kind}.") else ():
            code = compile(example, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if name in NOT_HERE:
                continue
            outcome = eval(code, names)
            if inspect.iscoroutine(outcome):
                asyncio.run(outcome)

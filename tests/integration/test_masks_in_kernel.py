"""Planted secrets, told by a server in every way and form: nothing that a session writes holds one of them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.environments import ROOT
from tests.kernels import Kernel, Outcome
from tests.servers.leaky import forms

LEAKY = ROOT / "tests" / "servers" / "leaky.py"
TOKEN = "tok-4f/9\"s's+ö<&>w\\rd%7"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----"
ARGUMENT = "argument-key-0123456789"
KEPT = "kept-secret-9876543210"
HOWS = ["stderr", "log", "result", "structured", "markdown", "error", "refuse", "noise"]


def texts(outcome: Outcome) -> Iterator[str]:
    """All that a cell has sent, as it is and as it is on the wire."""
    for message in outcome.messages:
        if message["msg_type"] not in ("execute_input", "status"):
            yield from (json.dumps(message["content"]), repr(message["content"]))
            yield from strings(message["content"])
    yield from (outcome.stdout, outcome.stderr)


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(key)
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def planted() -> dict[str, str]:
    """Every form of every secret, but the two that differ only in what stands before it, and what base64 mixes."""
    found: dict[str, str] = {}
    for name, secret in {"token": TOKEN, "argument": ARGUMENT, "kept": KEPT, "key": KEY.splitlines()[1]}.items():
        for form, text in forms(secret).items():
            if form in ("json", "unicode json", "repr"):
                text = text[len('{"key": "') : -2]
            elif form == "bytes":
                text = text[2:-1]
            elif "base64" in form or form == "basic":
                text = text[8:-4]  # what is before and after the secret has its part in the rest
            if form not in ("cut", "long"):
                found[f"{name} as {form}"] = text
    return found


def test_nothing_that_a_session_writes_holds_a_secret(kernel: Kernel, tmp_path: Path) -> None:
    definition = {
        "command": sys.executable,
        "args": [str(LEAKY), "--secret", "API_TOKEN", "--secret", "SSH_PRIVATE_KEY", "--api-key", ARGUMENT],
        "env": {"API_TOKEN": TOKEN, "SSH_PRIVATE_KEY": KEY},
    }
    kernel.folder.joinpath("servers.json").write_text(json.dumps({"mcpServers": {"leaky": definition}}))
    logged = kernel.folder / "python.log"
    names = list(forms("x" * 8))
    cells = [
        f"import logging; logging.basicConfig(filename={str(logged)!r}, level=0, force=True)",
        "%load_ext ipymcp",
        "%mcp load servers.json",
        "%mcp tools",
        "mcp.leaky",
        "mcp.leaky.leak",
        "mcp.leaky.leak?",
        "%mcp stubs",
        "%mcp resources leaky",
        "%mcp read leaky leak://it",
        "%mcp prompts leaky",
        *(f"%mcp call leaky.leak how={how} form='{form}'" for how in HOWS for form in names),
        "%mcp call leaky.leak how=progress",
        "mcp.leaky.leak.submit('progress').result()",
        "%config IPyMCP.tracebacks = True",
        "%mcp call leaky.leak how=refuse",
        "mcp.leaky.leak('error', form='json')",
        "%xmode Verbose",
        "mcp.leaky.leak('refuse', form='repr')",
        "%mcp nonsense",
        "mcp.leaky.leak('die')",
        "%mcp logs",
        "mcp.servers['leaky']",
        "%mcp",
        "mcp.servers.known",
        f"%mcp secret set planted --value={KEPT}",
        f"%mcp secret set planted {KEPT}",
    ]
    outcomes = [kernel.run(cell) for cell in cells]
    outcomes.append(kernel.run("%mcp secret set planted", answers=[KEPT]))
    outcomes.append(kernel.run("%mcp secret list"))
    outcomes.append(kernel.run(f"print(repr(mcp._host.state.secrets.get('planted') == {KEPT[::-1]!r}[::-1]))"))
    assert outcomes[-1].stdout == "True\n"
    assert outcomes[-2].text is not None and "planted" in outcomes[-2].text

    value = kernel.run("import hashlib\nhashlib.sha256(mcp.leaky.leak('result').text.encode()).hexdigest()").text
    lines = enumerate([TOKEN, *KEY.splitlines(), ARGUMENT])
    told = "\n".join(f"{number}: {line}" for number, line in lines)
    assert value == repr(hashlib.sha256(told.encode()).hexdigest())  # a result in Python is as the server gave it

    expected = {None, "ToolError", "RpcError", "UsageError", "ConnectionLost"}
    assert {outcome.error.ename if outcome.error else None for outcome in outcomes} <= expected

    kernel.shutdown()
    files = [file for file in kernel.folder.rglob("*") if file.is_file() and file.name != "servers.json"]
    assert {"python.log", "mcp_tools.pyi", "state.db"} <= {file.name for file in files}
    assert "[secret]" in logged.read_text() and "[secret]" in (kernel.folder / "mcp_tools.pyi").read_text()
    sources = {
        file.name: [file.read_bytes().decode("utf-8", "replace")] for file in files if "ipython" not in file.parts
    }
    for cell, outcome in zip([*cells, "set", "list", "get"], outcomes, strict=True):
        sources[cell] = list(texts(outcome))
    leaks = [
        (source, form)
        for source, written in sources.items()
        for form, text in planted().items()
        if any(text in one for one in written)
    ]
    assert leaks == []
    assert sum("[secret]" in text for outcome in outcomes for text in texts(outcome)) > len(HOWS) * len(names)

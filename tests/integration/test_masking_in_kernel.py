"""Planted secrets, told by a server in every way and form: nothing that a session writes holds one of them."""

import hashlib
import json
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import StartKernel
from tests.environments import ROOT
from tests.kernels import Outcome, strings
from tests.servers.leaky import forms

LEAKY = ROOT / "tests" / "servers" / "leaky.py"
TOKEN = "tok-4f/9\"s's+ö<&>w\\rd%7"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END PRIVATE KEY-----"
ARGUMENT = "argument-key-0123456789"
HEADER = "header-token-2468013579"
TOLD = "told-by-a-variable-97531"
KEPT = "kept-secret-9876543210"
HOWS = ["stderr", "log", "result", "structured", "markdown", "error", "refuse", "noise"]


def texts(outcome: Outcome) -> Iterator[str]:
    """All that a cell has sent, as it is and as it is on the wire."""
    for message in outcome.messages:
        if message["msg_type"] not in ("execute_input", "status"):
            yield from (json.dumps(message["content"]), repr(message["content"]))
            yield from strings(message["content"])
    yield from (outcome.stdout, outcome.stderr, outcome.pager, *outcome.prompts)


def planted() -> dict[str, str]:
    """Every form of every secret, but the two that differ only in what stands before it, and what base64 mixes."""
    secrets = {"token": TOKEN, "argument": ARGUMENT, "header": HEADER, "told": TOLD, "kept": KEPT}
    secrets["key"] = KEY.splitlines()[1]
    planted: dict[str, str] = {}
    for name, secret in secrets.items():
        for form, text in forms(secret).items():
            if form in ("json", "unicode json", "repr"):
                text = text[len('{"key": "') : -2]
            elif form == "bytes":
                text = text[2:-1]
            elif "base64" in form or form == "basic":
                text = text[8:-4]  # what is before and after the secret has its part in the rest
            if form not in ("cut", "long"):
                planted[f"{name} as {form}"] = text
    return planted


@pytest.mark.cold
def test_nothing_that_a_session_writes_holds_a_secret(start_kernel: StartKernel) -> None:
    kernel = start_kernel(env={"TOLD_TOKEN": TOLD})
    options = ["--api-key", ARGUMENT, "--header", f"Authorization: Bearer {HEADER}", "--told", "${TOLD_TOKEN}"]
    definition = {
        "command": sys.executable,
        "args": [str(LEAKY), "--secret", "API_TOKEN", "--secret", "SSH_PRIVATE_KEY", *options],
        "env": {"API_TOKEN": TOKEN, "SSH_PRIVATE_KEY": KEY},
    }
    kernel.folder.joinpath("servers.json").write_text(json.dumps({"mcpServers": {"leaky": definition}}))
    logged = kernel.folder / "python.log"
    names = list(forms("x" * 8))
    cells = [
        f"import logging; logging.basicConfig(filename={str(logged)!r}, level=0, force=True)\n"
        "logging.getLogger('ipymcp.server').propagate = True",
        "%load_ext ipymcp",
        "%config IPyMCP.history = 'values'",
        "%mcp load servers.json",
        "%mcp tools",
        "mcp.leaky",
        "mcp.leaky.leak",
        "mcp.leaky.leak?",
        "help(mcp.leaky.leak)",
        "import inspect; inspect.signature(mcp.leaky.leak)",
        "mcp.leaky.leak('result', which='no')",
        "mcp.leaky.prompts.leaking",
        "mcp.leaky.prompts.leaking?",
        "%mcp prompt leaky.leaking",
        "%mcp pins",
        "%mcp pins export",
        "%mcp config explain leaky",
        "%mcp config",
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
        "%mcp history",
        "mcp.history().df.to_string()",
        "%mcp logs",
        "mcp.servers['leaky']",
        "%mcp",
        "mcp.servers.known",
        f"%mcp secret set planted --value={KEPT}",
        f"%mcp secret set planted {KEPT}",
    ]
    outcomes = [kernel.run(cell) for cell in cells]
    outcomes.append(kernel.run("%mcp secret set planted", answers=[KEPT]))
    outcomes.append(kernel.run("%mcp policy ask leaky.*"))
    outcomes.append(kernel.run("mcp.leaky.leak('result', key=mcp.leaky.leak('result').text)", answers=["once", "no"]))
    outcomes.append(kernel.run("%mcp policy reset"))
    outcomes.append(kernel.run("%mcp secret list"))
    outcomes.append(kernel.run(f"print(repr(mcp._host.store.secrets.get('planted') == {KEPT[::-1]!r}[::-1]))"))
    assert outcomes[-1].stdout == "True\n"
    assert outcomes[-2].text is not None and "planted" in outcomes[-2].text

    value = kernel.run("import hashlib\nhashlib.sha256(mcp.leaky.leak('result').text.encode()).hexdigest()").text
    lines = enumerate([TOKEN, *KEY.splitlines(), ARGUMENT, HEADER, TOLD])
    told = "\n".join(f"{number}: {line}" for number, line in lines)
    assert value == repr(hashlib.sha256(told.encode()).hexdigest())  # a result in Python is as the server gave it

    typed = ["mcp.leaky.leak(which=", "%mcp call leaky.leak which=", "mcp.leaky.resources['", "%mcp read leaky "]
    typed += ["%mcp prompt leaky.leaking about=", "mcp.leaky.prompts.leaking(about='"]
    offered = {f"Tab after {code}": kernel.complete(code).matches for code in typed}
    looked = {f"Shift-Tab at {code}": [kernel.inspect(code) or ""] for code in ("mcp.leaky.leak(", "mcp.leaky")}
    assert offered["Tab after %mcp call leaky.leak which="] == ["none"]
    assert all(looked.values())

    expected = {None, "ToolError", "RpcError", "UsageError", "ConnectionLost", "ArgumentError", "PolicyError"}
    assert {outcome.error.ename if outcome.error else None for outcome in outcomes} <= expected

    kernel.shutdown()
    files = [file for file in kernel.folder.rglob("*") if file.is_file() and file.name != "servers.json"]
    assert {"python.log", "mcp_tools.pyi", "mcp.lock", "state.db"} <= {file.name for file in files}
    assert "[secret]" in logged.read_text() and "[secret]" in (kernel.folder / "mcp_tools.pyi").read_text()
    sources = {
        file.name: [file.read_bytes().decode("utf-8", "replace")] for file in files if "ipython" not in file.parts
    }
    sources |= offered | looked
    for cell, outcome in zip([*cells, "set", "ask", "asked", "reset", "list", "get"], outcomes, strict=True):
        sources[cell] = list(texts(outcome))
    leaks = [
        (source, form)
        for source, written in sources.items()
        for form, text in planted().items()
        if any(text in one for one in written)
    ]
    assert leaks == []
    assert sum("[secret]" in text for outcome in outcomes for text in texts(outcome)) > len(HOWS) * len(names)

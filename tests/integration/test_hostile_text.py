"""One mark that would act on a terminal, a page or a reader, in every text that others write: none comes out raw."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import kernels
from tests.environments import ROOT, kernel_python, server_command
from tests.integration.notebooks import done, opened
from tests.kernels import Kernel, Outcome, strings

MARK = "\x1b]52;c;aGk=\x07\x1b[2J\u202e\u200b\x9b\x85\r\nFORGED\u2028FORGED\x00\x7f\U000e0041"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e\ud800-\udfff\U000e0041]")
COLOR = re.compile("\x1b\\[[0-9;]*m")
EVIL = [*server_command("marked"), json.dumps(MARK)]
SETUP = [
    "tool = next(name for name in mcp.evil._ipython_key_completions_() if name.startswith('marked'))",
    "import inspect, ipymcp",
]
CELLS = [
    "mcp.evil",
    "mcp.servers",
    "mcp.servers['evil']",
    "print(repr(mcp.servers['evil']), mcp.evil, mcp)",
    "mcp.tools",
    "mcp.tools.table",
    "%mcp tools evil",
    "%mcp tools",
    "%mcp",
    "mcp.evil.say",
    "mcp.evil[tool]",
    "mcp.evil[tool]()",
    "mcp.evil[tool]('x', 2)",
    "mcp.evil[tool].aio",
    "print(mcp.evil.say.__doc__)",
    "print(mcp.evil[tool].__doc__, mcp.evil[tool].__name__)",
    "print(inspect.signature(mcp.evil.say), inspect.signature(mcp.evil[tool]))",
    "help(mcp.evil.say)",
    "%mcp help evil.say",
    "%mcp call evil.say lang=nope",
    "mcp.evil.say(lang='nope')",
    "mcp.evil.say(lang=5)",
    "mcp.evil.say(lamg=5)",
    "mcp.evil.sayy()",
    "mcp.evil['no such']()",
    "mcp.evil.refuse()",
    "%mcp call evil.refuse",
    "mcp.evil.refuse(n='many')",
    "mcp.evil.fail()",
    "%mcp call evil.fail",
    "mcp.evil.talk()",
    "print([mcp.evil.talk()])",
    "repr(mcp.evil.talk())",
    "mcp.evil.links()",
    "mcp.evil.links().links",
    "mcp.evil.talk().content",
    "call = mcp.evil.talk.submit()\nprint(call)\nprint([call.result()])\ncall",
    "mcp.calls",
    "%mcp logs evil",
    "mcp.logs('evil')",
    "mcp.evil.resources",
    "%mcp resources evil",
    "mcp.evil.resources['mark://plain']",
    "mcp.evil.resources['mark://plain'].read()",
    "mcp.evil.resources['mark://nothing']",
    "%mcp read evil mark://plain",
    "mcp.evil.prompts",
    "%mcp prompts evil",
    "mcp.evil.prompts.greet",
    "print(mcp.evil.prompts.greet.__doc__)",
    "mcp.evil.prompts.greet()",
    "mcp.evil.prompts.greet(lang='x')",
    "%mcp prompt evil.greet lang=x",
    "%mcp history",
    "mcp.history()",
    "%mcp pins",
    "%mcp pins accept evil",
    "%mcp policy",
    "%mcp policy explain evil.say",
    "%mcp policy explain evil.nothing",
    "%mcp policy deny evil.fail",
    "mcp.evil.fail()",
    "%mcp disable evil.say",
    "mcp.evil.say()",
    "%mcp enable evil.say",
    "%mcp stubs",
    "%mcp panel",
    "%mcp secret list",
    "%mcp config",
    "%mcp config explain evil",
    "%mcp restart evil",
    "mcp.evil.die()",
    "%mcp start evil",
    "mcp.evil.fail.map([{}, {}])",
    "print(mcp.maps[-1], mcp.maps[-1].errors, list(mcp.maps[-1].errors))",
    "mcp.maps",
    "mcp.maps[-1].errors",
    "mcp.maps[-1][0]",
    "mcp.maps[-1].df['error'].tolist()",
    "mcp.evil.refuse.map([1, 2], on_error='raise')",
    "mcp.evil[tool].map([{tool: 1}, {'x': 1}])",
    "mcp.evil[tool].map",
    "mcp.evil[tool].map.plan([tool, 'x'])",
    "mcp.evil[tool].map.stream(['x'])",
    "pairs = iter(mcp.evil[tool].map.stream(['x', 'y']))\nprint(next(pairs))\nprint(mcp.calls)",
    "pairs.close()",
    "mcp.evil[tool].map(tool)",
    "mcp.evil[tool].map([tool], columns={tool: tool})",
    "mcp.evil[tool].map(['x'], rate=tool)",
    "mcp.evil[tool].map(['x'], to=tool)",
    "mcp.evil[tool].map(['x'], to=tool + '.jsonl')",
    "mcp.evil[tool].map(['x'], to=tool.replace(chr(0), '').replace('/', '') + '.jsonl')",
    "mcp.evil[tool].map(['x'], **{tool + 'x': 1})",
    "%mcp map evil.fail [1]",
    "%mcp map evil.fail [tool] --plan",
    "%mcp map evil.say [tool]",
    "%config IPyMCP.tracebacks = True",
    "mcp.evil.fail.map([1], on_error='raise')",
    "mcp.evil.refuse()",
    "mcp.evil.say(lang='nope')",
    "%config IPyMCP.tracebacks = False",
    "mcp.evil.die()",
]
DOCUMENTS: list[Any] = [
    {"mcpServers": {f"a{MARK}": {"command": "true"}}},
    {"mcpServers": {f"a{MARK}": {"command": 5}}},
    {"mcpServers": {"a": {"command": f"no-such-{MARK}", "args": [MARK]}}},
    {"mcpServers": {"a": {"command": "true", f"key{MARK}": 1, "timeout": f"x{MARK}"}}},
    {"mcpServers": {"a": {"command": "true", "env": {f"A{MARK}": f"${{env:B{MARK}}}"}}}},
    {"mcpServers": {"a": {"command": "true", "args": [f"${{secret:x{MARK}}}", f"${{input:y{MARK}}}"]}}},
    {"mcpServers": {"a": {"command": "true", "args": [f"${{NO_SUCH:-{MARK}}}${{NO_SUCH}}"], "cwd": f"/no/{MARK}"}}},
    {"mcpServers": {"a": {"url": f"http://127.0.0.1:1/{MARK}"}}},
    {"mcpServers": {"a": {"url": f"{MARK}://x", "headers": {f"h{MARK}": MARK}}}},
    {"mcpServers": {"a": {"command": "true", "type": MARK}}},
    {"mcpServers": {"a": {"command": "true", "args": ["\ud800", "x\udc00"]}}},
    {"mcpServers": {"a\ud800": {"command": "\udfff"}}},
    {f"what{MARK}": {}},
    [MARK],
]


def check(value: Any, where: str) -> None:
    for text in strings(value):
        raw = RAW.search(COLOR.sub("", text))
        assert raw is None, f"{where}: {raw[0]!r} in {text[max(0, raw.start() - 200) : raw.end() + 50]!r}"


def check_lines(text: str, where: str) -> None:
    """Nothing of the mark begins a line of its own: it would be read as ipymcp's."""
    assert not any(line.lstrip().startswith("FORGED") for line in COLOR.sub("", text).splitlines()), f"{where}: {text}"


def check_outcome(outcome: Outcome, where: str) -> None:
    check([outcome.result or {}, outcome.displays, outcome.payload], where)
    check([outcome.stdout, outcome.stderr], where)
    check_lines(outcome.stderr, where)
    if outcome.error is not None:
        check([outcome.error.evalue, outcome.error.traceback], where)
        assert "UnicodeEncodeError" not in outcome.error.traceback, where
        if "Traceback" not in outcome.error.traceback:
            check_lines(outcome.error.traceback, where)


def documents(folder: Path) -> list[str]:
    """Write the hostile documents, and give the lines that read them."""
    lines: list[str] = []
    for number, document in enumerate(DOCUMENTS):
        (folder / f"document{number}.json").write_text(json.dumps(document))
        lines.append(f"%mcp load ./document{number}.json")
    text = json.dumps(DOCUMENTS[0])[:-2] + f"{MARK}"
    (folder / "broken.json").write_bytes(text.encode())
    return [*lines, "%mcp load ./broken.json", "%mcp config import ./document0.json"]


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with opened(kernel_name, tmp_path_factory.mktemp("marked"), {"evil": EVIL}) as kernel:
        for cell in SETUP:
            done(kernel, cell)
        yield kernel


@pytest.mark.parametrize("cell", list(dict.fromkeys(CELLS)))
def test_nothing_that_a_server_says_comes_out_raw(kernel: Kernel, cell: str) -> None:
    check_outcome(kernel.run(cell, answers=[]), cell)


def test_a_servers_question_shows_what_is_in_it(kernel: Kernel) -> None:
    outcome = kernel.run("mcp.evil.ask()", answers=["!decline"])
    check_outcome(outcome, "question")
    check(outcome.prompts, "prompts")


def test_a_stub_file_holds_nothing_raw(kernel: Kernel) -> None:
    done(kernel, "%mcp stubs")
    check((kernel.folder / "mcp_tools.pyi").read_bytes().decode(), "stubs")


def test_no_message_of_a_panel_holds_anything_raw(kernel: Kernel) -> None:
    done(kernel, "%mcp panel evil")
    for message in kernel.comms:
        check(message, "panel")


@pytest.mark.parametrize(
    "code",
    [
        *("mcp.", "mcp.evil.", 'mcp["', 'mcp.evil["', "mcp.evil.say(", "mcp.evil.say(lang=", "mcp.evil.say(lang='"),
        *("%mcp call evil.", "%mcp call evil.say ", "%mcp call evil.say lang=", "%mcp read evil ", "%mcp prompt evil."),
        *('mcp.evil.resources["', 'mcp.evil.prompts["', "mcp.evil.prompts.greet(lang='", "mcp.evil.prompts."),
        *("%mcp secret set ", "%mcp load ", "%mcp tools ", "%mcp pins accept "),
    ],
)
def test_no_completion_has_anything_raw(kernel: Kernel, code: str) -> None:
    check(kernel.complete(code).matches, code)


@pytest.mark.parametrize(
    "code", ["mcp.evil.say", "mcp.evil.fail", "mcp.evil.prompts.greet", "mcp.evil", "mcp.servers", "%mcp call evil.say"]
)
def test_no_inspection_has_anything_raw(kernel: Kernel, code: str) -> None:
    for detail in (0, 1):
        check(kernel.inspect(code, detail=detail) or "", code)


def test_nothing_of_a_config_document_comes_out_raw(kernel: Kernel) -> None:
    for line in documents(kernel.folder):
        for answers in (None, ["no"]):
            outcome = kernel.run(line, answers=answers)
            check_outcome(outcome, line)
            check(outcome.prompts, line)
    for line in ("%mcp config", "mcp.servers", "%mcp trust", "mcp.tools"):
        check_outcome(kernel.run(line), line)


def test_nothing_raw_reaches_a_terminal(tmp_path: Path, kernel_name: str) -> None:
    cells = ["%load_ext ipymcp", f"%mcp load evil -- {shlex.join(EVIL)};", *SETUP, *CELLS, *documents(tmp_path)]
    python = kernel_python(kernel_name)
    environment = kernels.private_environment(python, tmp_path, {"PYTHONPATH": str(ROOT), "PAGER": "cat"})
    ended = subprocess.run(
        [str(python), "-m", "IPython", "--simple-prompt", "--colors=NoColor", "--no-banner"],
        input="".join(f"{cell}\n\n" if "\n" in cell else f"{cell}\n" for cell in cells).encode(),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=100,
        check=False,
    )
    said = ended.stdout.decode()
    assert "UnicodeEncodeError" not in said
    # A progress line is rewritten by `\r` alone, which is ipymcp's own.
    for line in said.replace("\r\n", "\n").split("\n"):
        check(line.replace("\r", "").replace("\x1b[?2004h", "").replace("\x1b[?2004l", ""), "terminal")

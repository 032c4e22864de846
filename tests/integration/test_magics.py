"""The `%mcp` lines that people type, in real kernels: what they do, what they show, and how they fail."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from ipymcp.notebook.magics.dispatch import MODULES
from ipymcp.runtime.events import LEVELS
from tests.conftest import StartKernel
from tests.environments import server_command
from tests.integration.notebooks import done, error, opened, text
from tests.kernels import Kernel

MISBEHAVING = server_command("misbehaving")
CSV, NOTES, BIRDS = "demo://penguins.csv", "demo://notes.md", "demo://penguins/{species}"
DREAM = """%%mcp call demo.query
{"table": "penguins", "where": "island = 'Dream'", "limit": n}"""


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    servers = {
        "everything": server_command("everything"),
        **dict.fromkeys(["a.b", "a", "load", "x-y", "x_y"], MISBEHAVING),
    }
    with opened(kernel_name, tmp_path_factory.mktemp("magics"), servers) as kernel:
        done(kernel, "%mcp resources demo;")
        done(kernel, "n, i, name, folder = 3, 7, 'Ada', {'path': r'C:\\data'}")
        yield kernel


def echoed(kernel: Kernel, arguments: str, tool: str = "demo.echo") -> str:
    return ast.literal_eval(text(kernel, f"r = %mcp call {tool} {arguments}\nr.text"))


@pytest.mark.cold
def test_a_server_on_the_sdk_1_starts_without_a_word_in_a_notebook_that_logs(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    done(kernel, "import logging; logging.basicConfig(level=logging.INFO)\n%load_ext ipymcp")
    loaded = done(kernel, f"%mcp load one -- {' '.join(server_command('sdk1'))}\nmcp.one.echo('x')")
    assert (loaded.stdout, loaded.stderr) == ("", "")
    log = [row.split(maxsplit=3)[1:] for row in text(kernel, "%mcp logs one").splitlines()[2:]]
    said = re.compile("it does not know server/discover, and wrote \\d+ lines about it")
    assert [row for row in log if "validat" in row[2]] == []
    assert [row[:2] for row in log if said.match(row[2])] == [["host", "info"]], log
    noticed = done(kernel, "mcp.on_sampling(lambda request: 'x')")
    assert noticed.stderr == "ipymcp: one will use the new sampling setting after a restart: %mcp restart one\n"


def test_every_line_of_a_first_session_works(kernel: Kernel) -> None:
    time = " ".join(server_command("time"))
    own = {"mcpServers": {"own": {"command": MISBEHAVING[0], "args": MISBEHAVING[1:]}}}
    (kernel.folder / "servers.json").write_text(json.dumps(own))

    assert done(kernel, f"%mcp load time -- {time}").displays[0]["text/plain"] == "✓ time: ready, 2 tools"
    assert done(kernel, "%mcp load ./servers.json").displays[0]["text/plain"] == "✓ own: ready, 13 tools"
    table = text(kernel, "%mcp").splitlines()
    assert table[:2] == ["MCP servers", "server      state  protocol    tools  calls  last error"]
    assert "everything  ready  2025-11-25     16      0" in table
    assert "everything.get_sum" in text(kernel, "%mcp tools everything.*")
    assert "own.refuse" in text(kernel, "%mcp tools")
    assert '"timezone": "Europe/Paris"' in text(kernel, "%mcp call time.get_current_time timezone=Europe/Paris")
    assert done(kernel, "r = %mcp call everything.get-sum a=2 b=40").result is None
    assert text(kernel, "r.text") == "'The sum of 2 and 40 is 42.'"
    called = text(kernel, "from ipymcp import mcp\nmcp.everything.get_sum(2, 40).text")
    assert called == "'The sum of 2 and 40 is 42.'"
    assert '"timezone": "UTC"' in text(kernel, 'await mcp.time.get_current_time.aio("UTC")')
    assert len(text(kernel, DREAM).splitlines()) == 5
    assert "Starting default (STDIO) server" in text(kernel, "%mcp logs everything -n 20")
    assert "everything  ready" in text(kernel, "%mcp restart everything")
    done(kernel, "%mcp unload time own;")


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ("text=what?", "what?"),
        ("text=a # a comment", "a"),
        ("text=a#b", "a#b"),
        ("text='a # b'", "a # b"),
        ("text='it''s'", "it's"),
        ('text="two words"', "two words"),
        (r"text=C:\data\new", r"C:\data\new"),
        ("text=1.10", "1.10"),
        ("text=02139", "02139"),
        ("text=true", "true"),
        ("text=$name", "Ada"),
        ("text='$name'", "$name"),
        ("text=data/{i}.csv", "data/7.csv"),
        ('text="{name!r} {i:03}"', "'Ada' 007"),
        ("text={folder['path']}", r"C:\data"),
        ("text='{i}'", "{i}"),
        ('text={"a": [1, 2]}', '{"a": [1, 2]}'),
        ("text=f(a, b)", "f(a, b)"),
        ('{"text": "a; b # c"}', "a; b # c"),
        ("{'text': name + '!'}", "Ada!"),
    ],
)
def test_a_value_is_sent_as_it_was_meant(kernel: Kernel, arguments: str, sent: str) -> None:
    assert echoed(kernel, arguments) == sent


@pytest.mark.parametrize(
    ("tool", "server"),
    [
        *[("demo__echo", "demo"), ("a.b.echo", "a.b"), ("a.b__echo", "a.b"), ("a.echo", "a"), ("load.echo", "load")],
        *[("load_.echo", "load"), ("x-y.echo", "x-y"), ("x_y.echo", "x_y"), ("x_y_2.echo", "x-y")],
    ],
)
def test_a_tool_is_found_under_every_name_it_has(kernel: Kernel, tool: str, server: str) -> None:
    assert text(kernel, f"r = %mcp call {tool} text=hi\n(r.server, r.tool, r.text)") == f"('{server}', 'echo', 'hi')"


def test_a_line_that_ends_in_a_semicolon_shows_nothing(kernel: Kernel) -> None:
    assert done(kernel, "%mcp call demo.echo text=a").result is not None
    body = "%%mcp call demo.echo;\n{'text': 'a'}"
    for silent in ("%mcp call demo.echo text=a;", "%mcp tools ; # all", "%mcp load demo;", "%mcp start demo;", body):
        outcome = done(kernel, silent)
        assert (outcome.result, outcome.displays, outcome.stdout) == (None, [], ""), silent
    assert text(kernel, "r = %mcp call demo.echo text='kept;';\nr.text") == "'kept;'"


LOADING_CELL = """%load_ext ipymcp
%mcp load demo;
%mcp call demo.echo text=first
%mcp call demo.echo text=silent;
r = %mcp call demo.echo text=bound
for _ in 'ab':
    %mcp call demo.echo text=again
%mcp call demo.echo text=last
%mcp call demo.echo text=last"""


@pytest.mark.cold
@pytest.mark.kernels("kernel-7", "kernel-6", "kernel-colab")
def test_the_cell_that_loads_the_extension_shows_what_its_lines_show_in_any_other_cell(
    start_kernel: StartKernel, kernel_name: str
) -> None:
    kernel = start_kernel()
    shown = ["first", "again", "again", "last"]

    for _ in "12":  # the second time it is loaded already
        outcome = done(kernel, LOADING_CELL)
        displayed = [display["text/plain"] for display in outcome.displays]
        assert displayed == [f"ToolResult demo.echo: {word}" for word in shown]
        assert outcome.text == "ToolResult demo.echo: last"


def test_lines_stand_in_loops_and_functions_and_see_their_names(kernel: Kernel) -> None:
    loop = "said = []\nfor i in range(3):\n    r = %mcp call demo.echo text={i}\n    said.append(r.text)\nsaid"
    assert text(kernel, loop) == "['0', '1', '2']"
    function = "def f(local):\n    r = %mcp call demo.echo text=$local\n    return r.text\nf('inner')"
    assert text(kernel, function) == "'inner'"
    done(kernel, "i = 7")


@pytest.mark.parametrize(
    "body",
    [
        '{"table": "penguins", "limit": 3}',
        "{table: 'penguins', limit: 3,} // JSON5",
        "{'table': 'penguins', 'limit': n}",
        "\ndict(\n    table='penguins',\n    limit=n,\n)\n",
    ],
)
def test_a_cell_is_json_or_json5_or_a_python_dict(kernel: Kernel, body: str) -> None:
    assert done(kernel, f"%%mcp call --out rows demo.query\n{body}").result is None
    assert text(kernel, "len(rows['rows'])") == "3"


@pytest.mark.parametrize(
    ("cell", "message", "hint"),
    [
        (
            "%%mcp call demo.query\n{'table': 'penguins',\n  limit: 3 x}",
            "ArgumentError: demo.query: line 2, column 10: invalid syntax. Perhaps you forgot a comma?",
            "the body is JSON, JSON5, or a Python dict with the notebook's names",
        ),
        (
            "%%mcp call demo.echo\n['a']",
            "ArgumentError: demo.echo: the body is a list, not a mapping of arguments",
            'write {"argument": value, …}',
        ),
        (
            "%mcp call demo.query tabel=penguins",
            "ArgumentError: demo.query: no argument 'tabel'; did you mean 'table'?",
            "query(table: Literal['penguins'], *, where, limit)",
        ),
        (
            "%mcp call demo.echo text=$nam",
            "ArgumentError: text: the notebook has no name 'nam'",
            "did you mean 'name'? single quotes send the text as it is",
        ),
        ("%mcp call demo.fail message=oops", "ToolError: demo.fail: oops", "reported by the tool"),
        ("%mcp call demo", "UnknownName: 'demo' names a server; a tool is demo.TOOL", "its tools: %mcp tools demo"),
        (
            "%mcp load docs https://127.0.0.1:1/mcp --header Authorization",
            "McpError: --header Authorization: no value",
            "write --header 'Name: value'",
        ),
        ("%mcp disable demo.ecko", "UnknownName: no tool matches 'demo.ecko'", "did you mean 'demo.echo'?"),
        (
            "%mcp tools fs.*?",
            "UnknownName: no tool matches 'fs.*?': there is no server 'fs'",
            "loaded: demo, everything, a.b, a, load, x-y, x_y",
        ),
        ("%mcp cancel 99999", "UnknownName: no call 99999 is running", "running: none"),
        (
            "%mcp read demo demo://penguin.csv",
            "RpcError: demo: Resource not found: demo://penguin.csv",
            "did you mean 'demo://penguins.csv'?",
        ),
        ("%mcp read dmo notes.md", "UnknownName: there is no server 'dmo'", "did you mean 'demo'?"),
        (
            "%mcp read demo demo://penguins/{species}",
            "ArgumentError: demo.demo://penguins/{species}: missing argument 'species'",
            "demo://penguins/{species}(species: str)",
        ),
        (
            "%mcp subscribe demo notes.md",
            "CallError: demo: does not announce changes of its resources",
            "read the resource again instead",
        ),
        ("%mcp prompt demo.descibe", "UnknownName: demo: there is no prompt 'descibe'", "did you mean 'describe'?"),
        (
            "%mcp prompt demo",
            "UnknownName: 'demo' names a server; a prompt is demo.PROMPT",
            "its prompts: %mcp prompts demo",
        ),
        (
            "%mcp prompt demo.describe",
            "ArgumentError: demo.describe: missing argument 'species'",
            "describe(species: str, *, tone)",
        ),
        (
            "%mcp resources dmo",
            "UnknownName: no resource matches 'dmo': there is no server 'dmo'",
            "did you mean 'demo'?",
        ),
    ],
)
def test_a_failed_line_shows_a_message_and_a_hint(kernel: Kernel, cell: str, message: str, hint: str) -> None:
    assert error(kernel, cell) == [message, f"  {hint} · in: {cell.splitlines()[0]}"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("%mcp call demo.fail message=oops", "mcp.demo.fail(message='oops')"),
        ("%mcp call demo.query table=x", "mcp.demo.query('x')"),
        ("%mcp call demo.qury", "mcp.demo.qury"),
        ("%mcp call demm.query", "mcp.demm.query"),
        ("%mcp call demo.query table=penguins limit=0", "await mcp.demo.query.aio('penguins', limit=0)"),
        ("%mcp stop demm", "mcp.stop('demm')"),
    ],
)
def test_a_magic_and_python_fail_alike(kernel: Kernel, line: str, code: str) -> None:
    (from_line, hint), (from_code, other_hint) = error(kernel, line), error(kernel, code)

    assert from_line == from_code
    assert hint.removesuffix(f"in: {line}") == other_hint.removesuffix(f"in: {code}")


def test_errors_can_be_caught_and_read(kernel: Kernel) -> None:
    cell = (
        "import ipymcp\ntry:\n    %mcp call demo.fail message=oops\nexcept ipymcp.ToolError as error:\n"
        "    caught = error.server, error.tool, error.result.text, error.result.is_error\ncaught"
    )
    assert text(kernel, cell) == "('demo', 'fail', 'oops', True)"


def test_a_setting_shows_whole_tracebacks(kernel: Kernel) -> None:
    done(kernel, "%config IPyMCP.tracebacks = True")
    outcome = kernel.run("mcp.demo.fail()")
    done(kernel, "%config IPyMCP.tracebacks = False")

    assert outcome.error is not None
    assert "Traceback (most recent call last)" in outcome.error.traceback
    assert "mcp.demo.fail()" in outcome.error.traceback
    assert outcome.stdout == ""


def test_a_mistyped_line_says_where_and_what_to_type(kernel: Kernel) -> None:
    outcome = kernel.run("%mcp tolls demo")

    assert outcome.error is not None
    assert outcome.error.ename == "UsageError"
    line = "UsageError: there is no %mcp tolls; did you mean 'tools'?"
    assert outcome.stderr == f"{line}\n  %mcp tolls demo\n       ^\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%mcp load --no-wiat demo", "there is no option --no-wiat; did you mean '--no-wait'?"),
        ("%mcp load --era new demo", "--era is one of auto, legacy, modern, not 'new'"),
        ("%mcp load x --", "there is no command after --"),
        ("%mcp call", "which tool? usage: %mcp call [--timeout S] SERVER.TOOL key=value … | {json}"),
        ("%mcp call demo.echo hello", "hello is not key=value: write text=hello"),
        ("%mcp call demo.echo text=a text=b", "text is given twice"),
        ("%mcp call demo.echo text='a", "the quote opened at column 21 is not closed: 'a"),
        ("%mcp stop", "give names or --all, one of the two; usage: %mcp stop NAME… | --all"),
        ("%mcp stop demo --all", "give names or --all, not both; usage: %mcp stop NAME… | --all"),
        ("%mcp logs demo 5", "5 is one too many; did you mean -n 5?"),
        ("%mcp logs --level loud", f"--level is one of {', '.join(LEVELS)}, not 'loud'"),
        ("%mcp policy dny demo.slow", "there is no %mcp policy dny; did you mean 'deny'?"),
        ("%mcp policy demo.slow demo.echo", "demo.echo is one too many; usage: %mcp policy SERVER.TOOL"),
        ("%mcp logs -n many", "-n needs a number, not 'many'"),
        ("%mcp cancel all", "a call is named by its number, not 'all'; without one, all are cancelled"),
        ("%mcp help tolls", "there is no %mcp tolls; did you mean 'tools'?"),
        ("%%mcp tools\nx", "%mcp tools takes no cell: write it with one %"),
    ],
)
def test_usage_errors(kernel: Kernel, line: str, message: str) -> None:
    assert kernel.run(line).stderr.startswith(f"UsageError: {message}\n")


def test_help_shows_every_word_within_a_cells_width(kernel: Kernel) -> None:
    shown = done(kernel, "%mcp help").stdout

    assert [word for word in MODULES if f"    %mcp {word} " not in shown] == []
    assert max(map(len, shown.splitlines())) <= 110
    assert done(kernel, "%mcp help call").stdout == done(kernel, "%mcp call?").stdout
    assert done(kernel, "%mcp help call").stdout.startswith(
        "%mcp call [--timeout S] SERVER.TOOL key=value … | {json}\n\n"
    )
    assert "%mcp help lists all" in done(kernel, "%mcp?").pager


def test_patterns_may_end_in_a_question_mark(kernel: Kernel) -> None:
    selections = {"demo.ech? demo.?lo?": ["plot", "slow", "echo"], "demo !demo.[!ep]?*": ["plot", "echo"]}
    for patterns, tools in selections.items():
        shown = text(kernel, f"%mcp tools {patterns}").splitlines()
        assert [line.split()[0] for line in shown[2:]] == [f"demo.{tool}" for tool in tools]
    assert "demo.slow" not in text(kernel, "%mcp tools demo !*.slow")


def test_servers_are_stopped_started_switched_off_and_forgotten(kernel: Kernel) -> None:
    def states() -> dict[str, str]:
        code = "{name: mcp.servers[name].state for name in ('one', 'two') if name in mcp}"
        return ast.literal_eval(text(kernel, code))

    command = " ".join(MISBEHAVING)
    done(kernel, f"%mcp load one -- {command};\n%mcp load two -- {command};")
    assert "one         stopped" in text(kernel, "%mcp stop one")
    assert states() == {"one": "stopped", "two": "ready"}
    assert error(kernel, "%mcp call one.echo text=a") == [
        "ServerStopped: one: is stopped",
        "  %mcp start one · in: %mcp call one.echo text=a",
    ]
    done(kernel, "%mcp start one;\n%mcp disable tw*;")
    assert states() == {"one": "ready", "two": "disabled"}
    assert error(kernel, "mcp.two.echo('a')") == [
        "ServerStopped: two: is disabled",
        "  %mcp enable two · in: mcp.two.echo('a')",
    ]
    done(kernel, "%mcp enable two;\n%mcp restart one two;")
    assert states() == {"one": "ready", "two": "ready"}
    done(kernel, "%mcp unload one two;")
    assert states() == {}


def test_a_tool_is_switched_off_by_either_of_its_names(kernel: Kernel) -> None:
    assert done(kernel, "%mcp disable everything.get_sum").stdout == (
        "disabled: everything.get_sum (until the kernel stops; after a restart: %mcp restore)\n"
    )
    refusal = ["PolicyError: everything.get-sum: is disabled by 'everything.get_sum'"]
    for call in ("%mcp call everything.get-sum a=1 b=2", "mcp.everything.get_sum(1, 2)"):
        assert error(kernel, call) == [*refusal, f"  %mcp enable everything.get-sum · in: {call}"]
    assert "get_sum" not in text(kernel, "mcp.tools")
    assert text(kernel, "mcp.everything").endswith("\n1 not shown: %mcp policy shows why")
    assert done(kernel, "%mcp enable everything.get*").stdout == "enabled: everything.get*\n"
    assert text(kernel, "mcp.everything.get_sum(1, 2).text") == "'The sum of 1 and 2 is 3.'"


def test_running_calls_are_cancelled(kernel: Kernel) -> None:
    assert done(kernel, "%mcp cancel").stdout == "no call is running\n"
    done(kernel, "first, second = [mcp.demo.slow.submit(seconds=60) for _ in range(2)]")
    assert done(kernel, f"%mcp cancel {text(kernel, 'first.number')}").stdout == "cancelled 1 call\n"
    assert text(kernel, "first.done, second.done") == "(True, False)"
    assert done(kernel, "%mcp cancel").stdout == "cancelled 1 call\n"
    assert error(kernel, "second.result()")[0].startswith("CallCancelled: demo.slow: call ")
    assert text(kernel, "mcp.calls") == "[]"


def test_logs_are_asked_for_by_server_and_number(kernel: Kernel) -> None:
    done(kernel, "for k in range(1, 5):\n    mcp.demo.query('penguins', limit=k)")
    shown = text(kernel, "%mcp logs demo -n 2").splitlines()
    assert shown[:2] == ["demo: log", "time      source  level  text"]
    assert [line.partition("info")[2].strip() for line in shown[2:]] == [
        "demo: SELECT * FROM penguins LIMIT 3",
        "demo: SELECT * FROM penguins LIMIT 4",
    ]
    assert text(kernel, "%mcp logs -n 1000").startswith("MCP logs\ntime      server      source  level")
    assert text(kernel, "%mcp logs demo -n 0").endswith("nothing is logged yet")
    wanted = "nothing is logged yet at the level emergency or above"
    assert text(kernel, "%mcp logs demo --level emergency -n 20").splitlines()[-1] == wanted
    assert text(kernel, "list(mcp.servers['demo'].logs(1).df.columns)") == "['time', 'source', 'level', 'text']"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("r = %mcp call demo.echo text=hi\nr.text", 'mcp.call("demo", "echo", {"text": "hi"}).text'),
        ("r = %mcp call demo.echo text=hi\nr.text", '(await mcp.call.aio("demo.echo", {"text": "hi"})).text'),
        (
            "rows = [{'text': 'a'}]\nm = %mcp map demo.echo rows\nlist(m.df.result)",
            'list(mcp.map("demo.echo", rows).df.result)',
        ),
        (
            "rows = [{'text': 'a'}]\nm = %mcp map demo.echo rows\nlist(m.df.result)",
            'list((await mcp.map.aio("demo.echo", rows)).df.result)',
        ),
        (f"r = %mcp read demo {NOTES}\nr.text", f'mcp.read("demo", "{NOTES}").text'),
        (f"r = %mcp read demo {BIRDS} species=Gentoo\nr.text", f'mcp.read("demo", "{BIRDS}", species="Gentoo").text'),
        (f"r = %mcp read demo {NOTES}\nr.text", f'(await mcp.read.aio("demo", "{NOTES}")).text'),
        (
            "r = %mcp prompt demo.describe species=Gentoo\nr.text",
            'mcp.prompt("demo", "describe", {"species": "Gentoo"}).text',
        ),
        (
            "r = %mcp prompt demo.describe species=Gentoo\nr.text",
            '(await mcp.prompt.aio("demo.describe", None, {"species": "Gentoo"})).text',
        ),
        ("%mcp logs demo --level info -n 3", 'mcp.logs("demo", 3, level="info")'),
        ("%mcp", "mcp.servers"),
        ("%mcp tools demo.*", 'mcp.tools("demo.*")'),
        ("%mcp policy", "mcp.policy"),
        ("%mcp config", "mcp.config"),
        ("%mcp config explain demo", 'mcp.config.explain("demo")'),
        ("%mcp config export claude-code demo", 'mcp.config.export("claude-code", "demo")'),
        ("%mcp secret list", "mcp.secret"),
    ],
)
def test_a_line_and_its_counterpart_in_python_give_the_same(kernel: Kernel, line: str, code: str) -> None:
    assert text(kernel, line) == text(kernel, code)


def test_panel_stubs_secrets_and_configuration_are_there_in_python(kernel: Kernel) -> None:
    shown = [done(kernel, one).displays[0] for one in ("%mcp panel", "mcp.panel()")]
    assert shown[0]["text/plain"] == shown[1]["text/plain"] and shown[0].keys() == shown[1].keys()
    assert error(kernel, "mcp.panel('dmo')")[1] == "  did you mean 'demo'? · in: mcp.panel('dmo')"
    assert text(kernel, "mcp.stubs('by_python.pyi').name") == "'by_python.pyi'"
    ast.parse((kernel.folder / "by_python.pyi").read_text())
    assert text(kernel, "mcp.secret.set('mine', 'a secret value')") == "'encrypted file'"
    assert "mine    encrypted file" in text(kernel, "mcp.secret")
    assert error(kernel, "mcp.secret.delete('mien')")[1] == "  did you mean 'mine'? · in: mcp.secret.delete('mien')"
    done(kernel, "mcp.secret.delete('mine')")
    assert error(kernel, "mcp.secret.set('mine')")[0] == "SecretError: cannot ask for 'mine': there is no user"
    file = text(kernel, "mcp.config.add('later', {'command': 'x', 'args': ['y']}).name")
    assert file == "'mcp.json'"
    done(kernel, "mcp.config.update('later', {'args': None})\nmcp.config.copy('later', 'last')")
    assert "last    x     not loaded" in text(kernel, "mcp.config")
    done(kernel, "mcp.config.edit('last', {'command': 'z'})\nmcp.config.remove('later', 'last')")
    assert "later" not in text(kernel, "mcp.config")
    assert done(kernel, "mcp.help('cancel')").stdout.startswith("Cancel a running call by its number, or all of them.")
    assert error(kernel, "mcp.help('cancle')")[1] == "  did you mean 'cancel'? · in: mcp.help('cancle')"


def test_what_a_server_says_of_a_tool_is_shown_as_json(kernel: Kernel) -> None:
    said = json.loads(text(kernel, "%mcp tools --schema demo.slow"))
    assert list(said) == ["demo.slow"]
    assert list(said["demo.slow"]) == ["title", "description", "inputSchema", "annotations"]
    assert said["demo.slow"]["inputSchema"] == ast.literal_eval(text(kernel, "mcp.demo.slow.input_schema"))
    assert ast.literal_eval(text(kernel, "mcp.tools('demo.*').schemas['demo.slow']['title']")) == "Take some time"
    stopped = json.loads(text(kernel, "%mcp stop demo;\n%mcp tools --schema demo.slow"))
    done(kernel, "%mcp start demo;")
    assert stopped == said
    assert error(kernel, "%mcp tools --schema demo.slwo") == [
        "UnknownName: no tool matches 'demo.slwo'",
        "  did you mean 'demo.slow' or 'demo.plot' or 'demo.fail'? · in: %mcp tools --schema demo.slwo",
    ]


def test_the_rules_for_a_tool_are_explained_with_their_origin(kernel: Kernel) -> None:
    done(kernel, "%mcp policy deny demo.slow;\n%mcp disable demo.fail;")
    assert text(kernel, "%mcp policy demo.slow").splitlines() == [
        "demo.slow",
        "who    decision  rule",
        "user   allow     * (a person's call)",
        "user   deny      demo.slow (this notebook)                  decides",
        "model  ask       * (a model's call)",
        "model  allow     slow (its hints: only reads its own data)",
        "model  deny      demo.slow (this notebook)                  decides",
        "app    ask       * (an app's call)",
        "app    allow     slow (its hints: only reads its own data)",
        "app    deny      demo.slow (this notebook)                  decides",
    ]
    assert text(kernel, "%mcp policy demo.slow") == text(kernel, "%mcp policy explain demo.slow")
    of_server = text(kernel, "%mcp policy demo")
    assert of_server == text(kernel, "%mcp policy demo.*")
    assert "demo.fail   deny   deny    deny   is disabled" in of_server.splitlines()
    done(kernel, "%mcp policy reset\n%mcp enable demo.fail;")
    assert error(kernel, "%mcp policy demo.slwo") == [
        "UnknownName: demo: there is no tool 'slwo'",
        "  did you mean 'slow'? · in: %mcp policy demo.slwo",
    ]


def test_a_server_tells_its_uptime_retries_capabilities_and_answers_a_ping(kernel: Kernel) -> None:
    done(kernel, f"%mcp load mortal -- {' '.join(MISBEHAVING)};\nserver = mcp.servers['mortal']")
    retries = "server.retries.count, server.retries.last, server.retries.reason"
    about = f"server.server_info, server.capabilities, server.protocol, {retries}, server.error"
    info, capabilities, protocol, *rest = ast.literal_eval(text(kernel, about))
    assert (info["name"], "tools" in capabilities, protocol) == ("misbehaving", True, "2026-07-28")
    assert rest == [0, None, "", ""]
    assert text(kernel, "0 < server.ping() < 5, 0 < await server.ping.aio() < 5, 0 < server.uptime < 60") == (
        "(True, True, True)"
    )
    assert error(kernel, "mcp.mortal.die()")[0].startswith("ConnectionLost: mortal.die: ")
    done(kernel, "mcp.mortal.echo('again')")
    done(kernel, "import time")
    assert text(kernel, "server.retries.count, 0 <= time.time() - server.retries.last < 60") == "(1, True)"
    reason = "the server exited with code 3. Last output: misbehaving: dying as told"
    assert ast.literal_eval(text(kernel, "server.retries.reason")) == reason
    done(kernel, "%mcp stop mortal;")
    stopped = "(None, {}, {}, '')"
    assert text(kernel, "server.uptime, server.capabilities, server.server_info, server.protocol") == stopped
    assert error(kernel, "server.ping()") == [
        "ServerStopped: mortal: is stopped",
        "  %mcp start mortal · in: server.ping()",
    ]
    done(kernel, "%mcp unload mortal;")


def test_stubs_describe_the_tools_to_an_editor(kernel: Kernel) -> None:
    count, servers = ast.literal_eval(text(kernel, "len(mcp.tools), len({tool.server for tool in mcp.tools})"))
    assert done(kernel, "%mcp stubs tools.pyi").stdout == f"{count} tools of {servers} servers in tools.pyi\n"
    stub = (kernel.folder / "tools.pyi").read_text()
    ast.parse(stub)
    assert "everything: Everything" in stub
    assert "Literal['penguins']" in stub


def test_a_notebook_saved_by_nbclient_holds_the_error(kernel: Kernel, tmp_path: Path) -> None:
    cells = ["%load_ext ipymcp\n%mcp load demo;", "%mcp call demo.fail message=oops", "mcp.demo.echo('never')"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    specs = KernelSpecManager(kernel_dirs=[str(kernel.folder / "kernelspecs")], ensure_native_kernel=False)
    manager = KernelManager(kernel_name=kernel.name, kernel_spec_manager=specs)
    client = NotebookClient(notebook, km=manager, resources={"metadata": {"path": str(tmp_path)}})
    try:
        with pytest.raises(CellExecutionError, match=r"ToolError: demo\.fail: oops"):
            client.execute(env=kernel.environment)
    finally:
        client.kc.stop_channels()
        manager.shutdown_kernel(now=True)

    (failed,) = notebook.cells[1].outputs
    assert (failed.output_type, failed.ename, failed.evalue) == ("error", "ToolError", "demo.fail: oops")
    assert failed.traceback == [
        "ToolError: demo.fail: oops",
        "  reported by the tool · in: %mcp call demo.fail message=oops",
    ]
    assert notebook.cells[2].outputs == []


def test_resources_are_listed_read_and_subscribed_to(kernel: Kernel) -> None:
    title, names, *rows = text(kernel, "%mcp resources demo").splitlines()
    assert (title, names.split()) == ("MCP resources", ["resource", "server", "name", "type", "description"])
    assert [row.split()[:2] for row in rows] == [[uri, "demo"] for uri in (CSV, NOTES, BIRDS)]
    assert text(kernel, "%mcp resources *.csv").count("demo://") == 1
    assert text(kernel, "r = %mcp read demo demo://penguins.csv\nlen(r.df)") == "42"
    assert "# Penguins" in done(kernel, "%mcp read demo notes.md").result["text/markdown"]
    assert text(kernel, f"s = 'Gentoo'\nr = %mcp read demo {BIRDS} species=$s\nr.data[0]['species']") == "'Gentoo'"
    read = text(kernel, f"%mcp read demo {BIRDS} species={{s}}")
    assert read.startswith("ResourceResult demo demo://penguins/Gentoo:")
    uri = "demo://resource/static/document/startup.md"
    assert text(kernel, f"%mcp subscribe everything {uri}") == f"Subscription everything {uri}, updated 0 times"


def test_prompts_are_listed_and_their_messages_are_the_lines_value(kernel: Kernel) -> None:
    assert text(kernel, "%mcp prompts demo").splitlines()[2].startswith("demo.describe  species, [tone]  Asks a model")
    shown = text(kernel, "p = %mcp prompt demo.describe species=Adelie tone=playful\np.messages[0].text")
    assert shown == "'Describe the Adelie penguins in a playful tone, in three sentences, from these rows.'"
    rich = done(kernel, "%mcp prompt everything.completable-prompt department=Sales name=Eve").result
    assert "Please promote Eve to the head of the Sales team." in rich["text/html"]


def test_a_mistyped_line_of_these_words_shows_where(kernel: Kernel) -> None:
    outcome = kernel.run("%mcp read demo notes.md a=1")
    assert "notes.md is not a template: it takes no parameters" in outcome.stderr + str(outcome.error)
    outcome = kernel.run("%mcp read demo")
    assert "something is missing; usage: %mcp read SERVER URI [key=value …]" in outcome.stderr + str(outcome.error)


def test_the_timeout_of_a_start_can_be_given_on_the_line(kernel: Kernel) -> None:
    cell = "%mcp load one --start-timeout 0.3 -- python -c 'import sys; sys.stdin.read()'"
    assert "did not answer within 0.3 s" in error(kernel, cell)[0]

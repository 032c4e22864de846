"""Guesses of people who do not know `%mcp` yet: each line does what was meant, or names the line that does."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import ROOT, server_command
from tests.integration.notebooks import done, error, opened, text
from tests.kernels import Kernel

MISBEHAVING = server_command("misbehaving")
TABLE = "MCP servers"
KEPT = "r = %mcp {} … keeps the result, for Python"
CONFIGURED = "it is configured but not loaded yet: %mcp load cfgd"
NOT_LOADED = [
    *["mcp.servers['cfgd']", "%mcp start cfgd", "%mcp tools cfgd", "%mcp resources cfgd", "%mcp prompts cfgd.*"],
]


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with opened(kernel_name, tmp_path_factory.mktemp("guessed"), {}) as kernel:
        program, *arguments = MISBEHAVING
        own = {"command": program, "args": arguments}
        lazy = {name: {**own, "lazy": True} for name in ("my-lazy", "lazy2", "lazy3", "lazy4")}
        servers = {"cfgd": own, "wrong": {"comand": "x"}, "测试": own, **lazy, "own1": own, "own2": own, "own3": own}
        (kernel.folder / "mcp.json").write_text(json.dumps({"mcpServers": {"theirs": {**own, "lazy": True}}}))
        file = kernel.folder / "jupyter" / "config" / "ipymcp" / "mcp.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"mcpServers": servers}))
        done(kernel, "n, d = 5, '/tmp'\n%mcp config")
        yield kernel


@pytest.mark.parametrize("word", ["", "servers", "status", "list", "ls"])
def test_every_word_for_the_servers_shows_them(kernel: Kernel, word: str) -> None:
    assert text(kernel, f"%mcp {word}").startswith(TABLE)


@pytest.mark.parametrize("line", ["--help", "-h", "help", "-h;"])
def test_help_is_found_as_anywhere(kernel: Kernel, line: str) -> None:
    assert done(kernel, f"%mcp {line}").stdout.startswith("MCP servers in this notebook.")


def test_help_about_a_word_is_found_as_anywhere(kernel: Kernel) -> None:
    of_call = done(kernel, "%mcp help call").stdout
    for line in ("call -h", "call --help", "call demo.echo --help", "--help call"):
        shown = done(kernel, f"%mcp {line}").stdout
        assert shown == of_call or line.startswith("--"), line


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("load npx -y @scope/server", "the command of a server follows --: %mcp load -- npx -y @scope/server"),
        ("load time uvx mcp-time", "the command of a server follows --: %mcp load time -- uvx mcp-time"),
        ("claude mcp add t -- x", "this is a command of another program: %mcp load claude mcp add t -- x"),
        ("config add y npx -y z", "the command of a server follows --: %mcp config add y -- npx -y z"),
        ("demo.echo text=x", "there is no %mcp demo.echo; a tool is called by: %mcp call demo.echo text=x"),
        ("demo", "there is no %mcp demo; its tools: %mcp tools demo"),
        ("cfgd", "there is no %mcp cfgd; it is configured but not loaded yet: %mcp load cfgd"),
        ("cfgd.echo text=x", "there is no %mcp cfgd.echo; it is configured but not loaded yet: %mcp load cfgd"),
        ("remove demo", "there is no %mcp remove; did you mean 'unload'?"),
        ("run demo.echo text=a", "there is no %mcp run; did you mean 'call'?"),
        ("Connect demo", "there is no %mcp Connect; did you mean 'load'?"),
        ("status demo", "%mcp status takes no arguments; %mcp help lists the words"),
        ("list tools", "%mcp tools lists them"),
        ("echo text=hi", "there is no %mcp echo; a tool is called by: %mcp call demo.echo …"),
        ("load --env X", "--env needs a server; usage: %mcp load --env … NAME, or … [NAME] -- COMMAND"),
        ("config update cfgd timeut=60", "a server has no setting timeut; did you mean 'timeout'?"),
        ("config add z timeut=60 -- x", "a server has no setting timeut; did you mean 'timeout'?"),
        ("call demo.query table = x", "table is not key=value: write table=VALUE, without blanks around the ="),
        ("call demo.query table:x", "table:x is not key=value: write table=x"),
        ("call demo.echo text=a b", 'b is not key=value: quote a value that has blanks: text="a b"'),
        ("call demo.echo {d}/a.txt", "{d}/a.txt is not key=value: write text={d}/a.txt"),
        ("call demo.echo(text='x')", "arguments follow the name, without brackets: %mcp call demo.echo key=value …"),
        ("call --timeout 0 demo.echo text=a", "--timeout needs a number greater than 0"),
        ("load --start-timeout 0 demo", "--start-timeout needs a number greater than 0"),
        ("config update cfgd env.=5", "env. needs a name after the dot: env.NAME=VALUE"),
        *[
            (f"call demo.echo {typed}", f"there is no option --text; an argument is written text={value}")
            for typed, value in (("--text hi", "hi"), ("--text='a b'", "'a b'"), ("--text", "VALUE"))
        ],
        ("call demo.echo --tiemout 5 text=a", "there is no option --tiemout; did you mean '--timeout'?"),
        ("call demo.echo 'text=\"hi\"'", '\'text="hi"\' is not key=value: write text="hi"'),
        ('call demo.echo text "a b"', 'text is not key=value: write text="a b"'),
        ("call demo.echo text: hi", "text: is not key=value: write text=hi"),
        (
            "call demo.query {'table': 'penguins'} limit=3",
            "what begins with { is the rest of the line: write key=value before it",
        ),
        *[
            (f"call demo.echo text=a {typed}", f"{typed.split()[0]} is for a shell; {KEPT.format('call')}")
            for typed in ("> out.txt", ">>out.txt", "| head", "|head", "2>&1", "< in.txt")
        ],
        ("tools | grep echo", f"| is for a shell; {KEPT.format('tools')}"),
        ("map demo.echo rows > x", f"> is for a shell; {KEPT.format('map')}"),
        ("stop nothing && %mcp start nothing", "&& is for a shell; write a line for each command"),
        (
            "load b -- python -m x && echo ok",
            "&& is for a shell, and a server's command is started without one; in quotes it is an argument",
        ),
        *[
            (f"load x {dash} python -m x", "the command of a server follows two hyphens: %mcp load x -- python -m x")
            for dash in ("-", "\u2013", "\u2014")
        ],
        (
            "call demo.query where=island = 'Dream'",
            "= is not key=value: quote a value that has blanks: where=\"island = 'Dream'\"",
        ),
        (
            "call demo.query \"where=island = 'Dream'\"",
            "\"where=island = 'Dream'\" is not key=value: write where=\"island = 'Dream'\"",
        ),
        (
            "call demo.query where=body_mass_g > 5400",
            '> is outside the value, which has blanks: write where="body_mass_g > 5400"',
        ),
        ("allow demo.echo", "there is no %mcp allow; did you mean 'policy allow'?"),
        (
            "call demo.echo text=a -o file",
            f"there is no option -o; {KEPT.format('call').rpartition(',')[0]}, and Python writes it to a file",
        ),
        ("map demo.echo rows country text", "country is not key=value: write text=country"),
        (
            "map demo.echo rows text=nope",
            "the table has no column 'nope', but 'text': write text='nope' for the text in every row",
        ),
        ("map demo echo", "which rows? usage: %mcp map SERVER.TOOL ROWS"),
        ("policy demo.echo allow", "allow comes first: %mcp policy allow demo.echo"),
        ("secret token set", "set comes first: %mcp secret set token"),
        ("npx -y @a/server", "the command of a server follows --: %mcp load -- npx -y @a/server"),
        *[(line, f"there is no %mcp {line.split()[0]}; did you mean %mcp load {line}?")
            for line in ("https://example.com/mcp", "servers.json", "./server.py --env A=1")],
        ("load --name x -- y", "there is no option --name; a name comes first: %mcp load NAME …"),
        ("load --token t https://example.com/mcp",
            "there is no option --token; write --header 'Authorization: Bearer ${TOKEN}'"),
        ("load --url https://a/mcp", "there is no option --url; an address has no option: %mcp load NAME URL"),
        *[(f"load {line}", "there is no option --command; a command follows --: %mcp load NAME -- COMMAND ARG…")
            for line in ("--command npx --args x", "x --command=y")],
        ("logs -f --tail 5", "there is no option -f; new lines show in the panel as they come: %mcp panel"),
        ("history 5", "5 is one too many; did you mean -n 5?"),
        ('call demo.echo {"text": "a"} > x', "what begins with { is the rest of the line: write key=value before it"),
        ("logs --n 5", "there is no option --n; did you mean '-n'?"),
        ("tools --json", "there is no option --json; r = %mcp tools … keeps what a line shows: r.df is a table"),
        ("load claude mcp list",
            "of the commands of other programs, those that add a server are read: %mcp load claude mcp add …"),
        ("add demo", "demo comes with ipymcp: %mcp load demo"),
        ("prompt demo.describe --species Gentoo",
            "there is no option --species; an argument is written species=Gentoo"),
    ],
)  # fmt: skip
def test_a_line_that_is_nearly_right_is_answered_with_the_right_one(kernel: Kernel, line: str, message: str) -> None:
    done(kernel, "import pandas\nrows = pandas.DataFrame({'text': ['a'], 'country': ['FR']})")
    assert kernel.run(f"%mcp {line}").stderr.startswith(f"UsageError: {message}\n")


@pytest.mark.parametrize(
    "line",
    [
        *["demo echo text=hi", "demo/echo text=hi", "demo:echo text=hi", "demo::echo text=hi", "mcp.demo.echo text=hi"],
        *["mcp__demo__echo text=hi", """demo.echo '{"text": "hi"}'""", """demo.echo "{'text': 'hi'}\""""],
    ],
)
def test_a_tool_is_called_as_other_programs_write_it(kernel: Kernel, line: str) -> None:
    assert text(kernel, f"%mcp call {line}") == "ToolResult demo.echo: hi"


@pytest.mark.parametrize(
    ("line", "same"),
    [
        *[(f"logs {typed}", "logs -n 1") for typed in ("-n1", "-n=1", "--tail 1", "--lines=1")],
        *[(f"{word} demo", "tools demo") for word in ("describe", "inspect", "info")],
        ("prompt demo describe species=Gentoo", "prompt demo.describe species=Gentoo"),
        ("server", ""),
    ],
)
def test_words_and_options_of_other_programs_do_what_they_do_there(kernel: Kernel, line: str, same: str) -> None:
    assert text(kernel, f"%mcp {line}") == text(kernel, f"%mcp {same}")


def test_variables_and_headers_have_the_options_of_other_hosts(kernel: Kernel) -> None:
    pids = []
    for option in ("-e", "--env"):  # the same definition: it stays loaded
        done(kernel, f"%mcp load {option} K=1 short -- {shlex.join(MISBEHAVING)}")
        pids.append(text(kernel, "mcp.short.pid().data"))
    assert pids[0] == pids[1]
    assert error(kernel, "%mcp load -H 'A: b' short")[0] == "McpError: --header: short is not a remote server"
    done(kernel, "%mcp unload short;")


def test_all_servers_are_loaded_by_the_word_of_other_commands(kernel_name: str, tmp_path: Path) -> None:
    with opened(kernel_name, tmp_path, {}) as kernel:
        said = [done(kernel, f"%mcp load{names}").stderr for names in ("", " all", " *")]
    assert said[0].startswith("ipymcp: no servers are configured here") and set(said) == {said[0]}


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%mcp\nx", "%%mcp needs a word: load for a definition, call SERVER.TOOL for arguments, ask"),
        ("%%mcp stop\ndemo", "%mcp stop takes no cell: write it with one %"),
    ],
)
def test_a_body_that_no_one_reads_is_refused(kernel: Kernel, cell: str, message: str) -> None:
    assert kernel.run(cell).stderr.startswith(f"UsageError: {message}\n")


def test_a_name_before_a_definition_names_it(kernel: Kernel) -> None:
    program, *arguments = MISBEHAVING
    definition = json.dumps({"command": program, "args": arguments})
    done(kernel, f"%mcp load own8 '{definition}'")
    done(kernel, f"%mcp load own8 '{definition}'")  # loaded already
    done(kernel, f"mcp.load('own9', {[program, *arguments]})")
    assert {name for name in kernel.value("[*mcp]") if name.startswith("own")} >= {"own8", "own9"}
    assert not [name for name in kernel.value("[*mcp]") if "misbehaving" in name]
    done(kernel, "%mcp unload own8 own9")


def test_a_configured_server_starts_for_any_way_to_write_its_tool(kernel: Kernel) -> None:
    for line in ("own1/echo text=hi", "mcp.own1.echo text=hi", "own1 echo text=hi"):
        assert text(kernel, f"%mcp call {line}") == "ToolResult own1.echo: hi"
        done(kernel, "%mcp unload own1;")


@pytest.mark.parametrize(
    "line", ["call demo.echo?", "call demo.echo ?", "map demo.echo?", "demo.echo?", "help demo/echo", "info demo.echo"]
)
def test_a_question_mark_after_a_tool_shows_what_it_takes(kernel: Kernel, line: str) -> None:
    shown = done(kernel, f"%mcp {line}").stdout
    assert shown.startswith("demo.echo(text: str)\n\nEcho a text\n"), shown


def test_a_word_that_is_no_column_is_said_to_be_in_every_row(kernel: Kernel) -> None:
    done(kernel, "import pandas\nrows = pandas.DataFrame({'table': ['penguins', 'penguins']})")
    said = "ipymcp: the table has no column 'year': where is this text in every row\n"
    assert done(kernel, "%mcp map demo.query rows where=year").stderr == said
    for line in ("map demo.query rows where='year'", "map demo.query rows where=year;", "map demo.query rows limit=3"):
        assert done(kernel, f"%mcp {line}").stderr == ""
    assert done(kernel, "%mcp map demo.query rows.rename(columns={'table':'sex'}) table=penguins").stderr == ""


@pytest.mark.parametrize(
    ("cell", "first", "hint"),
    [
        ("mcp.load('foo -m x')", "pasted: it is not clear what foo -m x is", "%mcp load foo -- foo -m x"),
        ("mcp.load('mcp-server-x')", "no server 'mcp-server-x' is known here", "%mcp load x -- uvx mcp-server-x"),
        ("%mcp load @a/server-b", "'@a/server-b': no such file", "%mcp load b -- npx -y @a/server-b"),
        ("mcp.load(['demo', 'cfgd'])", "['demo', 'cfgd'] may be servers or a command", "load('demo', 'cfgd')"),
        ("mcp.load('a', 'b', command='x')", "command= defines one server", 'load("time", command="uvx", args=['),
        ("mcp.load('cfgd', env={'A': '1'})", "env= needs command= or url=", "%mcp load NAME --env K=V"),
        ("%mcp load ./server.py", "'./server.py' is a program, not a config file", "%mcp load -- python ./server.py"),
        ("%mcp load localhost:8000/mcp", "'localhost:8000/mcp': no such file", "%mcp load http://localhost:8000/mcp"),
        (
            "%mcp load htp://x",
            "pasted: the link htp://x has no definition that ipymcp can read",
            "did you mean 'http'?",
        ),
        ("%mcp load nothere.json", "nothere.json: no such file", "a relative path starts at the notebook's folder"),
        ("%%mcp call demo.echo\nhello", "the notebook has no name 'hello'", 'the body has the arguments: {"text": …}'),
        ("mcp.load('example.com/mcp')", "'example.com/mcp': no such file", "%mcp load https://example.com/mcp"),
        *[(cell, "there is no server 'cfgd'", CONFIGURED) for cell in NOT_LOADED],
        ("%mcp disable cfgd.x", "no tool matches 'cfgd.x'", CONFIGURED),
        ("%mcp policy allow cfgd.*", "no loaded server matches", CONFIGURED),
        ("%mcp ask --tools cfgd.* hi", "no tool matches", CONFIGURED),
        ("mcp.cfdg", "there is no server 'cfdg'", "did you mean 'cfgd'?"),
        ("mcp.wrong", "there is no server 'wrong'", "it is configured but not loaded yet: %mcp load wrong"),
        ("%mcp load wrong", "wrong", "in:"),
        ("%mcp describe dmo", "no tool matches 'dmo'", "did you mean 'demo' or 'demo.echo'?"),
        ("%mcp tools ehco", "no tool matches 'ehco'", "did you mean 'echo'?"),
        ("%mcp stubs /nonexistent/x.pyi", "/nonexistent/x.pyi", "name a file in a folder that exists"),
        ("%mcp config update cfgd --env =5", "--env =5: '' is not a name of a variable", "write --env NAME=VALUE"),
        ("mcp.tools(['demo.*'])", "tools(): patterns: expected a string, got ['demo.*']", "tools(*patterns)"),
        (
            "mcp.demo.query({'table': 'penguins', 'limit': 1})",
            "demo.query: table: expected string, got",
            "mcp.demo.query.call({…}), or mcp.demo.query(**{…})",
        ),
        ("mcp.demo.plot({'kind': 'bar'})", "demo.plot: ", "mcp.demo.plot.call({…}), or mcp.demo.plot(**{…})"),
        (
            "mcp.demo.slow(seconds=1, timeout=60)",
            "demo.slow: no argument 'timeout'",
            "it is an option of the call: mcp.demo.slow.options(timeout=60)(…)",
        ),
        (
            "mcp.demo.slow(seconds=1, on_progress=print)",
            "demo.slow: no argument 'on_progress'",
            "it is an option of the call: mcp.demo.slow.options(on_progress=…)(…)",
        ),
        ("%mcp call echo text=x", "'echo' is not the full name of a tool", "did you mean 'demo.echo'?"),
        (
            "mcp.call_tool('demo.echo')",
            "there is no server 'call_tool'",
            "a tool is a function: mcp.SERVER.TOOL(…), or mcp.call('SERVER', 'TOOL', {…})",
        ),
        ("mcp.call('dmo', 'echo', {'text': 'a'})", "there is no server 'dmo'", "did you mean 'demo'?"),
        ("mcp.call('demo', 'ehco')", "demo: there is no tool 'ehco'", "did you mean 'echo'?"),
        ("await mcp.call.aio('demo.ehco')", "demo: there is no tool 'ehco'", "did you mean 'echo'?"),
        ("mcp.call('demo', 'echo', {'txt': 'a'})", "demo.echo: no argument 'txt'; did you mean 'text'?", "echo(text"),
        (
            "mcp.call('demo', 'echo', text='a')",
            "call(): no argument 'text'",
            "call(server, tool=None, arguments=None, *, timeout=None)",
        ),
        ("mcp.status", "there is no server 'status'", "mcp.servers lists the servers and their states"),
        (
            "%mcp call demo.slow seconds=1 timeout=60",
            "demo.slow: no argument 'timeout'",
            "it is an option of the call: %mcp call --timeout 60 demo.slow …",
        ),
        (
            "%mcp call demo.slow seconds=9 --timeout 0.1",
            "demo.slow: no answer",
            "give it longer: %mcp call --timeout 0.2 demo.slow …",
        ),
        (
            "mcp.demo.slow.options(timeout=0.1)(seconds=9)",
            "demo.slow: no answer",
            "give it longer: mcp.demo.slow.options(timeout=0.2)(…)",
        ),
        (
            "%mcp call demo.echo text=$d/a.txt",
            "text: $d stands for a variable only as the whole value, unquoted",
            "within a value it is {d}: text={d}/a.txt",
        ),
    ],
)
def test_an_error_names_what_to_write(kernel: Kernel, cell: str, first: str, hint: str) -> None:
    lines = error(kernel, cell)
    assert len(lines) == 2, lines
    assert first in lines[0] and hint in lines[1], lines


RESULT = ("ArgumentError: demo.echo: its result is neither a number nor a string", "use .data, or .text for the text")
IN_FRAME = "use .df, which has it"
MCP_HAS_IT = "servers are loaded and called by mcp: from ipymcp import mcp"


def no_tool(name: str, hint: str) -> tuple[str, str]:
    return f"UnknownName: demo: there is no tool {name!r}", hint


@pytest.mark.parametrize(
    ("cell", "answer"),
    [
        ("mcp.demo.echo(df)", ("ArgumentError: demo.echo: text: expected string, got [{'text': 'a'}, {'text': 'b'}]",
            "one call for each row: mcp.demo.echo.map(…)")),
        ("mcp.demo.echo(df['text'])", ("ArgumentError: demo.echo: text: expected string, got ['a', 'b']",
            "one call for each row: mcp.demo.echo.map(…)")),
        ("mcp.demo.echo(['a', 'b'])", ("ArgumentError: demo.echo: text: expected string, got ['a', 'b']",
            "one call for each item: mcp.demo.echo.map(…); all of them as one text: json.dumps(…)")),
        ("mcp('demo')", ("ArgumentError: mcp is not a function",
            "mcp.load(…) loads a server, and its tools are functions: mcp.demo.TOOL(…)")),
        ("mcp.demo('echo')", ("ArgumentError: mcp.demo is a server, not a function",
            "its tools are functions: mcp.demo.echo(…)")),
        ("mcp.call('demo.echo', text='a')", ("ArgumentError: call(): no argument 'text'",
            "call(server, tool=None, arguments=None, *, timeout=None), such as"
            ' mcp.call("demo", "echo", {"text": "hi"})')),
        ("mcp.connect", ("UnknownName: there is no server 'connect'", "mcp.load(…) loads and starts a server")),
        ("mcp.loda", ("UnknownName: there is no server 'loda'", "did you mean 'load' or 'unload'?")),
        ("mcp.demo.list_tools()", no_tool("list_tools",
            "mcp.tools lists all, mcp.tools('demo.*') those of one server")),
        ("mcp.demo.call_tool('echo', {})", no_tool("call_tool",
            "a tool is a function: mcp.demo.TOOL(…), or mcp.call('demo', 'TOOL', {…})")),
        ("mcp.demo.stop()", no_tool("stop", "it is mcp.servers['demo'].stop")),
        ("mcp.demo.logs()", no_tool("logs", "it is mcp.servers['demo'].logs")),
        ("mcp.demo.echo.df", ("UnknownName: the tool demo.echo has no attribute 'df'",
            "its result has that: …(…).text, .data or .df")),
        ("mcp.servers(5)", ("ArgumentError: servers(): too many positional arguments",
            "servers(), such as mcp.servers()")),
        ("mcp.policy.alow", ("UnknownName: ToolPolicy has no attribute 'alow'", "did you mean 'allow'?")),
        ("mcp.pins.accpt", ("UnknownName: ToolPins has no attribute 'accpt'", "did you mean 'accept'?")),
        ("mcp.trust.allow", ("UnknownName: TrustedServers has no attribute 'allow'", "it has .df, .revoke, .table")),
        *[(f"{target} = 5", (f"UnknownName: {target} cannot be set: only servers and tools are there",
            f"keep the value under a name of its own: {name} = …"))
            for target, name in (("mcp.demo", "demo"), ("mcp['demo']", "demo"), ("mcp['my server']", "NAME"),
                ("mcp.demo.echo", "echo"), ("mcp.demo['echo']", "echo"))],
        ("mcp.secret['token']", ("UnknownName: the value of a secret cannot be read here",
            "a server's definition refers to it as ${secret:token}")),
        ("mcp.tools('demo.echo') + [mcp.demo]", ("ArgumentError: demo: tools␊t...ext unchanged. is not a function",
            'patterns select: mcp.tools("fs.*")')),
        ("mcp.load('x', cmd='y')", ("ArgumentError: load(): no argument 'cmd'; did you mean 'command'?",
            "load(*what, wait=True, trust=False, locked=False, lazy=False, start_timeout=None, command=None, args=None,"
            " env=None, cwd=None, url=None, headers=None)")),
        ("r.to_csv('x')", ("UnknownName: a result has no attribute 'to_csv'", IN_FRAME)),
        ("r.plot", ("UnknownName: a result has no attribute 'plot'", IN_FRAME)),
        ("m = mcp.demo.echo.map(['a']); m.head()", ("UnknownName: MapResult has no attribute 'head'", IN_FRAME)),
        ("df['out'] = mcp.demo.echo.map(df)", ("ArgumentError: mcp.demo.echo.map: a map is no column",
            ".df has the input's columns with the results', and .results a list")),
        ("mcp.demo.echo.map(df, workers=2)", ("ArgumentError: demo.echo: no argument 'workers'",
            "write concurrency=…")),
        ("mcp.demo.echo.submit('a').df", ("UnknownName: a call has no attribute 'df'",
            "its result has that: .result().text, .data or .df")),
        *[(cell, RESULT) for cell in ("float(r)", "int(r)", "r + 'x'", "'x' + r")],
    ],
)  # fmt: skip
def test_what_other_clients_are_told_is_answered_with_the_python_here(
    kernel: Kernel, cell: str, answer: tuple[str, str]
) -> None:
    done(kernel, "import pandas\ndf = pandas.DataFrame({'text': ['a', 'b']})\nr = mcp.demo.echo('a')")
    assert error(kernel, cell) == [answer[0], f"  {answer[1]} · in: {cell}"]


@pytest.mark.parametrize("name", ["mcp", "mcp.demo"])
def test_what_refuses_calls_is_not_inspected_as_a_function(kernel: Kernel, name: str) -> None:
    shown = kernel.inspect(name)
    assert shown is not None and shown.startswith("Type:"), shown
    assert "Call docstring" not in shown


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("ipymcp.load", f"module 'ipymcp' has no attribute 'load'; {MCP_HAS_IT}"),
        ("ipymcp.demo.echo('a')", "module 'ipymcp.demo' has no attribute 'echo';"
            " its tools are attributes of mcp.demo: from ipymcp import mcp"),
    ],
)  # fmt: skip
def test_the_package_in_place_of_mcp_is_answered_with_the_import(kernel: Kernel, code: str, answer: str) -> None:
    outcome = kernel.run(f"import ipymcp, ipymcp.demo\n{code}")
    assert outcome.error is not None and outcome.error.evalue == answer


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("mcp.demo.slow.options(timeout=60)(seconds=0).text", "Done"),
        ("%mcp call --timeout 60 demo.slow seconds=0", "Done"),
        ("mcp.demo.query.call({'table': 'penguins', 'limit': 1})['count']", "1"),
        ("mcp.demo.query(**{'table': 'penguins', 'limit': 1})['count']", "1"),
        ("%mcp call demo.echo text={d}/a.txt", "/tmp/a.txt"),
        ("%mcp call demo.slow seconds=0 --timeout 60", "Done"),
        ("mcp.tools('cfgd.*')", "cfgd is configured but not loaded yet: %mcp load cfgd"),
        ("%mcp tools *ech*", "demo.echo"),
        ("%mcp tools echo", "demo.echo"),
        ("%mcp config list", "cfgd"),
        ("%mcp config get cfgd", "mcpServers.cfgd.command"),
        ("mcp.servers()", TABLE),
        ("len(mcp), [name for name, one in mcp.servers.items()], mcp.servers.values()[0].name", "'demo'"),
        ("mcp.servers['demo'].tools.echo('x').text", "x"),
    ],
)
def test_what_an_error_names_works_as_it_is_printed(kernel: Kernel, cell: str, shown: str) -> None:
    assert shown in text(kernel, cell)


def test_a_lazy_server_of_the_user_is_there_when_it_is_used(kernel: Kernel) -> None:
    assert text(kernel, "mcp.my_lazy.echo('hi').text") == "'hi'"
    assert text(kernel, "r = %mcp call my-lazy.echo text=ho\nr.text") == "'ho'"


def test_a_tool_in_two_words_does_not_allow_its_server(kernel: Kernel) -> None:
    assert error(kernel, "%mcp policy allow demo echo")[0] == "UnknownName: no loaded server matches 'echo'"
    assert "no rules: " in text(kernel, "mcp.policy")


@pytest.mark.parametrize("line", ["start lazy2", "tools lazy3", "tools lazy4.echo"])
def test_a_lazy_server_of_the_user_is_there_when_a_line_names_it(kernel: Kernel, line: str) -> None:
    name = line.split()[1].partition(".")[0]
    assert name in text(kernel, f"%mcp {line}")
    done(kernel, f"%mcp unload {name};")


def test_the_version_is_shown_in_the_notebook_and_by_python(kernel: Kernel) -> None:
    shown = done(kernel, "%mcp version").stdout
    pattern = r"ipymcp [\d.]+ · MCP 2024-11-05 to 2026-07-28 · Python [\d.]+, IPython [\d.]+, ipykernel [\d.]+\n"
    assert re.fullmatch(pattern, shown)
    assert done(kernel, "%mcp --version").stdout == shown
    alone, by_option = (
        subprocess.run([sys.executable, "-m", "ipymcp", *options], cwd=ROOT, capture_output=True, text=True, check=True)
        for options in ([], ["--version"])
    )
    assert alone.stdout.startswith("ipymcp is used in a notebook, not from a shell:\n\n    %load_ext ipymcp\n")
    assert by_option.stdout == shown.partition(" · ")[0] + "\n"


@pytest.mark.parametrize(
    "cell",
    [
        '%mcp load ends -- python -c "{code}"',
        "mcp.load('ends', command='python', args=['-c', {code!r}])",
        "mcp.load({{'ends': {{'command': 'python', 'args': ['-c', {code!r}]}}}})",
    ],
)
def test_a_program_that_ends_at_once_is_not_started_again_however_it_was_typed(kernel: Kernel, cell: str) -> None:
    runs = kernel.folder / "runs"
    runs.write_text("")
    code = f"open('{runs}', 'a').write('.'); import sys; sys.exit(3)"
    assert error(kernel, cell.format(code=code))[0] == "StartError: ends: could not start: exited with code 3"
    assert runs.read_text() == ".."  # with the probe of its era, and without
    done(kernel, "%mcp unload ends;")


def test_all_is_every_server(kernel: Kernel) -> None:
    done(kernel, "%mcp load cfgd;\n%mcp stop all")
    assert text(kernel, "{one.state for one in mcp.servers.values()}") == "{'stopped'}"
    done(kernel, "%mcp start all;\n%mcp unload cfgd;")
    assert text(kernel, "mcp.servers['demo'].state") == "'ready'"


def test_a_configured_server_starts_at_its_first_use_and_not_when_it_is_looked_at(kernel: Kernel) -> None:
    before = text(kernel, "list(mcp)")
    for cell in ("mcp.own1", "mcp['own1'].echo", "list(mcp.own1), len(mcp.own1), 'x' in mcp.own1, dir(mcp.own1)"):
        done(kernel, cell)
    assert text(kernel, "mcp['own1'].echo") == "<tool own1.echo, whose server starts at its first use>"
    assert "own1" in kernel.complete("mcp.ow").matches
    for code in ("mcp.own1.", "mcp.own1['", "mcp.own1.echo."):
        kernel.complete(code)
    kernel.inspect("mcp.own1.echo")
    assert text(kernel, "list(mcp)") == before
    said = "{} was configured but not loaded, and is started now; %config IPyMCP.start_on_use = False prevents that\n"
    used = done(kernel, "mcp.own1.echo('hi').text")
    assert (used.text, used.stderr) == ("'hi'", f"ipymcp: {said.format('own1')}")
    assert done(kernel, "mcp.own1.echo('hi').text").stderr == ""
    awaited = done(kernel, "(await mcp.own2.echo.aio('hi')).text")
    assert (awaited.text, awaited.stderr) == ("'hi'", f"ipymcp: {said.format('own2')}")
    called = done(kernel, "r = %mcp call own3.echo text=ho\nr.text")
    assert (called.text, called.stderr) == ("'ho'", f"ipymcp: {said.format('own3')}")
    done(kernel, "%mcp unload own1 own2 own3;")
    assert text(kernel, "sorted(word for word in dir(mcp.own1) if word == 'echo')") == "['echo']"  # of the last run
    assert "own1 is not loaded, and starts at its first use; this is what it had" in text(kernel, "mcp.own1")
    assert "echo" in kernel.complete("mcp.own1.ec").matches
    assert text(kernel, "mcp.own1.map if False else mcp.own1.echo.map(['a', 'b']).df.shape[0]") == "2"
    done(kernel, "%mcp unload own1;")
    model = "from ipymcp.security.untrusted import Actor, Conversation, acting\nkept = mcp.own1.echo\n"
    model += "with acting(Actor('model', Conversation())):\n    "
    assert error(kernel, model + "mcp.own1.echo('x')")[0] == "UnknownName: there is no server 'own1'"
    for call in ("kept('x')", "await kept.aio('x')"):
        assert error(kernel, model + call)[0] == "PolicyError: a model's code may not start a server"
    done(kernel, "%config IPyMCP.start_on_use = False")
    for cell in ("mcp.own1", "mcp['own1']", "%mcp call own1.echo text=x"):
        lines = error(kernel, cell)
        assert lines[0].startswith("UnknownName: there is no server 'own1'")
        assert "it is configured but not loaded yet: %mcp load own1" in lines[1]
    done(kernel, "%config IPyMCP.start_on_use = True")


def test_a_projects_server_is_asked_about_before_its_first_use(kernel: Kernel) -> None:
    assert "starts at its first use" in text(kernel, "mcp.theirs")
    assert error(kernel, "mcp.theirs.echo('x')")[0].startswith("TrustError: theirs: needs your trust: ")
    done(kernel, "%mcp unload theirs;")
    refused = kernel.run("mcp.theirs.echo('x')", answers=["no"])
    assert "belongs to a project" in refused.stdout and refused.error is not None
    assert refused.error.traceback.startswith("TrustError: theirs: ")
    done(kernel, "%mcp unload theirs;")
    agreed = done(kernel, "mcp.theirs.echo('x').text", answers=["yes"])
    assert "belongs to a project" in agreed.stdout and agreed.text == "'x'"
    done(kernel, "%mcp unload theirs;")


def test_a_name_in_another_script_is_an_identifier_as_it_stands(kernel: Kernel) -> None:
    done(kernel, "%mcp load 测试;")
    assert text(kernel, "mcp.测试.echo('hi').text") == "'hi'"


def test_a_server_is_switched_off_on_and_unloaded_by_its_own_words(kernel: Kernel) -> None:
    done(kernel, "%mcp load cfgd;")
    assert text(kernel, "s = mcp.servers['cfgd']; s.disable(); s.state") == "'disabled'"
    assert text(kernel, "s.enable(); s.state") == "'ready'"
    assert text(kernel, "s.unload(); 'cfgd' in mcp") == "False"


def test_what_stands_in_the_middle_of_a_cell_or_in_a_block_is_shown_once(kernel: Kernel) -> None:
    cell = "\n".join(
        [
            "%mcp",
            "%mcp tools demo.echo",
            "if n:",
            "    %mcp call demo.echo text=a",
            "    %mcp call demo.echo text=silent;",
            "for i in range(2):",
            "    %mcp call demo.echo text={i}",
            "x = %mcp call demo.echo text=kept",
            "%mcp call demo.echo text=last",
        ]
    )
    outcome = done(kernel, cell)
    shown = [display["text/plain"].splitlines()[0] for display in outcome.displays]
    assert shown == [TABLE, "MCP tools", *(f"ToolResult demo.echo: {one}" for one in ("a", "0", "1"))]
    assert outcome.text == "ToolResult demo.echo: last"
    assert len(done(kernel, "%mcp").displays) == 0


def test_export_gives_what_the_file_says_now(kernel: Kernel) -> None:
    done(kernel, "%mcp config add changing -- python -c 1")
    kernel.run("%mcp load changing --no-wait;")
    done(kernel, "%mcp config remove changing\n%mcp config add changing --env A=1 -- python -c 2")
    exported = done(kernel, "document = %mcp config export vscode changing;\nprint(document.text)").stdout
    server = json.loads(exported)["servers"]["changing"]
    assert (server["args"], server["env"]) == (["-c", "2"], {"A": "1"})
    done(kernel, "%mcp unload changing")


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("/no/such.json", "/no/such.json: no such file · fix or unset the variable; the other files are read"),
        ("/tmp", "/tmp: is a folder · name the file in it, such as /tmp/mcp.json"),
    ],
)
def test_an_unusable_file_of_the_variable_is_said_once_and_stops_nothing(
    kernel: Kernel, file: str, problem: str
) -> None:
    done(kernel, f"%env IPYMCP_CONFIG={file}")
    try:
        said = [done(kernel, line).stderr for line in ("%mcp load cfgd", "%mcp config", "%mcp load")]
        assert [one.count(f"ipymcp: IPYMCP_CONFIG: {problem}\n") for one in said] == [1, 0, 0]
        assert text(kernel, "mcp.servers['cfgd'].state") == "'ready'"
        assert "cfgd" in text(kernel, "%mcp config")
        assert f"IPYMCP_CONFIG: {problem}" in error(kernel, "%mcp load nowhere")[1]
    finally:
        done(kernel, "import os\ndel os.environ['IPYMCP_CONFIG']")
        done(kernel, "%mcp unload cfgd;")

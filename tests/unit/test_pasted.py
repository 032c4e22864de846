"""What people paste is read as the servers that it defines, or answered with the line to write."""

import base64
import contextlib
import json
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import pytest

from ipymcp.config.config_files import from_mapping
from ipymcp.config.pasted import MAX_TEXT_BYTES, default_name, is_foreign_command, read_mapping, read_pasted
from ipymcp.errors import ConfigError
from tests.errors import refused

TIME = {"command": "uvx", "args": ["mcp-server-time"]}
NPX = {"command": "npx", "args": ["-y", "@scope/server-db", "postgresql://h/db"]}
DOCS = {"url": "https://h/mcp"}
ESCAPED = {"command": "python", "args": ["C:\\a\\s.py", 'a "b"', "c\\d $E"]}
DOCKER = {"command": "docker", "args": ["run", "-i", "--rm", "-e", "KEY", "mcp/time"]}
OPENAI = {"type": "mcp", "server_label": "docs", "server_url": "https://h/mcp"}


def encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


def percent(value: Any) -> str:
    return quote(json.dumps(value), safe="")


VSCODE = f"vscode:mcp/install?{percent({'name': 'db', **NPX})}"


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        # command lines
        ("uvx mcp-server-time", {"time": TIME}),
        ("time -- uvx mcp-server-time", {"time": TIME}),
        ("-- uvx mcp-server-time", {"time": TIME}),
        ("%mcp load time -- uvx mcp-server-time", {"time": TIME}),
        ("%mcp config add time -- uvx mcp-server-time", {"time": TIME}),
        ("$ uvx mcp-server-time", {"time": TIME}),
        ("'uvx mcp-server-time'", {"time": TIME}),
        ("time --env A=1 -- uvx mcp-server-time", {"time": {**TIME, "env": {"A": "1"}}}),
        ("A='x y' B=$HOME uvx mcp-server-time", {"time": {**TIME, "env": {"A": "x y", "B": "${HOME}"}}}),
        ("python C:\\a\\s.py \"a \\\"b\\\"\" 'c\\d $E'", {"s": ESCAPED}),
        ("docker run -i --rm -e KEY mcp/time", {"time": DOCKER}),
        ("sh -c 'exec x'", {"sh": {"command": "sh", "args": ["-c", "exec x"]}}),
        ("./bin/server --x", {"server": {"command": "./bin/server", "args": ["--x"]}}),
        ("droid mcp add time \"uvx mcp-server-time\" --env A=1", {"time": {**TIME, "env": {"A": "1"}}}),
        # addresses
        ("https://mcp.example.com/mcp", {"example": {"url": "https://mcp.example.com/mcp"}}),
        ("docs https://h/mcp --header 'X-A: b'", {"docs": {**DOCS, "headers": {"X-A": "b"}}}),
        ("https://server.smithery.ai/x/mcp?config=e30=", {"smithery": {"url": "https://server.smithery.ai/x/mcp?config=e30="}}),
        # documents
        (json.dumps({"mcpServers": {"time": TIME}}), {"time": TIME}),
        (json.dumps({"time": TIME}), {"time": TIME}),
        (json.dumps(TIME), {"time": TIME}),
        (json.dumps({"name": "clock", **TIME}), {"clock": TIME}),
        ('"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}', {"time": TIME}),
        ('"time": {"command": "uvx", "args": ["mcp-server-time"],},', {"time": TIME}),
        ("// mine\ntime: {command: 'uvx', args: ['mcp-server-time']}", {"time": TIME}),
        ('```json\n{"time": {"command": "uvx", "args": ["mcp-server-time"]}} // one\n```', {"time": TIME}),
        ("{“time”: {“command”: “uvx”, “args”: [“mcp-server-time”]}}", {"time": TIME}),
        ('[mcp_servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]', {"time": TIME}),
        ('# mine\nmodel = "x"\n\n[mcp_servers.time]\ncommand = "uvx"\nargs = ["mcp-server-time"]', {"time": TIME}),
        ('\ufeff{\n\u00a0\u00a0"time": {"command": "uvx", "args": ["mcp-server-time"]}}', {"time": TIME}),
        (json.dumps({"context_servers": {"time": {"command": {"path": "uvx", "args": TIME["args"]}}}}), {"time": TIME}),
        (json.dumps({"mcpServers": [{"name": "time", **TIME}]}), {"time": TIME}),
        (
            json.dumps([{"type": "url", "url": "https://h/mcp", "name": "docs", "authorization_token": "t"}]),
            {"docs": {**DOCS, "headers": {"Authorization": "Bearer t"}}},
        ),
        (json.dumps({"tools": [OPENAI]}), {"docs": DOCS}),
        # commands of other hosts
        ("claude mcp add time -- uvx mcp-server-time", {"time": TIME}),
        ("!claude mcp add time uvx mcp-server-time -s user -e A=1", {"time": {**TIME, "env": {"A": "1"}}}),
        ("claude mcp add -e A=1 B=2 \\\n t -- uvx mcp-server-time", {"t": {**TIME, "env": {"A": "1", "B": "2"}}}),
        ("claude mcp add a -- uvx mcp-server-time\n# b\nclaude mcp add b https://h/mcp", {"a": TIME, "b": DOCS}),
        (
            'claude mcp add -t sse docs https://h/mcp -H "Authorization: Bearer $TOKEN" "X-A: b"',
            {"docs": {**DOCS, "transport": "sse", "headers": {"Authorization": "Bearer ${TOKEN}", "X-A": "b"}}},
        ),
        (f"claude mcp add-json time '{json.dumps({'type': 'stdio', **TIME})}'", {"time": TIME}),
        (f"code --add-mcp '{json.dumps({'name': 'time', **TIME})}'", {"time": TIME}),
        ('code-insiders --add-mcp "{\\"name\\":\\"docs\\",\\"url\\":\\"https://h/mcp\\"}"', {"docs": DOCS}),
        (
            "gemini mcp add -e A=1 --timeout 30000 --exclude-tools w,x time uvx mcp-server-time --tz=UTC",
            {"time": {**TIME, "args": ["mcp-server-time", "--tz=UTC"], "env": {"A": "1"}, "timeout": 30,
                      "tools": {"w": "deny", "x": "deny"}}},
        ),
        ("codex mcp add time --env A=1 -- uvx mcp-server-time", {"time": {**TIME, "env": {"A": "1"}}}),
        (
            "codex mcp add docs --url https://h/mcp --bearer-token-env-var TOKEN",
            {"docs": {**DOCS, "headers": {"Authorization": "Bearer ${TOKEN}"}}},
        ),
        # links
        (VSCODE, {"db": NPX}),
        (VSCODE.replace(":", "-insiders:"), {"db": NPX}),
        (f"https://insiders.vscode.dev/redirect/mcp/install?name=db&config={percent(NPX)}&quality=x", {"db": NPX}),
        (f"https://vscode.dev/redirect?url={VSCODE}", {"db": NPX}),
        (f"https://vscode.dev/redirect?url={quote(VSCODE)}", {"db": NPX}),
        (f"cursor://anysphere.cursor-deeplink/mcp/install?name=db&config={encoded(NPX)}", {"db": NPX}),
        (f"cursor://anysphere.cursor-deeplink/mcp/install?name=db&config={encoded({'db': NPX})}", {"db": NPX}),
        (f"https://cursor.com/en/install-mcp?name=db&config={quote(encoded(NPX))}", {"db": NPX}),
        (f"lmstudio://add_mcp?name=db&config={quote(encoded(NPX))}", {"db": NPX}),
        (f"https://kiro.dev/launch/mcp/add?name=db&config={percent(NPX)}", {"db": NPX}),
        ("goose://extension?cmd=uvx&arg=mcp-server-time&id=time&name=The%20time", {"time": TIME}),
        ("goose://extension?type=streamable_http&url=https%3A%2F%2Fh%2Fmcp&name=docs", {"docs": DOCS}),
    ],
)  # fmt: skip
def test_every_form_defines_the_same_servers(text: str, servers: Mapping[str, Any]) -> None:
    plain = from_mapping({"mcpServers": servers})
    found = from_mapping(read_pasted(text).document)
    sources = {name: plain[name].replace(source=one.source, extra={}) for name, one in found.items()}
    assert {name: one.replace(extra={}, max_timeout=600.0) for name, one in found.items()} == sources
    assert list(found) == list(plain)


def test_only_links_hide_what_they_would_run_and_values_that_they_want_are_asked_for() -> None:
    link = read_pasted("goose://extension?cmd=uvx&arg=mcp-server-time&id=time&env=KEY%3DYour%20key")
    assert link.origin == "the link goose://extension"
    [server] = from_mapping(link.document).values()
    assert (server.env, server.inputs["KEY"]["description"]) == ({"KEY": "${input:KEY}"}, "Your key")
    inputs = percent([{"id": "k", "type": "promptString", "password": True}])
    config = percent({**NPX, "env": {"K": "${input:k}"}})
    [server] = from_mapping(
        read_pasted(f"https://vscode.dev/redirect/mcp/install?name=db&config={config}&inputs={inputs}").document
    ).values()
    assert server.hides_input("k")
    assert read_pasted("claude mcp add time -- uvx x").origin == ""


KEEPS = "%mcp config add keeps a server in your own file, with --project in the project's"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("claude mcp add -s project t -- x", [f"-s project is not used: {KEEPS}"]),
        ("gemini mcp add --trust t uvx x", ["--trust is not used: models ask before they call its tools"]),
        ("claude mcp add --callback-port 8080 --client-secret --client-id c t https://h/mcp",
         ["--callback-port 8080 is not used: ipymcp chooses the port",
          "--client-secret is not used: it belongs into auth.client_secret of the definition"]),
        ("gemini mcp add --description words t uvx x", []),
    ],
)  # fmt: skip
def test_options_without_effect_are_named(text: str, notes: list[str]) -> None:
    assert list(read_pasted(text).notes) == notes


BY_PYPI = "if it is a PyPI package: %mcp load time -- uvx "
BY_NPM = "; if it is one of npm: %mcp load time -- npx -y "
NEITHER = "is neither a command nor an address"
JSON = "write its servers as JSON, or add each: %mcp config add NAME -- COMMAND ARG…"
MASKED = "foo --token '•••• (16 characters)'"
USAGE = "write NAME -- COMMAND ARG…, or NAME URL"
NO_LINK = "the page of the button usually has a command or JSON, too: paste that"
IMPORT = "%mcp config import HOST reads the servers of another host"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("mcp-server-time", f"mcp-server-time {NEITHER}", f"{BY_PYPI}mcp-server-time{BY_NPM}mcp-server-time"),
        ("mcp-time==1", f"mcp-time==1 {NEITHER}", f"{BY_PYPI}'mcp-time==1'{BY_NPM}mcp-time@1"),
        ("@a/server-b", f"@a/server-b {NEITHER}", "it looks like an npm package: %mcp load b -- npx -y @a/server-b"),
        ("thing", f"thing {NEITHER}", "if it is a program: %mcp load thing -- thing"),
        ("time uvx x", "it is not clear what time uvx x is",
         "the command of a server follows --: %mcp load time -- uvx x"),
        ("foo bar", "it is not clear what foo bar is", "if it is a command: %mcp load foo -- foo bar"),
        ("cd x && npx y", "&& needs a shell", "as a server it is %mcp load NAME -- sh -c '…'"),
        ("", "is empty", "a command, an address, or JSON of any host defines a server"),
        ("npx 'x", "a quote is not closed", "close it, or remove it"),
        ("%mcp tools demo", "%mcp tools demo defines no server", "run it as a line of its own"),
        ("extensions:\n  time:\n    cmd: uvx", "looks like YAML, which ipymcp does not read", JSON),
        ("[a]\n[a]", "not TOML: Cannot declare ('a',) twice", "look there for a missing quote, bracket or ="),
        ("cursor://x/y?name=1", "the link cursor://x/y has no definition that ipymcp can read", NO_LINK),
        ("a -- uvx x\na -- uvx y", '"a" is defined twice', "keep one of the two"),
        ("claude mcp add-from-desktop x", "claude mcp add-from-desktop defines no server", IMPORT),
        ("claude mcp add --magic t -- x", "the option --magic is not known here",
         "leave it out, or write %mcp load NAME -- COMMAND ARG…"),
        ("claude mcp add t", "there is no command and no address", USAGE),
        ("claude mcp add --env", "--env needs a value", "write --env=VALUE"),
        ("claude mcp add -H s3cret t https://h", "-H has no value", "write -H 'Name: value'"),
        ("foo --token abcdefgh12345678", f"it is not clear what {MASKED} is",
         f"if it is a command: %mcp load foo -- {MASKED}"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_answered_with_what_to_write(text: str, message: str, hint: str) -> None:
    where = "claude mcp add" if text.startswith("claude mcp add ") else "pasted"
    found, advice = refused(ConfigError, read_pasted, text)
    assert (re.sub(r"^pasted, line 2, column 3", "pasted", found), advice) == (f"{where}: {message}", hint)


def test_a_field_for_commands_takes_programs_that_nobody_knows() -> None:
    assert read_pasted("thing --x", is_command=True).document == {
        "mcpServers": {"thing": {"command": "thing", "args": ["--x"]}}
    }
    assert read_pasted("claude mcp add t https://h/mcp", is_command=True).document == {"mcpServers": {"t": DOCS}}


def test_a_mapping_may_have_commands_addresses_and_one_definition_without_a_name() -> None:
    assert read_mapping({"t": "uvx mcp-server-time", "l": ["uvx", "mcp-server-time"], "d": "https://h/mcp"}) == {
        "t": TIME, "l": TIME, "d": DOCS,
    }  # fmt: skip
    assert read_mapping(TIME) == {"time": TIME}
    assert read_mapping({"mcpServers": {"t": TIME}}) == {"mcpServers": {"t": TIME}}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["uvx", "--from", "git+https://h/x", "mcp-server-git"], "git"),
        (["python", "-m", "mcp_server_time"], "time"),
        (["uv", "run", "--directory", "/srv", "weather.py"], "weather"),
        (["npx", "-y", "@scope/server-a@1.2"], "a"),
        (["x"], "x"),
    ],
)
def test_a_server_is_named_after_what_it_runs(command: list[str], name: str) -> None:
    assert default_name({"command": command[0], "args": command[1:]}) == name


def test_a_line_for_another_host_is_recognised_by_its_beginning() -> None:
    foreign = [
        "claude mcp add t -- x",
        "codex mcp add t",
        "code --add-mcp {",
        "cursor://a/b?c",
        "gemini mcp add-json t {}",
    ]
    own = ["time -- uvx x", "fs git", "https://h/mcp", "./a.json", "mcp add", "load claude mcp add t -- x", ""]
    assert [is_foreign_command(text) for text in [*foreign, *own]] == [True] * len(foreign) + [False] * len(own)


@pytest.mark.timed
@pytest.mark.parametrize(
    "unit",
    [
        "'", '"', '"a" ', "\\", "\\\n", "$A", "--env A=1 ", "a -- ", '"a": {', "[[a", "{", "a: ", "%7B", "\u201c",
        "vscode:mcp/install?",
        "```\n", "claude mcp add a -- b\n", "&a=1", "// ", "/*", "a=", "-", "x ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("start", ["", "claude mcp add t ", "{", "cursor://x?config=", "uvx "])
def test_hostile_text_takes_linear_time(start: str, unit: str) -> None:
    def seconds(size: int) -> float:
        text = (start + unit * size)[:size]
        began = time.thread_time()
        with contextlib.suppress(ConfigError):
            read_pasted(text)
        return time.thread_time() - began

    assert seconds(90_000) < 1.0
    assert seconds(MAX_TEXT_BYTES + 1) < 0.1

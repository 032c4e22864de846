"""Config documents, files and mappings as server definitions, and what is said about wrong ones."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.config.config_files import JSON5_MAX_BYTES, from_mapping, without_comments
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.parsing import definitions
from ipymcp.errors import ConfigError
from ipymcp.security.trust import digest_of
from tests.config_files import read

SHAPE = 'the format is {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
PROGRAM = 'put the program in "command" and each of its arguments in "args"'
TABLE = 'write an object of strings, such as {"NAME": "value"}'

FILE = Source(scope="named", file="mcp.json", folder="/work", key="mcpServers.fs")


def one(**values: Any) -> ServerDefinition:
    """The definition of a server `fs` in a file `mcp.json`."""
    return definitions({"mcpServers": {"fs": values}}, Source(scope="named", file="mcp.json", folder="/work"))["fs"]


def refused(call: Any, *args: Any, **options: Any) -> tuple[str, str | None]:
    """The message and the hint of the ConfigError that a call raises."""
    with pytest.raises(ConfigError) as caught:
        call(*args, **options)
    return str(caught.value), caught.value.hint


def test_a_command_alone_has_the_documented_defaults() -> None:
    assert one(command="npx") == ServerDefinition(
        name="fs", command="npx", args=(), env={}, cwd=None, url=None, headers={}, transport="stdio", era="auto",
        timeout=30.0, max_timeout=600.0, start_timeout=120.0, restart=True, inherit_env=False,
        max_result_bytes=64_000_000, disabled=False, source=FILE, extra={},
    )  # fmt: skip


def test_every_known_key_is_read() -> None:
    read_back = one(
        command="uvx", args=["a", "b"], env={"K": "v"}, cwd="sub", type="stdio", era="legacy", timeout=5,
        max_timeout=50.5, start_timeout=7, restart="no", inherit_env=["HOME", "LANG"], max_result_bytes=10,
        disabled=True, log_lines=20,
    )  # fmt: skip
    assert read_back == ServerDefinition(
        name="fs", command="uvx", args=("a", "b"), env={"K": "v"}, cwd="sub", transport="stdio", era="legacy",
        timeout=5.0, max_timeout=50.5, start_timeout=7.0, restart=False, inherit_env=("HOME", "LANG"),
        max_result_bytes=10, disabled=True, log_lines=20, source=FILE,
    )  # fmt: skip


@pytest.mark.parametrize("mode", [True, False, "hinted"])
def test_there_are_two_read_only_modes(mode: bool | str) -> None:
    assert one(command="npx", read_only=mode).read_only == mode


def test_another_read_only_mode_is_refused() -> None:
    assert refused(one, command="npx", read_only="yes") == (
        'mcp.json: mcpServers.fs.read_only: expected true or false, got "yes"',
        'write "read_only": true or "read_only": false, unquoted',
    )


def test_unknown_keys_are_kept_as_they_are() -> None:
    assert one(command="npx", dev={"watch": "*"}, gallery={"id": 1}).extra == {
        "dev": {"watch": "*"},
        "gallery": {"id": 1},
    }


def test_null_is_the_same_as_an_absent_key() -> None:
    assert one(command="npx", args=None, env=None, url=None, timeout=None, restart=None) == one(command="npx")


@pytest.mark.parametrize(
    ("word", "transport"),
    [("http", "http"), ("streamable-http", "http"), ("streamableHttp", "http"), ("sse", "sse"), (None, "http")],
)
@pytest.mark.parametrize("key", ["type", "transport"])
def test_a_url_speaks_http_or_what_it_is_said_to(key: str, word: str | None, transport: str) -> None:
    definition = one(url="https://host/mcp", headers={"X": "y"}, **{key: word})
    assert (definition.transport, definition.url, definition.headers) == (transport, "https://host/mcp", {"X": "y"})
    assert definition.extra == {}


def test_a_timeout_beyond_ten_minutes_raises_the_longest_a_call_may_take() -> None:
    assert one(command="x", timeout=1200).max_timeout == 1200.0


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"args": 5}, "args: expected a list of strings, got 5", PROGRAM),
        ({"args": "-y x"}, 'args: expected a list of strings, got "-y x"', PROGRAM),
        ({"args": ["a", 8080]}, "args[1]: expected a string, got 8080", 'put it in quotes: "8080"'),
        ({"args": ["a", ["b"]]}, 'args[1]: expected a string, got ["b"]', PROGRAM),
        ({"command": []}, "command: expected a string, got []", PROGRAM),
        ({"command": [["npx"]]}, 'command[0]: expected a string, got ["npx"]', PROGRAM),
        ({"command": ["npx", 8080]}, "command[1]: expected a string, got 8080", 'put it in quotes: "8080"'),
        ({"command": ""}, 'command: expected a string, got ""', PROGRAM),
        ({"args": {"a": "x" * 80}}, "args: expected a list of strings, got an object", PROGRAM),
        ({"cwd": ["x" * 80]}, "cwd: expected a string, got a list", "write a folder's path"),
        ({"env": ["A=b"]}, "env: expected an object of strings, got a list", TABLE),
        ({"env": {"PORT": 8080}}, "env.PORT: expected a string, got 8080", 'put it in quotes: "8080"'),
        ({"env": {"ON": True}}, "env.ON: expected a string, got true", 'put it in quotes: "true"'),
        ({"env": {"A": None}}, "env.A: expected a string, got null", TABLE),
        ({"headers": 1}, "headers: expected an object of strings, got a number or a boolean", TABLE),
        ({"cwd": {}}, "cwd: expected a string, got an object", "write a folder's path"),
        (
            {"timeout": "30s"},
            'timeout: expected a number of seconds greater than 0, got "30s"',
            'write the seconds as a number, such as "timeout": 30',
        ),
        (
            {"timeout": True},
            "timeout: expected a number of seconds greater than 0, got true",
            'write the seconds as a number, such as "timeout": 30',
        ),
        (
            {"start_timeout": 0},
            "start_timeout: expected a number of seconds greater than 0, got 0",
            'write the seconds as a number, such as "start_timeout": 120',
        ),
        (
            {"timeout": float("nan")},
            "timeout: expected a number of seconds greater than 0, got NaN",
            'write the seconds as a number, such as "timeout": 30',
        ),
        (
            {"timeout": 60, "max_timeout": 10},
            "max_timeout: 10 s is less than the timeout of 60 s",
            'lower "timeout" or raise "max_timeout"',
        ),
        (
            {"max_result_bytes": 1.5},
            "max_result_bytes: expected a number of bytes greater than 0, got 1.5",
            'write the bytes as a whole number, such as "max_result_bytes": 64000000',
        ),
        (
            {"disabled": "true"},
            'disabled: expected true or false, got "true"',
            'write "disabled": true or "disabled": false, unquoted',
        ),
        (
            {"restart": "never"},
            'restart: expected true or false, got "never"',
            'write "restart": true or "restart": false, unquoted',
        ),
        (
            {"inherit_env": "PATH"},
            'inherit_env: expected a list of strings, got "PATH"',
            'write true, false, or the names, such as ["AWS_PROFILE"]',
        ),
        ({"era": "2025"}, 'era: expected one of auto, legacy, modern, got "2025"', 'leave "era" out for the default'),
        (
            {"type": "websocket"},
            'type: expected one of stdio, http, sse, got "websocket"',
            'leave "type" out for the default',
        ),
        (
            {"type": ["stdio"]},
            'type: expected one of stdio, http, sse, got ["stdio"]',
            'leave "type" out for the default',
        ),
        (
            {"transport": "http"},
            'transport: a server with a "command" cannot use the transport http',
            'leave "transport" out: "command" implies the transport',
        ),
        (
            {"command": None, "url": "https://h", "type": "stdio"},
            'type: a server with a "url" cannot use the transport stdio',
            'leave "type" out: "url" implies the transport',
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_document_and_key(values: dict[str, Any], message: str, hint: str) -> None:
    assert refused(one, **{"command": "npx", **values}) == (f"mcp.json: mcpServers.fs.{message}", hint)


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({}, 'expected "command" or "url", found neither', SHAPE),
        ({"args": [], "comand": "npx"}, 'expected "command" or "url", found neither', "did you mean 'command'?"),
        (
            {"command": "npx", "url": "https://h"},
            'expected "command" or "url", found both',
            'keep "command" for a local server',
        ),
        (
            {"url": "https://h", "type": "http", "transport": "sse"},
            '"type" and "transport" contradict each other',
            'keep "type"',
        ),
    ],
)
def test_a_server_is_either_a_command_or_a_url(values: dict[str, Any], message: str, hint: str) -> None:
    assert refused(one, **values) == (f"mcp.json: mcpServers.fs: {message}", hint)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"theme": "dark", "x": 1}, 'mcp.json: expected the key "mcpServers", found "theme", "x"'),
        ({}, 'mcp.json: expected the key "mcpServers", found an empty object'),
        ([1], "mcp.json: expected an object, got [1]"),
        ({"mcpServers": []}, "mcp.json: mcpServers: expected an object, got []"),
        ({"mcpServers": {"fs": "npx"}}, 'mcp.json: mcpServers.fs: expected an object, got "npx"'),
        ({"mcpServers": {" ": {}}}, 'mcp.json: mcpServers: expected a server\'s name, got " "'),
    ],
)
def test_a_document_of_another_shape_is_refused_with_what_was_found(document: Any, message: str) -> None:
    assert refused(definitions, document, Source(scope="named", file="mcp.json")) == (message, SHAPE)


def test_the_digest_is_the_same_for_what_runs_the_same() -> None:
    definition = one(command="npx", args=["x"], env={"A": "1", "B": "2"})
    same = one(env={"B": "2", "A": "1"}, args=["x"], command="npx", timeout=5, disabled=True, note="hi")
    assert digest_of(definition) == digest_of(same.replace(name="other"))
    assert len(digest_of(definition)) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"command": "uvx"}, {"args": ["y"]}, {"env": {"A": "2"}}, {"cwd": "sub"}, {"inherit_env": True},
        {"inherit_env": ["A"]}, {"autoApprove": ["*"]}, {"envFile": ".env"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_the_digest_changes_with_what_decides_what_runs(change: dict[str, Any]) -> None:
    assert digest_of(one(**{"command": "npx", "args": ["x"], "env": {"A": "1"}})) != digest_of(
        one(**{"command": "npx", "args": ["x"], "env": {"A": "1"}, **change})
    )


def test_the_repr_shows_no_value_that_may_be_secret() -> None:
    definition = one(command="npx", args=["--key=s3cret"], env={"TOKEN": "s3cret"})
    assert repr(definition) == "ServerDefinition(name='fs', command='npx', source='mcp.json')"
    assert repr(one(url="https://h", headers={"A": "s3cret"})) == (
        "ServerDefinition(name='fs', url='https://h', source='mcp.json')"
    )


# Files


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "mcp.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_file_is_read_and_remembered_as_the_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, '{"mcpServers": {"b": {"command": "x"}, "a": {"command": "y"}}}')
    monkeypatch.chdir(tmp_path)
    servers = read("mcp.json")
    assert list(servers) == ["b", "a"]
    assert (servers["b"].source.file, servers["b"].source.folder) == (str(path), str(tmp_path))


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert list(read(write(tmp_path, b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x"}}}'))) == ["a"]


def test_comments_and_trailing_commas_are_read(tmp_path: Path) -> None:
    text = '{\n // mine\n "mcpServers": {"a": {command: \'x\', "args": ["1",],},}, /* end */\n}'
    assert read(write(tmp_path, text))["a"].args == ("1",)


json_values = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('/*,}]"\\\n a')),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from('/*,"a')), inner, max_size=3),
    max_leaves=8,
)


def commented(value: Any) -> str:
    """A value as JSON in which every item is followed by comments and a comma."""
    end = ' /* "], \n */ , // "}\n'
    if isinstance(value, list):
        return f"[{''.join(commented(item) + end for item in value)}]"
    if isinstance(value, dict):
        return f"{{{''.join(f'{json.dumps(name)}: {commented(value[name])}{end}' for name in value)}}}"
    return json.dumps(value)


@given(json_values)
def test_comments_and_trailing_commas_go_and_nothing_else_does(value: Any) -> None:
    text = commented(value)
    plain = without_comments(text)
    assert json.loads(plain) == value
    assert (len(plain), plain.count("\n")) == (len(text), text.count("\n"))
    assert without_comments(json.dumps(value)) == json.dumps(value)


@pytest.mark.parametrize("text", ["/*" * 500_000, '"' * 999_999, ", " * 500_000, "/" * 999_999, '"a' + "\\" * 999_999])
def test_a_text_full_of_openings_takes_no_time(text: str) -> None:
    assert len(without_comments(text)) == len(text)


@pytest.mark.parametrize(
    "text", ['{"mcpServers": {"a": {"command": "x"}}}', '{"mcpServers": {"a": {"command": "x",}}} // mine']
)
def test_a_file_that_is_json_but_for_comments_costs_no_json5(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    script = "import pathlib, sys; from ipymcp.config.config_files import load; load(pathlib.Path(sys.argv[1]))"
    script += "; print('json5' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


LOOK = "look there, and just before, for a missing comma, quote or bracket"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"mcpServers": {\n  "a": {"command": "x"}\n  "b": {}\n}}', ", line 3, column 3: not JSON: unexpected '\"'"),
        ('// a\n{"mcpServers": tru}', ", line 2, column 19: not JSON: unexpected '}'"),
        ('{"mcpServers": ', ", line 1, column 16: not JSON: Unexpected end of input"),
        ('{"a":\n"x\ny"}', ", line 2, column 3: not JSON: unexpected line break"),
    ],
)
def test_a_syntax_error_is_shown_by_line_and_column(tmp_path: Path, text: str, where: str) -> None:
    path = write(tmp_path, text)
    assert refused(read, path) == (f"{path}{where}", LOOK)


def test_a_large_file_is_not_tried_as_json5(tmp_path: Path) -> None:
    path = write(tmp_path, '{"mcpServers": {}, x: "' + "y" * JSON5_MAX_BYTES + '"}')
    expected = "Expecting property name enclosed in double quotes"
    assert refused(read, path) == (f"{path}, line 1, column 20: not JSON: {expected}", LOOK)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (b"", ": is empty", SHAPE),
        (b'{"a":\n"\xff"}', ", line 2: not UTF-8", "save the file as UTF-8"),
        ('{"mcpServers": {}}'.encode("utf-16"), ", line 1: not UTF-8", "save the file as UTF-8"),
        (b"[" * 100_000, ": nested too deeply", SHAPE),
        (b" " * 10_000_001, ": is larger than 10 MB", "is this a config file?"),
        (
            b'{"mcpServers": {"fs": {"command": "a"}, "fs": {"command": "b"}}}',
            ': "fs" is defined twice in one object',
            "keep one of the two",
        ),
        (
            b'{"mcpServers": {"fs": {"command": "a"}, "fs": {"command": "b"},}}',
            ': "fs" is defined twice in one object',
            "keep one of the two",
        ),
    ],
    ids=["empty", "bad UTF-8", "UTF-16", "deep", "large", "twice", "twice in JSON5"],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: bytes, message: str, hint: str) -> None:
    path = write(tmp_path, text)
    assert refused(read, path) == (f"{path}{message}", hint)


@pytest.mark.posix
def test_a_missing_file_a_folder_and_a_pipe_are_told_apart(tmp_path: Path) -> None:
    assert refused(read, tmp_path / "no.json") == (
        f"{tmp_path}/no.json: no such file", "a relative path starts at the notebook's folder"
    )  # fmt: skip
    assert refused(read, tmp_path) == (f"{tmp_path}: is a folder", f"name the file in it, such as {tmp_path}/mcp.json")
    os.mkfifo(tmp_path / "pipe")
    assert refused(read, tmp_path / "pipe") == (f"{tmp_path}/pipe: is not a regular file", "name a file on disk")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that even root cannot read")
def test_an_unreadable_file_says_what_the_system_said() -> None:
    message, hint = refused(read, "/proc/self/mem")
    assert (message, hint) == (
        "/proc/self/mem: cannot be read: Input/output error", "check the file's permissions"
    )  # fmt: skip


# Mappings


def test_a_script_passes_servers_by_name_or_a_whole_document() -> None:
    flat: dict[str, Any] = {"time": {"command": "uvx", "args": ("mcp-server-time",)}}
    expected = ServerDefinition(
        name="time", command="uvx", args=("mcp-server-time",), source=Source(scope="script", key="time")
    )
    assert from_mapping(flat) == {"time": expected}
    assert from_mapping({"mcpServers": flat})["time"].args == expected.args
    assert from_mapping(json.loads(json.dumps(flat)), scope="cell")["time"].source.scope == "cell"


@pytest.mark.posix
def test_a_script_may_pass_paths() -> None:
    servers = from_mapping({"fs": {"command": Path("/bin/x"), "args": [Path("/data")], "cwd": Path("/tmp")}})
    assert (servers["fs"].command, servers["fs"].args, servers["fs"].cwd) == ("/bin/x", ("/data",), "/tmp")


def test_an_error_in_a_scripts_mapping_names_the_key_the_script_wrote() -> None:
    assert refused(from_mapping, {"fs": {"command": "x", "args": 5}}) == (
        "fs.args: expected a list of strings, got 5", PROGRAM
    )  # fmt: skip
    assert refused(from_mapping, {"fs": 5}) == ("fs: expected an object, got 5", SHAPE)
    assert refused(from_mapping, {"": {}}) == ('expected a server\'s name, got ""', SHAPE)

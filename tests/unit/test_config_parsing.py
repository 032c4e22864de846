"""Config documents, files and mappings as server definitions, and the errors of invalid ones."""

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
from tests.errors import refused

SHAPE = 'the format is {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
PROGRAM = 'put the program in "command" and each of its arguments in "args"'
TABLE = 'write an object of strings, such as {"NAME": "value"}'

SECONDS = "expected a number of seconds greater than 0, got"
FS = Source(scope="named", file="mcp.json", folder="/work", key="mcpServers.fs")
NAMED = Source(scope="named", file="mcp.json", folder="/work")


def define(**values: Any) -> ServerDefinition:
    """Read a server `fs` of a file `mcp.json`."""
    return definitions({"mcpServers": {"fs": values}}, NAMED)["fs"]


def test_a_command_alone_has_the_documented_defaults() -> None:
    assert define(command="npx") == ServerDefinition(
        name="fs", command="npx", args=(), env={}, cwd=None, url=None, headers={}, transport="stdio", era="auto",
        timeout=30.0, max_timeout=600.0, start_timeout=120.0, restart=True, inherit_env=False,
        max_result_bytes=64_000_000, disabled=False, source=FS, extra={},
    )  # fmt: skip


def test_every_known_key_is_read() -> None:
    read_back = define(
        command="uvx", args=["a", "b"], env={"K": "v"}, cwd="sub", type="stdio", era="legacy", timeout=5,
        max_timeout=50.5, start_timeout=7, restart="no", inherit_env=["HOME", "LANG"], max_result_bytes=10,
        disabled=True, log_lines=20,
    )  # fmt: skip
    assert read_back == ServerDefinition(
        name="fs", command="uvx", args=("a", "b"), env={"K": "v"}, cwd="sub", transport="stdio", era="legacy",
        timeout=5.0, max_timeout=50.5, start_timeout=7.0, restart=False, inherit_env=("HOME", "LANG"),
        max_result_bytes=10, disabled=True, log_lines=20, source=FS,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        *(({"read_only": mode}, "read_only", mode) for mode in (True, False, "hinted")),
        ({"timeout": 900}, "max_timeout", 900.0),
        ({"dev": {"watch": "*"}, "gallery": {"id": 1}}, "extra", {"dev": {"watch": "*"}, "gallery": {"id": 1}}),
    ],
    ids=["read-only", "not read-only", "read-only by hints", "a timeout beyond the maximum", "unknown keys"],
)
def test_a_value_becomes_an_attribute(values: dict[str, Any], name: str, expected: object) -> None:
    assert getattr(define(command="npx", **values), name) == expected


def test_null_is_the_same_as_an_absent_key() -> None:
    assert define(command="npx", args=None, env=None, url=None, timeout=None, restart=None) == define(command="npx")


@pytest.mark.parametrize(
    ("word", "transport"),
    [("http", "http"), ("streamable-http", "http"), ("streamableHttp", "http"), ("sse", "sse"), (None, "http")],
)
@pytest.mark.parametrize("key", ["type", "transport"])
def test_a_server_with_a_url_uses_http_or_the_transport_it_names(key: str, word: str | None, transport: str) -> None:
    definition = define(url="https://host/mcp", headers={"X": "y"}, **{key: word})
    assert (definition.transport, definition.url, definition.headers) == (transport, "https://host/mcp", {"X": "y"})
    assert definition.extra == {}


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
        ({"cwd": {}}, "cwd: expected a string, got an object", "write a folder's path"),
        ({"env": ["A=b"]}, "env: expected an object of strings, got a list", TABLE),
        ({"env": {"PORT": 8080}}, "env.PORT: expected a string, got 8080", 'put it in quotes: "8080"'),
        ({"env": {"ON": True}}, "env.ON: expected a string, got true", 'put it in quotes: "true"'),
        ({"env": {"A": None}}, "env.A: expected a string, got null", TABLE),
        ({"headers": 1}, "headers: expected an object of strings, got a number or a boolean", TABLE),
        *(
            ({key: value}, f"{key}: {SECONDS} {shown}", f'write the seconds as a number, such as "{key}": {example}')
            for key, value, shown, example in [
                ("timeout", "30s", '"30s"', 30),
                ("timeout", True, "true", 30),
                ("timeout", float("nan"), "NaN", 30),
                ("start_timeout", 0, "0", 120),
            ]
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
        *(
            (
                {key: value},
                f'{key}: expected true or false, got "{value}"',
                f'write "{key}": true or "{key}": false, unquoted',
            )
            for key, value in [("disabled", "true"), ("restart", "never"), ("read_only", "yes")]
        ),
        (
            {"inherit_env": "PATH"},
            'inherit_env: expected a list of strings, got "PATH"',
            'write true, false, or the names, such as ["AWS_PROFILE"]',
        ),
        *(
            (
                {key: value},
                f"{key}: expected one of {choices}, got {json.dumps(value)}",
                f'leave "{key}" out for the default',
            )
            for key, value, choices in [
                ("era", "2025", "auto, legacy, modern"),
                ("type", "websocket", "stdio, http, sse"),
                ("type", ["stdio"], "stdio, http, sse"),
            ]
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
    assert refused(ConfigError, define, **{"command": "npx", **values}) == (f"mcp.json: mcpServers.fs.{message}", hint)


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
    assert refused(ConfigError, define, **values) == (f"mcp.json: mcpServers.fs: {message}", hint)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"theme": "dark", "x": 1}, 'mcp.json: expected the key "mcpServers", found "theme", "x"'),
        ({}, 'mcp.json: expected the key "mcpServers", found an empty object'),
        ([1], "mcp.json: expected an object, got [1]"),
        ({"mcpServers": 1}, "mcp.json: mcpServers: expected an object, got 1"),
        ({"mcpServers": {"fs": "npx"}}, 'mcp.json: mcpServers.fs: expected an object, got "npx"'),
        ({"mcpServers": {" ": {}}}, 'mcp.json: mcpServers: expected a server\'s name, got " "'),
    ],
)
def test_a_document_of_another_shape_is_refused_with_what_was_found(document: Any, message: str) -> None:
    assert refused(ConfigError, definitions, document, Source(scope="named", file="mcp.json")) == (message, SHAPE)


def test_the_digest_is_the_same_for_what_runs_the_same() -> None:
    definition = define(command="npx", args=["x"], env={"A": "1", "B": "2"})
    same = define(env={"B": "2", "A": "1"}, args=["x"], command="npx", timeout=5, disabled=True, note="hi")
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
    values = {"command": "npx", "args": ["x"], "env": {"A": "1"}}
    assert digest_of(define(**values)) != digest_of(define(**{**values, **change}))


def test_the_repr_shows_no_value_that_may_be_secret() -> None:
    local = define(command="npx", args=["--key=s3cret"], env={"TOKEN": "s3cret"})
    assert repr(local) == "ServerDefinition(name='fs', command='npx', source='mcp.json')"
    remote = define(url="https://h", headers={"A": "s3cret"})
    assert repr(remote) == "ServerDefinition(name='fs', url='https://h', source='mcp.json')"


# Files


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "mcp.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_file_is_read_and_recorded_as_the_source_of_its_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, '{"mcpServers": {"b": {"command": "x"}, "a": {"command": "y"}}}')
    monkeypatch.chdir(tmp_path)
    servers = read("mcp.json")
    assert list(servers) == ["b", "a"]
    assert (servers["b"].source.file, servers["b"].source.folder) == (str(path), str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        '{\n // mine\n "mcpServers": {"a": {command: \'x\', "args": ["1",],},}, /* end */\n}',
        b'\xef\xbb\xbf{"mcpServers": {"a": {"command": "x", "args": ["1"]}}}',
    ],
    ids=["comments and trailing commas", "a byte order mark"],
)
def test_a_file_may_have_comments_trailing_commas_and_a_byte_order_mark(tmp_path: Path, text: str | bytes) -> None:
    servers = read(write(tmp_path, text))
    assert (list(servers), servers["a"].args) == (["a"], ("1",))


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
def test_only_comments_and_trailing_commas_are_removed(value: Any) -> None:
    text = commented(value)
    plain = without_comments(text)
    assert json.loads(plain) == value
    assert (len(plain), plain.count("\n")) == (len(text), text.count("\n"))
    assert without_comments(json.dumps(value)) == json.dumps(value)


@pytest.mark.parametrize("text", ["/*" * 500_000, '"' * 999_999, ", " * 500_000, "/" * 999_999, '"a' + "\\" * 999_999])
def test_a_text_full_of_openings_is_read_in_linear_time(text: str) -> None:
    assert len(without_comments(text)) == len(text)


def test_json_with_comments_is_read_without_importing_json5(tmp_path: Path) -> None:
    plain, commented = tmp_path / "plain.json", tmp_path / "commented.json"
    plain.write_text('{"mcpServers": {"a": {"command": "x"}}}')
    commented.write_text('{"mcpServers": {"a": {"command": "x",}}} // mine')
    script = "import pathlib, sys; from ipymcp.config.config_files import load"
    script += "; print([load(pathlib.Path(file)).is_plain for file in sys.argv[1:]], 'json5' in sys.modules)"
    command = [sys.executable, "-c", script, plain, commented]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[True, False] False\n"


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
    assert refused(ConfigError, read, path) == (f"{path}{where}", LOOK)


def test_a_large_file_is_not_tried_as_json5(tmp_path: Path) -> None:
    path = write(tmp_path, '{"mcpServers": {}, x: "' + "y" * JSON5_MAX_BYTES + '"}')
    expected = "Expecting property name enclosed in double quotes"
    assert refused(ConfigError, read, path) == (f"{path}, line 1, column 20: not JSON: {expected}", LOOK)


TWICE = ': "fs" is defined twice in one object'


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (b"", ": is empty", SHAPE),
        (b'{"a":\n"\xff"}', ", line 2: not UTF-8", "save the file as UTF-8"),
        ('{"mcpServers": {}}'.encode("utf-16"), ", line 1: not UTF-8", "save the file as UTF-8"),
        (b"[" * 100_000, ": nested too deeply", SHAPE),
        (b" " * 1_000_001, ": is larger than 1 MB", "is this a config file?"),
        (
            json.dumps({"mcpServers": {f"s{i}": {"command": "a"} for i in range(1_001)}}).encode(),
            ": defines 1,001 servers; at most 1,000 are read",
            "split the file, and load each part when it is needed",
        ),
        (b'{"mcpServers": {"fs": {"command": "a"}, "fs": {"command": "b"}}}', TWICE, "keep one of the two"),
        (b'{"mcpServers": {"fs": {"command": "a"}, "fs": {"command": "b"},}}', TWICE, "keep one of the two"),
    ],
    ids=["empty", "bad UTF-8", "UTF-16", "deep", "large", "many", "twice", "twice in JSON5"],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    tmp_path: Path, text: bytes, message: str, hint: str
) -> None:
    path = write(tmp_path, text)
    assert refused(ConfigError, read, path) == (f"{path}{message}", hint)


@pytest.mark.posix
def test_a_missing_file_a_folder_and_a_pipe_are_distinguished(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, message, hint in [
        (tmp_path / "no.json", "no such file", "a relative path starts at the notebook's folder"),
        (tmp_path, "is a folder", f"name the file in it, such as {tmp_path}/mcp.json"),
        (tmp_path / "pipe", "is not a regular file", "name a file on disk"),
    ]:
        assert refused(ConfigError, read, path) == (f"{path}: {message}", hint)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that even root cannot read")
def test_an_unreadable_file_is_refused_with_the_systems_reason() -> None:
    assert refused(ConfigError, read, "/proc/self/mem") == (
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
    for mapping, message, hint in [
        ({"fs": {"command": "x", "args": 5}}, "fs.args: expected a list of strings, got 5", PROGRAM),
        ({"fs": 5}, "fs: expected an object, got 5", SHAPE),
        ({"": {}}, 'expected a server\'s name, got ""', SHAPE),
    ]:
        assert refused(ConfigError, from_mapping, mapping) == (message, hint)

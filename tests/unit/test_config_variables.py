"""Variables in definitions: their forms, the sources of their values, and the errors where there is no value."""

import os
from pathlib import Path
from typing import Any

import pytest

from ipymcp.config.dangers import dangers
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import adopted, exported
from ipymcp.config.parsing import definitions
from ipymcp.config.redaction import described
from ipymcp.config.variables import Lookup, Reference, expand, references
from ipymcp.errors import ConfigError
from ipymcp.security.trust import digest_of
from tests.errors import refused

HOME = os.path.expanduser("~")
ENVIRON = {"TOKEN": "t0k3n", "EMPTY": "", "BRACES": "${TOKEN}", "PATH": "/bin"}
INPUTS = [{"id": "key", "type": "promptString", "password": True}, {"id": "mode", "type": "promptString"}]


LOOKUP = Lookup(folder="/nb", environ=ENVIRON, secret={"s": "hidden"}.get, inputs={"key": "k"})


def define(scope: Any = "project", **values: Any) -> ServerDefinition:
    source = Source(scope=scope, file="/p/mcp.json", folder="/p")
    return definitions({"mcpServers": {"fs": {"command": "x", **values}}, "inputs": INPUTS}, source)["fs"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, "t0k3n") for text in ("${TOKEN}", "${env:TOKEN}", "{env:TOKEN}", "${TOKEN:-default}")),
        *((text, "default") for text in ("${NONE:-default}", "${env:NONE:-default}", "${EMPTY:-default}")),
        ("a ${TOKEN} b ${TOKEN}", "a t0k3n b t0k3n"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("${NONE:-${TOKEN}}", "t0k3n"),
        ("${NONE:-${NEITHER:-{}}}", "{}"),
        ("${workspaceFolder}/x", "/p/x"),
        ("${workspaceFolderBasename}", "p"),
        ("${userHome}${/}x${pathSeparator}", f"{HOME}/x/"),
        ("${secret:s}", "hidden"),
        ("${input:key}", "k"),
        ("${BRACES}", "${TOKEN}"),
        ("$${TOKEN}", "${TOKEN}"),
        ("$TOKEN {TOKEN} $ {} %TOKEN%", "$TOKEN {TOKEN} $ {} %TOKEN%"),
        ("", ""),
    ],
)
def test_every_form_of_a_variable_is_expanded(text: str, value: str) -> None:
    assert expand(define(args=[text]), LOOKUP).args[0] == value


def test_variables_are_expanded_in_every_value_that_decides_what_runs() -> None:
    local = define(
        command="${TOKEN}/x", args=["${TOKEN}"], env={"A": "${TOKEN}"}, cwd="${workspaceFolder}/d",
        vendor={"x": "${NONE}"},
    )  # fmt: skip
    after = expand(local, LOOKUP)
    assert (after.command, after.args, after.env, after.cwd) == ("t0k3n/x", ("t0k3n",), {"A": "t0k3n"}, "/p/d")
    assert after.extra == {"vendor": {"x": "${NONE}"}}
    assert (local.command, digest_of(local)) == ("${TOKEN}/x", digest_of(local))
    auth = {"type": "oauth", "client_secret": "${secret:s}", "scopes": ["${TOKEN}"]}
    remote = define(command=None, url="https://${TOKEN}/mcp", headers={"A": "Bearer ${TOKEN}"}, auth=auth)
    after = expand(remote, LOOKUP)
    assert (after.url, after.headers) == ("https://t0k3n/mcp", {"A": "Bearer t0k3n"})
    assert after.auth == {"type": "oauth", "client_secret": "hidden", "scopes": ["t0k3n"]}


def test_a_definitions_own_env_supplies_variables_that_the_kernel_lacks() -> None:
    definition = define(args=["${OWN}", "${TOKEN}"], env={"OWN": "${TOKEN}!", "TOKEN": "mine", "PATH": "/x:${PATH}"})
    after = expand(definition, LOOKUP)
    assert after.args == ("t0k3n!", "t0k3n")
    assert after.env == {"OWN": "t0k3n!", "TOKEN": "mine", "PATH": "/x:/bin"}


def test_the_notebooks_folder_is_the_workspace_of_the_users_own_servers() -> None:
    assert expand(define(scope="user", args=["${workspaceFolder}"]), LOOKUP).args == ("/nb",)


def test_variables_of_a_command_typed_in_a_cell_are_expanded_only_in_its_headers() -> None:
    typed = ServerDefinition(name="x", command="sh", args=("-c", "echo ${TOKEN}"), env={"A": "${TOKEN}"})
    assert expand(typed, LOOKUP) == typed
    remote = ServerDefinition(name="x", url="https://h", transport="http", headers={"A": "${TOKEN}"})
    assert expand(remote, LOOKUP).headers == {"A": "t0k3n"}


UNSET = "${NONE} is not set in this kernel"
SET = "os.environ['NONE'] = …, or write ${NONE:-default}"
UNKNOWN = "is not a known variable"
VSCODE = "only VS Code knows its value: write the path or value itself"
ESCAPE = "write $${ for a literal ${; the variables are ${NAME}, ${NAME:-default}, ${secret:NAME}, ${input:ID}"


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"env": {"A": "x${NONE}"}}, f"env.A: {UNSET}", SET),
        ({"environment": {"A": "{env:NONE}"}}, "environment.A: {env:NONE} is not set in this kernel", SET),
        ({"command": ["x", "y", "${NONE}"]}, f"command[2]: {UNSET}", SET),
        ({"args": ["${secret:none}"]}, "args[0]: ${secret:none} has no value", "%mcp secret set none asks for it"),
        (
            {"args": ["${input:mode}"]},
            "args[0]: ${input:mode} has no value",
            "run the line where you can be asked for 'mode'",
        ),
        ({"args": ["${input:none}"]}, "args[0]: ${input:none} has no value", 'describe it under "inputs"'),
        (
            {"args": ["${A}"], "env": {"A": "${B}", "B": "${C}", "C": "${A}"}},
            "env.C: ${A} is circular: A -> B -> C -> A",
            "give one of them a value of its own",
        ),
        *(
            ({"args": [text]}, f"args[0]: {text} {UNKNOWN}", VSCODE)
            for text in ("${command:pick}", "${config:a.b}", "${workspaceFolder:api}")
        ),
        ({"args": ["${x[@]}"]}, f"args[0]: ${{x[@]}} {UNKNOWN}", ESCAPE),
        ({"args": ["${TOKEN"]}, f"args[0]: ${{TOKEN {UNKNOWN}", ESCAPE),
        ({"args": ["${x:-" * 50 + "}" * 50]}, f"args[0]: {('${x:-' * 50)[:40]} {UNKNOWN}", ESCAPE),
    ],
)
def test_a_variable_without_a_value_is_named_with_its_file_and_key(
    values: dict[str, Any], message: str, hint: str
) -> None:
    assert refused(ConfigError, expand, define(**values), LOOKUP) == (f"/p/mcp.json: mcpServers.fs.{message}", hint)


def test_a_text_full_of_open_braces_is_refused_in_linear_time() -> None:
    assert UNKNOWN in refused(ConfigError, expand, define(args=["${" * 500_000]), LOOKUP)[0]


def test_the_references_name_each_variable_and_its_key() -> None:
    definition = define(
        args=["${input:key}", "${A:-${secret:s}}"], env={"T": "Bearer {env:TOKEN}"}, cwd="${userHome}/$${x}"
    )
    assert references(definition) == [
        Reference("place", "userHome", "cwd", None, "${userHome}"),
        Reference("input", "key", "args[0]", None, "${input:key}"),
        Reference("variable", "A", "args[1]", "${secret:s}", "${A:-${secret:s}}"),
        Reference("secret", "s", "args[1]", None, "${secret:s}"),
        Reference("variable", "TOKEN", "env.T", None, "{env:TOKEN}"),
    ]
    assert list(definition.inputs) == ["key"]


# Files of variables


def with_file(folder: Path, text: str, **values: Any) -> ServerDefinition:
    (folder / "vars.env").write_text(text)
    source = Source(scope="project", file=f"{folder}/mcp.json", folder=str(folder))
    entry = {"command": "x", "envFile": "${workspaceFolder}/vars.env", **values}
    return definitions({"mcpServers": {"fs": entry}}, source)["fs"]


def test_an_env_file_is_read_on_expansion_and_env_overrides_it(tmp_path: Path) -> None:
    text = "# mine\n\nA=1\nexport B = two words # a note\nC='x # y'\nD=\"q${TOKEN}\"\nE=\nF=a#b\n"
    after = expand(with_file(tmp_path, text, env={"A": "0"}), LOOKUP)
    assert after.env == {"A": "0", "B": "two words", "C": "x # y", "D": "q${TOKEN}", "E": "", "F": "a#b"}
    assert after.env_file is None


def test_a_bad_env_file_is_named_with_its_key_and_line(tmp_path: Path) -> None:
    bad = with_file(tmp_path, "A=1\nnonsense\n")
    assert refused(ConfigError, expand, bad, LOOKUP)[0] == (
        f"{tmp_path}/mcp.json: mcpServers.fs.envFile: {tmp_path}/vars.env, line 2: expected NAME=VALUE"
    )
    (tmp_path / "vars.env").unlink()
    missing = define(envFile=str(tmp_path / "vars.env"))
    assert refused(ConfigError, expand, missing, LOOKUP)[0] == (
        f"/p/mcp.json: mcpServers.fs.envFile: {tmp_path}/vars.env: no such file"
    )


# Contents of files


def test_the_content_of_a_file_is_read_at_each_start_relative_to_the_definitions_file(tmp_path: Path) -> None:
    source = Source(scope="project", file=str(tmp_path / ".opencode" / "opencode.json"), folder=str(tmp_path))
    (tmp_path / ".opencode").mkdir()
    token = tmp_path / ".opencode" / "token"
    remote = {"type": "remote", "url": "https://h/mcp", "headers": {"Authorization": "Bearer {file:token}"}}
    definition = definitions({"mcp": {"a": remote}}, source)["a"]
    for content in ("first\n", "\ufeffsecond ${HOME}\n"):
        token.write_text(content)
        expanded = expand(definition, LOOKUP)
        assert expanded.headers == {"Authorization": f"Bearer {content.strip().lstrip(chr(0xFEFF))}"}
    assert references(definition) == [Reference("file", "token", "headers.Authorization", None, "{file:token}")]


def test_a_file_is_found_at_home_and_its_name_is_what_an_import_keeps(tmp_path: Path) -> None:
    source = Source(scope="named", file=str(tmp_path / "opencode.json"), folder=str(tmp_path))
    local = {"type": "local", "command": ["x", "{file:~/.token}", "{file:./sub/t}", "${workspaceFolder}"]}
    definition = definitions({"mcp": {"a": local}}, source)["a"]
    assert adopted(definition).args == (f"{{file:{HOME}/.token}}", f"{{file:{tmp_path}/sub/t}}", str(tmp_path))
    assert exported([definition], "opencode", "/nb").document["mcp"]["a"]["command"][1] == "{file:~/.token}"
    assert exported([definition], "cursor", "/nb").notes[:1] == ("a: cursor does not read {file:~/.token} in args[0]",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff", "is not UTF-8"),
        (b"x" * 100_001, "is larger than 100 kB"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_and_never_sent_as_text(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "t").write_bytes(content)
    source = Source(scope="named", file=str(tmp_path / "f.json"), folder=str(tmp_path))
    definition = definitions({"mcp": {"a": {"command": ["x", "{file:t}"]}}}, source)["a"]
    message, hint = refused(ConfigError, expand, definition, LOOKUP)
    assert message.startswith(f"{tmp_path}/f.json: mcp.a.command[1]: {{file:t}} {problem.removesuffix('100 kB')}")
    assert hint == f"looked for {tmp_path}/t"


def test_the_question_names_the_file_and_warns_of_one_outside_the_project(tmp_path: Path) -> None:
    source = Source(scope="project", file=str(tmp_path / "opencode.json"), folder=str(tmp_path))
    headers = {"A": "{file:~/.ssh/id_rsa}", "B": "{file:token}"}
    remote = definitions({"mcp": {"a": {"type": "remote", "url": "https://h/mcp", "headers": headers}}}, source)["a"]
    assert [line for line in described(remote).lines if line.startswith("Receives")] == [
        "Receives    the content of ~/.ssh/id_rsa as headers.A",
        "Receives    the content of token as headers.B",
    ]
    assert dangers(remote) == ["Gets the content of ~/.ssh/id_rsa, a file outside the project, as headers.A"]

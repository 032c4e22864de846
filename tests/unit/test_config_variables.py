"""Variables in definitions: every form, where their values come from, and what is said where there is none."""

import os
from pathlib import Path
from typing import Any

import pytest

from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.parsing import definitions
from ipymcp.config.variables import Lookup, Reference, expand, references
from ipymcp.errors import ConfigError
from ipymcp.security.trust import digest_of

HOME = os.path.expanduser("~")
ENVIRON = {"TOKEN": "t0k3n", "EMPTY": "", "BRACES": "${TOKEN}", "PATH": "/bin"}
INPUTS = [{"id": "key", "type": "promptString", "password": True}, {"id": "mode", "type": "promptString"}]


def lookup(**changes: Any) -> Lookup:
    given: dict[str, Any] = {"folder": "/nb", "environ": ENVIRON, "secret": {"s": "hidden"}.get, "inputs": {"key": "k"}}
    return Lookup(**{**given, **changes})


def one(scope: Any = "project", **values: Any) -> ServerDefinition:
    source = Source(scope=scope, file="/p/mcp.json", folder="/p")
    return definitions({"mcpServers": {"fs": {"command": "x", **values}}, "inputs": INPUTS}, source)["fs"]


def expanded(text: str, **values: Any) -> str:
    return expand(one(args=[text], **values), lookup()).args[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${TOKEN}", "t0k3n"),
        ("a ${TOKEN} b ${TOKEN}", "a t0k3n b t0k3n"),
        ("${env:TOKEN}", "t0k3n"),
        ("{env:TOKEN}", "t0k3n"),
        ("${NONE:-default}", "default"),
        ("${env:NONE:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY}", ""),
        ("${TOKEN:-default}", "t0k3n"),
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
    assert expanded(text) == value


def test_variables_stand_in_every_value_that_decides_what_runs() -> None:
    local = one(
        command="${TOKEN}/x", args=["${TOKEN}"], env={"A": "${TOKEN}"}, cwd="${workspaceFolder}/d",
        vendor={"x": "${NONE}"},
    )  # fmt: skip
    after = expand(local, lookup())
    assert (after.command, after.args, after.env, after.cwd) == ("t0k3n/x", ("t0k3n",), {"A": "t0k3n"}, "/p/d")
    assert after.extra == {"vendor": {"x": "${NONE}"}}
    assert (local.command, digest_of(local)) == ("${TOKEN}/x", digest_of(local))
    auth = {"type": "oauth", "client_secret": "${secret:s}", "scopes": ["${TOKEN}"]}
    remote = one(command=None, url="https://${TOKEN}/mcp", headers={"A": "Bearer ${TOKEN}"}, auth=auth)
    after = expand(remote, lookup())
    assert (after.url, after.headers) == ("https://t0k3n/mcp", {"A": "Bearer t0k3n"})
    assert after.auth == {"type": "oauth", "client_secret": "hidden", "scopes": ["t0k3n"]}


def test_a_definitions_own_env_stands_in_for_a_variable_that_the_kernel_lacks() -> None:
    definition = one(args=["${OWN}", "${TOKEN}"], env={"OWN": "${TOKEN}!", "TOKEN": "mine", "PATH": "/x:${PATH}"})
    after = expand(definition, lookup())
    assert after.args == ("t0k3n!", "t0k3n")
    assert after.env == {"OWN": "t0k3n!", "TOKEN": "mine", "PATH": "/x:/bin"}


def test_the_notebooks_folder_is_the_workspace_of_the_users_own_servers() -> None:
    assert expand(one(scope="user", args=["${workspaceFolder}"]), lookup()).args == ("/nb",)


def test_a_command_typed_in_a_cell_is_left_alone_but_for_its_headers() -> None:
    typed = ServerDefinition(name="x", command="sh", args=("-c", "echo ${TOKEN}"), env={"A": "${TOKEN}"})
    assert expand(typed, lookup()) == typed
    remote = ServerDefinition(name="x", url="https://h", transport="http", headers={"A": "${TOKEN}"})
    assert expand(remote, lookup()).headers == {"A": "t0k3n"}


def refused(**values: Any) -> tuple[str, str | None]:
    with pytest.raises(ConfigError) as caught:
        expand(one(**values), lookup())
    return str(caught.value), caught.value.hint


ESCAPE = "write $${ for a literal ${; the variables are ${NAME}, ${NAME:-default}, ${secret:NAME}, ${input:ID}"


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        (
            {"env": {"A": "x${NONE}"}},
            "env.A: ${NONE} is not set in this kernel",
            "os.environ['NONE'] = …, or write ${NONE:-default}",
        ),
        (
            {"environment": {"A": "{env:NONE}"}},
            "environment.A: {env:NONE} is not set in this kernel",
            "os.environ['NONE'] = …, or write ${NONE:-default}",
        ),
        (
            {"command": ["x", "y", "${NONE}"]},
            "command[2]: ${NONE} is not set in this kernel",
            "os.environ['NONE'] = …, or write ${NONE:-default}",
        ),
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
        ({"args": ["${command:pick}"]}, "args[0]: ${command:pick} is not a known variable", ESCAPE),
        ({"args": ["${x[@]}"]}, "args[0]: ${x[@]} is not a known variable", ESCAPE),
        ({"args": ["${TOKEN"]}, "args[0]: ${TOKEN is not a known variable", ESCAPE),
        ({"args": ["${x:-" * 50 + "}" * 50]}, f"args[0]: {('${x:-' * 50)[:40]} is not a known variable", ESCAPE),
    ],
)
def test_a_variable_without_a_value_is_named_with_its_file_and_key(
    values: dict[str, Any], message: str, hint: str
) -> None:
    assert refused(**values) == (f"/p/mcp.json: mcpServers.fs.{message}", hint)


def test_a_text_full_of_open_braces_takes_no_time() -> None:
    assert "is not a known variable" in refused(args=["${" * 500_000])[0]


def test_the_references_say_what_goes_where() -> None:
    definition = one(
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


def test_an_env_file_is_read_at_the_start_and_env_wins(tmp_path: Path) -> None:
    text = "# mine\n\nA=1\nexport B = two words # a note\nC='x # y'\nD=\"q${TOKEN}\"\nE=\nF=a#b\n"
    after = expand(with_file(tmp_path, text, env={"A": "0"}), lookup())
    assert after.env == {"A": "0", "B": "two words", "C": "x # y", "D": "q${TOKEN}", "E": "", "F": "a#b"}
    assert after.env_file is None


def test_a_bad_env_file_is_named_with_its_key_and_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(with_file(tmp_path, "A=1\nnonsense\n"), lookup())
    where = f"{tmp_path}/mcp.json: mcpServers.fs.envFile"
    assert str(caught.value) == f"{where}: {tmp_path}/vars.env, line 2: expected NAME=VALUE"
    (tmp_path / "vars.env").unlink()
    with pytest.raises(ConfigError) as caught:
        expand(one(envFile=str(tmp_path / "vars.env")), lookup())
    assert str(caught.value) == f"/p/mcp.json: mcpServers.fs.envFile: {tmp_path}/vars.env: no such file"

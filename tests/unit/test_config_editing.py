"""Edits of ipymcp's own config files, imports from other hosts, and the display of definitions."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipymcp.api.security import ToolPolicy
from ipymcp.config.config_files import edit, from_mapping, load, project_file, read_host
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import HOSTS, IMPORTED
from ipymcp.config.redaction import masked, masked_args
from ipymcp.errors import ConfigError, TrustError, UnknownName
from ipymcp.interaction.questions import PageReply
from ipymcp.runtime.host import Host
from ipymcp.setup import config_edits
from ipymcp.setup.config_edits import explanation, export_to, listing
from ipymcp.setup.load_request import config_path, gather, settings
from tests.config_files import read
from tests.errors import refused
from tests.unit.scripted_interface import ScriptedInterface

pytestmark = pytest.mark.posix


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / "p" / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(folder / "jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(folder / "data"))
    for name in ("IPYMCP_CONFIG", "IPYMCP_STATE_DIR", "XDG_CONFIG_HOME", "JUPYTER_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def own(home: Path) -> Path:
    """The user's own file."""
    return home / "jupyter" / "ipymcp" / "mcp.json"


@pytest.fixture
def host(home: Path) -> Iterator[Host]:
    host = Host(str(home / "p"))
    yield host
    host.close()


def agreeing(host: Host, *servers: str, secrets: Iterable[tuple[str, str]] = ()) -> ScriptedInterface:
    """Give the host a user who agrees that these servers run, with these secrets."""
    user = ScriptedInterface(PageReply(servers=frozenset(servers), secrets=frozenset(secrets)))
    host.questions.terminal = lambda: user
    return user


def servers(path: Path) -> Any:
    return json.loads(path.read_text())["mcpServers"]


OWN: Any = {"project": False}
"""For an edit of the user's own file."""
EMPTY = '{"mcpServers": {}}'


def put(document: dict[str, Any]) -> None:
    document["mcpServers"]["new"] = {"command": "é"}


# The file


def test_a_new_file_and_its_folder_are_made_for_the_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "mcp.json"
    edit(file, put, private=True)
    assert file.read_text() == '{\n  "mcpServers": {\n    "new": {\n      "command": "é"\n    }\n  }\n}\n'
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(file.parent) == ["mcp.json"]


def test_a_file_keeps_its_order_form_mode_and_unknown_keys(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text('{\n\t"z": [1.0, 12345678901234567890],\n\t"mcpServers": {"b": {}, "a": {"x": 1}},\n\t"y": null\n}')
    file.chmod(0o640)
    edit(file, put, private=True)
    text = file.read_text()
    assert list(json.loads(text)) == ["z", "mcpServers", "y"]
    assert list(servers(file)) == ["b", "a", "new"]
    assert '\n\t"z"' in text and "12345678901234567890" in text and "1.0" in text and not text.endswith("\n")
    assert file.stat().st_mode & 0o777 == 0o640


OTHER_FORMAT = (": is in another host's format", "change it there; ipymcp reads it as it is")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            '{"mcpServers": {} /* mine */}',
            ": its comments would be lost",
            "change it in an editor; ipymcp reads it as it is",
        ),
        ('{"servers": {"a": {"url": "https://h"}}}', *OTHER_FORMAT),
        ('{"a": {"command": "x"}}', *OTHER_FORMAT),
        ('{"mcpServers": []}', ": mcpServers: expected an object, got []", None),
        ('{"mcpServers": ', ", line 1, column 16: not JSON: Unexpected end of input", None),
    ],
)
def test_a_file_is_not_written_where_something_would_be_lost(
    tmp_path: Path, text: str, message: str, hint: str | None
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    error, advice = refused(ConfigError, edit, file, put, private=True)
    assert (error, hint and advice) == (f"{file}{message}", hint)
    assert file.read_text() == text


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "dotfiles.json", tmp_path / "mcp.json"
    target.write_text(EMPTY)
    link.symlink_to(target)
    assert refused(ConfigError, edit, link, put, private=True) == (
        f"{link}: cannot be written: it is a link, which ipymcp does not write to",
        "remove the link, or name its target",
    )
    assert link.is_symlink() and target.read_text() == EMPTY


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(EMPTY)

    def fail(_: dict[str, Any]) -> None:
        raise ConfigError("no", hint="")

    assert refused(ConfigError, edit, file, fail, private=True)[0] == "no"
    assert file.read_text() == EMPTY and os.listdir(tmp_path) == ["mcp.json"]


def test_processes_that_write_at_the_same_time_lose_no_entry(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    script = (
        "import sys\nfrom pathlib import Path\nfrom ipymcp.config.config_files import edit\n"
        "for n in range(10):\n"
        "    def put(document):\n        document['mcpServers'][f'{sys.argv[2]}-{n}'] = {'command': 'x'}\n"
        "    edit(Path(sys.argv[1]), put, private=True)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(file), str(number)]) for number in range(4)]
    assert [writer.wait(60) for writer in writers] == [0] * 4
    assert len(servers(file)) == 40


def test_a_projects_file_is_the_nearest_one_or_goes_into_the_repositorys_root(home: Path) -> None:
    inner = home / "p" / "a" / "b"
    inner.mkdir(parents=True)
    assert project_file(str(inner)) == home / "p" / "mcp.json"
    (home / "p" / "a" / "mcp.json").write_text("{}")
    assert project_file(str(inner)) == home / "p" / "a" / "mcp.json"
    (home / "q" / "r").mkdir(parents=True)
    assert project_file(str(home / "q" / "r")) == home / "q" / "r" / "mcp.json"
    assert refused(ConfigError, project_file, str(home)) == (
        f"{home} belongs to no project",
        "leave --project out: the user's own file is for all",
    )


# What the user asks for


def test_a_server_is_added_updated_and_removed(own: Path, host: Host) -> None:
    assert config_edits.add("fs", {"command": "x", "args": ["1"]}, host, **OWN).file == own
    change = {"timeout": "60", "env.A": "1.10", "env.B": "x", "args": '["2"]', "era": "legacy", "disabled": "true"}
    config_edits.update("fs", settings([*change.items()]), host, **OWN)
    entry = {"command": "x", "args": ["2"], "disabled": True}
    assert servers(own) == {"fs": {**entry, "timeout": 60, "env": {"A": "1.10", "B": "x"}, "era": "legacy"}}
    config_edits.update("fs", settings([(key, "") for key in ("env.A", "timeout", "env.B", "era")]), host, **OWN)
    assert servers(own) == {"fs": entry}
    config_edits.remove("fs", host, **OWN)
    assert servers(own) == {}
    assert host.discovery.changes() == []


def test_changes_by_others_are_still_reported_after_an_edit_of_the_users_file(
    home: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYMCP_CONFIG", "none.json")  # is missing, and hinders nothing
    config_edits.add("fs", {"command": "x"}, host, **OWN)
    config_edits.update("fs", {"timeout": 5}, host, **OWN)
    monkeypatch.delenv("IPYMCP_CONFIG")
    fs = host.discovery.read().definitions["fs"]
    assert fs.timeout == 5.0 and host.guard.trusts(fs)
    theirs = home / "p" / ".mcp.json"
    theirs.write_text("{}")
    config_edits.update("fs", {"timeout": 6}, host, **OWN)
    assert host.discovery.changes() == [f"{theirs} is new: %mcp load brings the servers up to date"]


def test_a_key_in_another_hosts_spelling_is_updated_under_ipymcps_name(own: Path, host: Host) -> None:
    own.parent.mkdir(parents=True, exist_ok=True)
    theirs = {
        "open": {"type": "local", "command": ["x", "1"], "environment": {"A": "1"}, "enabled": False, "note": "n"},
        "slow": {"httpUrl": "https://h/mcp", "timeout": 5000},
    }
    own.write_text(json.dumps({"mcpServers": theirs}))
    config_edits.update("open", {"note": "m"}, host, **OWN)
    assert servers(own)["open"] == {**theirs["open"], "note": "m"}
    config_edits.update("open", {"env": {"B": "2"}, "disabled": None}, host, **OWN)
    assert servers(own)["open"] == {
        "type": "stdio", "command": "x", "args": ["1"], "env": {"A": "1", "B": "2"}, "note": "m"
    }  # fmt: skip
    config_edits.update("slow", {"timeout": 7}, host, **OWN)
    assert host.discovery.read().definitions["slow"].timeout == 7.0


FIXTURES = Path(__file__).parent.parent / "fixtures" / "hosts"


@pytest.mark.parametrize("fixture", [path.name for path in FIXTURES.iterdir()])
def test_the_document_of_any_host_is_added_as_it_is(host: Host, fixture: str) -> None:
    def without_source(definitions: dict[str, ServerDefinition]) -> list[ServerDefinition]:
        return [definition.replace(source=Source()) for definition in definitions.values()]

    document = load(FIXTURES / fixture).data
    added = config_edits.add(None, document, host, **OWN)
    expected = read(FIXTURES / fixture)
    definitions = host.discovery.read().definitions
    assert list(definitions) == list(added.names) == list(expected)
    assert without_source(definitions) == without_source(from_mapping(document)) == without_source(expected)


def test_a_name_selects_a_server_of_a_document_or_renames_its_only_one(host: Host) -> None:
    two = {"servers": {"a": {"command": "x", "env": {"N": 1}}, "b": {"url": "https://h"}}}
    own = config_edits.add("a", two, host, **OWN).file
    config_edits.add("c", {"mcpServers": {"d": {"command": "y"}}}, host, **OWN)
    before = {"a": {"command": "x", "env": {"N": "1"}}, "c": {"command": "y"}}
    assert servers(own) == before
    assert refused(UnknownName, config_edits.add, "e", two, host, **OWN) == (
        "the pasted text has no server 'e'",
        "without a name, all servers are taken",
    )

    def refused_document(document: Any) -> tuple[str, str | None]:
        return refused(ConfigError, config_edits.add, None, document, host, **OWN)

    assert refused_document(two)[0] == f"{own}: a is there already"
    assert refused_document({"foo": {}})[0] == 'pasted: expected the key "mcpServers", found "foo"'
    assert refused_document({"comand": "y", "args": []}) == (
        'pasted: expected the key "mcpServers", found "comand", "args"',
        "did you mean 'command'?",
    )
    assert servers(own) == before
    assert config_edits.add(None, {"command": "npx", "args": ["-y", "@x/server-f"]}, host, **OWN).names == ("f",)


def test_a_relative_path_is_kept_as_a_path_from_the_notebooks_folder(home: Path, host: Host) -> None:
    words = ["npx", ".", "./a", "../b", "~/c", "some/package", "-y"]
    typed = [config_path(word, host, **OWN) for word in words]
    p = home / "p"
    assert typed == ["npx", str(p), str(p / "a"), str(home / "b"), str(home / "c"), "some/package", "-y"]
    assert config_path("./a", host, project=True) == "./a"


def test_an_edit_that_could_not_be_read_again_is_refused(host: Host) -> None:
    own = config_edits.add("fs", {"command": "x"}, host, **OWN).file
    before = own.read_text()
    for call, arguments, message, hint in [
        (
            config_edits.add,
            ("fs", {"command": "y"}),
            f"{own}: fs is there already",
            "%mcp config update fs …, or %mcp config remove fs",
        ),
        (
            config_edits.update,
            ("fs", {"timeout": "soon"}),
            f'{own}: mcpServers.fs.timeout: expected a number of seconds greater than 0, got "soon"',
            None,
        ),
        (
            config_edits.update,
            ("fs", {"url": "https://h"}),
            f'{own}: mcpServers.fs: expected "command" or "url", found both',
            None,
        ),
        (config_edits.add, ("a\nb", {"command": "y"}), "'a\\nb' is not a valid server name", None),
        (config_edits.remove, ("sf",), f"{own}: defines no server 'sf'", "%mcp config lists them"),
    ]:
        error, advice = refused(ConfigError, call, *arguments, host, **OWN)
        assert (error, hint and advice) == (message, hint)
    assert own.read_text() == before


@pytest.mark.parametrize("name", [".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "opencode.json"])
def test_another_hosts_file_is_not_written(home: Path, host: Host, name: str) -> None:
    theirs = home / "p" / name
    theirs.parent.mkdir(exist_ok=True)
    theirs.write_text('{"mcpServers": {"fs": {"command": "x"}}}')
    assert refused(ConfigError, config_edits.update, "fs", {"timeout": 1}, host, **OWN) == (
        f"fs is defined in {theirs}, which ipymcp does not write",
        f"change it there, or copy it: %mcp config import {theirs} fs",
    )
    config_edits.add("fs", {"command": "mine"}, host, **OWN)
    config_edits.update("fs", {"timeout": 1}, host, **OWN)
    assert json.loads(theirs.read_text()) == {"mcpServers": {"fs": {"command": "x"}}}


def test_a_projects_file_is_written_on_request_or_where_it_alone_has_the_server(home: Path, host: Host) -> None:
    file = config_edits.add("fs", {"command": "x"}, host, project=True).file
    assert (file, file.stat().st_mode & 0o777) == (home / "p" / "mcp.json", 0o644)
    assert config_edits.update("fs", {"timeout": 5}, host, **OWN) == file
    assert servers(file) == {"fs": {"command": "x", "timeout": 5}}
    assert config_edits.remove("fs", host, project=True).file == file


def test_only_what_the_user_added_to_a_projects_file_is_trusted(home: Path, host: Host) -> None:
    theirs = home / "p" / "mcp.json"
    theirs.write_text('{"mcpServers": {"evil": {"command": "evil"}}}')
    config_edits.add("fs", {"command": "x"}, host, project=True)
    config_edits.update("evil", {"timeout": 5}, host, project=True)
    config_edits.update("fs", {"args": ["y"]}, host, project=True)

    def trusted() -> list[str]:
        return [name for name, server in host.discovery.read().definitions.items() if host.guard.trusts(server)]

    assert trusted() == ["fs"]
    document = json.loads(theirs.read_text())
    document["mcpServers"]["fs"]["args"] = ["z"]
    theirs.write_text(json.dumps(document))
    assert trusted() == []


# Other hosts


def test_each_hosts_file_is_found_where_the_host_keeps_it(home: Path) -> None:
    for host, places in IMPORTED.items():
        for path in places()[:1]:
            path.parent.mkdir(parents=True, exist_ok=True)
            table = HOSTS[host].table
            is_toml = HOSTS[host].syntax == "toml"
            text = json.dumps({table if table != "mcp_servers" else "mcpServers": {host: {"command": "x"}}})
            path.write_text(f'[{table}.{host}]\ncommand = "x"' if is_toml else text)
        configuration = read_host(host, str(home))
        assert (next(iter(configuration.definitions)), configuration.files[0]) == (host, places()[0])
    assert str(IMPORTED["claude-code"]()[0]) == f"{home}/.claude.json"


def test_claude_codes_servers_of_this_project_come_before_the_users(home: Path) -> None:
    document = {
        "mcpServers": {"all": {"command": "a"}, "both": {"command": "user"}},
        "projects": {"/work": {"mcpServers": {"both": {"command": "local"}}}, "/other": {"mcpServers": {"no": {}}}},
    }
    (home / ".claude.json").write_text(json.dumps(document))
    definitions = read_host("claude-code", "/work").definitions
    assert {name: server.command for name, server in definitions.items()} == {"both": "local", "all": "a"}


def test_a_host_without_a_file_is_an_error_that_names_the_places(home: Path) -> None:
    assert refused(ConfigError, read_host, "cursor", "/work") == (
        "cursor has no servers here", f"looked for {home}/.cursor/mcp.json"
    )  # fmt: skip


def test_servers_are_imported_from_a_host_or_a_file(home: Path, own: Path, host: Host) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text(
        '{"mcpServers": {"a": {"command": "x", "note": 1}, "b": {"url": "https://h"}, "c": {"command": 5}}}'
    )
    imported = config_edits.import_from("cursor", [], host, replace=False, **OWN)
    assert (imported.file, imported.names) == (own, ("a", "b"))
    assert imported.notes == (f"{home}/.cursor/mcp.json: mcpServers.c.command: expected a string, got 5",)
    assert servers(own) == {"a": {"command": "x", "note": 1}, "b": {"url": "https://h"}}

    theirs = home / "q" / ".vscode" / "mcp.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text(
        '{"inputs": [{"id": "k", "type": "promptString"}], "servers": {"a": {"command": "y", "args":'
        ' ["${workspaceFolder}/s.py", "${input:k}", "$${x}"], "envFile": ".env"}, "b": {"url": "https://other"}}}'
    )
    again = config_edits.import_from("../q/.vscode/mcp.json", ["a"], host, replace=False, **OWN)
    assert (again.names, again.notes) == ((), ("a is there already, and is kept; --replace replaces it",))
    user = agreeing(host, "a")
    config_edits.import_from("../q/.vscode/mcp.json", ["a"], host, replace=True, **OWN)
    assert (
        user.asked[0].candidates[0].dangers[0] == f"Takes the place of your own a ({own}), so its calls would go here"
    )
    folder = str(home / "q")
    args = [f"{folder}/s.py", "${input:k}", "$${x}"]
    assert servers(own)["a"] == {"command": "y", "args": args, "env_file": f"{folder}/.env", "cwd": folder}
    assert json.loads(own.read_text())["inputs"] == [{"id": "k", "type": "promptString"}]


def test_a_named_file_is_imported_only_as_far_as_the_user_agreed(home: Path, own: Path, host: Host) -> None:
    theirs = home / "p" / ".mcp.json"
    define = {"fs": {"command": "./run", "env": {"TOKEN": "${secret:gh}", "API_KEY": "./x"}}, "git": {"command": "git"}}
    theirs.write_text(json.dumps({"mcpServers": define}))

    def import_file() -> config_edits.Imported:
        return config_edits.import_from(".mcp.json", [], host, replace=False, **OWN)

    assert refused(TrustError, import_file)[0] == (
        f"fs: not imported from {theirs}: no one could be asked whether it may run"
    )
    assert not own.exists()

    user = agreeing(host, "fs")
    imported = import_file()
    assert (imported.names, imported.notes) == (
        (),
        ("fs is not imported: you did not give it your secret gh", "git is not imported: you did not agree to it"),
    )
    assert not own.exists()
    [question] = user.asked
    assert (question.file, question.why) == (str(theirs), f"is to be imported into {own}")
    assert question.candidates[0].secrets == ("gh",)
    assert "Variable    API_KEY=./x" in question.candidates[0].lines

    agreeing(host, "fs", secrets=[("fs", "gh")])
    assert import_file().names == ("fs",)
    assert list(servers(own)) == ["fs"]


@pytest.mark.parametrize("wrong", ['"timeout": "30"', '"env": {"A": 1}', '"args": "x"'])
def test_correcting_a_projects_wrong_value_does_not_trust_it(home: Path, host: Host, wrong: str) -> None:
    file = home / "p" / "mcp.json"
    file.write_text('{"mcpServers": {"fs": {"command": "sh", ' + wrong + "}}}")
    config_edits.update("fs", {"timeout": 30, "env": None, "args": ["-c", "id"]}, host, project=True)
    assert not host.guard.trusts(host.discovery.read().definitions["fs"])


def test_a_secret_in_a_projects_file_is_not_granted_by_typing_it(home: Path, host: Host) -> None:
    config_edits.add("fs", {"command": "x", "env": {"TOKEN": "${secret:gh}"}}, host, project=True)
    assert not host.guard.trusts(host.discovery.read().definitions["fs"])


def test_a_projects_server_with_the_name_of_the_users_own_is_marked_as_shadowing_it(
    home: Path, own: Path, host: Host
) -> None:
    config_edits.add("fs", {"command": "own"}, host, **OWN)
    config_edits.add("fs", {"command": "x"}, host, project=True)
    fs = host.discovery.read().definitions["fs"]
    assert (fs.command, fs.source.shadows) == ("x", str(own))
    assert not host.guard.trusts(fs)
    for path in ("mcp.json", str(home / "p" / "mcp.json")):
        assert gather([path], host).definitions == [fs]


def test_a_number_that_is_too_long_is_an_error_of_its_file(home: Path, host: Host) -> None:
    config_edits.add("own", {"command": "x"}, host, **OWN)
    file = home / "p" / "mcp.json"
    for text in ('{"mcpServers": {"fs": {"command": "x", "timeout": %s}}}', "{'a': %s}", '{"a": %s,}'):
        file.write_text(text % ("9" * 5_000))
        configuration = host.discovery.read()
        assert list(configuration.definitions) == ["own"]
        assert [str(error) for error in configuration.errors] == [f"{file}: a number in it is too long"]


@pytest.mark.parametrize("key", ["timeout", "max_result_bytes", "log_lines", "health_interval", "concurrency"])
@pytest.mark.parametrize("number", ["1e400", "9" * 400, "NaN", "1e18"])
def test_a_number_that_no_timer_or_list_takes_is_an_error_of_its_server(
    home: Path, host: Host, key: str, number: str
) -> None:
    (home / "p" / "mcp.json").write_text('{"mcpServers": {"fs": {"command": "x", "' + f'{key}": {number}' + "}}}")
    [error] = host.discovery.read().errors
    assert str(error).startswith(f"{home}/p/mcp.json: mcpServers.fs.{key}: expected a number of ")


def test_a_rule_for_a_servers_alias_is_a_rule_for_its_name(home: Path, host: Host) -> None:
    config_edits.add("my-db", {"command": "x"}, host, **OWN)
    policy = ToolPolicy(host)
    policy.deny("my_db.drop", "my-db.x", "other.*")
    policy.ask("my_db")
    assert [rule.pattern for rule in host.guard.policy.session_rules] == ["my-db.drop", "my-db.x", "other.*", "my-db.*"]


def test_the_repr_of_a_definition_hides_the_secrets_in_its_url() -> None:
    definition = from_mapping({"x": {"url": "https://me:pass@h.example/mcp?key=abc#token"}})["x"]
    assert repr(definition) == "ServerDefinition(name='x', url='https://h.example/mcp?…', source='script')"


# Showing


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("LEVEL", "debug", "debug"),
        ("API_KEY", "abc", "•••• (3 characters)"),
        ("api-key", "abc", "•••• (3 characters)"),
        ("GITHUB_TOKEN", "${env:TOKEN}", "${env:TOKEN}"),
        ("Authorization", "Bearer ${TOKEN}", "Bearer ${TOKEN}"),
        ("Authorization", "Bearer s3cr3ts3cr3t", "Bearer •••• (12 characters)"),
        ("Authorization", "${A}s3cr3ts3cr3t", "${A}•••• (12 characters)"),
        ("DB_PASSWORD", "", ""),
        ("KEYBOARD", "qwerty", "qwerty"),
    ],
)
def test_a_literal_under_a_secrets_name_is_masked(name: str, text: str, shown: str) -> None:
    assert masked(text, name) == shown


def test_arguments_and_addresses_are_masked_where_they_name_a_secret() -> None:
    hidden = "•••• (3 characters)"
    assert masked_args(["-y", "--token", "abc", "--level=x", "--api-key=abc", "--token", "-v", "-e", "KEY=abc"]) == [
        "-y", "--token", hidden, "--level=x", f"--api-key={hidden}", "--token", "-v", "-e", f"KEY={hidden}"
    ]  # fmt: skip
    assert masked_args(["--token", "a=="]) == ["--token", hidden]
    assert masked_args(["--token=-hunter2"]) == ["--token=•••• (8 characters)"]
    assert masked_args(["--header", "Authorization: Basic dXNlcjpwdw=="])[1] == (
        "Authorization: Basic •••• (12 characters)"
    )
    assert masked_args(["postgres://me:abc@h/db"]) == [f"postgres://me:{hidden}@h/db"]
    assert masked("https://h/mcp?api_key=abc&x=1") == f"https://h/mcp?api_key={hidden}&x=1"
    assert masked("https://h/mcp?x=a%20b") == "https://h/mcp?x=a%20b"
    assert masked("https://${env:H}/mcp?token=${T}") == "https://${env:H}/mcp?token=${T}"


@pytest.mark.parametrize("name", ["--dsn", "CONNECTION_STRING", ""])
def test_only_the_password_of_a_connection_string_is_masked(name: str) -> None:
    hidden = "•••• (8 characters)"
    assert masked("Server=h;User Id=sa;Password=hunter22", name) == f"Server=h;User Id=sa;Password={hidden}"
    assert masked("host=h user=me password='hunter22'", name) == f"host=h user=me password='{hidden}'"
    assert masked("Server=h;Pwd=${DB_PASSWORD};Encrypt=yes", name) == "Server=h;Pwd=${DB_PASSWORD};Encrypt=yes"


def test_the_listing_has_command_state_and_file_of_each_server(home: Path, host: Host) -> None:
    (home / "p" / ".mcp.json").write_text('{"mcpServers": {"fs": {"command": "theirs"}, "bad": {}}}')
    own = config_edits.add("fs", {"command": "mine", "args": ["--token", "abc"]}, host, **OWN).file
    config_edits.add("off", {"url": "https://h", "disabled": True}, host, **OWN)
    table = listing(host.discovery.read(), host)
    project, mine = home / "p" / ".mcp.json", f"~/{own.relative_to(home)}"
    assert table.rows == (
        ("fs", "theirs", "needs trust", ".mcp.json"),
        ("fs", "mine --token •••• (3 characters)", "shadowed", mine),
        ("bad", "", "error", f'{project}: mcpServers.bad: expected "command" or "url", found neither'),
        ("off", "https://h", "disabled", mine),
    )


def test_an_explanation_names_the_origin_of_each_value(home: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0k3n")
    monkeypatch.delenv("NONE", raising=False)
    theirs = home / "p" / "opencode.json"
    theirs.write_text(
        '{"mcp": {"fs": {"type": "local", "command": ["x", "${NONE}"], "timeout": 5, "environment":'
        ' {"T": "{env:TOKEN}", "K_KEY": "abc"}}}}'
    )
    own = config_edits.add("fs", {"command": "mine"}, host, **OWN).file
    table = explanation("fs", host.discovery.read(), host)
    assert table.title == f"fs: from {theirs} (project)"
    assert table.rows == (
        ("command", "x", "mcp.fs.command[0]"),
        ("args", '["${NONE}"]', "mcp.fs.command"),
        ("env.T", "{env:TOKEN}", "mcp.fs.environment.T"),
        ("env.K_KEY", "•••• (3 characters)", "mcp.fs.environment.K_KEY"),
        ("opencode.timeout", "kept, not used", "mcp.fs.timeout"),
        ("${NONE}", "not set in this kernel", "mcp.fs.command[1]"),
        ("{env:TOKEN}", "a variable of this kernel", "mcp.fs.environment.T"),
        ("runs in", str(home / "p"), "the folder of its file"),
        ("shadows", "mine", f"{own}: mcpServers.fs"),
    )
    assert table.note == "it does not run before you have agreed to it: %mcp load fs asks"
    assert "t0k3n" not in repr(table) and "abc" not in repr(table)


def test_the_users_own_server_runs_in_a_private_folder(home: Path, host: Host) -> None:
    config_edits.add("my server", {"command": "x"}, host, **OWN)
    rows = {row[0]: row[1:] for row in explanation("my server", host.discovery.read(), host).rows}
    folder = f"{home}/data/ipymcp/servers/my_server-dc28b52f"
    assert rows["runs in"] == (folder, "a private folder, as it has no cwd")


def test_an_export_masks_secrets_where_it_is_shown_and_contains_them_in_its_text(home: Path, host: Host) -> None:
    config_edits.add("fs", {"command": "x", "env": {"API_KEY": "s3cr3t"}}, host, **OWN)
    document = export_to("claude-desktop", ["fs"], host)
    assert document.data == {"mcpServers": {"fs": {"command": "x", "args": [], "env": {"API_KEY": "s3cr3t"}}}}
    assert json.loads(document.text) == document.data
    assert "s3cr3t" not in str(document._repr_mimebundle_())
    assert repr(document).endswith("}\n(likely secrets are masked here; .text is the complete document)")


# Files of other hosts


def test_a_file_in_a_hosts_folder_is_imported_with_the_folder_of_its_project(home: Path, own: Path, host: Host) -> None:
    theirs = home / "q" / ".gemini" / "settings.json"
    theirs.parent.mkdir(parents=True)
    entry = {"command": "python", "args": ["tools/server.py"], "timeout": 500, "authProviderType": "x"}
    theirs.write_text(json.dumps({"mcpServers": {"a": entry}}))
    agreeing(host, "a")
    imported = config_edits.import_from("../q/.gemini/settings.json", [], host, replace=False, **OWN)
    assert servers(own)["a"] == {
        "command": "python", "args": ["tools/server.py"], "cwd": str(home / "q"), "timeout": 0.5,
        "authProviderType": "x",
    }  # fmt: skip
    assert imported.notes == (f"a: authProviderType is not used: it does not log in that way ({theirs})",)


def test_codex_is_imported_and_of_goose_it_is_said_that_it_is_not_read(home: Path, own: Path, host: Host) -> None:
    for name, text in {
        ".codex/config.toml": '[mcp_servers.a]\ncommand = "x"',
        ".config/goose/config.yaml": "a:",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    assert config_edits.import_from("codex", [], host, replace=False, **OWN).names == ("a",)
    imported = config_edits.import_from("goose", [], host, replace=False, **OWN)
    assert (imported.names, imported.notes) == (
        (), (f"{home}/.config/goose/config.yaml: is YAML, which ipymcp does not read",),
    )  # fmt: skip
    assert servers(own) == {"a": {"command": "x"}}
    assert refused(UnknownName, export_to, "codex", [], host)[0] == "there is no host 'codex' to export to"


def test_an_explanation_names_the_unit_of_a_foreign_timeout_and_the_projects_folder(home: Path, host: Host) -> None:
    theirs = home / "p" / ".amazonq" / "mcp.json"
    theirs.parent.mkdir()
    theirs.write_text('{"mcpServers": {"fs": {"command": "x", "timeout": 120000}}}')
    rows = {row[0]: row[1:] for row in explanation("fs", host.discovery.read(), host).rows}
    assert rows["timeout"] == ("120", "mcpServers.fs.timeout (120,000 milliseconds, the unit of amazon-q)")
    assert rows["runs in"] == (str(home / "p"), "the folder of its project")


def test_a_typed_timeout_is_in_seconds_also_in_a_projects_file(home: Path, host: Host) -> None:
    project = home / "p" / "mcp.json"
    project.write_text('{"mcpServers": {"fs": {"command": "x", "timeout": 5000}, "b": {"command": "x"}}}')
    assert {name: one.timeout for name, one in host.discovery.read().definitions.items()} == {"fs": 5, "b": 30}
    for name in ("fs", "b"):
        for seconds in (1_200, 3_000, 60, 2_000):
            config_edits.update(name, {"timeout": seconds}, host, project=True)
            assert host.discovery.read().definitions[name].timeout == seconds


def test_a_pasted_timeout_may_be_in_milliseconds_and_an_edited_one_is_not(home: Path, own: Path, host: Host) -> None:
    added = config_edits.add("fs", {"command": "x", "timeout": 15_000}, host, **OWN)
    assert servers(own)["fs"]["timeout"] == 15
    [line] = added.notes
    assert line.startswith("fs: the timeout is 15 s (15,000, taken for milliseconds as it is above 1,000)")
    config_edits.rewrite("fs", {"command": "x", "timeout": 1_200}, host)
    assert host.discovery.read().definitions["fs"].timeout == 1_200


def test_the_manifest_of_a_bundle_is_imported_with_its_inputs_after_the_question(
    home: Path, own: Path, host: Host
) -> None:
    manifest = {
        "manifest_version": "0.3", "name": "files", "author": {"name": "A", "url": "https://a.example"},
        "server": {"mcp_config": {"command": "node", "args": ["${__dirname}/x.js"], "env": {"K": "${user_config.k}"}}},
        "user_config": {"k": {"type": "string", "sensitive": True}},
    }  # fmt: skip
    (home / "p" / "manifest.json").write_text(json.dumps(manifest))
    user = agreeing(host, "files")
    assert config_edits.import_from("./manifest.json", [], host, replace=False, **OWN).names == ("files",)
    assert [one.name for one in user.asked[0].candidates] == ["files"]
    folder = str(home / "p")
    entry = {"command": "node", "args": [f"{folder}/x.js"], "env": {"K": "${input:k}"}, "cwd": folder}
    assert servers(own) == {"files": entry}
    assert [one["id"] for one in json.loads(own.read_text())["inputs"]] == ["k"]

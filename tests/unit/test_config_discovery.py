"""Discovery of config files from a folder, precedence of definitions, and problems; in real folders."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from ipymcp.config import config_files
from ipymcp.config.config_files import (
    PROJECT_FILES,
    Configuration,
    ConfigurationWatch,
    candidates,
    discover,
    read_each,
)
from ipymcp.config.definition import ServerDefinition
from ipymcp.config.hosts import adopted
from ipymcp.config.paths import notebook_file
from ipymcp.config.variables import Lookup, expand
from ipymcp.errors import ConfigError
from ipymcp.security.trust import digest_of
from tests.errors import refused

pytestmark = pytest.mark.posix


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("IPYMCP_CONFIG", raising=False)
    return folder


def define(path: Path, *names: str, **values: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    servers = {name: {"command": str(path), **values} for name in names}
    if path.suffix == ".toml":
        path.write_text("\n".join(f"[mcp_servers.{name}]\ncommand = '{path}'" for name in names))
        return path
    key = {"opencode.json": "mcp", "opencode.jsonc": "mcp", "settings.json": "mcpServers"}.get(path.name, "mcpServers")
    path.write_text(json.dumps({"context_servers" if path.parent.name == ".zed" else key: servers}))
    return path


def discovered(folder: Path, *own: Path, **environ: str) -> Configuration:
    return discover(candidates(str(folder), environ, [str(path) for path in own]))


def test_every_file_is_read_nearest_first_up_to_the_repositorys_root(home: Path) -> None:
    root, inner, count = home / "repo", home / "repo" / "a" / "b", len(PROJECT_FILES)
    (root / ".git").mkdir(parents=True)
    for number, name in enumerate(PROJECT_FILES):
        define(inner / name, f"inner{number}", "same")
        define(root / name, f"root{number}", "same")
    define(home / "mcp.json", "above")
    own = define(home / "cfg" / "mcp.json", "own", "same")
    configuration = discovered(inner, own)
    assert list(configuration.servers) == [
        "inner0", "same", *(f"inner{n}" for n in range(1, count)), *(f"root{n}" for n in range(count)), "own",
    ]  # fmt: skip
    nearest = configuration.definitions["same"]
    assert PROJECT_FILES[:2] == (".dispatch/mcp.json", "mcp.json")
    assert (nearest.source.file, nearest.source.scope) == (str(inner / PROJECT_FILES[0]), "project")
    files = [*(inner / name for name in PROJECT_FILES[1:]), *(root / name for name in PROJECT_FILES), own]
    assert [server.source.file for server in configuration.shadowed["same"]] == list(map(str, files))
    assert configuration.definitions["own"].source.scope == "user"
    assert configuration.problems == ()


def test_a_projects_servers_belong_to_its_folder_also_from_a_file_below_it(home: Path) -> None:
    for number, name in enumerate(PROJECT_FILES):
        define(home / "p" / name, f"s{number}")
    servers = discovered(home / "p").definitions
    assert {one.source.folder for one in servers.values()} == {str(home / "p")}
    assert len(servers) == len(PROJECT_FILES)


@pytest.mark.parametrize("name", [*PROJECT_FILES, ".claude/mcp.json", ".amazonq/agents/x.json"])
def test_a_named_file_of_any_host_belongs_to_its_project_too(home: Path, name: str) -> None:
    file = define(home / "other" / name, "a", args=["tools/server.py", "${workspaceFolder}/x"], cwd="sub")
    source = ConfigurationWatch(str(home)).named(file)
    assert (source.scope, source.folder) == ("named", str(home / "other"))
    if file.suffix != ".toml":
        server = cast("ServerDefinition", read_each(source)["a"])
        folder = str(home / "other") if "/" in name else "/notebooks"
        assert expand(server, Lookup("/notebooks")).args == ("tools/server.py", f"{folder}/x")
        assert adopted(server).cwd == str(home / "other" / "sub")


def test_home_is_no_project_for_the_files_of_hosts_in_it(home: Path) -> None:
    file = define(home / ".cursor" / "mcp.json", "a")
    assert ConfigurationWatch("/").named(file).folder == str(home / ".cursor")


def test_a_file_with_only_other_settings_of_its_host_is_no_problem(home: Path) -> None:
    for name, text in {
        ".zed/settings.json": '{"theme": "One", "mcp": {"allowed": ["a"]}}',
        ".gemini/settings.json": '{"mcp": {"allowed": ["a"]}, "ui": {"url": "x", "command": "y"}}',
        ".codex/config.toml": 'model = "x"\n[mcp]\ncommand = "y"',
        "opencode.jsonc": '{"model": "x", /* none */}',
    }.items():
        (home / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "p" / name).write_text(text)
    configuration = discovered(home / "p")
    assert (configuration.servers, configuration.problems) == ({}, ())


@pytest.mark.parametrize(
    ("name", "text", "is_said"),
    [
        ("librechat.yaml", "version: 1\nmcpServers:\n  a:\n    command: x\n", True),
        ("librechat.yaml", "version: 1\n# mcpServers:\n", False),
        (".goose/config.yaml", "extensions:\n  a: {cmd: x}\n", True),
        (".continue/config.yaml", "mcpServers:\n  - name: a\n", True),
        (".continue/mcpServers/a.yaml", "name: a\n", True),
        (".continue/mcpServers/a.txt", "name: a\n", False),
    ],
)
def test_a_yaml_file_with_servers_is_said_to_be_there_and_not_read(
    home: Path, name: str, text: str, is_said: bool
) -> None:
    file = home / "p" / name
    file.parent.mkdir(parents=True)
    file.write_text(text)
    place = file.parent if file.parent.name == "mcpServers" else file
    hint = "write its servers as JSON, or add each: %mcp config add NAME -- COMMAND ARG…"
    said = (f"{place} is there; ipymcp does not read YAML · {hint}",) if is_said else ()
    configuration = discovered(home / "p")
    assert (configuration.unread, configuration.errors) == (said, ())
    if file.suffix == ".yaml":
        assert refused(ConfigError, read_each, ConfigurationWatch("/").named(file)) == (
            f"{file}: is YAML, which ipymcp does not read", hint
        )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = \nb = 1", ", line 1, column 5: not TOML: Invalid value"),
        ('a = "x', ": not TOML: Unterminated string"),
        ("a = 1\na = 2\n", ", line 2, column 6: not TOML: Cannot overwrite a value"),
        ("a = " + "[" * 5_000, ": nested too deeply"),
        ("a." * 64 + "b = 1", ": is too large to be read as TOML"),
        ('"a" . ' * 64 + "b = 1", ": is too large to be read as TOML"),
        ("#" * 200_001, ": is too large to be read as TOML"),
    ],
)
def test_invalid_toml_is_a_problem_that_names_the_place(home: Path, text: str, message: str) -> None:
    file = home / "p" / ".codex" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    [problem] = discovered(home / "p").problems
    assert str(problem) == f"{file}{message}"


def test_definitions_that_mean_the_same_are_one_silently(home: Path) -> None:
    folder, remote = home / "p", {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${T}"}}
    documents = {
        "mcp.json": {"mcpServers": {"local": {"command": "x", "args": ["${workspaceFolder}/a"]}, "remote": remote}},
        ".vscode/mcp.json": {
            "servers": {
                "local": {"type": "stdio", "command": "x", "args": ["./a"], "cwd": ".", "dev": {"watch": "*"}},
                "remote": {**remote, "type": "http", "headers": {"Authorization": "Bearer ${env:T}"}},
            }
        },
        "opencode.json": {
            "mcp": {
                "local": {"type": "local", "command": ["x", "${workspaceFolder}/b"]},
                "remote": {"type": "remote", "url": "https://h/mcp", "headers": {"Authorization": "Bearer {env:T}"}},
            }
        },
        ".roo/mcp.json": {"mcpServers": {"local": {"command": "x", "args": ["${workspaceFolder}/b"]}}},
    }
    for name, document in documents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(document))
    configuration = discovered(folder)
    [other] = configuration.shadowed["local"]
    assert list(configuration.shadowed) == ["local"]
    assert other.source.file == f"{folder}/opencode.json"
    own = home / "cfg" / "mcp.json"
    own.parent.mkdir()
    own.write_text(json.dumps({"mcpServers": {"remote": remote}}))  # another owner: other rights and logins
    assert [one.source.file for one in discovered(folder, own).shadowed["remote"]] == [str(own)]


def test_the_home_folder_is_not_a_project_and_ends_the_search(home: Path) -> None:
    define(home / ".mcp.json", "other")
    define(home.parent / ".mcp.json", "above")
    (home / "deep" / "er").mkdir(parents=True)
    assert discovered(home).servers == discovered(home / "deep" / "er").servers == {}


def test_the_search_ends_at_the_boundary_of_a_file_system(home: Path) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == Path("/dev").stat().st_dev:
        pytest.skip("needs a file system of its own")
    folders = list(config_files.project_folders(str(shared)))
    assert folders == [str(shared)]


def test_a_named_file_comes_before_all_others(home: Path) -> None:
    define(home / "p" / "mcp.json", "same", "a")
    define(home / "x" / "named.json", "same", "b")
    configuration = discovered(home / "p", IPYMCP_CONFIG="../x/named.json")
    assert list(configuration.servers) == ["same", "b", "a"]
    assert configuration.definitions["same"].source.scope == "named"


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ("/no/such.json", "/no/such.json: no such file"),
        ("named.json", "{home}/p/named.json, line 1, column 2: not JSON: "),
        (".", "{home}/p: is a folder"),
    ],
)
def test_a_named_file_that_cannot_be_read_is_a_problem_and_the_others_are_read(
    home: Path, named: str, message: str
) -> None:
    define(home / "p" / "mcp.json", "a")
    (home / "p" / "named.json").write_text("{")
    configuration = discovered(home / "p", IPYMCP_CONFIG=named)
    assert list(configuration.servers) == ["a"]
    [problem] = configuration.problems
    assert str(problem).startswith(f"IPYMCP_CONFIG: {message.format(home=home)}")
    if named == "/no/such.json":
        assert str(problem) == "IPYMCP_CONFIG: /no/such.json: no such file"
        assert problem.hint == "fix or unset the variable; the other files are read"


def test_without_files_there_are_no_servers_and_no_problems(home: Path) -> None:
    (home / "p").mkdir()
    assert discovered(home / "p", home / "cfg" / "mcp.json") == Configuration({}, {}, (), ())


def test_a_broken_file_is_a_problem_and_the_others_are_read(home: Path) -> None:
    folder = home / "p"
    define(folder / "mcp.json", "good")
    (folder / ".mcp.json").write_text('{"mcpServers": ')
    (folder / ".vscode").write_text("a file where a folder is looked for")
    (folder / ".cursor" / "mcp.json").mkdir(parents=True)
    (folder / "opencode.json").write_text('{"model": "x"}')
    os.symlink("nowhere", folder / ".jupyter")
    configuration = discovered(folder)
    assert list(configuration.servers) == ["good"]
    assert [str(problem) for problem in configuration.problems] == [
        f"{folder}/.mcp.json, line 1, column 16: not JSON: Unexpected end of input",
        f"{folder}/.cursor/mcp.json: is a folder",
    ]


def test_a_file_without_servers_is_a_problem_unless_it_is_empty_or_has_other_uses(home: Path) -> None:
    folder = home / "p"
    folder.mkdir()
    (folder / "mcp.json").write_text('{"theme": "dark"}')
    (folder / ".mcp.json").write_text("{}")
    assert [str(problem) for problem in discovered(folder).problems] == [
        f'{folder}/mcp.json: expected the key "mcpServers", found "theme"'
    ]


def test_an_invalid_definition_still_shadows_farther_ones_of_its_name(home: Path) -> None:
    define(home / "p" / "mcp.json", "fs", args=5)
    own = define(home / "cfg" / "mcp.json", "fs", "other")
    configuration = discovered(home / "p", own)
    assert str(configuration.servers["fs"]) == (
        f"{home}/p/mcp.json: mcpServers.fs.args: expected a list of strings, got 5"
    )
    assert list(configuration.definitions) == ["other"]
    assert [server.source.file for server in configuration.shadowed["fs"]] == [str(own)]


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_ignored_with_a_problem(home: Path) -> None:
    theirs = define(home / "p" / ".mcp.json", "evil")
    mine = define(home / "p" / "mcp.json", "good")
    os.chown(theirs, 54321, 54321)
    configuration = discovered(home / "p")
    assert list(configuration.servers) == ["good"]
    [problem] = configuration.problems
    assert str(problem) == f"{theirs}: ignored: it belongs to another user (uid 54321)"
    assert problem.hint == f"if you wrote it, make it yours; else read it, then %mcp load {theirs}"
    assert [file.path for file in configuration.files] == [mine]


def test_the_users_own_file_in_a_project_has_the_users_scope(home: Path) -> None:
    own = define(home / "p" / "mcp.json", "fs")
    assert discovered(home / "p", own).definitions["fs"].source.scope == "user"


def test_a_projects_definition_of_the_same_name_has_another_digest(home: Path) -> None:
    own = define(home / "cfg" / "mcp.json", "github", args=["x"])
    theirs = define(home / "p" / "mcp.json", "github", args=["x"])
    configuration = discovered(home / "p", own)
    nearest, [farther] = configuration.definitions["github"], configuration.shadowed["github"]
    assert (nearest.source.file, farther.source.file) == (str(theirs), str(own))
    assert digest_of(nearest) != digest_of(farther)


def test_the_digest_covers_the_files_of_the_project_that_are_named(home: Path) -> None:
    folder = home / "p"
    define(folder / ".mcp.json", "a", command="python", args=["server.py", "--config=conf/a.ini"])
    define(folder / "mcp.json", "b", command="python", args=["-m", "tool.main"], env={"F": "${workspaceFolder}/key"})
    names = ("server.py", "conf/a.ini", "tool/main.py", "key", "other.py")
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("1")

    def digests() -> dict[str, str]:
        return {name: digest_of(server) for name, server in discovered(folder).definitions.items()}

    before = digests()
    for name, changed in zip(names, [{"a"}, {"a"}, {"b"}, {"b"}, set()], strict=True):
        (folder / name).write_text("2")
        after = digests()
        assert {server for server in after if after[server] != before[server]} == changed, name
        before = after


def test_a_file_outside_the_project_is_not_part_of_the_digest(home: Path) -> None:
    outside = home / "tool.py"
    outside.write_text("1")
    define(home / "p" / "mcp.json", "a", command="python", args=[str(outside), "../tool.py"])
    before = digest_of(discovered(home / "p").definitions["a"])
    outside.write_text("2")
    assert digest_of(discovered(home / "p").definitions["a"]) == before


# Changes


def test_an_added_changed_or_removed_file_is_reported_once(home: Path) -> None:
    folder, explicit = home / "p", define(home / "x.json", "x")
    define(folder / "mcp.json", "a")
    watch = ConfigurationWatch(str(folder))
    assert watch.changes() == []
    assert list(watch.read().servers)[:1] == ["a"]
    watch.named(explicit)
    assert watch.changes() == []

    define(folder / ".mcp.json", "b")
    define(folder / "mcp.json", "a", "c")
    explicit.unlink()
    assert sorted(watch.changes()) == sorted(
        [
            f"{folder}/mcp.json has changed: %mcp load brings the servers up to date",
            f"{folder}/.mcp.json is new: %mcp load brings the servers up to date",
            f"{explicit} is gone: its servers stay until %mcp unload NAME",
        ]
    )
    assert watch.changes() == []


def test_hints_and_completion_read_the_configuration_again_only_after_a_change(home: Path) -> None:
    folder = home / "p"
    define(folder / "mcp.json", "a")
    watch = ConfigurationWatch(str(folder))
    first = watch.peek()
    assert watch.peek() is first

    define(folder / "mcp.json", "a", "c")
    define(folder / ".mcp.json", "b")
    assert [*watch.peek().servers] == ["a", "c", "b"]
    (folder / "mcp.json").unlink()
    assert [*watch.peek().servers] == ["b"]


# The notebook


def test_the_notebook_file_comes_from_the_front_end_or_the_session_name(home: Path) -> None:
    (home / "a").mkdir()
    (home / "b").mkdir()
    jupyter = {"JPY_SESSION_NAME": f"{home}/a/x.ipynb"}
    assert notebook_file(None, jupyter) == f"{home}/a/x.ipynb"
    assert notebook_file(f"{home}/b/y.ipynb", jupyter) == f"{home}/b/y.ipynb"
    for unusable in ("x.ipynb", "console-1", "/no/such/folder/x.ipynb", "rel/x.ipynb", ""):
        assert notebook_file(None, {"JPY_SESSION_NAME": unusable}) is None


def test_discovery_imports_no_jupyter_and_no_json5_for_plain_files(home: Path) -> None:
    big = home / "one" / "two" / "three" / "four"
    for folder in (big, *list(big.parents)[:3]):
        for name in PROJECT_FILES[:5]:
            servers = (f"{folder.name}-{name}-{number}" for number in range(10))
            define(folder / name, *servers, args=["a"], env={"A": "b"})
    script = (
        "import sys\nfrom ipymcp.config.config_files import candidates, discover\n"
        f"found = discover(candidates({str(big)!r}, {{}}, []))\n"
        "heavy = [name for name in ('json5', 'jupyter_core', 'hashlib') if name in sys.modules]\n"
        "print(len(found.files), len(found.servers), heavy)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "20 200 []\n"

"""The files of a project that a definition's digest covers."""

import json
from pathlib import Path
from typing import Any

import pytest

from ipymcp.config.binding import MAX_SOURCES, Binding, binding
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.redaction import bound_to
from ipymcp.security.trust import digest_of

pytestmark = pytest.mark.posix


def define(folder: Path, **values: Any) -> ServerDefinition:
    source = Source(scope="project", file=str(folder / "mcp.json"), folder=str(folder))
    return ServerDefinition(**{"name": "fs", "command": "node", "source": source, **values})


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("x.js", {"args": ("x.js",)}),
        ("x.js", {"args": ("x",)}),
        ("x.js", {"args": ("${workspaceFolder}/x.js",)}),
        ("x.js", {"args": ("${UNSET_VARIABLE:-./x.js}",)}),
        ("x.js", {"args": ("${DIR}/x.js",), "env": {"DIR": "${workspaceFolder}"}}),
        ("x.js", {"args": ("--require=./x.js", "y")}),
        ("x.js", {"env": {"NODE_OPTIONS": "--no-warnings --require ./x.js"}}),
        ("x.js", {"command": "sh", "args": ("-c", 'cd . && node "x.js"; true')}),
        ("x.tgz", {"command": "npx", "args": ("-y", "file:./x.tgz")}),
        ("sub/x.js", {"cwd": "sub", "args": ("x.js",)}),
        ("sub/x.js", {"cwd": "${workspaceFolder}/sub", "args": ("x.js",)}),
        (".env", {"cwd": "sub", "env_file": ".env"}),
        ("app/index.js", {"args": ("app",)}),
        ("app/package.json", {"args": ("app/",)}),
        ("app/__main__.py", {"command": "python3", "args": ("app",)}),
        ("mod.py", {"command": "python", "args": ("-m", "mod")}),
        ("pkg/__init__.py", {"command": "python", "args": ("-u", "-m", "pkg.sub")}),
        ("pkg/sub/__main__.py", {"command": "uv", "args": ("run", "python", "-Bm", "pkg.sub")}),
        ("pkg/sub.py", {"command": "python", "args": ("-mpkg.sub",)}),
        ("bin/tool", {"command": "./bin/tool"}),
        ("bin/tool", {"command": "bin/../bin/tool"}),
        ("sub/x.sh", {"command": "sh", "args": ("-c", "cd sub && ./x.sh")}),
        ("a/b/x.sh", {"command": "sh", "args": ("-c", "cd a; cd b; ./x.sh")}),
        ("x.sh", {"command": "sh", "args": ("-c", "$PWD/x.sh")}),
        ("x.sh", {"command": "sh", "args": ("-c", '"$(pwd)"/x.sh')}),
        ("x.sh", {"command": "sh", "args": ("-c", "./x''.sh")}),
        ("x.sh", {"command": "sh", "args": ("-c", "$'\\x2e/x.sh'")}),
        ("x.sh", {"command": "sh", "args": ("-c", "D=.; $D/x.sh")}),
        ("x.sh", {"command": "sh", "args": ("-c", "sh -c 'sh -c \"./x.sh\"'")}),
        ("a b.sh", {"command": "sh", "args": ("-c", "./a\\ b.sh")}),
        ("x.sh", {"command": "sh", "args": ("-c", "./?.s*")}),
        ("deep/x.sh", {"command": "sh", "args": ("-c", "eval $(cat where)")}),
        ("deep/x.js", {"args": ("-e", "require(String.fromCharCode(46) + '/deep/x')")}),
        ("src/mod.py", {"command": "python", "args": ("-m", "mod"), "env": {"PYTHONPATH": "src"}}),
        ("src/other.py", {"command": "python", "args": ("-m", "mod"), "env": {"PYTHONPATH": "src"}}),
        ("src/mod.py", {"command": "env", "args": ("PYTHONPATH=src", "python", "-m", "mod")}),
        ("bin/uvx", {"command": "uvx", "args": ("x",), "env": {"PATH": "${workspaceFolder}/bin:${PATH}"}}),
        ("mk/Makefile", {"command": "make", "args": ("-C", "mk")}),
        ("mk/Makefile", {"command": "make", "args": ("-Cmk", "run")}),
        ("server/main.py", {"command": "uv", "args": ("--directory", "server", "run", "main.py")}),
        ("server/main.py", {"command": "uv", "args": ("--directory=server", "run", "main.py")}),
        ("server/pyproject.toml", {"command": "uv", "args": ("--directory", "server", "run", "serve")}),
        ("server/src/serve/app.py", {"command": "uv", "args": ("--directory", "server", "run", "serve")}),
        ("package.json", {"command": "npx", "args": ("-y", "x")}),
        ("node_modules/.bin/x", {"command": "npx", "args": ("-y", "x")}),
        ("lib/other.js", {"command": "npx", "args": ("./lib",)}),
        ("lib/other.js", {"command": "npx", "args": ("-y", "file:./lib")}),
        ("lib/other.js", {"command": "npx", "args": ("--yes", "--package=./lib", "serve")}),
        ("lib/other.js", {"command": "npx", "args": ("--registry", "https://r.example", "-p", "./lib", "serve")}),
        ("lib/other.js", {"command": "npm", "args": ("exec", "--", "./lib")}),
        ("lib/other.js", {"command": "pnpm", "args": ("dlx", "./lib")}),
        ("lib/other.js", {"command": "yarn", "args": ("dlx", "-p", "./lib", "serve")}),
        ("lib/other.js", {"command": "bunx", "args": ("./lib",)}),
        ("lib/other.js", {"command": "bun", "args": ("x", "./lib")}),
        ("src/mod.py", {"command": "uvx", "args": ("--from", "./src", "serve")}),
        ("src/mod.py", {"command": "uvx", "args": ("./src",)}),
        ("src/mod.py", {"command": "uvx", "args": ("--python", "3.12", "--with-editable", "./src[extra]", "serve")}),
        ("src/mod.py", {"command": "uv", "args": ("tool", "run", "--from", ".", "serve")}),
        ("src/mod.py", {"command": "uv", "args": ("run", "--with", "./src", "python", "-m", "pkg")}),
        ("src/mod.py", {"command": "uv", "args": ("run", "--with-editable=./src", "serve")}),
        ("src/mod.py", {"command": "pipx", "args": ("run", "--spec", "src", "serve")}),
        ("src/mod.py", {"command": "sh", "args": ("-c", "pip install ./src && serve")}),
        ("src/mod.py", {"command": "sh", "args": ("-c", "pip install -q -e ./src && serve")}),
        ("sub/start", {"command": "docker", "args": ("run", "-i", "--rm", "-v", "./sub:/s", "alpine", "/s/start")}),
        ("sub/start", {"command": "docker", "args": ("run", "-v${workspaceFolder}/sub:/s:ro", "alpine", "/s/start")}),
        ("sub/start", {"command": "podman", "args": ("run", "--volume=./sub:/s", "-w", "/s", "alpine", "sh", "start")}),
        (
            "sub/start",
            {"command": "docker", "args": ("run", "--mount", "type=bind,src=./sub,dst=/s", "alpine", "/s/start")},
        ),
        ("server.sh", {"command": "docker", "args": ("compose", "run", "server")}),
        ("server.sh", {"command": "make", "args": ("serve",)}),
        ("link/x.sh", {"command": "env", "args": ("-C", "link", "./x.sh")}),
    ],
    ids=str,
)
def test_a_file_that_a_definition_names_is_a_part_of_it(tmp_path: Path, file: str, values: dict[str, Any]) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path / file, "one")
    before = digest_of(define(tmp_path, **values))
    write(tmp_path / file, "other")
    assert digest_of(define(tmp_path, **values)) != before


def test_a_link_counts_as_what_it_leads_to_also_outside_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("harmless.js", "harmful.js"):
        (tmp_path / name).write_text(name)
    link = project / "server.js"
    link.symlink_to(tmp_path / "harmless.js")
    before = digest_of(define(project, args=("server.js",)))
    link.unlink()
    link.symlink_to(tmp_path / "harmful.js")
    after = digest_of(define(project, args=("server.js",)))
    assert after != before
    (tmp_path / "harmful.js").write_text("changed")
    assert digest_of(define(project, args=("server.js",))) != after


@pytest.mark.parametrize(
    ("file", "package", "values"),
    [
        ("pkg/lib/a.js", {"main": "lib/a"}, {"args": ("pkg",)}),
        ("pkg/b.js", {"bin": {"b": "./b.js"}}, {"command": "npm", "args": ("--prefix", "pkg", "exec", "b")}),
        ("pkg/c.js", {"scripts": {"start": "node c.js"}}, {"command": "npm", "args": ("--prefix=pkg", "start")}),
    ],
)
def test_the_entry_point_of_a_package_is_a_part_of_the_digest(
    tmp_path: Path, file: str, package: dict[str, Any], values: dict[str, Any]
) -> None:
    write(tmp_path / "pkg" / "package.json", json.dumps(package))
    write(tmp_path / file, "one")
    before = digest_of(define(tmp_path, **values))
    write(tmp_path / file, "other")
    assert digest_of(define(tmp_path, **values)) != before


def test_what_an_env_file_names_is_a_part_of_it(tmp_path: Path) -> None:
    write(tmp_path / ".env", "RUNNER=./x.sh\nBASH_ENV=./sub/y.sh\n")
    values = {"command": "bash", "args": ("-c", "$RUNNER"), "env_file": ".env"}
    for name in ("x.sh", "sub/y.sh"):
        write(tmp_path / name, "one")
    for name in ("x.sh", "sub/y.sh"):
        before = digest_of(define(tmp_path, **values))
        write(tmp_path / name, "other")
        assert digest_of(define(tmp_path, **values)) != before


def test_a_path_from_home_and_one_above_the_files_folder_lead_into_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project" / ".git").mkdir(parents=True)
    write(tmp_path / "project" / "x.sh", "one")
    inner = tmp_path / "project" / "sub"
    inner.mkdir()
    for command in ("exec ~/project/x.sh", "exec $HOME/project/x.sh", "exec ../x.sh"):
        found = binding(define(inner, command="sh", args=("-c", command))).files
        assert found == (tmp_path / "project" / "x.sh",)


def test_a_file_that_comes_into_a_folder_of_programs_is_a_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    values = {"command": "uvx", "args": ("x",), "env": {"PATH": "bin"}}
    before = digest_of(define(tmp_path, **values))
    write(tmp_path / "bin" / "git", "#!/bin/sh")
    (tmp_path / "bin" / "git").chmod(0o755)
    assert digest_of(define(tmp_path, **values)) != before


def test_where_there_is_too_much_to_bind_it_is_said(tmp_path: Path) -> None:
    for number in range(MAX_SOURCES + 1):
        write(tmp_path / f"m{number}.py", "")
    one = define(tmp_path, command="sh", args=("-c", "eval $X; ./m1.py"))
    assert binding(one) == Binding((tmp_path / "m1.py",), is_whole=False)
    assert bound_to(one) == "m1.py; what else it runs can change"
    assert binding(define(tmp_path, args=tuple("abc" for _ in range(30_000)))).is_whole is False


def test_where_code_may_run_something_else_it_is_said(tmp_path: Path) -> None:
    write(tmp_path / "a.py", "")
    write(tmp_path / "payload.txt", "")
    code = "exec(open('pay' + 'load.txt').read())"
    assert bound_to(define(tmp_path, command="python", args=("-c", code))) == "a.py; what else it runs can change"


@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("docker", ("run", "-i", "-v", "./sub:/s", "alpine", "/s/start")),
        ("docker", ("run", "-i", "--mount=type=bind,source=${workspaceFolder},target=/w", "image")),
        ("podman", ("run", "-i", "--volume", ".:/w", "image")),
        ("docker", ("compose", "run", "server")),
        ("make", ("start",)),
        ("npx", (".",)),
        ("pnpm", ("dlx", ".")),
        ("uv", ("tool", "run", "--from", ".", "serve")),
        ("uv", ("run", "--with", ".", "python", "start")),
        ("uvx", ("--with-requirements", "requirements.txt", "serve")),
    ],
)
def test_more_than_the_named_files_of_a_large_project_can_change(
    tmp_path: Path, command: str, args: tuple[str, ...]
) -> None:
    for number in range(MAX_SOURCES + 1):
        write(tmp_path / f"m{number}.py", "")
    for file in ("sub/start", "start", "package.json", "compose.yaml", "pyproject.toml"):
        write(tmp_path / file, "{}")
    write(tmp_path / "requirements.txt", "requests\n-e .\n")
    assert bound_to(define(tmp_path, command=command, args=args)).endswith("; what else it runs can change")


def test_a_folder_of_data_is_no_package(tmp_path: Path) -> None:
    write(tmp_path / "data" / "x.py", "")
    for command, args in (
        ("npx", ("-y", "server-files", "./data")),
        ("uvx", ("--python", "3.12", "server-files", "./data")),
        ("uv", ("tool", "run", "server-files", "./data")),
        ("pnpm", ("dlx", "server-files", "./data")),
    ):
        assert binding(define(tmp_path, command=command, args=args)) == Binding()


def test_what_runs_nothing_here_is_bound_to_nothing(tmp_path: Path) -> None:
    write(tmp_path / "x.sh", "")
    assert bound_to(define(tmp_path, command=None, url="https://x.example/x.sh")) == ""
    assert bound_to(define(tmp_path, command="uvx", args=("x",))) == "any file: what it runs can change"


def test_other_files_are_no_part_of_it(tmp_path: Path) -> None:
    values = {"command": "uvx", "args": ("server-files", ".")}
    before = digest_of(define(tmp_path, **values))
    write(tmp_path / "server.py", "")
    write(tmp_path / "notes.txt", "text")
    assert digest_of(define(tmp_path, **values)) == before

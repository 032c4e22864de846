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


def define(folder: Path, command: str | None, *args: str, **values: Any) -> ServerDefinition:
    source = Source(scope="project", file=str(folder / "mcp.json"), folder=str(folder))
    return ServerDefinition(name="fs", command=command, args=args, source=source, **values)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def assert_digest_covers(folder: Path, file: str, command: str, *args: str, **values: Any) -> None:
    write(folder / file, "one")
    before = digest_of(define(folder, command, *args, **values))
    write(folder / file, "other")
    assert digest_of(define(folder, command, *args, **values)) != before


COMMANDS = {
    "x.js": [
        *("node x.js", "node x", "node ${workspaceFolder}/x.js", "node ${UNSET_VARIABLE:-./x.js}"),
        "node --require=./x.js y",
    ],
    "x.tgz": ["npx -y file:./x.tgz"],
    "app/index.js": ["node app"],
    "app/package.json": ["node app/"],
    "app/__main__.py": ["python3 app"],
    "mod.py": ["python -m mod"],
    "pkg/__init__.py": ["python -u -m pkg.sub"],
    "pkg/sub/__main__.py": ["uv run python -Bm pkg.sub"],
    "pkg/sub.py": ["python -mpkg.sub"],
    "bin/tool": ["./bin/tool", "bin/../bin/tool"],
    "src/mod.py": [
        *("env PYTHONPATH=src python -m mod", "uvx --from ./src serve", "uvx ./src"),
        *("uvx --python 3.12 --with-editable ./src[extra] serve", "uv tool run --from . serve"),
        *("uv run --with ./src python -m pkg", "uv run --with-editable=./src serve", "pipx run --spec src serve"),
    ],
    "mk/Makefile": ["make -C mk", "make -Cmk run"],
    "server/main.py": ["uv --directory server run main.py", "uv --directory=server run main.py"],
    "server/pyproject.toml": ["uv --directory server run serve"],
    "server/src/serve/app.py": ["uv --directory server run serve"],
    "package.json": ["npx -y x"],
    "node_modules/.bin/x": ["npx -y x"],
    "lib/other.js": [
        *("npx ./lib", "npx -y file:./lib", "npx --yes --package=./lib serve"),
        *("npx --registry https://r.example -p ./lib serve", "npm exec -- ./lib", "pnpm dlx ./lib"),
        *("yarn dlx -p ./lib serve", "bunx ./lib", "bun x ./lib"),
    ],
    "sub/start": [
        "docker run -i --rm -v ./sub:/s alpine /s/start",
        "docker run -v${workspaceFolder}/sub:/s:ro alpine /s/start",
        "podman run --volume=./sub:/s -w /s alpine sh start",
        "docker run --mount type=bind,src=./sub,dst=/s alpine /s/start",
    ],
    "server.sh": ["docker compose run server", "make serve"],
    "link/x.sh": ["env -C link ./x.sh"],
}
"""Command lines by a file that they name."""
SHELL_LINES = {
    "x.js": ['cd . && node "x.js"; true'],
    "sub/x.sh": ["cd sub && ./x.sh"],
    "a/b/x.sh": ["cd a; cd b; ./x.sh"],
    "x.sh": [
        *("$PWD/x.sh", '"$(pwd)"/x.sh', "./x''.sh", "$'\\x2e/x.sh'", "D=.; $D/x.sh", "sh -c 'sh -c \"./x.sh\"'"),
        "./?.s*",
    ],
    "a b.sh": ["./a\\ b.sh"],
    "deep/x.sh": ["eval $(cat where)"],
    "src/mod.py": ["pip install ./src && serve", "pip install -q -e ./src && serve"],
}
"""Lines for `sh -c` by a file that they name."""


@pytest.mark.parametrize(
    ("file", "command", "values"),
    [
        *((file, tuple(line.split()), {}) for file, lines in COMMANDS.items() for line in lines),
        *((file, ("sh", "-c", line), {}) for file, lines in SHELL_LINES.items() for line in lines),
        ("deep/x.js", ("node", "-e", "require(String.fromCharCode(46) + '/deep/x')"), {}),
        ("x.js", ("node", "${DIR}/x.js"), {"env": {"DIR": "${workspaceFolder}"}}),
        ("x.js", ("node",), {"env": {"NODE_OPTIONS": "--no-warnings --require ./x.js"}}),
        ("sub/x.js", ("node", "x.js"), {"cwd": "sub"}),
        ("sub/x.js", ("node", "x.js"), {"cwd": "${workspaceFolder}/sub"}),
        (".env", ("node",), {"cwd": "sub", "env_file": ".env"}),
        ("src/mod.py", ("python", "-m", "mod"), {"env": {"PYTHONPATH": "src"}}),
        ("src/other.py", ("python", "-m", "mod"), {"env": {"PYTHONPATH": "src"}}),
        ("bin/uvx", ("uvx", "x"), {"env": {"PATH": "${workspaceFolder}/bin:${PATH}"}}),
    ],
    ids=str,
)
def test_the_digest_covers_the_files_that_a_definition_names(
    tmp_path: Path, file: str, command: tuple[str, ...], values: dict[str, Any]
) -> None:
    (tmp_path / "sub").mkdir()
    assert_digest_covers(tmp_path, file, *command, **values)


def test_the_digest_covers_the_target_of_a_link_also_outside_the_project(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("harmless.js", "harmful.js"):
        (tmp_path / name).write_text(name)
    link = project / "server.js"
    link.symlink_to(tmp_path / "harmless.js")
    before = digest_of(define(project, "node", "server.js"))
    link.unlink()
    link.symlink_to(tmp_path / "harmful.js")
    after = digest_of(define(project, "node", "server.js"))
    assert after != before
    (tmp_path / "harmful.js").write_text("changed")
    assert digest_of(define(project, "node", "server.js")) != after


@pytest.mark.parametrize(
    ("file", "package", "command"),
    [
        ("pkg/lib/a.js", {"main": "lib/a"}, ("node", "pkg")),
        ("pkg/b.js", {"bin": {"b": "./b.js"}}, ("npm", "--prefix", "pkg", "exec", "b")),
        ("pkg/c.js", {"scripts": {"start": "node c.js"}}, ("npm", "--prefix=pkg", "start")),
    ],
)
def test_the_digest_covers_the_entry_point_of_a_package(
    tmp_path: Path, file: str, package: dict[str, Any], command: tuple[str, ...]
) -> None:
    write(tmp_path / "pkg" / "package.json", json.dumps(package))
    assert_digest_covers(tmp_path, file, *command)


def test_the_digest_covers_files_that_an_env_file_names(tmp_path: Path) -> None:
    write(tmp_path / ".env", "RUNNER=./x.sh\nBASH_ENV=./sub/y.sh\n")
    for name in ("x.sh", "sub/y.sh"):
        assert_digest_covers(tmp_path, name, "bash", "-c", "$RUNNER", env_file=".env")


def test_a_path_from_home_and_one_above_the_files_folder_lead_into_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "project" / ".git").mkdir(parents=True)
    write(tmp_path / "project" / "x.sh", "one")
    inner = tmp_path / "project" / "sub"
    inner.mkdir()
    for command in ("exec ~/project/x.sh", "exec $HOME/project/x.sh", "exec ../x.sh"):
        assert binding(define(inner, "sh", "-c", command)).files == (tmp_path / "project" / "x.sh",)


def test_the_digest_covers_a_program_added_to_a_folder_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    before = digest_of(define(tmp_path, "uvx", "x", env={"PATH": "bin"}))
    write(tmp_path / "bin" / "git", "#!/bin/sh")
    (tmp_path / "bin" / "git").chmod(0o755)
    assert digest_of(define(tmp_path, "uvx", "x", env={"PATH": "bin"})) != before


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder with more files than can be bound."""
    for number in range(MAX_SOURCES + 1):
        write(tmp_path / f"m{number}.py", "")
    return tmp_path


CAN_CHANGE = "what else it runs can change after you agree"


def test_a_definition_in_a_folder_of_too_many_files_is_bound_in_part(large: Path) -> None:
    definition = define(large, "sh", "-c", "eval $X; ./m1.py")
    assert binding(definition) == Binding((large / "m1.py",), is_whole=False)
    assert bound_to(definition) == f"m1.py; {CAN_CHANGE}"
    assert binding(define(large, "node", *("abc" for _ in range(30_000)))).is_whole is False


def test_code_that_may_run_other_files_is_bound_in_part(tmp_path: Path) -> None:
    write(tmp_path / "a.py", "")
    write(tmp_path / "payload.txt", "")
    code = "exec(open('pay' + 'load.txt').read())"
    assert bound_to(define(tmp_path, "python", "-c", code)) == f"a.py; {CAN_CHANGE}"


@pytest.mark.parametrize(
    "command",
    [
        ("docker", "run", "-i", "-v", "./sub:/s", "alpine", "/s/start"),
        ("docker", "run", "-i", "--mount=type=bind,source=${workspaceFolder},target=/w", "image"),
        ("podman", "run", "-i", "--volume", ".:/w", "image"),
        ("docker", "compose", "run", "server"),
        ("make", "start"),
        ("npx", "."),
        ("pnpm", "dlx", "."),
        ("uv", "tool", "run", "--from", ".", "serve"),
        ("uv", "run", "--with", ".", "python", "start"),
        ("uvx", "--with-requirements", "requirements.txt", "serve"),
    ],
    ids=" ".join,
)
def test_more_than_the_named_files_of_a_large_project_can_change(large: Path, command: tuple[str, ...]) -> None:
    for file in ("sub/start", "start", "package.json", "compose.yaml", "pyproject.toml"):
        write(large / file, "{}")
    write(large / "requirements.txt", "requests\n-e .\n")
    assert bound_to(define(large, *command)).endswith(f"; {CAN_CHANGE}")


def test_a_folder_of_data_is_not_a_package(tmp_path: Path) -> None:
    write(tmp_path / "data" / "x.py", "")
    for command in (
        ("npx", "-y", "server-files", "./data"),
        ("uvx", "--python", "3.12", "server-files", "./data"),
        ("uv", "tool", "run", "server-files", "./data"),
        ("pnpm", "dlx", "server-files", "./data"),
    ):
        assert binding(define(tmp_path, *command)) == Binding()


def test_a_remote_server_is_bound_to_nothing_and_a_package_to_no_file(tmp_path: Path) -> None:
    write(tmp_path / "x.sh", "")
    assert bound_to(define(tmp_path, None, url="https://x.example/x.sh")) == ""
    assert bound_to(define(tmp_path, "uvx", "x")) == "no file"


def test_the_digest_does_not_cover_other_files(tmp_path: Path) -> None:
    before = digest_of(define(tmp_path, "uvx", "server-files", "."))
    write(tmp_path / "server.py", "")
    write(tmp_path / "notes.txt", "text")
    assert digest_of(define(tmp_path, "uvx", "server-files", ".")) == before

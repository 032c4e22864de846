"""Files are read and written by one module: regular files within a limit, never through a link, atomically."""

import ast
import functools
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ipymcp
from ipymcp.files import (
    PRIVATE,
    SHARED,
    UnreadableFile,
    create_file,
    make_private_folder,
    open_lock,
    read_file,
    read_problem,
    write_file,
)

pytestmark = pytest.mark.posix

PACKAGE = Path(ipymcp.__file__).parent
WRITERS = {
    *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "rename", "replace", "renames", "link", "symlink"),
    *("symlink_to", "hardlink_to", "mkstemp", "mktemp", "NamedTemporaryFile", "TemporaryFile", "fdopen", "copy"),
    *("copyfile", "copy2", "copytree", "move", "truncate", "mkfifo", "mknod"),
}
OWNERS = ("os", "shutil", "tempfile", "io", "codecs")
READERS = {
    ("config/config_files.py", "os.open(file.parent, os.O_RDONLY)"),  # a folder, to lock it
    ("storage/secrets.py", "path.read_bytes()"),  # the key, in a folder of the user's alone
}
"""Calls of other modules that open a file, besides `/proc` and the package's own files."""
ALLOWED = {("protocol/transports/network.py", "os.open(os.devnull, os.O_RDWR)")}


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@functools.cache
def all_calls() -> list[tuple[str, ast.Call]]:
    """The calls of the package outside of `files.py`, with their files."""
    return [
        (str(file.relative_to(PACKAGE)), call)
        for file in PACKAGE.rglob("*.py")
        if file != PACKAGE / "files.py"
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
    ]


def calls(matches: Callable[[ast.Call], bool]) -> set[tuple[str, str]]:
    return {(file, ast.unparse(call)) for file, call in all_calls() if matches(call)}


def writes(call: ast.Call) -> bool:
    """Whether a call creates, replaces or opens a file to write it."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = call.func.value.id if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) else ""
    if owner == "os" and name == "open":
        return any(flag in ast.unparse(call) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"))
    if name == "open":
        modes = [*call.args[: 1 if isinstance(call.func, ast.Attribute) and owner not in OWNERS else 2]]
        modes += [word.value for word in call.keywords if word.arg == "mode"]
        return any(
            isinstance(mode, ast.Constant) and isinstance(mode.value, str) and set(mode.value) & set("wax+")
            for mode in modes[-1:]
        )
    if name in ("replace", "rename", "copy", "link", "move", "truncate"):
        # A string's replace and a dict's copy are other things: a file's has one argument.
        return owner in OWNERS or (name in ("replace", "rename") and len(call.args) == 1 and not call.keywords)
    return name in WRITERS


def test_no_other_module_writes_a_file() -> None:
    assert calls(writes) == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "open(name, 'w')", "open(name, mode='ab')", "path.open('x')", "path.write_text(a)", "Path(a).write_bytes(b)",
        "os.open(a, os.O_CREAT | os.O_EXCL)", "os.replace(a, b)", "Path(a).replace(b)", "draft.replace(file)",
        "tempfile.mkstemp()", "shutil.copy(a, b)", "os.makedirs(a)",
    ],
)  # fmt: skip
def test_the_check_finds_a_writer(line: str) -> None:
    assert writes(ast.parse(line, mode="eval").body)  # pyright: ignore[reportArgumentType]


def reads(call: ast.Call) -> bool:
    """Whether a call opens a file to read it."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name not in ("open", "read_bytes", "read_text", "fromfile", "memmap"):
        return False
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name == "open":  # other things of the package have a method of that name
        modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        return not owner or owner in OWNERS or any(str(mode).startswith("r") for mode in modes)
    return bool(owner) and len(call.args) < 2


def test_no_other_module_reads_a_file() -> None:
    allowed = re.compile(r"/proc/|_STATIC|__file__|devnull|^files\(")
    assert {(file, text) for file, text in calls(reads) if not allowed.search(text)} == READERS


@pytest.mark.parametrize("line", ["open(name)", "path.open('rb')", "Path(a).read_text()", "os.open(a, os.O_RDONLY)"])
def test_the_check_finds_a_reader(line: str) -> None:
    assert reads(ast.parse(line, mode="eval").body)  # pyright: ignore[reportArgumentType]


def test_only_a_regular_file_within_the_limit_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(file)
    (tmp_path / "endless").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")

    assert read_file(tmp_path / "link", 5) == b"12345"
    reasons: dict[str, str] = {}
    for name, limit in {"file": 4, "endless": 5, "pipe": 5, ".": 5}.items():
        with pytest.raises(UnreadableFile) as caught:
            read_file(tmp_path / name, limit)
        reasons[name] = read_problem(caught.value)
    assert reasons == {
        "file": "is larger than 4 bytes",
        "endless": "is not a regular file",
        "pipe": "is not a regular file",
        ".": "is a folder",
    }
    with pytest.raises(OSError, match="levels of symbolic links"):
        read_file(tmp_path / "link", 5, follow=False)
    with pytest.raises(UnreadableFile, match="belongs to another user"):
        read_file(file, 5, owners=frozenset({os.getuid() + 1}))


@pytest.mark.parametrize("target", ["file", "nothing", "folder", "link"])
def test_a_link_is_refused_and_its_target_stays(tmp_path: Path, target: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "inner").symlink_to(precious)
    link = tmp_path / "mcp.lock"
    link.symlink_to({"file": "precious", "nothing": "new", "folder": "folder", "link": "inner"}[target])
    before = sorted(os.listdir(tmp_path))
    for write in (lambda: write_file(link, "theirs"), lambda: create_file(link, b"theirs")):
        with pytest.raises(OSError, match="it is a link, which ipymcp does not write to"):
            write()
    with pytest.raises(OSError, match=r"Too many levels|is a directory"):
        os.close(open_lock(link))
    assert precious.read_text() == "mine" and sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", ["x.new", "x.tmp", ".x.new"])
def test_a_link_of_a_likely_temporary_name_is_not_written_through(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / name).symlink_to(precious)
    write_file(tmp_path / "x", "new")
    assert precious.read_text() == "mine" and (tmp_path / "x").read_text() == "new"


def test_another_name_of_the_same_file_keeps_its_content(tmp_path: Path) -> None:
    precious, file = tmp_path / "precious", tmp_path / "x"
    precious.write_text("mine")
    os.link(precious, file)
    write_file(file, "new")
    assert (precious.read_text(), file.read_text()) == ("mine", "new")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a regular file"):
        write_file(tmp_path / "pipe", "x")


def test_permissions_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    for name, wanted in (("private", PRIVATE), ("shared", SHARED)):
        write_file(tmp_path / name, "x", wanted)
        assert mode(tmp_path / name) == wanted
    write_file(tmp_path / "data", b"x")
    assert mode(tmp_path / "data") == SHARED & ~umask
    create_file(tmp_path / "state" / "deep" / "key", b"x")
    os.close(open_lock(tmp_path / "state" / "lock"))
    modes = {name: mode(tmp_path / "state" / name) for name in (".", "deep", "deep/key", "lock")}
    assert modes == {".": 0o700, "deep": 0o700, "deep/key": 0o600, "lock": 0o600}


def test_files_and_folders_that_others_may_write_are_made_private(tmp_path: Path) -> None:
    file, folder, shared = tmp_path / "x", tmp_path / "state", tmp_path / "tmp"
    file.write_text("")
    file.chmod(0o666)
    write_file(file, "x", PRIVATE)
    assert mode(file) == 0o644
    for path, bits in ((folder, 0o777), (shared, 0o1777)):
        path.mkdir()
        path.chmod(bits)
        make_private_folder(path)
    assert (mode(folder), mode(shared)) == (0o700, 0o1777)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    with pytest.raises(TypeError):
        write_file(tmp_path / "x", object())  # pyright: ignore[reportArgumentType]
    assert (tmp_path / "x").read_text() == "old" and os.listdir(tmp_path) == ["x"]


def test_half_a_character_is_written_escaped(tmp_path: Path) -> None:
    write_file(tmp_path / "x", "a\ud800b")
    assert (tmp_path / "x").read_text() == "a\\ud800b"

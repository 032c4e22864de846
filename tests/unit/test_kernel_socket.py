"""The announcement of a kernel's socket for views, and its removal."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipymcp.storage.kernel_socket import Announced, announced, is_alive, is_guarded, machine_id, sweep

pytestmark = pytest.mark.posix


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with a listening socket."""
    folder = tmp_path / "ipymcp-x"
    folder.mkdir(mode=0o700)
    before = os.getcwd()
    os.chdir(folder)  # the path may be too long for a socket
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        os.chmod("socket", 0o600)
        listener.listen()
        yield folder
    os.chdir(before)


def write(folder: Path, **changes: Any) -> Path:
    """Write an announcement of this process, with these changes."""
    kernel = {"pid": os.getpid(), "started": time.time(), "socket": "socket", "machine": machine_id()}
    file = folder.parent / "ipymcp-kernel-1.json"
    file.write_text(json.dumps({**kernel, "version": 1, "ipymcp": "0", **changes}))
    file.chmod(0o600)
    return file


@pytest.fixture
def ended() -> int:
    """The id of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def test_only_an_announcement_that_is_private_to_the_user_is_trusted(folder: Path) -> None:
    file = write(folder, socket=str(folder / "socket"), more="of a version to come")
    announcement = announced(file)
    assert announcement is not None and announcement.pid == os.getpid()
    assert is_guarded(announcement) and is_alive(announcement)
    file.chmod(0o640)
    assert announced(file) is None
    file.chmod(0o600)
    link = file.with_name("link.json")
    link.symlink_to(file)
    assert announced(link) is None
    folder.chmod(0o750)
    assert not is_guarded(announcement)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"pid": true}', '{"pid": 1, "started": "x"}', '{"pid": 1, "started": 1, "version": 1}'],
)
def test_another_programs_file_is_neither_trusted_nor_removed(folder: Path, text: str) -> None:
    file = write(folder)
    file.write_text(text)
    assert announced(file) is None
    sweep(file.parent)
    assert file.exists() and folder.exists()


@pytest.mark.parametrize(
    ("changes", "is_removed"), [({}, True), ({"machine": "another pid:[1]"}, False)], ids=["this machine", "another"]
)
def test_only_files_of_an_ended_process_of_this_machine_are_removed(
    folder: Path, ended: int, changes: dict[str, str], is_removed: bool
) -> None:
    file = write(folder, pid=ended, socket=str(folder / "socket"), **changes)
    sweep(file.parent)
    assert (file.exists(), folder.exists()) == (not is_removed, not is_removed)


def test_a_folder_that_does_not_belong_to_ipymcp_is_not_removed(tmp_path: Path, ended: int) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    write(tmp_path / "x", pid=ended, socket=str(precious / "socket"))
    linked = tmp_path / "ipymcp-link"
    linked.symlink_to(precious)
    sweep(tmp_path)
    file = write(tmp_path / "x", pid=ended, socket=str(linked / "socket"))
    sweep(tmp_path)
    assert precious.exists() and not file.exists()


@pytest.mark.parametrize(
    ("socket_file", "expected"), [("nowhere", False), ("socket", True)], ids=["reused pid", "clock was set"]
)
def test_a_process_that_started_at_another_time_is_alive_only_if_it_listens(
    folder: Path, socket_file: str, expected: bool
) -> None:
    assert is_alive(Announced(os.getpid(), 1.0, 1, "0", socket_file, machine_id())) is expected

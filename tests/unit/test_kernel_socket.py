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
    """With a socket that is listened at."""
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
    """A file of this process."""
    kernel = {"pid": os.getpid(), "started": time.time(), "socket": "socket", "machine": machine_id()}
    document = {**kernel, "version": 1, "ipymcp": "0"}
    file = folder.parent / "ipymcp-kernel-1.json"
    file.write_text(json.dumps({**document, **changes}))
    file.chmod(0o600)
    return file


def test_what_is_the_users_alone_is_believed(folder: Path) -> None:
    file = write(folder, socket=str(folder / "socket"), more="of a version to come")
    found = announced(file)
    assert found is not None and found.pid == os.getpid() and is_guarded(found) and is_alive(found)
    file.chmod(0o640)
    assert announced(file) is None
    file.chmod(0o600)
    link = file.with_name("link.json")
    link.symlink_to(file)
    assert announced(link) is None
    folder.chmod(0o750)
    assert not is_guarded(found)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"pid": true}', '{"pid": 1, "started": "x"}', '{"pid": 1, "started": 1, "version": 1}'],
)
def test_what_is_none_of_ours_is_neither_believed_nor_removed(folder: Path, text: str) -> None:
    file = write(folder)
    file.write_text(text)
    assert announced(file) is None
    sweep(file.parent)
    assert file.exists() and folder.exists()


def test_what_a_process_that_is_gone_left_is_swept(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    file = write(folder, pid=gone.pid, socket=str(folder / "socket"))
    sweep(file.parent)
    assert not file.exists() and not folder.exists()


def test_what_another_machine_left_in_a_shared_folder_is_its_own_affair(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    file = write(folder, pid=gone.pid, socket=str(folder / "socket"), machine="another pid:[1]")
    sweep(file.parent)
    assert file.exists() and folder.exists()


def test_a_folder_that_is_not_ours_to_remove_stays(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    precious = tmp_path / "precious"
    precious.mkdir()
    write(tmp_path / "x", pid=gone.pid, socket=str(precious / "socket"))
    linked = tmp_path / "ipymcp-link"
    linked.symlink_to(precious)
    sweep(tmp_path)
    file = write(tmp_path / "x", pid=gone.pid, socket=str(linked / "socket"))
    sweep(tmp_path)
    assert precious.exists() and not file.exists()


def test_a_process_that_came_later_under_that_number_is_another(folder: Path) -> None:
    long_ago = Announced(os.getpid(), 1.0, 1, "0", str(folder / "nowhere"), machine_id())
    assert not is_alive(long_ago)


def test_a_clock_that_was_set_ends_no_kernel_that_listens(folder: Path) -> None:
    assert is_alive(Announced(os.getpid(), 1.0, 1, "0", "socket", machine_id()))

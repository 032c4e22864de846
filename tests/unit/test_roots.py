"""The folders that servers get as roots, as a user names them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ipymcp
from ipymcp import ArgumentError
from ipymcp.runtime.client_handlers import as_roots
from tests.errors import refused

pytestmark = pytest.mark.posix


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my data"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_folder_may_be_a_path_a_uri_or_a_mapping_alone_or_in_any_collection(data: Path) -> None:
    root = {"uri": data.as_uri(), "name": "my data"}
    for named in (str(data), data, "my data", "./my data", f"{data}/", data.as_uri(), root):
        for wrapped in (named, [named], (named,), iter([named])):
            [folder] = as_roots(wrapped)
            assert (folder["uri"].rstrip("/"), folder["name"]) == (root["uri"], "my data"), named
    assert as_roots({"uri": data.as_uri()}) == [{"uri": data.as_uri()}]
    assert as_roots([data, "/"]) == [root, {"uri": "file:///", "name": "/"}]
    assert as_roots([]) == []
    assert as_roots(f"file://localhost{data.as_uri().removeprefix('file://')}")[0]["name"] == "my data"


def test_a_tilde_is_the_home_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(data.parent))
    assert as_roots("~/my data") == [{"uri": data.as_uri(), "name": "my data"}]


def test_anything_but_a_folder_is_refused_with_the_reason(data: Path) -> None:
    cwd = os.getcwd()
    shape = "give a path, {'uri': 'file:///…', 'name': '…'}, or a list of them; None for the usual folders"
    there = f"a relative path starts at {cwd}"
    cases: list[tuple[Any, str, str]] = [
        ("/nowhere/data", "'/nowhere/data' does not exist", there),
        ("\0", "'\\x00' does not exist", there),
        ("\ud800", "'\\ud800' does not exist", there),
        (data / "a.txt", f"'{data / 'a.txt'}' is not a folder", "name the folder that it is in"),
        ((data / "a.txt").as_uri(), f"'{(data / 'a.txt').as_uri()}' is not a folder", "name the folder that it is in"),
        ("file:///nowhere", "'file:///nowhere' does not exist", there),
        (5, "expected folders, got 5", shape),
        ("", "expected folders, got ''", shape),
        (b"/tmp", "expected folders, got b'/tmp'", shape),
        ([None], "expected folders, got None", shape),
        ([["/tmp"]], "expected folders, got ['/tmp']", shape),
        ({"url": "file:///tmp"}, "expected folders, got {'url': 'file:///tmp'}", shape),
        ({"uri": "file:///tmp", "name": 5}, "expected folders, got {'name': 5, 'uri': 'file:///tmp'}", shape),
    ]
    for named, problem, hint in cases:
        for wrapped in (named, [data, named]) if not isinstance(named, list | Mapping) else (named,):
            assert refused(ArgumentError, as_roots, wrapped) == (f"mcp.roots: {problem}", hint), named


@pytest.mark.parametrize(
    "uri", ["http://host/data", "file:data", "file://host/data", "file:///tmp?x", "file:///tmp#x", "file://[", "data:,"]
)
def test_the_uri_of_another_machine_or_scheme_is_refused(data: Path, uri: str) -> None:
    for named in (uri, {"uri": uri}):
        message, _ = refused(ArgumentError, as_roots, named)
        assert message == f"mcp.roots: {uri!r} is not the URI of a folder on this machine"


def test_a_folder_is_added_as_a_whole_and_a_change_of_the_copy_is_refused(data: Path) -> None:
    with ipymcp.connect(roots="my data") as mcp:
        (data / "t").mkdir()
        for more in ("my data/t", Path("my data/t"), ["my data/t"]):
            mcp.roots = "my data"
            mcp.roots += more
            assert [root["name"] for root in mcp.roots] == ["my data", "t"]
        with pytest.raises(ArgumentError, match="'/aa' does not exist"):
            mcp.roots += "/aa"
        for change in (
            lambda: mcp.roots.append("t"),
            lambda: mcp.roots.remove(mcp.roots[0]),
            lambda: mcp.roots.clear(),
        ):
            assert refused(ArgumentError, change) == (
                "mcp.roots: this list is a copy, and a change of it would be lost",
                "add a folder by: mcp.roots += 'data'",
            )

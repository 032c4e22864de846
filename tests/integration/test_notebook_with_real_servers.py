"""Servers from npm and PyPI in one notebook: by magics, as functions, beside each other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests import kernels, real_servers

SERVERS = ("everything", "filesystem", "time", "git")


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kernels.Kernel]:
    """A kernel in a folder with an `servers.json`, its four servers loaded, and a repository."""
    folder = tmp_path_factory.mktemp("notebook")
    servers = real_servers.definitions(SERVERS, folder)
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder / "repository")], check=True)
    with kernels.started("kernel-7", folder) as kernel:
        assert kernel.run("%load_ext ipymcp").status == "ok"
        loaded = kernel.run("%mcp load ./servers.json")
        assert loaded.error is None
        assert "\n".join(display["text/plain"] for display in loaded.displays).splitlines() == [
            "✓ everything: ready, 16 tools",
            "✓ filesystem: ready, 14 tools",
            "✓ time: ready, 2 tools",
            "✓ git: ready, 12 tools",
        ]
        yield kernel


def test_the_table_and_the_tools_are_shown(notebook: kernels.Kernel) -> None:
    table = notebook.run("%mcp").result
    assert table is not None
    assert [line.split() for line in table["text/plain"].splitlines()[2:]] == [
        ["everything", "ready", "2025-11-25", "16", "0"],
        ["filesystem", "ready", "2025-11-25", "14", "0"],
        ["time", "ready", "2026-07-28", "2", "0"],
        ["git", "ready", "2026-07-28", "12", "0"],
    ]
    assert "<table" in table["text/html"]
    tools = notebook.run("%mcp tools time.*").text or ""
    assert "time.convert_time" in tools
    assert "filesystem" not in tools


def test_tools_are_called_by_magics(notebook: kernels.Kernel) -> None:
    notebook.run("r = %mcp call everything.get-sum a=2 b=40")
    assert notebook.run("r.text").text == "'The sum of 2 and 40 is 42.'"
    notebook.run("t = %mcp call time.get_current_time timezone=Europe/Paris")
    assert notebook.run("t['timezone'], t['datetime'][-6:] in ('+01:00', '+02:00')").text == "('Europe/Paris', True)"
    notebook.run("names = ['a', 'b']")
    written = notebook.run(
        "%%mcp call --out w filesystem.write_file\n{'path': 'lines.txt', 'content': '\\n'.join(names)}"
    )
    assert written.error is None
    assert (notebook.folder / "lines.txt").read_text() == "a\nb"


def test_an_image_is_shown(notebook: kernels.Kernel) -> None:
    shown = notebook.run("%mcp call everything.get-tiny-image").result

    assert shown is not None
    assert "image/png" in shown or '<img src="data:image/png;base64,' in shown["text/html"]


def test_tools_are_called_as_functions_and_fill_a_data_frame(notebook: kernels.Kernel) -> None:
    cell = """
import pandas as pd
from ipymcp import mcp
zones = pd.DataFrame({"zone": ["UTC", "Asia/Tokyo", "America/Lima"]})
times = [mcp.time.convert_time("UTC", "12:00", zone)["target"] for zone in zones["zone"]]
list(pd.DataFrame(times)["datetime"].str[-14:-6])
"""
    assert notebook.run(cell).text == "['12:00:00', '21:00:00', '07:00:00']"


def test_calls_are_awaited_side_by_side(notebook: kernels.Kernel) -> None:
    cell = """
import asyncio
answers = await asyncio.gather(
    mcp.everything.echo.aio("one"), mcp.time.get_current_time.aio("UTC"), mcp.git.git_status.aio("repository")
)
[answers[0].text, answers[1]["timezone"], "On branch main" in answers[2].text]
"""
    assert notebook.run(cell).text == "['Echo: one', 'UTC', True]"


def test_what_a_tool_refuses_is_two_lines_that_name_it(notebook: kernels.Kernel) -> None:
    refused = notebook.run("%mcp call filesystem.read_text_file path=/etc/hostname").error

    assert refused is not None
    assert refused.ename == "ToolError"
    first, second = refused.traceback.splitlines()
    assert first.startswith("ToolError: filesystem.read_text_file: Access denied - path outside allowed directories")
    assert second


def test_a_restarted_server_answers_in_its_place(notebook: kernels.Kernel) -> None:
    before = notebook.run("mcp.servers['everything'].pid").text
    assert notebook.run("%mcp restart everything").error is None

    assert notebook.run("mcp.servers['everything'].pid").text != before
    assert notebook.run("mcp.everything.echo('again').text").text == "'Echo: again'"
    assert notebook.run("%mcp logs everything -n 5").error is None

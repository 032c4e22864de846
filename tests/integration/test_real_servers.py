"""Servers of others, from npm and PyPI and on both official SDKs: their tools called, and what comes back."""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from logging.handlers import QueueHandler
from pathlib import Path

import pandas as pd
import pytest

import ipymcp
from ipymcp import ArgumentError, CallCancelled, Mcp, ToolError
from ipymcp.api.stubs import stub
from ipymcp.protocol.types import Progress
from tests import real_servers

LONG = {"duration": 60, "steps": 600}
"""Arguments of a call that outlasts the test, with a progress every 0.1 s."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def mcp(folder: Path) -> Iterator[Mcp]:
    """All ten, started at once."""
    with ipymcp.connect(real_servers.definitions(real_servers.ALL, folder)) as mcp:
        yield mcp


def test_the_table_shows_all_ten(mcp: Mcp) -> None:
    rows = {row["server"]: (row["state"], row["era"], row["tools"]) for row in mcp.servers.table}

    assert rows == {
        "everything": ("ready", "2025-11-25", 16),
        "filesystem": ("ready", "2025-11-25", 14),
        "memory": ("ready", "2025-11-25", 9),
        "sequential": ("ready", "2025-11-25", 1),
        "time": ("ready", "2026-07-28", 2),
        "git": ("ready", "2026-07-28", 12),
        "fetch": ("ready", "2026-07-28", 1),
        "excel": ("ready", "2026-07-28", 46),
        "sdk1": ("ready", "2025-11-25", 13),
        "sdk2": ("ready", "2026-07-28", 13),
    }
    assert all(name in repr(mcp) for name in rows)


def test_every_tool_has_a_signature_and_a_docstring(mcp: Mcp) -> None:
    tools = list(mcp.tools)

    assert len(tools) == 127
    for tool in tools:
        signature = inspect.signature(tool)
        required = tool.input_schema.get("required", [])
        positional = [one for one in signature.parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
        assert len(positional) == len(required), tool
        documentation = inspect.getdoc(type(tool))
        assert documentation is not None
        assert documentation.splitlines()[0].strip()
        for parameter in signature.parameters:
            assert f"{parameter}:" in documentation or f"{parameter} (" in documentation, (tool, parameter)


def test_the_stub_of_all_tools_compiles_and_names_each(mcp: Mcp) -> None:
    servers = {
        name: [(entry.alias, "", mcp._factory.schema(entry)) for entry in mcp.tools(f"{name}.*").entries]
        for name in mcp
    }
    tree = ast.parse(stub(servers))

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__call__"]
    assert len(calls) == 127


# -- everything -------------------------------------------------------------------------------------------------------


def test_everything_answers_in_texts_images_structure_and_links(mcp: Mcp) -> None:
    server = mcp.everything

    assert server.echo("hello").text == "Echo: hello"
    assert server.get_sum(2, 40).text == "The sum of 2 and 40 is 42."
    image = server.get_tiny_image()
    assert image.images[0].data.startswith(b"\x89PNG")
    assert image.text == (
        "Here's the image you requested:\n[image: image/png, 4,033 bytes]\nThe image above is the MCP logo."
    )
    assert set(server.get_structured_content("Chicago").data) == {"temperature", "conditions", "humidity"}
    annotated = server.get_annotated_message("error", includeImage=True)
    assert annotated.text.startswith("Error: Operation failed\n[image: image/png")
    assert [link.uri for link in server.get_resource_links(count=2).links] == [
        "demo://resource/dynamic/blob/1",
        "demo://resource/dynamic/text/2",
    ]


def test_an_enum_is_checked_before_anything_is_sent(mcp: Mcp) -> None:
    with pytest.raises(ArgumentError, match="location"):
        mcp.everything.get_structured_content("Atlantis")


def test_a_long_operation_reports_its_progress(mcp: Mcp) -> None:
    heard: list[Progress] = []
    operation = mcp.everything.trigger_long_running_operation.options(on_progress=heard.append)

    assert operation(duration=0.2, steps=4).text.endswith("Steps: 4.")
    assert [(one.progress, one.total) for one in heard] == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_long_operation_is_cancelled_and_the_next_call_works(mcp: Mcp) -> None:
    running = threading.Event()
    operation = mcp.everything.trigger_long_running_operation.options(on_progress=lambda _: running.set())
    with ThreadPoolExecutor(1) as other_thread:
        outcome = other_thread.submit(operation, **LONG)
        assert running.wait(20)
        assert mcp.cancel() == 1

        with pytest.raises(CallCancelled):
            outcome.result(timeout=5)
    assert mcp.everything.echo("next").text == "Echo: next"


def test_a_cancelled_task_cancels_its_call(mcp: Mcp) -> None:
    async def main() -> str:
        running = asyncio.Event()
        operation = mcp.everything.trigger_long_running_operation.options(on_progress=lambda _: running.set())
        task = asyncio.ensure_future(operation.aio(**LONG))
        await asyncio.wait_for(running.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await mcp.everything.echo.aio("next")).text

    assert asyncio.run(main()) == "Echo: next"


@pytest.mark.parametrize("name", ["everything", *real_servers.SDKS])
def test_what_a_server_logs_is_in_its_log_and_in_pythons_logging(mcp: Mcp, name: str) -> None:
    heard: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    logger, handler = logging.getLogger(f"ipymcp.server.{name}"), QueueHandler(heard)
    handler.addFilter(lambda record: record.getMessage().startswith("server: "))  # not its stderr
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        if name == "everything":
            mcp.everything.toggle_simulated_logging()
        else:
            mcp[name].log("a word of warning", level="warning")
        record = heard.get(timeout=20)
        if name == "everything":
            mcp.everything.toggle_simulated_logging()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)

    told = [f"server: {line['text']}" for line in mcp.servers[name].logs(None) if line["source"] == "server"]
    assert record.getMessage() in told  # not always the first: server-everything says by itself that it has our roots
    if name != "everything":
        assert (record.levelname, told) == ("WARNING", ["server: a word of warning"])


# -- filesystem -------------------------------------------------------------------------------------------------------


def test_a_server_is_told_of_the_folders_its_command_names(mcp: Mcp, folder: Path, tmp_path: Path) -> None:
    """server-filesystem lets its client's roots replace the folders it was started on."""
    assert str(folder) in mcp.filesystem.list_allowed_directories().text
    try:
        mcp.roots = str(tmp_path)
        deadline = time.monotonic() + 20
        while str(tmp_path) not in mcp.filesystem.list_allowed_directories().text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        mcp.roots = None


def test_files_are_written_read_edited_and_listed(mcp: Mcp, folder: Path) -> None:
    server, path = mcp.filesystem, folder / "notes" / "größe.txt"
    server.create_directory(str(path.parent))
    server.write_file(str(path), "eins\nzwei\n")

    assert path.read_text(encoding="utf-8") == "eins\nzwei\n"
    assert server.read_text_file(str(path)).text == "eins\nzwei\n"
    assert server.read_text_file(str(path), head=1).text == "eins"
    server.edit_file(str(path), [{"oldText": "zwei", "newText": "drei"}])
    assert path.read_text(encoding="utf-8") == "eins\ndrei\n"
    assert server.list_directory(str(path.parent)).text == "[FILE] größe.txt"


def test_a_path_outside_is_the_tools_own_error(mcp: Mcp) -> None:
    with pytest.raises(ToolError, match=r"^filesystem\.read_text_file: Access denied") as caught:
        mcp.filesystem.read_text_file("/etc/hostname")
    assert caught.value.result is not None
    assert caught.value.result.is_error


def test_an_image_on_disk_comes_back_as_an_image(mcp: Mcp, folder: Path) -> None:
    path = mcp.everything.get_tiny_image().images[0].save(folder / "logo.png")

    assert mcp.filesystem.read_media_file(str(path)).images[0].data == path.read_bytes()


# -- memory and sequential thinking -----------------------------------------------------------------------------------


def test_a_graph_is_made_from_a_data_frame_and_searched(mcp: Mcp) -> None:
    entities = pd.DataFrame(
        {"name": ["Ada", "Engine"], "entityType": ["person", "machine"], "observations": [["wrote notes"], []]}
    )
    mcp.memory.create_entities(entities.to_dict("records"))
    mcp.memory.create_relations([{"from": "Ada", "to": "Engine", "relationType": "describes"}])

    found = mcp.memory.search_nodes("ada")
    assert found["entities"] == [{"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}]
    assert len(mcp.memory.read_graph()["entities"]) == 2


def test_a_mistake_deep_in_an_argument_is_named(mcp: Mcp) -> None:
    with pytest.raises(ArgumentError, match=r"entities\[0\].*observations"):
        mcp.memory.create_entities([{"name": "Ada", "entityType": "person"}])


def test_thoughts_follow_each_other(mcp: Mcp) -> None:
    think = mcp.sequential.sequentialthinking

    assert think("first", True, 1, 2)["nextThoughtNeeded"] is True
    revised = think("second", False, 2, 2, isRevision=True, revisesThought=1)
    assert (revised["thoughtNumber"], revised["nextThoughtNeeded"]) == (2, False)


# -- time, git, fetch -------------------------------------------------------------------------------------------------


def test_the_time_in_two_zones(mcp: Mcp) -> None:
    assert mcp.time.get_current_time("Asia/Tokyo")["datetime"].endswith("+09:00")
    converted = mcp.time.convert_time("UTC", "12:00", "Asia/Kolkata")
    assert converted["target"]["datetime"].endswith("T17:30:00+05:30")
    with pytest.raises(ToolError, match="Mars"):
        mcp.time.get_current_time("Mars/Base")


def test_a_file_is_committed(mcp: Mcp, folder: Path) -> None:
    repository = folder / "repository"
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    (repository / "README").write_text("read me\n")
    path = str(repository)

    assert "Untracked files:" in mcp.git.git_status(path).text
    mcp.git.git_add(path, ["README"])
    mcp.git.git_commit(path, "Say what this is")
    log = mcp.git.git_log(path, max_count=1).text
    assert "Author: Ada" in log
    assert "Message: Say what this is" in log
    assert mcp.git.git_show(path, "HEAD:README").text == "read me\n"
    with pytest.raises(ToolError, match="nowhere"):
        mcp.git.git_show(path, "nowhere")


def test_fetching_from_this_machine_is_refused_by_the_server(mcp: Mcp) -> None:
    with pytest.raises(ToolError, match=r"^fetch\.fetch: .*127\.0\.0\.1.* is not a public address"):
        mcp.fetch.fetch("http://127.0.0.1:9/")


# -- excel ------------------------------------------------------------------------------------------------------------


def test_a_workbook_is_made_from_a_data_frame_and_read_back(mcp: Mcp, folder: Path) -> None:
    excel, path = mcp.excel, str(folder / "sales.xlsx")
    frame = pd.DataFrame({"item": ["tea", "rye", "oil"], "price": [2.5, 4.0, 9.75], "count": [3, 1, 2]})
    rows = [list(frame.columns), *frame.to_numpy().tolist()]
    excel.create_workbook(path, sheets=["Sales"])
    assert excel.write_range(path, "Sales", "A1", rows)["cells_written"] == 12
    excel.write_range(path, "Sales", "D1", [["total"], ["=B2*C2"], ["=B3*C3"], ["=B4*C4"]])

    read = excel.read_range(path, "Sales")["values"]
    assert read == [["item", "price", "count", "total"], ["tea", 2.5, 3, 7.5], ["rye", 4, 1, 4], ["oil", 9.75, 2, 19.5]]


def test_arguments_nested_through_references_arrive(mcp: Mcp, folder: Path) -> None:
    excel, path = mcp.excel, str(folder / "nested.xlsx")
    excel.create_workbook(path, sheets=["Data"])
    excel.write_range(path, "Data", "A1", [["name", "n"], ["b", 1], ["a", 3], ["c", 2]])
    excel.sort_range(path, "Data", "A1:B4", [{"column": "n", "order": "descending"}])
    excel.set_table(
        path, "Data", range="A1:B4", options={"totals_row": True, "columns": [{"name": "n", "total": "max"}]}
    )
    excel.create_chart(
        path,
        "Data",
        "column",
        at="D1",
        options={"title": "n by name", "y_axis": {"min": 0}},
        series=[{"values": "B2:B4"}],
    )

    assert excel.read_range(path, "Data", range="A1:B5")["values"][1:4] == [["a", 3], ["c", 2], ["b", 1]]
    described = excel.describe_sheet(path, "Data").text
    assert "n by name" in described


def test_a_mistake_behind_a_reference_is_named_before_anything_is_sent(mcp: Mcp, folder: Path) -> None:
    with pytest.raises(ArgumentError, match=r"sort_by\[0\]\.order.*'ascending', 'descending'"):
        mcp.excel.sort_range(str(folder / "none.xlsx"), "Data", "A1:B4", [{"column": "n", "order": "sideways"}])


# -- the official SDKs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", real_servers.SDKS)
def test_a_server_on_the_official_sdk_gives_every_kind_of_result(mcp: Mcp, name: str) -> None:
    server = mcp[name]

    assert server.add(2, 40).data == 42
    assert server.numbers(count=4).data == [0, 1, 2, 3]
    assert server.record("pi", 3.5).data == {"pi": 3.5}
    assert server.pixel().images[0].data.startswith(b"\x89PNG")
    trip = server.travel({"name": "L", "points": [{"x": 0, "y": 0}, {"x": 3, "y": 4}]}, speed=2)
    assert (trip["length"], len(trip["stops"])) == (2.5, 2)
    found = server.search("mcp", max_results="5", from_="2024", near=None, order="oldest")
    assert (found["max-results"], found["from"], found["near"]) == (5, "2024", None)
    assert server.search("mcp", **{"max-results": 7})["max-results"] == 7
    with pytest.raises(ToolError, match="no luck"):
        server.fail(message="no luck")
    with pytest.raises(ToolError, match="crash"):
        server.crash()

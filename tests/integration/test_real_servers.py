"""Servers of others, from npm and PyPI and on both official SDKs: their tools, resources and lives."""

import ast
import inspect
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema_rs
import pandas as pd
import psutil
import pytest

import ipymcp
from ipymcp import ArgumentError, ConnectionLost, Mcp, RpcError, ToolError
from ipymcp.api.stubs import stub
from ipymcp.llm.providers import Profile
from ipymcp.llm.schemas import compile_schema
from ipymcp.runtime.events import ServerChanged
from tests import processes, real_servers
from tests.unit.test_hard_schemas import EVERY, Json, by_new_names
from tests.unit.test_model_schemas import refusals

PATIENCE = 60
"""Seconds: a server on the official SDK takes a few to start, more where the machine is busy."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def mcp(folder: Path) -> Iterator[Mcp]:
    """All ten, started at once."""
    with ipymcp.connect(real_servers.definitions(real_servers.ALL, folder)) as mcp:
        yield mcp


def test_the_table_shows_all_ten(mcp: Mcp) -> None:
    rows = {row["server"]: (row["state"], row["protocol"], row["tools"]) for row in mcp.servers.table}

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


@pytest.mark.parametrize("profile", EVERY)
def test_no_provider_refuses_a_tool_none_is_much_longer_and_what_it_lacks_is_listed(mcp: Mcp, profile: Profile) -> None:
    for tool in mcp.tools:
        schema = tool.input_schema
        made = compile_schema(schema, profile)

        assert refusals(made.parameters, profile) == [], tool
        assert len(json.dumps(made.parameters)) <= 1.2 * len(json.dumps(schema)) + 40, tool
        declared = jsonschema_rs.validator_for(made.parameters, validate_formats=False)
        original = jsonschema_rs.validator_for(schema, validate_formats=False)
        own = {name: new for new, name in made.renamed.items()}
        for value in by_members(schema):
            told = by_new_names(value, own)
            if original.is_valid(value):
                assert declared.is_valid(told), f"{tool}: {value} is ruled out"
            elif declared.is_valid(told):
                assert made.lost, f"{tool}: {value} is taken"


def by_members(schema: Json) -> Iterator[Json]:
    """Arguments with one value of each kind for each member, beside the first of the pool that is valid for others."""
    valid = jsonschema_rs.validator_for(schema, validate_formats=False)
    pool = ["a", "", "2026-01-01T00:00:00Z", 0, 1, -1, 1e9, 2.5, True, None, [], ["a"], {}, {"a": 1}, [{}], [1] * 40]
    members = schema.get("properties", {})
    base: Json = {}
    for name in schema.get("required", ()):
        listed = members[name].get("enum", ())
        wrong = {each: sum(1 for _ in valid.iter_errors({**base, name: value}))
                 for each, value in enumerate([*listed, *pool])}  # fmt: skip
        base[name] = [*listed, *pool][min(wrong, key=lambda each: wrong[each])]
    yield base
    for name in members:
        yield from ({**base, name: value} for value in pool)
        yield {key: value for key, value in base.items() if key != name}


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


# -- filesystem -------------------------------------------------------------------------------------------------------


def test_a_server_is_told_of_the_folders_its_command_names(mcp: Mcp, folder: Path, tmp_path: Path) -> None:
    """server-filesystem lets its client's roots replace the folders it was started on."""

    def wait_until_allowed(path: Path) -> None:
        deadline = time.monotonic() + 20
        while str(path) not in mcp.filesystem.list_allowed_directories().text:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert str(folder) in mcp.filesystem.list_allowed_directories().text
    try:
        mcp.roots = str(tmp_path)
        wait_until_allowed(tmp_path)
    finally:
        mcp.roots = None
    wait_until_allowed(folder)


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


# -- resources --------------------------------------------------------------------------------------------------------


def test_what_each_has_is_listed(mcp: Mcp) -> None:
    counts = {
        name: (len(mcp[name].resources), len(mcp[name].resources.templates), len(mcp[name].prompts)) for name in mcp
    }
    assert counts == {
        **dict.fromkeys(mcp, (0, 0, 0)),
        "everything": (7, 2, 4),
        "memory": (1, 0, 0),
        "fetch": (0, 0, 1),
        "sdk1": (2, 1, 1),
        "sdk2": (2, 1, 1),
    }
    assert {row["server"] for row in mcp.resources.table} == {"everything", "memory", "sdk1", "sdk2"}
    assert [prompt.name for prompt in mcp.prompts("fetch")] == ["fetch"]


def test_resources_are_read_by_what_they_are(mcp: Mcp) -> None:
    document = mcp.everything.resources["features.md"].read()
    assert document.mime_type == "text/markdown"
    assert "text/markdown" in document._repr_mimebundle_()
    assert mcp.everything.resources["demo://resource/dynamic/text/{resourceId}"](3).read().text.startswith("Resource 3")
    assert mcp.everything.resources["demo://resource/dynamic/blob/{resourceId}"](3).read().bytes[:10] == b"Resource 3"
    assert set(mcp.memory.resources["memory://knowledge-graph"].read().data) == {"entities", "relations"}
    links = mcp.everything.get_resource_links(count=2).links
    assert mcp.everything.resources[links[1].uri].read().text.startswith("Resource 2")


@pytest.mark.parametrize("name", real_servers.SDKS)
def test_the_official_sdks_are_read_prompted_and_refuse(mcp: Mcp, name: str) -> None:
    server = mcp[name]
    assert server.resources["note://readme"].read().text == "# Read me"
    assert server.resources["note://{name}"](name="x").read().data == {"name": "x"}
    assert server.resources["note://pixel"].read().data.startswith(b"\x89PNG")
    assert server.prompts.greet("Ada", tone="warm").text == "Greet Ada in a warm tone."
    with pytest.raises(RpcError):
        server.resources["other://x"].read()


def test_a_new_resource_is_in_the_list(mcp: Mcp) -> None:
    before = len(mcp.everything.resources)
    data = "data:text/plain;base64,aGVsbG8="
    mcp.everything.gzip_file_as_resource(name="hello.gz", data=data, outputType="resourceLink")
    ended = time.monotonic() + PATIENCE
    while len(mcp.everything.resources) == before:
        assert time.monotonic() < ended
        time.sleep(0.05)
    assert mcp.everything.resources["hello.gz"].read().bytes[:2] == b"\x1f\x8b"


# -- lives ------------------------------------------------------------------------------------------------------------


def test_each_server_speaks_the_eras_it_has(tmp_path: Path) -> None:
    speaks = {"time": {"legacy", "modern"}, "sdk2": {"legacy", "modern"}, "sdk1": {"legacy"}, "memory": {"legacy"}}
    wanted = {
        f"{name}-{era}": real_servers.definition(name, tmp_path, era=era)
        for name, eras in speaks.items()
        for era in sorted(eras)
    }
    with ipymcp.connect(wanted) as mcp:
        assert {name: mcp.servers[name].protocol_version for name in mcp} == {
            name: "2026-07-28" if name.endswith("modern") else "2025-11-25" for name in wanted
        }
        for name in ("time-legacy", "time-modern"):
            assert mcp[name].get_current_time("UTC")["timezone"] == "UTC"
        for name in ("sdk1-legacy", "sdk2-legacy", "sdk2-modern"):
            heard: list[float] = []
            slow = mcp[name].slow.options(on_progress=lambda progress, heard=heard: heard.append(progress.progress))
            assert slow(seconds=0.1, steps=3).text == "3 steps"
            assert heard == [1, 2, 3]


@pytest.mark.parametrize(("name", "tool"), [("everything", "trigger-long-running-operation"), ("sdk2", "slow")])
def test_a_server_killed_in_the_middle_of_a_call_fails_that_call_and_comes_back(
    name: str, tool: str, tmp_path: Path
) -> None:
    long = {"duration": 60, "steps": 600} if name == "everything" else {"seconds": 60.0, "steps": 600}
    with ipymcp.connect(real_servers.definitions([name, "memory"], tmp_path)) as mcp:
        server, running = mcp.servers[name], threading.Event()
        pid = server.pid
        assert pid is not None
        with ThreadPoolExecutor(1) as other_thread:
            outcome = other_thread.submit(mcp[name][tool].options(on_progress=lambda _: running.set()), **long)
            assert running.wait(PATIENCE)
            os.kill(pid, signal.SIGKILL)

            with pytest.raises(ConnectionLost, match=f"^{name}.*: the server was ended by SIGKILL"):
                outcome.result(timeout=5)
        assert mcp.memory.read_graph()["entities"] == []  # nobody else noticed
        assert mcp[name].echo("x")
        assert server.pid != pid


def test_all_start_at_once_and_none_is_left_at_the_end(tmp_path: Path) -> None:
    with ipymcp.connect() as mcp:
        running_at_first_ready: list[int] = []

        def heard(event: object) -> None:
            if isinstance(event, ServerChanged) and event.state == "ready" and not running_at_first_ready:
                running_at_first_ready.append(sum(mcp.servers[name].pid is not None for name in mcp))

        mcp._host.events.subscribe(heard)
        mcp.load(real_servers.definitions(real_servers.ALL, tmp_path))
        assert running_at_first_ready[0] > 3
        children = [psutil.Process(mcp.servers[name].pid) for name in mcp]
        assert len(children) == len(real_servers.ALL)

    processes.wait_until_gone(children, within=0.5)

"""Third-party servers over each transport: eras, tools, results, resources, lives; some of them nightly."""

import ast
import asyncio
import contextlib
import inspect
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import jsonschema_rs
import pandas as pd
import psutil
import pytest

import ipymcp
from ipymcp import ArgumentError, ConnectionLost, Mcp, McpError, RpcError, ToolError
from ipymcp.api.stubs import stub
from ipymcp.llm.providers import Profile
from ipymcp.llm.schemas import compile_schema
from tests import processes
from tests.interop.candidates import CANDIDATES, EVERYTHING, PATHS, SDKS, Candidate, placed
from tests.interop.conftest import Report
from tests.interop.features import FEATURES, SDK_FEATURES, Use, User
from tests.interop.page import Row
from tests.processes import wait_until
from tests.unit.test_hard_schemas import EVERY, Json, by_new_names
from tests.unit.test_model_schemas import refusals

pytestmark = pytest.mark.timeout(300)  # the first test starts all servers
PATIENCE = 60
"""Seconds: a server on the official SDK takes a few to start, more where the machine is busy."""

SHARED = {each.name: each for each in CANDIDATES if not each.program.is_nightly}
SDK_SERVERS = [each for each in SHARED.values() if each.package in SDKS]
LEGACY = ("time", "sdk2")
"""Servers of both eras that are loaded a second time, with `era="legacy"`."""

OLD, NEW = "2025-11-25", "2026-07-28"
OFFERED = {
    **dict.fromkeys(("everything", "everything HTTP", "everything SSE"), (OLD, 17, 7, 2, 4)),
    "filesystem": (OLD, 14, 0, 0, 0),
    "memory": (OLD, 9, 1, 0, 0),
    "sequential-thinking": (OLD, 1, 0, 0, 0),
    "time": (NEW, 2, 0, 0, 0),
    "time legacy": (OLD, 2, 0, 0, 0),
    "git": (NEW, 12, 0, 0, 0),
    "fetch": (NEW, 1, 0, 0, 1),
    "sqlite": (OLD, 6, 1, 0, 1),
    **dict.fromkeys(("excel", "excel HTTP"), (NEW, 46, 0, 0, 0)),
    **dict.fromkeys(("sdk1", "sdk1 HTTP", "sdk1 SSE"), (OLD, 13, 2, 1, 1)),
    **dict.fromkeys(("sdk2", "sdk2 HTTP"), (NEW, 13, 2, 1, 1)),
    # HTTP+SSE is older than the stateless era, and mcp-proxy is on the SDK 1.x.
    **dict.fromkeys(("sdk2 SSE", "sdk2 legacy"), (OLD, 13, 2, 1, 1)),
    **dict.fromkeys(("mcp-proxy HTTP", "mcp-proxy SSE"), (OLD, 2, 0, 0, 0)),
}
"""The protocol version of each server and its numbers of tools, resources, templates and prompts."""

OVER_STDIO = [each.name for each in SHARED.values() if each.transport == "stdio"]
"""Each server once."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the servers of the shared host."""
    return tmp_path_factory.mktemp("servers")


@dataclass
class SharedHost:
    """A host with every server that `make test` has, started at once."""

    mcp: Mcp
    user: User
    most_starting: int
    """The most processes that were starting at a time."""


def connect(user: User) -> ipymcp.connect:
    return ipymcp.connect(on_sampling=user.sample, on_elicitation=user.answer)


@pytest.fixture(scope="module")
def host(folder: Path) -> Iterator[SharedHost]:
    user = User()
    with contextlib.ExitStack() as running, ThreadPoolExecutor() as pool:
        started = pool.map(lambda each: running.enter_context(each.start(folder)), SHARED.values())
        definitions = dict(zip(SHARED, started, strict=True))
        definitions |= {f"{name} legacy": {**definitions[name], "era": "legacy"} for name in LEGACY}
        with connect(user) as mcp:
            counts: list[int] = []

            def count(_: object) -> None:
                servers = (mcp.servers[name] for name in mcp)
                counts.append(sum(server.state == "starting" and server.pid is not None for server in servers))

            unsubscribe = mcp._host.events.subscribe(count)
            mcp.load(definitions)
            unsubscribe()
            # The threads that the user's functions run on last as long as the host: start them now.
            asyncio.run_coroutine_threadsafe(asyncio.to_thread(int), mcp._host.handler_loop.loop).result(20)
            children = [psutil.Process(pid) for name in mcp if (pid := mcp.servers[name].pid) is not None]
            yield SharedHost(mcp, user, max(counts))
        processes.wait_until_gone(children, within=0.5)


@pytest.fixture(scope="module")
def mcp(host: SharedHost) -> Mcp:
    return host.mcp


# -- each server ------------------------------------------------------------------------------------------------------


def test_all_servers_start_at_once_and_the_table_shows_them(host: SharedHost) -> None:
    assert host.most_starting > 3
    rows = {row["server"]: (row["state"], row["protocol"], row["tools"]) for row in host.mcp.servers.table}
    assert rows == {name: ("ready", version, tools) for name, (version, tools, *_) in OFFERED.items()}
    assert all(name in repr(host.mcp) for name in rows)


@pytest.mark.parametrize(
    "candidate",
    [pytest.param(each, marks=[pytest.mark.nightly] * each.program.is_nightly, id=each.name) for each in CANDIDATES],
)
def test_a_server_is_loaded_and_its_call_gives_what_it_should(
    candidate: Candidate, request: pytest.FixtureRequest, report: Report, tmp_path: Path
) -> None:
    if not candidate.program.is_nightly:
        row = used(candidate, request.getfixturevalue("mcp"), request.getfixturevalue("folder"))
        assert (row.era, row.tools, row.resources, row.templates, row.prompts) == OFFERED[candidate.name]
    else:
        with candidate.start(tmp_path) as definition, connect(User()) as mcp:
            mcp.load({candidate.name: definition})
            row = used(candidate, mcp, tmp_path)
    report.rows[candidate.name] = row


def used(candidate: Candidate, mcp: Mcp, folder: Path) -> Row:
    """Count what a server has, and make its call."""
    server, call = mcp[candidate.name], candidate.call
    arguments = placed(call.arguments, folder=folder)
    try:
        text, prefix = server[call.tool].call(arguments).text, ""
    except ToolError as error:
        text, prefix = error.result.text, "the tool fails: "
    except McpError as error:
        text, prefix = str(error), "an error: "
    expected = call.offline if call.offline and call.offline in text else call.answer
    assert expected in text
    return Row(
        candidate,
        era=mcp.servers[candidate.name].protocol_version,
        tools=len(server),
        resources=len(server.resources),
        templates=len(server.resources.templates),
        prompts=len(server.prompts),
        outcome=prefix + (expected or "an answer"),
    )


@pytest.mark.parametrize("transport", ["stdio", *PATHS])
@pytest.mark.parametrize("feature", FEATURES, ids=lambda name: name.replace(" ", "-"))
def test_all_of_server_everything_works_over_each_transport(
    host: SharedHost, report: Report, transport: str, feature: str
) -> None:
    host.user.asked.clear()
    [name] = [each.name for each in SHARED.values() if (each.package, each.transport) == (EVERYTHING, transport)]
    FEATURES[feature](Use(host.mcp, name, host.user))
    report.features[transport].append(feature)


@pytest.mark.parametrize("name", [*(each.name for each in SDK_SERVERS), "sdk2 legacy"])
@pytest.mark.parametrize("feature", SDK_FEATURES, ids=lambda name: name.replace(" ", "-"))
def test_features_of_the_official_sdks_work_over_each_transport(host: SharedHost, feature: str, name: str) -> None:
    SDK_FEATURES[feature](Use(host.mcp, name, host.user))


# -- tools ------------------------------------------------------------------------------------------------------------


def test_every_tool_has_a_signature_and_a_docstring(mcp: Mcp) -> None:
    tools = [tool for name in OVER_STDIO for tool in mcp[name]]
    assert len(tools) == 134
    for tool in tools:
        signature = inspect.signature(tool)
        required = tool.input_schema.get("required", [])
        parameters = signature.parameters.values()
        positional = [each for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert len(positional) == len(required), tool
        documentation = inspect.getdoc(type(tool))
        assert documentation is not None
        assert documentation.splitlines()[0].strip()
        for parameter in signature.parameters:
            assert f"{parameter}:" in documentation or f"{parameter} (" in documentation, (tool, parameter)


@pytest.mark.parametrize("profile", EVERY)
def test_compiled_schemas_of_all_tools_meet_each_providers_rules_and_list_their_losses(
    mcp: Mcp, profile: Profile
) -> None:
    for tool in (tool for name in OVER_STDIO for tool in mcp[name]):
        schema = tool.input_schema
        compiled = compile_schema(schema, profile)

        assert refusals(compiled.parameters, profile) == [], tool
        assert len(json.dumps(compiled.parameters)) <= 1.2 * len(json.dumps(schema)) + 40, tool
        declared = jsonschema_rs.validator_for(compiled.parameters, validate_formats=False)
        original = jsonschema_rs.validator_for(schema, validate_formats=False)
        own = {name: new for new, name in compiled.renamed.items()}
        for value in by_members(schema):
            renamed = by_new_names(value, own)
            if original.is_valid(value):
                assert declared.is_valid(renamed), f"{tool}: {value} is ruled out"
            elif declared.is_valid(renamed):
                assert compiled.lost, f"{tool}: {value} is taken"


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
        name.replace("-", "_"): [
            (entry.alias, "", mcp._parts.factory.schema(entry)) for entry in mcp.tools(f"{name}.*").entries
        ]
        for name in OVER_STDIO
    }
    tree = ast.parse(stub(servers))

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__call__"]
    assert len(calls) == 134


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


def test_the_roots_of_a_server_are_the_folders_that_its_command_names(mcp: Mcp, folder: Path, tmp_path: Path) -> None:
    """server-filesystem lets its client's roots replace the folders it was started on."""

    def wait_until_allowed(path: Path) -> None:
        wait_until(lambda: str(path) in mcp.filesystem.list_allowed_directories().text, 20)

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

    [ada] = mcp.memory.search_nodes("ada")["entities"]
    assert ada == {"name": "Ada", "entityType": "person", "observations": ["wrote notes"]}
    assert {entity["name"] for entity in mcp.memory.read_graph()["entities"]} == {"Joan", "Ada", "Engine"}


def test_a_mistake_deep_in_an_argument_is_named(mcp: Mcp) -> None:
    with pytest.raises(ArgumentError, match=r"entities\[0\].*observations"):
        mcp.memory.create_entities([{"name": "Ada", "entityType": "person"}])


def test_thoughts_follow_each_other(mcp: Mcp) -> None:
    think = mcp["sequential-thinking"].sequentialthinking

    assert think("first", True, 1, 2)["nextThoughtNeeded"] is True
    revised = think("second", False, 2, 2, isRevision=True, revisesThought=1)
    assert (revised["thoughtNumber"], revised["nextThoughtNeeded"]) == (2, False)


# -- time, git, fetch -------------------------------------------------------------------------------------------------


def test_the_time_in_two_zones(mcp: Mcp) -> None:
    assert mcp.time.get_current_time("Asia/Tokyo")["datetime"].endswith("+09:00")
    assert mcp["time legacy"].get_current_time("UTC")["timezone"] == "UTC"
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


@pytest.mark.parametrize("name", SDKS.values())
def test_a_server_on_the_official_sdk_gives_every_kind_of_result(mcp: Mcp, name: str) -> None:
    server = mcp[name]

    assert server.add(2, 40).data == 42
    assert server.numbers(count=4).data == [0, 1, 2, 3]
    assert server.record("pi", 3.5).data == {"pi": 3.5}
    assert server.pixel().images[0].data.startswith(b"\x89PNG")
    trip = server.travel({"name": "L", "points": [{"x": 0, "y": 0}, {"x": 3, "y": 4}]}, speed=2)
    assert (trip["length"], len(trip["stops"])) == (2.5, 2)
    result = server.search("mcp", max_results="5", from_="2024", near=None, order="oldest")
    assert (result["max-results"], result["from"], result["near"]) == (5, "2024", None)
    assert server.search("mcp", **{"max-results": 7})["max-results"] == 7
    with pytest.raises(ToolError, match="no luck"):
        server.fail(message="no luck")
    with pytest.raises(ToolError, match="crash"):
        server.crash()


# -- resources --------------------------------------------------------------------------------------------------------


def test_resources_and_prompts_are_listed_by_their_servers(mcp: Mcp) -> None:
    assert {row["server"] for row in mcp.resources.table} == {
        name for name, (_, _, *has, _) in OFFERED.items() if any(has)
    }
    assert [prompt.name for prompt in mcp.prompts("fetch")] == ["fetch"]


def test_resources_are_read_as_their_type(mcp: Mcp) -> None:
    document = mcp.everything.resources["features.md"].read()
    assert document.mime_type == "text/markdown"
    assert "text/markdown" in document._repr_mimebundle_()
    assert mcp.everything.resources["demo://resource/dynamic/text/{resourceId}"](3).read().text.startswith("Resource 3")
    assert mcp.everything.resources["demo://resource/dynamic/blob/{resourceId}"](3).read().bytes[:10] == b"Resource 3"
    assert set(mcp.memory.resources["memory://knowledge-graph"].read().data) == {"entities", "relations"}
    links = mcp.everything.get_resource_links(count=2).links
    assert mcp.everything.resources[links[1].uri].read().text.startswith("Resource 2")


@pytest.mark.parametrize("name", SDKS.values())
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
    wait_until(lambda: len(mcp.everything.resources) > before, PATIENCE)
    assert mcp.everything.resources["hello.gz"].read().bytes[:2] == b"\x1f\x8b"


# -- lives ------------------------------------------------------------------------------------------------------------


def test_a_server_killed_in_the_middle_of_a_call_fails_that_call_and_comes_back(tmp_path: Path) -> None:
    calls = {
        "everything": ("trigger-long-running-operation", {"duration": 60, "steps": 600}),
        "sdk2": ("slow", {"seconds": 60.0, "steps": 600}),
    }
    with contextlib.ExitStack() as running:
        definitions = {name: running.enter_context(SHARED[name].start(tmp_path)) for name in (*calls, "memory")}
        mcp = running.enter_context(ipymcp.connect(definitions))
        for name, (tool, arguments) in calls.items():
            server, has_begun = mcp.servers[name], threading.Event()
            pid, neighbour = server.pid, mcp.servers["memory"].pid
            assert pid is not None
            with ThreadPoolExecutor(1) as other_thread:
                call = mcp[name][tool].options(on_progress=lambda _, has_begun=has_begun: has_begun.set())
                outcome = other_thread.submit(call, **arguments)
                assert has_begun.wait(PATIENCE)
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(ConnectionLost, match=f"^{name}.*: the server was ended by SIGKILL"):
                    outcome.result(timeout=5)
            assert mcp.memory.read_graph()["entities"] == []
            assert mcp.servers["memory"].pid == neighbour
            assert mcp[name].echo("x")
            assert server.pid != pid

"""Resources, prompts, subscriptions and tasks of servers of others, from npm and PyPI and on both official SDKs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ipymcp
from ipymcp import CallCancelled, Mcp, ResourceResult, RpcError
from tests import real_servers
from tests.bad_servers import PATIENCE

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mcp]:
    folder: Path = tmp_path_factory.mktemp("offers")
    names = ("everything", "memory", "fetch", "time", *real_servers.SDKS)
    with ipymcp.connect(real_servers.definitions(names, folder)) as mcp:
        assert mcp._host.handlers.loop  # its thread is the module's, not that of the first test that calls back
        yield mcp


def test_what_each_has_is_listed(mcp: Mcp) -> None:
    counts = {
        name: (len(mcp[name].resources), len(mcp[name].resources.templates), len(mcp[name].prompts)) for name in mcp
    }
    assert counts == {
        "everything": (7, 2, 4),
        "memory": (1, 0, 0),
        "fetch": (0, 0, 1),
        "time": (0, 0, 0),
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
    assert server.resources["note://pixel"].read().data.startswith(PNG)
    assert server.prompts.greet("Ada", tone="warm").text == "Greet Ada in a warm tone."
    with pytest.raises(RpcError):
        server.resources["other://x"].read()


def test_prompts_are_messages(mcp: Mcp) -> None:
    prompts = mcp.everything.prompts
    assert prompts.simple_prompt().text == "This is a simple prompt without arguments."
    assert prompts.args_prompt("Paris").text == "What's weather in Paris?"
    embedded = prompts.resource_prompt(resourceType="Text", resourceId=2)
    assert embedded[1].content.uri == "demo://resource/dynamic/text/2"


def test_a_subscription_hears_of_what_changed(mcp: Mcp) -> None:
    changed = threading.Event()

    def heard(value: ResourceResult) -> None:
        if any(entity["name"] == "Ada" for entity in value.data["entities"]):
            changed.set()

    with mcp.memory.resources["memory://knowledge-graph"].subscribe(heard) as graph:
        assert graph.value.data["entities"] == []
        mcp.memory.create_entities([{"name": "Ada", "entityType": "person", "observations": []}])
        assert changed.wait(PATIENCE)
        assert graph.value.data["entities"][0]["name"] == "Ada"


def test_a_new_resource_is_in_the_list(mcp: Mcp) -> None:
    before = len(mcp.everything.resources)
    data = "data:text/plain;base64,aGVsbG8="
    mcp.everything.gzip_file_as_resource(name="hello.gz", data=data, outputType="resourceLink")
    ended = time.monotonic() + PATIENCE
    while len(mcp.everything.resources) == before:
        assert time.monotonic() < ended
        time.sleep(0.05)
    assert mcp.everything.resources["hello.gz"].read().bytes[:2] == b"\x1f\x8b"


def test_a_call_that_must_be_a_task_is_left_picked_up_and_cancelled(mcp: Mcp) -> None:
    said: list[str] = []
    research = mcp.everything.simulate_research_query.options(on_progress=lambda one: said.append(one.message or ""))
    call = research.submit("bees")
    ended = time.monotonic() + PATIENCE
    while call.task is None:
        assert time.monotonic() < ended
        time.sleep(0.02)
    task = call.leave()
    again = mcp.servers["everything"].task(task, tool="simulate-research-query")
    other = research.submit("wasps")
    while other.task is None:
        assert time.monotonic() < ended
        time.sleep(0.02)
    assert other.cancel()
    with pytest.raises(CallCancelled):
        other.result(PATIENCE)
    assert again.result(PATIENCE).text.startswith("# Research Report: bees")
    assert said[0].startswith("working: Gathering sources")

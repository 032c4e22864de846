"""Old and new servers beside each other: the official SDKs, mcp-proxy behind a port, all of server-everything."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ipymcp
from ipymcp import CallCancelled, Mcp
from ipymcp.protocol.types import Progress
from tests.bad_servers import News
from tests.interop.candidates import CANDIDATES, EVERYTHING, SDKS, Candidate
from tests.interop.features import FEATURES, SERVER, Feature, User

SERVERS = {
    f"{SDKS.get(each.package, each.package)} {each.transport}": each
    for each in CANDIDATES
    if each.package in SDKS or (each.package == "mcp-proxy" and each.transport != "stdio")
}
SDK_SERVERS = tuple(name for name in SERVERS if name.startswith("sdk"))
ERAS = {name: "2026-07-28" if name in ("sdk2 stdio", "sdk2 HTTP") else "2025-11-25" for name in SERVERS}
"""HTTP+SSE is older than the stateless era, and mcp-proxy is on the SDK 1.x."""


@pytest.fixture(scope="module")
def mcp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mcp]:
    """All of them in one host."""
    with contextlib.ExitStack() as running:
        folder = tmp_path_factory.mktemp("servers")
        definitions = {name: running.enter_context(each.start(folder)) for name, each in SERVERS.items()}
        mcp = running.enter_context(ipymcp.connect(definitions))
        start_handlers(mcp)
        yield mcp


def start_handlers(mcp: Mcp) -> None:
    """Have the threads that the user's functions run on start now: they last as long as the host."""
    asyncio.run_coroutine_threadsafe(asyncio.to_thread(int), mcp._host.handler_loop.loop).result(20)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_answers_in_the_newest_era_it_speaks(mcp: Mcp, name: str) -> None:
    candidate = SERVERS[name]

    assert candidate.answer in mcp[name][candidate.tool].call(candidate.arguments).text
    assert mcp.servers[name].protocol_version == ERAS[name]


@pytest.mark.parametrize("name", SDK_SERVERS)
def test_progress_is_heard_in_order(mcp: Mcp, name: str) -> None:
    heard: list[Progress] = []

    assert mcp[name].slow.options(on_progress=heard.append)(seconds=0.2, steps=4).text == "4 steps"
    assert [(each.progress, each.total, each.message) for each in heard] == [
        (step, 4, f"step {step} of 4") for step in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize("name", SDK_SERVERS)
def test_a_call_is_cancelled_and_the_next_one_works(mcp: Mcp, name: str) -> None:
    running = threading.Event()
    call = mcp[name].slow.options(on_progress=lambda _: running.set()).submit(seconds=60, steps=600)
    assert running.wait(20)
    assert call.cancel()

    with pytest.raises(CallCancelled):
        call.result()
    assert mcp[name].echo("next").text == "next"


@pytest.mark.parametrize("name", SDK_SERVERS)
def test_a_tool_that_comes_and_goes_is_seen(mcp: Mcp, name: str) -> None:
    with News(mcp) as news:
        mcp[name].grow("fresh")
        news.until(lambda: "fresh" in mcp[name])
        assert mcp[name].fresh().text == "fresh"
        mcp[name].shrink("fresh")
        news.until(lambda: "fresh" not in mcp[name])


# -- all that server-everything has and asks for ----------------------------------------------------------------------


@pytest.fixture(
    scope="module", params=[each for each in CANDIDATES if each.package == EVERYTHING], ids=lambda each: each.transport
)
def everything(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Mcp, User]]:
    """The server over one of its transports, and who answers it."""
    candidate: Candidate = request.param
    folder: Path = tmp_path_factory.mktemp("everything")
    user = User(folder)
    with candidate.start(folder) as definition, user.connect(SERVER, definition) as mcp:
        start_handlers(mcp)
        yield mcp, user


@pytest.mark.parametrize("feature", FEATURES, ids=lambda each: each.name.replace(" ", "-"))
def test_all_of_server_everything_works_over_each_transport(everything: tuple[Mcp, User], feature: Feature) -> None:
    feature.use(*everything)

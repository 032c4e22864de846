"""The lives of real servers: both eras, restarts, deaths at rest and in the middle of a call."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

import ipymcp
from ipymcp import ConnectionLost, Mcp, ProtocolError
from ipymcp.protocol.eras import OTHER_ERA
from ipymcp.runtime.events import ServerChanged
from tests import processes, real_servers
from tests.bad_servers import News

PATIENCE = 60
"""Seconds: a server on the official SDK takes a few to start, more where the machine is busy."""


# -- eras -------------------------------------------------------------------------------------------------------------

HANDSHAKE, STATELESS = "2025-11-25", "2026-07-28"


def test_each_server_speaks_the_eras_it_has(tmp_path: Path) -> None:
    speaks = {"time": {"legacy", "modern"}, "sdk2": {"legacy", "modern"}, "sdk1": {"legacy"}, "memory": {"legacy"}}
    wanted = {
        f"{name}-{era}": real_servers.definition(name, tmp_path, era=era)
        for name, eras in speaks.items()
        for era in sorted(eras)
    }
    with ipymcp.connect(wanted) as mcp:
        assert {name: mcp.servers[name].protocol_version for name in mcp} == {
            name: STATELESS if name.endswith("modern") else HANDSHAKE for name in wanted
        }
        for name in ("time-legacy", "time-modern"):
            assert mcp[name].get_current_time("UTC")["timezone"] == "UTC"
        for name in ("sdk1-legacy", "sdk2-legacy", "sdk2-modern"):
            heard: list[float] = []
            slow = mcp[name].slow.options(on_progress=lambda progress, heard=heard: heard.append(progress.progress))
            assert slow(seconds=0.1, steps=3).text == "3 steps"
            assert heard == [1, 2, 3]


@pytest.mark.parametrize("name", ["sdk1", "memory"])
def test_an_era_that_a_server_does_not_have_is_refused(name: str, tmp_path: Path) -> None:
    with (
        pytest.raises(ProtocolError) as caught,
        ipymcp.connect(real_servers.definitions([name], tmp_path, era="modern")),
    ):
        pass
    assert str(caught.value) == f"{name}: the server does not support the stateless era"
    assert caught.value.hint == OTHER_ERA


def test_an_era_that_was_asked_for_is_not_what_auto_finds(tmp_path: Path) -> None:
    with ipymcp.connect(real_servers.definitions(["time"], tmp_path, era="legacy")) as mcp:
        assert mcp.servers["time"].protocol_version == HANDSHAKE
        mcp.load(real_servers.definitions(["time"], tmp_path))

        assert mcp.servers["time"].protocol_version == STATELESS


# -- restarts and deaths ----------------------------------------------------------------------------------------------


def ask(mcp: Mcp, name: str) -> str:
    """A call whose answer is known."""
    answers: dict[str, Callable[[], Any]] = {
        "everything": lambda: mcp.everything.echo("x").text,
        "time": lambda: mcp.time.get_current_time("UTC")["timezone"],
        "sdk1": lambda: mcp.sdk1.echo("x").text,
        "sdk2": lambda: mcp.sdk2.echo("x").text,
    }
    return answers[name]()


NAMES = ("everything", "time", "sdk1", "sdk2")


def test_servers_are_stopped_started_and_restarted(tmp_path: Path) -> None:
    with ipymcp.connect(real_servers.definitions(NAMES, tmp_path)) as mcp:
        before = {name: mcp.servers[name].pid for name in NAMES}
        mcp.restart(*NAMES)

        for name in NAMES:
            assert mcp.servers[name].pid not in (None, before[name])
            assert ask(mcp, name)
        mcp.stop(*NAMES)
        with pytest.raises(ipymcp.ServerStopped) as caught:
            mcp.everything.echo("x")
        assert str(caught.value) == "everything: is stopped"
        assert caught.value.hint == "%mcp start everything"
        mcp.start("everything")
        assert ask(mcp, "everything") == "Echo: x"


def test_servers_that_are_killed_at_rest_come_back(tmp_path: Path) -> None:
    with ipymcp.connect(real_servers.definitions(NAMES, tmp_path)) as mcp, News(mcp) as news:
        before = {name: mcp.servers[name].pid for name in NAMES}
        for pid in before.values():
            assert pid is not None
            os.kill(pid, signal.SIGKILL)

        news.until(lambda: all(mcp.servers[name].pid != before[name] for name in NAMES), PATIENCE)
        ended = r"the server was ended by SIGKILL(; it last wrote: .*)?; starting it again in 1 s \(1 of 3\)"
        for name in NAMES:
            assert ask(mcp, name)  # one that is still starting is waited for
            assert mcp.servers[name].error == "", "it is ready again"
            states = [event for event in news.events if isinstance(event, ServerChanged) and event.server == name]
            details = [event.detail for event in states if event.state == "restarting"]
            assert any(re.fullmatch(ended, detail, re.DOTALL) for detail in details), details


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
        assert ask(mcp, name)
        assert server.pid != pid


def test_a_server_from_pypi_killed_while_it_waits_for_somebody_else_fails_that_call_and_comes_back(
    tmp_path: Path,
) -> None:
    fetch = real_servers.definition("fetch", tmp_path)
    fetch["args"] = [*fetch["args"], "--allow-private-ips"]
    fetch["env"] = {"NO_PROXY": "127.0.0.1"}
    with socket.create_server(("127.0.0.1", 0)) as silent, ipymcp.connect({"fetch": fetch}) as mcp:
        silent.settimeout(PATIENCE)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        pid = mcp.servers["fetch"].pid
        assert pid is not None
        with ThreadPoolExecutor(1) as other_thread:
            outcome = other_thread.submit(mcp.fetch.fetch, address)
            with silent.accept()[0]:
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(ConnectionLost, match=r"^fetch\.fetch: the server was ended by SIGKILL"):
                    outcome.result(timeout=5)
        with pytest.raises(ipymcp.ToolError, match=r"^fetch\.fetch: "):
            mcp.fetch.fetch("nonsense")
        assert mcp.servers["fetch"].pid != pid


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

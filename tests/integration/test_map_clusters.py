"""Maps on a Dask cluster: what travels, who calls, and what is left when a worker dies."""

import asyncio
import json
import multiprocessing
import os
import pickle
import re
import reprlib
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import resource_tracker as tracker
from pathlib import Path
from subprocess import PIPE
from typing import Any

import dask.bag
import dask.dataframe
import pandas as pd
import psutil
import pytest
from distributed import Client, LocalCluster

from ipymcp import ArgumentError, CommandNotFound, ConfigError, ConnectionLost, Mcp, McpError, PolicyError, SecretError
from ipymcp.interaction.questions import PageReply
from ipymcp.maps import cluster as map_cluster
from ipymcp.protocol.types import Progress
from tests.bad_servers import connected
from tests.kernels import Kernel
from tests.processes import wait_until
from tests.row_server import (
    HELD,
    SERVER,
    after_calls,
    calls,
    held_from,
    hurry,
    interrupt,
    interrupt_after,
    keys,
    server,
    when,
)
from tests.unit.scripted_interface import ScriptedInterface

OUTPUT = {
    "type": "object",
    "properties": {
        "length": {"type": "integer"},
        "name": {"$ref": "#/$defs/Name"},
        "times": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "$defs": {"Name": {"type": "object", "properties": {"upper": {"type": "string"}}}},
}
KEYS = keys(200)
CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""
"""A cluster in a process of its own, which can be restarted."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def resource_tracker() -> None:
    """The process that multiprocessing starts with the first pool, and that stays."""
    tracker.ensure_running()


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(CLUSTER)
    process = subprocess.Popen([sys.executable, script], stdin=PIPE, stdout=PIPE, text=True)
    assert process.stdin and process.stdout
    with process, Client(process.stdout.readline().strip()) as client:
        yield client
        client.close()
        process.stdin.close()


@pytest.fixture
def client(shared_client: Client) -> Client:
    """The client of the module's cluster, with both of its workers."""
    shared_client.wait_for_workers(2)
    return shared_client


@pytest.fixture(scope="module")
def shared_pool() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(abs, range(8)))
        yield pool


def cluster(workers: int) -> LocalCluster:
    return LocalCluster(n_workers=workers, threads_per_worker=2, dashboard_address="127.0.0.1:0")


def servers_of(record: Path) -> list[psutil.Process]:
    """The processes of servers with this record."""
    processes = psutil.process_iter(["cmdline", "ppid"])
    return [process for process in processes if str(record) in (process.info["cmdline"] or [])]


# -- what travels -----------------------------------------------------------------------------------------------------


def test_a_pickle_has_no_value_of_a_variable_or_secret(own_record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED", "planted-variable-value")
    env = {"TOKEN": "${PLANTED}", "OTHER": "${secret:stored}", "MODE": "fast"}
    with connected({}) as mcp:
        mcp._host.store.secrets.set("stored", "planted-secret-value")
        mcp.load(server(own_record, env=env))
        sent = pickle.dumps(mcp.rows.read)
        token = pickle.loads(sent)
    assert b"${PLANTED}" in sent and b"${secret:stored}" in sent and b"fast" in sent
    assert b"planted-" not in sent
    assert repr(token) == "<tool rows.read, from another process>"


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"env": {"API_TOKEN": "planted-literal"}}, "env.API_TOKEN"),
        ({"env": {"URL": "postgres://me:planted-literal@host/db"}}, "env.URL"),
        ({"args": [SERVER, "record", "0", "--api-key", "planted-literal"]}, "args[4]"),
    ],
)
def test_a_definition_with_a_secret_written_out_is_not_pickled(own_record: Path, more: Any, place: str) -> None:
    with connected(server(own_record, **more)) as mcp, pytest.raises(SecretError) as caught:
        pickle.dumps(mcp.rows.read)
    assert caught.value.message == f"its definition contains a secret ({place}), which is not sent to other processes"
    assert caught.value.hint == "write ${VARIABLE} or ${secret:NAME} there: each worker reads its own"


def test_a_pickled_tool_is_called_where_it_is_unpickled(mcp: Mcp, record: Path, shared_pool: Executor) -> None:
    tool: Any = mcp.rows.read
    assert shared_pool.submit(tool, "ab").result().data["length"] == 2
    assert shared_pool.submit(tool.call, {"key": "abc"}).result().data["length"] == 3
    assert calls(record) == {"read ab": 1, "read abc": 1}


def test_a_pickled_tool_that_needs_consent_is_refused_where_no_one_can_be_asked(
    mcp: Mcp, shared_pool: Executor
) -> None:
    mcp.policy.ask("rows.read")
    tool: Any = mcp.rows.read
    with pytest.raises(PolicyError, match="needs your consent, and no one can be asked on the worker") as caught:
        shared_pool.submit(tool, "ab").result()
    assert caught.value.hint == "mcp.rows.read.map(rows, executor=…) asks once for all its calls"
    with pytest.raises(PolicyError):
        shared_pool.submit(tool.map, ["ab"]).result()
    mcp.policy.deny("rows.read")
    with pytest.raises(PolicyError):
        pickle.dumps(mcp.rows.read)


@pytest.mark.parametrize("answer", ["once", "no"])
def test_one_question_covers_the_calls_of_all_workers(mcp: Mcp, record: Path, client: Client, answer: Any) -> None:
    user = ScriptedInterface(PageReply(answer=answer))
    mcp.policy.ask("rows.*")
    mcp._host.questions.terminal = lambda: user
    if answer == "no":
        with pytest.raises(PolicyError):
            mcp.rows.write.map(["a", "b", "c"], executor=client)
        assert not calls(record)
    else:
        assert mcp.rows.write.map(["a", "b", "c"], executor=client).summary["succeeded"] == 3
    assert [question.calls[0].sentence for question in user.asked] == ["Run rows.write 3 times?"]


# -- who calls --------------------------------------------------------------------------------------------------------


def test_dask_workers_call_once_for_each_row_and_one_session_serves_each_process(
    own_mcp: Mcp, own_record: Path, client: Client
) -> None:
    mcp, record = own_mcp, own_record
    frame = pd.DataFrame({"key": KEYS}, index=[f"i{key}" for key in KEYS])
    mapped = mcp.rows.read.map(frame, executor=client, concurrency=4)
    assert mapped.df["name.upper"].tolist() == KEYS
    assert mapped.df.index.tolist() == frame.index.tolist()
    assert mapped.summary["calls"] == len(KEYS)
    assert set(calls(record).values()) == {1}
    assert 2 <= len(servers_of(record)) <= 3  # here, and one for each worker that had a chunk
    written = mcp.rows.write.map(KEYS[:20], executor=client)
    assert written.summary["succeeded"] == 20
    assert len(servers_of(record)) <= 3
    assert client.list_datasets() == ()


def test_calls_of_workers_are_in_the_history(mcp: Mcp, client: Client) -> None:
    mcp.rows.read.map(["a", "bb"], executor=client)
    entry = next(iter(mcp.history()))
    assert (entry["tool"], entry["calls"], entry["outcome"]) == ("rows.read", 2, "done")
    assert [row["tool"] for row in mcp.history(map=entry["map"])] == ["rows.read", "rows.read"]


def test_writes_whose_report_cannot_be_read_are_not_called_again(
    mcp: Mcp, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_cluster, "run_chunk", repr)  # as of a worker with another version
    with pytest.raises(McpError, match="a report could not be read"):
        mcp.rows.write.map(KEYS[:10], executor=client)
    left = mcp.maps[-1]
    assert left.summary["unknown"] >= 1
    assert left.summary["unknown"] + left.summary["not called"] == 10


def test_a_restarted_cluster_costs_only_the_writes_that_it_had_begun(mcp: Mcp, record: Path, client: Client) -> None:
    restarter = after_calls(20, record, client.restart)
    rows = keys(400)
    mapped = mcp.rows.write.map(rows, executor=client, seconds=0.1)
    restarter.join()
    assert mapped.summary["stopped"] == "because its tasks were cancelled"
    assert 1 <= mapped.summary["unknown"] <= 200
    assert mapped.summary["not called"] >= 100
    hurry(record)
    mapped.resume()
    assert mapped.summary["succeeded"] + mapped.summary["unknown"] == len(rows)
    assert set(calls(record).values()) == {1}


def test_a_cluster_that_is_gone_is_one_error_and_the_map_continues_elsewhere(mcp: Mcp) -> None:
    with cluster(1) as local, Client(local) as client:
        mapped = mcp.rows.broken.map(KEYS, executor=client, stop_after=3, concurrency=1)
    with pytest.raises(ConnectionLost) as caught:
        mapped.resume()
    assert caught.value.message.startswith("the workers cannot be used: ")
    assert caught.value.hint == "mcp.maps[-1].resume(executor=…) continues on another one, with None in this process"
    left = mapped.summary["not called"]
    assert left
    assert mapped.resume(executor=None).summary["not called"] == left - 3


def test_a_map_that_waits_for_workers_says_so(mcp: Mcp) -> None:
    seen: list[str] = []

    def look(progress: Progress) -> None:
        if progress.message and "the cluster has no workers" in progress.message:
            seen.append(progress.message)
            if len(seen) == 1:
                local.scale(1)

    with cluster(0) as local, Client(local) as client:
        mapped = mcp.rows.read.map(KEYS, executor=client, on_progress=look)
    assert mapped.summary["succeeded"] == len(KEYS)
    assert seen


def test_an_interrupted_map_without_workers_ends_quietly(mcp: Mcp, capfd: pytest.CaptureFixture[str]) -> None:
    before = len(mcp.maps)
    with cluster(0) as local, Client(local) as client:
        interrupter = when(lambda: len(mcp.maps) > before and (run := mcp.maps[-1]._run) and run._in_flight, interrupt)
        with pytest.raises(KeyboardInterrupt):
            mcp.rows.read.map(KEYS, executor=client)
        interrupter.join()
        assert mcp.maps[-1]._is_idle.wait(30)
        assert mcp.maps[-1].summary["not called"] == len(KEYS)
    assert "never retrieved" not in capfd.readouterr().err


def test_threads_are_workers_here(own_mcp: Mcp, own_record: Path) -> None:
    with ThreadPoolExecutor() as pool:
        assert own_mcp.rows.read.map(["a", "b"], executor=pool).summary["succeeded"] == 2
    assert len(servers_of(own_record)) == 1


def test_any_other_executor_is_refused_with_the_way_by_dask(mcp: Mcp, client: Client, shared_pool: Executor) -> None:
    for executor in (2, shared_pool, client.get_executor()):
        with pytest.raises(ArgumentError) as caught:
            mcp.rows.read.map(["a"], executor=executor)
        assert caught.value.message == (
            f"map: executor: expected a dask.distributed Client, got {reprlib.repr(executor)}"
        )
        assert caught.value.hint == (
            "from dask.distributed import Client; .map(rows, executor=Client()) starts workers on this machine"
        )


def test_a_rate_holds_over_all_workers(mcp: Mcp, client: Client) -> None:
    mcp.rows.read.map(["a"], executor=client)
    began = time.monotonic()
    mcp.rows.read.map(KEYS[:21], executor=client, rate="20/s")
    assert time.monotonic() - began >= 1.0


def test_failures_in_a_row_stop_the_map_and_resume_goes_on(mcp: Mcp, client: Client) -> None:
    mapped = mcp.rows.read.options(timeout=0.05).map(
        KEYS[:40], seconds=HELD, retries=0, stop_after=3, concurrency=1, executor=client
    )
    assert mapped.summary["stopped"] == "after 3 failures in a row"
    assert mapped.summary["not called"] >= 20
    assert mapped.summary["failed"] + mapped.summary["not called"] == 40
    with pytest.raises(McpError):
        mcp.rows.read.options(timeout=0.05).map(["a"], seconds=HELD, retries=0, on_error="raise", executor=client)


# -- what a worker lacks ----------------------------------------------------------------------------------------------


def test_a_variable_that_a_worker_lacks_is_one_error(
    own_record: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "1")
    with connected(server(own_record, env={"MODE": "${PLANTED}"})) as mcp:
        with pytest.raises(ConfigError, match=r"on the worker tcp://.*PLANTED"):
            mcp.rows.write.map(["a", "b"], executor=client)
        assert mcp.maps[-1].summary["not called"] == 2
    assert not calls(own_record)


def test_a_secret_that_a_worker_lacks_is_one_error(own_record: Path, client: Client) -> None:
    with connected({}) as mcp:
        mcp._host.store.secrets.set("stored", "planted-secret-value")
        mcp.load(server(own_record, env={"MODE": "${secret:stored}"}))
        with pytest.raises(McpError, match=r"on the worker tcp://.*stored"):
            mcp.rows.read.map(["a", "b"], executor=client)


def test_a_command_that_a_worker_lacks_is_one_error(own_record: Path, tmp_path: Path, client: Client) -> None:
    command = tmp_path / "python-of-its-own"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    command.chmod(0o755)
    with connected(server(own_record, command=str(command))) as mcp:
        command.unlink()
        with pytest.raises(CommandNotFound, match=r"on the worker tcp://"):
            mcp.rows.read.map(["a", "b"], executor=client)


def test_a_tool_that_is_another_on_a_worker_is_not_called(own_mcp: Mcp, own_record: Path, client: Client) -> None:
    Path(f"{own_record}.json").write_text(json.dumps({"description": "changed"}))
    with pytest.raises(PolicyError, match=r"on the worker tcp://.*: its definition is not the one that was sent"):
        own_mcp.rows.read.map(["a", "b"], executor=client)
    assert not calls(own_record)


# -- what is left when a worker dies, or the user interrupts ----------------------------------------------------------


def kill_one_worker(client: Client, record: Path, count: int) -> threading.Thread:
    """Kill the first worker that makes calls, once there were some."""
    pids = client.run(os.getpid)

    def kill() -> None:
        busy = {process.info["ppid"] for process in servers_of(record)} & set(pids.values())
        os.kill(next(iter(busy)), signal.SIGKILL)

    return after_calls(count, record, kill)


@pytest.mark.parametrize("tool", ["read", "write"])
def test_a_killed_worker_costs_no_row_of_a_tool_that_reads_and_repeats_no_write(
    own_mcp: Mcp, own_record: Path, tool: str
) -> None:
    record = own_record
    with cluster(2) as local, Client(local) as client:
        killer = kill_one_worker(client, record, 20)
        mapped = own_mcp.rows[tool].map(KEYS, executor=client, seconds=0.05, concurrency=2)
        killer.join()
    if tool == "read":
        assert mapped.summary["succeeded"] == len(KEYS)
        assert set(calls(record)) == {f"read {key}" for key in KEYS}
    else:
        assert set(calls(record).values()) == {1}
        assert mapped.summary["unknown"] >= 1
        assert mapped.summary["succeeded"] + mapped.summary["unknown"] == len(KEYS)
        unknown = {f"write {KEYS[row['row']]}" for row in mapped.errors}
        assert {f"write {key}" for key in KEYS} - unknown <= set(calls(record))
    wait_until(lambda: len(servers_of(record)) == 1)


def test_a_cluster_that_adapts_gets_its_workers_from_the_map(mcp: Mcp) -> None:
    with cluster(0) as local, Client(local) as client:
        local.adapt(minimum=0, maximum=2, interval="100ms")
        assert mcp.rows.read.map(KEYS, executor=client, seconds=0.02).summary["succeeded"] == len(KEYS)


def test_an_interrupt_ends_the_calls_of_workers_and_resume_goes_on(mcp: Mcp, record: Path, client: Client) -> None:
    mcp.rows.read.map(["x"], executor=client)
    interrupter = interrupt_after(10, record)
    with pytest.raises(KeyboardInterrupt):
        mcp.rows.write.map(held_from(8, 130), executor=client)
    interrupter.join()
    left = mcp.maps[-1]
    left._is_idle.wait(30)
    assert left.summary["succeeded"] >= 1
    assert 1 <= left.summary["unknown"] <= 4
    assert left.summary["not called"] >= 30
    hurry(record)
    left.resume()
    assert left.summary["succeeded"] + left.summary["unknown"] == 130
    assert set(calls(record).values()) == {1}


def test_a_map_on_workers_is_awaited_and_cancelled(mcp: Mcp, record: Path, client: Client) -> None:
    async def main() -> dict[str, Any]:
        running = asyncio.ensure_future(mcp.rows.read.map.aio(KEYS, executor=client, seconds=HELD, concurrency=2))
        while not calls(record):
            await asyncio.sleep(0.01)
        mcp.cancel()
        return (await asyncio.wait_for(running, 10)).summary

    summary = asyncio.run(main())
    assert summary["stopped"] == "by the user"
    assert summary["not called"] >= 1


# -- lazy collections -------------------------------------------------------------------------------------------------


def test_a_dask_table_stays_lazy_and_its_meta_is_what_is_computed(own_record: Path, client: Client) -> None:
    Path(f"{own_record}.json").write_text(json.dumps({"outputSchema": OUTPUT}))
    table = dask.dataframe.from_pandas(pd.DataFrame({"key": KEYS, "times": range(200)}), npartitions=4)
    with connected(server(own_record)) as mcp:
        mapped = mcp.rows.read.map(table)
        assert not calls(own_record)
        assert list(mapped.columns) == ["key", "times", "length", "name.upper", "times_result", "error"]
        computed = mapped.compute()
    assert computed.dtypes.equals(mapped.dtypes)
    assert computed["name.upper"].tolist() == KEYS
    assert computed["times_result"].tolist() == list(range(200))
    assert computed["error"].isna().all()
    assert set(calls(own_record).values()) == {1}


def test_the_columns_of_a_lazy_table_can_be_given(mcp: Mcp, client: Client) -> None:
    table = dask.dataframe.from_pandas(pd.DataFrame({"key": ["a", "bb"]}), npartitions=1)
    mapped = mcp.rows.read.map(table, meta={"length": "int64", "times": "bool", "name.upper": "uint8"})
    computed = mapped.compute()
    assert computed["length"].tolist() == [1, 2]
    assert computed["error"].tolist() == ["name.upper is not of type UInt8"] * 2
    assert computed.dtypes.equals(mapped.dtypes)
    failed = mcp.rows.broken.map(table, meta={"length": "int64"}).compute()
    assert (failed["length"].isna().all(), failed["error"].notna().all()) == (True, True)
    with pytest.raises(ArgumentError, match="declares no output schema, which a lazy table needs"):
        mcp.rows.read.map(table)


def test_a_value_of_another_type_than_declared_is_an_error_of_its_row(own_record: Path, client: Client) -> None:
    wrong = {"type": "object", "properties": {"length": {"type": "string"}}}
    Path(f"{own_record}.json").write_text(json.dumps({"outputSchema": wrong}))
    with connected(server(own_record)) as mcp:
        table = dask.dataframe.from_pandas(pd.DataFrame({"key": ["a"]}), npartitions=1)
        mapped = mcp.rows.read.map(table)
        computed = mapped.compute()
    assert computed["error"].tolist() == ["length does not match its schema"]
    assert computed.dtypes.equals(mapped.dtypes)


def test_a_bag_is_refused_with_the_ways_by_dask(mcp: Mcp, record: Path, client: Client) -> None:
    bag = dask.bag.from_sequence([{"key": "a"}, {"key": "bb"}], npartitions=2)
    with pytest.raises(ArgumentError) as caught:
        mcp.rows.read.map(bag)
    assert caught.value.message == "a Dask Bag is not mapped lazily, as a Dask DataFrame is"
    assert caught.value.hint == (
        "mcp.rows.read.map(rows.to_dataframe()), or mcp.rows.read.map(rows.compute(), executor=client)"
    )
    assert not calls(record)
    assert mcp.rows.read.map(bag.compute(), executor=client).summary["succeeded"] == 2
    lazy = mcp.rows.read.map(bag.to_dataframe(), meta={"length": "int64"})
    assert lazy.compute()["length"].tolist() == [1, 2]


def test_what_may_change_something_or_needs_consent_is_not_called_lazily(mcp: Mcp, client: Client) -> None:
    table = dask.dataframe.from_pandas(pd.DataFrame({"key": ["a"]}), npartitions=1)
    with pytest.raises(ArgumentError) as caught:
        mcp.rows.write.map(table)
    assert caught.value.message == "may change something, and Dask may compute a partition more than once"
    assert caught.value.hint == "mcp.rows.write.map(rows.compute(), executor=client)"
    for options, words in (
        ({"rate": "1/s"}, "a rate"),
        ({"to": "out.jsonl"}, "a file"),
        ({"on_progress": print}, "a function for its progress"),
    ):
        with pytest.raises(ArgumentError, match=f"a lazy collection cannot have {words}"):
            mcp.rows.read.map(table, **options)
    mcp.policy.ask("rows.read")
    with pytest.raises(PolicyError, match="cannot be asked when Dask computes"):
        mcp.rows.read.map(table, meta={"length": "int64"})


# -- the end ----------------------------------------------------------------------------------------------------------


def test_no_server_outlives_its_cluster(own_mcp: Mcp, own_record: Path) -> None:
    for processes in (True, False):
        local = LocalCluster(n_workers=1, processes=processes, dashboard_address="127.0.0.1:0")
        with local, Client(local) as client:
            own_mcp.rows.read.map(["a", "b"], executor=client)
            assert len(servers_of(own_record)) == 2
        wait_until(lambda: len(servers_of(own_record)) == 1)


@pytest.mark.kernels("kernel-7")
def test_an_interrupted_cell_leaves_the_cluster_usable(kernel: Kernel, own_record: Path) -> None:
    command = shlex.join([sys.executable, SERVER, str(own_record)])
    kernel.run(f"%load_ext ipymcp\n%mcp load rows --era legacy -- {command}")
    kernel.run("from distributed import Client, LocalCluster")
    kernel.run("cluster = LocalCluster(n_workers=2, dashboard_address=':0'); client = Client(cluster)")
    cell = kernel.start(f"mcp.rows.read.map({held_from(20, 100)!r}, executor=client, concurrency=1)")
    shown = re.compile(r"[1-9]\d*/100\b")
    cell.wait_for(lambda outcome: any(shown.search(display["text/plain"]) for display in outcome.displays))
    kernel.interrupt()
    assert "rows.read.map was interrupted" in str(cell.wait().error)
    hurry(own_record)
    kernel.run("out = mcp.maps[-1].resume()")
    assert kernel.value("out.summary['succeeded']") == 100
    kernel.run("client.close(); cluster.close()")

"""Servers in one process, without a kernel: their lives and their environments."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import ipymcp
from ipymcp import errors
from tests import processes
from tests.bad_servers import PATIENCE, News, bad, connected, pid_of, runs
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture


def environment_of(mcp: ipymcp.Mcp, name: str) -> dict[str, str]:
    return mcp[name].env().data["environ"]


# -- lives ------------------------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_servers_start_side_by_side() -> None:
    with connected({f"s{n}": bad("delay=tools/list:0.5") for n in range(8)}, load=False) as mcp:
        began = time.monotonic()
        mcp.load({f"s{n}": bad("delay=tools/list:0.5") for n in range(8)})
        assert time.monotonic() - began < 3  # one after the other takes more than 4 s
        assert [mcp[f"s{n}"].echo(f"{n}").text for n in range(8)] == [f"{n}" for n in range(8)]


def test_more_servers_than_may_start_at_once_all_start_also_after_a_close() -> None:
    definitions = {f"s{n}": bad() for n in range(12)}
    with connected(definitions) as mcp:
        assert {server.state for server in map(mcp.servers.__getitem__, mcp.servers)} == {"ready"}
        mcp.close()
        mcp.load(definitions)
        assert {server.state for server in map(mcp.servers.__getitem__, mcp.servers)} == {"ready"}


def test_a_server_that_fails_does_not_keep_the_others_from_starting() -> None:
    with connected({}, load=False) as mcp:
        with pytest.raises(errors.CommandNotFound):
            mcp.load({"one": {"command": "no-such-program"}, "two": bad()})
        assert mcp.two.echo("x").text == "x"


def test_loading_twice_is_a_no_op_and_a_changed_definition_restarts(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    with connected({"one": bad(f"runs={count}")}) as mcp, News(mcp) as news:
        pid = pid_of(mcp, "one")
        mcp.load({"one": bad(f"runs={count}")})
        assert pid_of(mcp, "one") == pid
        assert news.events == []
        old = psutil.Process(pid)
        mcp.load({"one": bad(f"runs={count}", timeout=5)})
        assert pid_of(mcp, "one") != pid
        assert not processes.is_alive(old)
        assert runs(count) == 2
        assert any(event.detail == "its definition changed" for event in news.events if hasattr(event, "detail"))


def test_the_same_server_loaded_from_many_threads_at_once_runs_once(tmp_path: Path) -> None:
    count = tmp_path / "runs"
    definitions = [{"one": bad(f"runs={count}", timeout=n)} for n in range(1, 9)]
    with connected({}, load=False) as mcp:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda definition: mcp.load(definition, wait=False), definitions))
        mcp.load({"one": mcp_definition(mcp)})
        alive = [child for child in psutil.Process().children() if "misbehaving.py" in " ".join(child.cmdline())]
        assert [child.pid for child in alive] == [pid_of(mcp, "one")]


def mcp_definition(mcp: ipymcp.Mcp) -> dict[str, object]:
    definition = mcp._host.sessions["one"].definition
    return {"command": definition.command, "args": list(definition.args), "timeout": definition.timeout}


def test_stop_start_restart_disable_enable_and_unload() -> None:
    with connected({"one": bad(), "two": bad()}) as mcp:
        one = mcp.servers["one"]
        first = pid_of(mcp, "one")
        mcp.stop("one")
        assert (one.state, one.pid is None or not psutil.pid_exists(first)) == ("stopped", True)
        mcp.start("one")
        second = pid_of(mcp, "one")
        assert (one.state, second != first) == ("ready", True)
        mcp.start("one")
        assert pid_of(mcp, "one") == second
        mcp.restart("one")
        assert pid_of(mcp, "one") not in (first, second)
        mcp.disable("one")
        assert one.state == "disabled"
        mcp.enable("one")
        assert mcp.one.echo("x").text == "x"
        mcp.disable("one.ech*")
        with pytest.raises(errors.PolicyError) as caught:
            mcp.one.echo("x")
        assert str(caught.value) == "one.echo: is disabled by 'one.ech*'"
        assert caught.value.hint == "%mcp enable one.echo"
        mcp.enable("one.ech*")
        assert mcp.one.echo("x").text == "x"
        mcp.unload("one")
        assert list(mcp.servers) == ["two"]
        with pytest.raises(errors.UnknownName):
            mcp.one.echo("x")
        assert mcp.two.echo("x").text == "x"


def test_a_disabled_definition_is_known_and_not_started() -> None:
    with connected({}, load=False) as mcp:
        mcp.load({"one": bad(disabled=True)}, wait=False)
        assert mcp.servers["one"].state == "disabled"
        mcp.enable("one")
        assert mcp.one.echo("x").text == "x"


def test_starts_and_stops_from_many_threads_end_in_a_state_that_works() -> None:
    with connected({"one": bad()}) as mcp:
        with ThreadPoolExecutor(8) as pool:
            wanted = [mcp.stop, mcp.start, mcp.restart] * 6
            ended = [pool.submit(word, "one") for word in wanted]
        for future in ended:
            assert future.exception() is None or isinstance(future.exception(), errors.ServerStopped)
        mcp.start("one")
        assert mcp.one.echo("x").text == "x"
        alive = [child for child in psutil.Process().children() if "misbehaving.py" in " ".join(child.cmdline())]
        assert len(alive) == 1


def test_a_server_is_stopped_while_it_starts() -> None:
    with connected({}, load=False) as mcp:
        mcp.load({"one": bad("mute")}, wait=False)
        mcp.stop("one")
        assert mcp.servers["one"].state == "stopped"


def test_a_call_that_a_stopped_server_refuses_stands_in_the_history() -> None:
    with connected({"one": bad()}) as mcp:
        echo = mcp.one.echo
        mcp.stop("one")
        with pytest.raises(errors.ServerStopped):
            echo("x")
        assert [entry.error for entry in mcp.history(limit=1).entries] == ["ServerStopped: is stopped"]


def test_a_listing_says_which_of_the_servers_it_names_do_not_run() -> None:
    with connected({"one": bad(), "two": bad(), "three": bad()}) as mcp:
        mcp.stop("two", "three")
        assert repr(mcp.tools("one", "two.*")).splitlines()[-1] == "two is stopped"


def test_a_call_in_flight_fails_when_its_server_is_stopped() -> None:
    with connected({"one": bad()}) as mcp:
        call = mcp.one.sleep.submit(60)
        mcp.stop("one")
        with pytest.raises(errors.ConnectionLost) as caught:
            call.result(PATIENCE)
        assert caught.value.message == "the server was stopped"


def test_an_attribute_of_a_starting_server_waits_for_it() -> None:
    with connected({}, load=False) as mcp:
        mcp.load({"one": bad("delay=tools/list:0.3")}, wait=False)
        assert mcp.servers["one"].state == "starting"
        assert mcp.one.echo("x").text == "x"


# -- environments -----------------------------------------------------------------------------------------------------


def test_a_server_is_given_the_allowed_variables_and_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERRING_TOKEN", "secret")
    monkeypatch.setenv("LC_HERRING", "C")
    monkeypatch.setenv("HTTPS_PROXY", "")
    with connected({"one": bad(env={"OWN": "1", "HOME": "/nowhere"})}) as mcp:
        given = environment_of(mcp, "one")
        assert "HERRING_TOKEN" not in given
        assert (given["OWN"], given["HOME"], given["LC_HERRING"], given["HTTPS_PROXY"]) == ("1", "/nowhere", "C", "")
        assert {name for name in given if name.startswith(("IPYMCP", "PYTHONPATH", "JPY_"))} == {
            "IPYMCP_KERNEL"
        }  # the reaper's mark


@pytest.mark.parametrize(("inherit", "expected"), [(True, {"A", "B"}), (["HERRING_A"], {"A"}), (False, set())])
def test_inherit_env_passes_on_all_some_or_none(
    inherit: object, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERRING_A", "1")
    monkeypatch.setenv("HERRING_B", "1")
    with connected({"one": bad(inherit_env=inherit)}) as mcp:
        given = environment_of(mcp, "one")
        assert {name.removeprefix("HERRING_") for name in given if name.startswith("HERRING_")} == expected


def test_a_server_has_no_relative_folders_on_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f".::bin:{os.environ['PATH']}:")
    with connected({"one": bad(), "all": bad(inherit_env=True)}) as mcp:
        for name in ("one", "all"):
            assert [part for part in environment_of(mcp, name)["PATH"].split(":") if not os.path.isabs(part)] == []


def test_a_program_in_the_working_folder_is_not_taken_for_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "herring").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "herring").chmod(0o755)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    with connected({}, load=False) as mcp, pytest.raises(errors.CommandNotFound):
        mcp.load({"one": {"command": "herring"}})


def test_a_server_has_only_its_own_three_files() -> None:
    with connected({"one": bad()}) as mcp:
        mcp.load({"two": bad()})
        assert mcp.two.env().data["fds"] == [0, 1, 2]


def test_servers_run_in_the_hosts_folder_their_files_or_their_cwd(tmp_path: Path) -> None:
    for name in ("home", "project/sub", "away"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/mcp.json").write_text(
        ipymcp_json({"filed": bad(), "below": bad(cwd="sub"), "away": bad(cwd=str(tmp_path / "away"))})
    )
    with connected({"typed": bad(), "tilde": bad(cwd="~")}, folder=tmp_path / "home") as mcp:
        mcp.load(tmp_path / "project/mcp.json")
        folders = {name: mcp[name].env().data["cwd"] for name in mcp}
        assert folders == {
            "typed": str(tmp_path / "home"),
            "tilde": os.path.expanduser("~"),
            "filed": str(tmp_path / "project"),
            "below": str(tmp_path / "project/sub"),
            "away": str(tmp_path / "away"),
        }


def ipymcp_json(servers: dict[str, object]) -> str:
    return json.dumps({"mcpServers": servers})


def test_a_folder_that_does_not_exist_is_said(tmp_path: Path) -> None:
    with connected({}, folder=tmp_path, load=False) as mcp:
        with pytest.raises(errors.StartError) as caught:
            mcp.load({"one": bad(cwd="nowhere")})
        assert caught.value._render_traceback_() == [
            f"StartError: one: its folder does not exist: {tmp_path / 'nowhere'}",
            "  correct cwd in its definition",
        ]

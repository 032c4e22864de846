"""Stored facts about servers: eras, and catalogs of servers that do not run or that start at the first call."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipymcp import Mcp, ServerStopped, UnknownName
from ipymcp.config.config_files import from_mapping
from ipymcp.runtime.context import Timing
from ipymcp.runtime.host import Host
from ipymcp.storage.known_servers import KINDS
from tests.bad_servers import QUICK, bad
from tests.conftest import StartKernel
from tests.environments import ROOT, server_command
from tests.processes import wait_until
from tests.servers.oauth_server import Behaviour, running

AT_ONCE = msgspec.structs.replace(QUICK, prefetch_delay=0.0)


@contextmanager
def notebook(timing: Timing = QUICK, /, **servers: dict[str, Any]) -> Iterator[Mcp]:
    """A separate host, as another kernel has it. Its servers may fail to load."""
    mcp = Mcp(Host(timing=timing))
    try:
        mcp._host.loop.run(mcp._host.load(from_mapping(servers).values()))
        yield mcp
    finally:
        mcp.close()


def server(name: str, *words: str, **more: Any) -> dict[str, Any]:
    command, *arguments = server_command(name, *words)
    return {"command": command, "args": arguments, **more}


def demo(**more: Any) -> dict[str, Any]:
    return server("demo", **more)


def state(mcp: Mcp, name: str) -> str:
    return dict(zip(mcp.servers, (row["state"] for row in mcp.servers.table), strict=True))[name]  # type: ignore[arg-type]


# -- lazy -------------------------------------------------------------------------------------------------------------


def test_a_lazy_server_with_a_stored_catalog_starts_at_its_first_call() -> None:
    with notebook(demo=demo()) as mcp:
        tools = mcp.tools.names
    with notebook(demo=demo(lazy=True)) as mcp:
        assert mcp.tools.names == tools
        assert mcp.demo.echo.description
        assert state(mcp, "demo") == "stopped (lazy)"
        assert mcp.servers["demo"].pid is None
        assert mcp.demo.echo("hello").text == "hello"
        assert state(mcp, "demo") == "ready"


def test_a_lazy_server_without_a_stored_catalog_is_started() -> None:
    with notebook(demo=demo(lazy=True)) as mcp:
        assert state(mcp, "demo") == "ready"


def test_looking_at_a_lazy_server_does_not_start_it() -> None:
    with notebook(demo=demo()) as mcp:
        resources, prompts = repr(mcp.demo.resources), repr(mcp.demo.prompts)
    with notebook(demo=demo(lazy=True)) as mcp:
        assert "starts at its first call; this is what it had when it last ran" in repr(mcp.demo)
        assert repr(mcp.demo.echo).startswith("demo.echo(text: str)")
        assert repr(mcp.servers) and dir(mcp.demo) and mcp.tools.df is not None
        note = "\ndemo starts at its first call; this is what it had when it last ran"
        assert (repr(mcp.demo.resources), repr(mcp.demo.prompts)) == (resources + note, prompts + note)
        with pytest.raises(UnknownName, match="there is no tool 'eccho'"):
            mcp.demo["eccho"]
        assert mcp.servers["demo"].pid is None


def test_lists_that_were_not_requested_are_stored_some_time_after_the_first_start() -> None:
    with notebook(AT_ONCE, demo=demo()) as mcp:
        known, digest = mcp._host.store.known, mcp._host.sessions["demo"].digest
        wait_until(lambda: known.catalog(digest).keys() == KINDS.keys(), 30)
    with notebook(demo=demo(lazy=True)) as mcp:
        assert "demo://notes.md" in repr(mcp.demo.resources) and "describe" in repr(mcp.demo.prompts)
        assert mcp.servers["demo"].pid is None


def test_a_list_that_fails_in_the_background_is_in_the_log_and_not_an_error_of_the_server() -> None:
    with notebook(AT_ONCE, mute=server("offering", "mute=resources/list", timeout=0.3)) as mcp:
        known, session = mcp._host.store.known, mcp._host.sessions["mute"]
        wait_until(lambda: known.catalog(session.digest).keys() == KINDS.keys() - {"resources"}, 30)
        said = [line.text for line in session.log.tail(10)]
        assert "its resources could not be listed: no answer to resources/list in 0.3 s" in said
        assert not session.status.last_error and session.status.error is None


def test_a_lazy_server_is_started_by_reading_and_by_prompts_too() -> None:
    with notebook(demo=demo()) as mcp:
        uri = next(iter(mcp.demo.resources)).uri
    with notebook(demo=demo(lazy=True)) as mcp:
        assert mcp.demo.resources[uri].read().text
        assert state(mcp, "demo") == "ready"


def test_a_lazy_server_that_was_stopped_is_stopped() -> None:
    with notebook(demo=demo()):
        pass
    with notebook(demo=demo(lazy=True)) as mcp:
        mcp.stop("demo")
        with pytest.raises(ServerStopped, match="demo: is stopped"):
            mcp.demo.echo("hello")


def test_loading_without_lazy_starts_it_and_loading_lazily_leaves_it_running() -> None:
    with notebook(demo=demo()):
        pass
    with notebook(demo=demo(lazy=True)) as mcp:
        mcp.load({"demo": demo()})
        pid = mcp.servers["demo"].pid
        assert pid is not None
        mcp.load({"demo": demo(lazy=True)})
        assert mcp.servers["demo"].pid == pid


def test_a_lazy_server_that_has_changed_is_called_as_it_is_now(tmp_path: Path) -> None:
    code = tmp_path / "server.py"
    program = """
import json, sys
tools = [{"name": "TOOL", "inputSchema": {"type": "object", "properties": {"ARGUMENT": {}}}}]
answers = {"initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s",
    "version": "1"}}, "tools/list": {"tools": tools}}
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        said = {"content": [{"type": "text", "text": json.dumps(message.get("params", {}).get("arguments"))}]}
        found = answers.get(message["method"], said)
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": found}), flush=True)
"""
    server = {"command": sys.executable, "args": [str(code)], "era": "legacy"}
    code.write_text(program.replace("TOOL", "work").replace("ARGUMENT", "old"))
    with notebook(s=server):
        pass
    code.write_text(program.replace("TOOL", "work").replace("ARGUMENT", "new"))
    with notebook(s={**server, "lazy": True}) as mcp:
        assert mcp.s.work(new=1).data == {"new": 1}
    with notebook(s=server):
        pass
    code.write_text(program.replace("TOOL", "other").replace("ARGUMENT", "new"))
    with notebook(s={**server, "lazy": True}) as mcp:
        with pytest.raises(UnknownName, match="there is no tool 'work'"):
            mcp.s.work(new=1)
        assert mcp.tools.names == ["s.other"]


# -- browsing ---------------------------------------------------------------------------------------------------------


def test_the_stored_catalog_of_a_server_that_cannot_start_is_shown_and_that_of_a_disabled_one_is_not(
    tmp_path: Path,
) -> None:
    program = tmp_path / "demo.py"
    program.write_text("import runpy\nrunpy.run_module('ipymcp.demo', run_name='__main__')\n")
    own = {"command": sys.executable, "args": [str(program)], "env": {"PYTHONPATH": str(ROOT)}}
    with notebook(own=own) as mcp:
        shown = [row["tool"] for row in mcp.own._table()]
    program.unlink()
    with notebook(own=own) as mcp:
        table = mcp.own._table()
        assert [row["tool"] for row in table] == shown
        assert table.note.startswith("own: could not start: ")
        assert table.note.endswith("; this is what it had when it last ran")
        assert len(mcp.tools) == 0
    with notebook(own={**own, "disabled": True}) as mcp:
        assert (list(mcp.own._table()), mcp.own._table().note) == ([], "own is disabled")


def test_catalogs_belong_to_definitions_and_not_to_names() -> None:
    with notebook(one=bad("tools=1")):
        pass
    with notebook(one={**bad("tools=2"), "lazy": True}) as mcp:  # it inherits nothing
        assert state(mcp, "one") == "ready"
    with notebook(other={**bad("tools=1"), "lazy": True}) as mcp:
        assert state(mcp, "other") == "stopped (lazy)"


def test_the_last_state_of_each_server_is_stored() -> None:
    with running(Behaviour()) as server:
        server.behaviour.clients["robot"] = "robots-secret"
        auth = {"type": "client_credentials", "client_id": "robot", "client_secret": "robots-secret"}
        with notebook(
            good=demo(env={"API_KEY": "0123456789"}),
            bad=bad("die-start=3"),
            off=demo(disabled=True),
            remote={"url": server.url, "auth": auth},
            bearer={"url": server.url, "headers": {"Authorization": "Bearer token-1"}},
        ):
            pass
    with notebook() as mcp:
        rows = {row["server"]: row for row in mcp.servers.known}
    shown = {name: (row["transport"], row["auth"], row["status"], row["tools"]) for name, row in rows.items()}
    assert shown == {
        "good": ("stdio", "api_key", "was connected", 5),
        "bad": ("stdio", "none", "failed", 0),
        "off": ("stdio", "none", "disabled", 0),
        "remote": ("http", "oauth2", "was connected", 1),
        "bearer": ("http", "bearer", "failed", 0),
    }
    assert rows["good"]["protocol"] == "2026-07-28"
    assert rows["good"]["last seen"] and not rows["bad"]["last seen"]
    assert str(rows["bad"]["last error"]).startswith("Could not start: exited with code 3. Last output: ")


def test_the_era_that_a_server_answered_in_is_remembered(tmp_path: Path) -> None:
    record = tmp_path / "record"
    for _ in range(2):
        with notebook(own=bad(f"record={record}", era="legacy")):
            pass
    asked = [json.loads(line[2:])["method"] for line in record.read_text().splitlines() if line.startswith("< ")]
    assert asked.count("server/discover") == 1
    assert asked.count("initialize") == 2


# -- kernels ----------------------------------------------------------------------------------------------------------


def test_kernels_share_the_catalogs_of_servers(start_kernel: StartKernel, tmp_path: Path) -> None:
    shared = {"IPYMCP_STATE_DIR": str(tmp_path / "state")}
    first, second = start_kernel(env=shared), start_kernel(env=shared)
    for kernel in (first, second):
        kernel.run("%load_ext ipymcp")
    first.run("%mcp load demo")
    note = "demo is not loaded; this is what it had when it last ran"
    tools = second.run("%mcp tools demo").text or ""
    assert "demo.echo" in tools
    assert tools.endswith(note)
    for word in ("resources", "prompts"):
        live = first.run(f"%mcp {word} demo").text
        assert second.run(f"%mcp {word} demo").text == f"{live}\n{note}"
    assert second.run("%mcp prompts demo.none").error is not None

    loaded = second.run("%mcp load demo --lazy")
    assert [display["text/plain"] for display in loaded.displays] == ["✓ demo: lazy, 5 tools; starts when called"]
    assert second.run("%mcp call demo.echo text=hello").text == "ToolResult demo.echo: hello"
    assert "connected" in (first.run("mcp.servers.known").text or "")
    second.run("%mcp stop demo")
    kept = second.run("%mcp resources demo.demo://notes*").text or ""
    assert kept.splitlines()[2].startswith("demo://notes.md")
    assert kept.endswith("demo is stopped; this is what it had when it last ran")


def test_a_lazy_server_whose_files_have_changed_needs_a_new_agreement_at_its_first_call(
    start_kernel: StartKernel,
) -> None:
    kernel = start_kernel()
    folder = kernel.folder / "project"
    folder.mkdir()
    program = folder / "server.py"
    program.write_text("import runpy\nrunpy.run_module('ipymcp.demo', run_name='__main__')\n")
    server = {"command": sys.executable, "args": ["server.py"], "env": {"PYTHONPATH": str(ROOT)}, "lazy": True}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"own": server}}))
    kernel.run(f"import os; os.chdir({str(folder)!r})\n%load_ext ipymcp")
    assert kernel.run("%mcp load", answers=["yes"]).displays[0]["text/plain"] == "✓ own: ready, 5 tools"

    def changed() -> None:
        kernel.run("%mcp unload own")
        assert kernel.run("%mcp load").displays[0]["text/plain"] == "✓ own: lazy, 5 tools; starts when called"
        program.write_text(program.read_text() + "\n")

    changed()
    gathered = "import asyncio\nr = await asyncio.gather(mcp.own.echo.aio('a'), mcp.own.echo.aio('b'))"
    both = kernel.run(f"{gathered}\n[each.text for each in r]", answers=["yes"])
    assert (both.text, both.prompts) == ("['a', 'b']", ["Run it? [yes, no] "])
    changed()
    refused = kernel.run("mcp.own.echo('a')", answers=["no"])
    assert refused.error is not None and refused.error.ename == "TrustError"
    assert refused.prompts == ["Run it? [yes, no] "]
    assert kernel.run("%mcp start own", answers=["yes"]).error is None
    changed()
    alone = kernel.run("mcp.own.echo('a')").error  # no one can be asked
    assert alone is not None and alone.ename == "TrustError"


def test_a_tool_whose_name_equals_a_password_keeps_its_name() -> None:
    own = bad("tools=1", env={"PASSWORD": "tool_00000"})
    with notebook(own=own):
        pass
    with notebook(own={**own, "lazy": True}) as mcp:
        assert state(mcp, "own") == "stopped (lazy)"
        assert "tool_00000" in dir(mcp.own)
        assert mcp.own.tool_00000.name == "tool_00000"


def test_a_damaged_database_is_reported_once_in_a_cell(start_kernel: StartKernel, tmp_path: Path) -> None:
    path = tmp_path / "state" / "state.db"
    path.parent.mkdir()
    path.write_bytes(b"this is not a database\n" * 500)
    kernel = start_kernel(env={"IPYMCP_STATE_DIR": str(path.parent)})
    kernel.run("%load_ext ipymcp")
    loaded = kernel.run("%mcp load demo")
    assert loaded.error is None
    text = "new data is kept in memory, until this kernel ends"
    assert loaded.stderr == f"ipymcp: {path} is damaged: {text}\n"
    assert kernel.run("%mcp tools").stderr == ""
    assert kernel.run("mcp.demo.echo('hello').text").text == "'hello'"


def test_a_database_that_fails_later_is_reported_below_the_next_cell_of_any_kind(
    start_kernel: StartKernel, tmp_path: Path
) -> None:
    path = tmp_path / "state" / "state.db"
    kernel = start_kernel(env={"IPYMCP_STATE_DIR": str(path.parent)})
    kernel.run("%load_ext ipymcp\n%mcp load demo\nmcp.servers.known")  # which waits for the pending writes
    path.write_bytes(b"this is not a database\n" * 500)
    looked = kernel.run("mcp.servers.known")
    assert looked.error is None
    text = "new data is kept in memory, until this kernel ends"
    assert looked.stderr == f"ipymcp: {path} is damaged: {text}\n"
    assert kernel.run("mcp.servers.known").stderr == ""

"""The panel in kernels: over a widget's comm, over the relay's socket, and what else shows it."""

import ast
import contextlib
import json
import os
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import StartKernel
from tests.environments import ROOT, server_command
from tests.integration.notebooks import done, text
from tests.kernels import KERNELS, Kernel
from tests.panels import CommView, SocketView, relay_file
from tests.registry import registry_server

WIDGET = "application/vnd.jupyter.widget-view+json"
OWN = "application/vnd.ipymcp.panel+json"
STATIC = ROOT / "ipymcp" / "panel" / "static"
NAMED = ROOT / "tests" / "servers" / "named.py"
SAVED = """
import json, ipywidgets
states = [one["state"] for one in ipywidgets.Widget.get_manager_state()["state"].values() if "_esm" in one["state"]]
open("states.json", "w").write(json.dumps(states))
"""
every_kernel = pytest.mark.kernels(*KERNELS)


class Connect(Protocol):
    def __call__(self, path: str) -> SocketView: ...


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Views over relays, closed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(SocketView(path))


def shown(kernel: Kernel, cell: str = "%mcp panel") -> CommView:
    outcome = done(kernel, cell, answers=())
    return CommView(kernel, [*outcome.displays, *([outcome.result] if outcome.result else [])])


def asking(server: str = "asks") -> str:
    command = [server_command("sdk2")[0], str(ROOT / "tests" / "servers" / "sdk_asks.py")]
    return f"%mcp load {server} -- {shlex.join(command)};"


# -- in a cell --------------------------------------------------------------------------------------------------------


@every_kernel
def test_a_panel_in_a_cell_is_live(loaded: Kernel) -> None:
    view = shown(loaded)
    assert view.hello()["namespace"] == "mcp"
    result = view.call("demo", "query", table="penguins", limit=3)
    assert text(loaded, f"{result['preview']['variable']}.data['count']") == "3"
    view.ask("stop", server="demo")
    view.until(lambda state: state["servers"]["demo"]["state"] == "stopped")


def test_each_panel_carries_a_stub_and_the_code_comes_when_a_page_asks(loaded: Kernel) -> None:
    view = shown(loaded)
    done(loaded, 'mcp.servers["demo"]', answers=())
    opened = [one for one in loaded.comms if one["msg_type"] == "comm_open"]
    ours = [one for one in opened if one["content"]["data"]["state"].get("_esm")]
    assert len(ours) == 2
    assert all(len(json.dumps(one["content"])) < 2_000 for one in ours)
    assert [one["content"]["data"]["state"]["server"] for one in ours] == ["", "demo"]
    assert sum(len(json.dumps(one["content"])) for one in loaded.comms) < 6_000

    done(loaded, 'for _ in range(8):\n    display(mcp.servers["demo"])', answers=())
    assert sum(len(json.dumps(one["content"])) for one in loaded.comms) < 50_000

    code = (STATIC / "panel.js").read_text("utf-8")
    done(loaded, SAVED)
    states = json.loads((loaded.folder / "states.json").read_text())
    assert len(states) == 10
    assert all(len(json.dumps(one)) < 2_000 for one in states)
    assert code[1_000:1_100] not in json.dumps(states, ensure_ascii=False)

    view.send({"kind": "library"})
    view.wait(lambda one: one["kind"] == "library")
    sent = next(one for one in loaded.comms if one["buffers"])
    assert bytes(sent["buffers"][0]) == (STATIC / "panel.js").read_bytes()
    assert sent["content"]["data"]["content"] == {"kind": "library"}


def test_a_panel_and_a_card_name_the_kernels_life_and_are_tables_to_what_has_no_widgets(loaded: Kernel) -> None:
    [panel] = done(loaded, "%mcp panel", answers=()).displays
    card = done(loaded, 'mcp.servers["demo"]', answers=()).result
    assert card is not None
    [same] = done(loaded, "%mcp panel demo", answers=()).displays

    assert set(panel) == set(card) == set(same) == {"text/plain", "text/html", WIDGET, OWN}
    life = shown(loaded).hello()["kernel"]
    assert panel[OWN] == {"version": 1, "kernel": life}
    assert card[OWN] == same[OWN] == {"version": 1, "kernel": life, "server": "demo"}
    assert panel["text/plain"].splitlines()[0] == "MCP servers"
    assert card["text/plain"] == same["text/plain"] == "demo · ready · 2026-07-28 · 5 tools"
    for html in (panel["text/html"], card["text/html"]):
        assert "<table" in html
        assert "<script" not in html


def test_a_notebook_that_a_program_executes_keeps_a_table_and_no_widget(loaded: Kernel) -> None:
    [panel] = done(loaded, "%mcp panel").displays
    card = done(loaded, 'mcp.servers["demo"]').result
    assert card is not None
    assert set(panel) == set(card) == {"text/plain", "text/html", OWN}
    assert not loaded.comms


def test_a_terminal_shows_a_card_as_text() -> None:
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as S; ip = S.instance();"
        "ip.run_line_magic('load_ext', 'ipymcp'); ip.run_line_magic('mcp', 'load demo;');"
        "import ipymcp; print(sorted(ip.display_formatter.format(ipymcp.mcp.servers['demo'])[0]))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.splitlines()[-1] == "['text/html', 'text/plain']"


def test_loading_the_extension_imports_of_the_panel_only_what_decides_on_forms_in_cells(kernel: Kernel) -> None:
    cell = "%load_ext ipymcp\nimport sys\n[m for m in sys.modules if 'panel' in m or m in ('anywidget', 'ipywidgets')]"
    assert text(kernel, cell) == "['ipymcp.panel', 'ipymcp.panel.cell_forms']"


@pytest.mark.parametrize(
    ("variables", "mode"),
    [({}, "full"), ({"SERVER_SOFTWARE": "voila/0.5.12"}, "run"), ({"VOILA_PREHEAT": "True"}, "run")],
)
def test_under_voila_a_panel_may_run_but_not_manage(
    start_kernel: StartKernel, variables: dict[str, str], mode: str
) -> None:
    kernel = start_kernel(env=variables)
    done(kernel, "%load_ext ipymcp")
    assert text(kernel, "%config IPyMCP.panel") == repr(mode)
    view = shown(kernel)
    assert view.hello()["mode"] == mode
    assert view.reply("load", what=["demo"])["ok"] == (mode == "full")


def test_the_setting_is_enforced_for_raw_messages_and_told(loaded: Kernel) -> None:
    view = shown(loaded)
    view.hello()
    done(loaded, '%config IPyMCP.panel = "view"')
    view.wait(lambda one: one["kind"] == "hello" and one["mode"] == "view")
    for verb in ("stop", "call", "answer", "load", "unload"):
        assert view.reply(verb, server="demo", tool="query")["error"]["type"] == "PolicyError"
    assert text(loaded, 'mcp.servers["demo"].state') == "'ready'"


def test_a_panel_outlives_the_end_of_all_servers(loaded: Kernel, connect: Connect) -> None:
    view = shown(loaded)
    view.hello()
    before = relay_file(loaded)["socket"]
    done(loaded, "mcp.close()")
    view.ask("start", server="demo")
    view.until(lambda state: state["servers"]["demo"]["state"] == "ready")
    after = relay_file(loaded)["socket"]
    assert after != before
    assert connect(after).hello()


def test_code_runs_as_it_is_inserted(loaded: Kernel) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
    tool = json.dumps({"name": "it's a {tool}", "inputSchema": schema})
    (loaded.folder / "tool.json").write_text(tool)
    done(loaded, f'mcp.load({{"own": {{"command": "python", "args": [{str(NAMED)!r}, open("tool.json").read()]}}}})')
    view = shown(loaded)
    view.hello()
    values = {"path": "it's {x}? $y\n\u2028 'a' \\ \"b\"; # c", "n": 3}
    for form in ("python", "magic"):
        code = view.ask("code", server="own", tool="it's a {tool}", arguments=values, form=form)["text"]
        done(loaded, f"r = {code}")
        assert text(loaded, "repr(r.data)") == repr(repr({"tool": "it's a {tool}", "arguments": values})), code


# -- while the kernel works -------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_the_relay_answers_while_a_cell_blocks_the_kernel(loaded: Kernel, connect: Connect) -> None:
    view = connect(relay_file(loaded)["socket"])
    view.hello(client="sidebar")
    cell = loaded.start("call = mcp.demo.slow(seconds=30)")
    view.until(lambda state: any(row["progress"] for row in state["calls"].values()))
    [number] = view.state["calls"]
    began = time.monotonic()
    view.ask("cancel", call=int(number))
    outcome = cell.wait(10)
    assert time.monotonic() - began < 1
    assert outcome.error is not None
    assert outcome.error.ename == "CallCancelled"


@pytest.mark.timed
def test_the_panel_in_a_cell_hears_what_happens_while_a_cell_blocks_the_kernel(loaded: Kernel) -> None:
    view = shown(loaded)
    view.hello()
    cell = loaded.start("mcp.demo.slow(seconds=2)")
    view.until(lambda state: any(row["progress"] for row in state["calls"].values()), timeout=1.9)
    cell.wait()


def test_buttons_in_a_cell_work_while_another_blocks_the_kernel_where_comms_have_a_subshell(loaded: Kernel) -> None:
    view = shown(loaded)
    view.hello()
    view.subshell = loaded.make_subshell()
    cell = loaded.start("import time; time.sleep(5)")
    assert view.call("demo", "query", table="penguins", limit=1)["ok"]
    view.ask("stop", server="demo")
    assert not cell.done
    cell.wait()


def test_a_question_of_a_panels_call_is_asked_in_the_panel(loaded: Kernel) -> None:
    done(loaded, asking())
    view = shown(loaded)
    view.hello()
    number = view.ask("call", server="asks", tool="ask_form", arguments={})["call"]
    view.until(lambda state: bool(state["questions"]))
    [question] = view.state["questions"].values()
    assert (question["type"], question["server"], question["title"]) == (
        "fill",
        "asks",
        "asks.ask_form asks for your input",
    )
    wrong = view.ask("answer", question=question["id"], action="accept", content={})
    assert {tuple(one["path"]) for one in wrong["errors"]} >= {("name",)}
    fields = question["schema"]["properties"]
    content = {name: {"string": "Ada", "integer": 36, "boolean": True}.get(fields[name].get("type")) for name in fields}
    content = {name: value for name, value in content.items() if value is not None}
    assert view.ask("answer", question=question["id"], action="accept", content=content) is None
    result = view.wait(lambda one: one["kind"] == "result" and one["call"] == number)
    assert result["ok"], result
    assert "Ada" in result["preview"]["text"]
    view.until(lambda state: not state["questions"])
    assert view.reply("answer", question=question["id"], action="cancel")["error"]["type"] == "UnknownName"


def test_an_awaiting_cell_is_asked_in_the_panel_and_a_blocked_one_at_the_prompt(loaded: Kernel) -> None:
    done(loaded, asking())
    view = shown(loaded)
    view.hello()
    cell = loaded.start("r = await mcp.asks.ask_form.aio()", answers=())
    view.until(lambda state: bool(state["questions"]))
    assert not cell.outcome.prompts
    [question] = view.state["questions"]
    view.ask("answer", question=question, action="decline")
    cell.wait()
    blocked = loaded.start("mcp.asks.ask_form()", answers=["!decline"])
    blocked.wait()
    assert blocked.outcome.prompts
    view.until(lambda state: not state["questions"])


def test_a_cell_that_blocks_the_kernel_is_asked_in_the_sidebar(loaded: Kernel, connect: Connect) -> None:
    done(loaded, asking())
    view = connect(relay_file(loaded)["socket"])
    view.hello(client="sidebar")
    for end in (lambda question: view.ask("answer", question=question, action="decline"), lambda _: loaded.interrupt()):
        cell = loaded.start("mcp.asks.ask_form()", answers=())
        view.until(lambda state: bool(state["questions"]))
        assert not cell.outcome.prompts
        end(next(iter(view.state["questions"])))
        cell.wait(10)
        view.until(lambda state: not state["questions"])


def test_an_interrupt_withdraws_a_question(loaded: Kernel) -> None:
    done(loaded, asking())
    view = shown(loaded)
    view.hello()
    cell = loaded.start("r = await mcp.asks.ask_form.aio()")
    view.until(lambda state: bool(state["questions"]))
    loaded.interrupt()
    assert cell.wait().error is not None
    view.until(lambda state: not state["questions"])


def test_an_interrupt_of_an_addition_or_a_load_closes_its_question_and_starts_nothing(
    kernel: Kernel, connect: Connect
) -> None:
    server = {"command": sys.executable, "args": [str(NAMED), '{"name": "a"}']}
    (kernel.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    with registry_server() as registry:
        done(kernel, f"%load_ext ipymcp\n%config IPyMCP.registry = {registry.address!r}")
        done(kernel, "%mcp panel")
        view = connect(relay_file(kernel)["socket"])
        view.hello(client="sidebar")
        for line in ("%mcp add clock-quiet --way 1", "%mcp load theirs"):
            cell = kernel.start(line, answers=())
            view.until(lambda state: [one["type"] for one in state["questions"].values()] == ["trust"])
            [question] = view.state["questions"]
            kernel.interrupt()
            assert cell.wait(10).error is not None
            view.until(lambda state: not state["questions"])
            late = view.reply("answer", question=question, servers=["clock_quiet", "theirs"], secrets=[])
            assert late["error"]["message"] == "the question is no longer open"
    assert text(kernel, "list(mcp), mcp._host.trials.sessions") == "([], ())"


def test_trust_is_asked_for_in_the_panel(kernel: Kernel) -> None:
    server = {"command": sys.executable, "args": [str(NAMED), '{"name": "a"}']}
    (kernel.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    done(kernel, "%load_ext ipymcp")
    view = shown(kernel)
    view.hello()
    assert [one["name"] for one in view.ask("known")] == ["theirs"]
    view.ask("load", what=["theirs"])
    view.until(lambda state: bool(state["questions"]))
    [question] = view.state["questions"].values()
    assert (question["type"], question["candidates"][0]["name"]) == ("trust", "theirs")
    assert any(str(NAMED) in line for line in question["candidates"][0]["lines"])
    view.ask("answer", question=question["id"], servers=[], secrets=[])
    view.until(lambda state: state["servers"].get("theirs", {}).get("state") == "needs_trust")
    view.ask("trust", server="theirs")
    view.until(lambda state: bool(state["questions"]))
    view.ask("answer", question=next(iter(view.state["questions"])), servers=["theirs"], secrets=[])
    view.until(lambda state: state["servers"]["theirs"]["state"] == "ready")


def test_a_models_call_is_approved_in_the_panel(loaded: Kernel) -> None:
    view = shown(loaded)
    view.hello()
    done(loaded, "%mcp policy ask demo.query")
    number = view.ask("call", server="demo", tool="query", arguments={"table": "penguins"})["call"]
    view.until(lambda state: bool(state["questions"]))
    [question] = view.state["questions"].values()
    assert (question["type"], question["calls"][0]["arguments"]) == ("approve", {"table": "penguins"})
    assert view.reply("answer", question=question["id"], answer="perhaps")["error"]["type"] == "Malformed"
    view.ask("answer", question=question["id"], answer="no")
    result = view.wait(lambda one: one["kind"] == "result" and one["call"] == number)
    assert result["error"]["type"] == "PolicyError"


# -- the relay --------------------------------------------------------------------------------------------------------


@every_kernel
def test_the_relay_is_found_by_a_private_file_and_lies_in_a_private_folder(loaded: Kernel, connect: Connect) -> None:
    meeting = relay_file(loaded)
    assert meeting["pid"] == loaded.pid
    assert (meeting["version"], time.time() - 120 < meeting["started"] < time.time()) == (1, True)
    assert stat.S_IMODE(os.stat(meeting["file"]).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(Path(meeting["socket"]).parent).st_mode) == 0o700
    assert len(meeting["socket"]) < 104
    view = connect(meeting["socket"])
    assert view.hello(client="sidebar")["mode"] == "full"
    assert view.call("demo", "query", table="penguins", limit=1)["ok"]


def test_unloading_and_shutting_down_take_it_away(start_kernel: StartKernel, connect: Connect) -> None:
    kernel = start_kernel()
    done(kernel, "%load_ext ipymcp")
    meeting = relay_file(kernel)
    done(kernel, "%unload_ext ipymcp")
    assert not Path(meeting["file"]).exists()
    assert not Path(meeting["socket"]).parent.exists()
    done(kernel, "%load_ext ipymcp")
    again = relay_file(kernel)
    view = connect(again["socket"])
    view.hello()
    kernel.shutdown()
    assert not Path(again["file"]).exists()
    assert not Path(again["socket"]).parent.exists()


def test_what_a_killed_kernel_left_is_swept_by_the_next(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    done(kernel, "%load_ext ipymcp")
    meeting = relay_file(kernel)
    kernel.restart(now=True)
    assert Path(meeting["socket"]).parent.exists()
    done(kernel, "%load_ext ipymcp")
    done(kernel, "pass")
    deadline = time.monotonic() + 20
    while relay_file(kernel)["pid"] != kernel.pid:
        assert time.monotonic() < deadline
    assert not Path(meeting["socket"]).parent.exists()


def test_a_deep_runtime_folder_does_not_matter(start_kernel: StartKernel, tmp_path: Path, connect: Connect) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    kernel = start_kernel(env={"XDG_RUNTIME_DIR": str(deep)})
    done(kernel, "%load_ext ipymcp")
    meeting = relay_file(kernel)
    assert not meeting["socket"].startswith(str(deep))
    assert not [*deep.iterdir()]
    connect(meeting["socket"]).hello()


def test_a_place_that_takes_no_socket_is_passed_over(start_kernel: StartKernel, connect: Connect) -> None:
    kernel = start_kernel(env={"XDG_RUNTIME_DIR": "/proc"})  # to root it seems writable
    done(kernel, "%load_ext ipymcp")
    connect(relay_file(kernel)["socket"]).hello()


def test_the_relay_lets_go_of_who_says_nothing_or_too_much_and_bears_nonsense(loaded: Kernel, connect: Connect) -> None:
    path = relay_file(loaded)["socket"]
    silent = connect(path)
    began = time.monotonic()
    with pytest.raises(ConnectionError):
        silent.listen(lambda: False, 20)
    assert 4 < time.monotonic() - began < 15

    view = connect(path)
    view.socket.sendall(b"\xff\xfe no json\n\n[1]\n")
    view.listen(lambda: len(view.of_kind("reply")) == 3, 10)
    assert {one["error"]["message"] for one in view.heard} == {"a message is a JSON object"}
    assert view.hello()
    with pytest.raises(ConnectionError):
        view.socket.sendall(b"x" * 9_000_000)
        view.listen(lambda: False, 20)
    assert connect(path).hello()


def test_a_browser_that_does_not_read_costs_bounded_memory(loaded: Kernel, connect: Connect) -> None:
    done(loaded, f"%mcp load own -- {shlex.join(server_command('misbehaving', 'stderr=20000'))};")
    view = connect(relay_file(loaded)["socket"])
    view.hello()
    view.ask("logs", server="own", on=True)
    memory = "import psutil; psutil.Process().memory_info().rss"
    before = int(text(loaded, memory) or 0)
    done(loaded, "import time; time.sleep(4)")  # nobody reads
    assert int(text(loaded, memory) or 0) - before < 20_000_000
    view.wait(lambda one: one["kind"] == "log" and one["dropped"] > 10_000)


def test_of_ten_thousand_log_lines_the_kernel_counts_those_that_are_not_shown(kernel: Kernel, connect: Connect) -> None:
    flood = "import runpy, sys; sys.stderr.write(''.join(f'line {n}\\n' for n in range(1, 10001))); sys.stderr.flush()"
    arguments = f"sys.argv[:] = ['', '{{\"name\": \"a\"}}']; sys.path.insert(0, {str(Path(NAMED).parent)!r})"
    program = f"{flood}; {arguments}; runpy.run_path({str(NAMED)!r}, run_name='__main__')"
    definition = {"loud": {"command": sys.executable, "args": ["-c", program], "log_lines": 1000}}
    done(kernel, f"%load_ext ipymcp\nmcp.load({definition!r});")
    view = connect(relay_file(kernel)["socket"])
    view.hello()
    count = "print(len(log), sum(one.source == 'host' for one in log.tail()), log.total)"
    count = f"log = mcp._host.sessions['loud'].log\n{count}"
    kept, ours, total = map(int, done(kernel, count).stdout.split())
    assert (kept, total) == (1000, 10_000 + ours)

    view.ask("logs", server="loud", on=True)
    batch = view.wait(lambda one: one["kind"] == "log")
    lines = batch["lines"]
    assert (len(lines), batch["dropped"], lines[-1]["n"]) == (500, total - 500, total)
    assert [line["n"] for line in lines] == list(range(total - 499, total + 1))
    table = done(kernel, "print([row['text'] for row in mcp.servers['loud'].logs(500)])").stdout
    assert [line["text"] for line in lines] == ast.literal_eval(table)
    assert "line 10000" in {line["text"] for line in lines}

    view.ask("logs", server="loud", on=False)
    seen = len(view.heard)
    view.ask("logs", server="loud", on=True, since=total - 20)
    again = view.wait(lambda one: one["kind"] == "log", after=seen)
    assert (len(again["lines"]), again["dropped"], again["lines"][0]["n"]) == (20, 0, total - 19)


def test_a_cell_that_waits_for_an_answer_in_the_panel_says_so_until_it_has_one(
    kernel: Kernel, connect: Connect
) -> None:
    server = {"command": sys.executable, "args": [str(NAMED), '{"name": "a"}']}
    (kernel.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))
    done(kernel, "%load_ext ipymcp")
    view = connect(relay_file(kernel)["socket"])
    view.hello()
    cell = kernel.start("%mcp load theirs")
    view.until(lambda state: bool(state["questions"]))
    waiting = "Waiting for your answer in the MCP panel."
    kernel.read_until(lambda: any(one.get("text/plain") == waiting for one in cell.outcome.displays), 10)
    view.ask("answer", question=next(iter(view.state["questions"])), servers=["theirs"], secrets=[])
    outcome = cell.wait()
    assert waiting not in json.dumps(outcome.displays)

"""The panel in kernels: over a widget's comm, over the relay's socket, and what else shows it."""

import contextlib
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from ipymcp.notebook.settings import is_voila
from tests.conftest import StartKernel
from tests.environments import ROOT
from tests.integration.notebooks import done, text
from tests.kernels import KERNELS, Kernel
from tests.panel.kernels import blocked, load_asks, load_misbehaving, panel
from tests.panel.notebooks import NAMED, named
from tests.panels import CommView, PageView, SocketView, View, relay_file
from tests.processes import wait_until
from tests.registry import registry_server

WIDGET = "application/vnd.jupyter.widget-view+json"
OWN = "application/vnd.ipymcp.panel+json"
STATIC = ROOT / "ipymcp" / "panel" / "static"
SAVED = """
import json, ipywidgets
states = [one["state"] for one in ipywidgets.Widget.get_manager_state()["state"].values() if "_esm" in one["state"]]
open("states.json", "w").write(json.dumps(states))
"""
WAITING = "Waiting for your answer in the MCP panel."
every_kernel = pytest.mark.kernels(*KERNELS)


class Connect(Protocol):
    def __call__(self, path: str) -> SocketView: ...


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Views over relays, closed with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda path: stack.enter_context(SocketView(path))


def write_project(kernel: Kernel, tool: str) -> None:
    """Write the project's server `theirs`; with another tool it is another server, which is not trusted."""
    (kernel.folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": named({"name": tool})}}))


# -- in a cell --------------------------------------------------------------------------------------------------------


@every_kernel
def test_a_panel_in_a_cell_is_live(loaded: Kernel) -> None:
    assert text(loaded, "%config IPyMCP.panel") == "'full'"
    view = panel(loaded)
    hello = view.hello()
    assert (hello["namespace"], hello["mode"]) == ("mcp", "full")
    result = view.call("demo", "query", table="penguins", limit=3)
    assert text(loaded, f"{result['preview']['variable']}.data['count']") == "3"
    view.ask("stop", server="demo")
    view.until_server("demo", "stopped")
    view.ask("unload", server="demo")
    view.ask("load", what=["demo"])
    view.until_server("demo", "ready")


def test_each_panel_carries_a_stub_and_the_code_comes_when_a_page_asks(loaded: Kernel) -> None:
    view = panel(loaded)
    done(loaded, 'mcp.servers["demo"]', answers=())
    opened = [message for message in loaded.comms if message["msg_type"] == "comm_open"]
    ours = [message["content"] for message in opened if message["content"]["data"]["state"].get("_esm")]
    assert len(ours) == 2
    assert all(len(json.dumps(content)) < 2_000 for content in ours)
    assert [content["data"]["state"]["server"] for content in ours] == ["", "demo"]
    assert sum(len(json.dumps(message["content"])) for message in loaded.comms) < 6_000

    done(loaded, 'for _ in range(8):\n    display(mcp.servers["demo"])', answers=())
    assert sum(len(json.dumps(message["content"])) for message in loaded.comms) < 50_000

    code = (STATIC / "panel.js").read_text("utf-8")
    done(loaded, SAVED)
    states = json.loads((loaded.folder / "states.json").read_text())
    assert len(states) == 10
    assert all(len(json.dumps(state)) < 2_000 for state in states)
    assert code[1_000:1_100] not in json.dumps(states, ensure_ascii=False)

    view.send({"kind": "library"})
    view.wait(lambda message: message["kind"] == "library")
    sent = next(message for message in loaded.comms if message["buffers"])
    assert bytes(sent["buffers"][0]) == (STATIC / "panel.js").read_bytes()
    assert sent["content"]["data"]["content"] == {"kind": "library"}


def test_a_panel_and_a_card_name_the_kernels_life_and_are_tables_where_there_are_no_widgets(loaded: Kernel) -> None:
    [shown] = done(loaded, "%mcp panel", answers=()).displays
    card = done(loaded, 'mcp.servers["demo"]', answers=()).result
    assert card is not None
    [same] = done(loaded, "%mcp panel demo", answers=()).displays

    assert set(shown) == set(card) == set(same) == {"text/plain", "text/html", WIDGET, OWN}
    life = panel(loaded).hello()["kernel"]
    assert shown[OWN] == {"version": 1, "kernel": life}
    assert card[OWN] == same[OWN] == {"version": 1, "kernel": life, "server": "demo"}
    assert shown["text/plain"].splitlines()[0] == "MCP servers"
    assert card["text/plain"] == same["text/plain"] == "demo · ready · 2026-07-28 · 5 tools"
    for html in (shown["text/html"], card["text/html"]):
        assert "<table" in html
        assert "<script" not in html


def test_a_notebook_that_a_program_executes_keeps_a_table_and_no_widget(loaded: Kernel) -> None:
    [shown] = done(loaded, "%mcp panel").displays
    card = done(loaded, 'mcp.servers["demo"]').result
    assert card is not None
    assert set(shown) == set(card) == {"text/plain", "text/html", OWN}
    assert not loaded.comms


def test_a_terminal_shows_a_card_as_text() -> None:
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as S; ip = S.instance();"
        "ip.run_line_magic('load_ext', 'ipymcp'); ip.run_line_magic('mcp', 'load demo;');"
        "import ipymcp; print(sorted(ip.display_formatter.format(ipymcp.mcp.servers['demo'])[0]))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == "['text/html', 'text/plain']"


@pytest.mark.cold
def test_loading_the_extension_imports_only_what_decides_on_forms_in_cells(kernel: Kernel) -> None:
    cell = "%load_ext ipymcp\nimport sys\n[m for m in sys.modules if 'panel' in m or m in ('anywidget', 'ipywidgets')]"
    assert text(kernel, cell) == "['ipymcp.panel', 'ipymcp.panel.cell_forms']"
    view = panel(kernel)
    view.hello()
    assert view.ask("load", what=["demo"]) is None
    view.until_server("demo", "ready")


def test_under_voila_a_panel_may_run_but_not_manage(start_kernel: StartKernel) -> None:
    assert is_voila({"VOILA_PREHEAT": "True"}) and not is_voila({})
    kernel = start_kernel(env={"SERVER_SOFTWARE": "voila/0.5.12"})
    done(kernel, "%load_ext ipymcp")
    assert text(kernel, "%config IPyMCP.panel") == "'run'"
    view = panel(kernel)
    assert view.hello()["mode"] == "run"
    assert not view.reply("load", what=["demo"])["ok"]


def test_the_setting_is_enforced_for_raw_messages_and_sent_to_views(loaded: Kernel) -> None:
    view = panel(loaded)
    view.hello()
    done(loaded, '%config IPyMCP.panel = "view"')
    view.wait(lambda message: message["kind"] == "hello" and message["mode"] == "view")
    for verb in ("stop", "call", "answer", "load", "unload"):
        assert view.reply(verb, server="demo", tool="query")["error"]["type"] == "PolicyError"
    assert text(loaded, 'mcp.servers["demo"].state') == "'ready'"


def test_a_panel_works_on_after_the_end_of_all_servers(loaded: Kernel, connect: Connect) -> None:
    view = panel(loaded)
    view.hello()
    before = relay_file(loaded)["socket"]
    done(loaded, "mcp.close()")
    view.ask("start", server="demo")
    view.until_server("demo", "ready")
    after = relay_file(loaded)["socket"]
    assert after != before
    assert connect(after).hello()


def test_code_runs_as_it_is_inserted(loaded: Kernel) -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "integer"}}}
    tool = json.dumps({"name": "it's a {tool}", "inputSchema": schema})
    (loaded.folder / "tool.json").write_text(tool)
    done(loaded, f'mcp.load({{"own": {{"command": "python", "args": [{NAMED!r}, open("tool.json").read()]}}}})')
    view = panel(loaded)
    view.hello()
    values = {"path": "it's {x}? $y\n\u2028 'a' \\ \"b\"; # c", "n": 3}
    for form in ("python", "magic"):
        code = view.ask("code", server="own", tool="it's a {tool}", arguments=values, form=form)["text"]
        done(loaded, f"r = {code}")
        assert text(loaded, "repr(r.data)") == repr(repr({"tool": "it's a {tool}", "arguments": values})), code


# -- while the kernel works -------------------------------------------------------------------------------------------


def until_progress(view: View) -> str:
    """Wait until a running call shows its progress, and give its number."""
    view.until(lambda state: any(row["progress"] for row in state["calls"].values()))
    [number] = view.state["calls"]
    return number


@pytest.mark.timed
def test_the_relay_answers_while_a_cell_blocks_the_kernel(loaded: Kernel, connect: Connect) -> None:
    view = connect(relay_file(loaded)["socket"])
    view.hello(client="sidebar")
    cell = loaded.start("call = mcp.demo.slow(seconds=30)")
    number = until_progress(view)
    began = time.monotonic()
    view.ask("cancel", call=int(number))
    outcome = cell.wait(10)
    assert time.monotonic() - began < 1
    assert outcome.error is not None
    assert outcome.error.ename == "CallCancelled"


def test_the_panel_in_a_cell_shows_what_happens_while_a_cell_blocks_the_kernel(loaded: Kernel) -> None:
    view = panel(loaded)
    view.hello()
    cell = loaded.start("mcp.demo.slow(seconds=60)")
    until_progress(view)
    assert not cell.done
    loaded.interrupt()
    cell.wait()


@pytest.mark.parametrize("open_view", [panel, PageView], ids=["a widget", "a page"])
def test_a_view_on_a_subshell_works_while_a_cell_blocks_the_kernel(
    loaded: Kernel, open_view: Callable[[Kernel], CommView]
) -> None:
    view = open_view(loaded)
    view.hello()
    view.subshell = loaded.make_subshell()
    with blocked(loaded) as cell:
        assert view.call("demo", "query", table="penguins", limit=1)["ok"]
        view.ask("stop", server="demo")
        assert not cell.done


def test_an_awaiting_cell_is_asked_in_the_panel_and_a_blocked_one_at_the_prompt(loaded: Kernel) -> None:
    load_asks(loaded)
    view = panel(loaded)
    view.hello()
    interrupted = loaded.start("r = await mcp.asks.ask_form.aio()")
    view.question()
    loaded.interrupt()
    assert interrupted.wait().error is not None
    view.until_no_question()

    cell = loaded.start("r = await mcp.asks.ask_form.aio()", answers=())
    question = view.question()
    assert not cell.outcome.prompts
    view.answer(question, action="decline")
    cell.wait()
    view.until_no_question()

    prompted = loaded.start("mcp.asks.ask_form()", answers=["!decline"])
    prompted.wait()
    assert prompted.outcome.prompts
    view.until_no_question()


def test_a_cell_that_blocks_the_kernel_is_asked_in_the_sidebar(loaded: Kernel, connect: Connect) -> None:
    load_asks(loaded)
    view = connect(relay_file(loaded)["socket"])
    view.hello(client="sidebar")
    for end in (lambda question: view.answer(question, action="decline"), lambda _: loaded.interrupt()):
        cell = loaded.start("mcp.asks.ask_form()", answers=())
        question = view.question()
        assert not cell.outcome.prompts
        end(question)
        cell.wait(10)
        view.until_no_question()


def test_a_cell_that_waits_for_an_answer_in_the_panel_says_so_until_it_has_one(
    loaded: Kernel, connect: Connect
) -> None:
    write_project(loaded, "a")
    view = connect(relay_file(loaded)["socket"])
    view.hello()
    cell = loaded.start("%mcp load theirs")
    question = view.question()
    loaded.read_until(lambda: any(one.get("text/plain") == WAITING for one in cell.outcome.displays), 10)
    view.answer(question, servers=["theirs"], secrets=[])
    outcome = cell.wait()
    assert WAITING not in json.dumps(outcome.displays)


def test_an_interrupt_of_an_addition_or_a_load_closes_its_question_and_starts_nothing(
    loaded: Kernel, connect: Connect
) -> None:
    write_project(loaded, "b")
    with registry_server() as registry:
        done(loaded, f"%config IPyMCP.registry = {registry.address!r}")
        view = connect(relay_file(loaded)["socket"])
        view.hello(client="sidebar")
        for line in ("%mcp add clock-quiet --way 1", "%mcp load theirs"):
            cell = loaded.start(line, answers=())
            question = view.question("trust")
            loaded.interrupt()
            assert cell.wait(10).error is not None
            view.until_no_question()
            late = view.reply("answer", question=question["id"], servers=["clock_quiet", "theirs"], secrets=[])
            assert late["error"]["message"] == "the question is no longer open"
    assert text(loaded, "{*mcp} - {'demo', 'asks'}, mcp._host.trials.sessions") == "(set(), ())"


# -- the relay --------------------------------------------------------------------------------------------------------


@every_kernel
def test_the_relay_is_found_by_a_private_file_and_lies_in_a_private_folder(loaded: Kernel, connect: Connect) -> None:
    meeting = relay_file(loaded)
    assert meeting["pid"] == loaded.pid
    assert meeting["version"] == 1
    assert psutil.Process(loaded.pid).create_time() - 1 < meeting["started"] < time.time()
    assert stat.S_IMODE(os.stat(meeting["file"]).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(Path(meeting["socket"]).parent).st_mode) == 0o700
    assert len(meeting["socket"]) < 104
    view = connect(meeting["socket"])
    assert view.hello(client="sidebar")["mode"] == "full"
    assert view.call("demo", "query", table="penguins", limit=1)["ok"]


@pytest.mark.cold
def test_unloading_and_shutting_down_remove_the_relay(kernel: Kernel, connect: Connect) -> None:
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


@pytest.mark.cold
def test_the_next_kernel_removes_what_a_killed_one_left(kernel: Kernel) -> None:
    done(kernel, "%load_ext ipymcp")
    meeting = relay_file(kernel)
    kernel.restart(now=True)
    assert Path(meeting["socket"]).parent.exists()
    done(kernel, "%load_ext ipymcp")
    wait_until(lambda: relay_file(kernel)["pid"] == kernel.pid)
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


def test_a_folder_that_takes_no_socket_is_passed_over(start_kernel: StartKernel, connect: Connect) -> None:
    kernel = start_kernel(env={"XDG_RUNTIME_DIR": "/proc"})  # to root it seems writable
    done(kernel, "%load_ext ipymcp")
    connect(relay_file(kernel)["socket"]).hello()


def test_the_relay_disconnects_views_that_say_nothing_or_too_much_and_answers_nonsense(
    loaded: Kernel, connect: Connect
) -> None:
    path = relay_file(loaded)["socket"]
    began = time.monotonic()
    silent = connect(path)

    view = connect(path)
    view.socket.sendall(b"\xff\xfe no json\n\n[1]\n")
    view.listen(lambda: len(view.of_kind("reply")) == 3, 10)
    assert {message["error"]["message"] for message in view.received} == {"a message is a JSON object"}
    assert view.hello()
    with pytest.raises(ConnectionError):
        view.socket.sendall(b"x" * 9_000_000)
        view.listen(lambda: False, 20)
    assert connect(path).hello()

    with pytest.raises(ConnectionError):
        silent.listen(lambda: False, 20)
    assert 4 < time.monotonic() - began < 15


def test_a_browser_that_does_not_read_costs_bounded_memory(loaded: Kernel, connect: Connect) -> None:
    load_misbehaving(loaded, "stderr=20000")
    view = connect(relay_file(loaded)["socket"])
    view.hello()
    view.ask("logs", server="own", on=True)
    memory = "import psutil; psutil.Process().memory_info().rss"
    before = int(text(loaded, memory))
    log = "import time\nlog = mcp._host.sessions['own'].log\nend = log.total + 80_000"
    done(loaded, f"{log}\nwhile log.total < end:\n    time.sleep(0.01)")  # no one reads
    assert int(text(loaded, memory)) - before < 20_000_000
    view.wait(lambda message: message["kind"] == "log" and message["dropped"] > 10_000)

"""The user can always get out: a call that is interrupted ends at once, the server is told, and the next one works."""

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests import kernels, processes
from tests.environments import ROOT, server_command
from tests.integration.notebooks import received
from tests.kernels import KERNELS, Kernel
from tests.wire import tapped

pytestmark = pytest.mark.timed

every_kernel = pytest.mark.kernels(*KERNELS)
WITHIN = 0.5
"""Seconds from the signal to its effect."""


def misbehaving(*words: str) -> str:
    return shlex.join(server_command("misbehaving", *words))


@pytest.fixture(scope="module")
def shared(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel for many tests, with a server that records what it is told."""
    folder = tmp_path_factory.mktemp(kernel_name)
    with kernels.started(kernel_name, folder, cold=True) as kernel:
        setup = f"""
            import asyncio, signal, time
            %load_ext ipymcp
            %mcp load m -- {misbehaving(f"record={folder / 'record'}")}
            def on_progress(progress):
                print('in my code', flush=True); time.sleep(60)
            async def tick(): pass
            handler = signal.getsignal(signal.SIGINT)
        """
        outcome = kernel.run("\n".join(line.strip() if "%" in line else line[12:] for line in setup.splitlines()))
        assert outcome.status == "ok", outcome
        yield kernel


def sent(kernel: Kernel, name: str) -> list[int]:
    """The ids of the calls of one tool that the server has seen."""
    frames = kernel.value("mcp.m.seen().data['frames']")
    calls = [frame for frame in frames if frame.get("method") == "tools/call"]
    return [frame["id"] for frame in calls if frame["params"]["name"] == name]


SLEEP = '"name":"sleep"'
BLOCKED = {
    "a plain cell": ("mcp.m.sleep(60)", "KeyboardInterrupt", 1),
    "a function": ("(lambda: mcp.m.sleep(60))()", "KeyboardInterrupt", 1),
    "a cell with an await": ("await tick(); mcp.m.sleep(60)", "KeyboardInterrupt", 1),
    "an awaited call": ("await mcp.m.sleep.aio(60)", "CancelledError", 1),
    "the magic": ("%mcp call m.sleep seconds=60", "KeyboardInterrupt", 1),
    "the magic in a cell with an await": ("await tick()\n%mcp call m.sleep seconds=60", "KeyboardInterrupt", 1),
    "fifty awaited calls": ("await asyncio.gather(*(mcp.m.sleep.aio(60) for _ in range(50)))", "CancelledError", 50),
}


@every_kernel
@pytest.mark.parametrize(("code", "error", "calls"), BLOCKED.values(), ids=BLOCKED)
def test_an_interrupted_call_ends_at_once_and_the_server_is_told(
    shared: Kernel, code: str, error: str, calls: int
) -> None:
    before_ids = set(sent(shared, "sleep"))
    record = shared.folder / "record"
    before = received(record, SLEEP)
    cell = shared.start_timed(code)
    processes.wait_until(lambda: received(record, SLEEP) >= before + calls)
    outcome = shared.interrupt_within(WITHIN, cell)

    assert outcome.error is not None
    assert outcome.error.ename == error
    shown = code.splitlines()[-1]
    assert outcome.error.traceback == (
        f"{error}: m.sleep was interrupted, and the server was told to stop\n  in: {shown}"
    )
    assert shared.run("mcp.m.echo('next').text").text == "'next'"
    new = set(sent(shared, "sleep")) - before_ids
    assert len(new) == calls
    assert new <= set(shared.value("mcp.m.seen().data['cancelled']"))
    assert (
        shared.value("[x.method for x in mcp.m._session().client._peer._pending.values() if 'call' in x.method]") == []
    )
    assert shared.value("len(mcp.calls)") == 0
    assert shared.value("signal.getsignal(signal.SIGINT) is handler") is True


@every_kernel
@pytest.mark.parametrize("first", ["pass", "await tick()"], ids=["in a plain cell", "in a cell with an await"])
def test_the_users_own_progress_function_is_interrupted_where_it_stands(shared: Kernel, first: str) -> None:
    cell = shared.start_timed(f"{first}; mcp.m.progress.options(on_progress=on_progress)(interval=0.01)")
    cell.wait_for_output("in my code")
    outcome = shared.interrupt_within(WITHIN, cell)

    assert outcome.error is not None
    assert outcome.error.ename == "KeyboardInterrupt"
    call = f"{first}; mcp.m.progress.options(on_progress=on_progress)(interval=0.01)"
    assert outcome.error.traceback == (
        f"KeyboardInterrupt: interrupted in on_progress()\n  in: {call} · on_progress(), line 5: "
        "print('in my code', flush=True); time.sleep(60)"
    )
    assert set(sent(shared, "progress")) <= set(shared.value("mcp.m.seen().data['cancelled']"))


def test_an_interrupt_can_be_caught_and_shown_whole(shared: Kernel) -> None:
    record = shared.folder / "record"
    before = received(record, SLEEP)
    cell = shared.start(
        "try: mcp.m.sleep(60)\nexcept KeyboardInterrupt as error: print('caught', type(error).__name__)"
    )
    processes.wait_until(lambda: received(record, SLEEP) > before)
    shared.interrupt()
    assert cell.wait(timeout=20).stdout == "caught KeyboardInterrupt\n"

    shared.run("%config IPyMCP.tracebacks = True")
    cell = shared.start_timed("mcp.m.sleep(60)")
    processes.wait_until(lambda: received(record, SLEEP) > before + 1)
    outcome = shared.interrupt_within(WITHIN, cell)
    shared.run("%config IPyMCP.tracebacks = False")
    assert outcome.error is not None
    assert "Traceback (most recent call last)" in outcome.error.traceback


@pytest.mark.parametrize("wait", ["call.result()", "await call"], ids=["blocked", "awaited"])
def test_waiting_for_a_submitted_call_is_interrupted_and_the_call_goes_on(shared: Kernel, wait: str) -> None:
    record = shared.folder / "record"
    before = received(record, SLEEP)
    cell = shared.start_timed(f"call = mcp.m.sleep.submit(60); {wait}")
    processes.wait_until(lambda: received(record, SLEEP) > before)
    outcome = shared.interrupt_within(WITHIN, cell)

    assert outcome.error is not None
    number = shared.value("call.number")
    assert outcome.error.traceback == (
        f"{outcome.error.ename}: waiting for call {number} (m.sleep) was interrupted\n"
        f"  the call continues: %mcp cancel {number} cancels it · in: call = mcp.m.sleep.submit(60); {wait}"
    )
    assert shared.value("[call.done, call.cancel(), call.done]") == [False, True, True]


def test_wait_for_and_cancel_end_an_awaited_call_and_tell_the_server(shared: Kernel) -> None:
    before_ids = set(sent(shared, "sleep"))
    outcome = shared.run(
        "try: await asyncio.wait_for(mcp.m.sleep.aio(60), 0.1)\n"
        "except TimeoutError: print('late')\n"
        "task = asyncio.create_task(mcp.m.sleep.aio(60))\n"
        "await asyncio.sleep(0.1); task.cancel()\n"
        "try: await task\n"
        "except asyncio.CancelledError: print('cancelled')"
    )
    assert outcome.stdout == "late\ncancelled\n"
    new = set(sent(shared, "sleep")) - before_ids
    assert len(new) == 2
    assert new <= set(shared.value("mcp.m.seen().data['cancelled']"))


@every_kernel
def test_interrupting_load_leaves_the_servers_starting(shared: Kernel) -> None:
    slow = misbehaving("slow-start=2")
    cell = shared.start_timed(f"%mcp load slow -- {slow}")
    cell.wait_for(lambda outcome: bool(outcome.displays))
    outcome = shared.interrupt_within(WITHIN, cell)

    assert outcome.error is not None
    assert outcome.error.traceback == (
        f"KeyboardInterrupt: interrupted while waiting for slow to start\n  in: %mcp load slow -- {slow}"
    )
    assert shared.run("mcp.servers['slow'].state").text == "'starting'"
    assert shared.run("mcp.slow.echo('come after all').text").text == "'come after all'"
    shared.run("%mcp unload slow")


MANY_TOOLS = """
import sys
sys.path.insert(0, {servers!r})
from raw_stdio import opened, serve, unknown
TEXT = {{"type": "string", "description": "d" * 200}}
SCHEMA = {{"type": "object", "properties": {{f"p{{i}}": TEXT for i in range(60)}}}}
TOOLS = [{{"name": f"t{{i}}", "description": "words " * 1500, "inputSchema": SCHEMA}} for i in range(1000)]
def answer(method, params):
    if method == "server/discover":
        raise unknown(method)
    return opened("many", "tools") if method == "initialize" else {{"tools": TOOLS}}
serve(answer)
"""
"""A server whose tool definitions have 24 MB."""


@pytest.fixture
def project(shared: Kernel) -> Iterator[Path]:
    """A project's file in the kernel's folder."""
    file = shared.folder / ".mcp.json"
    yield file
    file.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["server", "file", "the files of a command", "registry"])
def test_the_stop_button_ends_the_reading_of_what_a_stranger_sends_and_says_whose_it_was(
    shared: Kernel, project: Path, kind: str
) -> None:
    line = "%mcp load"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if kind == "server":
            script = shared.folder / "many.py"
            script.write_text(MANY_TOOLS.format(servers=str(ROOT / "tests" / "servers")))
            line, doing = f"%mcp load many -- {sys.executable} {script}", "waiting for many to start"
        elif kind == "registry":
            port = silent.getsockname()[1]
            shared.run(f"%config IPyMCP.registry = 'http://127.0.0.1:{port}'")
            line, doing = "%mcp search weather", f"asking 127.0.0.1:{port}"
        elif kind == "file":
            project.write_text("{mcpServers: {x: {command: 'a', args: [" + "'a'," * 9_500)
            doing = f"reading {project}"
        else:
            project.write_text(json.dumps({"mcpServers": {"x": {"command": "bash", "args": ["./a.py"] * 90_000}}}))
            doing = "reading the files of x"
        cell = shared.start_timed(line)
        with contextlib.suppress(TimeoutError):
            cell.wait(0.4)
        outcome = shared.interrupt_within(1.0, cell)

    assert outcome.error is not None
    assert outcome.error.traceback == f"KeyboardInterrupt: interrupted while {doing}\n  in: {line}"


def test_interrupting_stop_does_not_keep_the_server_from_stopping(shared: Kernel) -> None:
    shared.run(f"%mcp load tough -- {misbehaving('stubborn')}")
    pid = shared.value("mcp.tough.pid().data['pid']")
    shared.run(
        "import threading\ndef watch():\n    while mcp._host.sessions['tough'].client: time.sleep(0.01)\n"
        "    print('stopping', flush=True)"
    )
    cell = shared.start_timed("threading.Thread(target=watch).start()\n%mcp stop tough")
    cell.wait_for_output("stopping")
    shared.interrupt_within(WITHIN, cell)
    processes.wait_until_group_gone(pid, within=8)

    shared.run("%mcp stop tough")
    assert shared.run("mcp.servers['tough'].state").text == "'stopped'"
    shared.run("%mcp unload tough")


@pytest.mark.parametrize("await_", ["", "await "], ids=["blocked", "awaited"])
def test_a_call_that_waits_for_room_in_the_queue_is_interrupted(shared: Kernel, await_: str) -> None:
    shared.run(f"%mcp load full -- {misbehaving('deaf=60')}")
    call = "await mcp.full.echo.aio(text)" if await_ else "mcp.full.echo(text)"
    cell = shared.start_timed(
        f"text = 'x' * 40_000_000\nrunning = mcp.full.echo.submit(text)\nprint('full', flush=True)\n{call}"
    )
    cell.wait_for_output("full")
    outcome = shared.interrupt_within(WITHIN, cell)

    assert outcome.error is not None
    assert outcome.error.ename == ("CancelledError" if await_ else "KeyboardInterrupt")
    assert shared.value("len(mcp.calls)") == 1
    assert shared.run("mcp.m.echo('others go on').text").text == "'others go on'"
    shared.run("%mcp unload full")


STORM = """
import os
sizes = [10, 10, 10, 100, 1000, 4000, 4096, 4200, 20_000, 10, 10, 200_000]
armed, sent, answered, interrupted = False, 0, 0, 0
def handler_of_the_storm(number, frame):
    if armed: raise KeyboardInterrupt
signal.signal(signal.SIGINT, handler_of_the_storm)
print('ready', flush=True)
while not os.path.exists('over'):
    try:
        armed = True
        sent += 1
        mcp.storm.echo('x' * sizes[sent % len(sizes)])
        answered += 1
    except KeyboardInterrupt:
        interrupted += 1
    finally:
        armed = False
signal.signal(signal.SIGINT, handler)
"""


def test_a_storm_of_interrupts_tears_no_frame(shared: Kernel) -> None:
    record = shared.folder / "storm"
    shared.run(f"%mcp load storm -- {misbehaving(f'record={record}')}")
    cell = shared.start(STORM)
    cell.wait_for_output("ready")
    for number in range(2500):
        os.kill(shared.pid, signal.SIGINT)
        time.sleep(number % 10 * 0.0003)  # in bursts: some calls shall get through
    (shared.folder / "over").touch()
    outcome = cell.wait()

    assert outcome.status == "ok", outcome.error
    answered, interrupted = shared.value("[answered, interrupted]")
    assert answered > 100
    assert interrupted > 500
    assert shared.run("mcp.storm.echo('next').text").text == "'next'"
    state = "mcp._host.sessions['storm']"
    in_flight = f"[x.method for x in {state}.client._peer._pending.values() if 'call' in x.method]"
    assert shared.value(f"[{in_flight}, len(mcp.calls), {state}.client.queued]") == [[], 0, 0]
    assert shared.value(f"{state}.connection.transport._writer._lock.locked()") is False
    frames = [json.loads(line[2:]) for line in record.read_text().splitlines() if line.startswith("< ")]
    texts = [frame["params"]["arguments"]["text"] for frame in frames if frame.get("method") == "tools/call"]
    assert set(map(len, texts)) <= {10, 100, 1000, 4000, 4096, 4200, 20_000, 200_000, len("next")}
    record.unlink()


TERMINAL = ["-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--colors=NoColor", "--quick"]


@pytest.mark.parametrize("code", ["mcp.m.sleep(60)", "await mcp.m.sleep.aio(60)"], ids=["blocked", "awaited"])
def test_in_a_terminal_an_interrupt_ends_the_call_and_the_server_is_told(tmp_path: Path, code: str) -> None:
    record = tmp_path / "record"
    env = tapped({**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path), "COLUMNS": "200"})
    terminal = pexpect.spawn(sys.executable, TERMINAL, env=env, encoding="utf-8", timeout=30, echo=False)
    prompt = r"In \[\d+\]: "
    terminal.expect(prompt)
    warm = "1 / 0"  # the first traceback takes its time: what draws it is imported
    for line in (warm, "%load_ext ipymcp", f"%mcp load m -- {misbehaving(f'record={record}')}"):
        terminal.sendline(line)
        terminal.expect(prompt)
    terminal.sendline(code)
    processes.wait_until(lambda: received(record, SLEEP) == 1)
    before = time.monotonic()
    terminal.sendintr()
    terminal.expect("KeyboardInterrupt")
    took = time.monotonic() - before
    terminal.expect(prompt)
    processes.wait_until(lambda: received(record, "notifications/cancelled") == 1)
    terminal.sendline("import signal; signal.getsignal(2) is signal.default_int_handler")
    terminal.expect("True")
    terminal.sendline("mcp.m.echo('the ' + 'next').text")
    terminal.expect("'the next'")
    terminal.sendline("exit()")
    terminal.expect(pexpect.EOF)
    terminal.close()

    assert took < WITHIN
    assert terminal.exitstatus == 0


SCRIPT = """
import asyncio, signal, sys, ipymcp
command = sys.argv[2:]
with ipymcp.connect({"m": {"command": command[0], "args": command[1:]}}) as mcp:
    handler = signal.getsignal(signal.SIGINT)
    try:
        exec(sys.argv[1])
    except KeyboardInterrupt:
        print("interrupted")
    print(mcp.m.seen().data["cancelled"] != [], mcp.m.echo("next").text, signal.getsignal(signal.SIGINT) is handler)
"""


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("mcp.m.sleep(60)", "interrupted\nTrue next True\n"),
        ("async def main(): await mcp.m.sleep.aio(60)\nasyncio.run(main())", "interrupted\nTrue next True\n"),
        (
            "signal.signal(signal.SIGINT, lambda *_: print('mine'))\nhandler = signal.getsignal(signal.SIGINT)\n"
            "try: mcp.m.sleep.options(timeout=1)(60)\nexcept ipymcp.CallTimeout: print('late')",
            "mine\nlate\nTrue next True\n",
        ),
    ],
    ids=["blocked", "awaited", "with a handler of the user's own"],
)
def test_in_a_script_an_interrupt_does_what_the_script_says(tmp_path: Path, code: str, output: str) -> None:
    record = tmp_path / "record"
    command = [sys.executable, "-c", SCRIPT, code, *server_command("misbehaving", f"record={record}")]
    env = tapped({**os.environ, "PYTHONPATH": str(ROOT)})
    with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as script:
        processes.wait_until(lambda: received(record, SLEEP) == 1)
        script.send_signal(signal.SIGINT)
        assert script.communicate(timeout=30)[0] == output
    assert script.returncode == 0

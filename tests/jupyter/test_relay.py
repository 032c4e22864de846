"""The relay between a sidebar and a kernel: a real server, real kernels, raw WebSockets."""

import contextlib
import itertools
import json
import os
import shlex
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tornado.websocket import WebSocketClosedError

from tests.environments import server_command
from tests.jupyter_servers import JupyterServer, ServedKernel, memory, started
from tests.processes import wait_until

FLOOD = """
import os, socket, threading
listener, sent = socket.socket(socket.AF_UNIX), [0]
listener.bind({path!r})
os.chmod({path!r}, 0o600)
listener.listen()
def flood():
    view, _ = listener.accept()
    for n in range(1_000_000):
        line = b'{{"kind":"flood","n":%d,"text":"%s"}}\\n' % (n, b"x" * 100_000)
        view.sendall(line)
        sent[0] += len(line)
threading.Thread(target=flood, daemon=True).start()
"""
_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
VIEWS = "print(len(get_ipython()._ipymcp_extension.panel.views))"


@pytest.fixture
def altered(server: JupyterServer, other: ServedKernel) -> Iterator[ServedKernel]:
    """A kernel whose announcement the test changes; afterwards it serves views as before."""
    announcement = other.announcement.read_text()
    yield other
    other.announcement.write_text(announcement)
    other.announcement.chmod(0o600)
    with server.view(other) as view:
        view.hello()


def change_announcement(kernel: ServedKernel, **fields: object) -> None:
    announced = json.loads(kernel.announcement.read_text())
    kernel.announcement.write_text(json.dumps({**announced, **fields}))


def refusal(server: JupyterServer, kernel: ServedKernel, **headers: str) -> int:
    """The status by which a WebSocket is refused."""
    with server.anonymous(**_UPGRADE, **headers) as client:
        return client.get(f"ipymcp/kernels/{kernel.id}/panel").status_code


def cookies(server: JupyterServer) -> str:
    with server.browser() as browser:
        return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


# -- messages ----------------------------------------------------------------------------------------------------------


def test_a_view_sees_and_calls_through_the_relay(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        assert view.hello(client="sidebar")["mode"] == "full"
        assert view.state["servers"]["demo"]["state"] == "ready"
        result = view.call("demo", "query", table="penguins", limit=1)
        assert result["ok"] and "Adelie" in json.dumps(result["preview"])


@pytest.mark.timed
def test_the_relay_answers_while_a_cell_blocks_the_kernel(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        view.hello()
        asleep = server.folder / "asleep"
        kernel.start(f"import time; open({str(asleep)!r}, 'w').close(); time.sleep(3)")
        wait_until(asleep.exists)
        began = time.monotonic()
        delays: list[float] = []
        for _ in range(20):
            sent = time.monotonic()
            view.ask("tools", server="demo")
            delays.append(time.monotonic() - sent)
        assert time.monotonic() - began < 3
        assert sorted(delays)[10] < 0.25
    kernel.run("pass")


def test_line_breaks_in_a_message_do_not_end_it(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        hello = json.dumps({"kind": "hello", "version": 1, "client": "cell", "wants": ["servers"]}, indent=2)
        view.send_text(hello.replace("\n", "\r\n"))
        view.wait(lambda message: message["kind"] == "snapshot")


def test_two_kernels_are_not_mixed_up(server: JupyterServer, kernel: ServedKernel, other: ServedKernel) -> None:
    with server.view(kernel) as here, server.view(other) as there:
        assert here.hello()["kernel"] != there.hello()["kernel"]
        assert "demo" in here.state["servers"] and not there.state["servers"]


def test_a_message_that_is_not_text_or_too_long_closes_the_view(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        view.send_text(b"{}")
        view.until_closed()
        assert view.closed == (1003, "messages are text")
    with server.view(kernel) as view:
        with contextlib.suppress(WebSocketClosedError):  # it is not read to its end
            view.send_text("x" * 7_900_001)
        view.until_closed()
        assert view.closed is not None
    with server.view(kernel) as view:
        view.hello()


# -- access ------------------------------------------------------------------------------------------------------------


def test_the_relay_is_refused_without_a_login_and_to_a_foreign_page(
    server: JupyterServer, kernel: ServedKernel
) -> None:
    assert refusal(server, kernel, Origin=server.origin) == 403
    assert refusal(server, kernel, Authorization="token wrong") == 403
    logged_in = cookies(server)
    assert refusal(server, kernel, Cookie=logged_in, Origin="https://evil.example") == 403
    assert refusal(server, kernel, Cookie=logged_in, Origin=server.origin.replace("127.0.0.1", "localhost")) == 403
    with server.view(kernel, Cookie=logged_in, Origin=server.origin) as view:
        view.hello()


# -- nothing to connect to --------------------------------------------------------------------------------------------


def test_a_view_that_says_nothing_is_closed_after_five_seconds(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        began = time.monotonic()
        assert view.until_closed() is not None
        assert 4.5 < time.monotonic() - began < 10
        assert view.closed is not None and view.closed[0] in (4408, 4411)  # the kernel waits as long as the relay


def test_a_kernel_that_does_not_answer_is_given_up_after_five_seconds(
    server: JupyterServer, other: ServedKernel
) -> None:
    pid = other.pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        with server.view(other) as view:
            began = time.monotonic()
            view.send({"kind": "hello", "version": 1})
            assert (view.until_closed() or {})["message"] == "the kernel does not answer"
            assert 4.5 < time.monotonic() - began < 10
            assert view.closed is not None and view.closed[0] == 4408
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_view_of_a_killed_kernel_is_closed_and_the_files_are_removed(server: JupyterServer) -> None:
    kernel = server.start_kernel()
    kernel.load()
    folder = Path(json.loads(kernel.announcement.read_text())["socket"]).parent
    with server.view(kernel) as view:
        view.hello()
        os.kill(kernel.pid(), signal.SIGKILL)
        assert (view.until_closed(10) or {})["message"] == "the kernel has ended"
        assert view.closed == (4410, "the kernel has ended")
    assert folder.exists()
    with server.view(kernel) as view:  # Jupyter starts another, without ipymcp
        assert (view.until_closed() or {})["state"] in ("absent", "foreign")
    assert not kernel.announcement.exists() and not folder.exists()


def test_a_view_is_closed_with_the_reason_where_nothing_serves_it(server: JupyterServer) -> None:
    with server.view("no-such-kernel") as view:
        assert (view.until_closed() or {})["message"] == "this kernel does not run"
        assert view.closed is not None and view.closed[0] == 4404
    kernel = server.start_kernel()
    with server.view(kernel) as view:
        assert view.until_closed() == {
            "kind": "relay",
            "state": "absent",
            "message": "ipymcp is not loaded in this kernel",
            "hint": "%load_ext ipymcp",
        }
        assert view.closed == (4424, "ipymcp is not loaded in this kernel")
    kernel.load()
    with server.view(kernel) as view:
        view.hello()
        kernel.run("%unload_ext ipymcp")
        assert (view.until_closed() or {})["message"] == "the kernel has closed its socket"
        assert view.closed is not None and view.closed[0] == 4411
    kernel.load()
    with server.view(kernel) as view:
        view.hello()
        server.http.delete(f"api/kernels/{kernel.id}").raise_for_status()
        assert (view.until_closed() or {})["state"] in ("ended", "left")


def test_a_socket_that_is_gone_or_open_to_others_is_not_used(server: JupyterServer, other: ServedKernel) -> None:
    announcement = other.announcement.read_text()
    announced = Path(json.loads(announcement)["socket"])

    def refusal() -> tuple[str, str]:
        with server.view(other) as view:
            relay = view.until_closed() or {}
            return relay["state"], relay["hint"]

    announced.parent.chmod(0o755)
    assert refusal() == ("foreign", "only you may have access to it: restart the kernel")
    announced.parent.chmod(0o700)
    not_the_kernels = ("foreign", "the kernel must have written it, and only you may have access to it")
    other.announcement.chmod(0o644)
    assert refusal() == not_the_kernels
    other.announcement.chmod(0o600)
    change_announcement(other, pid=os.getpid(), started=time.time())
    assert refusal() == not_the_kernels
    other.announcement.write_text("{")
    assert refusal() == not_the_kernels
    other.announcement.write_text(announcement)
    with server.view(other) as view:
        view.hello()
    announced.unlink()
    assert refusal() == ("left", "%reload_ext ipymcp")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(announced))
        announced.chmod(0o600)
        stranger.listen()
        assert refusal() == ("foreign", "restart the kernel")
    other.run("%reload_ext ipymcp")
    wait_until(lambda: other.announcement.exists() and other.announcement.read_text() != announcement)
    with server.view(other) as view:
        view.hello()


def test_a_kernel_of_another_version_can_be_looked_at(server: JupyterServer, altered: ServedKernel) -> None:
    change_announcement(altered, version=2, ipymcp="9.0")
    with server.view(altered) as view:
        view.hello(version=2)
        [relay] = view.of_kind("relay")
        assert relay["message"].startswith("the kernel has ipymcp 9.0, this Jupyter server ")
        assert relay["message"].endswith(": the panel is read-only")
        assert relay["hint"] == (
            "upgrade the Jupyter server's: pip install --upgrade git+https://github.com/ipymcp/ipymcp"
        )


def test_a_kernel_of_another_machine_is_left_to_the_comm(server: JupyterServer, altered: ServedKernel) -> None:
    change_announcement(altered, machine="another pid:[1]", pid=1)
    with server.view(altered) as view:
        assert (view.until_closed() or {})["message"] == "the kernel runs on another machine"
        assert view.closed is not None and view.closed[0] == 4421
    assert altered.announcement.exists()


def test_an_insecure_runtime_folder_is_used_where_jupyter_allows_it(tmp_path: Path) -> None:
    with started(tmp_path, env={"JUPYTER_ALLOW_INSECURE_WRITES": "1"}) as server:
        kernel = server.start_kernel()
        kernel.load()
        kernel.announcement.chmod(0o777)
        with server.view(kernel) as view:
            view.hello()


# -- a view that does not read -----------------------------------------------------------------------------------------


def test_nothing_is_read_for_a_view_that_does_not_read(server: JupyterServer, altered: ServedKernel) -> None:
    announced = json.loads(altered.announcement.read_text())
    path = str(Path(announced["socket"]).with_name("flood"))
    altered.run(FLOOD.format(path=path))
    change_announcement(altered, socket=path)

    def sent() -> int:
        return int(altered.run("print(sent[0])"))

    with server.view(altered) as view:
        before = memory(server.process.pid)
        view.send({"kind": "hello"})
        deadline, amount = time.monotonic() + 20, -1
        while amount != (amount := sent()) or amount == 0:  # until it stands still
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert amount < 32_000_000  # what the system holds of two sockets on the way
        assert memory(server.process.pid) - before < 8_000_000
        view.listen(lambda: len(view.received) > 500, 30)
        assert sent() > amount + 10_000_000
    assert [message["n"] for message in view.received] == list(range(len(view.received)))


def test_unread_replies_pile_up_in_the_kernel_to_a_bound_and_then_the_view_is_detached(
    server: JupyterServer, other: ServedKernel
) -> None:
    other.run(f"%mcp load many -- {shlex.join(server_command('misbehaving', 'tools=5000'))}")
    pids = {"kernel": other.pid(), "server": server.process.pid}
    with server.view(other) as view, server.view(other) as reader:
        view.hello()
        reader.hello()
        assert len(view.ask("tools")) > 5000  # a megabyte
        before = {name: memory(pid) for name, pid in pids.items()}
        deadline = time.monotonic() + 60
        for number in itertools.count(1000, 10):
            for each in range(number, number + 10):
                view.send({"kind": "intent", "id": each, "do": "tools"})
            grown = {name: memory(pid) - before[name] for name, pid in pids.items()}
            assert grown["kernel"] < 160_000_000  # 32 MB of messages, once as they are sent and once as they were made
            assert grown["server"] < 8_000_000
            if other.run(VIEWS) == "1\n":
                break
            assert time.monotonic() < deadline
        assert len(reader.ask("tools")) > 5000
        view.until_closed()
        assert view.closed is not None
    other.run("mcp.unload('many')")


def test_a_view_that_answers_no_pings_is_detached_and_one_that_does_stays(tmp_path: Path) -> None:
    """In a runtime folder that lies too deep for a socket."""
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    deep.mkdir(parents=True)
    settings = {"ServerApp": {"tornado_settings": {"ws_ping_interval": 1000}}}
    with started(tmp_path, settings, {"JUPYTER_RUNTIME_DIR": str(deep)}) as server:
        kernel = server.start_kernel()
        kernel.load()
        assert len(os.fsencode(kernel.announcement)) > 200
        with server.view(kernel) as silent, server.view(kernel) as view:
            silent.hello()  # from now on it does nothing at all
            view.hello()
            deadline = time.monotonic() + 60
            while kernel.run(VIEWS) != "1\n":
                assert time.monotonic() < deadline, "it never came"
                with contextlib.suppress(TimeoutError):
                    view.listen(lambda: False, 0.2)  # it answers pings
            view.ask("history")
            silent.until_closed(10)
            assert silent.closed is not None


def test_the_server_holds_nothing_of_views_that_are_gone(server: JupyterServer, kernel: ServedKernel) -> None:
    process = psutil.Process(server.process.pid)
    before = process.num_fds()
    for says_hello in (True, False) * 5:
        with server.view(kernel) as view:
            if says_hello:
                view.hello()
    wait_until(lambda: process.num_fds() <= before, within=10)

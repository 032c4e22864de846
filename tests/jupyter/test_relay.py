"""The sidebar's way to a kernel: a real server, real kernels, raw WebSockets."""

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest
from tornado.websocket import WebSocketClosedError

from tests.jupyter_servers import TOKEN, JupyterServer, ServedKernel, memory, started

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
DENYING = """
from jupyter_server.auth.authorizer import Authorizer

class Denying(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return (action, resource) != ("execute", "kernels")
"""


def refusal(server: JupyterServer, kernel: ServedKernel, **headers: str) -> int:
    """The status by which a WebSocket is refused."""
    with server.anonymous(**_UPGRADE, **headers) as client:
        return client.get(f"ipymcp/kernels/{kernel.id}/panel").status_code


def cookies(server: JupyterServer) -> str:
    with server.browser() as browser:
        return "; ".join(f"{name}={value}" for name, value in browser.cookies.items())


# -- the way itself ----------------------------------------------------------------------------------------------------


def test_a_view_sees_and_calls_through_the_relay(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        assert view.hello(client="sidebar")["mode"] == "full"
        assert view.state["servers"]["demo"]["state"] == "ready"
        result = view.call("demo", "query", table="penguins", limit=1)
        assert result["ok"] and "Adelie" in json.dumps(result["preview"])


@pytest.mark.timed
def test_it_answers_while_a_cell_blocks_the_kernel(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        view.hello()
        began = time.monotonic()
        asleep = server.folder / "asleep"
        kernel.start(f"import time; open({str(asleep)!r}, 'w').close(); time.sleep(3)")
        while not asleep.exists():
            assert time.monotonic() - began < 30
        began = time.monotonic()
        delays: list[float] = []
        for _ in range(20):
            asked = time.monotonic()
            view.ask("tools", server="demo")
            delays.append(time.monotonic() - asked)
        assert time.monotonic() - began < 3
        assert sorted(delays)[10] < 0.25
    kernel.run("pass")


def test_line_breaks_in_a_message_are_no_ends(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        hello = json.dumps({"kind": "hello", "version": 1, "client": "cell", "wants": ["servers"]}, indent=2)
        view.send_text(hello.replace("\n", "\r\n"))
        view.wait(lambda message: message["kind"] == "snapshot")


def test_two_kernels_are_not_mixed_up(server: JupyterServer, kernel: ServedKernel) -> None:
    other = server.start_kernel()
    other.load()
    with server.view(kernel) as here, server.view(other) as there:
        assert here.hello()["kernel"] != there.hello()["kernel"]
        assert "demo" in here.state["servers"] and not there.state["servers"]


def test_a_message_that_is_no_text_or_too_long_ends_it(server: JupyterServer, kernel: ServedKernel) -> None:
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


# -- who may -----------------------------------------------------------------------------------------------------------


def test_it_is_refused_without_a_login_and_to_a_foreign_page(server: JupyterServer, kernel: ServedKernel) -> None:
    assert refusal(server, kernel, Origin=server.origin) == 403
    assert refusal(server, kernel, Authorization="token wrong") == 403
    logged_in = cookies(server)
    assert refusal(server, kernel, Cookie=logged_in, Origin="https://evil.example") == 403
    assert refusal(server, kernel, Cookie=logged_in, Origin=server.origin.replace("127.0.0.1", "localhost")) == 403
    with server.view(kernel, Cookie=logged_in, Origin=server.origin) as view:
        view.hello()


def test_an_authorizer_that_denies_execute_denies_the_relay(tmp_path: Path) -> None:
    (tmp_path / "denying.py").write_text(DENYING)
    with started(tmp_path, {"ServerApp": {"authorizer_class": "denying.Denying"}}) as server:
        kernel = server.start_kernel()
        kernel.load()
        assert refusal(server, kernel, Authorization=f"token {TOKEN}") == 403


# -- where there is no way ---------------------------------------------------------------------------------------------


def test_what_a_view_is_told_where_nothing_serves_it(server: JupyterServer) -> None:
    kernel = server.start_kernel()
    with server.view(kernel) as view:
        assert view.until_closed() == {
            "kind": "relay",
            "state": "absent",
            "message": "ipymcp is not loaded in this kernel",
            "hint": "%load_ext ipymcp",
        }
        assert view.closed == (4424, "ipymcp is not loaded in this kernel")
    with server.view("no-such-kernel") as view:
        assert (view.until_closed() or {})["message"] == "this kernel does not run"
        assert view.closed is not None and view.closed[0] == 4404


def test_a_view_that_says_nothing_is_let_go_after_five_seconds(server: JupyterServer, kernel: ServedKernel) -> None:
    with server.view(kernel) as view:
        began = time.monotonic()
        assert view.until_closed() is not None
        assert 4.5 < time.monotonic() - began < 10
        assert view.closed is not None and view.closed[0] in (4408, 4411)  # the kernel waits as long as the relay


def test_a_kernel_that_does_not_answer_is_given_up_after_five_seconds(server: JupyterServer) -> None:
    kernel = server.start_kernel()
    kernel.load()
    pid = kernel.pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        with server.view(kernel) as view:
            began = time.monotonic()
            view.send({"kind": "hello", "version": 1})
            assert (view.until_closed() or {})["message"] == "the kernel does not answer"
            assert 4.5 < time.monotonic() - began < 10
            assert view.closed is not None and view.closed[0] == 4408
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_killed_kernel_is_said_and_its_traces_are_swept(server: JupyterServer) -> None:
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


def test_a_kernel_that_ends_or_unloads_is_said_and_another_view_finds_it_again(server: JupyterServer) -> None:
    kernel = server.start_kernel()
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


def test_a_socket_that_is_gone_or_open_to_others_is_not_used(server: JupyterServer) -> None:
    kernel = server.start_kernel()
    kernel.load()
    announced = json.loads(kernel.announcement.read_text())
    told = Path(announced["socket"])

    def said() -> tuple[str, str]:
        with server.view(kernel) as view:
            relay = view.until_closed() or {}
            return relay["state"], relay["hint"]

    told.parent.chmod(0o755)
    assert said() == ("foreign", "only you may have access to it: restart the kernel")
    told.parent.chmod(0o700)
    kernel.announcement.chmod(0o644)
    assert said() == ("foreign", "the kernel must have written it, and only you may have access to it")
    kernel.announcement.chmod(0o600)
    kernel.announcement.write_text(json.dumps({**announced, "pid": os.getpid(), "started": time.time()}))
    assert said() == ("foreign", "the kernel must have written it, and only you may have access to it")
    kernel.announcement.write_text("{")
    assert said() == ("foreign", "the kernel must have written it, and only you may have access to it")
    kernel.announcement.write_text(json.dumps(announced))
    with server.view(kernel) as view:
        view.hello()
    told.unlink()
    assert said() == ("left", "%reload_ext ipymcp")
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(told))
        told.chmod(0o600)
        stranger.listen()
        assert said() == ("foreign", "restart the kernel")


def test_a_kernel_of_another_version_can_be_looked_at(server: JupyterServer) -> None:
    kernel = server.start_kernel()
    kernel.load()
    announced = json.loads(kernel.announcement.read_text())
    kernel.announcement.write_text(json.dumps({**announced, "version": 2, "ipymcp": "9.0"}))
    with server.view(kernel) as view:
        view.hello(version=2)
        [said] = view.of_kind("relay")
        assert said["message"].startswith("the kernel has ipymcp 9.0, this Jupyter server ")
        assert said["message"].endswith(": the panel is read-only")
        assert (
            said["hint"] == "upgrade the Jupyter server's: pip install --upgrade git+https://github.com/ipymcp/ipymcp"
        )


def test_a_kernel_of_another_machine_is_left_to_the_comm(server: JupyterServer) -> None:
    kernel = server.start_kernel()
    kernel.load()
    announced = json.loads(kernel.announcement.read_text())
    kernel.announcement.write_text(json.dumps({**announced, "machine": "another pid:[1]", "pid": 1}))
    with server.view(kernel) as view:
        assert (view.until_closed() or {})["message"] == "the kernel runs on another machine"
        assert view.closed is not None and view.closed[0] == 4421
    assert kernel.announcement.exists()


def test_a_deep_runtime_folder_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 8)
    deep.mkdir(parents=True)
    with started(tmp_path, env={"JUPYTER_RUNTIME_DIR": str(deep)}) as server:
        kernel = server.start_kernel()
        kernel.load()
        assert len(os.fsencode(kernel.announcement)) > 200
        with server.view(kernel) as view:
            view.hello()


def test_a_runtime_folder_on_a_drive_that_knows_no_rights_will_do_where_jupyter_was_told_so(tmp_path: Path) -> None:
    with started(tmp_path, env={"JUPYTER_ALLOW_INSECURE_WRITES": "1"}) as server:
        kernel = server.start_kernel()
        kernel.load()
        kernel.announcement.chmod(0o777)
        with server.view(kernel) as view:
            view.hello()


# -- a view that does not read -----------------------------------------------------------------------------------------


def test_of_a_view_that_does_not_read_nothing_is_read_either(server: JupyterServer) -> None:
    kernel = server.start_kernel()
    kernel.load()
    announced = json.loads(kernel.announcement.read_text())
    path = str(Path(announced["socket"]).with_name("flood"))
    kernel.run(FLOOD.format(path=path))
    kernel.announcement.write_text(json.dumps({**announced, "socket": path}))

    def sent() -> int:
        return int(kernel.run("print(sent[0])"))

    with server.view(kernel) as view:
        before = memory(server.process.pid)
        view.send({"kind": "hello"})
        deadline, amount = time.monotonic() + 20, -1
        while amount != (amount := sent()) or amount == 0:  # until it stands still
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert amount < 32_000_000  # what the system holds of two sockets on the way
        assert memory(server.process.pid) - before < 8_000_000
        view.listen(lambda: len(view.heard) > 500, 30)
        assert sent() > amount + 10_000_000
    assert [one["n"] for one in view.heard] == list(range(len(view.heard)))


def test_a_view_that_answers_no_pings_is_let_go_and_one_that_does_stays(tmp_path: Path) -> None:
    with started(tmp_path, {"ServerApp": {"tornado_settings": {"ws_ping_interval": 300}}}) as server:
        kernel = server.start_kernel()
        kernel.load()
        with server.view(kernel) as silent, server.view(kernel) as view:
            silent.hello()  # from now on it does nothing at all
            view.hello()
            with pytest.raises(TimeoutError):
                view.listen(lambda: False, 2)
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
    deadline = time.monotonic() + 10
    while process.num_fds() > before:
        assert time.monotonic() < deadline
        time.sleep(0.05)

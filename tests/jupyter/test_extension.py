"""The installed extension: what enables it, what it imports, who may use it, and the document around an app's page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tornado.httpclient import HTTPClientError

from ipymcp.version import __version__
from tests.environments import ROOT
from tests.jupyter_servers import JupyterServer, ServedKernel, started

DENYING = """
import json, pathlib
from jupyter_server.auth.authorizer import Authorizer

class Denying(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return [action, resource] != json.loads(pathlib.Path(__file__).with_name("denied.json").read_text())
"""
FRAME = "ipymcp/apps/frame"


def test_the_authorizer_decides_who_delivers_a_login_and_who_opens_a_panel(tmp_path: Path) -> None:
    (tmp_path / "denying.py").write_text(DENYING)
    denied = tmp_path / "denied.json"
    denied.write_text("[]")
    with started(tmp_path, {"ServerApp": {"authorizer_class": "denying.Denying"}}) as server:
        server.view("no-such-kernel").close()
        for action, resource in (("write", "ipymcp"), ("execute", "kernels")):
            denied.write_text(json.dumps([action, resource]))
            reply = server.http.post("ipymcp/oauth/redirected", json={"state": "s", "code": "c"})
            assert (reply.status_code, reply.json()["message"]) == (403, f"may not {action} {resource}")
        with pytest.raises(HTTPClientError) as refusal:
            server.view("no-such-kernel")
        assert refusal.value.code == 403


def test_a_program_with_jupyters_login_gets_the_status_of_every_kernels_servers(
    server: JupyterServer, kernel: ServedKernel, other: ServedKernel
) -> None:
    command = "import sys; sys.exit('no --token=hunter2-hunter2 today')"
    load = f'%mcp load broken --env API_TOKEN=hunter2-hunter2 -- {sys.executable} -c "{command}"'
    kernel.run(f"try:\n    {load}\nexcept Exception: pass")
    kernel.run("mcp.demo.echo('x')")
    idle = server.start_kernel()
    reply = server.http.get("ipymcp/status")
    assert (reply.status_code, reply.headers["cache-control"]) == (200, "no-store")
    assert "hunter2" not in reply.text
    found = {each["id"]: each for each in reply.json()["kernels"]}
    assert found[idle.id] == {"id": idle.id, "problem": "ipymcp is not loaded in this kernel", "servers": []}
    assert found[other.id] == {"id": other.id, "problem": "", "ipymcp": __version__, "servers": []}
    demo, broken = found[kernel.id]["servers"]
    assert demo == {
        "name": "demo", "state": "ready", "protocol": "2026-07-28", "tools": 5, "calls": 1, "last_error": ""
    }  # fmt: skip
    assert (broken["name"], broken["state"], broken["tools"], broken["calls"]) == ("broken", "error", 0, 0)
    last = "could not start: exited with code 1. Last output: no --token=[secret] today"
    assert broken["last_error"] == last
    kernel.run("%mcp unload broken")


def test_the_status_is_refused_without_a_login_or_the_right_to_read_kernels(
    server: JupyterServer, tmp_path: Path
) -> None:
    with server.anonymous() as client:
        assert client.get("ipymcp/status").status_code == 403
    (tmp_path / "denying.py").write_text(DENYING)
    (tmp_path / "denied.json").write_text('["read", "kernels"]')
    with started(tmp_path, {"ServerApp": {"authorizer_class": "denying.Denying"}}) as denying:
        assert denying.http.get("ipymcp/status").status_code == 403


def test_a_malformed_login_answer_is_refused(server: JupyterServer) -> None:
    for body in (b"", b"{", b"[7]", b'{"state": 7}', b'{"code": "c"}', b'{"state": "\xff"}', b"[" * 99_999):
        assert server.http.post("ipymcp/oauth/redirected", content=body).status_code == 400, body[:20]


def test_installing_enables_the_extension(server: JupyterServer) -> None:
    shared = json.loads((ROOT / "etc/jupyter/jupyter_server_config.d/ipymcp.json").read_text())
    assert shared == {"ServerApp": {"jpserver_extensions": {"ipymcp": True}}}
    assert "ipymcp | extension was successfully loaded" in server.log()
    assert "Warning" not in server.log().replace("IPKernelApp] WARNING", "")


def test_the_server_imports_nothing_that_runs_servers() -> None:
    code = (
        "import sys, ipymcp; ipymcp._jupyter_server_extension_points();"
        "print(*(name for name in sys.modules if name.startswith('ipymcp.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ}, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    light = {"jupyter", "storage", "protocol", "errors", "files", "import_guard", "masking", "text", "version"}
    assert loaded <= light, loaded


# -- the document around an app's page ---------------------------------------------------------------------------------


def directives(policy: str) -> dict[str, str]:
    return dict(one.split(" ", 1) for one in policy.split("; "))


def test_the_document_of_an_app_is_sandboxed_and_not_stored(server: JupyterServer) -> None:
    with server.anonymous() as stranger:
        reply = stranger.get(FRAME)
    assert reply.status_code == 200
    policy = directives(reply.headers["Content-Security-Policy"])
    assert policy["sandbox"] == "allow-scripts allow-forms"
    assert policy["default-src"] == policy["connect-src"] == policy["frame-src"] == "'none'"
    assert policy["frame-ancestors"] == "'self'"
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_the_document_of_an_app_is_the_same_for_a_user_and_a_stranger_and_sets_no_cookies(
    server: JupyterServer,
) -> None:
    with server.anonymous() as stranger, server.browser() as user:
        replies = [client.get(FRAME) for client in (stranger, user, server.http)]
        token = server.http.headers["Authorization"].removeprefix("token ")
        secrets = [token, *user.cookies.values()]
    assert len({reply.text for reply in replies}) == 1
    assert len({reply.headers["Content-Security-Policy"] for reply in replies}) == 1
    assert not any("Set-Cookie" in reply.headers for reply in replies)
    assert secrets[1:], "the user has cookies"
    assert not any(secret in replies[1].text for secret in secrets)


def test_the_query_of_an_app_grants_origins_and_nothing_else(server: JupyterServer) -> None:
    origins = {"connect": "https://a.example,wss://b.example:8443", "resource": "https://*.c.example", "eval": "1"}
    with server.anonymous() as stranger:
        policy = directives(stranger.get(FRAME, params=origins).headers["Content-Security-Policy"])
    assert policy["connect-src"] == "https://a.example wss://b.example:8443"
    assert policy["img-src"] == "data: blob: https://*.c.example"
    assert policy["script-src"] == "'unsafe-inline' 'report-sample' blob: data: 'unsafe-eval' https://*.c.example"
    assert policy["frame-src"] == "'none'" and policy["sandbox"] == "allow-scripts allow-forms"


NOT_ORIGINS = (
    "*",
    "'self'",
    "data:",
    "http://a.example",
    "https://a.example; sandbox allow-same-origin",
    "https://a.example\r\nSet-Cookie: a=b",
    "https://a.example/'unsafe-inline'",
    '"><script>alert(1)</script>',
)


def test_no_query_writes_a_header_or_the_document_of_an_app(server: JupyterServer) -> None:
    with server.anonymous() as stranger:
        plain = stranger.get(FRAME)
        for value in NOT_ORIGINS:
            reply = stranger.get(FRAME, params={"connect": value})
            assert reply.text == plain.text, value
            assert reply.headers["Content-Security-Policy"] == plain.headers["Content-Security-Policy"], value
            assert "Set-Cookie" not in reply.headers, value


def test_the_document_of_an_app_can_only_be_read(server: JupyterServer) -> None:
    with server.anonymous() as stranger:
        for method in ("POST", "PUT", "DELETE"):
            assert stranger.request(method, FRAME).status_code in (403, 405), method

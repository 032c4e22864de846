"""The installed extension: what enables it, what it imports, and who may use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jupyter_servers import JupyterServer, started

DENYING = """
from jupyter_server.auth.authorizer import Authorizer

class Denying(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return (action, resource) != ({action!r}, {resource!r})
"""


@pytest.mark.parametrize(("action", "resource"), [("write", "ipymcp"), ("execute", "kernels")])
def test_the_authorizer_decides_who_delivers_a_login(tmp_path: Path, action: str, resource: str) -> None:
    (tmp_path / "denying.py").write_text(DENYING.format(action=action, resource=resource))
    with started(tmp_path, {"ServerApp": {"authorizer_class": "denying.Denying"}}) as server:
        reply = server.http.post("ipymcp/oauth/redirected", json={"state": "s", "code": "c"})
        assert (reply.status_code, reply.json()["message"]) == (403, f"may not {action} {resource}")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[7]", b'{"state": 7}', b'{"code": "c"}', b'{"state": "\xff"}', b"[" * 99_999]
)
def test_a_malformed_login_answer_is_refused(server: JupyterServer, body: bytes) -> None:
    assert server.http.post("ipymcp/oauth/redirected", content=body).status_code == 400


def test_installing_enables_it(server: JupyterServer) -> None:
    root = Path(__file__).parents[2]
    shared = json.loads((root / "etc/jupyter/jupyter_server_config.d/ipymcp.json").read_text())
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

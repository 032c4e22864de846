"""Config, secrets, trust and sessions over REST, and who may ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.jupyter.addresses import CHANGES, READS, SECRET
from tests.jupyter_servers import JupyterServer, ServedKernel, started

DENYING = """
from jupyter_server.auth.authorizer import Authorizer

class Denying(Authorizer):
    def is_authorized(self, handler, user, action, resource):
        return resource != "ipymcp"
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[JupyterServer]:
    """A server whose user has configured nothing yet."""
    with started(tmp_path) as server:
        yield server


def own_file(server: JupyterServer) -> Path:
    return Path(server.environment["JUPYTER_CONFIG_DIR"], "ipymcp", "mcp.json")


def ask(client: httpx.Client, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    answer = client.request(method, path, json=body)
    return answer.status_code, answer.json()


# -- who may ------------------------------------------------------------------------------------------------------


def test_nobody_who_is_not_logged_in_may_ask(server: JupyterServer) -> None:
    with server.anonymous() as stranger:
        for path in READS:
            assert ask(stranger, "GET", path)[0] == 403, path
        for method, path, body in CHANGES:
            assert ask(stranger, method, path, body)[0] == 403, path


def test_a_change_needs_the_xsrf_token_and_no_foreign_page_may_ask(server: JupyterServer) -> None:
    with server.browser() as browser:
        token = {"X-XSRFToken": browser.cookies["_xsrf"]}
        foreign = {"Origin": "https://evil.example"}
        for path in READS:
            assert browser.get(path).status_code == 200, path
            assert browser.get(path, headers=foreign).status_code in (403, 404), path
        for method, path, body in CHANGES:
            assert browser.request(method, path, json=body).status_code == 403, path
            assert browser.request(method, path, json=body, headers=token | foreign).status_code in (403, 404), path
        assert server.http.get("ipymcp/secrets").json() == {"secrets": []}
        assert not own_file(server).exists()
        assert browser.request(*CHANGES[0][:2], json=CHANGES[0][2], headers=token).status_code == 200
        assert browser.request(*CHANGES[1][:2], headers=token).status_code == 200


def test_an_authorizer_that_denies_is_asked_everywhere(tmp_path: Path) -> None:
    (tmp_path / "denying.py").write_text(DENYING)
    with started(tmp_path, {"ServerApp": {"authorizer_class": "denying.Denying"}}) as server:
        for path in READS:
            assert ask(server.http, "GET", path)[0] == 403, path
        for method, path, body in CHANGES:
            assert ask(server.http, method, path, body)[0] == 403, path


# -- config -------------------------------------------------------------------------------------------------------


def test_a_server_is_added_changed_and_removed_in_the_users_own_file(own: JupyterServer) -> None:
    http, file = own.http, own_file(own)
    definition = {"command": "python", "args": ["-m", "x"], "env": {"API_TOKEN": SECRET}}
    assert ask(http, "PUT", "ipymcp/config/servers/fs", {"definition": definition}) == (200, {})
    assert json.loads(file.read_text()) == {"mcpServers": {"fs": definition}}
    assert file.stat().st_mode & 0o777 == 0o600

    listed = http.get("ipymcp/config")
    assert SECRET not in listed.text and listed.headers["cache-control"] == "no-store"
    [row] = listed.json()["servers"]
    masked = {**definition, "env": {"API_TOKEN": "•••• (15 characters)"}}
    assert row == {
        "name": "fs",
        "definition": masked,
        "unused": [],
        "file": str(file),
        "scope": "user",
        "is_writable": True,
    }

    status, said = ask(http, "PUT", "ipymcp/config/servers/fs", {"definition": definition})
    assert (status, said["message"]) == (400, "fs is there already")
    status, said = ask(http, "PATCH", "ipymcp/config/servers/fs", {"change": {"env": row["definition"]["env"]}})
    assert (status, said["message"]) == (400, "env.API_TOKEN: is a mask, no value")
    assert ask(http, "PATCH", "ipymcp/config/servers/fs", {"change": {"timeout": 5, "args": None}}) == (200, {})
    assert json.loads(file.read_text())["mcpServers"]["fs"] == {
        "command": "python",
        "env": {"API_TOKEN": SECRET},
        "timeout": 5,
    }
    assert ask(http, "DELETE", "ipymcp/config/servers/fs") == (200, {})
    status, said = ask(http, "DELETE", "ipymcp/config/servers/fs")
    assert (status, said) == (
        404,
        {"message": f"{file} defines no server 'fs'", "hint": "no other file is written"},
    )


def test_what_is_wrong_is_said_and_nothing_is_written(own: JupyterServer) -> None:
    http, path = own.http, "ipymcp/config/check"
    assert ask(http, "POST", path, {"name": "a", "definition": {"command": "x"}}) == (200, {"errors": []})
    _, said = ask(http, "POST", path, {"name": "a", "definition": {"command": 7}})
    [error] = said["errors"]
    assert "mcpServers.a.command" in error["message"] and error["hint"]
    _, said = ask(http, "POST", path, {"name": "a", "change": {"timeout": 1}})
    assert "defines no server 'a'" in said["errors"][0]["message"]
    assert ask(http, "PUT", "ipymcp/config/servers/a", {"definition": {"command": 7}})[0] == 400
    assert ask(http, "PUT", "ipymcp/config/servers/a", {"definition": 7})[0] == 400
    assert ask(http, "PUT", "ipymcp/config/servers/a", [7])[0] == 400
    broken = [
        "",
        "{",
        '{"definition": {"command": "\\ud800"}}',
        '{"definition": {"command": "x"}, "n": NaN}',
        "[" * 99_999,
    ]
    for text in [*map(str.encode, broken), b'{"definition": {"command": "\xff"}}']:
        assert http.put("ipymcp/config/servers/a", content=text).status_code == 400, text[:40]
    assert not own_file(own).exists()


def test_comments_are_not_lost_and_other_hosts_files_are_only_read(own: JupyterServer) -> None:
    project = own.folder / "project"
    project.mkdir()
    theirs = project / ".mcp.json"
    theirs.write_text('{"mcpServers": {"git": {"command": "git-server"}}}')
    own_file(own).parent.mkdir(parents=True)
    own_file(own).write_text('{"mcpServers": {"a": {"command": "a"}} /* mine */}')
    (own.folder / "outside").symlink_to("/")

    here = own.http.get("ipymcp/config", params={"path": "project/notebook.ipynb"}).json()
    assert {(row["name"], row["scope"], row["is_writable"]) for row in here["servers"]} == {
        ("a", "user", True),
        ("git", "project", False),
    }
    assert {row["name"] for row in own.http.get("ipymcp/config").json()["servers"]} == {"a"}
    for path in ("../x.ipynb", "outside/etc/x.ipynb", "nowhere/x.ipynb"):
        assert ask(own.http, "GET", f"ipymcp/config?path={path}")[0] == 404, path
    status, said = ask(own.http, "PATCH", "ipymcp/config/servers/a", {"change": {"args": ["b"]}})
    assert (status, said["message"]) == (400, f"{own_file(own)}: its comments would be lost")
    _, checked = ask(own.http, "POST", "ipymcp/config/check", {"name": "a", "change": {"args": ["b"]}})
    assert checked["errors"] == [said]
    assert ask(own.http, "DELETE", "ipymcp/config/servers/git")[0] in (400, 404)
    assert "git-server" in theirs.read_text() and "mine" in own_file(own).read_text()


# -- trust --------------------------------------------------------------------------------------------------------


def test_what_the_panel_wrote_may_run_what_another_changed_may_not_and_trust_is_revoked(own: JupyterServer) -> None:
    http, file = own.http, own_file(own)
    ask(http, "PUT", "ipymcp/config/servers/one", {"definition": {"command": "one", "env": {"A": "${secret:a}"}}})
    [agreement] = http.get("ipymcp/trust").json()["agreements"]
    assert (agreement["server"], agreement["file"], agreement["secrets"]) == ("one", str(file), [])

    document = json.loads(file.read_text())
    document["mcpServers"]["one"]["command"] = "evil"
    file.write_text(json.dumps(document))
    ask(http, "PATCH", "ipymcp/config/servers/one", {"change": {"args": ["x"]}})
    assert len(http.get("ipymcp/trust").json()["agreements"]) == 1  # what another changed is not agreed to by that

    assert ask(http, "DELETE", f"ipymcp/trust/{agreement['digest']}") == (200, {})
    assert ask(http, "DELETE", f"ipymcp/trust/{agreement['digest']}")[0] == 404
    assert http.delete("ipymcp/trust/one").status_code == 404
    assert http.get("ipymcp/trust").json() == {"agreements": []}


# -- secrets ------------------------------------------------------------------------------------------------------


def test_a_secret_goes_in_and_never_comes_out_but_in_a_kernel(own: JupyterServer) -> None:
    http = own.http
    status, said = ask(http, "PUT", "ipymcp/secrets/my-token@host%2Fpath", {"value": SECRET})
    assert (status, said["name"], said["place"]) == (200, "my-token@host/path", "vault")
    ask(http, "PUT", "ipymcp/secrets/other", {"value": SECRET})
    listed = http.get("ipymcp/secrets")
    assert [one["name"] for one in listed.json()["secrets"]] == ["my-token@host/path", "other"]
    assert SECRET not in listed.text
    for method in ("GET", "POST", "PATCH"):
        assert http.request(method, "ipymcp/secrets/other").status_code == 405
    for name, value in (("no name", SECRET), ("other", ""), ("other", 7), ("other", None)):
        assert ask(http, "PUT", f"ipymcp/secrets/{name}", {"value": value})[0] == 400
    kernel = own.start_kernel()
    read = "from ipymcp.storage.store import Store\nprint(Store(print).secrets.get('other'))"
    assert kernel.run(read) == f"{SECRET}\n"
    assert ask(http, "DELETE", "ipymcp/secrets/other") == (200, {})
    assert kernel.run(read) == "None\n"
    assert SECRET not in own.log()


# -- sessions -----------------------------------------------------------------------------------------------------


def test_the_sessions_of_all_kernels_are_told_by_the_kernels(server: JupyterServer, kernel: ServedKernel) -> None:
    notebook = {"path": "a.ipynb", "type": "notebook", "name": "a", "kernel": {"id": kernel.id}}
    server.http.post("api/sessions", json=notebook).raise_for_status()
    bare = server.start_kernel()
    rows = {one["id"]: one for one in server.http.get("ipymcp/sessions").json()["kernels"]}
    assert rows[kernel.id]["state"] == "open" and rows[kernel.id]["path"] == "a.ipynb"
    assert rows[kernel.id]["servers"]["demo"]["state"] == "ready"
    assert (rows[bare.id]["state"], rows[bare.id]["hint"]) == ("absent", "%load_ext ipymcp")


# -- the extension ------------------------------------------------------------------------------------------------


def test_installing_enables_it(server: JupyterServer) -> None:
    root = Path(__file__).parents[2]
    shared = json.loads((root / "etc/jupyter/jupyter_server_config.d/ipymcp.json").read_text())
    assert shared == {"ServerApp": {"jpserver_extensions": {"ipymcp": True}}}
    assert "ipymcp | extension was successfully loaded" in server.log()
    assert "Warning" not in server.log().replace("IPKernelApp] WARNING", "")


def test_the_server_imports_none_of_what_runs_servers(server: JupyterServer) -> None:
    code = (
        "import sys, ipymcp; ipymcp._jupyter_server_extension_points();"
        "print(*(name for name in sys.modules if name.startswith('ipymcp.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ}, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    below = {"config", "protocol", "errors", "import_guard", "masking", "text", "version"}
    assert loaded <= {"jupyter", "state", *below}, loaded

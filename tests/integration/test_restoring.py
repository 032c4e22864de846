"""What a notebook used is back in its next kernel, at a word: servers, disabled tools, rules. And nothing else."""

import ast
import json
import shlex
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import ipymcp
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.errors import McpError
from ipymcp.storage.database import Database
from ipymcp.storage.notebooks import NotebookMemory, NotebookRule, UsedServer
from ipymcp.storage.secrets import Vault
from tests import kernels
from tests.environments import server_command
from tests.integration.notebooks import done, error, text
from tests.kernels import Kernel

COMMAND = server_command("misbehaving")
SECRET = "hunter2-hunter2"
LIFETIME = "(until the kernel stops; after a restart: %mcp restore)"


def started(folder: Path, notebook: str = "one.ipynb") -> AbstractContextManager[Kernel]:
    """A kernel of a notebook in a folder; a second one finds what the first has stored."""
    return kernels.started("kernel-7", folder, {"JPY_SESSION_NAME": str(folder / notebook)})


def define(folder: Path, *extra: str) -> Path:
    """A file of one server in a folder of its own, so that it is not discovered."""
    file = folder / "files.d" / "servers.json"
    file.parent.mkdir(exist_ok=True)
    definition = {"command": sys.executable, "args": [*COMMAND[1:], *extra]}
    file.write_text(json.dumps({"mcpServers": {"files": definition}}))
    return file


def first_session(kernel: Kernel, folder: Path) -> None:
    """Use every kind of server, disable one and a tool, and make rules."""
    command = shlex.join(COMMAND)
    done(kernel, f"%load_ext ipymcp\n%mcp load demo;\n%mcp load {define(folder)} files --timeout 7;")
    done(kernel, f"%mcp load shop --env API_TOKEN={SECRET} --read-only -- {command};")
    done(kernel, f"%mcp load off -- {command};\n%mcp load gone -- {command};\n%mcp unload gone;\n%mcp disable off;")
    assert done(kernel, "%mcp disable demo.fail").stdout == f"disabled: demo.fail {LIFETIME}\n"
    shown = text(kernel, "%mcp policy deny demo.slow")
    assert shown.endswith("deny demo.slow (this notebook) · until the kernel stops; after a restart: %mcp restore")
    done(kernel, "%mcp policy allow demo.echo;")


RESTORED = """\
MCP restored
what       is        last error
demo       ready
files      ready
shop       ready
off        disabled
demo.fail  disabled
demo.slow  deny
demo.echo  allow
demo.plot  ask"""


def test_a_notebook_has_its_servers_and_rules_again_after_a_restart(tmp_path: Path) -> None:
    with started(tmp_path) as kernel:
        first_session(kernel, tmp_path)
    with started(tmp_path) as kernel:
        done(kernel, "%load_ext ipymcp")
        assert text(kernel, "%mcp").splitlines()[-1] == "this notebook used demo, files, shop, off: %mcp restore"
        for line in ("mcp.shop.echo('x')", "%mcp call shop.echo text=x", "mcp.servers['shop']"):
            refused = [
                "UnknownName: there is no server 'shop'",
                f"  this notebook used shop: %mcp restore · in: {line}",
            ]
            assert error(kernel, line) == refused
        assert error(kernel, "mcp.shpo")[1] == "  did you mean 'shop'? · in: mcp.shpo"
        file = define(tmp_path)
        assert error(kernel, "%mcp load files") == [
            f"UnknownName: this notebook loaded 'files' from {file}",
            f"  %mcp restore, or %mcp load {file} files · in: %mcp load files",
        ]
        done(kernel, "%mcp policy ask demo.plot;")  # a rule of this kernel stays beside the restored ones
        assert text(kernel, "%mcp restore") == RESTORED
        assert error(kernel, "mcp.demo.slow()")[0] == (
            "PolicyError: demo.slow: denied by the rule 'deny demo.slow (this notebook)'"
        )
        assert error(kernel, "mcp.demo.fail()")[0] == "PolicyError: demo.fail: is disabled"
        assert error(kernel, "mcp.shop.echo('x')")[0].startswith("PolicyError: shop.echo: read-only mode")
        assert (
            text(kernel, "mcp.files.echo('x').text, mcp.servers['files']._session.definition.timeout") == "('x', 7.0)"
        )
        done(kernel, "%mcp enable off demo.fail;\n%mcp policy reset")
    with started(tmp_path) as kernel:
        done(kernel, "%load_ext ipymcp\nt = mcp.restore()")
        rows = ast.literal_eval(text(kernel, "[row[:2] for row in t.rows]"))
        assert rows == [*((name, "ready") for name in ("demo", "files", "shop", "off")), ("demo.fail", "enabled")]
        done(kernel, "mcp.unload(*mcp)")
    with started(tmp_path) as kernel:
        done(kernel, "%load_ext ipymcp")
        assert text(kernel, "%mcp").splitlines()[-1] == "no servers yet: %mcp load demo"
    files = [path for path in tmp_path.rglob("*.db*") if path.is_file()]
    assert files and all(SECRET.encode() not in path.read_bytes() for path in files)


def test_only_what_was_run_comes_back_and_only_in_its_notebook(tmp_path: Path) -> None:
    with started(tmp_path) as kernel:
        first_session(kernel, tmp_path)
    file = define(tmp_path, "drop")  # as a pull of the project would change it
    with started(tmp_path, "other.ipynb") as kernel:
        done(kernel, "%load_ext ipymcp")
        assert text(kernel, "%mcp").splitlines()[-1] == "no servers yet: %mcp load demo"
        assert text(kernel, "%mcp restore").splitlines()[-1] == "this notebook used nothing that is not here"
    with started(tmp_path) as kernel:
        shown = text(kernel, "%load_ext ipymcp\n%mcp restore").splitlines()
        assert "files      not restored" in shown
        assert shown[-1] == f"files: its definition in {file} has changed · %mcp load {file} files"
        assert text(kernel, "list(mcp)") == "['demo', 'shop', 'off']"
        file.unlink()
        assert text(kernel, "%mcp restore").splitlines()[-1].startswith(f"files: {file}: no such file · ")
        assert text(kernel, "%mcp").splitlines()[-1] == "this notebook used also files: %mcp restore"


def test_a_server_of_a_project_is_asked_about_when_it_comes_back(tmp_path: Path) -> None:
    definition = {"command": sys.executable, "args": COMMAND[1:]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"theirs": definition}}))
    with started(tmp_path) as kernel:
        done(kernel, "%load_ext ipymcp\n%mcp load theirs --trust;")
    with started(tmp_path) as kernel:
        restored = done(kernel, "%load_ext ipymcp\n%mcp restore")
        assert "theirs  needs trust  needs your trust: " in (restored.text or "")


def test_a_typed_server_is_loaded_by_its_name_and_a_setting_restores_all(tmp_path: Path) -> None:
    with started(tmp_path) as kernel:
        done(kernel, f"%load_ext ipymcp\n%mcp load shop -- {shlex.join(COMMAND)};\n%mcp load demo;")
    with started(tmp_path) as kernel:
        done(kernel, "%load_ext ipymcp\n%mcp load shop;")
        assert text(kernel, "mcp.shop.echo('x').text, list(mcp)") == "('x', ['shop'])"
    with started(tmp_path) as kernel:
        loaded = done(kernel, "c = get_ipython().config\nc.IPyMCP.restore = 'auto'\n%load_ext ipymcp")
        assert loaded.stderr == "ipymcp: restored what this notebook used: demo, shop; %mcp shows it\n"
        assert text(kernel, "mcp.shop.echo('x').text, mcp.demo.echo('y').text") == "('x', 'y')"


def test_a_script_restores_nothing() -> None:
    with ipymcp.connect("demo") as mcp, pytest.raises(McpError) as caught:
        mcp.restore()
    assert caught.value.message == "there is no notebook here whose servers are known"


def test_definitions_are_stored_whole_encrypted_where_they_hold_a_secret_and_lost_with_the_key(tmp_path: Path) -> None:
    database = Database(tmp_path / "state.db")
    memory = NotebookMemory(database, lambda: Vault(tmp_path / "key"))
    plain = ServerDefinition(name="a", command="x", args=("b",), tools={"*": "deny"}, source=Source(scope="script"))
    secret = plain.replace(name="b", env={"API_TOKEN": SECRET})
    for one in (plain, secret):
        memory.loaded("n", UsedServer(one.name, "digest", "", typed=one))
    changed = UsedServer("c", "digest", "/f.json", changes={"env": {"MY_PASSWORD": SECRET}}, original="d")
    memory.loaded("n", changed)
    assert memory.servers("n") == [
        *(UsedServer(each.name, "digest", "", typed=each) for each in (plain, secret)),
        changed,
    ]
    assert memory.servers("other") == []
    memory.decided("n", NotebookRule("tool", "a.*", "off"), NotebookRule("rule", "a.b", "deny"))
    memory.decided("n", NotebookRule("tool", "a.*", "on"), NotebookRule("server", "b", "off"))
    memory.unloaded("n", ["b"])
    assert [(one.kind, one.pattern, one.decision) for one in memory.rules("n")] == [
        ("rule", "a.b", "deny"),
        ("tool", "a.*", "on"),
    ]
    database.close()
    assert SECRET.encode() not in (tmp_path / "state.db").read_bytes()
    (tmp_path / "key").unlink()
    lost = [one for one in memory.servers("n") if one.problem]
    assert [(one.name, one.problem) for one in lost] == [
        ("c", f"the key it was encrypted with is not in {tmp_path / 'key'}")
    ]
    database.close()

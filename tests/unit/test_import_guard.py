"""Imports of ipymcp never come from the working folder; imports of the user may."""

import subprocess
import sys
from pathlib import Path

import pytest

from ipymcp import import_guard

LATE = (
    "json5",
    "msgspec",
    "httpx",
    "brotli",
    "jsonschema_rs",
    "cryptography",
    "difflib",
    "sqlite3",
    "uritemplate",
    "tomllib",
)


def run(folder: Path, code: str) -> tuple[str, str]:
    """Run code as a kernel in that folder would, with the folder first in `sys.path`; return stdout and stderr."""
    ended = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    return ended.stdout, ended.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules named like libraries that ipymcp imports; each prints a line when it is imported."""
    for name in LATE:
        (tmp_path / f"{name}.py").write_text(f"print('{name} of the folder')")
    return tmp_path


@pytest.mark.parametrize("first", ["", "."])
def test_a_module_of_the_folder_does_not_replace_a_library(folder: Path, first: str) -> None:
    code = f"""
import sys
sys.path.insert(0, {first!r})
import ipymcp
from ipymcp.config.config_files import decode, decode_toml
import ipymcp.api.namespace, ipymcp.schema.validation, ipymcp.protocol.transports.http_client, ipymcp.storage.database
import ipymcp.protocol.transports.network, ipymcp.storage.secrets, ipymcp.security.pins, ipymcp.api.resources
print(decode("{{unquoted: 'single'}}", 'x'), decode_toml("a = 1", "x"))
with ipymcp.connect("demo") as mcp:
    print(mcp.demo.echo("hello").text)
"""
    assert run(folder, code) == ("({'unquoted': 'single'}, False) {'a': 1}\nhello\n", "")


def test_a_module_that_is_missing_or_only_in_the_folder_is_missing_for_ipymcp(folder: Path) -> None:
    (folder / "keyring_of_a_stranger.py").write_text("print('ran')")
    code = """
import ipymcp
own = {"__name__": "ipymcp.storage.secrets"}
exec("import importlib.util; print(importlib.util.find_spec('no_such_module'))", own)
exec("import keyring_of_a_stranger", own)
"""
    stdout, stderr = run(folder, code)
    assert stdout == "None\n"
    assert stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'keyring_of_a_stranger'"


def test_the_users_own_imports_also_work_in_functions_that_ipymcp_calls(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def answer():\n    import other\n    return other.VALUE\n")
    (tmp_path / "other.py").write_text("VALUE = 7")
    code = """
import ipymcp
import mine

def call(function):
    return eval("function()", {"__name__": "ipymcp.runtime.client_handlers", "function": function})

def own():
    import json5
    return json5.OWN

open("json5.py", "w").write("OWN = 8")
print(call(mine.answer), call(own))
"""
    assert run(tmp_path, code) == ("7 8\n", "")


def test_no_second_guard_is_installed() -> None:
    before = list(sys.meta_path)
    import_guard.install()
    assert sys.meta_path == before

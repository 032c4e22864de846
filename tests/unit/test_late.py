"""Modules that are imported late."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ipymcp.late import import_late

if TYPE_CHECKING:
    from pathlib import Path

READ = """
import sys
sys.path.insert(0, {first!r})
from ipymcp.config.files import decode
print(decode("{{unquoted: 'single'}}", 'x'))
"""


@pytest.mark.parametrize("first", ["", "."])
def test_a_module_of_the_working_folder_is_not_taken_for_a_library(tmp_path: Path, first: str) -> None:
    (tmp_path / "json5.py").write_text("open('pwned', 'w').close()")
    ended = subprocess.run(
        [sys.executable, "-c", READ.format(first=first)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == ("({'unquoted': 'single'}, False)\n", "")
    assert not (tmp_path / "pwned").exists()


def test_a_module_that_is_nowhere_is_missing() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        import_late("no_such_module")

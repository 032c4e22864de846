"""The tools in the hands of other libraries, each the real one, in an environment of theirs, without a network."""

import os
import re
import subprocess
from pathlib import Path

from tests.environments import ROOT, environment

CHECKS = ROOT / "tests" / "models" / "check_libraries.py"


def test_every_library_takes_the_tools_and_calls_them(tmp_path: Path) -> None:
    command = [str(environment("models").python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"]
    server = str(ROOT / "ipymcp" / "demo" / "__main__.py")
    mail = str(ROOT / "tests" / "servers" / "mail.py")
    env = {**os.environ, "DEMO": server, "MAIL": mail, "HOME": str(tmp_path), "IPYMCP_KEYRING": "off"}

    done = subprocess.run(
        [*command, "-c", os.devnull, str(CHECKS)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180
    )

    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    assert re.search(r"^\d\d passed in", done.stdout, re.MULTILINE), done.stdout  # and nothing was skipped

"""The tools in the hands of other libraries, each the real one, in an environment of theirs, without a network."""

import os
import re
import subprocess
from pathlib import Path

from tests.environments import ROOT, environment

CHECKS = ROOT / "tests" / "models"


def checked(environment_name: str, file: str, folder: Path, **more: str) -> None:
    """Run a file of checks in an environment; nothing in it may be skipped."""
    command = [
        str(environment(environment_name).python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--noconftest",
    ]
    server = str(ROOT / "ipymcp" / "demo" / "__main__.py")
    mail = str(ROOT / "tests" / "servers" / "mail.py")
    env = {**os.environ, "DEMO": server, "MAIL": mail, "HOME": str(folder), "IPYMCP_KEYRING": "off", **more}

    done = subprocess.run(
        [*command, "-c", os.devnull, str(CHECKS / file)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )

    assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-2_000:]
    assert re.search(r"^\d\d passed(, \d+ warnings)? in", done.stdout, re.MULTILINE), done.stdout


def test_every_library_takes_the_tools_and_calls_them(tmp_path: Path) -> None:
    checked("models", "check_libraries.py", tmp_path)


def test_every_library_for_agents_takes_the_tools_and_calls_them(tmp_path: Path, models: str) -> None:
    checked("agents", "check_agents.py", tmp_path, MODELS=models)

"""The tests of tests/models, each file run once by the pytest of an environment with the libraries that it is about."""

import functools
import os
import re
import subprocess
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from tests.environments import ROOT, environment
from tests.scripted import DEMO

pytestmark = pytest.mark.timeout(900)  # the first test of a file runs all of it

FOLDER = ROOT / "tests" / "models"
ENVIRONMENTS = {"check_agents": "agents", "check_answers": "models", "check_libraries": "models"}
TESTS = [
    (file, test)
    for file in ENVIRONMENTS
    for test in re.findall(r"^def (test_\w+)", (FOLDER / f"{file}.py").read_text(encoding="utf-8"), re.MULTILINE)
]
"""The test functions by file; their parameters are only known in that environment."""

Cases = dict[str, str | None]
"""The output of each failed or skipped case of a file, and None for each case that passed."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, models: str) -> Callable[[str], Cases]:
    @functools.cache
    def run(file: str) -> Cases:
        folder = tmp_path_factory.mktemp(file)
        report = folder / "report.xml"
        python = str(environment(ENVIRONMENTS[file]).python)
        options = ["-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, f"--junitxml={report}"]
        own = {"DEMO": DEMO, "MAIL": str(ROOT / "tests" / "servers" / "mail.py"), "MODELS": models}
        done = subprocess.run(
            [python, "-m", "pytest", *options, str(FOLDER / f"{file}.py")],
            cwd=folder,
            env={**os.environ, **own, "HOME": str(folder), "IPYMCP_KEYRING": "off"},
            capture_output=True,
            text=True,
        )
        assert report.exists(), done.stdout + done.stderr
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return {case.get("name", ""): _outcome(case) for case in cases}

    return run


def _outcome(case: ElementTree.Element) -> str | None:
    return "\n".join(f"{part.get('message')}\n{part.text}" for part in case if part.tag != "system-out") or None


@pytest.mark.parametrize(("file", "test"), TESTS, ids=[f"{file}::{test}" for file, test in TESTS])
def test_models(run: Callable[[str], Cases], file: str, test: str) -> None:
    cases = {name: outcome for name, outcome in run(file).items() if name.partition("[")[0] == test}

    assert cases, f"{test} did not run: {run(file)}"
    assert not (failed := {name: text for name, text in cases.items() if text}), "\n".join(
        f"{name}: {text}" for name, text in failed.items()
    )

"""Every frame of every test, recorded both ways and checked against the specification of its revision."""

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"
DIRECTORY = "IPYMCP_TEST_WIRE"


def environment(directory: str | os.PathLike[str]) -> dict[str, str]:
    """Environment variables that make a subprocess record its frames under `directory`."""
    return {DIRECTORY: os.fspath(directory), "PYTHONPATH": _with_site(os.environ.get("PYTHONPATH", ""))}


def tapped(env: Mapping[str, str]) -> dict[str, str]:
    """The same environment, made so that the process records its frames if this run does."""
    if DIRECTORY not in os.environ:
        return dict(env)
    return {**env, DIRECTORY: os.environ[DIRECTORY], "PYTHONPATH": _with_site(env.get("PYTHONPATH", ""))}


def _with_site(path: str) -> str:
    inherited = [part for part in path.split(os.pathsep) if part and part != str(SITE)]
    return os.pathsep.join([str(SITE), *inherited])

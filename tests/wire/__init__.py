"""Every frame of every test, recorded both ways and checked against the specification of its revision."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["environment"]

SITE = Path(__file__).parent / "site"


def environment(directory: str | os.PathLike[str]) -> dict[str, str]:
    """What a subprocess needs in its environment to record its frames under `directory`."""
    inherited = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != str(SITE)]
    return {
        "IPYMCP_TEST_WIRE": os.fspath(directory),
        "PYTHONPATH": os.pathsep.join([str(SITE), *inherited]),
    }

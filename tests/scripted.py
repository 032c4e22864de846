"""Models that answer by a script (`tests/servers/models.py`), started."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.environments import ROOT

DEMO = str(ROOT / "ipymcp" / "demo" / "__main__.py")


@contextlib.contextmanager
def scripted_models() -> Iterator[str]:
    """Give their address, without `/v1`."""
    command = [sys.executable, str(ROOT / "tests" / "servers" / "models.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.terminate()

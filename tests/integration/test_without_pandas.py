"""`.df` where the user has no pandas: polars serves, in an environment of its own."""

import os
import subprocess
from pathlib import Path

from tests.environments import kernel_python
from tests.wire import tapped

SCRIPT = """
import importlib.util, ipymcp
assert importlib.util.find_spec("pandas") is None
with ipymcp.connect("demo") as mcp:
    frame = mcp.demo.query("penguins", limit=2).df
    print(type(frame).__module__.split(".")[0], frame.shape, frame["species"].to_list())
"""


def test_a_frame_is_polars_where_there_is_no_pandas(tmp_path: Path) -> None:
    run = subprocess.run(
        [kernel_python("slim"), "-c", SCRIPT],
        env=tapped(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert (run.stdout, run.returncode) == ("polars (2, 8) ['Adelie', 'Adelie']\n", 0), run.stderr

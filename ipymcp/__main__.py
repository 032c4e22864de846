"""`python -m ipymcp`: say how ipymcp is used."""

from __future__ import annotations

import sys

from ipymcp.text import visible
from ipymcp.version import __version__

_USE = """\
ipymcp is used in a notebook, not from a shell:

    %load_ext ipymcp
    %mcp help

In a script: with ipymcp.connect("demo") as mcp: …
The demo server alone, on stdin and stdout: python -m ipymcp.demo
"""


def main() -> None:
    """Print the version, or how ipymcp is used."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        sys.stdout.write(visible(f"ipymcp {__version__}\n"))
    else:
        sys.stdout.write(visible(_USE))


if __name__ == "__main__":
    main()

"""The version of this package, and how it is installed."""

__version__ = "0.1.0"

SOURCE = "git+https://github.com/ipymcp/ipymcp"
"""The requirement for pip until ipymcp is on PyPI; also in `labextension/src/lab/loadextension.ts`."""


def install_command(extra: str) -> str:
    """Return the command that installs ipymcp with the packages of an extra."""
    return f"pip install 'ipymcp[{extra}] @ {SOURCE}'"

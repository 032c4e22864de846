"""Finds the socket that a kernel serves, and says why there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ipymcp.state.meeting import VERSION, Announced, announced, file_of, is_guarded, sweep
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Kernels", "Obstacle", "Why", "other_version"]

Why = Literal["unknown", "elsewhere", "absent", "foreign", "silent", "ended", "left"]


class Obstacle(Exception):
    """No view reaches a kernel.

    Args:
        why: One word, for programs.
        message: What is so, for people.
        hint: What to do about it.
    """

    def __init__(self, why: Why, message: str, hint: str) -> None:
        super().__init__(message)
        self.why: Why = why
        self.message = message
        self.hint = hint

    @property
    def document(self) -> dict[str, str]:
        """As a view is told."""
        return {"state": self.why, "message": self.message, "hint": self.hint}


class Kernels:
    """The kernels of this server.

    Args:
        manager: Jupyter's.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    @property
    def runtime(self) -> Path:
        """Where kernels of this user say how they are reached."""
        from jupyter_core.paths import jupyter_runtime_dir

        return Path(jupyter_runtime_dir())

    def ids(self) -> list[str]:
        """Of those that run."""
        return [*self._manager.list_kernel_ids()]

    def name(self, kernel_id: str) -> str:
        """The kernel's kind, such as `python3`."""
        return str(self._manager.get_kernel(kernel_id).kernel_name)

    def find(self, kernel_id: str) -> Announced:
        """Where a kernel serves views.

        Raises:
            Obstacle: It does not, or not to us.
        """
        if kernel_id not in self._manager:
            raise Obstacle("unknown", "this kernel does not run", "start it, or choose another")
        kernel = self._manager.get_kernel(kernel_id)
        connection_file = str(getattr(kernel, "connection_file", ""))
        if not connection_file or not hasattr(os, "getuid"):
            raise Obstacle("elsewhere", "this server cannot reach the kernel's socket", "the panel in a cell can")
        places = [*dict.fromkeys([self.runtime, Path(connection_file).parent])]
        for place in places:
            sweep(place)
        file = next((file for place in places if (file := file_of(place, connection_file)).exists()), None)
        if file is None:
            raise Obstacle("absent", "ipymcp is not loaded in this kernel", "%load_ext ipymcp")
        found = announced(file)
        if found is not None and not found.is_here:
            raise Obstacle("elsewhere", "the kernel runs on another machine", "the panel in a cell can reach it")
        if found is None or not _is_of(found, _pid(kernel)):
            raise Obstacle("foreign", f"{file} cannot be believed", "it must be the kernel's, and yours alone")
        if not Path(found.socket).exists():
            raise Obstacle("left", "the kernel's socket is gone", "%reload_ext ipymcp")
        if not is_guarded(found):
            raise Obstacle(
                "foreign", f"{found.socket} cannot be believed", "it must be yours alone: restart the kernel"
            )
        return found


def other_version(found: Announced) -> Mapping[str, str] | None:
    """What a view is told of a kernel whose messages are of another version; None where they are of ours."""
    if found.version == VERSION:
        return None
    older = "the Jupyter server's" if found.version > VERSION else "the kernel's"
    versions = f"the kernel has ipymcp {found.ipymcp}, this Jupyter server {__version__}"
    return {
        "state": "version",
        "message": f"{versions}: the panel only shows",
        "hint": f"upgrade {older}: pip install -U ipymcp",
    }


def _pid(kernel: Any) -> int | None:
    """The process that Jupyter started; None where it does not know one here."""
    provisioner = getattr(kernel, "provisioner", None)
    pid = getattr(provisioner, "pid", None)
    return pid if isinstance(pid, int) and pid > 0 else None


def _is_of(found: Announced, pid: int | None) -> bool:
    """Whether the kernel's process wrote it, or one that it started: `conda run`, `uv run`."""
    import psutil

    if pid is None or found.pid == pid:
        return True
    try:
        return any(one.pid == pid for one in psutil.Process(found.pid).parents())
    except psutil.Error:
        return False

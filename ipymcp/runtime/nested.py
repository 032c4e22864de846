"""Running the user's coroutines on a loop that a sync call blocks: the one honest use of `nest_asyncio`.

Waiting that way is never the default: nested waits stack, and an interrupt may lose the cell. And nest_asyncio 1.6
under ipykernel 7 drops queued cells, so there only nest_asyncio2 >= 1.7.3 is used; where a notebook has applied the
harmful pair already, it is refused.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ipymcp.errors import LoopError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sized

__all__ = ["NestedMode", "is_harmfully_patched", "run_nested"]

NestedMode = Literal["off", "handlers", "always"]
T = TypeVar("T")
_WORKING = (1, 7, 3)
_INSTALL = "pip install 'nest-asyncio2>=1.7.3', then restart the kernel; or %config IPyMCP.nested_loop = 'off'"


def run_nested(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop that runs in this thread, whose current turn has not ended.

    Raises:
        LoopError: There is no package here that does this without losing cells.
    """
    loop = asyncio.get_running_loop()
    try:
        _patch(loop)
    except BaseException:
        coroutine.close()
        raise
    ready: Sized = getattr(loop, "_ready", ())
    before = len(ready)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        # A turn of the loop that began before the patch pops as many handles as there were; the nested run took some.
        for _ in range(before - len(ready)):
            loop.call_soon(_nothing)


def is_harmfully_patched() -> bool:
    """Whether nest_asyncio 1.x is at work under ipykernel 7, where it loses cells."""
    return hasattr(asyncio, "_nest_patched") and not hasattr(asyncio, "_nest_asyncio2") and _kernel_is_new()


def _patch(loop: asyncio.AbstractEventLoop) -> None:
    if is_harmfully_patched():
        raise LoopError(
            "nest_asyncio 1.6 is applied in this kernel: a nested loop would drop queued cells", hint=_INSTALL
        )
    package = _package()
    try:
        package.apply(loop)
    except ValueError as error:  # a loop that is not asyncio's own
        raise LoopError(f"this loop cannot be nested: {error}", hint="%config IPyMCP.nested_loop = 'off'") from error


def _package() -> Any:
    try:
        if _version("nest-asyncio2") >= _WORKING:
            return importlib.import_module("nest_asyncio2")
    except ImportError:
        pass
    if _kernel_is_new():
        raise LoopError("a nested loop needs nest-asyncio2 1.7.3 or newer in this kernel", hint=_INSTALL)
    return importlib.import_module("nest_asyncio")


def _version(distribution: str) -> tuple[int, ...]:
    from importlib.metadata import version

    return tuple(int(part) for part in version(distribution).split(".")[:3] if part.isdigit())


def _kernel_is_new() -> bool:
    """Whether this is ipykernel 7 or newer."""
    ipykernel: Any = sys.modules.get("ipykernel")
    return ipykernel is not None and int(str(getattr(ipykernel, "__version__", "0")).split(".")[0]) >= 7


def _nothing() -> None: ...

"""Methods that block by default, with the coroutine function as their attribute `.aio`."""

from __future__ import annotations

import functools
import inspect
import warnings
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ipymcp.argument_checks import missing_attribute
from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

    from ipymcp.runtime.host import Host


_SKIPPED_PACKAGES = frozenset({"ipymcp", "asyncio"})
"""Packages whose frames may lie between a method and the user's line, for example in `with ipymcp.connect(…)`."""
_INTERNAL_CALLERS = frozenset({"IPython", "ipykernel", "tornado", "threading"})
"""Packages that call methods without a line of the user's: for magics, displays and background threads."""

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")

_get_host = attrgetter("_host")


def host_of(owner: object) -> Host:
    """The host of `mcp` or of an object made from it.

    Not a public attribute, because the attributes of `mcp` are the names of servers.
    """
    return _get_host(owner)


class _BlockingMethod(Generic[P, R]):
    """A bound method that blocks."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, R]], owner: object) -> None:
        functools.update_wrapper(self, functools.partial(function, owner))
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._function = function
        self._owner = owner

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return host_of(self._owner).loop.run(self._function(self._owner, *args, **kwargs))
        finally:
            self._warn()

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the method without blocking."""
        try:
            return await host_of(self._owner).loop.arun(self._function(self._owner, *args, **kwargs))
        finally:
            self._warn()

    def _warn(self) -> None:
        """Emit pending notices as warnings at the user's line; if there is no such line, they stay pending."""
        level = _user_stack_level()
        for notice in host_of(self._owner).notices.take() if level is not None else ():
            warnings.warn(visible(notice), UserWarning, stacklevel=level or 1)

    def __repr__(self) -> str:
        return f"<{self.__name__}: {(self.__doc__ or '').splitlines()[0]} (.aio to await)>"


class BlockingFunction(Generic[P, R]):
    """A function that blocks, with a coroutine function that does the same as `.aio`.

    Args:
        function: The function that blocks, which has the signature and the docstring.
        aio: The coroutine function.
    """

    def __init__(self, function: Callable[P, R], aio: Callable[P, Coroutine[Any, Any, R]]) -> None:
        functools.update_wrapper(self, function)
        self.__name__ = function.__name__.lstrip("_")
        self.aio = aio
        """The same without blocking."""
        self._function = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function that blocks."""
        return self._function(*args, **kwargs)

    if not TYPE_CHECKING:  # for type checkers it has no other attributes

        def __getattr__(self, name: str) -> Any:
            own = self.__dict__.get("__name__", "")
            hint = f"a server called {own} is mcp[{own!r}]" if own else ""
            return missing_attribute(self, name, f"mcp.{own}", hint=hint)

    def __repr__(self) -> str:
        return f"<{self.__name__}: {(self.__doc__ or '').splitlines()[0]} (.aio to await)>"


def _user_stack_level() -> int | None:
    """The number of frames from the caller up to the user's line; None if there is none."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and (owner := _owner(frame)) not in _INTERNAL_CALLERS:
        if owner not in _SKIPPED_PACKAGES:
            return level
        level, frame = level + 1, frame.f_back
    return None


def _owner(frame: FrameType) -> str:
    """The top-level package of a frame's code."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


class sync_and_async(Generic[S, P, R]):
    """Decorator for coroutine methods of objects with a host: a call blocks until the background loop has run it."""

    def __init__(self, function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, owner: None, kind: type[S]) -> sync_and_async[S, P, R]: ...
    @overload
    def __get__(self, owner: S, kind: type[S]) -> _BlockingMethod[P, R]: ...
    def __get__(self, owner: S | None, kind: type[S]) -> sync_and_async[S, P, R] | _BlockingMethod[P, R]:
        return self if owner is None else _BlockingMethod(self._function, owner)

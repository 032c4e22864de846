"""Words that wait: sync by default, with the same word under `.aio` for those who await."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import FrameType

    from ipymcp.runtime.host import Host
    from ipymcp.runtime.loop import BackgroundLoop


_BETWEEN = frozenset({"ipymcp", "asyncio"})
"""Whose lines may stand between a word and the user's line: `with ipymcp.connect(…)` loads from one of ours."""
_NOBODYS = frozenset({"IPython", "ipykernel", "tornado", "threading"})
"""Who calls where no line of the user's does: magics, displays and what a thread of ours does."""


class _HasLoop(Protocol):
    _host: Host

    @property
    def _loop(self) -> BackgroundLoop: ...


S = TypeVar("S", bound=_HasLoop)
P = ParamSpec("P")
R = TypeVar("R")


class _Waiting(Generic[P, R]):
    """A bound word."""

    def __init__(self, function: Callable[..., Coroutine[Any, Any, R]], owner: _HasLoop) -> None:
        functools.update_wrapper(self, functools.partial(function, owner))
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self._function = function
        self._owner = owner

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self._owner._loop.run(self._function(self._owner, *args, **kwargs))
        finally:
            self._tell()

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The same, awaited."""
        try:
            return await self._owner._loop.arun(self._function(self._owner, *args, **kwargs))
        finally:
            self._tell()

    def _tell(self) -> None:
        """Warn of what went wrong meanwhile, at the user's line; without one it waits for the next occasion."""
        level = _users_level()
        for notice in self._owner._host.notices.take() if level is not None else ():
            warnings.warn(visible(notice), UserWarning, stacklevel=level or 1)

    def __repr__(self) -> str:
        return f"<{self.__name__}: {(self.__doc__ or '').splitlines()[0]} (.aio to await)>"


def _users_level() -> int | None:
    """How many frames above its caller the user's line is; None where there is none."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and (owner := _owner(frame)) not in _NOBODYS:
        if owner not in _BETWEEN:
            return level
        level, frame = level + 1, frame.f_back
    return None


def _owner(frame: FrameType) -> str:
    """The package whose code runs in a frame."""
    return str(frame.f_globals.get("__name__")).partition(".")[0]


class sync_and_async(Generic[S, P, R]):
    """Makes a coroutine method of the background loop a word that waits."""

    def __init__(self, function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, owner: None, kind: type[S]) -> sync_and_async[S, P, R]: ...
    @overload
    def __get__(self, owner: S, kind: type[S]) -> _Waiting[P, R]: ...
    def __get__(self, owner: S | None, kind: type[S]) -> sync_and_async[S, P, R] | _Waiting[P, R]:
        return self if owner is None else _Waiting(self._function, owner)

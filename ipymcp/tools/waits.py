"""Words that wait: sync by default, with the same word under `.aio` for those who await."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ipymcp.runtime.host import Host
    from ipymcp.runtime.loop import BackgroundLoop

__all__ = ["waits"]


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
        for notice in self._owner._host.notices.take():
            warnings.warn(visible(notice), UserWarning, stacklevel=3)

    def __repr__(self) -> str:
        return f"<{self.__name__}: {(self.__doc__ or '').splitlines()[0]} (.aio to await)>"


class waits(Generic[S, P, R]):
    """Makes a coroutine method of the background loop a word that waits."""

    def __init__(self, function: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, owner: None, kind: type[S]) -> waits[S, P, R]: ...
    @overload
    def __get__(self, owner: S, kind: type[S]) -> _Waiting[P, R]: ...
    def __get__(self, owner: S | None, kind: type[S]) -> waits[S, P, R] | _Waiting[P, R]:
        return self if owner is None else _Waiting(self._function, owner)

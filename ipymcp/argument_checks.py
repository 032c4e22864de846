"""Argument checks for public functions: an invalid argument raises `ArgumentError` before anything happens.

    @checked(names=TEXT, timeout=SECONDS.or_none)
    def start(self, *names: str, timeout: float | None = None) -> None: ...

Arguments that do not fit the signature, such as a misspelt keyword, raise `ArgumentError`, which is a TypeError, too.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, cast

from msgspec import Struct

from ipymcp.errors import ArgumentError, UnknownName
from ipymcp.names import nearest

P = ParamSpec("P")
R = TypeVar("R")

_MAX_COUNT: Final = 2**63 - 1
_MAX_SECONDS: Final = 1e9
"""About thirty years: sums of such times stay exact, and no clock overflows."""
_EXAMPLE: Final = re.compile(r"`(mcp\.\w+\([^`]*\))`")
"""The example of a call in the first line of a docstring."""
_UNEXPECTED: Final = re.compile(r"got an unexpected keyword argument '(.*)'")


class Kind(Struct, frozen=True):
    """A check for one kind of argument.

    Attributes:
        what: Description for messages, such as `a string`.
        accepts: Returns whether a value is valid.
    """

    what: str
    accepts: Callable[[Any], bool]

    @property
    def or_none(self) -> Kind:
        """This kind, or None."""
        return Kind(f"{self.what} or None", lambda value: value is None or self.accepts(value))

    def __or__(self, other: Kind) -> Kind:
        return Kind(f"{self.what} or {other.what}", lambda value: self.accepts(value) or other.accepts(value))

    def check(self, function: str, name: str, value: object, hint: str | None = None) -> None:
        """Raise an ArgumentError if a value is not of this kind."""
        if not self.accepts(value):
            message = f"{function}: {name}: expected {self.what}, got {shown(value)}"
            raise ArgumentError(message, argument=name, hint=hint)


def _is_text(value: object) -> bool:
    """Return whether a value is a string without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_name(name: object, what: str) -> None:
    """Raise UnknownName if a lookup key is not a string, as in `mcp[5]`."""
    if not isinstance(name, str):
        raise UnknownName(f"the name of a {what} is a string, got {shown(name)}")


_NO_NAMES: Final[Mapping[str, str]] = {}


def missing_attribute(
    owner: object, name: str, what: str, other_names: Mapping[str, str] = _NO_NAMES, hint: str = ""
) -> Any:
    """Raise UnknownName, which is an AttributeError, for an attribute that an object lacks; for `__getattr__`.

    Names of Python and of libraries, which begin with an underscore, raise a bare AttributeError.

    Args:
        owner: The object.
        name: The attribute.
        what: The object in the message, such as `a tool`.
        other_names: What to write for names that people expect.
        hint: What to write for this name.
    """
    kind = type(owner)
    if name.startswith("_"):
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=owner)
    if hasattr(kind, name):  # a property has raised an AttributeError of its own
        return object.__getattribute__(owner, name)
    public = [word for word in dir(kind) if not word.startswith("_")]
    hint = hint or other_names.get(name) or nearest(name, public, limit=1) or f"it has .{', .'.join(public)}"
    raise UnknownName(f"{what} has no attribute {name!r}", hint=hint)


def refuse_assignment(target: str, name: object) -> NoReturn:
    """Raise UnknownName; for `__setattr__` and `__setitem__` of what holds servers and tools.

    Args:
        target: What is assigned to, as Python writes it.
        name: The attribute or key.
    """
    variable = name if isinstance(name, str) and name.isidentifier() else "NAME"
    message = f"{target} cannot be set: only servers and tools are there"
    raise UnknownName(message, hint=f"keep the value under a name of its own: {variable} = …")


def without_signature(function: Callable[P, R]) -> Callable[P, R]:
    """Make `inspect.signature` fail for a `__call__` that only refuses, so that `?` shows no way to call the object."""
    vars(function)["__signature__"] = ()
    return function


def is_function(value: object) -> bool:
    """Whether a value can be called, and is no collection that refuses calls, as `mcp` and its servers are."""
    return callable(value) and (isinstance(value, type) or not isinstance(value, Iterable))


def shown(value: object) -> str:
    """Format a value for a message: short and on one line."""
    try:
        return reprlib.repr(value)
    except Exception:  # its own repr fails
        return f"a {type(value).__name__}"


def one_of(*words: str) -> Kind:
    """Accept one of a few strings."""
    return Kind(" or ".join(map(repr, words)), lambda value: isinstance(value, str) and value in words)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


def _is_count(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and 0 <= int(value) <= _MAX_COUNT


def _is_path(value: object) -> bool:
    text: object = os.fspath(cast("os.PathLike[Any]", value)) if isinstance(value, os.PathLike) else value
    return isinstance(text, str) and _is_text(text) and bool(text) and "\0" not in text


def _is_texts(value: object) -> bool:
    """Return whether a value is a collection of strings that can be read repeatedly, unlike an iterator."""
    return isinstance(value, list | tuple | set | frozenset) and all(map(_is_text, cast("list[object]", value)))


TEXT: Final = Kind("a string", _is_text)
FLAG: Final = Kind("True or False", lambda value: isinstance(value, bool))
COUNT: Final = Kind("a whole number, 0 or more", _is_count)
SECONDS: Final = Kind(
    "a number of seconds greater than 0", lambda value: _is_number(value) and 0 < value <= _MAX_SECONDS
)
AMOUNT: Final = Kind("a number, 0 or more", lambda value: _is_number(value) and value >= 0)
TIMEOUT: Final = Kind("a number of seconds, 0 or more", lambda value: _is_number(value) and 0 <= value <= _MAX_SECONDS)
FUNCTION: Final = Kind("a function", is_function)
PATH: Final = Kind("a path", _is_path)
MAPPING: Final = Kind("a mapping", lambda value: isinstance(value, Mapping))
MOMENT: Final = Kind("a number of seconds", _is_number)
VARIABLES: Final = Kind("a dict of variables", lambda value: isinstance(value, MutableMapping))
TEXTS: Final = Kind("a list of strings", _is_texts)


def checked(called: str = "", /, **kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the arguments of a function.

    Args:
        called: Name of the function in messages; by default its own, or its class's for a constructor.
        kinds: Kind of each parameter; each value of `*names` is checked.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            signature = _signature(function)
            own = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
            shown_name = called or own
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise _signature_error(shown_name, function, error) from None
            for name, value in given.items():
                kind = kinds.get(name)
                if kind is None:
                    continue
                each = value if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL else (value,)
                for one in each:
                    kind.check(f"{shown_name}()", name, one, _usage(shown_name, signature))
            return function(*args, **kwargs)

        return call

    return decorate


@functools.cache
def _signature(function: Callable[..., object]) -> inspect.Signature:
    return inspect.signature(function)


def _signature_error(name: str, function: Callable[..., object], error: TypeError) -> ArgumentError:
    signature, message = _signature(function), str(error)
    unexpected = _UNEXPECTED.match(message)
    if unexpected is not None:
        meant = nearest(unexpected[1], signature.parameters, limit=1)
        message = f"no argument {unexpected[1]!r}" + (f"; {meant}" if meant else "")
    example = _EXAMPLE.search((function.__doc__ or "").partition("\n")[0])
    usage = _usage(name, signature) + (f", such as {example[1]}" if example else "")
    return ArgumentError(f"{name}(): {message}", hint=usage)


def _usage(name: str, signature: inspect.Signature) -> str:
    """Format the call without annotations: `logs(count=50)`."""
    bare = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    return f"{name}{inspect.Signature(bare)}"


def is_async(function: Callable[..., object]) -> bool:
    """Whether a callable returns a coroutine: a coroutine function, or an object with an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

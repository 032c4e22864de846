"""A class for each callable: IPython, jedi and `inspect` read signatures and docstrings from the class."""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any


def callable_subclass(base: type[Any], name: str, module: str, signature: inspect.Signature, text: str) -> type[Any]:
    """Make a subclass whose call, and whose `aio` if that is a method, has this signature.

    The call itself has no docstring: `?` would show the same text twice.

    Args:
        base: The class.
        name: The subclass's name.
        module: A module name without a source file, so that `?` shows no unrelated source.
        signature: The signature of the call.
        text: The docstring.
    """
    members: dict[str, Any] = {"__doc__": text, "__module__": module, "__signature__": signature}
    # Attributes that libraries expect of a function. `__qualname__` is set on the instance: a class needs a string.
    members["__name__"], members["__annotations__"] = name, _types(signature)
    members["__call__"] = _with_signature(base.__call__, "__call__", signature)
    if inspect.isfunction(base.__dict__.get("aio")):
        members["aio"] = _with_signature(base.aio, "aio", signature)
    return type(name, (base,), members)


def _with_signature(inherited: Any, name: str, signature: inspect.Signature) -> Any:
    free = next(name for name in ("self", "_self", "__self") if name not in signature.parameters)
    receiver = inspect.Parameter(free, inspect.Parameter.POSITIONAL_ONLY)
    own: Any = FunctionType(inherited.__code__, inherited.__globals__)  # the same code: no second call on the way
    own.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])
    own.__name__, own.__doc__, own.__annotations__ = name, "", _types(signature)
    return own


def _types(signature: inspect.Signature) -> dict[str, Any]:
    return {name: parameter.annotation for name, parameter in signature.parameters.items()}

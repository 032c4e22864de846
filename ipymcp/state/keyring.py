"""The operating system's keyring, where the `keyring` package is installed and has a backend that protects anything.

A keyring may ask the user to unlock it, or hang (a desktop's bus that nobody serves): it is called in a thread, and
given up after some seconds.
"""

from __future__ import annotations

import importlib
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ipymcp.errors import SecretError
from ipymcp.import_guard import is_installed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Keyring"]

T = TypeVar("T")
_SERVICE = "ipymcp"
_PATIENCE = 10.0
_REAL = 1.0
"""The least priority of a backend that `keyring` itself recommends: plaintext files, null and fail are below it."""


class Keyring:
    """A keyring, called with patience.

    Args:
        backend: A `keyring.backend.KeyringBackend`.
        patience: Seconds to wait for it.
    """

    def __init__(self, backend: Any, patience: float = _PATIENCE) -> None:
        self._backend = backend
        self._patience = patience

    @classmethod
    def find(cls) -> Keyring | None:
        """The user's keyring; None where there is none, or `IPYMCP_KEYRING=off`."""
        if os.environ.get("IPYMCP_KEYRING") == "off" or not is_installed("keyring"):
            return None
        try:
            backend = _within(_PATIENCE, _real_backend)
        except Exception:  # a backend's fault, whatever it is; without it there is still the vault
            return None
        return cls(backend) if backend is not None else None

    @property
    def name(self) -> str:
        """What it is called, for people."""
        return str(getattr(self._backend, "name", type(self._backend).__name__))

    def get(self, name: str) -> str | None:
        """What is kept under a name.

        Raises:
            SecretError: It does not answer.
        """
        return self._call(lambda: self._backend.get_password(_SERVICE, name))

    def set(self, name: str, value: str) -> None:
        """Keep a value. Raises as `get`."""
        self._call(lambda: self._backend.set_password(_SERVICE, name, value))

    def delete(self, name: str) -> None:
        """Forget a value, if there is one. Raises as `get`."""

        def delete() -> None:
            if self._backend.get_password(_SERVICE, name) is not None:
                self._backend.delete_password(_SERVICE, name)

        self._call(delete)

    def _call(self, function: Callable[[], T]) -> T:
        hint = "unlock it, or set IPYMCP_KEYRING=off before the kernel starts: ipymcp's own vault is used then"
        try:
            return _within(self._patience, function)
        except TimeoutError:
            raise SecretError(f"{self.name} does not answer within {self._patience:g} s", hint=hint) from None
        except Exception as error:
            raise SecretError(f"{self.name} fails ({type(error).__name__})", hint=hint) from error


def _within(seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a thread of its own, which is left behind if it takes too long."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="keyring", daemon=True).start()
    return future.result(seconds)


def _real_backend() -> Any:
    keyring: Any = importlib.import_module("keyring")
    backend: Any = keyring.get_keyring()
    chained: list[Any] = list(getattr(backend, "backends", None) or [backend])  # a chain tries one after the other
    return next((each for each in chained if _is_real(each)), None)


def _is_real(backend: Any) -> bool:
    return float(backend.priority) >= _REAL and "plaintext" not in repr(backend).lower()

"""Secrets by name: in the operating system's keyring, or encrypted in the database.

The key lies in a file that only the user may read (0600), beside the database. However many kernels make it at once,
one is made. A record names its key, so that one whose key is lost is said to be unreadable, and is not touched.

Source: NIST SP 800-38D; 96-bit random nonces are safe for 2**32 records of one key.

A keyring may ask the user to unlock it, or hang (a desktop's bus that nobody serves): it is called in a thread, and
given up after some seconds.

The database always knows what there is and where: a keyring cannot list. Blocking; to be called off the loop.

A kept password belongs to the definition that wanted it: one that has changed asks anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import threading
import time
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct

from ipymcp.config.variables import SECRET_NAME
from ipymcp.errors import SecretError
from ipymcp.files import create_file
from ipymcp.import_guard import is_installed
from ipymcp.masking import masks
from ipymcp.storage.locks import foreign, make_private
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.storage.database import Database


_KEY_BYTES = 32
_NONCE_BYTES = 12
_ID_BYTES = 8
_OVERRIDE = "IPYMCP_ALLOW_SHARED_KEY"
_HALF_WRITTEN = 2.0


class Vault:
    """Seals and opens records.

    Args:
        path: The key file, made when the first record is sealed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: bytes | None = None

    def seal(self, name: str, value: str) -> bytes:
        """A value encrypted, to be opened under this name only.

        Raises:
            SecretError: There is no key, and none can be made, or others may read it.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._read_key() or self._make_key()
        nonce = os.urandom(_NONCE_BYTES)
        return _key_id(key) + nonce + AESGCM(key).encrypt(nonce, value.encode(), name.encode())

    def open(self, name: str, sealed: bytes) -> str:
        """The value of a record.

        Raises:
            SecretError: It cannot be read: its key is lost, or it is damaged.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._read_key()
        if key is None or sealed[:_ID_BYTES] != _key_id(key):
            raise SecretError(
                f"the key it was encrypted with is not in {self._path}",
                hint="put that file back, or set it anew",
            )
        nonce, text = sealed[_ID_BYTES:][:_NONCE_BYTES], sealed[_ID_BYTES + _NONCE_BYTES :]
        try:
            return AESGCM(key).decrypt(nonce, text, name.encode()).decode()
        except (InvalidTag, ValueError):
            raise SecretError("its record is damaged", hint="set it anew") from None

    # -- the key file -------------------------------------------------------------------------------------------------

    def _read_key(self) -> bytes | None:
        """The key; None where there is no file."""
        if self._key is None:
            with contextlib.suppress(FileNotFoundError):
                self._key = self._read()
        return self._key

    def _read(self) -> bytes:
        path = self._path
        if foreign(path):
            raise SecretError(f"{path} belongs to another user", hint="remove it, or set IPYMCP_STATE_DIR")
        if not make_private(path) and os.environ.get(_OVERRIDE) != "1":
            raise SecretError(
                f"{path} can be read by other users, and its file system does not let that be changed",
                hint=f"set IPYMCP_STATE_DIR to a folder of yours, or {_OVERRIDE}=1 to use it nevertheless",
            )
        deadline = time.monotonic() + _HALF_WRITTEN
        while len(key := path.read_bytes()) < _KEY_BYTES and time.monotonic() < deadline:
            time.sleep(0.01)  # another kernel is just writing it, on a file system without links
        if len(key) != _KEY_BYTES:
            raise SecretError(f"{path} holds no key", hint="put the right file back, or remove it")
        return key

    def _make_key(self) -> bytes:
        """Make the key file, unless another kernel just has."""
        try:
            create_file(self._path, os.urandom(_KEY_BYTES))
            self._key = self._read()
        except OSError as error:
            raise SecretError(
                f"{self._path} cannot be made ({error.strerror})", hint="set IPYMCP_STATE_DIR to a folder of yours"
            ) from None
        return self._key


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"ipymcp key\0" + key).digest()[:_ID_BYTES]


T = TypeVar("T")
_SERVICE = "ipymcp"
_TIMEOUT = 10.0
_REAL = 1.0
"""The least priority of a backend that `keyring` itself recommends: plaintext files, null and fail are below it."""


class Keyring:
    """A keyring, called with patience.

    Args:
        backend: A `keyring.backend.KeyringBackend`.
        patience: Seconds to wait for it.
    """

    def __init__(self, backend: Any, patience: float = _TIMEOUT) -> None:
        self._backend = backend
        self._patience = patience

    @classmethod
    def find(cls) -> Keyring | None:
        """The user's keyring; None where there is none, or `IPYMCP_KEYRING=off`."""
        if os.environ.get("IPYMCP_KEYRING") == "off" or not is_installed("keyring"):
            return None
        try:
            backend = _within(_TIMEOUT, _real_backend)
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


Kind = Literal["secret", "input", "tokens", "registration"]


class StoredSecret(Struct, frozen=True):
    """One thing that is kept, without its value."""

    name: str
    place: str
    """`keyring`, `vault`, or `memory`: until the kernel ends."""
    changed: float
    """Seconds since 1970."""


class SecretStore:
    """What is kept. May be used from any thread but the loop's.

    Args:
        database: Knows what there is, and holds what no keyring does.
        vault: Encrypts that.
    """

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    @cached_property
    def _keyring(self) -> Keyring | None:

        return Keyring.find()

    def get(self, kind: Kind, name: str) -> str | None:
        """What is kept under a name.

        Raises:
            SecretError: It cannot be read: the vault's key is lost, the keyring does not answer.
        """
        rows = self._database.query("SELECT place, sealed FROM secrets WHERE kind = ? AND name = ?", (kind, name))
        if not rows:
            return None
        place, sealed = rows[0]
        if place == "memory":
            return sealed.decode()
        if place == "vault":
            return self._vault.open(_label(kind, name), sealed)
        if self._keyring is None:
            raise SecretError("it is in a keyring that cannot be found now", hint="set it anew")
        return self._keyring.get(_label(kind, name))

    def set(self, kind: Kind, name: str, value: str) -> StoredSecret:
        """Keep a value, in place of an older one.

        Raises:
            SecretError: It cannot be kept.
        """
        self._database.query("SELECT 1")  # it may turn out that nothing can be kept for long
        place, sealed = self._put(_label(kind, name), value)
        now = time.time()
        self._database.execute(
            "INSERT OR REPLACE INTO secrets VALUES (?, ?, ?, ?, ?)", (kind, name, place, sealed, now)
        )
        return StoredSecret(name, place if self._database.is_lasting else "memory", now)

    def delete(self, kind: Kind, name: str) -> bool:
        """Forget a value. Whether there was one; whether it could be read does not matter."""
        rows = self._database.query("SELECT place FROM secrets WHERE kind = ? AND name = ?", (kind, name))
        if not rows:
            return False
        if rows[0][0] == "keyring" and self._keyring is not None:
            self._keyring.delete(_label(kind, name))
        return self._database.execute("DELETE FROM secrets WHERE kind = ? AND name = ?", (kind, name)) > 0

    def check(self, kind: Kind, name: str) -> str:
        """Empty if what is kept under a name can be read, else why not."""
        try:
            self.get(kind, name)
        except SecretError as error:
            return error.message
        return ""

    def kept(self, kind: Kind) -> list[StoredSecret]:
        """What there is of a kind, what changed last first."""
        rows = self._database.query(
            "SELECT name, place, changed FROM secrets WHERE kind = ? ORDER BY changed DESC, rowid DESC", (kind,)
        )
        return [StoredSecret(*row) for row in rows]

    def _put(self, label: str, value: str) -> tuple[str, bytes | None]:
        if not self._database.is_lasting:
            return "memory", value.encode()
        if self._keyring is not None:
            with contextlib.suppress(SecretError):  # too long for some, or locked: the vault takes anything
                self._keyring.set(label, value)
                return "keyring", None
        return "vault", self._vault.seal(label, value)


def _label(kind: Kind, name: str) -> str:
    return f"{kind}:{name}"


class SecretSource(Protocol):
    """Gives secrets by name."""

    def get(self, name: str) -> str | None:
        """The secret; None where there is none of that name. May block: not on the loop.

        Raises:
            SecretError: There is one, and it cannot be read.
        """
        ...


class Secrets:
    """The user's secrets. A `SecretSource`.

    Args:
        safe: Where they are kept.
    """

    def __init__(self, safe: SecretStore) -> None:
        self._safe = safe

    def get(self, name: str) -> str | None:
        """The secret, masked from now on in all that ipymcp writes; None where there is none of that name.

        Raises:
            SecretError: There is one, and it cannot be read.
        """
        try:
            value = self._safe.get("secret", name)
        except SecretError as error:
            raise SecretError(f"the secret {name!r} cannot be read: {error.message}", hint=error.hint) from error
        masks.add(value)
        return value

    def set(self, name: str, value: str) -> StoredSecret:
        """Keep a secret, in place of an older one.

        Raises:
            SecretError: Its name is none, it is empty, or it cannot be kept.
        """
        if SECRET_NAME.fullmatch(name) is None:
            raise SecretError("that is no name for a secret", hint="use letters, digits, _, . and -")
        if not value:
            raise SecretError(
                f"the secret {name!r} would be empty; nothing was changed", hint=f"%mcp secret delete {quoted(name)}"
            )
        masks.add(value)
        return self._safe.set("secret", name, value)

    def delete(self, name: str) -> bool:
        """Forget a secret. Whether there was one."""
        return self._safe.delete("secret", name)

    def kept(self) -> list[StoredSecret]:
        """What there is, by name, without the values."""
        return sorted(self._safe.kept("secret"), key=lambda kept: kept.name)

    def check(self, name: str) -> str:
        """Empty if a secret can be read, else why not."""
        return self._safe.check("secret", name)


class StoredInput(Struct, frozen=True):
    """A password that is kept, without its value."""

    id: str
    server: str
    file: str
    kept: StoredSecret


class Inputs:
    """What was given. Blocking where a password is looked for, kept or forgotten: not on the loop.

    Args:
        safe: Keeps passwords.
    """

    def __init__(self, safe: SecretStore) -> None:
        self._safe = safe
        self._given: dict[tuple[str, str], str] = {}
        """By document and id: the servers of one document share them in this kernel."""
        self._kept: set[str] = set()
        """What need not be kept again."""

    def given(self, definition: ServerDefinition, name: str) -> str | None:
        """What was given in this kernel."""
        return self._given.get((str(definition.source), name))

    def give(self, definition: ServerDefinition, name: str, value: str) -> None:
        """It was given just now."""
        self._given[str(definition.source), name] = value
        if is_password(definition, name):
            masks.add(value)

    def recall(self, definition: ServerDefinition, name: str, digest: str) -> bool:
        """Have a password that was kept for this definition given. Whether there is one.

        Raises:
            SecretError: There is one, and it cannot be read.
        """
        key = _key(definition, name, digest)
        value = self._safe.get("input", key)
        if value is None:
            return False
        self._kept.add(key)
        self.give(definition, name, value)
        return True

    def keep(self, definition: ServerDefinition, name: str, digest: str) -> None:
        """Keep a password that was given, in place of what older definitions of that server have.

        Raises:
            SecretError: It cannot be kept.
        """
        value, key = self.given(definition, name), _key(definition, name, digest)
        if not value or key in self._kept:
            return
        for one in self.kept():
            if (one.id, one.server, one.file) == (name, definition.name, str(definition.source)):
                self._safe.delete("input", one.kept.name)
        self._safe.set("input", key, value)
        self._kept.add(key)

    def kept(self) -> list[StoredInput]:
        """The passwords that are kept, by id."""
        found: list[StoredInput] = []
        for kept in self._safe.kept("input"):
            name, server, file, _ = json.loads(kept.name)
            found.append(StoredInput(name, server, file, kept))
        return sorted(found, key=lambda one: (one.id, one.file, one.server))

    def forget(self, name: str) -> bool:
        """Forget what was given as this id, for every server. Whether there was anything."""
        given = [key for key in self._given if key[1] == name]
        for key in given:
            del self._given[key]
        kept = [one for one in self.kept() if one.id == name]
        for one in kept:
            self._safe.delete("input", one.kept.name)
            self._kept.discard(one.kept.name)
        return bool(given or kept)

    def check(self, one: StoredInput) -> str:
        """Empty if a password can be read, else why not."""
        return self._safe.check("input", one.kept.name)


def is_password(definition: ServerDefinition, name: str) -> bool:
    """Whether an input is to be hidden."""
    return definition.inputs[name].get("password") is True


def _key(definition: ServerDefinition, name: str, digest: str) -> str:
    return json.dumps([name, definition.name, str(definition.source), digest])

"""Secrets, input values and logins, in the operating system's keyring or encrypted in the database.

The encryption key is in a file beside the database that only the user may read (0600), created once even if several
kernels start together. A record names its key, so that a record whose key is lost is reported as unreadable.

Source: NIST SP 800-38D; 96-bit random nonces are safe for 2**32 records of one key.

A keyring may ask the user to unlock it, or hang (a desktop bus without a service): it is called in a thread, with a
timeout. The database lists all entries, because a keyring cannot. All of these functions block, so they must not be
called on an event loop.

Logins are OAuth registrations and tokens that all kernels of a user share: a `TokenStore` on top of `SecretStore`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import json
import os
import threading
import time
from concurrent.futures import Future
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from ipymcp.config.variables import SECRET_NAME
from ipymcp.errors import SecretError
from ipymcp.files import create_file, foreign, make_private, open_lock, try_lock
from ipymcp.import_guard import is_installed
from ipymcp.masking import mask, masks
from ipymcp.protocol.oauth.clients import Registration
from ipymcp.protocol.oauth.tokens import TokenKey, Tokens
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.storage.database import Database

# -- secrets -----------------------------------------------------------------------------------------------------------


_KEY_BYTES = 32
_NONCE_BYTES = 12
_ID_BYTES = 8
_OVERRIDE = "IPYMCP_ALLOW_SHARED_KEY"
_WRITE_TIMEOUT = 2.0
"""Seconds to wait for another kernel that has created the key file to write the key."""


class Vault:
    """Encryption of records with the key in a file.

    Args:
        path: The key file, created when the first record is sealed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: bytes | None = None

    def seal(self, name: str, value: str) -> bytes:
        """Encrypt a value, to be opened under the same name only.

        Raises:
            SecretError: The key cannot be read or created, or other users may read it.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._read_key()
        if key is None:
            try:
                create_file(self._path, os.urandom(_KEY_BYTES))  # unless another kernel just has
                self._key = key = self._read()
            except OSError as error:
                raise SecretError(
                    f"{self._path} cannot be created ({error.strerror})",
                    hint="set IPYMCP_STATE_DIR to a folder of yours",
                ) from None
        nonce = os.urandom(_NONCE_BYTES)
        return _key_id(key) + nonce + AESGCM(key).encrypt(nonce, value.encode(), name.encode())

    def open(self, name: str, sealed: bytes) -> str:
        """Decrypt a record.

        Raises:
            SecretError: The key is lost, or the record is damaged.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._read_key()
        if key is None or sealed[:_ID_BYTES] != _key_id(key):
            raise SecretError(
                f"the key it was encrypted with is not in {self._path}",
                hint="restore that file, or set it again",
            )
        nonce, text = sealed[_ID_BYTES:][:_NONCE_BYTES], sealed[_ID_BYTES + _NONCE_BYTES :]
        try:
            return AESGCM(key).decrypt(nonce, text, name.encode()).decode()
        except (InvalidTag, ValueError):
            raise SecretError("its record is damaged", hint="set it again") from None

    # -- the key file -------------------------------------------------------------------------------------------------

    def _read_key(self) -> bytes | None:
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
                f"{path} can be read by other users, and its file system does not allow changing that",
                hint=f"set IPYMCP_STATE_DIR to a folder of yours, or {_OVERRIDE}=1 to use it anyway",
            )
        deadline = time.monotonic() + _WRITE_TIMEOUT
        while len(key := path.read_bytes()) < _KEY_BYTES and time.monotonic() < deadline:
            time.sleep(0.01)  # another kernel is writing it, on a file system without links
        if len(key) != _KEY_BYTES:
            raise SecretError(f"{path} does not contain a key", hint="restore the right file, or remove it")
        return key


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"ipymcp key\0" + key).digest()[:_ID_BYTES]


T = TypeVar("T")
_SERVICE = "ipymcp"
_TIMEOUT = 10.0
_MIN_PRIORITY = 1.0
"""Minimum priority of the backends that `keyring` recommends; plaintext, null and fail backends are below it."""


class Keyring:
    """The operating system's keyring, called with a timeout.

    Args:
        backend: A `keyring.backend.KeyringBackend`.
        timeout: Seconds to wait for a response.
    """

    def __init__(self, backend: Any, timeout: float = _TIMEOUT) -> None:
        self._backend = backend
        self._timeout = timeout

    @classmethod
    def find(cls) -> Keyring | None:
        """Return the user's keyring; None if there is none, or with `IPYMCP_KEYRING=off`."""
        if os.environ.get("IPYMCP_KEYRING") == "off" or not is_installed("keyring"):
            return None
        try:
            backend = _call_with_timeout(_TIMEOUT, _real_backend)
        except Exception:  # any fault of a backend; the vault is used instead
            return None
        return cls(backend) if backend is not None else None

    @property
    def name(self) -> str:
        """Display name of the backend."""
        return str(getattr(self._backend, "name", type(self._backend).__name__))

    def get(self, name: str) -> str | None:
        """Return the value of a name.

        Raises:
            SecretError: The keyring fails or does not respond in time.
        """
        return self._call(lambda: self._backend.get_password(_SERVICE, name))

    def set(self, name: str, value: str) -> None:
        """Store a value. Raises the same errors as `get`."""
        self._call(lambda: self._backend.set_password(_SERVICE, name, value))

    def delete(self, name: str) -> None:
        """Delete a value, if there is one. Raises the same errors as `get`."""

        def delete() -> None:
            if self._backend.get_password(_SERVICE, name) is not None:
                self._backend.delete_password(_SERVICE, name)

        self._call(delete)

    def _call(self, function: Callable[[], T]) -> T:
        hint = "unlock it, or set IPYMCP_KEYRING=off before the kernel starts: ipymcp's own vault is used then"
        try:
            return _call_with_timeout(self._timeout, function)
        except TimeoutError:
            raise SecretError(f"{self.name} does not respond within {self._timeout:g} s", hint=hint) from None
        except Exception as error:
            raise SecretError(f"{self.name} fails ({type(error).__name__})", hint=hint) from error


def _call_with_timeout(seconds: float, function: Callable[[], T]) -> T:
    """Call a function in a new thread, which is abandoned after the timeout."""
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
    chained: list[Any] = list(getattr(backend, "backends", None) or [backend])  # a chainer has several
    strong = (each for each in chained if float(each.priority) >= _MIN_PRIORITY)
    return next((each for each in strong if "plaintext" not in repr(each).lower()), None)


Kind = Literal["secret", "input", "tokens", "registration"]


class StoredSecret(Struct, frozen=True):
    """A stored entry without its value."""

    name: str
    place: str
    """`keyring`, `vault`, or `memory`: until the kernel ends."""
    changed: float
    """Seconds since the epoch."""


class SecretStore:
    """Encrypted storage of values by kind and name. Usable from any thread except the event loop's.

    Args:
        database: Lists all entries, and contains those that are not in a keyring.
        vault: Encrypts the entries in the database.
    """

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    @cached_property
    def _keyring(self) -> Keyring | None:
        return Keyring.find()

    def get(self, kind: Kind, name: str) -> str | None:
        """Return the value of a name; None if there is none.

        Raises:
            SecretError: The value cannot be read: the vault's key is lost, or the keyring does not respond.
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
            raise SecretError("it is in a keyring that is not available now", hint="set it again")
        return self._keyring.get(_label(kind, name))

    def set(self, kind: Kind, name: str, value: str) -> StoredSecret:
        """Store a value, replacing an older one.

        Raises:
            SecretError: The value cannot be stored.
        """
        self._database.query("SELECT 1")  # opens the file, which determines whether the database is lasting
        place, sealed = self._put(_label(kind, name), value)
        now = time.time()
        self._database.execute(
            "INSERT OR REPLACE INTO secrets VALUES (?, ?, ?, ?, ?)", (kind, name, place, sealed, now)
        )
        return StoredSecret(name, place if self._database.is_lasting else "memory", now)

    def delete(self, kind: Kind, name: str) -> bool:
        """Delete a value, readable or not, and return whether there was one."""
        rows = self._database.query("SELECT place FROM secrets WHERE kind = ? AND name = ?", (kind, name))
        if not rows:
            return False
        if rows[0][0] == "keyring" and self._keyring is not None:
            self._keyring.delete(_label(kind, name))
        return self._database.execute("DELETE FROM secrets WHERE kind = ? AND name = ?", (kind, name)) > 0

    def check(self, kind: Kind, name: str) -> str:
        """Return why a stored value cannot be read; empty if it can."""
        try:
            self.get(kind, name)
        except SecretError as error:
            return error.message
        return ""

    def kept(self, kind: Kind) -> list[StoredSecret]:
        """Return the entries of a kind, latest first."""
        rows = self._database.query(
            "SELECT name, place, changed FROM secrets WHERE kind = ? ORDER BY changed DESC, rowid DESC", (kind,)
        )
        return [StoredSecret(*row) for row in rows]

    def _put(self, label: str, value: str) -> tuple[str, bytes | None]:
        if not self._database.is_lasting:
            return "memory", value.encode()
        if self._keyring is not None:
            with contextlib.suppress(SecretError):  # it is locked, or the value is too long: use the vault
                self._keyring.set(label, value)
                return "keyring", None
        return "vault", self._vault.seal(label, value)


def _label(kind: Kind, name: str) -> str:
    return f"{kind}:{name}"


class Secrets:
    """The user's secrets."""

    def __init__(self, store: SecretStore) -> None:
        self._store = store

    def get(self, name: str) -> str | None:
        """Return a secret, or None; all output of ipymcp masks it from now on.

        Raises:
            SecretError: The secret exists and cannot be read.
        """
        try:
            value = self._store.get("secret", name)
        except SecretError as error:
            raise SecretError(f"the secret {name!r} cannot be read: {error.message}", hint=error.hint) from error
        masks.add(value)
        return value

    def set(self, name: str, value: str) -> StoredSecret:
        """Store a secret, replacing an older one.

        Raises:
            SecretError: The name is invalid, the value is empty, or it cannot be stored.
        """
        if SECRET_NAME.fullmatch(name) is None:
            raise SecretError("this is not a valid name for a secret", hint="use letters, digits, _, . and -")
        if not value:
            raise SecretError(
                f"the secret {name!r} would be empty; nothing was changed", hint=f"%mcp secret delete {quoted(name)}"
            )
        masks.add(value)
        return self._store.set("secret", name, value)

    def delete(self, name: str) -> bool:
        """Delete a secret, and return whether there was one."""
        return self._store.delete("secret", name)

    def kept(self) -> list[StoredSecret]:
        """Return the stored secrets without their values, sorted by name."""
        return sorted(self._store.kept("secret"), key=lambda kept: kept.name)

    def check(self, name: str) -> str:
        """Return why a secret cannot be read; empty if it can."""
        return self._store.check("secret", name)


class StoredInput(Struct, frozen=True):
    """A stored password without its value."""

    id: str
    server: str
    file: str
    kept: StoredSecret


VARIABLE = "env:"
"""Prefix of the id under which the value of a variable is stored among the inputs."""


class Inputs:
    """Values of `${input:ID}`, and the user's values for variables `${NAME}` that are not set in the environment.

    Stored values are bound to the digest of the definition that uses them.
    """

    def __init__(self, store: SecretStore) -> None:
        self._store = store
        self._given: dict[tuple[str, str], str] = {}
        """Values by file and id: the servers of one file share them in this kernel."""
        self._kept: set[str] = set()
        """Keys of the passwords that are stored already."""

    def given(self, definition: ServerDefinition, name: str) -> str | None:
        """Return the value that the user gave in this kernel, or None."""
        return self._given.get((str(definition.source), name))

    def give(self, definition: ServerDefinition, name: str, value: str) -> None:
        """Use a value until this kernel ends."""
        self._given[str(definition.source), name] = value
        if definition.hides_input(name):
            masks.add(value)

    def recall(self, definition: ServerDefinition, name: str, digest: str) -> bool:
        """Use the password stored for a definition, and return whether there is one. Blocking.

        Raises:
            SecretError: The password exists and cannot be read.
        """
        key = _key(definition, name, digest)
        value = self._store.get("input", key)
        if value is None:
            return False
        self._kept.add(key)
        self.give(definition, name, value)
        return True

    def keep(self, definition: ServerDefinition, name: str, digest: str) -> None:
        """Store a password, replacing those of older definitions of the server. Blocking.

        Raises:
            SecretError: The password cannot be stored.
        """
        value, key = self.given(definition, name), _key(definition, name, digest)
        if value and key not in self._kept:
            self._replace(definition, name, digest, value)
            self._kept.add(key)

    def variable(self, definition: ServerDefinition, name: str, digest: str) -> str | None:
        """Return the value that the user set for an unset variable of a definition, or None. Blocking.

        Raises:
            SecretError: The value exists and cannot be read.
        """
        value = self._store.get("input", _key(definition, VARIABLE + name, digest))
        masks.add(value)
        return value

    def set_variable(self, definition: ServerDefinition, name: str, digest: str, value: str) -> None:
        """Store a value for an unset variable, for this definition only. Blocking.

        Raises:
            SecretError: The value cannot be stored.
        """
        masks.add(value)
        self._replace(definition, VARIABLE + name, digest, value)

    def _replace(self, definition: ServerDefinition, name: str, digest: str, value: str) -> None:
        """Store a value, and delete those of older definitions of the server."""
        for stored in self.kept():
            if (stored.id, stored.server, stored.file) == (name, definition.name, str(definition.source)):
                self._store.delete("input", stored.kept.name)
        self._store.set("input", _key(definition, name, digest), value)

    def kept(self) -> list[StoredInput]:
        """Return the stored passwords, sorted by id. Blocking."""
        inputs: list[StoredInput] = []
        for kept in self._store.kept("input"):
            name, server, file, _ = json.loads(kept.name)
            inputs.append(StoredInput(name, server, file, kept))
        return sorted(inputs, key=lambda stored: (stored.id, stored.file, stored.server))

    def forget(self, name: str) -> bool:
        """Delete the values of an id for every server, and return whether there were any. Blocking."""
        given = [key for key in self._given if key[1] == name]
        for key in given:
            del self._given[key]
        kept = [stored.kept.name for stored in self.kept() if stored.id == name]
        for key in kept:
            self._store.delete("input", key)
            self._kept.discard(key)
        return bool(given or kept)

    def check(self, stored: StoredInput) -> str:
        """Return why a password cannot be read; empty if it can. Blocking."""
        return self._store.check("input", stored.kept.name)


def _key(definition: ServerDefinition, name: str, digest: str) -> str:
    return json.dumps([name, definition.name, str(definition.source), digest])


# -- logins ------------------------------------------------------------------------------------------------------------


Login = TypeVar("Login", Registration, Tokens)
_REFRESH_TIMEOUT = 60.0
"""Seconds to wait for another kernel that refreshes the same tokens."""


class StoredTokens:
    """A `TokenStore` in the user's secret store. Unreadable entries count as absent.

    Args:
        store: The secret store.
        folder: Folder of the refresh locks.
        warn: Called with a message about a login that could not be stored and is lost when the kernel ends.
    """

    def __init__(self, store: SecretStore, folder: Path, warn: Callable[[str], None]) -> None:
        self._store = store
        self._folder = folder
        self._warn = warn

    async def registration(self, issuer: str, redirect_uri: str) -> Registration | None:
        """Return the client that is registered with an issuer for a redirect URI."""
        registration = await self._get("registration", _name(issuer, redirect_uri), Registration)
        mask.add_tokens(registration.client_secret if registration else None)
        return registration

    async def redirect_uris(self, issuer: str) -> tuple[str, ...]:
        """Return the redirect URIs of the clients registered with an issuer, newest first."""
        names = [json.loads(kept.name) for kept in await asyncio.to_thread(self._store.kept, "registration")]
        return tuple(uri for held, uri in names if held == issuer)

    async def keep_registration(self, issuer: str, redirect_uri: str, registration: Registration) -> None:
        """Store a client, replacing an older one."""
        mask.add_tokens(registration.client_secret)
        await self._set("registration", _name(issuer, redirect_uri), registration)

    async def forget_registration(self, issuer: str, redirect_uri: str) -> None:
        """Delete a client, if there is one."""
        await asyncio.to_thread(self._store.delete, "registration", _name(issuer, redirect_uri))

    async def find(self, definition: str) -> tuple[TokenKey, Tokens] | None:
        """Return the newest tokens of a server definition."""
        for kept in await asyncio.to_thread(self._store.kept, "tokens"):
            key = TokenKey(*json.loads(kept.name))
            tokens = await self.tokens(key) if key.definition == definition else None
            if tokens is not None:
                return key, tokens
        return None

    async def tokens(self, key: TokenKey) -> Tokens | None:
        """Return the tokens stored under a key."""
        return await self._get("tokens", _key_name(key), Tokens)

    async def keep_tokens(self, key: TokenKey, tokens: Tokens) -> None:
        """Store tokens, replacing older ones."""
        await self._set("tokens", _key_name(key), tokens)

    async def forget_tokens(self, key: TokenKey) -> None:
        """Delete tokens, if there are any."""
        await asyncio.to_thread(self._store.delete, "tokens", _key_name(key))

    def refreshing(self, key: TokenKey) -> AbstractAsyncContextManager[None]:
        """Return a lock for refreshing tokens, shared by all kernels of the user."""
        return process_lock(self._folder, _key_name(key), _REFRESH_TIMEOUT)

    async def _get(self, kind: Kind, name: str, struct: type[Login]) -> Login | None:
        try:
            text = await asyncio.to_thread(self._store.get, kind, name)
            return None if text is None else msgspec.json.decode(text, type=struct)
        except (SecretError, msgspec.MsgspecError):
            return None

    async def _set(self, kind: Kind, name: str, value: Registration | Tokens) -> None:
        try:
            await asyncio.to_thread(self._store.set, kind, name, msgspec.json.encode(value).decode())
        except SecretError as error:
            self._warn(f"this login is not stored: {error.message} ({error.hint})")


def _name(*parts: str) -> str:
    return json.dumps(parts)


def _key_name(key: TokenKey) -> str:
    return _name(key.issuer, key.resource, key.definition)


_POLL = 0.05


@contextlib.asynccontextmanager
async def process_lock(folder: Path, name: str, timeout: float) -> AsyncGenerator[None]:
    """Context manager for a lock between all processes and tasks that use a folder.

    The body runs without the lock after the timeout, or if the file system does not support locks.

    Args:
        folder: Folder of the lock file.
        name: Name of the lock.
        timeout: Seconds to wait for the lock.
    """
    descriptor = await asyncio.to_thread(_open_lock, folder, name)
    if descriptor is None:
        yield
        return
    try:
        deadline = time.monotonic() + timeout
        while not try_lock(descriptor) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)  # which unlocks it


def _open_lock(folder: Path, name: str) -> int | None:
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    try:
        return open_lock(path)
    except OSError:
        return None

"""OAuth registrations and tokens that all kernels of a user share: a `TokenStore` on top of `SecretStore`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ipymcp.errors import SecretError
from ipymcp.files import open_lock, try_lock
from ipymcp.masking import masks
from ipymcp.protocol.oauth.clients import Registration
from ipymcp.protocol.oauth.tokens import TokenKey, Tokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from ipymcp.storage.secrets import Kind, SecretStore


T = TypeVar("T", Registration, Tokens)
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
        found = await self._get("registration", _name(issuer, redirect_uri), Registration)
        masks.add(found.client_secret if found else None)
        return found

    async def redirect_uris(self, issuer: str) -> tuple[str, ...]:
        """Return the redirect URIs of the clients registered with an issuer, newest first."""
        names = [json.loads(kept.name) for kept in await asyncio.to_thread(self._store.kept, "registration")]
        return tuple(uri for held, uri in names if held == issuer)

    async def keep_registration(self, issuer: str, redirect_uri: str, registration: Registration) -> None:
        """Store a client, replacing an older one."""
        masks.add(registration.client_secret)
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

    async def _get(self, kind: Kind, name: str, struct: type[T]) -> T | None:
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

"""Encrypts what is kept: AES-256-GCM, a random nonce a record, the record's name bound to it as associated data.

The key lies in a file that only the user may read (0600), beside the database. However many kernels make it at once,
one is made. A record names its key, so that one whose key is lost is said to be unreadable, and is not touched.

Source: NIST SP 800-38D; 96-bit random nonces are safe for 2**32 records of one key.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from typing import TYPE_CHECKING

from ipymcp.errors import SecretError
from ipymcp.files import create_file
from ipymcp.state.private import foreign, make_private

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Vault"]

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

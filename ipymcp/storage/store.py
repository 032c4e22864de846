"""All that outlives the kernel, made when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.paths import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.storage.database import Database
    from ipymcp.storage.known_servers import KnownServers
    from ipymcp.storage.secrets import Inputs, Secrets, SecretStore
    from ipymcp.storage.tokens import StoredTokens


class Store:
    """The state of one host. Nothing is imported, opened or made before it is used.

    Args:
        warn: Told, in any thread, what cannot be kept.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn

    @cached_property
    def folder(self) -> Path:
        """Where it lies."""
        return Path(state_folder())

    @cached_property
    def database(self) -> Database:
        """The database that all kernels share."""
        from ipymcp.storage.database import Database

        return Database(self.folder / "state.db", self._warn)

    @cached_property
    def known(self) -> KnownServers:
        """The servers that were ever loaded, and their catalogs."""
        from ipymcp.storage.known_servers import KnownServers

        return KnownServers(self.database)

    @cached_property
    def safe(self) -> SecretStore:
        """Keeps what nobody else may read."""
        from ipymcp.storage.secrets import SecretStore, Vault

        return SecretStore(self.database, Vault(self.folder / "vault.key"))

    @cached_property
    def secrets(self) -> Secrets:
        """The user's secrets, by name."""
        from ipymcp.storage.secrets import Secrets

        return Secrets(self.safe)

    @cached_property
    def inputs(self) -> Inputs:
        """What the user was asked for."""
        from ipymcp.storage.secrets import Inputs

        return Inputs(self.safe)

    @cached_property
    def tokens(self) -> StoredTokens:
        """Logins."""
        from ipymcp.storage.tokens import StoredTokens

        return StoredTokens(self.safe, self.folder / "locks", self._warn)

    def close(self) -> None:
        """Write what was not written yet, and close the file. The next use opens it anew."""
        if "database" in self.__dict__:
            self.database.close()

"""The stored state of a host, created lazily."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.paths import state_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.storage.cached_results import CachedResults
    from ipymcp.storage.database import Database
    from ipymcp.storage.known_servers import KnownServers
    from ipymcp.storage.notebooks import NotebookMemory
    from ipymcp.storage.secrets import Inputs, Secrets, SecretStore, StoredTokens, Vault


class Store:
    """The stored state of one host. Nothing is imported, opened or created before its first use.

    Args:
        warn: Called, from any thread, with a message about data that cannot be stored.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn

    @cached_property
    def folder(self) -> Path:
        """The folder of the database and its key."""
        return Path(state_folder())

    @cached_property
    def database(self) -> Database:
        """The database that all kernels share."""
        from ipymcp.storage.database import Database

        return Database(self.folder / "state.db", self._warn)

    @cached_property
    def known(self) -> KnownServers:
        """Status and catalogs of all servers that were ever loaded."""
        from ipymcp.storage.known_servers import KnownServers

        return KnownServers(self.database)

    @cached_property
    def notebooks(self) -> NotebookMemory:
        """The servers and rules of each notebook."""
        from ipymcp.storage.notebooks import NotebookMemory

        return NotebookMemory(self.database, lambda: self.vault)

    @cached_property
    def cached_results(self) -> CachedResults:
        """Results of tools that only read, for maps."""
        from ipymcp.storage.cached_results import CachedResults

        return CachedResults(self.database)

    @cached_property
    def vault(self) -> Vault:
        """The encryption of what is secret in the database."""
        from ipymcp.storage.secrets import Vault

        return Vault(self.folder / "vault.key")

    @cached_property
    def secret_store(self) -> SecretStore:
        """The encrypted store of secrets, inputs and logins."""
        from ipymcp.storage.secrets import SecretStore

        return SecretStore(self.database, self.vault)

    @cached_property
    def secrets(self) -> Secrets:
        """The user's secrets, by name."""
        from ipymcp.storage.secrets import Secrets

        return Secrets(self.secret_store)

    @cached_property
    def inputs(self) -> Inputs:
        """The user's values of `${input:ID}` variables."""
        from ipymcp.storage.secrets import Inputs

        return Inputs(self.secret_store)

    @cached_property
    def tokens(self) -> StoredTokens:
        """OAuth registrations and tokens."""
        from ipymcp.storage.secrets import StoredTokens

        return StoredTokens(self.secret_store, self.folder / "locks", self._warn)

    def close(self) -> None:
        """Write pending changes and close the database. The next use reopens it."""
        if "database" in self.__dict__:
            self.database.close()

"""Which servers may run: those that the user typed, and those whose definition the user has seen and agreed to.

What was agreed to is remembered by the definition's digest. `IPYMCP_TRUST` speaks where nobody can be asked: `all`,
`none`, or digests (their first twelve characters will do), separated by commas.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from ipymcp.errors import TrustError
from ipymcp.policy.questions import Candidate, TrustAnswer, TrustQuestion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.state.db import Database

__all__ = ["VARIABLE", "Agreement", "Trust"]

VARIABLE = "IPYMCP_TRUST"
_SHORTEST = 12


class Agreement(Struct, frozen=True):
    """What the user agreed to, once."""

    digest: str
    server: str
    file: str
    secrets: frozenset[str]
    decided: float
    """Seconds since the epoch."""


class Trust:
    """What may run. All of it belongs to the background loop.

    Args:
        database: Keeps agreements.
        ask: Brings a question to the user; None comes back where nobody can be asked, or nobody answered.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        ask: Callable[[TrustQuestion], Awaitable[TrustAnswer | None]],
    ) -> None:
        self._database = database
        self._ask = ask
        self._here: dict[str, frozenset[str]] = {}
        """Digests that the user spoke for in a cell, and the secrets they may have."""

    # -- before servers are started -----------------------------------------------------------------------------------

    async def consider(
        self, definitions: Iterable[ServerDefinition], *, agreed: bool = False, again: bool = True
    ) -> None:
        """Ask about those that need it: one question a file. Whoever is not agreed to is refused by `require`.

        Args:
            definitions: What is about to be started.
            agreed: The user says so in the cell: all but their secrets.
            again: Ask about those, too, that the user has refused, or refused a secret.
        """
        files: dict[str, list[tuple[ServerDefinition, str]]] = {}
        for definition in definitions:
            if definition.source.scope not in ("project", "user"):
                continue
            digest = await asyncio.to_thread(definition.digest)
            if agreed:
                self._here.setdefault(digest, frozenset())
            if await self._missing(definition, digest) is not None and (again or not await self._is_known(digest)):
                files.setdefault(str(definition.source), []).append((definition, digest))
        for file, found in files.items():
            if _variable() != "none":
                await self._ask_about(file, found)

    async def vary(self, original: ServerDefinition, typed: ServerDefinition) -> None:
        """What may run may also run as the user has changed it in a cell."""
        try:
            granted = await self._granted(await self.require(original))
        except TrustError:
            return
        self._here[await asyncio.to_thread(typed.digest)] = granted or frozenset()

    async def require(self, definition: ServerDefinition) -> str:
        """Let a server be started that may be.

        Returns:
            Its definition's digest.

        Raises:
            TrustError: It may not.
        """
        digest = await asyncio.to_thread(definition.digest)
        if definition.source.scope in ("project", "user"):
            missing = await self._missing(definition, digest)
            if missing is not None:
                name = definition.name
                asks = f"%mcp start {name} asks; " if _variable() != "none" else ""
                hint = f"{asks}{VARIABLE}={digest[:_SHORTEST]} where nobody can be asked"
                raise TrustError(missing, server=name, hint=hint)
            if definition.source.scope == "user" and await self._is_first_seen(definition):
                await self.agree(definition, digest)
        return digest

    async def allows(self, definition: ServerDefinition) -> bool:
        """Whether a definition may run without a question."""
        if definition.source.scope not in ("project", "user"):
            return True
        return await self._missing(definition, await asyncio.to_thread(definition.digest)) is None

    async def _missing(self, definition: ServerDefinition, digest: str) -> str | None:
        """What a definition lacks to be run; None if nothing."""
        word = _variable()
        is_own = definition.source.scope == "user"
        if word == "all" or (word not in ("", "none") and _is_named(digest, word)):
            return None
        if is_own and await self._is_first_seen(definition):
            return None
        if word == "none" and not is_own:
            return f"needs your trust, and {VARIABLE} is none: {definition.source} belongs to a project"
        granted = await self._granted(digest)
        if granted is None:
            if await self._is_refused(digest):
                return f"you said that it may not run: {definition.source}"
            if is_own:
                return f"needs your trust: its entry in {definition.source} has changed"
            unnamed = f", and {VARIABLE} does not name it" if word else ""
            return f"needs your trust{unnamed}: {definition.source} belongs to a project"
        return None if is_own else _missing_secret(definition, granted)

    async def _granted(self, digest: str) -> frozenset[str] | None:
        """The secrets that a definition may have; None where it may not run."""
        known, here = await self.agreement(digest), self._here.get(digest)
        if known is None:
            return here
        return known.secrets | (here or frozenset())

    async def _is_first_seen(self, definition: ServerDefinition) -> bool:
        """Whether this entry of the user's own file was never seen before: then it is taken as it is."""
        rows = await self._database().aquery(
            "SELECT 1 FROM trust WHERE file = ? AND server = ? AND is_own LIMIT 1",
            (str(definition.source), definition.name),
        )
        return not rows

    async def _ask_about(self, file: str, found: Sequence[tuple[ServerDefinition, str]]) -> None:
        from ipymcp.config.dangers import dangers
        from ipymcp.config.trust import described, wanted_secrets

        is_own = found[0][0].source.scope == "user"
        candidates = [
            Candidate(
                definition.name,
                digest,
                tuple(described(definition)),
                tuple(dangers(definition)),
                () if is_own else wanted_secrets(definition),
                await self._granted(digest) is not None,
            )
            for definition, digest in found
        ]
        why = "is your own, and what it says of these has changed" if is_own else "belongs to a project"
        answer = await self._ask(TrustQuestion(file, why, tuple(candidates)))
        if answer is None:
            return
        for definition, digest in found:
            if definition.name not in answer.servers:
                if await self._granted(digest) is None:
                    await self._keep(definition, digest, may_run=False)
            else:
                secrets = [secret for server, secret in answer.secrets if server == definition.name]
                if digest in self._here and await self.agreement(digest) is None:
                    self._here[digest] = frozenset(secrets)
                else:
                    await self.agree(definition, digest, secrets)

    # -- what is remembered -------------------------------------------------------------------------------------------

    async def agree(self, definition: ServerDefinition, digest: str | None = None, secrets: Sequence[str] = ()) -> None:
        """Remember that a definition may run: the user has agreed to it, or has had us write it.

        Args:
            definition: What.
            digest: Its digest, where that is at hand.
            secrets: Those of its kept secrets that it may have.
        """
        digest = digest or await asyncio.to_thread(definition.digest)
        await self._keep(definition, digest, may_run=True, secrets=secrets)

    async def _keep(
        self, definition: ServerDefinition, digest: str, *, may_run: bool, secrets: Sequence[str] = ()
    ) -> None:
        is_own = definition.source.scope == "user"
        await self._database().aexecute(
            "INSERT OR REPLACE INTO trust (digest, server, file, is_own, may_run, secrets, decided)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                digest,
                definition.name,
                str(definition.source),
                is_own,
                may_run,
                json.dumps(sorted(secrets)),
                time.time(),
            ),
        )

    async def agreement(self, digest: str) -> Agreement | None:
        """What was agreed to of a definition."""
        return next(iter(await self._agreements("may_run AND digest = ?", digest)), None)

    async def agreements(self) -> list[Agreement]:
        """All that was agreed to, oldest first."""
        return await self._agreements("may_run")

    async def revoke(self, named: str | None) -> list[Agreement]:
        """Take back what was agreed to.

        Args:
            named: A server's name, a file, or a digest, of which twelve characters will do; None for all.

        Returns:
            What was taken back.
        """
        agreed = await self.agreements()
        gone = [
            one for one in agreed if named is None or named in (one.server, one.file) or _is_named(one.digest, named)
        ]
        for one in gone:
            self._here.pop(one.digest, None)
            await self._database().aexecute("UPDATE trust SET may_run = 0 WHERE digest = ?", (one.digest,))
        return gone

    async def _is_known(self, digest: str) -> bool:
        """Whether the user has been asked about a definition."""
        return bool(await self._database().aquery("SELECT 1 FROM trust WHERE digest = ?", (digest,)))

    async def _is_refused(self, digest: str) -> bool:
        """Whether the user has said that a definition may not run, or has taken back that it may."""
        return bool(await self._database().aquery("SELECT 1 FROM trust WHERE digest = ? AND NOT may_run", (digest,)))

    async def _agreements(self, condition: str, *values: str) -> list[Agreement]:
        rows = await self._database().aquery(
            f"SELECT digest, server, file, secrets, decided FROM trust WHERE {condition} ORDER BY decided", values
        )
        return [
            Agreement(digest, server, file, frozenset(json.loads(secrets)), decided)
            for digest, server, file, secrets, decided in rows
        ]


def _missing_secret(definition: ServerDefinition, granted: frozenset[str]) -> str | None:
    from ipymcp.config.trust import wanted_secrets

    missing = next((name for name in wanted_secrets(definition) if name not in granted), None)
    return None if missing is None else f"needs your consent to be given your secret {missing!r}"


def _variable() -> str:
    """What `IPYMCP_TRUST` says: `all`, `none`, digests, or nothing."""
    return os.environ.get(VARIABLE, "").strip().lower()


def _is_named(digest: str, words: str) -> bool:
    """Whether a digest, or enough of its beginning, is among words separated by commas."""
    found = (word.strip() for word in words.lower().split(","))
    return any(len(word) >= _SHORTEST and digest.startswith(word) for word in found)

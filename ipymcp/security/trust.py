"""Trust in server definitions: only those that the user typed, or has seen and agreed to, may run.

An agreement comes from the answer to a question that showed the definition, or from the user typing the definition;
reading, editing, importing or renaming a definition grants nothing. Agreements are stored by the definition's digest.
`IPYMCP_TRUST` (`all`, `none`, or comma-separated whole digests) replaces the question where no one can be asked; it is
never stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from ipymcp.config.definition import Source
from ipymcp.errors import TrustError, doing
from ipymcp.interaction.questions import Candidate, TrustAnswer, TrustQuestion
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from ipymcp.config.binding import Disk
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.storage.database import Database

# -- digests -----------------------------------------------------------------------------------------------------------


def digest_of(definition: ServerDefinition, disk: Disk | None = None) -> str:
    """Return the SHA-256, in hex, over everything that decides what a server runs and with which rights.

    Limits and switches are left out; compare definitions where they matter. The digest of a project's definition also
    covers its name, whether that name shadows one of the user's servers, its rights, and the contents of its files.

    Args:
        definition: The server's definition.
        disk: The cache of file contents to share between several digests.
    """
    import hashlib

    decides: dict[str, Any] = {
        "command": definition.command,
        "args": definition.args,
        "env": dict(definition.env),
        "env_file": definition.env_file,
        "cwd": definition.cwd,
        "folder": definition.source.folder,
        "url": definition.url,
        "headers": dict(definition.headers),
        "auth": dict(definition.auth),
        "transport": definition.transport,
        "auto_approve": definition.auto_approve,
        "inherit_env": inherited if isinstance(inherited := definition.inherit_env, bool) else sorted(inherited),
        "inputs": {name: dict(described) for name, described in definition.inputs.items()},
    }
    if definition.source.scope == "project":
        from ipymcp.config.binding import Disk, binding  # its patterns are compiled for projects only

        disk = disk or Disk()
        hints = [[pattern, dict(hint)] for pattern, hint in definition.hints.items()]
        decides["rights"] = [list(definition.tools.items()), definition.read_only, hints]
        with doing(f"reading the files of {definition.name}"):
            bound = binding(definition, disk)
            decides["files"] = {str(path): disk.content(path, is_large=path in bound.large) for path in bound.files}
        decides["name"] = [definition.name, bool(definition.source.shadows)]
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digests(definitions: Iterable[ServerDefinition]) -> list[str]:
    """Return the digest of each definition, reading each project file once."""
    listed = list(definitions)
    if all(definition.source.scope != "project" for definition in listed):
        return [digest_of(definition) for definition in listed]
    from ipymcp.config import binding

    disk = binding.Disk()
    return [digest_of(definition, disk) for definition in listed]


# -- trust -------------------------------------------------------------------------------------------------------------


VARIABLE = "IPYMCP_TRUST"
MAX_SERVERS = 100
"""Servers in one question."""
MAX_LINES = 200
"""Screen lines in one question, each of at most `_WIDTH` characters."""
_WIDTH = 120
_MIN_LINES = 2
"""Number of lines of the shortest description of a server."""
_MIN_LENGTH = 12
"""Minimum number of characters of an abbreviated digest."""
_MAX_NAMED = 5
_SEEN = "seen"
"""Prefix of the key of a row for an entry of the user's own file that was written without an agreement."""


class Agreement(Struct, frozen=True):
    """A stored agreement of the user to a definition."""

    digest: str
    server: str
    file: str
    secrets: frozenset[str]
    decided: float
    """Seconds since the epoch."""
    bound: str = ""
    """The files that the agreement is bound to, as text; empty for none, and in agreements of older versions."""


class Grant(Struct, frozen=True):
    """Permission for a definition to run and to get some secrets."""

    secrets: frozenset[str] = frozenset()
    is_lasting: bool = True
    """Whether the permission is stored, rather than limited to this kernel."""
    digest: str = ""
    """The digest that the user has agreed to; empty for a definition that the user typed or edits."""


class ImportAnswer(Struct, frozen=True):
    """The user's answer about servers to import, by name. Servers that `IPYMCP_TRUST` allows are in neither field."""

    granted: Mapping[str, Grant]
    refused: Mapping[str, str]
    """The reason for each refusal."""


class Trust:
    """The definitions that may run. Use only on the background loop.

    Args:
        database: Returns the database that stores agreements.
        ask: Asks the user; returns None if no one can be asked, or no one answered.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        ask: Callable[[TrustQuestion], Awaitable[TrustAnswer | None]],
    ) -> None:
        self._database = database
        self._ask = ask
        self._session_grants: dict[str, frozenset[str]] = {}
        """The digests that the user has allowed for this kernel, with the secrets they may get."""
        self._trials: list[Grant] = []
        """The permissions of running trials, which are never stored."""
        self._too_long: dict[str, int] = {}
        """Digests of definitions too long for a question, with their number of lines."""
        self._batch: tuple[list[ServerDefinition], asyncio.Task[list[str]]] | None = None
        """Definitions waiting for their digest, and the task that computes all of them."""

    async def digest(self, definition: ServerDefinition) -> str:
        """Compute the current digest of a definition; concurrent calls are batched, so that files are read once."""
        if self._batch is None or self._batch[1].done():  # a task is done here if its loop has ended
            batch: list[ServerDefinition] = []
            self._batch = batch, asyncio.ensure_future(self._digest_all(batch))
        definitions, task = self._batch
        index = len(definitions)
        definitions.append(definition)
        return (await asyncio.shield(task))[index]

    async def _digest_all(self, definitions: list[ServerDefinition]) -> list[str]:
        self._batch = None  # later calls start a new batch
        return await asyncio.to_thread(digests, definitions)

    # -- before servers are started -----------------------------------------------------------------------------------

    async def ask_if_needed(
        self, definitions: Iterable[ServerDefinition], *, agreed: bool = False, again: bool = True
    ) -> None:
        """Ask about the definitions that need an agreement, one question per file.

        Definitions that get no agreement are refused later, by `require`.

        Args:
            definitions: The servers about to be started.
            agreed: Allow all of them, without their secrets, because the user has agreed in the cell.
            again: Also ask about definitions that the user has refused, or refused a secret.
        """
        configured = [each for each in definitions if each.source.scope in ("project", "user")]
        current = await asyncio.gather(*map(self.digest, configured))
        rows = await self._database().aquery("SELECT digest FROM trust") if configured else []
        stored = {str(digest) for [digest] in rows}
        files: dict[str, list[tuple[ServerDefinition, str]]] = {}
        for definition, digest in zip(configured, current, strict=True):
            if agreed:
                self._session_grants.setdefault(digest, frozenset())
            if (again or digest not in stored) and await self._refusal(definition, digest, stored) is not None:
                files.setdefault(str(definition.source), []).append((definition, digest))
        for file, servers in files.items():
            if _variable() != "none":
                await self._ask_about(file, servers)

    async def allow_variant(self, original: ServerDefinition, typed: ServerDefinition) -> None:
        """Allow the variant of a definition that the user typed in a cell, if the original may run."""
        try:
            granted = await self._granted(await self.require(original))
        except TrustError:
            return
        self._session_grants[await self.digest(typed)] = granted or frozenset()

    async def require(self, definition: ServerDefinition) -> str:
        """Check that a definition may run, and return its digest.

        Raises:
            TrustError: The definition may not run.
        """
        digest = await self.digest(definition)
        if definition.source.scope in ("project", "user"):
            refusal = await self._refusal(definition, digest)
            if refusal is not None:
                raise TrustError(refusal, server=definition.name, hint=self._hint(definition.name, digest))
            is_trial = any(trial.digest == digest for trial in self._trials)
            if definition.source.scope == "user" and not is_trial and await self._is_first_seen(definition):
                await self._store(definition, digest, may_run=True)
        return digest

    def _hint(self, name: str, digest: str) -> str:
        if digest in self._too_long:
            return f"make it shorter, or allow it unseen: %mcp load {quoted(name)} --trust"
        asks = f"%mcp start {quoted(name)} asks for it, or " if _variable() != "none" else ""
        return f"{asks}{_by_variable(digest)}"

    async def allows(self, definition: ServerDefinition) -> bool:
        """Whether a definition may run without a question."""
        if definition.source.scope not in ("project", "user"):
            return True
        return await self._refusal(definition, await self.digest(definition)) is None

    async def _refusal(
        self, definition: ServerDefinition, digest: str, stored: AbstractSet[str] | None = None
    ) -> str | None:
        """Return the reason why a definition may not run, or None.

        Args:
            definition: The definition.
            digest: Its digest.
            stored: All stored digests, if the caller has them.
        """
        word = _variable()
        is_own = definition.source.scope == "user"
        if _is_trusted_by_variable(digest):
            return None
        if is_own and await self._is_first_seen(definition):
            return None
        if word == "none" and not is_own:
            return f"needs your trust, and {VARIABLE} is none: {definition.source} belongs to a project"
        is_new = stored is not None and digest not in stored
        granted = self._granted_in_session(digest) if is_new else await self._granted(digest)
        if granted is None:
            refused = "SELECT 1 FROM trust WHERE digest = ? AND NOT may_run"  # or the agreement was revoked
            if not is_new and await self._database().aquery(refused, (digest,)):
                return f"you did not trust this server: {definition.source}"
            if digest in self._too_long:
                return f"is too long to be shown ({self._too_long[digest]:,} lines): {definition.source}"
            if is_own:
                return f"needs your trust: its entry in {definition.source} has changed"
            how = "by its whole hash" if _is_abbreviated(digest, word) else ""
            unnamed = f", and {VARIABLE} does not name it {how}".rstrip() if word else ""
            return f"needs your trust{unnamed}: {definition.source} belongs to a project"
        if is_own:
            return None
        from ipymcp.config.redaction import wanted_secrets

        missing = next((name for name in wanted_secrets(definition) if name not in granted), None)
        return None if missing is None else f"needs your consent to be given your secret {missing!r}"

    async def _granted(self, digest: str) -> frozenset[str] | None:
        """Return the secrets that a definition may get; None if it may not run."""
        agreement, granted = await self.agreement(digest), self._granted_in_session(digest)
        if agreement is None:
            return granted
        return agreement.secrets | (granted or frozenset())

    def _granted_in_session(self, digest: str) -> frozenset[str] | None:
        """Return the secrets that a definition may get in this kernel only; None if this kernel allows nothing."""
        grants = [trial.secrets for trial in self._trials if trial.digest == digest]
        grants += [self._session_grants[digest]] if digest in self._session_grants else []
        return frozenset[str]().union(*grants) if grants else None

    async def _is_first_seen(self, definition: ServerDefinition) -> bool:
        """Whether this server of the user's own file is unknown so far; such a server needs no agreement."""
        rows = await self._database().aquery(
            "SELECT 1 FROM trust WHERE file = ? AND server = ? AND is_own LIMIT 1",
            (_storable(str(definition.source)), definition.name),
        )
        return not rows

    async def _ask_about(self, file: str, servers: Sequence[tuple[ServerDefinition, str]]) -> None:
        is_own = servers[0][0].source.scope == "user"
        reason = "is your own, and its entries for these servers have changed" if is_own else "belongs to a project"
        answered = await self._ask_in_one_question(file, reason, servers, is_strangers=not is_own)
        for definition, digest, secrets in answered:
            if secrets is None:
                if await self._granted(digest) is None:
                    await self._store(definition, digest, may_run=False)
            elif digest in self._session_grants and await self.agreement(digest) is None:
                self._session_grants[digest] = secrets
            else:
                await self._store(definition, digest, may_run=True, secrets=secrets)

    async def ask_about_import(self, file: str, target: str, definitions: Sequence[ServerDefinition]) -> ImportAnswer:
        """Ask whether servers of one file may be written into another and run from there.

        A server that is refused one of its secrets is refused: the user's own file would give it the secret.

        Args:
            file: The file to import from.
            target: The file to write.
            definitions: The servers as the target will define them.

        Raises:
            TrustError: No one could be asked.
        """
        from ipymcp.config.redaction import wanted_secrets

        current = await asyncio.gather(*map(self.digest, definitions))
        pairs = zip(definitions, current, strict=True)
        servers = [(definition, digest) for definition, digest in pairs if not _is_trusted_by_variable(digest)]
        answered = []
        if servers and _variable() != "none":
            reason = f"is to be imported into {target}"
            answered = await self._ask_in_one_question(file, reason, servers, is_strangers=True)
        if servers and not answered and self._too_long.keys().isdisjoint(current):
            first, digest = servers[0]
            message = f"not imported from {file}: no one could be asked whether it may run"
            raise TrustError(message, server=first.name, hint=_by_variable(digest))
        refused = {definition.name: "it was not shown, so you have not agreed to it" for definition, _ in servers}
        granted: dict[str, Grant] = {}
        for definition, _, secrets in answered:
            missing = sorted(frozenset(wanted_secrets(definition)) - (secrets or frozenset()))
            if secrets is None:
                refused[definition.name] = "you did not agree to it"
            elif missing:
                refused[definition.name] = f"you did not give it your secret {missing[0]}"
            else:
                del refused[definition.name]
                granted[definition.name] = Grant(secrets)
        return ImportAnswer(granted, refused)

    async def ask_about_addition(
        self, origin: str, target: str, definition: ServerDefinition, folder: str = ""
    ) -> Grant | None:
        """Ask whether a server of a registry may run. It gets the secrets that the user has just entered for it.

        Args:
            origin: The server, its version and its registry.
            target: The file that will define the server, or the notebook.
            definition: The server as it will be defined.
            folder: The notebook's folder if the server will run there: files there may decide what runs.

        Returns:
            The permission; None if the user refuses.

        Raises:
            TrustError: No one could be asked.
        """
        from ipymcp.config.redaction import wanted_secrets

        digest, secrets = await self.digest(definition), frozenset(wanted_secrets(definition))
        if _is_trusted_by_variable(digest):
            return Grant(secrets, is_lasting=False, digest=digest)
        answered: list[tuple[ServerDefinition, str, frozenset[str] | None]] = []
        if _variable() != "none":
            servers = [(definition, digest)]
            reason = f"is to be added to {target}"
            answered = await self._ask_in_one_question(
                origin, reason, servers, is_strangers=True, gives_secrets=True, folder=folder
            )
        if not answered:
            message = "not added: no one could be asked whether it may run"
            hint = _by_variable(digest)
            raise TrustError(message, server=definition.name, hint=hint)
        return None if answered[0][2] is None else Grant(secrets, digest=digest)

    async def try_out(self, grant: Grant, definition: ServerDefinition) -> Grant:
        """Allow a definition to run until `end_trial` is called with the returned permission.

        Raises:
            TrustError: The grant is for another definition, or files of this one have changed since.
        """
        trial = structs.replace(grant, digest=await self.agreed_digest(grant, definition))
        self._trials.append(trial)
        return trial

    def end_trial(self, trial: Grant) -> None:
        """Withdraw the permission that `try_out` has returned."""
        self._trials.remove(trial)

    async def agreed_digest(self, grant: Grant, definition: ServerDefinition) -> str:
        """Return the digest of a definition.

        Raises:
            TrustError: The grant is for another digest.
        """
        digest = await self.digest(definition)
        if grant.digest and grant.digest != digest:
            hint = "add it again, and review it once more"
            raise TrustError("has changed since you agreed to it", server=definition.name, hint=hint)
        return digest

    async def _ask_in_one_question(
        self,
        file: str,
        reason: str,
        servers: Sequence[tuple[ServerDefinition, str]],
        *,
        is_strangers: bool,
        gives_secrets: bool = False,
        folder: str = "",
    ) -> list[tuple[ServerDefinition, str, frozenset[str] | None]]:
        """Ask about definitions; those that do not fit into the question are not shown, and so get no agreement.

        Args:
            file: The file of the definitions, or their origin.
            reason: The reason for the question, which follows the name of the file.
            servers: The definitions and their digests.
            is_strangers: Whether the definitions are not the user's own; their text is not masked then, and the user
                decides about each secret.
            gives_secrets: Whether the user has already entered the secrets of these servers.
            folder: The notebook's folder if the servers will run there.

        Returns:
            The definitions that were shown, each with the secrets it may get, or None if it may not run. The list is
            empty if no one answered.
        """
        shown: list[tuple[ServerDefinition, str, Candidate]] = []
        left_out: list[str] = []
        free = MAX_LINES
        for definition, digest in servers:
            room = MAX_LINES if len(shown) < MAX_SERVERS and free >= _MIN_LINES else 0
            candidate, size = await self._candidate(definition, digest, is_strangers, room, folder)
            if room and size > MAX_LINES:
                self._too_long[digest] = size
            if candidate is None or size > free:
                left_out.append(definition.name)
                continue
            free -= size
            candidate = structs.replace(candidate, secrets=()) if gives_secrets else candidate
            shown.append((definition, digest, candidate))
        if not shown:
            return []
        candidates = tuple(candidate for _, _, candidate in shown)
        remote = sum(definition.command is None for definition, _, _ in shown)
        left_out_note = _left_out_note(left_out)
        answer = await self._ask(TrustQuestion(file, reason, candidates, remote, left_out_note, is_strangers))
        if answer is None:
            return []
        return [
            (
                definition,
                digest,
                frozenset(secret for server, secret in answer.secrets if server == definition.name)
                & frozenset(candidate.secrets)
                if definition.name in answer.servers
                else None,
            )
            for definition, digest, candidate in shown
        ]

    async def _candidate(
        self, definition: ServerDefinition, digest: str, is_strangers: bool, room: int, folder: str
    ) -> tuple[Candidate | None, int]:
        """Return a definition as the question shows it and its number of lines; None if it has more than `room` lines.

        With a `folder`, the dangers are those of a server that belongs to a project in that folder.
        """
        if not room:
            return None, 0
        from ipymcp.config.dangers import dangers
        from ipymcp.config.redaction import described, wanted_secrets

        description = await asyncio.to_thread(described, definition, masks=not is_strangers)
        size = _screen_lines([description.summary, *description.lines])
        if size > room:
            return None, size
        judged = definition.replace(source=Source(scope="project", folder=folder)) if folder else definition
        warnings = await asyncio.to_thread(dangers, judged, masks=not is_strangers)
        secrets = wanted_secrets(definition) if is_strangers else ()
        is_agreed = await self._granted(digest) is not None
        candidate = Candidate(
            definition.name, description.summary, description.lines, tuple(warnings), secrets, is_agreed
        )
        return candidate, size + _screen_lines(warnings) + len(secrets)

    # -- stored agreements --------------------------------------------------------------------------------------------

    async def agree_to_typed(self, definition: ServerDefinition) -> None:
        """Store an agreement, without secrets, to a definition that the user typed to be written to a file."""
        await self._store(definition, await self.digest(definition), may_run=True)

    async def grant(self, definition: ServerDefinition) -> Grant | None:
        """Return the user's agreement to a definition, or None. `IPYMCP_TRUST` is not an agreement."""
        digest = await self.digest(definition)
        agreement = await self.agreement(digest)
        if agreement is not None:
            return Grant(agreement.secrets)
        if definition.source.scope == "user" and await self._is_first_seen(definition):
            return Grant()
        granted = self._session_grants.get(digest)
        return None if granted is None else Grant(granted, is_lasting=False)

    async def carry_over(self, grant: Grant | None, definition: ServerDefinition) -> None:
        """Transfer an agreement to the definition as the user has edited it, limited to the secrets it still uses.

        Another kernel will ask about an entry of the user's own file that gets no stored agreement here.

        Args:
            grant: The result of `grant` before the edit; None transfers nothing.
            definition: The edited definition.

        Raises:
            TrustError: The grant is for another definition, or files of this one have changed since.
        """
        from ipymcp.config.redaction import wanted_secrets

        digest = await self.digest(definition) if grant is None else await self.agreed_digest(grant, definition)
        if grant is not None and grant.is_lasting:
            secrets = grant.secrets & frozenset(wanted_secrets(definition))
            await self._store(definition, digest, may_run=True, secrets=secrets)
            return
        if definition.source.scope == "user" and await self._is_first_seen(definition):
            await self._store(definition, f"{_SEEN} {definition.source} {definition.name}", may_run=False)
        if grant is not None:
            self._session_grants[digest] = grant.secrets & frozenset(wanted_secrets(definition))

    async def _store(
        self, definition: ServerDefinition, digest: str, *, may_run: bool, secrets: Iterable[str] = ()
    ) -> None:
        from ipymcp.config.redaction import NOTHING, bound_to

        is_own = definition.source.scope == "user"
        bound = await asyncio.to_thread(bound_to, definition) if may_run else ""
        await self._database().aexecute(
            "INSERT OR REPLACE INTO trust (digest, server, file, is_own, may_run, secrets, decided, bound)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                digest,
                definition.name,
                _storable(str(definition.source)),
                is_own,
                may_run,
                json.dumps(sorted(secrets)),
                time.time(),
                "" if bound == NOTHING else _storable(bound),
            ),
        )

    async def agreement(self, digest: str) -> Agreement | None:
        """Return the stored agreement of a digest, or None."""
        return next(iter(await self._agreements("may_run AND digest = ?", digest)), None)

    async def agreements(self) -> list[Agreement]:
        """Return all stored agreements, oldest first."""
        return await self._agreements("may_run")

    async def revoke(self, named: str | None) -> list[Agreement]:
        """Revoke agreements and return them.

        Args:
            named: A server's name, a file, or at least the first twelve characters of a digest; None for all.
        """
        agreed = await self.agreements()
        revoked = [
            each
            for each in agreed
            if named is None or named in (each.server, each.file) or _is_abbreviated(each.digest, named)
        ]
        for agreement in revoked:
            self._session_grants.pop(agreement.digest, None)
            await self._database().aexecute("UPDATE trust SET may_run = 0 WHERE digest = ?", (agreement.digest,))
        return revoked

    async def _agreements(self, condition: str, *values: str) -> list[Agreement]:
        rows = await self._database().aquery(
            f"SELECT digest, server, file, secrets, decided, bound FROM trust WHERE {condition} ORDER BY decided",
            values,
        )
        return [
            Agreement(digest, server, file, frozenset(json.loads(secrets)), decided, bound)
            for digest, server, file, secrets, decided, bound in rows
        ]


def _by_variable(digest: str) -> str:
    """The part of a hint that names the variable which takes the place of an agreement."""
    return f"set {VARIABLE}={digest} where no one can be asked"


def _variable() -> str:
    return os.environ.get(VARIABLE, "").strip().lower()


def _is_trusted_by_variable(digest: str) -> bool:
    words = [word.strip() for word in _variable().split(",")]
    return words == ["all"] or digest in words


def _is_abbreviated(digest: str, words: str) -> bool:
    """Whether a digest, or a long enough prefix of it, is among comma-separated words."""
    stripped = (word.strip() for word in words.lower().split(","))
    return any(len(word) >= _MIN_LENGTH and digest.startswith(word) for word in stripped)


def _screen_lines(lines: Iterable[str]) -> int:
    """Return the number of screen lines that some lines take."""
    return sum(1 + len(line) // _WIDTH for line in lines)


def _left_out_note(names: Sequence[str]) -> str:
    """Return the note about servers that do not fit into the question."""
    if not names:
        return ""
    more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
    does, are = ("does", "is") if len(names) == 1 else ("do", "are")
    listed = f"{', '.join(names[:_MAX_NAMED])}{more}"
    return f"{listed} {does} not fit here, and {are} not agreed to: %mcp load NAME asks about one"


def _storable(text: str) -> str:
    """Escape lone surrogates, which the database does not accept."""
    return text.encode("utf-8", "backslashreplace").decode()

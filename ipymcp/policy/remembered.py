"""What was answered "always" and "never", for all of the user's kernels."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from ipymcp.policy.rules import WHOSE, Rule

if TYPE_CHECKING:
    from ipymcp.policy.rules import Caller, Decision
    from ipymcp.state.db import Database

__all__ = ["Remembered"]

_DECISIONS: dict[str, Decision] = {"allow": "allow", "ask": "ask", "deny": "deny"}


class Remembered:
    """The rules that outlive the kernel.

    Args:
        database: Where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rules(self) -> tuple[Rule, ...]:
        """All of them, oldest first."""
        sql = "SELECT digest, pattern, decision, server, caller FROM approvals ORDER BY id"
        rows = await self._database.aquery(sql)
        return tuple(_rule(one, glob, _DECISIONS.get(said, "ask"), name, who) for one, glob, said, name, who in rows)

    async def keep(
        self, digest: str, pattern: str, decision: Decision, server: str = "", caller: Caller | Literal[""] = ""
    ) -> Rule:
        """Remember one, instead of what was remembered for the same pattern; it is the newest now.

        Args:
            digest: Of the definition whose tools it is about; empty for those of any.
            pattern: As a `Rule`'s.
            decision: What it decides.
            server: The server's name, for people.
            caller: Whose calls it is about; empty for everybody's.

        Returns:
            It, as `rules` has it.
        """
        await self._database.aexecute(
            "INSERT OR REPLACE INTO approvals (digest, pattern, decision, server, caller, decided)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (digest, pattern, decision, server, caller, time.time()),
        )
        return _rule(digest, pattern, decision, server, caller)

    async def forget(self) -> None:
        """Forget all of them."""
        await self._database.aexecute("DELETE FROM approvals")


def _rule(digest: str, pattern: str, decision: Decision, server: str, caller: Caller | Literal[""]) -> Rule:
    origin = ", ".join(filter(None, [WHOSE.get(caller, ""), "always", server and f"for {server}"]))
    return Rule(pattern, decision, origin, digest, caller)

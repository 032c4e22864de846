"""What the owner of a client hears of its server."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Listener"]


class Listener(Protocol):
    """What the client's owner hears. Called on the loop thread; must not block."""

    def tools_changed(self) -> None:
        """The server's list of tools is not what it was."""
        ...

    def resources_changed(self) -> None:
        """Nor are its lists of resources and templates."""
        ...

    def prompts_changed(self) -> None:
        """Nor is its list of prompts."""
        ...

    def resource_updated(self, uri: str) -> None:
        """A resource has changed that was subscribed to."""
        ...

    def subscriptions_lost(self) -> None:
        """Handshake era: the server, which had forgotten the session, knows of none any more."""
        ...

    def log(self, level: str, text: str) -> None:
        """A log message of the server, with its MCP level."""
        ...

    def noise(self, text: str) -> None:
        """Something the server should not have sent."""
        ...

    def stderr(self, lines: list[str]) -> None:
        """Lines from the server's standard error."""
        ...

    def lost(self, reason: str) -> None:
        """The connection ended without our asking."""
        ...

    def unreachable(self, reason: str) -> None:
        """HTTP: no connection could be made just now; the next request tries again."""
        ...

    def wants_handshake(self, reason: str) -> None:
        """It asks something of us on a stateless connection: the session is to be opened anew by the handshake."""
        ...

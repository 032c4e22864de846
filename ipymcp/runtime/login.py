"""The user of one session, who logs in where its server asks for that."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from ipymcp.errors import AuthError
from ipymcp.runtime.interaction import LoginQuestion
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.protocol.oauth.settings import LoginRequest
    from ipymcp.protocol.transports.addresses import Zone
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Services

__all__ = ["SessionUser", "fetch"]


class SessionUser:
    """A `LoginUser` who is asked over the desk. The session needs a login meanwhile, and all of its clocks stand still.

    Args:
        session: Whose server asks.
        services: The host's.
    """

    def __init__(self, session: ServerSession, services: Services) -> None:
        self._session = session
        self._services = services

    async def login(self, request: LoginRequest) -> str:
        """Show where to log in, and wait for the browser to come back, or for the address it ended at."""
        async with self._session.logging_in(request.domain):
            redirected = threading.Event()
            arriving = asyncio.ensure_future(request.redirect.received()) if request.redirect is not None else None
            if arriving is not None:
                arriving.add_done_callback(lambda _: redirected.set())
            question = LoginQuestion(
                self._session.name,
                request.url,
                request.domain,
                request.scopes,
                redirected if arriving is not None else None,
                site=request.site,
                answer_to=request.answer_to,
                gives_secret=request.gives_secret,
                slip=request.slip,
            )
            try:
                return await self._answer(question, arriving)
            finally:
                if arriving is not None:
                    arriving.cancel()

    async def _answer(self, question: LoginQuestion, arriving: asyncio.Future[str] | None) -> str:
        desk = self._services.desk
        hint = f"%mcp start {quoted(self._session.name)}"
        if not desk.can_ask("login"):
            raise AuthError(f"wants a login at {question.domain}, and there is nobody to ask", hint=hint)
        answer = await desk.ask("login", lambda interaction: interaction.login(question), None)
        if answer is None:
            raise AuthError(f"the login at {question.domain} was not made", hint=hint)
        return answer or (await arriving if arriving is not None else "")


async def fetch(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, reach: Zone
) -> tuple[int, Mapping[str, str], bytes]:
    """A `Fetch` that imports its HTTP client when it is first used: most servers want no login."""
    from ipymcp.protocol.oauth.fetch import fetch as send

    return await send(method, url, headers, body, reach=reach)

"""Logins of a session's user, and the redirect through a panel's Jupyter server.

The server brings what the browser brought to the kernel that waits for the login's `state`. It asks by the state's
digest, so that no other kernel learns it. The state is good once, for ten minutes, for the login that made it: that of
one definition, at one issuer.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from ipymcp.errors import AuthError
from ipymcp.interaction.questions import LoginQuestion
from ipymcp.protocol.types import is_object
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ipymcp.protocol.oauth.interfaces import LoginRequest, RedirectSource
    from ipymcp.runtime.question_routing import QuestionRouter
    from ipymcp.runtime.server_status import LoginOwner


_PATH: Final = "/ipymcp/oauth/callback"
_MAX_LENGTH: Final = 2_000


class Redirects:
    """The logins that wait for a browser. Belongs to the loop.

    Args:
        lasts: Seconds for which a state is good.
    """

    def __init__(self, lasts: float = 600.0) -> None:
        self._lasts = lasts
        self.addresses: Callable[[], Iterable[object]] = tuple
        """Gives where browsers may be sent to, as views say, the best first."""
        self._waiting: dict[str, _ServerRedirect] = {}
        """By the digest of their state."""

    async def open(self, state: str, known: Sequence[str]) -> RedirectSource:
        """An `OpenRedirect`: by the Jupyter server where a view has one, else a listener on this machine."""
        uri = next((one for one in self.addresses() if _is_usable(one)), None)
        if not isinstance(uri, str):
            from ipymcp.protocol.oauth.redirect import LoopbackRedirect

            return await LoopbackRedirect.open(state, known)
        digest = hashlib.sha256(state.encode()).hexdigest()
        redirect = self._waiting[digest] = _ServerRedirect(uri, self._lasts, lambda: self._waiting.pop(digest, None))
        return redirect

    def heard(self, message: object) -> dict[str, Any] | None:
        """The reply to a message of the Jupyter server; None if it is about something else."""
        if not is_object(message):
            return None
        if message.get("kind") == "awaits":
            return {"kind": "awaits", "awaited": str(message.get("digest")) in self._waiting}
        if message.get("kind") == "redirected":
            return {"kind": "redirected", "taken": self._take(message.get("brought"))}
        return None

    def _take(self, brought: object) -> bool:
        if not is_object(brought) or not all(isinstance(value, str) for value in brought.values()):
            return False
        state = str(brought.get("state", "")).encode("utf-8", "replace")
        waiting = self._waiting.pop(hashlib.sha256(state).hexdigest(), None)
        if waiting is None:
            return False
        waiting.arrive(brought)
        return True


class _ServerRedirect:
    """One login's place there; a `RedirectSource`."""

    def __init__(self, uri: str, lasts: float, forget: Callable[[], object]) -> None:
        self.uri = uri
        self._lasts = lasts
        self._forget = forget
        loop = asyncio.get_running_loop()
        self._address: asyncio.Future[str] = loop.create_future()
        self._end = loop.call_later(lasts, self._expire)

    async def received(self) -> str:
        """Wait for it; the redirected address in full."""
        return await asyncio.shield(self._address)

    async def aclose(self) -> None:
        """Nobody waits any more."""
        self._end.cancel()
        self._forget()
        self._address.cancel()

    def arrive(self, brought: dict[str, str]) -> None:
        """The browser has come back."""
        self._end.cancel()
        if not self._address.done():
            self._address.set_result(f"{self.uri}?{urlencode(brought, errors='replace')}")

    def _expire(self) -> None:
        self._forget()
        if not self._address.done():
            error = AuthError(
                f"the login was not made within {self._lasts / 60:g} minutes", hint="%mcp start NAME asks again"
            )
            self._address.set_exception(error)
            self._address.exception()  # perhaps nobody wants to know


def _is_usable(uri: object) -> bool:
    """Whether a browser may be sent there with a code: our own page, over TLS or on the user's own machine."""
    if not isinstance(uri, str) or len(uri) > _MAX_LENGTH:
        return False
    from ipymcp.protocol.oauth import addresses

    with contextlib.suppress(AuthError):
        addresses.secure(uri, "the Jupyter server's address", loopback=True)
        parts = urlsplit(uri)
        return parts.path.endswith(_PATH) and not parts.query
    return False


class SessionUser:
    """A `LoginUser` who is asked a `LoginQuestion`; meanwhile the session needs a login, and its timeouts are paused.

    Args:
        session: Whose server asks.
        questions: Asks the user.
    """

    def __init__(self, session: LoginOwner, questions: QuestionRouter) -> None:
        self._session = session
        self._questions = questions

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
                paste_error=request.paste_error,
            )
            try:
                return await self._answer(question, arriving)
            finally:
                if arriving is not None:
                    arriving.cancel()

    async def _answer(self, question: LoginQuestion, arriving: asyncio.Future[str] | None) -> str:
        questions = self._questions
        hint = f"%mcp start {quoted(self._session.name)}"
        if not questions.can_ask("login"):
            raise AuthError(f"needs a login at {question.domain}, and no one can be asked", hint=hint)
        answer = await questions.ask(question)
        if answer is None:
            raise AuthError(f"the login at {question.domain} was not made", hint=hint)
        return answer or (await arriving if arriving is not None else "")

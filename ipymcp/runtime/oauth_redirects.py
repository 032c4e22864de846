"""Logins of a session's user, and their redirects through the Jupyter server of a panel.

The Jupyter server passes the parameters of the redirect to the kernel that waits for the login's `state`. It finds this
kernel by the digest of the state, so that no other kernel learns the state. A state is valid once, for ten minutes, and
only for the login that created it, which is for one definition at one issuer.
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

    from ipymcp.protocol.oauth.tokens import LoginRequest, RedirectSource
    from ipymcp.runtime.question_routing import QuestionRouter
    from ipymcp.runtime.server_status import LoginOwner


_PATH: Final = "/ipymcp/oauth/callback"
_MAX_LENGTH: Final = 2_000


class Redirects:
    """The logins that wait for the redirect of a browser. Belongs to the loop.

    Args:
        lifetime: Seconds for which a state is valid.
    """

    def __init__(self, lifetime: float = 600.0) -> None:
        self._lifetime = lifetime
        self.addresses: Callable[[], Iterable[object]] = tuple
        """Returns the redirect URIs that the views report, best first; they are not checked yet."""
        self._waiting: dict[str, _ServerRedirect] = {}
        """The waiting logins by the digest of their state."""

    async def open(self, state: str, registered: Sequence[str]) -> RedirectSource:
        """Open a receiver at the Jupyter server if a view has one, else on this machine; see `OpenRedirect`."""
        uri = next((one for one in self.addresses() if _is_usable(one)), None)
        if not isinstance(uri, str):
            from ipymcp.protocol.oauth.redirect import LoopbackRedirect

            return await LoopbackRedirect.open(state, registered)
        digest = hashlib.sha256(state.encode()).hexdigest()
        redirect = self._waiting[digest] = _ServerRedirect(uri, self._lifetime, lambda: self._waiting.pop(digest, None))
        return redirect

    def reply_to(self, message: object) -> dict[str, Any] | None:
        """The reply to a message of the Jupyter server; None for a message that is not about a redirect."""
        if not is_object(message):
            return None
        if message.get("kind") == "awaits":
            return {"kind": "awaits", "awaited": str(message.get("digest")) in self._waiting}
        if message.get("kind") == "redirected":
            return {"kind": "redirected", "taken": self._deliver(message.get("brought"))}
        return None

    def _deliver(self, parameters: object) -> bool:
        """Pass the parameters of a redirect to the login with their state; False if no login waits for them."""
        if not is_object(parameters) or not all(isinstance(value, str) for value in parameters.values()):
            return False
        state = str(parameters.get("state", "")).encode("utf-8", "replace")
        redirect = self._waiting.pop(hashlib.sha256(state).hexdigest(), None)
        if redirect is None:
            return False
        redirect.deliver(parameters)
        return True


class _ServerRedirect:
    """The receiver for the redirect of one login through the Jupyter server; a `RedirectSource`.

    Args:
        uri: The redirect URI.
        lifetime: Seconds after which the login fails.
        forget: Removes the receiver from the waiting logins.
    """

    def __init__(self, uri: str, lifetime: float, forget: Callable[[], object]) -> None:
        self.uri = uri
        self._lifetime = lifetime
        self._forget = forget
        loop = asyncio.get_running_loop()
        self._url: asyncio.Future[str] = loop.create_future()
        self._timer = loop.call_later(lifetime, self._expire)

    async def received(self) -> str:
        """Wait for the redirect and return its full URL."""
        return await asyncio.shield(self._url)

    async def aclose(self) -> None:
        """Stop waiting."""
        self._timer.cancel()
        self._forget()
        self._url.cancel()

    def deliver(self, parameters: dict[str, str]) -> None:
        """End the wait with the parameters of the redirect."""
        self._timer.cancel()
        if not self._url.done():
            self._url.set_result(f"{self.uri}?{urlencode(parameters, errors='replace')}")

    def _expire(self) -> None:
        self._forget()
        if not self._url.done():
            error = AuthError(
                f"the login was not completed within {self._lifetime / 60:g} minutes", hint="%mcp start NAME asks again"
            )
            self._url.set_exception(error)
            self._url.exception()  # marks it as retrieved: perhaps no one waits for it


def _is_usable(uri: object) -> bool:
    """Whether a redirect with a code may go to a URI: to our own page, over TLS or on the user's own machine."""
    if not isinstance(uri, str) or len(uri) > _MAX_LENGTH:
        return False
    from ipymcp.protocol.transports import addresses

    with contextlib.suppress(AuthError):
        addresses.secure(uri, "the Jupyter server's address", loopback=True)
        parts = urlsplit(uri)
        return parts.path.endswith(_PATH) and not parts.query
    return False


class SessionUser:
    """A `LoginUser` who is asked a `LoginQuestion`. Meanwhile the server's state is `needs_auth`, and timeouts pause.

    Args:
        session: The session of the server that needs the login.
        questions: Asks the user.
    """

    def __init__(self, session: LoginOwner, questions: QuestionRouter) -> None:
        self._session = session
        self._questions = questions

    async def login(self, request: LoginRequest) -> str:
        """Show the URL of the login, and wait for the redirect or for the redirected URL that the user pastes."""
        async with self._session.logging_in(request.domain):
            redirected = threading.Event()
            redirect = asyncio.ensure_future(request.redirect.received()) if request.redirect is not None else None
            if redirect is not None:
                redirect.add_done_callback(lambda _: redirected.set())
            question = LoginQuestion(
                self._session.name,
                request.url,
                request.domain,
                request.scopes,
                redirected if redirect is not None else None,
                site=request.site,
                answer_to=request.answer_to,
                gives_secret=request.gives_secret,
                paste_error=request.paste_error,
            )
            try:
                return await self._ask(question, redirect)
            finally:
                if redirect is not None:
                    redirect.cancel()

    async def _ask(self, question: LoginQuestion, redirect: asyncio.Future[str] | None) -> str:
        questions = self._questions
        hint = f"%mcp start {quoted(self._session.name)}"
        if not questions.can_ask("login"):
            raise AuthError(f"needs a login at {question.domain}, and no one can be asked", hint=hint)
        answer = await questions.ask(question)
        if answer is None:
            raise AuthError(f"the login at {question.domain} was not completed", hint=hint)
        return answer or (await redirect if redirect is not None else "")

"""Where a browser comes back to after a login, and how what it brings reaches the kernel that waits for it.

The address is open to all, for a browser that comes from another site may carry no cookies (SameSite). So it answers
the same page to everybody and changes nothing; the page takes what it was brought out of the address bar and posts it
from here, with the user's cookies and the XSRF token. The kernel alone knows the `state`, its server and its issuer.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from tornado.web import HTTPError, RequestHandler, authenticated

from ipymcp.errors import UnknownName
from ipymcp.jupyter.handlers import Rest, allow_unauthenticated
from ipymcp.jupyter.kernels import KernelUnavailable, asked

if TYPE_CHECKING:
    from ipymcp.jupyter.kernels import Kernels
    from ipymcp.storage.kernel_socket import Announced


_PARAMETERS: Final = ("code", "state", "iss", "error", "error_description")
_MAX_LENGTH: Final = 8_192


class Callback(RequestHandler):
    """`GET oauth/callback`: the page. No handler of Jupyter's, which would look at cookies and might set some."""

    @allow_unauthenticated
    def get(self) -> None:
        """The same for everybody."""
        page, policy = _page()
        self.request.uri = self.request.path  # what it was brought is in no log
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Opener-Policy": "same-origin",
        }.items():
            self.set_header(name, value)
        self.write(page)  # pyright: ignore[reportUnknownMemberType]


class LoginRedirect(Rest):
    """`POST oauth/redirected`: what the page was brought, for the one kernel that waits for it."""

    def initialize(self, kernels: Kernels) -> None:
        """Take what the routes give."""
        self._kernels = kernels

    @authenticated
    async def post(self) -> None:
        """Bring it there; a second time nobody waits any more."""
        body = self.body()
        brought = {name: self.text(body, name) for name in _PARAMETERS if name in body}
        if not brought.get("state") or any(len(value) > _MAX_LENGTH for value in brought.values()):
            raise HTTPError(HTTPStatus.BAD_REQUEST, "that is no answer to a login")
        digest = hashlib.sha256(brought["state"].encode("utf-8", "replace")).hexdigest()
        waiting = await asyncio.gather(*(self._awaits(one, digest) for one in self._kernels.ids()))
        for kernel in waiting:
            if kernel is not None:
                answer = await asked(kernel, {"kind": "redirected", "brought": brought}, "redirected")
                if answer.get("taken") is True:
                    self.say({})
                    return
        raise UnknownName("no login of a notebook is waiting for this", hint="%mcp start NAME asks again")

    async def _awaits(self, kernel_id: str, digest: str) -> Announced | None:
        """The kernel, if it waits for that state; the state itself no other is told."""
        try:
            found = await asyncio.to_thread(self._kernels.find, kernel_id)
            answer = await asked(found, {"kind": "awaits", "digest": digest}, "awaits")
        except KernelUnavailable:
            return None
        return found if answer.get("awaited") is True else None


@cache
def _page() -> tuple[str, str]:
    """The page, and the policy that lets it run its own script and no other."""
    page = files("ipymcp.jupyter").joinpath("callback.html").read_text("utf-8")
    script, style = (_digest(page, tag) for tag in ("script", "style"))
    policy = f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; base-uri 'none'"
    return page, f"{policy}; form-action 'none'; frame-ancestors 'none'"


def _digest(page: str, tag: str) -> str:
    text = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

"""The OAuth callback page, and the delivery of its parameters to the kernel that waits for them.

The page is served without a login, because a browser that arrives from another site may send no cookies (SameSite). It
is the same for everyone and changes nothing: its script removes the parameters from the address bar and posts them
from this origin, with the user's cookies and XSRF token. Only the kernel knows the `state`, its server and its issuer.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import json
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

import msgspec
from jupyter_server.base.handlers import APIHandler
from tornado.web import HTTPError, RequestHandler, authenticated

from ipymcp.jupyter.handlers import allow_unauthenticated, authorize
from ipymcp.jupyter.kernels import KernelUnavailable, request

if TYPE_CHECKING:
    from ipymcp.jupyter.kernels import Kernels
    from ipymcp.storage.kernel_socket import Announced


_PARAMETERS: Final = ("code", "state", "iss", "error", "error_description")
_MAX_LENGTH: Final = 8_192
"""Characters of one parameter."""


class Callback(RequestHandler):
    """`GET oauth/callback`: the page. It is not a `JupyterHandler`, which reads cookies and may set some."""

    @allow_unauthenticated
    def get(self) -> None:
        """Serve the page."""
        page, policy = _page()
        self.request.uri = self.request.path  # keeps the parameters out of the access log
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


class LoginRedirect(APIHandler):
    """`POST oauth/redirected`: the callback parameters, for the kernel that waits for them.

    `APIHandler` checks the login, the origin and the XSRF token.
    """

    auth_resource = "ipymcp"

    def initialize(self, kernels: Kernels) -> None:
        """Store the arguments of the route."""
        self._kernels = kernels

    async def prepare(self) -> None:
        """Authorize the user before the body is read."""
        prepared: Any = super().prepare()  # not a coroutine before 2.0
        if inspect.isawaitable(prepared):
            await prepared
        if not self._finished:
            await authorize(self, "write", "ipymcp")
            await authorize(self, "execute", "kernels")

    @authenticated
    async def post(self) -> None:
        """Deliver the parameters. A kernel accepts them once."""
        self.set_header("Cache-Control", "no-store")
        parameters = self._parameters()
        digest = hashlib.sha256(parameters["state"].encode("utf-8", "replace")).hexdigest()
        waiting = await asyncio.gather(*(self._waiting(kernel_id, digest) for kernel_id in self._kernels.ids()))
        for kernel in filter(None, waiting):
            try:
                reply = await request(kernel, {"kind": "redirected", "brought": parameters}, "redirected")
            except KernelUnavailable as unavailable:
                self._finish(HTTPStatus.BAD_REQUEST, message=unavailable.message, hint=unavailable.hint)
                return
            if reply.get("taken") is True:
                self._finish(HTTPStatus.OK)
                return
        message = "no notebook is waiting for this login"
        self._finish(HTTPStatus.NOT_FOUND, message=message, hint="%mcp start NAME begins a new login")

    def _parameters(self) -> dict[str, str]:
        try:
            body = msgspec.json.decode(self.request.body, type=dict[str, Any])
            parameters = msgspec.convert({name: body[name] for name in _PARAMETERS if name in body}, dict[str, str])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            raise HTTPError(HTTPStatus.BAD_REQUEST, "expected a JSON object of strings") from None
        if not parameters.get("state") or any(len(value) > _MAX_LENGTH for value in parameters.values()):
            raise HTTPError(HTTPStatus.BAD_REQUEST, "not the parameters of an OAuth redirect")
        return parameters

    def _finish(self, status: HTTPStatus, **document: str) -> None:
        self.set_status(status)
        self.finish(json.dumps(document, ensure_ascii=False))

    async def _waiting(self, kernel_id: str, digest: str) -> Announced | None:
        """The kernel, if it waits for the state with this digest. Kernels are not sent the state itself."""
        try:
            kernel = await asyncio.to_thread(self._kernels.find, kernel_id)
            reply = await request(kernel, {"kind": "awaits", "digest": digest}, "awaits")
        except KernelUnavailable:
            return None
        return kernel if reply.get("awaited") is True else None


@cache
def _page() -> tuple[str, str]:
    """The page, and a content security policy that allows only its own script and style."""
    page = files("ipymcp.jupyter").joinpath("callback.html").read_text("utf-8")
    script, style = (_digest(page, tag) for tag in ("script", "style"))
    policy = f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; base-uri 'none'"
    return page, f"{policy}; form-action 'none'; frame-ancestors 'none'"


def _digest(page: str, tag: str) -> str:
    text = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

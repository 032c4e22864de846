"""Commands of views that show apps: opening a page, the user's consent to it, and the requests of the page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlencode

from ipymcp.api.apps import apps_of
from ipymcp.errors import CallError, McpError, PolicyError, RpcError
from ipymcp.panel.messages import FromView, JsonObject, Text, Texts, ToView, sound
from ipymcp.panel.panel import Panel, View, command
from ipymcp.protocol.apps import PageNeeds, content_policy, frame_document
from ipymcp.security.app_pins import AppPin
from ipymcp.text import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ipymcp.api.apps import Apps, CallData, OpenApp
    from ipymcp.protocol.apps import AppPage


T = TypeVar("T")
_FAILED = -32000


class AppFields(FromView):
    """A command about an app, by its number."""

    app: int


class CloseAppFields(AppFields):
    """A command to close one of the places that show an app. The last one closes the app."""

    page: Text = ""
    """An identifier of the place."""


class OpenAppFields(CloseAppFields):
    """A request for the page of an app."""

    known: Texts = []
    """Hashes of the pages that the view already has."""


class AgreeFields(AppFields):
    """The user's consent to show a page."""

    hash: Text
    """The hash of the page that the user was asked about."""
    grants: bool
    """Whether the page gets the access that it declares."""
    eval: bool = False
    """Whether its scripts may also use `eval`."""


class LeaveAppFields(AppFields):
    """A notice that one of the pages of an app was closed."""

    page: Text
    """An identifier of the page."""


class AppRequestFields(LeaveAppFields):
    """A JSON-RPC request of a page."""

    method: Text
    params: JsonObject


class FollowCallFields(LeaveAppFields):
    """A request for the call of an app, once it has changed."""

    version: int
    """The version that the view knows."""


class AppCall(ToView, kw_only=True):
    """The call of an app, as far as it is known. The members are those of `CallData`."""

    version: int = 0
    partial: Any = None
    input: Any = None
    result: Any = None
    cancelled: str | None = None


class OpenedApp(AppCall, kw_only=True):
    """A page to show, or the reason that the user must agree first."""

    server: str
    tool: str
    title: str
    hash: str
    asks: Literal["first", "changed"] | None
    """The reason that the user must agree first; None if no consent is needed."""
    may_agree: bool
    """Whether this view may agree."""
    domains: list[str]
    """The origins that the page declares."""
    permissions: list[str]
    """The browser features that the page declares."""
    is_granted: bool = False
    """Whether the user has granted these origins and features."""
    html: str | None = None
    """The HTML of the page; None if the view has it, or if the user must agree first."""
    frame: str = ""
    """The HTML of the frame that shows the page."""
    query: str = ""
    """The query string for the same frame at the Jupyter server."""
    allow: str = ""
    """The `allow` attribute of the frame."""
    has_border: bool | None = None
    connect: list[str] = []
    """Granted origins of requests."""
    resource: list[str] = []
    """Granted origins of scripts, styles, images, fonts and media."""
    definition: JsonObject = {}
    """The definition of the tool."""


class AppReply(ToView):
    """The response to a request of a page."""

    result: Any = None
    error: str = ""
    code: int = 0


@command("app_open")
async def _open(panel: Panel, view: View, message: OpenAppFields) -> OpenedApp:
    apps = _apps(panel)
    mode = apps.mode()
    app = apps.find(message.app)
    page = await app.page()
    page_hash = await asyncio.to_thread(lambda: page.hash)
    pin = await apps.pins.of(app.digest, app.uri)
    may_agree = view.permissions.may("app_agree")
    asks = None
    if pin is None:
        asks = "first" if mode == "ask" or page.needs else None
    elif pin.hash != page_hash:
        asks = "changed"
    if asks == "first" and mode == "show" and not may_agree:
        asks = None  # the page is shown without the access that it declares, which needs no consent
    if asks is None and pin is None:
        pin = AppPin(page_hash)
        if not page.needs:
            await apps.pins.keep(app.digest, app.server, app.uri, pin)
    text = one_line(visible(app.entry.definition.title or app.tool))
    head = OpenedApp(
        server=app.server,
        tool=app.tool,
        title=text,
        hash=page_hash,
        asks=asks,
        may_agree=may_agree,
        domains=[*page.needs.domains],
        permissions=[*page.needs.permissions],
        has_border=page.has_border,
    )
    if asks is not None or pin is None:
        return head
    app.add_page(view, message.page)
    return await asyncio.to_thread(_opened, app, page, pin, head, is_known=page_hash in message.known)


def _opened(app: OpenApp, page: AppPage, pin: AppPin, head: OpenedApp, *, is_known: bool) -> OpenedApp:
    granted = page.needs if pin.is_granted and app.was_made else PageNeeds()
    origins = {"connect": granted.connect, "resource": granted.resource, "frame": granted.frame, "base": granted.base}
    query = {name: ",".join(urls) for name, urls in origins.items() if urls}
    query |= {"eval": "1"} if pin.allows_eval else {}
    head.is_granted = pin.is_granted
    head.definition = sound(app.definition)
    head.html = None if is_known else sound(page.html)
    head.frame = frame_document(content_policy(granted, allows_eval=pin.allows_eval))
    head.query = urlencode(query)
    head.allow = "; ".join(f"{one} *" for one in granted.permissions)
    head.connect, head.resource = [*granted.connect], [*granted.resource]
    _fill(head, app.call_data())
    return head


def _fill(message: AppCall, call: CallData) -> None:
    message.version, message.cancelled = call.version, call.cancelled
    message.partial, message.input, message.result = sound(call.partial), sound(call.input), sound(call.result)


@command("app_call")
async def _follow(panel: Panel, view: View, message: FollowCallFields) -> AppCall:
    app = _apps(panel).find(message.app)
    call = await _while_shown(app, message.page, app.call_after(message.version))
    reply = AppCall()
    await asyncio.to_thread(_fill, reply, call)
    return reply


@command("app_agree")
async def _agree(panel: Panel, view: View, message: AgreeFields) -> None:
    apps = apps_of(panel.host)
    app = apps.find(message.app)
    page = await app.page()
    page_hash = await asyncio.to_thread(lambda: page.hash)
    if page_hash != message.hash:
        raise McpError("the page has changed since you were asked", hint="open the app again")
    await apps.pins.keep(app.digest, app.server, app.uri, AppPin(page_hash, message.grants, message.eval))


@command("app_request")
async def _request(panel: Panel, view: View, message: AppRequestFields) -> AppReply:
    try:
        app = _apps(panel).find(message.app)
    except McpError as error:
        return AppReply(error=one_line(error.message), code=_FAILED)
    try:
        answer = await _while_shown(app, message.page, app.answer(message.method, sound(message.params)))
        return AppReply(result=sound(answer))
    except RpcError as error:
        shown = view.permissions.shown_error(error)
        return AppReply(error=one_line(shown.message), code=error.code or _FAILED)
    except McpError as error:
        return AppReply(error=one_line(view.permissions.shown_error(error).message), code=_FAILED)


async def _while_shown(app: OpenApp, page: str, awaited: Coroutine[Any, Any, T]) -> T:
    """Await something for a page, until the page is closed.

    Raises:
        CallError: The page was closed.
    """
    request = asyncio.ensure_future(awaited)
    requests = app.requests.setdefault(page, set())
    requests.add(request)
    try:
        return await request
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) and task.cancelling():
            request.cancel()
            raise
        raise CallError("the page was closed") from None
    finally:
        requests.discard(request)


@command("app_leave")
async def _leave(panel: Panel, view: View, message: LeaveAppFields) -> None:
    # A question about a call of a closed page would keep other questions waiting.
    for request in apps_of(panel.host).find(message.app).requests.pop(message.page, ()):
        request.cancel()


@command("app_close")
async def _close(panel: Panel, view: View, message: CloseAppFields) -> None:
    apps_of(panel.host).find(message.app).remove_page(view, message.page)


def _apps(panel: Panel) -> Apps:
    """The apps of the panel's host.

    Raises:
        PolicyError: Apps are off.
    """
    apps = apps_of(panel.host)
    if apps.mode() == "off":
        raise PolicyError("apps are off", hint='%config IPyMCP.apps = "show" shows them')
    return apps

"""MCP Apps: the metadata of tools and pages, and the content security policy of a page.

Source: MCP extension `io.modelcontextprotocol/ui`, SEP-1865 (2026-01-26). All of this comes from a server: a value that
does not have the expected shape counts as absent, and so does a domain that is not plainly an origin.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from msgspec import Raw


EXTENSION: Final = "io.modelcontextprotocol/ui"
MIME_TYPE: Final = "text/html;profile=mcp-app"
CAPABILITY: Final[dict[str, Any]] = {EXTENSION: {"mimeTypes": [MIME_TYPE]}}
"""The declaration of the extension in a client's capabilities."""
MAX_PAGE: Final = 10_000_000
"""Maximum characters of a page."""
_SCHEME: Final = "ui://"
_MAX_DOMAINS: Final = 50
_DOMAIN: Final = re.compile(r"(?:https|wss)://(?:\*\.)?[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9-]+)+(?::\d{1,5})?")
"""An origin with at least two labels, in ASCII and without a path: `https://*.example.com:8080`."""
_PERMISSIONS: Final = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}
"""The browser's features by the extension's names."""


class ToolApp(Struct, frozen=True, gc=False):
    """The interactive page of a tool, and the callers that the tool is for.

    Attributes:
        uri: The resource of the page; empty if there is none.
        is_for_models: Whether models may see and call the tool.
        is_for_apps: Whether pages of its server may call the tool.
    """

    uri: str = ""
    is_for_models: bool = True
    is_for_apps: bool = True


_NO_APP: Final = ToolApp()


def read_tool_app(meta: Raw) -> ToolApp:
    """Read the `_meta` of a tool, in the current form (`ui.resourceUri`) or the deprecated one (`ui/resourceUri`)."""
    if not len(meta) or b'"ui' not in bytes(meta):
        return _NO_APP
    try:
        members = types.loads(meta)
    except ValueError:
        return _NO_APP
    if not is_object(members):
        return _NO_APP
    own = members.get("ui")
    ui: dict[str, Any] = own if is_object(own) else {}
    uri = ui.get("resourceUri", members.get("ui/resourceUri"))
    app = ToolApp(uri if isinstance(uri, str) and uri.startswith(_SCHEME) else "")
    visibility = ui.get("visibility")
    if is_array(visibility):
        app = replace(app, is_for_models="model" in visibility, is_for_apps="app" in visibility)
    return app


class PageNeeds(Struct, frozen=True, omit_defaults=True):
    """The needs that a page declares, of those that ipymcp can grant.

    Attributes:
        connect: Origins of network requests.
        resource: Origins of scripts, styles, images, fonts and media.
        frame: Origins of nested frames.
        base: Origins of base URLs.
        permissions: The browser's features, such as `camera`.
    """

    connect: tuple[str, ...] = ()
    resource: tuple[str, ...] = ()
    frame: tuple[str, ...] = ()
    base: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != PageNeeds()

    @property
    def domains(self) -> tuple[str, ...]:
        """All origins."""
        return tuple(dict.fromkeys((*self.connect, *self.resource, *self.frame, *self.base)))


class AppPage(Struct, frozen=True):
    """A page of a server.

    Attributes:
        html: The document.
        needs: The needs that the page declares.
        has_border: Whether the page requests a border; None if it does not say.
    """

    html: str
    needs: PageNeeds = PageNeeds()
    has_border: bool | None = None

    @property
    def hash(self) -> str:
        """SHA-256, in hex, of the document and the needs that it declares."""
        declared = "\n".join(map(repr, (self.needs.connect, self.needs.resource, self.needs.frame, self.needs.base)))
        text = f"{declared}\n{self.needs.permissions!r}\n{self.html}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_page(result: Raw | bytes, uri: str, listed: Raw | bytes = b"") -> AppPage:
    """Read the page in the result of `resources/read`.

    Args:
        result: The JSON of the result.
        uri: The resource.
        listed: The `_meta` of the resource in `resources/list`, which counts if the content has none of its own.

    Raises:
        ValueError: The resource is not a page.
    """
    contents = types.decode(result, types.ReadResourceResult).contents
    items = [item for raw in contents if is_object(item := types.loads(raw))]
    item = next((each for each in items if each.get("uri") == uri), items[0] if items else None)
    if item is None:
        raise ValueError("it is empty")
    mime_type = str(item.get("mimeType", "")).replace(" ", "").lower()
    if mime_type != MIME_TYPE:
        raise ValueError(f"it is {mime_type[:100] or 'of no type'}, not {MIME_TYPE}")
    html = item.get("text")
    if not isinstance(html, str):
        try:
            html = base64.b64decode(str(item.get("blob", "")), validate=True).decode("utf-8", "replace")
        except ValueError:
            raise ValueError("its content is neither text nor base64") from None
    if len(html) > MAX_PAGE:
        raise ValueError(f"it has {len(html):,} characters; at most {MAX_PAGE:,} are shown")
    ui = _ui(item.get("_meta")) or _ui(types.loads(listed) if len(listed) else None)
    border = ui.get("prefersBorder")
    return AppPage(html, _needs(ui), border if isinstance(border, bool) else None)


def has_own_meta(result: Raw | bytes) -> bool:
    """Whether the content of `resources/read` itself declares the needs of its page."""
    contents = types.decode(result, types.ReadResourceResult).contents
    return any(is_object(item := types.loads(raw)) and bool(_ui(item.get("_meta"))) for raw in contents)


def _ui(meta: Any) -> dict[str, Any]:
    ui = meta.get("ui") if is_object(meta) else None
    return ui if is_object(ui) else {}


def _needs(ui: dict[str, Any]) -> PageNeeds:
    declared, permissions = ui.get("csp"), ui.get("permissions")
    csp: dict[str, Any] = declared if is_object(declared) else {}
    wanted: dict[str, Any] = permissions if is_object(permissions) else {}
    return PageNeeds(
        connect=_origins(csp.get("connectDomains")),
        resource=_origins(csp.get("resourceDomains")),
        frame=_origins(csp.get("frameDomains")),
        base=_origins(csp.get("baseUriDomains")),
        permissions=tuple(feature for name, feature in _PERMISSIONS.items() if name in wanted),
    )


def _origins(declared: Any) -> tuple[str, ...]:
    origins = (origin(domain) for domain in (declared if is_array(declared) else ())[:_MAX_DOMAINS])
    return tuple(dict.fromkeys(filter(None, origins)))


def origin(domain: Any) -> str:
    """A declared domain as an origin for a content security policy; empty if it is not of the form `_DOMAIN`."""
    text = domain.strip().lower().removesuffix("/") if isinstance(domain, str) else ""
    return text if _DOMAIN.fullmatch(text) else ""


# -- the sandbox ------------------------------------------------------------------------------------------------------


def content_policy(needs: PageNeeds, *, allows_eval: bool = False, is_header: bool = False) -> str:
    """The content security policy of the document around a page, which the page inherits.

    By default, a page has no network at all. Its scripts and styles are inline, its media in `data:` and `blob:` URLs.
    The policy forbids it to leave its document, too: navigations of the inner frame are subject to `frame-src`.

    Args:
        needs: The needs that the user has granted.
        allows_eval: Whether scripts may compile text.
        is_header: Whether the policy is for a header, which may also sandbox the document.
    """
    resource = "".join(f" {domain}" for domain in needs.resource)
    code = " 'unsafe-eval'" if allows_eval else ""
    directives = {
        "default-src": "'none'",
        "script-src": f"'unsafe-inline' 'report-sample' blob: data:{code}{resource}",
        "style-src": f"'unsafe-inline' blob:{resource}",
        "img-src": f"data: blob:{resource}",
        "font-src": f"data: blob:{resource}",
        "media-src": f"data: blob:{resource}",
        "connect-src": " ".join(needs.connect) or "'none'",
        "worker-src": f"blob: data:{resource}",
        "frame-src": " ".join(needs.frame) or "'none'",
        "object-src": "'none'",
        "base-uri": " ".join(needs.base) or "'none'",
        "form-action": "'none'",
    }
    if is_header:
        directives |= {"sandbox": "allow-scripts allow-forms", "frame-ancestors": "'self'"}
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def frame_document(policy: str = "") -> str:
    """The document around a page, which receives the page through a port and checks the page's messages.

    Args:
        policy: Its content security policy; empty if a header contains it.
    """
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    head = f'<meta charset="utf-8">{meta}{_NO_PREFETCH}<style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body><script>{_script()}</script></body></html>"


_NO_PREFETCH: Final = '<meta http-equiv="x-dns-prefetch-control" content="off">'
_STYLE: Final = "html,body{margin:0;height:100%;overflow:hidden}iframe{border:0;display:block;width:100%;height:100%}"


@cache
def _script() -> str:
    return files("ipymcp.protocol").joinpath("app_frame.js").read_text("utf-8")

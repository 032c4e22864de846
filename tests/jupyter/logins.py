"""A login up to where the browser comes back, at a real authorization server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.jupyter_servers import RelayView, ServedKernel
from tests.servers.oauth_server import OAuthServer


class Place(Protocol):
    """A Jupyter server, and a folder that its kernels can read."""

    url: str
    folder: Path


def callback(place: Place) -> str:
    """Where it takes browsers that come back."""
    return f"{place.url}ipymcp/oauth/callback"


def begin(place: Place, kernel: ServedKernel, view: RelayView, site: OAuthServer, name: str = "docs") -> dict[str, str]:
    """Load a server that wants a login, agree in the panel, log in; what the browser is sent back with."""
    file = Path(place.folder, f"{name}.json")
    file.write_text(json.dumps({"mcpServers": {name: {"url": site.url}}}))
    view.hello(callback=callback(place))
    kernel.start(f"%mcp load {file}")
    view.until(lambda state: any(one["type"] == "visit" for one in state["questions"].values()))
    [question] = view.state["questions"].values()
    view.ask("answer", question=question["id"], action="accept")
    back = urlsplit(httpx.get(question["url"]).headers["location"])
    assert back._replace(query="").geturl() == callback(place)
    return dict(parse_qsl(back.query))

"""A login up to where the browser comes back, at a real authorization server."""

import json
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.jupyter_servers import ServedKernel
from tests.panels import View
from tests.servers.oauth_server import OAuthServer


class Place(Protocol):
    """A Jupyter server, and a folder that its kernels can read."""

    url: str
    folder: Path


def callback(place: Place) -> str:
    """The callback URL that the kernel uses."""
    return f"{place.url}ipymcp/oauth/callback"


def asked(place: Place, kernel: ServedKernel, view: View, site: OAuthServer, name: str = "docs") -> str:
    """Load a server that wants a login, and agree in the panel; give the address of the login."""
    file = Path(place.folder, f"{name}.json")
    file.write_text(json.dumps({"mcpServers": {name: {"url": site.url}}}))
    view.hello(callback=callback(place))
    kernel.start(f"%mcp load {file}")
    question = view.question("visit")
    view.answer(question, action="accept")
    return question["url"]


def begin(place: Place, kernel: ServedKernel, view: View, site: OAuthServer) -> dict[str, str]:
    """Do so and log in; give the parameters with which the browser is sent back."""
    back = urlsplit(httpx.get(asked(place, kernel, view, site)).headers["location"])
    assert back._replace(query="").geturl() == callback(place)
    return dict(parse_qsl(back.query))

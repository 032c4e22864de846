"""A remote server behind a login, and the authorization server that grants it: `python login.py [PORT]`.

The first line it prints is its address. People log in on a page with one button; a program logs in with the client id
`robot` and the secret in the variable ROBOT_SECRET. Both servers are on this machine, and forget everything when they
end. Standard library only.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import os
import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from minimal import Server

LIFETIME = 3600
WELL_KNOWN = "/.well-known"
tools = Server("weather", "The weather of a place that does not exist.")
codes: dict[str, dict[str, str]] = {}
"""What was asked for when a code was given out."""
tokens: dict[str, str] = {}
"""The user of each token."""


@tools.tool("The weather of a day.", {"day": {"type": "string", "format": "date"}}, readOnlyHint=True)
def forecast(day: str) -> dict[str, Any]:
    """The same for the same day."""
    number = hashlib.sha256(day.encode()).digest()[0]
    return {"day": day, "sky": ("sunny", "cloudy", "rain", "snow")[number % 4], "celsius": number % 35}


class Handler(BaseHTTPRequestHandler):
    """One request; `issuer` is the address of both servers."""

    protocol_version = "HTTP/1.1"
    issuer = ""

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Metadata, and the login page."""
        path = urlsplit(self.path).path
        if path == f"{WELL_KNOWN}/oauth-protected-resource/mcp":
            self.send_json(200, {"resource": f"{self.issuer}/mcp", "authorization_servers": [self.issuer]})
        elif path == f"{WELL_KNOWN}/oauth-authorization-server":
            self.send_json(200, self.metadata())
        elif path == "/authorize":
            self.show_login()
        else:
            self.send_json(404, {"error": "not found"})

    def do_POST(self) -> None:
        """Messages of MCP, and the login."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        if path == "/mcp":
            self.answer_message(body)
        elif path == "/register":
            asked = json.loads(body)
            self.send_json(201, {"client_id": secrets.token_hex(8), "redirect_uris": asked["redirect_uris"]})
        elif path == "/authorize":
            self.log_in(fields(urlsplit(self.path).query))
        elif path == "/token":
            self.grant(fields(body.decode()))
        else:
            self.send_json(404, {"error": "not found"})

    def answer_message(self, body: bytes) -> None:
        """Answer a message of MCP, if it comes with a token."""
        if tokens.get(self.headers.get("Authorization", "").removeprefix("Bearer ")) is None:
            metadata = f"{self.issuer}{WELL_KNOWN}/oauth-protected-resource/mcp"
            return self.send_json(401, {}, {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'})
        response = tools.answer(json.loads(body))
        return self.send_json(202 if response is None else 200, response)

    def metadata(self) -> dict[str, Any]:
        """The authorization server (RFC 8414)."""
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }

    def show_login(self) -> None:
        """The page on which a person logs in; its button posts to the same address."""
        page = '<form method="post" action="{}"><h1>Weather</h1><button>Log in as Ada</button></form>'
        self.send(200, page.format(html.escape(self.path)).encode(), {"Content-Type": "text/html; charset=utf-8"})

    def log_in(self, asked: dict[str, str]) -> None:
        """Give a code to the client that sent the person here."""
        codes[code := secrets.token_urlsafe()] = asked
        query = urlencode({"code": code, "state": asked.get("state", ""), "iss": self.issuer})
        self.send(303, b"", {"Location": f"{asked['redirect_uri']}?{query}"})

    def grant(self, asked: dict[str, str]) -> None:
        """Give a token for a code, or for the robot's secret."""
        if asked.get("grant_type") == "client_credentials":
            user = "robot" if self.is_robot(asked) else None
        else:
            given = codes.pop(asked.get("code", ""), {})
            digest = hashlib.sha256(asked.get("code_verifier", "").encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            user = "Ada" if given.get("code_challenge") == challenge else None
        if user is None:
            return self.send_json(400, {"error": "invalid_grant"})
        tokens[token := secrets.token_urlsafe()] = user
        return self.send_json(200, {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME})

    def is_robot(self, asked: dict[str, str]) -> bool:
        """Whether the robot's id and secret came, in the form or in a header."""
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            client, _, secret = base64.b64decode(encoded).decode().partition(":")
        else:
            client, secret = asked.get("client_id", ""), asked.get("client_secret", "")
        wanted = os.environ.get("ROBOT_SECRET", "")
        return unquote(client) == "robot" and bool(wanted) and secrets.compare_digest(unquote(secret), wanted)

    def send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        """Send JSON; None is an empty body."""
        body = b"" if value is None else json.dumps(value).encode()
        self.send(status, body, {"Content-Type": "application/json", **(headers or {})})

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send a response."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def fields(query: str) -> dict[str, str]:
    """The fields of a form."""
    return {name: values[0] for name, values in parse_qs(query).items()}


listening = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
Handler.issuer = f"http://127.0.0.1:{listening.server_address[1]}"
print(f"{Handler.issuer}/mcp", flush=True)
with contextlib.suppress(KeyboardInterrupt):  # the kernel's interrupt reaches this process, too
    listening.serve_forever()

"""An MCP server behind a login, and the authorization server that grants it: standard library only.

In a test: `with running(Behaviour(...)) as server:`. From a shell, and from a kernel's test:

python oauth_server.py '{"issues_refresh_tokens": true}'     the first line on stderr is `http://127.0.0.1:PORT/mcp`

Both halves are on one port. A GET of the authorize page is a user in a browser, who consents at once, as configured.
"""

import base64
import contextlib
import dataclasses
import hashlib
import itertools
import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

WELL_KNOWN = "/.well-known"


@dataclass
class Behaviour:
    """The server's behaviour; may be changed while it runs."""

    resource_metadata_path: str | None = f"{WELL_KNOWN}/oauth-protected-resource/mcp"
    challenge_names_metadata: bool = True
    challenge: str | None = None
    """The whole `WWW-Authenticate` value, in place of the usual one; empty: none."""
    resource: str | None = None
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None
    resource_extra: dict[str, Any] = field(default_factory=dict)

    issuer_path: str = ""
    metadata_path: str | None = f"{WELL_KNOWN}/oauth-authorization-server"
    issuer: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    """Merged into the authorization server's metadata; null removes."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Paths that answer 302, and to where."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Paths that answer with an error."""
    pages: dict[str, str] = field(default_factory=dict)
    """Paths that answer with this HTML."""

    clients: dict[str, str | None] = field(default_factory=dict)
    """Registered clients and their secrets."""
    registers: bool = True
    registration_error: str | None = None
    gives_secrets: bool = False
    consent: str = "granted"
    """granted | denied | page (it shows a page and does not come back)."""
    sends_iss: str | None = "own"
    """own | None | any other value."""
    wrong_state: bool = False

    token_lifetime: float | None = 3600
    issues_refresh_tokens: bool = False
    rotates_refresh_tokens: bool = True
    refuses_refresh: bool = False
    token_error: dict[str, Any] | None = None
    answer_to_exchange: dict[str, Any] | None = None
    """An identity provider's answer to a token exchange."""
    refuses_tokens: bool = False
    grants_only: list[str] | None = None
    needs_scope: str | None = None
    """For anything."""
    needs_scope_to_call: str | None = None


@dataclass
class Request:
    """One request as it came."""

    method: str
    path: str
    fields: dict[str, str]
    headers: dict[str, str]


class OAuthServer(ThreadingHTTPServer):
    """Both halves, and what they remember."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behaviour = behaviour
        self.origin = f"http://127.0.0.1:{self.server_address[1]}"
        self.url = f"{self.origin}/mcp"
        self.requests: list[Request] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, set[str]] = {}
        self.refresh_tokens: dict[str, tuple[str, set[str]]] = {}
        self.numbers = itertools.count(1)
        self.capabilities: dict[str, Any] = {}
        """Of the last client that opened a session."""
        self.lock = threading.Lock()

    @property
    def issuer(self) -> str:
        return self.behaviour.issuer or self.origin + self.behaviour.issuer_path

    def seen(self, path: str) -> list[Request]:
        """The requests for a path so far."""
        return [request for request in self.requests if request.path == path]

    def handle_error(self, request: object, client_address: object) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    server: OAuthServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.serve("GET", b"")

    def do_POST(self) -> None:
        self.serve("POST", self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def do_DELETE(self) -> None:
        self.answer(405)

    def serve(self, method: str, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        server, behaviour = self.server, self.server.behaviour
        if self.headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded"):
            query = body.decode()
        fields = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
        server.requests.append(Request(method, path, fields, {k.lower(): v for k, v in self.headers.items()}))
        prefix = behaviour.issuer_path
        if path in behaviour.redirects:
            self.answer(302, headers={"Location": behaviour.redirects[path]})
        elif path in behaviour.statuses:
            self.answer(behaviour.statuses[path])
        elif path in behaviour.pages:
            self.answer(200, behaviour.pages[path].encode(), {"Content-Type": "text/html"})
        elif path == "/mcp":
            self.mcp(method, body)
        elif method == "GET" and path == behaviour.resource_metadata_path:
            self.answer_json(200, self.resource_metadata())
        elif method == "GET" and path == behaviour.metadata_path:
            self.answer_json(200, self.server_metadata())
        elif method == "GET" and path == f"{prefix}/authorize":
            self.authorize(fields)
        elif method == "POST" and path == f"{prefix}/token":
            with server.lock:
                self.token(fields)
        elif method == "POST" and path == f"{prefix}/register" and behaviour.registers:
            self.register(json.loads(body))
        else:
            self.answer(404, b"not found")

    # -- the authorization server ------------------------------------------------------------------------------------

    def resource_metadata(self) -> dict[str, Any]:
        server, behaviour = self.server, self.server.behaviour
        document: dict[str, Any] = {
            "resource": behaviour.resource or server.url,
            "authorization_servers": behaviour.authorization_servers or [server.issuer],
        }
        if behaviour.scopes_supported is not None:
            document["scopes_supported"] = behaviour.scopes_supported
        return document | behaviour.resource_extra

    def server_metadata(self) -> dict[str, Any]:
        server, behaviour = self.server, self.server.behaviour
        base = server.origin + behaviour.issuer_path
        document = {
            "issuer": server.issuer,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "registration_endpoint": f"{base}/register" if behaviour.registers else None,
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
            **behaviour.metadata,
        }
        return {name: value for name, value in document.items() if value is not None}

    def register(self, asked: dict[str, Any]) -> None:
        server, behaviour = self.server, self.server.behaviour
        server.requests[-1].fields.update({name: json.dumps(value) for name, value in asked.items()})
        if behaviour.registration_error is not None:
            self.answer_json(400, {"error": behaviour.registration_error, "error_description": "not here"})
            return
        client = f"client-{next(server.numbers)}"
        secret = f"secret-of-{client}" if behaviour.gives_secrets else None
        behaviour.clients[client] = secret
        proof = {"client_secret": secret, "token_endpoint_auth_method": "client_secret_post"} if secret else {}
        self.answer_json(201, asked | {"client_id": client} | proof)

    def authorize(self, fields: dict[str, str]) -> None:
        server, behaviour = self.server, self.server.behaviour
        known = fields.get("client_id", "") in behaviour.clients or fields.get("client_id", "").startswith("https://")
        if not known or behaviour.consent == "page":
            self.answer(400, b"<h1>unknown client</h1>", {"Content-Type": "text/html"})
            return
        answer = {"state": "another" if behaviour.wrong_state else fields["state"]}
        if behaviour.sends_iss is not None:
            answer["iss"] = server.issuer if behaviour.sends_iss == "own" else behaviour.sends_iss
        if behaviour.consent == "denied":
            answer |= {"error": "access_denied", "error_description": "the user said no"}
        else:
            answer["code"] = f"code-{next(server.numbers)}"
            server.codes[answer["code"]] = fields
        self.answer(302, headers={"Location": f"{fields['redirect_uri']}?{urlencode(answer)}"})

    def token(self, fields: dict[str, str]) -> None:
        server, behaviour = self.server, self.server.behaviour
        client = self.client(fields)
        if behaviour.answer_to_exchange is not None:
            self.answer_json(400 if "error" in behaviour.answer_to_exchange else 200, behaviour.answer_to_exchange)
            return
        if behaviour.token_error is not None:
            self.answer_json(400, behaviour.token_error)
            return
        if client is None:
            self.answer_json(401, {"error": "invalid_client"})
            return
        scopes = set(fields.get("scope", "").split())
        if fields["grant_type"] == "authorization_code":
            asked = server.codes.pop(fields["code"], None)
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            proven = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if asked is None or asked["client_id"] != client or asked["code_challenge"] != proven:
                self.answer_json(400, {"error": "invalid_grant"})
                return
            scopes = set(asked.get("scope", "").split())
        elif fields["grant_type"] == "refresh_token":
            held = server.refresh_tokens.get(fields["refresh_token"])
            if held is None or held[0] != client or behaviour.refuses_refresh:
                self.answer_json(400, {"error": "invalid_grant", "error_description": "it has expired"})
                return
            scopes = held[1]
            if behaviour.rotates_refresh_tokens:
                del server.refresh_tokens[fields["refresh_token"]]
        if behaviour.grants_only is not None:
            scopes &= set(behaviour.grants_only)
        self.answer_json(200, self.issue(client, scopes))

    def issue(self, client: str, scopes: set[str]) -> dict[str, Any]:
        server, behaviour = self.server, self.server.behaviour
        token = f"access-token-{next(server.numbers)}"
        server.tokens[token] = scopes
        answer: dict[str, Any] = {"access_token": token, "token_type": "Bearer"}
        if behaviour.token_lifetime is not None:
            answer["expires_in"] = behaviour.token_lifetime
        if scopes:
            answer["scope"] = " ".join(sorted(scopes))
        if behaviour.issues_refresh_tokens:
            answer["refresh_token"] = f"refresh-token-{next(server.numbers)}"
            server.refresh_tokens[answer["refresh_token"]] = (client, scopes)
        return answer

    def client(self, fields: dict[str, str]) -> str | None:
        """The client of a request, if its credentials are right."""
        clients = self.server.behaviour.clients
        kind, _, pair = self.headers.get("Authorization", "").partition(" ")
        if kind == "Basic":
            name, _, secret = base64.b64decode(pair).decode().partition(":")
            name, secret = unquote(name), unquote(secret)
        else:
            name, secret = fields.get("client_id", ""), fields.get("client_secret", "")
        if "client_assertion" in fields:
            name = json.loads(_unpadded(fields["client_assertion"].split(".")[1]))["sub"]
            secret = clients.get(name) or ""
        if name.startswith("https://"):
            return name
        return name if name in clients and (clients[name] or "") == secret else None

    # -- the MCP server ----------------------------------------------------------------------------------------------

    def mcp(self, method: str, body: bytes) -> None:
        server, behaviour = self.server, self.server.behaviour
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in server.tokens or behaviour.refuses_tokens:
            self.challenge(401, behaviour.needs_scope, 'error="invalid_token"' if token else "")
            return
        if method == "GET":
            self.answer(405)
            return
        message = json.loads(body)
        needed = [behaviour.needs_scope, behaviour.needs_scope_to_call if message["method"] == "tools/call" else None]
        for scope in needed:
            if scope is not None and scope not in server.tokens[token]:
                self.challenge(403, scope, 'error="insufficient_scope"')
                return
        if "id" not in message:
            self.answer(202)
            return
        self.answer_json(200, {"jsonrpc": "2.0", "id": message["id"], **self.result(message)})

    def result(self, message: dict[str, Any]) -> dict[str, Any]:
        match message["method"]:
            case "initialize":
                self.server.capabilities = message["params"]["capabilities"]
                version = message["params"]["protocolVersion"]
                info = {"name": "behind-a-login", "version": "1"}
                return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
            case "tools/list":
                schema = {"type": "object", "properties": {}}
                return {"result": {"tools": [{"name": "whoami", "description": "Who.", "inputSchema": schema}]}}
            case "tools/call":
                return {"result": {"content": [{"type": "text", "text": "you are logged in"}]}}
            case "ping":
                return {"result": {}}
            case _:
                return {"error": {"code": -32601, "message": "no such method"}}

    def challenge(self, status: int, scope: str | None, error: str) -> None:
        behaviour = self.server.behaviour
        parts = [error] if error else []
        if scope is not None:
            parts.append(f'scope="{scope}"')
        if behaviour.challenge_names_metadata and behaviour.resource_metadata_path is not None:
            parts.append(f'resource_metadata="{self.server.origin}{behaviour.resource_metadata_path}"')
        value = " ".join(["Bearer", ", ".join(parts)]) if behaviour.challenge is None else behaviour.challenge
        self.answer(status, b"{}", {"WWW-Authenticate": value} if value else {})

    def answer_json(self, status: int, value: Any) -> None:
        self.answer(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


@contextlib.contextmanager
def running(behaviour: Behaviour | None = None) -> Iterator[OAuthServer]:
    """A server in a thread."""
    server = OAuthServer(behaviour or Behaviour())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    server = OAuthServer(dataclasses.replace(Behaviour(), **settings))
    print(server.url, file=sys.stderr, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

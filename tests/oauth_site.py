"""An authorization server without a network: answers that a test lays out, and what was asked of it."""

import json
from typing import Any
from urllib.parse import parse_qs

from ipymcp.protocol.transports.addresses import Zone

ISSUER = "https://auth.example"


class Site:
    """Answers by URL; whatever it does not know is not found. Remembers what was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers.pop("answers", {}) | answers
        self.asked: list[str] = []
        self.bodies: list[dict[str, list[str]]] = []
        self.headers: list[dict[str, str]] = []

    async def __call__(
        self, method: str, url: str, headers: Any, body: bytes, *, reach: Zone
    ) -> tuple[int, dict[str, str], bytes]:
        self.asked.append(url)
        self.bodies.append(parse_qs(body.decode()))
        self.headers.append(dict(headers))
        answer = self.answers.get(url, 404)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return answer, {}, b""
        if isinstance(answer, str):
            return 302, {"location": answer}, b""
        return 200, {}, answer if isinstance(answer, bytes) else json.dumps(answer).encode()

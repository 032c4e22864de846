"""What may be asked over REST, below a server's base URL: all that reads, all that changes something."""

from __future__ import annotations

from typing import Any

SECRET = "hunter2-hunter2"
CHANGES: list[tuple[str, str, Any]] = [
    ("PUT", "ipymcp/secrets/name", {"value": SECRET}),
    ("DELETE", "ipymcp/secrets/name", None),
    ("PUT", "ipymcp/config/servers/fs", {"definition": {"command": "x"}}),
    ("PATCH", "ipymcp/config/servers/fs", {"change": {"args": []}}),
    ("DELETE", "ipymcp/config/servers/fs", None),
    ("POST", "ipymcp/config/check", {"name": "fs", "definition": {"command": "x"}}),
    ("DELETE", f"ipymcp/trust/{'0' * 64}", None),
    ("POST", "ipymcp/oauth/redirected", {"state": "s", "code": "c"}),
]
READS = ["ipymcp/sessions", "ipymcp/config", "ipymcp/secrets", "ipymcp/trust"]

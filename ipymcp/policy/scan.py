"""The quick look at what servers say of their tools; what is not certainly harmless gets the long one (findings.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.policy.findings import Finding
    from ipymcp.protocol.wire import ToolDefinition

__all__ = ["MOST_TEXT", "is_plain", "scan"]

MOST_TEXT = 200_000
"""Characters of one definition beyond which only its beginning is looked through."""
_TRIGGERS = (
    *("<", "ignore", "disregard", "forget", "override"),
    *("do not", "don't", "never", "without", "hid", "conceal", "secret"),
    *(".ssh", ".aws", ".gnupg", ".netrc", ".kube", ".docker", "id_", "/etc/", "mcp.json", ".env"),
    *("before", "after", "instead of", "whenever", "every time", "each time"),
    *("system prompt", "you are now", "new instructions"),
    *("pass", "key", "token", "credential", "cvv", "ssn", "mnemonic", "seed", "writeonly"),
)
"""Without one of these in it, in small letters, no text matches a pattern that looks for words."""
_ENCODED = bytes(byte if chr(byte).isalnum() or byte in b"+/" else 32 for byte in range(128)).ljust(256)
_LONGEST_WORD = 119


def scan(server: str, tools: Iterable[ToolDefinition]) -> tuple[Finding, ...]:
    """What is conspicuous in the definitions of a server's tools."""
    suspects = [tool for tool in tools if not is_plain(tool)]
    if not suspects:
        return ()
    from ipymcp.policy.findings import findings  # its patterns take 5 ms to compile

    return tuple(finding for tool in suspects for finding in findings(f"{server}.{tool.name}", tool))


def is_plain(definition: ToolDefinition) -> bool:
    """Whether there is certainly nothing: one quick look at all of it, and most of ten thousand tools need no more."""
    said = f"{definition.name} {definition.title} {definition.description}"
    raw = b" ".join((bytes(definition.inputSchema), bytes(definition.outputSchema), bytes(definition.annotations)))
    if not (said.isascii() and said.isprintable() and raw.isascii()) or raw.find(b"\\") >= 0:
        return False
    whole = f"{said} {raw.decode()}"
    if len(whole) > MOST_TEXT or " " * 80 in whole:
        return False
    if max(map(len, whole.encode().translate(_ENCODED).split())) > _LONGEST_WORD:
        return False
    small = " ".join(whole.lower().split())
    return not any(word in small for word in _TRIGGERS)

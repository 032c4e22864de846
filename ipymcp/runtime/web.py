"""Addresses that users are asked to visit."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["domain", "is_web_address"]


def is_web_address(url: str) -> bool:
    """Whether a user may be asked to visit it: what a browser opens, with nothing in it that hides the rest."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def domain(url: str) -> str:
    """Its host as a browser shows it, and in plain letters where it has others: those only look like a known one."""
    host = urlsplit(url).hostname or ""
    try:
        plain = host.encode("idna").decode()
    except UnicodeError:
        plain = ascii(host)
    return host if plain == host else f"{host} ({plain})"

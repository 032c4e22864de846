"""What a server says when it turns a request away: the `WWW-Authenticate` header (RFC 9110 section 11.6.1).

One header may hold several challenges, separated by the same commas as their parameters; a value may be quoted and
hold commas itself. Real servers bend the grammar, so whatever cannot be read is skipped, never an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Challenge", "Demand", "demand", "parse", "scope_tokens"]

_LONGEST = 16_384
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*+)"?|([^\s,"=][^\s,"]*+))(?=[\s,]|$)', re.DOTALL)
_SCHEME = re.compile(rf"\s*({_TOKEN})(?=[\s,]|$)")
_TOKEN68 = re.compile(r"[ \t]+[A-Za-z0-9._~+/-]+=*\s*(?=,|$)")
_REST = re.compile(r"[^,]*")
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in that the server offers."""

    scheme: str
    """In lower case, such as `bearer`."""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    """By names in lower case; of a name that comes twice, the first."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the challenges of one answer ask for, taken together."""

    resource_metadata: str | None = None
    """Where the server says its metadata is (RFC 9728 section 5.1)."""
    scopes: tuple[str, ...] = ()
    error: str | None = None
    """Such as `invalid_token` or `insufficient_scope` (RFC 6750 section 3.1)."""


def parse(values: Sequence[str]) -> list[Challenge]:
    """The challenges in `WWW-Authenticate` headers, in order."""
    return [challenge for value in values for challenge in _challenges(value[:_LONGEST])]


def demand(values: Sequence[str]) -> Demand:
    """What `WWW-Authenticate` headers ask of an OAuth client; Bearer challenges come first."""
    ordered = sorted(parse(values), key=lambda challenge: challenge.scheme != "bearer")

    def first(name: str) -> str | None:
        return next((c.parameters[name] for c in ordered if c.parameters.get(name)), None)

    return Demand(first("resource_metadata"), scope_tokens((first("scope") or "").split(" ")), first("error"))


def scope_tokens(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that are scopes (RFC 6749 section 3.3), each once; a question shows them to the user."""
    return tuple(dict.fromkeys(name for name in names if _SCOPE.fullmatch(name)))


def _challenges(text: str) -> Iterator[Challenge]:
    position = 0
    scheme: str | None = None
    parameters: dict[str, str] = {}
    while position < len(text):
        if text[position] in ", \t\r\n":
            position += 1
        elif scheme is not None and (found := _PARAMETER.match(text, position)):
            name, quoted, plain = found.groups()
            parameters.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
            position = found.end()
        elif found := _SCHEME.match(text, position):
            if scheme is not None:
                yield Challenge(scheme, parameters)
            scheme, parameters = found[1].lower(), {}
            position = found.end()
            if not _PARAMETER.match(text, position) and (token68 := _TOKEN68.match(text, position)):
                position = token68.end()
        else:
            position = max(_REST.match(text, position).end(), position + 1)  # pyright: ignore[reportOptionalMemberAccess]
    if scheme is not None:
        yield Challenge(scheme, parameters)

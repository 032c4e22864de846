"""Keeps secrets out of all that ipymcp itself writes: logs, errors, tracebacks, displays, what is kept.

Whoever learns of a secret adds it; whoever writes passes the text through `mask`. There is one list for the process: an
error or a table does not know whose secret it holds. A tool's result in Python is never altered.

What is short is not masked (it would be found everywhere), nor what was transformed in other ways than `_forms` knows.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


LABEL: Final = "[secret]"
MIN_LENGTH: Final = 8
_LEAST_PART = 4
"""Characters of a secret that may stand beside a `…` where a text was cut."""
_MAX_CUTS = 20
_PLAIN = re.compile(r"[A-Za-z0-9]*")
_SECRET_NAME = re.compile(
    r"(?:passw(?:or)?d|passphrase|(?:^|[_-])(?:token|secret|pass|credentials?|authorization|bearer|auth|cookie|pat|dsn|jwt"
    r"|sig|signature|connection[_-]?string|(?:api|access|secret|private)keys?))(?:_?\d+|[_-](?:value|header|base64|b64))?$"
    r"|[_-]pwd$|(?:^|(?<!public)[_-])key(?:_?\d+)?$",
    re.IGNORECASE,
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def looks_secret(name: str) -> bool:
    """Whether what goes by this name (a variable, a header, a parameter) is likely a secret."""
    return _SECRET_NAME.search(_CAMEL.sub("_", name)) is not None


class Masks:
    """Secrets, in every form in which they may turn up. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._forms: tuple[str, ...] = ()
        """The longest first, so that a form within another leaves nothing of it."""

    def add(self, *values: str | None) -> None:
        """From now on these are masked; those under 8 characters are not."""
        lines = {line.strip() for value in values if value for line in value.splitlines()}
        new = {line for line in lines if len(line) >= MIN_LENGTH} - self._values
        if not new:
            return
        with self._lock:
            self._values |= new
            forms = {*self._forms, *(form for value in new for form in _forms(value))}
            self._forms = tuple(sorted(forms, key=len, reverse=True))

    @property
    def count(self) -> int:
        """How many there are: what was masked before has to be masked anew when there are more."""
        return len(self._values)

    def __call__(self, text: str) -> str:
        """The text with a label for every secret in it, also for the rest of one that `…` has cut."""
        if not self._forms or len(text) < _LEAST_PART:
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, LABEL)
        return self._without_parts(text) if "…" in text else text

    def head(self, text: str, length: int) -> str:
        """The first characters of a text, masked before it is cut."""
        if not self._forms:
            return text[:length]
        return self(text[: length + self.longest])[:length]

    @property
    def longest(self) -> int:
        """Characters of the longest form: what has to be read beyond a cut to mask what it cuts."""
        return len(self._forms[0]) if self._forms else 0

    def json(self, value: Any) -> Any:
        """A JSON value with every text in it masked, and every number that is a secret."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self(value)
        if type(value) is int or type(value) is float:
            return LABEL if str(value) in self._values else value
        if isinstance(value, dict):
            return {self.json(key): self.json(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return value

    def _without_parts(self, text: str) -> str:
        before, *others = text.split("…", _MAX_CUTS)
        parts = [before, *others]
        for index, part in enumerate(parts):
            if index < len(parts) - 1:
                part = self._without_end(part)
            parts[index] = self._without_start(part) if index else part
        return "…".join(parts)

    def _without_end(self, text: str) -> str:
        cut = max((_overlap(text, form) for form in self._forms), default=0)
        return text[: len(text) - cut] + LABEL if cut >= _LEAST_PART else text

    def _without_start(self, text: str) -> str:
        cut = max((_overlap(form, text) for form in self._forms), default=0)
        return LABEL + text[cut:] if cut >= _LEAST_PART else text


masks: Final = Masks()
"""Those of this process."""
mask: Final = masks


def _overlap(left: str, right: str) -> int:
    """How many characters at the end of one text are the beginning of the other."""
    for size in range(min(len(left), len(right) - 1), _LEAST_PART - 1, -1):
        if left.endswith(right[:size]):
            return size
    return 0


def _forms(value: str) -> Iterator[str]:
    """A secret as it stands, and as JSON, `repr`, HTML, URLs and base64 have it."""
    yield value
    yield from _base64(value.encode("utf-8", "surrogatepass"))
    if _PLAIN.fullmatch(value):
        return  # all others are the same
    import html
    import json
    from urllib.parse import quote, quote_plus

    escaped = [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    escaped += [json.dumps(text)[1:-1] for text in escaped]  # JSON in JSON
    escaped += [text.replace("/", "\\/") for text in escaped]
    for text in escaped:
        yield text
        yield _with_lower_unicode(text)
        yield _with_upper_unicode(text)
        for characters in ("<>&", "'", "+"):  # Go escapes the first three, others more
            for character in characters:
                text = text.replace(character, f"\\u{ord(character):04x}")
            yield text
            yield _with_upper_unicode(text)
    yield from _quoted(repr(value)[1:-1])
    yield from _quoted(ascii(value)[1:-1])
    yield from _quoted(repr(value.encode("utf-8", "surrogatepass"))[2:-1])
    yield html.escape(value, quote=False)
    for apostrophe in ("&#x27;", "&#39;", "&apos;"):
        yield html.escape(value).replace("&#x27;", apostrophe)
    for safe in ("", "/", "!'()*", "/!'()*:@$&+,;=?", "~"):
        for text in (quote(value, safe=safe, errors="replace"), quote_plus(value, safe=safe, errors="replace")):
            yield text
            yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), text)


def _quoted(text: str) -> Iterable[str]:
    """A `repr` within either quotes."""
    plain = text.replace("\\'", "'")
    return text, plain, plain.replace("'", "\\'"), plain.replace('"', '\\"')


def _with_upper_unicode(text: str) -> str:
    return re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), text)


def _with_lower_unicode(text: str) -> str:
    return re.sub(r"\\u[0-9A-F]{4}", lambda found: found[0].lower(), text)


def _base64(data: bytes) -> Iterator[str]:
    """The characters of base64 that these bytes alone decide, wherever in a longer text they begin."""
    import base64

    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data).decode()
        first, last = -(-8 * offset // 6), 8 * (offset + len(data)) // 6
        core = encoded[first:last]
        yield core
        yield core.translate({ord("+"): "-", ord("/"): "_"})

"""Secret masking for all text that ipymcp writes: logs, errors, tracebacks, displays, databases.

All secrets are in one list for the process, because errors and tables do not know where their text comes from. A mask
has an origin. The user's secrets are masked everywhere by `masks`. What a server has chosen (tokens, the secret of a
registration) is masked in logs, errors and files only, by `mask`, which masks both: in a display it could hide what the
user has to see, and in a question what the user agrees to. A tool's result in Python is never altered. Secrets of fewer
than 8 characters are not masked (they would match everywhere), nor are encodings that `_forms` does not produce.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


LABEL: Final = "[secret]"
MIN_LENGTH: Final = 8
_MIN_PART = 4
"""Minimum number of characters of a secret that are masked next to a `…`, where a string was cut."""
_MAX_CUTS = 20
_PLAIN = re.compile(r"[A-Za-z0-9]*")
_SECRET_NAME = re.compile(
    r"(?:passw(?:or)?d|passphrase|(?:^|[_-])(?:token|secret|pass|credentials?|authorization|bearer|auth|cookie|pat|dsn|jwt"
    r"|sig|signature|connection[_-]?string|(?:api|access|secret|private)keys?))(?:_?\d+|[_-](?:value|header|base64|b64))?$"
    r"|[_-]pwd$|(?:^|(?<!public)[_-])key(?:_?\d+)?$",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"[!-~]{8,8192}")
"""The form of tokens: printable characters without blanks (RFC 6749, appendix A)."""
_MIN_DISTINCT = 6
"""Minimum number of different characters in a token; fewer are a word or a filler."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def looks_secret(name: str) -> bool:
    """Return whether a variable, header or parameter of this name likely contains a secret."""
    return _SECRET_NAME.search(_CAMEL.sub("_", name)) is not None


class Masks:
    """The secrets of this process in all encodings. Thread-safe.

    Args:
        wider: Masks that get these secrets, too.
    """

    def __init__(self, wider: Masks | None = None) -> None:
        self._wider = wider
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all secrets."""
        if self._wider is not None:
            self._wider.clear()
        self._values: set[str] = set()
        self._forms: tuple[str, ...] = ()
        """Longest first, so that a form within another is replaced as a whole."""

    def add(self, *values: str | None) -> None:
        """Mask these secrets of the user from now on, line by line; lines under 8 characters are ignored."""
        lines = {line.strip() for value in values if value for line in value.splitlines()}
        self._add({line for line in lines if len(line) >= MIN_LENGTH})
        if self._wider is not None:
            self._wider.add(*values)

    def add_tokens(self, *values: str | None) -> None:
        """Mask these strings, which a server has chosen, as a whole; those that do not look like tokens are ignored."""
        self._add({value for value in values if value and _TOKEN.fullmatch(value) and len({*value}) >= _MIN_DISTINCT})

    def _add(self, values: set[str]) -> None:
        new = values - self._values
        if not new:
            return
        with self._lock:
            self._values |= new
            forms = {*self._forms, *(form for value in new for form in _forms(value))}
            self._forms = tuple(sorted(forms, key=len, reverse=True))

    @property
    def count(self) -> int:
        """Number of secrets; if it has grown, text that was masked before must be masked again."""
        return len(self._values)

    def __call__(self, text: str) -> str:
        """Replace every secret in a string with a label, including parts cut off by a `…`."""
        if not self._forms or len(text) < _MIN_PART:
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, LABEL)
        return self._without_parts(text) if "…" in text else text

    def head(self, text: str, length: int) -> str:
        """Mask a string, then cut it to a length."""
        if not self._forms:
            return text[:length]
        return self(text[: length + self.longest])[:length]

    @property
    def longest(self) -> int:
        """Length of the longest form: the number of characters to read beyond a cut to mask it reliably."""
        return len(self._forms[0]) if self._forms else 0

    def json(self, value: Any) -> Any:
        """Mask all strings in a JSON value, and numbers that are secrets."""
        if not self._forms:
            return value
        if isinstance(value, str):
            return self(value)
        if type(value) is int or type(value) is float:
            return LABEL if str(value) in self._values else value
        if isinstance(value, dict):
            members: dict[Any, Any] = {}
            for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
                masked = name = self.json(key)
                number = len(members)
                while name in members:  # two names may be equal once they are masked
                    number += 1
                    name = f"{masked} ({number})"
                members[name] = self.json(item)
            return members
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
        return text[: len(text) - cut] + LABEL if cut >= _MIN_PART else text

    def _without_start(self, text: str) -> str:
        cut = max((_overlap(form, text) for form in self._forms), default=0)
        return LABEL + text[cut:] if cut >= _MIN_PART else text


mask: Final = Masks()
"""The user's secrets, and the tokens that servers have chosen: for logs, errors and files."""
masks: Final = Masks(mask)
"""The user's secrets: for displays and questions."""


def _overlap(left: str, right: str) -> int:
    """Return the length of the longest end of one string that is the beginning of the other."""
    for size in range(min(len(left), len(right) - 1), _MIN_PART - 1, -1):
        if left.endswith(right[:size]):
            return size
    return 0


def _forms(value: str) -> Iterator[str]:
    """Iterate over the encodings of a secret: JSON, `repr`, HTML, URLs and base64."""
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
    """Iterate over the forms of a `repr` in either quotes."""
    plain = text.replace("\\'", "'")
    return text, plain, plain.replace("'", "\\'"), plain.replace('"', '\\"')


def _with_upper_unicode(text: str) -> str:
    return re.sub(r"\\u[0-9a-f]{4}", lambda found: "\\u" + found[0][2:].upper(), text)


def _with_lower_unicode(text: str) -> str:
    return re.sub(r"\\u[0-9A-F]{4}", lambda found: found[0].lower(), text)


def _base64(data: bytes) -> Iterator[str]:
    """Iterate over the base64 characters that depend only on these bytes, at any offset in longer data."""
    import base64

    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + data).decode()
        first, last = -(-8 * offset // 6), 8 * (offset + len(data)) // 6
        core = encoded[first:last]
        yield core
        yield core.translate({ord("+"): "-", ord("/"): "_"})

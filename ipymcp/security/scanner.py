"""Scanner for suspicious tool definitions: a quick check of every text, and a thorough one of those that fail it."""

from __future__ import annotations

import itertools
import re
import unicodedata
from typing import TYPE_CHECKING

from msgspec import Struct

from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ipymcp.protocol.types import ToolDefinition


MAX_TEXT = 200_000
"""Maximum number of characters of one definition that are scanned."""
_ENCODED = bytes(byte if chr(byte).isalnum() or byte in b"+/" else 32 for byte in range(128)).ljust(256)
_MAX_WORD = 119
_MAX_LINES = 12


def scan(server: str, tools: Iterable[ToolDefinition]) -> tuple[Finding, ...]:
    """Return the findings in the definitions of a server's tools."""
    suspects = (tool for tool in tools if not is_plain(tool))
    return tuple(finding for tool in suspects for finding in findings(f"{server}.{tool.name}", tool))


def is_plain(definition: ToolDefinition) -> bool:
    """Whether a quick check proves that a definition has no findings."""
    texts = f"{definition.name} {definition.title} {definition.description}"
    raw = b" ".join((bytes(definition.inputSchema), bytes(definition.outputSchema), bytes(definition.annotations)))
    if not (texts.isascii() and texts.isprintable() and raw.isascii()) or raw.find(b"\\") >= 0:
        return False
    whole = f"{texts} {raw.decode()}"
    return _has_no_trigger(whole)


def is_plain_text(text: str, triggers: Sequence[str] | None = None) -> bool:
    """Whether a quick check proves that nothing in a text is suspicious.

    Args:
        text: The text.
        triggers: Those of all triggers that may be in the text; by default all.
    """
    line = text.replace("\n", " ").replace("\t", " ")
    return line.isascii() and line.isprintable() and text.count("\n") < _MAX_LINES and _has_no_trigger(line, triggers)


def _has_no_trigger(line: str, triggers: Sequence[str] | None = None) -> bool:
    if len(line) > MAX_TEXT or " " * 80 in line:
        return False
    if max(map(len, line.encode().translate(_ENCODED).split()), default=0) > _MAX_WORD:
        return False
    lowered = " ".join(line.lower().split())
    return not any(word in lowered for word in (_TRIGGERS if triggers is None else triggers))


_MAX_DEPTH = 12
_EXCERPT = 60
# Zero-width and joining characters, fillers, variation selectors, tags (invisible ASCII).
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U000e0000-\U000e0fff]"
)
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Each pattern with lower-case substrings, one of which is in every text that it matches. The patterns are strings,
# which are compiled at their first use: this takes 5 ms, and the tools of most servers need only the quick check.
_INSTRUCTIONS = (
    (("<",), r"<\s*+/?\s*+(important|system|secret|instructions?|hidden|admin)\b[^<>]*+>", "a tag for models"),
    (("<",), r"<!--", "a comment that is not displayed"),
    (
        ("ignore", "disregard", "forget", "override"),
        r"\b(ignore|disregard|forget|override)\b.{0,30}\b(previous|prior|above|earlier|other|all)\b",
        "tells a model to ignore what it was told",
    ),
    (
        ("do not", "don't", "never", "without", "hid", "conceal", "secret"),
        (
            r"\b(do not|don't|never|without)\b.{0,20}\b(tell(ing)?|mention(ing)?|inform(ing)?|reveal(ing)?|show(ing)?"
            r"|notify(ing)?|alert(ing)?)\b.{0,20}\b(the )?users?\b"
            r"|\b(hide|hidden|conceal(ed)?|secret)\b.{0,20}\bfrom (the )?users?\b|\bsecretly\b"
            r"|\bwithout (the )?users?('s|s')? (knowledge|consent|permission|noticing|knowing)"
        ),
        "tells a model to hide something from the user",
    ),
    (
        (".ssh", ".aws", ".gnupg", ".netrc", ".kube", ".docker", "id_", "/etc/", "mcp.json", ".env"),
        (
            r"(~/|\$HOME/|/home/|/root/)?\.(ssh|aws|gnupg|netrc|kube|docker)\b|\bid_(rsa|ed25519)\b|/etc/(passwd|shadow)"
            r"|\bmcp\.json\b|(^|[\s\"'`(])\.env\b"
        ),
        "names a file with secrets",
    ),
    (
        ("before", "after", "instead of", "whenever", "every time", "each time"),
        (
            # what must be done before the tool's own call, such as to read a file's hash, is usual in documentation
            r"\b(?!before (you )?(us(e|ing)|call(ing)?|invok(e|ing)) (this( tool| function| command)?|it)\b"
            r"(?!.{0,200}\b(pass|send|includ|attach|cop(y|i)|past|forward|upload|append|add)(e|ing)?\b.{0,60}"
            r"\b(contents?|conversation|history|messages?|chat|prompts?|everything|parameters?|arguments?)\b))"
            r"(before|after|instead of|whenever|every time|each time)\b.{0,40}\b(us(e|ing)|call(ing)?|invok(e|ing))\b"
            r".{0,60}\b(you )?(must|always|first|have to)\b"
            r"|\bbefore ((us(e|ing)|call(ing)?|invok(e|ing)) )?(any|every|all)( other)? tools?\b"
        ),
        "tells a model what to do around other calls",
    ),
    (
        ("system prompt", "you are now", "new instructions"),
        r"\b(system prompt|you are now|new instructions)\b",
        "addresses a model as its operator",
    ),
    (("",), r"[A-Za-z0-9+/]{120,}={0,2}", "a long encoded text"),
)
_TRIGGERS = (
    *dict.fromkeys(trigger for triggers, _, _ in _INSTRUCTIONS for trigger in triggers if trigger),
    *("pass", "key", "token", "credential", "cvv", "ssn", "mnemonic", "seed", "writeonly"),
)
"""Lower-case substrings, one of which is in every text that matches a pattern for words."""
_SECRET = (
    r"(^|_)((sudo|root|master|keychain|wallet|login|email|bank)_pass(word|wd|phrase)?|secret|api_?key|private_?key|ssh_?key|access_?key|(access|auth|refresh|bearer|session"
    r"|api|github|gitlab|slack|bot|oauth|id)_?token|credentials?|cvv|ssn|mnemonic|seed_?phrase)($|_)"
)
_PASSWORD = r"(^|_)pass(word|wd|phrase)?($|_)"
"""Parameters whose value may well be the password of what the tool works on: a document, an archive, a database."""
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"
_BLANK = re.compile(r"(\s+)")
_MIXED = re.compile(r"[A-Za-z]")
_PADDING = re.compile(r"[^\S\n]{80}|(\s*\n){12}")
# Cyrillic and Greek letters that look like Latin ones.
_LATIN = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u043a\u043c\u0442\u0432\u043d\u0433"
    "\u03b1\u03bf\u03c1\u03c4\u03c5\u03bd\u03ba\u03b9"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0405\u0406\u0408",
    "aeopcyxijsdhkmtbhraoptuvkiABEZHIKMNOPTYXABEKMHOPCTXSIJ",
)
_DIGITS = str.maketrans("01", "ol")


class Finding(Struct, frozen=True):
    """A suspicious part of a tool definition.

    Attributes:
        tool: The tool as `server.tool`.
        where: Path of the part, such as `inputSchema.properties.path.description`.
        what: Description of the finding, with an excerpt if possible.
    """

    tool: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.tool}: {self.where}: {self.what}"


def findings(name: str, definition: ToolDefinition) -> list[Finding]:
    """Return the findings in one definition, by a thorough check."""
    texts = [
        ("name", definition.name),
        ("title", definition.title or ""),
        ("description", definition.description or ""),
    ]
    for part in ("inputSchema", "outputSchema", "annotations"):
        raw = getattr(definition, part)
        if len(raw):
            texts.extend(_texts(types.loads(raw), part, _MAX_DEPTH))
    whole = " ".join(" ".join(text for _, text in texts).lower().split())
    triggers = [word for word in _TRIGGERS if word in whole]
    plain = {text for text in {text for _, text in texts} if is_plain_text(text, triggers)}
    texts = [(where, text) for where, text in texts if text not in plain]
    suspects = [Finding(name, where, what) for where, text in texts for what in suspicious(text[:MAX_TEXT])]
    suspects += [
        Finding(name, where, f"too long to be scanned: {len(text):,} characters")
        for where, text in texts
        if len(text) > MAX_TEXT
    ]
    schema = types.loads(definition.inputSchema)
    suspects += [Finding(name, where, f"asks for a secret: {_excerpt(key)}") for where, key in _secrets(schema)]
    return suspects


def look_alikes(servers: Mapping[str, Iterable[str]]) -> list[Finding]:
    """Return the names of different servers, or of their tools, that look alike to a person.

    Args:
        servers: Tool names by server.
    """
    named: dict[str, list[str]] = {}
    for server in servers:
        named.setdefault(skeleton(server), []).append(server)
    suspects = [
        Finding(other, "name", f"looks like the server {_with_escapes(server)}")
        for alike in named.values()
        for server, other in itertools.combinations(alike, 2)
    ]
    tools: dict[str, dict[str, str]] = {}
    for server, names in servers.items():
        for name in names:
            tools.setdefault(skeleton(name), {}).setdefault(name, server)
    for alike in tools.values():
        for (name, server), (other, owner) in itertools.combinations(alike.items(), 2):
            if server != owner:
                suspects.append(Finding(f"{owner}.{other}", "name", f"looks like {server}.{_with_escapes(name)}"))
    return suspects


def suspicious(text: str) -> Iterator[str]:
    """Yield what is suspicious in a text, by a thorough check."""
    if not text.isascii() or not text.isprintable():
        for pattern, what in ((_BIDI, "changes the direction of text"), (_CONTROL, "a control character")):
            if match := pattern.search(text):
                yield f"{what}: {_code(match[0])}"
        if character := _hidden(text):
            yield f"an invisible character: {_code(character)}"
    if match := _PADDING.search(text.rstrip()):
        yield f"much empty space before {_excerpt(text[match.end() :].lstrip()[:_EXCERPT])}"
    plain = _plain(text)
    lowered = plain.lower()
    for triggers, pattern, what in _INSTRUCTIONS:
        if any(word in lowered for word in triggers) and (match := re.search(pattern, plain, re.I)):
            yield f"{what}: {_excerpt(plain[max(0, match.start() - 10) : match.end() + 20])}"


def _plain(text: str) -> str:
    """Return a string as a model reads it: one line of visible characters, with look-alike letters as Latin ones."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", _BIDI.sub("", text)))
        text = "".join(word.translate(_LATIN) if _MIXED.search(word) else word for word in _BLANK.split(text))
    return " ".join(text.split())


def _hidden(text: str) -> str | None:
    """Return the first invisible character, except joiners between emoji and in scripts that need them."""
    for match in _INVISIBLE.finditer(text):
        before = text[match.start() - 1 : match.start()]
        joins = match[0] in _JOINERS and (before > "\u02ff" or text[match.end() : match.end() + 1] == "\u20e3")
        if not joins or (before in _JOINERS and (before, match[0]) != ("\ufe0f", "\u200d")):
            return match[0]
    return None


def _texts(value: object, where: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every string and key in a JSON value."""
    if isinstance(value, str):
        yield where, value
    elif not depth:
        yield where, str(value)
    elif is_object(value):
        for key, item in value.items():
            yield f"{where} (a name in it)", key
            yield from _texts(item, f"{where}.{key}", depth - 1)
    elif is_array(value):
        for place, item in enumerate(value):
            yield from _texts(item, f"{where}[{place}]", depth - 1)


def _secrets(schema: object, where: str = "inputSchema", depth: int = _MAX_DEPTH) -> Iterator[tuple[str, str]]:
    if not depth or not is_object(schema):
        return
    properties: object = schema.get("properties")
    if is_object(properties):
        for key, inner in properties.items():
            name = "_".join(word for word in _WORDS.split(key) if word).lower()
            is_declared = is_object(inner) and (inner.get("format") == "password" or inner.get("writeOnly") is True)
            if re.search(_SECRET, name) or (is_declared and not re.search(_PASSWORD, name)):
                yield f"{where}.properties.{key}", key
            yield from _secrets(inner, f"{where}.properties.{key}", depth - 1)
    for key in ("items", "additionalProperties"):
        yield from _secrets(schema.get(key), f"{where}.{key}", depth - 1)
    for key in ("$defs", "definitions"):
        inner = schema.get(key)
        for name, definition in inner.items() if is_object(inner) else ():
            yield from _secrets(definition, f"{where}.{key}.{name}", depth - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        inner = schema.get(key)
        for place, definition in enumerate(inner) if is_array(inner) else ():
            yield from _secrets(definition, f"{where}.{key}[{place}]", depth - 1)


def skeleton(name: str) -> str:
    """Return a key that is equal for names that look alike, ignoring script, case and separators."""
    plain = unicodedata.normalize("NFKD", name).translate(_LATIN).translate(_DIGITS).casefold()
    kept = "".join(character for character in plain if character.isalnum())
    return kept.replace("rn", "m").replace("vv", "w").replace("i", "l")


def _with_escapes(name: str) -> str:
    """Add the escaped form to a name that is not ASCII."""
    return name if name.isascii() else f"{name} ({ascii(name)[1:-1]})"


def _code(character: str) -> str:
    return f"U+{ord(character):04X} {unicodedata.name(character, 'unnamed')}"


def _excerpt(text: str) -> str:
    return repr(shortened(text, _EXCERPT))  # repr escapes invisible characters

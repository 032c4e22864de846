"""Conversion of names between servers, users and models.

A user types identifiers: `read-file` becomes `read_file`, `from` becomes `from_`, `élan` is not changed. Names that
convert to the same identifier get a suffix in the server's order, and reserved names (`RESERVED_HOST`,
`RESERVED_SERVER`) get an underscore.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


RESERVED_HOST = frozenset(
    {
        "add",
        "ask",
        "call",
        "calls",
        "cancel",
        "chats",
        "close",
        "disable",
        "enable",
        "load",
        "restart",
        "run",
        "servers",
        "start",
    }
    | {"after_call", "before_call", "on_elicitation", "on_sampling", "roots"}
    | {"stop", "tools", "unload", "help", "history", "logs", "panel", "pins", "policy", "prompts", "resources", "stubs"}
    | {"maps", "outdated", "restore", "results", "search"}
    | {"config", "map", "prompt", "read", "secret", "subscribe", "trust", "usage", "version"}
)
"""Attributes of `mcp` itself. A server with such a name is `mcp["load"]` or `mcp.load_`."""
RESERVED_SERVER = frozenset({"prompts", "resources"})
"""Attributes of `mcp.server` itself. A tool with such a name is `mcp.fs["prompts"]` or `.prompts_`."""
RESERVED_PROMPTS = frozenset({"df", "table"})
"""Attributes of `mcp.server.prompts` itself. A prompt with such a name is `mcp.fs.prompts["df"]` or `.df_`."""

SEPARATORS = (".", "__", "/", ":", "::")
"""Text between the names of a server and a tool in what a person types."""
NAMESPACE = re.compile(r"mcp(\.|__)(?=.)")
"""The beginning of a tool's name as Python and other hosts write it: `mcp.demo.echo`, `mcp__demo__echo`."""
_DECORATION = r"^(mcp[-_]server[-_]|server[-_]|mcp[-_])|([-_]mcp[-_]server|[-_]mcp|[-_]server)$"
_NO_IDENTIFIER = re.compile(r"[\x00-/:-@\[-^`{-\x7f]")  # in ASCII only
_NO_MODEL_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MODEL_NAME_LENGTH = 64
_MIN_PART = 3
"""Minimum length of a word that is suggested the names it is a part of."""
_MAX_ABBREVIATION = 4
"""Maximum length of a word that may abbreviate a name by its first, its last and some other letters: `cmd`, `txt`."""
_MAX_WORD = 200
"""Maximum length of a word that is compared; a longer one is not a mistyped name, and comparing it is slow."""


def is_glob(pattern: str) -> bool:
    """Whether a pattern may match more than one name, or excludes."""
    return pattern.startswith("!") or any(one in pattern for one in "*?[")


def identifier(name: str) -> str:
    """Convert a name to the closest Python identifier."""
    text = _NO_IDENTIFIER.sub("_", name)
    if not text.isascii():  # as Python reads identifiers
        text = "".join(one if f"a{one}".isidentifier() else "_" for one in unicodedata.normalize("NFKC", text))
    if text[:1] in ("_", ""):  # names with a leading _ belong to ipymcp and Python
        text = f"n_{text.lstrip('_')}"
    elif not text[0].isidentifier():
        text = f"n{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def server_name(word: str) -> str:
    """Derive a server's name from the name of its program or package: `mcp-server-time` is `time`."""
    return identifier(re.sub(_DECORATION, "", word) or word)


def aliases(names: Iterable[str], reserved: Collection[str] = ()) -> dict[str, str]:
    """Assign a unique, unreserved identifier to each name: `{exact name: identifier}`.

    A name that is already an identifier keeps it, regardless of the order.
    """
    names = list(dict.fromkeys(names))
    result = {name: name for name in names if identifier(name) == name and name not in reserved}
    unique = UniqueNames([*reserved, *result])
    for name in names:
        if name in result:
            continue
        alias = identifier(name)
        if alias in reserved:
            alias += "_"
        result[name] = unique.add(alias)
    return {name: result[name] for name in names}


class UniqueNames:
    """Makes words unique by a number at their end. Any number of equal words takes linear time.

    Args:
        taken: The names that are taken already.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*taken}
        self._numbers: dict[str, int] = {}
        """The last number of each word."""

    def add(self, word: str) -> str:
        """Take a name for a word, and return it."""
        number, name = self._numbers.get(word, 1), word
        while name in self._taken:
            number += 1
            name = f"{word}_{number}"
        self._numbers[word] = number
        self._taken.add(name)
        return name


def unused(word: str, taken: Iterable[str]) -> str:
    """Make one word unique by a number at its end."""
    return UniqueNames(taken).add(word)


def model_name(server: str, tool: str) -> str:
    """Build the stable tool name for models: `server__tool`, at most 64 characters of `[A-Za-z0-9_-]`.

    A name that had to be shortened or changed ends with a hash of the original, so that it stays unique.
    """
    name = f"{server}__{tool}"
    clean = _NO_MODEL_NAME.sub("_", name)
    if not (clean[0].isalpha() or clean[0] == "_"):
        clean = "_" + clean
    if clean == name and len(name) <= _MODEL_NAME_LENGTH and "__" not in server:
        return name
    import hashlib

    digest = hashlib.sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{clean[: _MODEL_NAME_LENGTH - 9]}_{digest}"


def matches(names: Iterable[str], pattern: str) -> bool:
    """Whether a glob matches one of an object's names."""
    return any(fnmatchcase(name, pattern) for name in names)


def selects(patterns: Sequence[str], names: Sequence[str]) -> bool:
    """Whether globs select an object with these names: the last match decides; `!` patterns alone select the rest."""
    selected = all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        positive = pattern.removeprefix("!")
        if matches(names, positive):
            selected = positive == pattern
    return selected


def _abbreviates(word: str, name: str) -> bool:
    """Whether a word is short for a name: it has the name's first and last letters, and its others in their order."""
    if not (_MIN_PART <= len(word) <= _MAX_ABBREVIATION and len(name) <= 3 * len(word)):
        return False
    letters = iter(name)
    return name[:1] == word[0] and name[-1:] == word[-1] and all(letter in letters for letter in word)


def nearest(word: str, candidates: Iterable[str], *, limit: int = 3) -> str:
    """Suggest similar names as `did you mean 'a' or 'b'?`, or return the empty string."""
    import difflib

    if len(word) > _MAX_WORD:
        return ""
    known = list(dict.fromkeys(candidates))
    near = [name for name in known if _abbreviates(word, name)][:limit]
    near = near or difflib.get_close_matches(word, known, n=limit, cutoff=0.6)
    if not near:
        folded = word.casefold()
        near = [name for name in known if len(folded) >= _MIN_PART and folded in name.casefold()][:limit]
    return f"did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def expression(server: str, tool: str) -> str:
    """Build the Python expression for a tool, such as `mcp.fs.read`."""
    owner = _member("mcp", server, RESERVED_HOST)
    return _member(owner, tool, RESERVED_SERVER)


def _member(owner: str, name: str, reserved: Collection[str]) -> str:
    is_plain = identifier(name) == name and name not in reserved
    return f"{owner}.{name}" if is_plain else f"{owner}[{name!r}]"

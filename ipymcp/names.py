"""Names both ways: what a server calls a thing, what a user types, what a model sees.

A user types identifiers. `read-file` is `read_file`, `from` is `from_`, `élan` stays; two names that come out the
same get a suffix, in the server's order; a name that is one of ours (`RESERVED_HOST`, `RESERVED_SERVER`) gets an
underscore.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


RESERVED_HOST = frozenset(
    {"ask", "call", "calls", "cancel", "close", "disable", "enable", "load", "restart", "run", "servers", "start"}
    | {"on_elicitation", "on_sampling", "roots"}
    | {"stop", "tools", "unload", "help", "history", "logs", "panel", "pins", "policy", "prompts", "resources", "stubs"}
    | {"results"}
    | {"trust"}
)
"""Words of `mcp` itself. A server of such a name is `mcp["load"]` or `mcp.load_`."""
RESERVED_SERVER = frozenset({"prompts", "resources"})
"""Words of `mcp.server` itself, where its tools live. A tool of such a name is `mcp.fs["prompts"]` or `.prompts_`."""
RESERVED_PROMPTS = frozenset({"df", "table"})
"""Words of `mcp.server.prompts` itself. A prompt of such a name is `mcp.fs.prompts["df"]` or `.df_`."""

_NO_IDENTIFIER = re.compile(r"[^\w\u0080-\U0010ffff]", re.ASCII)
_NO_MODEL_NAME = re.compile(r"[^A-Za-z0-9_-]")
_MODEL_NAME_LENGTH = 64
_MAX_WORD = 200
"""What is longer is no mistyped name, and slow to compare."""


def identifier(name: str) -> str:
    """The Python identifier nearest to a name."""
    text = _NO_IDENTIFIER.sub("_", name)
    if not text.isascii():  # as Python reads identifiers
        text = "".join(one if f"a{one}".isidentifier() else "_" for one in unicodedata.normalize("NFKC", text))
    if text[:1] in ("_", ""):  # what begins with _ are our own attributes, and Python's
        text = f"n_{text.lstrip('_')}"
    elif not text[0].isidentifier():
        text = f"n{text}"
    return f"{text}_" if keyword.iskeyword(text) else text


def aliases(names: Iterable[str], reserved: Collection[str] = ()) -> dict[str, str]:
    """What to type for each name: `{exact name: identifier}`, no two the same, none reserved.

    A name that is an identifier already keeps it, whatever comes before it.
    """
    names = list(dict.fromkeys(names))
    taken = set(reserved)
    result = {name: name for name in names if identifier(name) == name and name not in taken}
    taken.update(result)
    for name in names:
        if name in result:
            continue
        alias = identifier(name)
        if alias in reserved:
            alias += "_"
        number = 2
        base = alias
        while alias in taken:
            alias = f"{base}_{number}"
            number += 1
        taken.add(alias)
        result[name] = alias
    return {name: result[name] for name in names}


def model_name(server: str, tool: str) -> str:
    """What a model calls this tool: `server__tool`, at most 64 of `[A-Za-z0-9_-]`, the same in every session.

    What does not fit, or had to be changed to fit, carries a hash of the true name, so that no two tools share one.
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


def nearest(word: str, candidates: Iterable[str], *, limit: int = 3) -> str:
    """`did you mean 'a' or 'b'?`, or the empty string where nothing is near."""
    import difflib

    if len(word) > _MAX_WORD:
        return ""
    known = list(dict.fromkeys(candidates))
    near = difflib.get_close_matches(word, known, n=limit, cutoff=0.6)
    if not near:
        folded = word.casefold()
        near = [name for name in known if folded and folded in name.casefold()][:limit]
    return f"did you mean {' or '.join(repr(name) for name in near)}?" if near else ""


def expression(server: str, tool: str) -> str:
    """What one writes in Python for a tool, by the names that the user and the server gave."""
    owner = _member("mcp", server, RESERVED_HOST)
    return _member(owner, tool, RESERVED_SERVER)


def _member(owner: str, name: str, reserved: Collection[str]) -> str:
    is_plain = identifier(name) == name and name not in reserved
    return f"{owner}.{name}" if is_plain else f"{owner}[{name!r}]"

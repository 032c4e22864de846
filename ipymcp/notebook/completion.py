"""Tab: servers, tools, argument names and values, in `%mcp` lines and in Python code.

Answers come from the catalogs as they are; nothing is started, waited for or evaluated. Where the cursor is in nothing
of ours, IPython's own completers go on undisturbed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ipymcp.errors import McpError
from ipymcp.masking import mask
from ipymcp.notebook.code_completion import in_code, values
from ipymcp.notebook.context import LineContext, context_at
from ipymcp.runtime.names import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ipymcp.tools.face import Mcp
    from ipymcp.tools.schema import Parameter

__all__ = ["candidates"]

_DOCUMENTS = (".json", ".json5", ".jsonc")


def candidates(text: str, mcp: Mcp, namespace: str) -> tuple[str, list[str], str] | None:
    """What may stand at the end of this text.

    Args:
        text: The cell up to the cursor.
        mcp: The notebook's.
        namespace: The name it is bound to.

    Returns:
        What is typed of it, the whole words that could be meant, and their kind for IPython; None where it is nothing
        of ours.
    """
    context = context_at(text, namespace=namespace)
    if context is None:
        return None
    if isinstance(context, LineContext):
        words, kind = _shown(*_on_line(context, mcp))
        # A glob is no beginning of a name: offered itself, it stays, and Python's names stay away.
        whole = [context.partial] if context.kind == "tool" and context.partial else []
        found = _beginning(context.partial, [*context.actions, *words])
        if context.kind in _NAMING and not context.quote:
            found = [quoted(word, is_open=word.endswith(".")) for word in found]
        return context.partial, found or whole, kind
    words, kind = _shown(*in_code(context, mcp))
    return context.partial, _beginning(context.partial, words), kind


def _shown(words: Iterable[str], kind: str) -> tuple[Iterable[str], str]:
    """Without values and addresses that hold a secret. Names are the user's to type, whatever they hold."""
    return (filter(lambda word: mask(word) == word, words) if kind in ("value", "path") else words), kind


def _beginning(partial: str, words: Iterable[str]) -> list[str]:
    words = list(dict.fromkeys(words))
    return [word for word in words if word.startswith(partial)] or [
        word for word in words if word.casefold().startswith(partial.casefold())
    ]


# -- %mcp lines -------------------------------------------------------------------------------------------------------

_NAMING = frozenset({"server", "configured", "loadable", "tool", "tool-name", "prompt", "trusted"})
"""What somebody else has named, perhaps with blanks."""


def _on_line(context: LineContext, mcp: Mcp) -> tuple[Iterable[str], str]:
    host = mcp._host
    match context.kind:
        case "resource" | "prompt":
            return _of_offers(context, mcp)
        case "argument" | "value" if context.subcommand != "call":
            return _of_offers(context, mcp)
        case "argument":
            parameters = _parameters(context.tool, mcp)
            return (f"{parameter.name}=" for parameter in parameters if parameter.name not in context.given), "param"
        case "value":
            return values(_parameters(context.tool, mcp), context.argument, quote=None), "value"
        case "option":
            return (option.name for option in context.options), "keyword"
        case "option-value":
            return (
                choice for one in context.options if one.name == context.argument for choice in one.choices
            ), "value"
        case "word":
            from ipymcp.notebook.magics.dispatch import MODULES

            return (f"{word} " if context.subcommand == "" else word for word in sorted(MODULES)), "keyword"
        case "server":
            return mcp, "module"
        case "configured":
            return [*mcp, *host.discovery.peek().servers], "module"
        case "loadable":
            return [
                *mcp,
                *host.discovery.peek().servers,
                "demo",
                *_paths(context.partial, host.folder, _DOCUMENTS),
            ], "module"
        case "tool":
            return _tool_paths(context.partial, mcp), "function"
        case "tool-name":
            return (tool for session in host.sessions.values() for tool in session.catalog.tools), "function"
        case "source-host":
            from ipymcp.config.hosts import HOSTS

            return [*HOSTS, *_paths(context.partial, host.folder, _DOCUMENTS)], "path"
        case "folder":
            return _paths(context.partial, host.folder, ()), "path"
        case "file":
            return _paths(context.partial, host.folder), "path"
        case _:
            from ipymcp.notebook.kept_completion import kept

            return kept(context, mcp), "value"


def _of_offers(context: LineContext, mcp: Mcp) -> tuple[Iterable[str], str]:
    from ipymcp.notebook.offer_completion import on_line

    return on_line(context, mcp)


def _tool_paths(partial: str, mcp: Mcp) -> Iterator[str]:
    for name, session in mcp._host.sessions.items():
        if not partial.startswith(f"{name}."):
            yield f"{name}."
        else:
            yield from (f"{name}.{tool}" for tool in session.catalog.tools)


def _paths(partial: str, folder: str, endings: tuple[str, ...] = ("",)) -> Iterator[str]:
    """Folders, and files with these endings, as they are typed in the notebook's folder."""
    above, slash, start = partial.rpartition("/")
    where = os.path.join(folder, os.path.expanduser(above + slash))
    try:
        entries = sorted(os.scandir(where), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir() or entry.name.endswith(endings):
            yield f"{above}{slash}{entry.name}{'/' if entry.is_dir() else ''}"


def _parameters(path: str, mcp: Mcp) -> Sequence[Parameter]:
    try:
        session, tool = mcp._host.resolve(path)
    except McpError:
        return ()
    entry = session.catalog.find(tool)
    return mcp._factory.schema(entry).parameters if entry is not None else ()

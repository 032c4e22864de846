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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ipymcp.tools.face import Mcp
    from ipymcp.tools.schema import Parameter

__all__ = ["candidates"]


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
        return context.partial, _beginning(context.partial, words) or whole, kind
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


def _on_line(context: LineContext, mcp: Mcp) -> tuple[Iterable[str], str]:
    if context.kind == "subcommand":
        from ipymcp.notebook.magics.dispatch import MODULES

        return (f"{word} " if context.subcommand == "" else word for word in sorted(MODULES)), "keyword"
    if context.kind == "server":
        return _servers(context, mcp), "module"
    if context.kind in ("resource", "prompt") or (
        context.subcommand in ("read", "subscribe", "prompt") and context.tool
    ):
        from ipymcp.notebook.offer_completion import on_line

        return on_line(context, mcp)
    if context.kind == "tool":
        return _tool_paths(context.partial, mcp), "function"
    if context.kind == "argument":
        parameters = _parameters(context.tool, mcp)
        return (f"{parameter.name}=" for parameter in parameters if parameter.name not in context.given), "param"
    if context.kind == "value":
        return values(_parameters(context.tool, mcp), context.argument, quote=None), "value"
    if context.kind == "option":
        return _options(context.subcommand), "keyword"
    if context.kind == "option-value":
        return (("auto", "legacy", "modern") if context.argument == "--era" else ()), "value"
    return _paths(context.partial), "path"


def _servers(context: LineContext, mcp: Mcp) -> list[str]:
    if context.subcommand not in ("config", "load"):
        return list(mcp)
    names = [*mcp, *mcp._host.discovery.names()]
    if context.subcommand == "load":
        return [*names, "demo", *_paths(context.partial)]
    from ipymcp.notebook.magics.config import ACTIONS

    return [*ACTIONS, *names]


def _tool_paths(partial: str, mcp: Mcp) -> Iterator[str]:
    negation = "!" if partial.startswith("!") else ""
    for name, session in mcp._host.sessions.items():
        if not partial.removeprefix("!").startswith(f"{name}."):
            yield f"{negation}{name}."
        else:
            yield from (f"{negation}{name}.{tool}" for tool in session.catalog.tools)


def _options(word: str) -> list[str]:
    from ipymcp.notebook.magics.dispatch import MODULES, command

    return [option.name for option in command(word).syntax.options] if word in MODULES else []


def _paths(partial: str) -> Iterator[str]:
    folder, _, start = partial.rpartition("/")
    where = os.path.expanduser(folder or ("/" if partial.startswith("/") else "."))
    try:
        entries = sorted(os.scandir(where), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start):
            continue
        if entry.is_dir() or entry.name.endswith((".json", ".json5", ".jsonc")):
            prefix = f"{folder}/" if "/" in partial else ""
            yield f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}"


def _parameters(path: str, mcp: Mcp) -> Sequence[Parameter]:
    try:
        session, tool = mcp._host.resolve(path)
    except McpError:
        return ()
    entry = session.catalog.find(tool)
    return mcp._factory.schema(entry).parameters if entry is not None else ()

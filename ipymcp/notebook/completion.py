"""Tab: servers, tools, argument names and values, in `%mcp` lines and in Python code.

Answers come from the catalogs as they are; nothing is started, waited for or evaluated. Where the cursor is in nothing
of ours, IPython's own completers go on undisturbed.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from msgspec import structs

from ipymcp.errors import McpError
from ipymcp.masking import mask
from ipymcp.notebook.code_completion import in_code, values
from ipymcp.notebook.context import LineContext, context_at
from ipymcp.notebook.spelling import code_value, line_argument, line_word, unquoted

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
        partial = unquoted(context.partial, context.quote)
        words, kind = _on_line(structs.replace(context, partial=partial), mcp)
        # What is typed is offered itself where nothing else is: it stays, and IPython's names and files stay away.
        whole = [context.partial]
        found = _beginning(partial, [*context.actions, *_without_secrets(words, kind)])
        spelled = [_spelled(word, context) for word in found]
        return context.partial, [word for word in spelled if word is not None] or whole, kind
    words, kind = in_code(context, mcp)
    if context.kind in ("key", "value"):
        words = [code_value(word, context.quote) for word in _without_secrets(words, kind)]
    found = [word for word in _beginning(context.partial, words) if isinstance(word, str)]
    return context.partial, found or ([context.partial] if context.kind == "key" else []), kind


def _without_secrets(words: Iterable[object], kind: str) -> Iterable[object]:
    """Without values and addresses that hold a secret. Names are the user's to type, whatever they hold."""
    return words if kind not in ("value", "path") else (word for word in words if mask(str(word)) == str(word))


def _beginning(partial: str, words: Iterable[object]) -> list[object]:
    typed = {word if isinstance(word, str) else json.dumps(word): word for word in words if word is not None}
    return [word for text, word in typed.items() if text.startswith(partial)] or [
        word for text, word in typed.items() if text.casefold().startswith(partial.casefold())
    ]


def _spelled(word: object, context: LineContext) -> str | None:
    """A word of a `%mcp` line as it is written there; None where it cannot be."""
    if isinstance(word, str) and (word in context.actions or context.kind in _OWN):
        return word
    if context.kind == "argument":
        return line_argument(str(word))
    is_open = context.kind in ("tool", "prompt") and str(word).endswith(".")
    return line_word(word, context.quote, is_argument=context.kind == "value", is_open=is_open)


# -- %mcp lines -------------------------------------------------------------------------------------------------------

_OWN = frozenset({"word", "option", "option-value", "setting", "target-host", "call"})
"""What nobody but ipymcp has named."""


def _on_line(context: LineContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    host = mcp._host
    match context.kind:
        case "resource" | "prompt":
            return _of_offers(context, mcp)
        case "argument" | "value" if context.subcommand != "call":
            return _of_offers(context, mcp)
        case "argument":
            parameters = _parameters(context.tool, mcp)
            return (parameter.name for parameter in parameters if parameter.name not in context.given), "param"
        case "value":
            return values(_parameters(context.tool, mcp), context.argument), "value"
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


def _of_offers(context: LineContext, mcp: Mcp) -> tuple[Iterable[object], str]:
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

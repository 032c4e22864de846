"""Tab: servers, tools, argument names and values, in `%mcp` lines and in Python code.

Answers come from the catalogs as they are; nothing is started, waited for or evaluated. Where the cursor is in nothing
of ours, IPython's own completers go on undisturbed.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from ipymcp.errors import McpError
from ipymcp.notebook.context import AttributeContext, LineContext, context_at
from ipymcp.runtime.names import RESERVED_HOST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ipymcp.notebook.attribute_context import Step
    from ipymcp.runtime.server import ServerSession
    from ipymcp.tools.face import Mcp
    from ipymcp.tools.schema import Parameter

__all__ = ["candidates"]

_TOOL_WORDS = ("aio", "options", "submit")
_SERVER_WORDS = ("error", "logs", "name", "pid", "protocol_version", "restart", "start", "state", "stop")


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
    found = _on_line(context, mcp) if isinstance(context, LineContext) else _in_code(context, mcp)
    if found is None:
        return None
    words, kind = found
    return context.partial, _beginning(context.partial, words), kind


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
        names = [*mcp, *(["demo"] if context.subcommand == "load" and "demo" not in mcp else [])]
        return [*names, *_paths(context.partial)] if context.subcommand == "load" else names, "module"
    if context.kind == "tool":
        return _tool_paths(context.partial, mcp), "function"
    if context.kind == "argument":
        parameters = _parameters(context.tool, mcp)
        return (f"{parameter.name}=" for parameter in parameters if parameter.name not in context.given), "param"
    if context.kind == "value":
        return _values(_parameters(context.tool, mcp), context.argument, quote=None), "value"
    if context.kind == "option":
        return _options(context.subcommand), "keyword"
    if context.kind == "option-value":
        return (("auto", "legacy", "modern") if context.argument == "--era" else ()), "value"
    return _paths(context.partial), "path"


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


# -- Python code ------------------------------------------------------------------------------------------------------


def _in_code(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[str], str] | None:
    """None where the object before the cursor is none of ours."""
    path = context.path
    if context.kind in ("argument", "value"):
        return _in_call(context, mcp)
    if not path:
        if context.kind == "key":
            return _closed(mcp, context), "module"
        own = (word for word in dir(type(mcp)) if word in RESERVED_HOST)
        return sorted({*mcp._host.aliases().values(), *own}), "module"
    if path[0].name == "servers" and not path[0].item:
        if len(path) == 1 and context.kind == "key":
            return _closed(mcp, context), "module"
        return (_SERVER_WORDS, "function") if len(path) == 2 else None
    session = _session(path[0], mcp)
    if session is None or len(path) > 2:
        return None
    if len(path) == 2:
        return (_TOOL_WORDS, "function") if context.kind == "attribute" else None
    if context.kind == "key":
        return _closed(session.catalog.tools, context), "function"
    return sorted(session.catalog.aliases), "function"


def _in_call(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[str], str] | None:
    steps = [step for step in context.path if step.item or step.name not in _TOOL_WORDS]
    session = _session(steps[0], mcp) if len(steps) == 2 else None
    entry = session.catalog.find(steps[1].name) if session is not None else None
    if entry is None:
        return None
    parameters = mcp._factory.schema(entry).parameters
    if context.kind == "value":
        name = context.argument or _positional(parameters, context.positional)
        values = _values(parameters, name, quote=context.quote)
        return (values, "value") if values else None
    filled = {parameter.alias for parameter in [p for p in parameters if p.required][: context.positional]}
    names = [p.alias for p in parameters if p.alias not in context.given and p.alias not in filled]
    return (f"{name}=" for name in names), "param"


def _session(step: Step, mcp: Mcp) -> ServerSession | None:
    try:
        return mcp._host.find(step.name)
    except McpError:
        return None


def _closed(names: Iterable[str], context: AttributeContext) -> list[str]:
    """Keys as they stand between brackets: the open quote is there already, a missing one is not."""
    if context.quote:
        return list(names)
    return [json.dumps(name, ensure_ascii=False) for name in names]


def _positional(parameters: Sequence[Parameter], position: int) -> str:
    required = [parameter for parameter in parameters if parameter.required]
    return required[position].alias if position < len(required) else ""


def _parameters(path: str, mcp: Mcp) -> Sequence[Parameter]:
    try:
        session, tool = mcp._host.resolve(path)
    except McpError:
        return ()
    entry = session.catalog.find(tool)
    return mcp._factory.schema(entry).parameters if entry is not None else ()


def _values(parameters: Sequence[Parameter], name: str, *, quote: str | None) -> list[str]:
    """The values an argument may have. `quote`: the one that is open in code, empty for none; None on a `%mcp` line."""
    found = next((parameter for parameter in parameters if name in (parameter.name, parameter.alias)), None)
    if found is None:
        return []
    values = found.enum or ((True, False) if found.annotation is bool else ())
    if quote is None:
        return [value if isinstance(value, str) else json.dumps(value) for value in values]
    if quote:
        return [value for value in values if isinstance(value, str)]
    return [repr(value) for value in values]

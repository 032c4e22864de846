"""`%mcp stubs`: a `.pyi` stub of a notebook's tools for editors and type checkers."""

from __future__ import annotations

import keyword
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import ConfigError
from ipymcp.files import SHARED, write_file, write_hint
from ipymcp.masking import mask
from ipymcp.schema.annotations import annotate, printable
from ipymcp.schema.tree import Schema, SchemaTree, properties, required_names

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from ipymcp.api.tool import ToolFactory
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.schema.annotations import Parameter
    from ipymcp.schema.tool_schema import ToolSchema


_MAX_MEMBERS: Final = 40
_MAX_TYPED_DICTS: Final = 50
_TYPING: Final = ("Any", "Literal", "NotRequired", "Self", "TypedDict")
_HEADER: Final = '''\
"""The tools of this notebook's MCP servers, written by `%mcp stubs`."""

from collections.abc import Callable
from typing import {typing}

from ipymcp import Call, Prompts, Resources, ToolResult
'''
_OPTIONS: Final = """\
    def options(
        self,
        *,
        timeout: float | None = ...,
        on_progress: Callable[..., object] | None = ...,
        as_task: bool | None = ...,
    ) -> Self: ..."""


def write_stubs(factory: ToolFactory, entries: Iterable[ToolEntry], path: str | os.PathLike[str] | None) -> Path:
    """Write the stubs of tools into a file, by default `mcp_tools.pyi` in the notebook's folder; return its path.

    Raises:
        ConfigError: The file cannot be written.
    """
    file = Path(factory.host.folder, path or "mcp_tools.pyi").expanduser()
    aliases = factory.host.aliases()
    servers: dict[str, list[tuple[str, str, ToolSchema]]] = {}
    for entry in entries:
        row = (entry.alias, entry.definition.description or "", factory.schema(entry))
        servers.setdefault(aliases[entry.server], []).append(row)
    try:
        write_file(file, mask(stub(servers)), SHARED)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}", hint=write_hint(error)) from None
    return file


def stub(servers: Mapping[str, Sequence[tuple[str, str, ToolSchema]]]) -> str:
    """Make the text of a stub file: a class for each server and each tool, and `mcp` with all servers.

    Args:
        servers: For each server, by its attribute name in the notebook, its tools: the attribute name, the description
            and the schema of each.
    """
    names = _Names()
    blocks: list[str] = []
    classes: dict[str, str] = {}
    for server, tools in servers.items():
        members = {"resources": "Resources", "prompts": "Prompts"}
        for attribute, description, schema in tools:
            name = names.new(f"{server}_{attribute}")
            blocks += _tool(name, description, schema, names)
            members[attribute] = name
        classes[server] = names.new(server)
        blocks.append(_holder(classes[server], members))
    servers_class = names.new("servers")
    blocks += [_holder(servers_class, classes), f"mcp: {servers_class}"]
    body = "\n\n".join(blocks) + "\n"
    used = ", ".join(name for name in _TYPING if re.search(rf"\b{name}\b", body))
    return "\n".join([_HEADER.format(typing=used or "Any"), body])


class _Names:
    """A generator of unique class names."""

    def __init__(self) -> None:
        self.taken = {*_TYPING, "Call", "Callable", "Prompts", "Required", "Resources", "ToolResult"}

    def new(self, words: str) -> str:
        base = "".join(part[:1].upper() + part[1:] for part in re.split(r"\W|_", words) if part)
        base = (
            base if base.isidentifier() and not keyword.iskeyword(base) else f"Mcp{re.sub(r'[^A-Za-z0-9_]', '', base)}"
        )
        name, number = base, 1
        while name in self.taken:
            number += 1
            name = f"{base}{number}"
        self.taken.add(name)
        return name


def _holder(name: str, members: Mapping[str, str]) -> str:
    """A class with attributes of these types."""
    lines = [f"    {attribute}: {kind}" for attribute, kind in members.items()] or ["    pass"]
    return "\n".join([f"class {name}:", *lines])


def _tool(name: str, description: str, schema: ToolSchema, names: _Names) -> list[str]:
    """The TypedDicts of a tool's arguments, and the tool's class."""
    typed = _TypedDicts(schema.tree, name, names)
    arguments = _arguments(schema, typed)
    lines = [f"class {name}:"]
    quoted = _quoted(description)
    lines += [f"    {quoted}"] if quoted else []
    for head, result in (("def __call__", "ToolResult"), ("async def aio", "ToolResult"), ("def submit", "Call")):
        lines.append(f"    {head}({', '.join(arguments)}) -> {result}: ...")
    return [*typed.blocks, "\n".join([*lines, _OPTIONS])]


def _arguments(schema: ToolSchema, typed: _TypedDicts) -> list[str]:
    taken = {each.alias for each in schema.parameters}
    words = ["self" if "self" not in taken else _unused("_self", taken), "/"]
    words += [_argument(each, typed) for each in schema.parameters if each.required]
    optional = [_argument(each, typed) for each in schema.parameters if not each.required]
    if optional:
        words += ["*", *optional]
    if schema.is_open:
        words.append(f"**{_unused('arguments', taken)}: Any")
    return words


def _argument(parameter: Parameter, typed: _TypedDicts) -> str:
    nullable = not parameter.required
    kind = annotate(typed.tree, parameter.schema, nullable=nullable, name_object=typed.name_for)
    return f"{parameter.alias}: {kind}" + ("" if parameter.required else " = ...")


def _unused(word: str, taken: set[str]) -> str:
    while word in taken:
        word = f"_{word}"
    return word


class _TypedDicts:
    """The TypedDicts of one tool's arguments, made when its annotations refer to them."""

    def __init__(self, tree: SchemaTree, owner: str, names: _Names) -> None:
        self.tree = tree
        self.owner = owner
        self.names = names
        self.blocks: list[str] = []
        self._known: dict[int, tuple[Schema, str]] = {}

    def name_for(self, form: Schema) -> str | None:
        """The name of an object schema's TypedDict; None if a TypedDict cannot express it."""
        known = self._known.get(id(properties(form)))
        if known is not None:
            return known[1]
        members = properties(form)
        extra = form.get("additionalProperties")
        if len(members) > _MAX_MEMBERS or len(self._known) >= _MAX_TYPED_DICTS or extra not in (None, False):
            return None
        title = form.get("title")
        name = self.names.new(f"{self.owner}_{title if isinstance(title, str) and len(title) < 40 else 'item'}")
        self._known[id(members)] = (members, name)
        required = set(required_names(form))
        fields = [
            f"    {member!r}: {self._kind(part)},"
            if member in required
            else f"    {member!r}: NotRequired[{self._kind(part)}],"
            for member, part in members.items()
        ]
        self.blocks.append("\n".join([f"{name} = TypedDict({name!r}, {{", *fields, "})"]))
        return name

    def _kind(self, schema: Any) -> str:
        return annotate(self.tree, schema, name_object=self.name_for)


def _quoted(description: str) -> str:
    """A description as a docstring literal on one line."""
    text = " ".join(printable(description).split())[:2_000]
    return '"""' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""' if text else ""

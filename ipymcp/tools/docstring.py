"""What `tool?` and Shift-Tab show: the server's own words, made safe to print, and the arguments in Python's."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from typing import TYPE_CHECKING, Any, Final

from ipymcp.masking import mask
from ipymcp.tools.annotations import annotate
from ipymcp.tools.complaints import listing, shortened
from ipymcp.tools.schema_tree import SchemaTree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ipymcp.tools.parameters import Parameter

__all__ = ["docstring", "printable"]

_WIDTH: Final = 100
_MAX_TEXT: Final = 20_000
_NEWLINES: Final = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_DROPPED: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_HINTS: Final = (
    ("readOnlyHint", True, "only reads"),
    ("readOnlyHint", False, "changes things"),
    ("destructiveHint", True, "may destroy or overwrite"),
    ("destructiveHint", False, "only adds"),
    ("idempotentHint", True, "changes nothing more when called again"),
    ("openWorldHint", True, "reaches outside, such as the web"),
    ("openWorldHint", False, "stays within its own data"),
)


def printable(text: str) -> str:
    """A server's text without secrets and what no reader sees: control, format, private characters, selectors.

    Line ends of every kind become newlines. Text that only a model would read is how instructions are smuggled.
    """
    text = mask(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(each for each in _NEWLINES.sub("\n", text) if each in "\n\t" or _is_seen(each))


def _is_seen(character: str) -> bool:
    if unicodedata.category(character) in _DROPPED:
        return False
    return not ("\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef")


def docstring(
    title: str | None,
    description: str | None,
    parameters: Sequence[Parameter],
    output_schema: Mapping[str, Any] | None,
    annotations: Mapping[str, Any] | None,
    *,
    server: str,
    tool: str,
    kind: str = "Tool",
) -> str:
    """A tool's help text, in the form of a Google docstring.

    Args:
        title: The tool's title, shown where the description does not begin with it.
        description: The server's description.
        parameters: The tool's arguments.
        output_schema: The tool's output schema, where it has one.
        annotations: The tool's annotations; the hints among them are the server's own claims.
        server: The server's name in this notebook.
        tool: The tool's own name.
        kind: What it is, where it is no tool.
    """
    about = textwrap.dedent(printable((description or "")[:_MAX_TEXT])).strip()
    name = shortened(printable(title or ""), _WIDTH)
    heading = [name] if name and not about.casefold().startswith(name.casefold()) else []
    sections = [*heading, about, _arguments(parameters), _returns(output_schema), _claims(annotations)]
    source = f"{kind} {shortened(printable(tool), 80)!r} of the MCP server {shortened(printable(server), 80)!r}."
    return "\n\n".join([section for section in sections if section] + [source])


def _arguments(parameters: Sequence[Parameter]) -> str:
    return "\n".join(["Args:", *(_argument(each) for each in parameters)]) if parameters else ""


def _argument(parameter: Parameter) -> str:
    words = [printable(parameter.description)[:_MAX_TEXT]]
    if parameter.enum and "Literal[" not in parameter.annotation:
        words.append(f"One of {printable(listing(parameter.enum))}.")
    if not parameter.required and parameter.default is not None:
        words.append(f"Default: {printable(shortened(repr(parameter.default), 60))}.")
    if parameter.alias != parameter.name:
        words.append(f"Its own name is {shortened(printable(parameter.name), 80)!r}.")
    kind = parameter.annotation if parameter.required else f"{parameter.annotation}, optional"
    line = " ".join(word if word.endswith((".", "!", "?", ":")) else f"{word}." for word in words if word)
    head = f"{parameter.alias} ({kind}):"
    return textwrap.fill(
        f"{head} {line}".rstrip(),
        _WIDTH,
        initial_indent="    ",
        subsequent_indent="        ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _returns(output_schema: Mapping[str, Any] | None) -> str:
    if not output_schema:
        return ""
    tree = SchemaTree(output_schema)
    members = tree.record.members
    if not members:
        return f"Returns:\n    A ToolResult whose .data is {printable(annotate(tree, tree.root))}."
    lines = [
        f"    {shortened(printable(name), 60)}: {printable(annotate(tree, part))}"
        for name, part in list(members.items())[:50]
    ]
    return "\n".join(["Returns:", "    A ToolResult; its .data has", *(f"    {line}" for line in lines)])


def _claims(annotations: Mapping[str, Any] | None) -> str:
    """The hints, in words. A tool that only reads cannot destroy, whatever the other hint says."""
    given = dict(annotations or {})
    if given.get("readOnlyHint") is True:
        given.pop("destructiveHint", None)
        given.pop("idempotentHint", None)
    said = [words for key, value, words in _HINTS if given.get(key) is value]
    return f"The server says that it {', '.join(said)}." if said else ""

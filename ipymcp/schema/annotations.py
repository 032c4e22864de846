"""Type annotations, signatures, docstrings and callable classes made from schemas."""

from __future__ import annotations

import inspect
import keyword
import re
import textwrap
import unicodedata
from collections.abc import Callable
from functools import reduce
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from ipymcp.masking import mask, masks
from ipymcp.names import UniqueNames, unused
from ipymcp.protocol.types import is_object
from ipymcp.schema.tree import (
    ANYTHING,
    Schema,
    SchemaTree,
    form_kinds,
    listed_values,
    properties,
    required_names,
)
from ipymcp.schema.validation import listing
from ipymcp.text import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


_NAMES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_ORDER: Final = ("str", "int", "float", "bool")
_MAX_LITERALS: Final = 16
_MAX_UNION: Final = 6
_MAX_DEPTH: Final = 4
_MAX_INLINE: Final = 12
"""Members of an object that an annotation spells out."""
_MAX_INLINE_DEPTH: Final = 2

ObjectNamer = Callable[[Schema], str | None]
"""Returns a type name for an object schema, such as a TypedDict's, or None."""


class Annotation(str):
    """A type annotation as text, which `inspect` prints without quotes, with the type that it names.

    Args:
        text: The annotation, such as `int | None`.
        type: The type; `dict[str, Any]` for a TypedDict.
    """

    type: Any

    def __new__(cls, text: str, type: Any = Any) -> Annotation:
        """Make the string and attach the type."""
        annotation = super().__new__(cls, text)
        annotation.type = type
        return annotation

    def __repr__(self) -> str:
        return str(self)


_ANY: Final = Annotation("Any")
_TYPES: Final = {
    word: Annotation(word, kind)
    for word, kind in (("str", str), ("int", int), ("float", float), ("bool", bool), ("None", type(None)))
}


def annotate(
    tree: SchemaTree, schema: Any, *, nullable: bool = False, name_object: ObjectNamer | None = None
) -> Annotation:
    """The annotation for values of a subschema; `Any` if it is unconstrained or too complex to read.

    Args:
        tree: The schema that the subschema belongs to.
        schema: The subschema.
        nullable: Add `| None`.
        name_object: Names object schemas; an object without a name is a `dict[str, …]`.
    """
    return _AnnotationBuilder(tree, name_object).build(schema, nullable=nullable)


def spelled_out(tree: SchemaTree, schema: Any, *, depth: int = _MAX_INLINE_DEPTH) -> Annotation:
    """The annotation with the members of objects, such as `list[{'path': str, 'size'?: int}]`."""

    def members(form: Schema) -> str | None:
        if not depth:
            return None
        required, listed = required_names(form), list(properties(form).items())
        words = [
            f"{name!r}{'' if name in required else '?'}: {spelled_out(tree, part, depth=depth - 1)}"
            for name, part in listed[:_MAX_INLINE]
        ]
        return f"{{{', '.join([*words, '…'] if len(listed) > _MAX_INLINE else words)}}}"

    return annotate(tree, schema, name_object=members)


class _AnnotationBuilder:
    def __init__(self, tree: SchemaTree, name_object: ObjectNamer | None) -> None:
        self.tree = tree
        self.name_object = name_object

    def build(self, schema: Any, depth: int = _MAX_DEPTH, *, nullable: bool = False) -> Annotation:
        if depth <= 0:
            return _ANY
        literals: list[Any] = []
        members: dict[Annotation, None] = {}
        for form in self.tree.alternatives(schema):
            listed = listed_values(form)
            # `Literal` cannot express other values.
            if listed is not None and all(value is None or isinstance(value, str | int) for value in listed):
                literals += [value for value in listed if value not in literals]
            else:
                members.update(dict.fromkeys(self._form(form, depth)))
        shown = [value for value in literals if value is not None]
        if len(literals) > _MAX_LITERALS:
            members.update(dict.fromkeys(_ordered({type(value).__name__ for value in shown})))
        elif shown:
            words = f"Literal[{', '.join(map(repr, shown))}]"
            members = {Annotation(words, Literal[tuple(masks.json(value) for value in shown)]): None, **members}
        if None in literals or nullable:
            members[_TYPES["None"]] = None
        if _ANY in members or not members or len(members) > _MAX_UNION:
            return _ANY
        ordered = sorted(members, key=lambda member: member == "None")  # None last
        return Annotation(" | ".join(ordered), reduce(lambda one, other: one | other, [each.type for each in ordered]))

    def _form(self, form: Schema, depth: int) -> list[Annotation]:
        kinds = form_kinds(form)
        if kinds is None:
            return [_ANY]
        members = _ordered({_NAMES[kind] for kind in kinds if kind in _NAMES})
        if "array" in kinds:
            items = form.get("items", True) if "prefixItems" not in form else True
            item = self.build(items if isinstance(items, dict) else True, depth - 1)
            members.append(Annotation(f"list[{item}]", list[item.type]))
        if "object" in kinds:
            declared, extra = properties(form), form.get("additionalProperties")
            if self.name_object and declared and (name := self.name_object(form)):
                members.append(Annotation(name, dict[str, Any]))
            else:
                values = self.build(extra, depth - 1) if isinstance(extra, dict) and not declared else _ANY
                members.append(Annotation(f"dict[str, {values}]", dict[str, values.type]))
        return members


def _ordered(names: set[str]) -> list[Annotation]:
    ordered = sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    return [_TYPES[name] for name in ordered]


_MAX_CHOICES: Final = 1_000
_APPLICATORS: Final = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"}
)


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a tool."""

    name: str
    """The exact name in the tool's schema."""
    alias: str
    """The name in Python code: the exact name, or an identifier made from it (`from_`, `max_results`)."""
    required: bool
    annotation: Any
    """An `Annotation`, such as `int | None`."""
    default: Any
    """The schema's default; else None if the argument is optional, `inspect.Parameter.empty` if required."""
    description: str
    """One paragraph, often empty."""
    enum: tuple[Any, ...]
    """The allowed values, if the schema lists them."""
    schema: Mapping[str, Any]
    """The argument's own schema."""


class _ShownParameter(inspect.Parameter):
    """A parameter whose annotation is a type, but is printed as the text of an `Annotation`."""

    __slots__ = ("_shown",)

    def __init__(self, name: str, kind: Any, *, default: Any = inspect.Parameter.empty, annotation: Any) -> None:
        self._shown = annotation
        type_ = annotation.type if isinstance(annotation, Annotation) else annotation
        super().__init__(name, kind, default=default, annotation=type_)

    def __str__(self) -> str:
        return str(inspect.Parameter(self.name, self.kind, default=self.default, annotation=self._shown))


class ParameterList(msgspec.Struct, frozen=True):
    """All parameters of a tool, the required ones first."""

    parameters: tuple[Parameter, ...]
    open: bool
    """Whether undeclared arguments are accepted."""
    shows_open: bool
    """Whether the signature shows `**arguments`; not for `properties: {}`, which means a tool without arguments."""

    def signature(self) -> inspect.Signature:
        """The signature with keyword-only optional arguments; secrets in defaults are masked."""
        kinds = {True: inspect.Parameter.POSITIONAL_OR_KEYWORD, False: inspect.Parameter.KEYWORD_ONLY}
        listed: list[inspect.Parameter] = [
            _ShownParameter(
                each.alias, kinds[each.required], default=masks.json(each.default), annotation=each.annotation
            )
            for each in self.parameters
        ]
        if self.shows_open:
            rest = unused("arguments", {each.alias for each in self.parameters})
            listed.append(_ShownParameter(rest, inspect.Parameter.VAR_KEYWORD, annotation=Annotation("Any")))
        return inspect.Signature(listed, return_annotation=Annotation("ToolResult"))


def read_parameters(tree: SchemaTree) -> ParameterList:
    """The parameters that a tool's input schema declares."""
    members = tree.record.members
    required = tree.record.required  # in the author's order, even if a serializer sorted the members
    order = required + [name for name in members if name not in set(required)]
    aliases = {name: name for name in order if _identifier(name) == name}
    unique = UniqueNames(aliases.values())
    aliases |= {name: unique.add(_identifier(name)) for name in order if name not in aliases}
    listed = tuple(
        _parameter(tree, name, aliases[name], members.get(name, ANYTHING), required=at < len(required))
        for at, name in enumerate(order)
    )
    is_open = _is_open(tree.root, members)
    empty_on_purpose = tree.root.get("properties") == {} and not tree.root.get("additionalProperties")
    return ParameterList(listed, open=is_open, shows_open=is_open and not empty_on_purpose)


def _parameter(tree: SchemaTree, name: str, alias: str, schema: Any, *, required: bool) -> Parameter:
    own: Schema = schema if is_object(schema) else ANYTHING
    default = inspect.Parameter.empty if required else own.get("default")
    annotation = annotate(tree, schema, nullable=not required and default is None)
    description = own.get("description")
    if not isinstance(description, str):
        texts = (form.get("description") for form in tree.alternatives(own))
        description = next((text for text in texts if isinstance(text, str)), "")
    return Parameter(
        name=name,
        alias=alias,
        required=required,
        annotation=Annotation(mask(annotation), annotation.type),
        default=default,
        description=" ".join(description.split()),
        enum=tree.choices(schema)[:_MAX_CHOICES],
        schema=own,
    )


def _is_open(root: Schema, members: Schema) -> bool:
    """Whether undeclared arguments are accepted.

    JSON Schema accepts them if `additionalProperties` is absent. Authors who declare arguments and omit that keyword
    rarely intend this, so an undeclared argument is then treated as a typo and is not sent.
    """
    extra = root.get("additionalProperties")
    if extra is not None:
        return extra is not False or "patternProperties" in root
    return not members or "patternProperties" in root or not _APPLICATORS.isdisjoint(root)


def _identifier(name: str) -> str:
    """The identifier closest to a name, NFKC-normalized as in Python source."""
    word = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name)) or "_"
    if not word.isidentifier():
        word = f"_{word}"
    if not word.isidentifier():
        word = re.sub(r"[^A-Za-z0-9_]", "_", word)
    return f"{word}_" if keyword.iskeyword(word) or word == "__debug__" else word


_WIDTH: Final = 100
_MAX_TEXT: Final = 20_000
_MAX_MEMBERS: Final = 20
"""Members of one argument that the help describes."""
_NEWLINES: Final = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_DROPPED: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_HINTS: Final = (
    ("readOnlyHint", True, "read-only"),
    ("readOnlyHint", False, "writes"),
    ("destructiveHint", True, "destructive"),
    ("destructiveHint", False, "not destructive"),
    ("idempotentHint", True, "idempotent"),
    ("openWorldHint", True, "outside access"),
    ("openWorldHint", False, "no outside access"),
)


def printable(text: str) -> str:
    """Mask secrets in a server's text and remove invisible characters, which could smuggle instructions to a model.

    Control, format and private characters and variation selectors are removed; all line ends become newlines.
    """
    text = mask(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(each for each in _NEWLINES.sub("\n", text) if each in "\n\t" or _is_visible(each))


def _is_visible(character: str) -> bool:
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
    tree: SchemaTree | None = None,
) -> str:
    """A tool's help text in Google style.

    Args:
        title: The tool's title, shown unless the description begins with it.
        description: The server's description.
        parameters: The tool's arguments.
        output_schema: The tool's output schema, if it has one.
        annotations: The tool's annotations, shown as the server's hints.
        server: The server's name in this notebook.
        tool: The tool's exact name.
        kind: The noun for the last line, such as `Prompt`.
        tree: The schema of the arguments, to describe the members of those that are objects or lists of objects.
    """
    about = textwrap.dedent(printable((description or "")[:_MAX_TEXT])).strip()
    name = shortened(printable(title or ""), _WIDTH)
    heading = [name] if name and not about.casefold().startswith(name.casefold()) else []
    hints = hint_words(annotations)
    says = f"The server says: {hints}." if hints else ""
    sections = [*heading, about, _arguments(parameters, tree), _returns(output_schema), says]
    source = f"{kind} {shortened(printable(tool), 80)!r} of the MCP server {shortened(printable(server), 80)!r}."
    return "\n\n".join([section for section in sections if section] + [source])


def _arguments(parameters: Sequence[Parameter], tree: SchemaTree | None) -> str:
    lines: list[str] = []
    for each in parameters:
        lines.append(_argument(each))
        members = {} if tree is None else {path: member for path, *member in _members(tree, each.schema, each.alias)}
        for path, (is_required, schema) in list(members.items())[:_MAX_MEMBERS]:
            member = _parameter(tree or SchemaTree({}), path, path, schema, required=is_required)
            lines.append(_argument(member, indent=8))
        if len(members) > _MAX_MEMBERS:
            lines.append(f"        … {len(members) - _MAX_MEMBERS} more: .input_schema has them")
    return "\n".join(["Args:", *lines]) if lines else ""


def _members(
    tree: SchemaTree, schema: Any, path: str, levels: int = 2, outer: tuple[int, ...] = ()
) -> Iterator[tuple[str, bool, Any]]:
    """The members of an object, and of the objects in a list or mapping: path, whether it is required, schema.

    Args:
        tree: The schema that the subschema belongs to.
        schema: The subschema.
        path: The path of the value.
        levels: The levels of objects to describe.
        outer: The ids of the lists of members around it, which are not described again.
    """
    for form in tree.alternatives(schema) if len(outer) < _MAX_DEPTH else ():
        for word, step in (("items", "[]"), ("additionalProperties", "[key]")):
            if is_object(form.get(word)):
                yield from _members(tree, form[word], path + step, levels, (*outer, id(form[word])))
        required, members = required_names(form), properties(form)
        for name, part in members.items() if levels and id(members) not in outer else ():
            inner = f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]"
            yield inner, name in required, part
            yield from _members(tree, part, inner, levels - 1, (*outer, id(members)))


def _argument(parameter: Parameter, *, indent: int = 4) -> str:
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
    return _filled(f"{head} {line}", indent)


def _filled(text: str, indent: int) -> str:
    """Fill lines with the words of an argument's description; `textwrap` takes five times as long."""
    lines: list[str] = []
    start, length = 0, indent
    words = text.split()
    for index, word in enumerate(words):
        length += len(word) + (index > start)
        if length > _WIDTH and index > start:
            lines.append(" ".join(words[start:index]))
            start, length = index, indent + 4 + len(word)
    lines.append(" ".join(words[start:]))
    return " " * indent + f"\n{' ' * (indent + 4)}".join(lines)


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


def hint_words(annotations: Mapping[str, Any] | None) -> str:
    """Describe a tool's hints in MCP's terms, without those that do not apply to a read-only tool."""
    given = dict(annotations or {})
    if given.get("readOnlyHint") is True:
        given.pop("destructiveHint", None)
        given.pop("idempotentHint", None)
    return ", ".join(words for key, value, words in _HINTS if given.get(key) is value)


def callable_subclass(base: type[Any], name: str, module: str, signature: inspect.Signature, text: str) -> type[Any]:
    """Make a subclass whose call, and whose `aio` if that is a method, has this signature.

    IPython, jedi and `inspect` read the signature and the docstring from the class. The call itself has no docstring:
    `?` would show the same text twice.

    Args:
        base: The class.
        name: The subclass's name.
        module: A module name without a source file, so that `?` shows no unrelated source.
        signature: The signature of the call.
        text: The docstring.
    """
    members: dict[str, Any] = {"__doc__": text, "__module__": module, "__signature__": signature}
    # Attributes that libraries expect of a function. `__qualname__` is set on the instance: a class needs a string.
    members["__name__"], members["__annotations__"] = name, _types(signature)
    members["__call__"] = _with_signature(base.__call__, "__call__", signature)
    if inspect.isfunction(base.__dict__.get("aio")):
        members["aio"] = _with_signature(base.aio, "aio", signature)
    return type(name, (base,), members)


def _with_signature(inherited: Any, name: str, signature: inspect.Signature) -> Any:
    free = next(name for name in ("self", "_self", "__self") if name not in signature.parameters)
    receiver = inspect.Parameter(free, inspect.Parameter.POSITIONAL_ONLY)
    own: Any = FunctionType(inherited.__code__, inherited.__globals__)  # the same code, which saves a call
    own.__signature__ = signature.replace(parameters=[receiver, *signature.parameters.values()])
    own.__name__, own.__doc__, own.__annotations__ = name, "", _types(signature)
    return own


def _types(signature: inspect.Signature) -> dict[str, Any]:
    return {name: parameter.annotation for name, parameter in signature.parameters.items()}

"""A tool's input schema for Python calls: parameters, a signature, and arguments ready to send.

`tree` reads the schema, `annotations` makes the signature, `coercion` converts arguments to JSON, and `validation`
checks them and writes the error messages. The arguments of prompts and URI templates, which are sent as
strings, have such a schema too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from ipymcp.errors import ArgumentError
from ipymcp.masking import mask
from ipymcp.names import identifier, nearest
from ipymcp.protocol.types import encode, is_array, is_object, loads
from ipymcp.schema.annotations import (
    Annotation,
    Parameter,
    ParameterList,
    callable_subclass,
    docstring,
    read_parameters,
    spelled_out,
)
from ipymcp.schema.coercion import NotJson, Target, coerce, fits, is_plain, read_text, takes_none, to_json
from ipymcp.schema.tree import ANYTHING, Schema, SchemaTree, allow_null, constrains_only_types
from ipymcp.schema.validation import (
    ArgumentProblem,
    Validator,
    listing,
    most_informative,
    problem_at_field,
)
from ipymcp.text import one_line, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable
    from inspect import Signature

    from msgspec import Raw

__all__ = ["Parameter", "ToolSchema"]

_MAX_SIGNATURE: Final = 300
"""Characters of a signature in a hint."""
_MAX_ANNOTATION: Final = 300
_NAME: Final = re.compile(r"[\w.-]+")


class _Slot(msgspec.Struct, frozen=True):
    """One parameter, prepared for binding."""

    name: str
    schema: Any
    ready: frozenset[type]
    """Python types that need no conversion."""
    drops_none: bool
    needs_validation: bool = True
    """Whether a value of the `ready` types may still be invalid."""


class _CallBinding(msgspec.Struct, frozen=True):
    """Data that all calls of one tool share, made at the first call."""

    tree: SchemaTree
    slots: dict[str, _Slot]
    """Slots by alias and by exact name."""
    positional: tuple[_Slot, ...]
    required: frozenset[str]
    open: bool
    is_record: bool
    """Whether validating each argument validates the whole call."""
    validator: Validator


class ToolSchema:
    """The arguments of one tool.

    The schema is read at its first use, and the validator is made when it is needed. A broken schema never makes its
    tool uncallable: the server validates what cannot be checked here.

    Args:
        schema: The tool's `inputSchema`, decoded or as JSON.
        server: The server's name in this notebook, for errors.
        tool: The tool's own name, for errors.
    """

    __slots__ = ("_binding", "_list", "_signature", "_source", "_tree", "server", "tool")

    def __init__(self, schema: Mapping[str, Any] | bytes | Raw, *, server: str, tool: str) -> None:
        self.server = server
        self.tool = tool
        self._source: Any = schema
        self._tree: SchemaTree | None = None
        self._list: ParameterList | None = None
        self._signature: Signature | None = None
        self._binding: _CallBinding | None = None

    def __repr__(self) -> str:
        return one_line(f"<ToolSchema {self.server}.{self.tool}>")

    @property
    def tree(self) -> SchemaTree:
        """The schema; an empty one, which accepts anything, if it is not a JSON object."""
        if self._tree is None:
            self._tree = SchemaTree(_read(self._source))
            self._source = None
        return self._tree

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every declared argument, the required ones first, each group in the schema's order."""
        return self._parameter_list.parameters

    @property
    def is_open(self) -> bool:
        """Whether the schema explicitly allows undeclared arguments."""
        return self._parameter_list.shows_open

    @property
    def _parameter_list(self) -> ParameterList:
        if self._list is None:
            self._list = read_parameters(self.tree)
        return self._list

    @property
    def signature(self) -> Signature:
        """The signature of the tool as a function; optional arguments are keyword-only."""
        if self._signature is None:
            self._signature = self._parameter_list.signature()
        return self._signature

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Convert the arguments of a Python call to valid JSON values by exact name.

        Raises:
            ArgumentError: An argument is missing, unknown, of the wrong type, or cannot be represented in JSON.
        """
        binding = self._binding or self._prepare()
        arguments: dict[str, Any] = {}
        is_valid = binding.is_record
        if args:
            if len(args) > len(binding.positional):
                raise self._too_many(args, binding)
            for slot, value in zip(binding.positional, args, strict=False):
                is_valid &= self._put(binding, slot, value, arguments)
        return self._finish(binding, kwargs, arguments, is_valid)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Convert named arguments, by exact name or alias, to valid JSON values by exact name.

        Raises:
            ArgumentError: As for `bind`.
        """
        binding = self._binding or self._prepare()
        return self._finish(binding, arguments, {}, binding.is_record)

    def problems(self, arguments: Mapping[str, Any]) -> list[ArgumentProblem]:
        """The first few validation errors of named arguments, for a form; empty if `check` accepts them."""
        try:
            self.check(arguments)
        except ArgumentError as error:
            binding = self._binding or self._prepare()
            problems = [problem_at_field(each) for each in binding.validator.errors(dict(arguments))]
            return problems or [ArgumentProblem((error.argument,) if error.argument else (), error.message, error.hint)]
        return []

    def read_text(self, name: str, text: str) -> Any:
        """Read the value of `name=text` on a `%mcp` line, by the rules of `coercion.read_text`.

        Args:
            name: The argument's exact name or alias.
            text: The typed text, without the outer quotes.
        """
        binding = self._binding or self._prepare()
        slot = binding.slots.get(name)
        return read_text(binding.tree, text, slot.schema if slot else ANYTHING)

    def _prepare(self) -> _CallBinding:
        tree = self.tree
        listed = self._parameter_list
        slots = {each.name: _slot(tree, each) for each in listed.parameters}
        self._binding = _CallBinding(
            tree=tree,
            slots={**{each.alias: slots[each.name] for each in listed.parameters}, **slots},
            positional=tuple(slots[each.name] for each in listed.parameters if each.required),
            required=frozenset(each.name for each in listed.parameters if each.required),
            open=listed.open,
            is_record=tree.is_record,
            validator=Validator(tree),
        )
        return self._binding

    def _finish(
        self, binding: _CallBinding, given: Mapping[str, Any], arguments: dict[str, Any], is_valid: bool
    ) -> dict[str, Any]:
        """Add the named arguments to the positional ones and validate all.

        Args:
            binding: The binding of this tool.
            given: Arguments by name or alias.
            arguments: The positional arguments by exact name; extended in place.
            is_valid: Whether `arguments` are known to be valid.
        """
        for key, value in given.items():
            slot = binding.slots.get(key)
            if slot is not None:
                is_valid &= self._put(binding, slot, value, arguments)
            elif binding.open:
                is_valid &= self._put(
                    binding,
                    _Slot(key, binding.tree.root.get("additionalProperties"), frozenset(), False),
                    value,
                    arguments,
                )
            else:
                raise self._surplus(key, binding)
        if not binding.required <= arguments.keys():
            names = [slot.name for slot in binding.positional if slot.name not in arguments]
            message = f"missing {'argument' if len(names) == 1 else 'arguments'} {listing(names)}"
            raise self._call_error(message, names[0])
        if not is_valid and not binding.validator.accepts(arguments):
            errors = binding.validator.errors(arguments)
            if errors:
                raise self._error(most_informative(errors))
        return arguments

    def _put(self, binding: _CallBinding, slot: _Slot, value: Any, arguments: dict[str, Any]) -> bool:
        """Add one argument; return whether it is known to be valid."""
        name = slot.name
        if name in arguments:
            raise self._error(ArgumentProblem((name,), "is given twice", "give it once, by position or by name"))
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind in slot.ready and is_plain(value):
            arguments[name] = value
            return not slot.needs_validation
        if value is not None or not slot.drops_none:
            try:
                ready = to_json(value, (name,), target=Target(binding.tree, slot.schema))
            except NotJson as error:
                raise self._error(ArgumentProblem(error.path, error.problem, error.hint)) from None
            arguments[name] = coerce(binding.tree, ready, slot.schema)
            return False
        return True

    def _surplus(self, key: Any, binding: _CallBinding) -> ArgumentError:
        name = key if isinstance(key, str) else None
        meant = nearest(name or "", binding.slots, limit=1)
        message = f"no argument {shortened(repr(key), 60)}{f'; {meant}' if meant else ''}"
        return self._call_error(message, name)

    def _too_many(self, args: tuple[Any, ...], binding: _CallBinding) -> ArgumentError:
        names = [slot.name for slot in binding.positional]
        taken = f"{len(names)} by position ({listing(names)})" if names else "none by position"
        given = f"{len(args)} {'argument' if len(args) == 1 else 'arguments'} given by position"
        message = f"{given}; it takes {taken}{', others by name' if self.parameters else ''}"
        return self._call_error(message, None, self._by_name(args, binding))

    def _by_name(self, args: tuple[Any, ...], binding: _CallBinding) -> str | None:
        """The call with surplus positional arguments given by name, each to the next argument of a matching type."""
        optional = [each for each in self.parameters if not each.required]
        words = [listing((value,)) for value in args[: len(binding.positional)]]
        for value in args[len(binding.positional) :]:
            fitting = [at for at, each in enumerate(optional) if fits(binding.tree, value, each.schema)]
            if not fitting:
                return None
            words.append(f"{optional[fitting[0]].alias}={listing((value,))}")
            del optional[: fitting[0] + 1]
        return shortened(f"{self._python_name}({', '.join(words)})", _MAX_SIGNATURE)

    @property
    def _python_name(self) -> str:
        """The tool's name as a Python identifier, if an identifier can be made of it."""
        return identifier(self.tool) if _NAME.fullmatch(self.tool) else self.tool

    def _call_error(self, message: str, argument: str | None, hint: str | None = None) -> ArgumentError:
        """An error about the call as a whole; its default hint is the shortened signature."""
        if hint is None:
            words = [f"{each.alias}: {self._annotation(each)}" for each in self.parameters if each.required]
            optional = [each.alias for each in self.parameters if not each.required]
            words += ["*", *optional] if optional else []
            words += ["**arguments"] if self.is_open else []
            hint = shortened(f"{self._python_name}({', '.join(words)})", _MAX_SIGNATURE)
        return ArgumentError(message, argument=argument, server=self.server, tool=self.tool, hint=hint)

    def _error(self, problem: ArgumentProblem) -> ArgumentError:
        """An error about one argument; its default hint is the type and description of the argument."""
        name = next((part for part in problem.path[:1] if isinstance(part, str)), None)
        hint = problem.hint or None
        parameter = next((each for each in self.parameters if each.name == name), None)
        if hint is None and parameter is not None:
            about = f" · {shortened(parameter.description, 100)}" if parameter.description else ""
            hint = shortened(f"{parameter.alias}: {self._annotation(parameter)}", _MAX_ANNOTATION) + about
        return ArgumentError(problem.message, argument=name, server=self.server, tool=self.tool, hint=hint)

    def _annotation(self, parameter: Parameter) -> str:
        """The type of an argument, with the members of objects."""
        if "dict[" not in parameter.annotation:
            return parameter.annotation
        optional = " | None" if parameter.annotation.endswith("| None") else ""
        shown = mask(spelled_out(self.tree, parameter.schema))
        return shown if shown.endswith(optional) else shown + optional


def _slot(tree: SchemaTree, parameter: Parameter) -> _Slot:
    return _Slot(
        name=parameter.name,
        schema=parameter.schema,
        ready=tree.scalar_types(parameter.schema) - {type(None)},
        drops_none=not parameter.required and not takes_none(tree, parameter.schema),
        needs_validation=not constrains_only_types(parameter.schema),
    )


def _read(source: Any) -> Schema:
    if not isinstance(source, Mapping):
        try:
            raw = bytes(cast("bytes | Raw", source))
            source = loads(raw)
        except (TypeError, ValueError, RecursionError):
            return {}
        if b'"nullable"' in raw and is_object(source):
            allow_null(source)
    return dict(cast("Mapping[str, Any]", source)) if isinstance(source, Mapping) else {}


class Argument(NamedTuple):
    """One argument that is sent as a string, of a prompt or a URI template."""

    name: str
    required: bool
    description: str = ""
    is_explodable: bool = False
    """Whether a list or a mapping is allowed, whose members are sent as several strings."""


def schema_of(arguments: Iterable[Argument], *, server: str, owner: str) -> ToolSchema:
    """Make a schema that binds and checks these arguments like a tool's.

    Args:
        arguments: The arguments in positional order.
        server: The server's name in this notebook, for errors.
        owner: The name of the prompt or template, for errors.
    """
    listed = list(arguments)
    properties = {
        each.name: {
            "type": ["string", "array", "object"] if each.is_explodable else "string",
            **({"description": each.description} if each.description else {}),
        }
        for each in listed
    }
    required = [each.name for each in listed if each.required]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSchema(schema, server=server, tool=owner)


def _as_text(value: Any) -> Any:
    """A Python value as a string: strings and None unchanged, others as JSON, or unchanged if that is impossible."""
    if value is None or isinstance(value, str):
        return value
    try:
        ready = to_json(value, ())
    except NotJson:  # binding reports it with the argument's name
        return value
    return ready if isinstance(ready, str) else encode(ready).decode()


def _as_texts(value: Any) -> Any:
    """A value as a string, or the members of a list or mapping as strings."""
    if is_array(value):
        return [_as_text(item) for item in value]
    return {key: _as_text(item) for key, item in value.items()} if is_object(value) else _as_text(value)


def callable_class(
    base: type[Any],
    schema: ToolSchema,
    *,
    alias: str,
    kind: str,
    returns: str,
    title: str | None,
    description: str | None,
) -> type[Any]:
    """Make a subclass whose call has these arguments, for `?`, Shift-Tab and Tab.

    Args:
        base: The class.
        schema: The schema of the arguments.
        alias: The subclass's name.
        kind: The noun for the docstring, such as `Prompt`.
        returns: The name of the returned type.
        title: The server's title for the prompt or template.
        description: The server's description.
    """
    signature = schema.signature.replace(return_annotation=Annotation(returns))
    text = docstring(
        title, description, schema.parameters, None, None, server=schema.server, tool=schema.tool, kind=kind
    )
    return callable_subclass(base, alias, f"mcp.{schema.server}", signature, text)


def to_strings(schema: ToolSchema, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of one call to strings by exact name, without those that are None.

    Raises:
        ArgumentError: An argument is missing, unknown, or cannot be represented in JSON.
    """
    explodable = {each.name for each in schema.parameters if not isinstance(each.schema.get("type"), str)}
    explodable |= {each.alias for each in schema.parameters if each.name in explodable}
    positional = [each.name for each in schema.parameters if each.required]
    converted = tuple(
        _as_texts(value) if at < len(positional) and positional[at] in explodable else _as_text(value)
        for at, value in enumerate(args)
    )
    by_name = {
        name: _as_texts(value) if name in explodable else _as_text(value)
        for name, value in kwargs.items()
        if value is not None
    }
    return schema.bind(converted, by_name)

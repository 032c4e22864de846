"""A tool's input schema as what calling it in Python needs: parameters, a signature, and arguments ready to send.

The parts: `schema_tree` reads the schema, `parameters` makes the signature, `plain` and `coercion` make JSON of what
the user gave, `validation` judges it, `complaints` words what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from ipymcp.errors import ArgumentError
from ipymcp.names import identifier
from ipymcp.protocol.types import loads
from ipymcp.schema.annotations import Parameter, ParameterList, read_parameters
from ipymcp.schema.coercion import coerce, read_text, takes_none
from ipymcp.schema.to_json import NotJson, plain
from ipymcp.schema.tree import ANYTHING, Schema, SchemaTree, says_only_types
from ipymcp.schema.validation import Complaint, Validator, complain, listing, near, placed, shortened
from ipymcp.text import one_line

if TYPE_CHECKING:
    from inspect import Signature

    from msgspec import Raw

__all__ = ["Parameter", "ToolSchema"]

_MAX_SIGNATURE: Final = 200
_NAME: Final = re.compile(r"[\w.-]+")


class _Slot(msgspec.Struct, frozen=True):
    """What binding needs to know of one parameter."""

    name: str
    schema: Any
    ready: frozenset[type]
    """Python types that need no conversion here."""
    drops_none: bool
    needs_judging: bool = True
    """Whether a value of those types may still be invalid."""


class _Binding(msgspec.Struct, frozen=True):
    """What every call of one tool needs, made at its first."""

    tree: SchemaTree
    slots: dict[str, _Slot]
    """By alias and by exact name."""
    positional: tuple[_Slot, ...]
    required: frozenset[str]
    open: bool
    is_record: bool
    """Whether what all arguments are, one by one, is all there is to judge."""
    validator: Validator


class ToolSchema:
    """The arguments one tool takes.

    Making one costs nothing: the schema is read when it is first asked about, and the validator made when it is needed.
    A schema that is broken never makes its tool uncallable; what it does not say clearly is left to the server.

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
        self._binding: _Binding | None = None

    def __repr__(self) -> str:
        return one_line(f"<ToolSchema {self.server}.{self.tool}>")

    @property
    def tree(self) -> SchemaTree:
        """The schema itself; an empty one, which allows anything, where it is no JSON object."""
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
        """Whether the schema invites arguments that it does not declare."""
        return self._parameter_list.says_open

    @property
    def _parameter_list(self) -> ParameterList:
        if self._list is None:
            self._list = read_parameters(self.tree)
        return self._list

    @property
    def signature(self) -> Signature:
        """The tool as a Python function: required arguments by position or name, optional ones by name."""
        if self._signature is None:
            self._signature = self._parameter_list.signature()
        return self._signature

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of one Python call, by their exact names, as JSON values that the schema accepts.

        Raises:
            ArgumentError: One is missing, surplus, of the wrong kind, or nothing that JSON can say.
        """
        binding = self._binding or self._prepare()
        arguments: dict[str, Any] = {}
        is_judged = binding.is_record
        if args:
            if len(args) > len(binding.positional):
                raise self._too_many(args, binding)
            for slot, value in zip(binding.positional, args, strict=False):
                is_judged &= self._put(binding, slot, value, arguments)
        return self._finish(binding, kwargs, arguments, is_judged)

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The same for arguments that are already named, exactly or by alias.

        Raises:
            ArgumentError: As `bind`.
        """
        binding = self._binding or self._prepare()
        return self._finish(binding, arguments, {}, binding.is_record)

    def complaints(self, arguments: Mapping[str, Any]) -> list[Complaint]:
        """All that is wrong with arguments, for a form: nothing where `check` takes them, else the first few."""
        try:
            self.check(arguments)
        except ArgumentError as error:
            binding = self._binding or self._prepare()
            found = [placed(one) for one in binding.validator.errors(dict(arguments))]
            return found or [Complaint((error.argument,) if error.argument else (), error.message, error.hint)]
        return []

    def read_text(self, name: str, text: str) -> Any:
        """What is meant by `name=text` on a `%mcp` line; the rules are those of `coercion.read_text`.

        Args:
            name: The argument, by its exact name or its alias.
            text: What was typed, without the outer quotes.
        """
        binding = self._binding or self._prepare()
        slot = binding.slots.get(name)
        return read_text(binding.tree, text, slot.schema if slot else ANYTHING)

    def _prepare(self) -> _Binding:
        tree = self.tree
        listed = self._parameter_list
        slots = {each.name: _slot(tree, each) for each in listed.parameters}
        self._binding = _Binding(
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
        self, binding: _Binding, given: Mapping[str, Any], arguments: dict[str, Any], is_judged: bool
    ) -> dict[str, Any]:
        """The arguments with those that are named.

        Args:
            binding: Of this tool.
            given: By name or alias.
            arguments: Those before them.
            is_judged: Whether these are certainly what the schema takes.
        """
        for key, value in given.items():
            slot = binding.slots.get(key)
            if slot is not None:
                is_judged &= self._put(binding, slot, value, arguments)
            elif binding.open:
                is_judged &= self._put(
                    binding,
                    _Slot(key, binding.tree.root.get("additionalProperties"), frozenset(), False),
                    value,
                    arguments,
                )
            else:
                raise self._surplus(key, binding)
        if not binding.required <= arguments.keys():
            raise self._missing(binding, arguments)
        if not is_judged and not binding.validator.accepts(arguments):
            errors = binding.validator.errors(arguments)
            if errors:
                raise self._error(complain(errors))
        return arguments

    def _put(self, binding: _Binding, slot: _Slot, value: Any, arguments: dict[str, Any]) -> bool:
        """Take one argument, and say whether it is certainly what the schema takes."""
        name = slot.name
        if name in arguments:
            raise self._error(Complaint((name,), "is given twice", "give it once, by position or by name"))
        kind = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind in slot.ready and (kind is not str or value.isascii()):
            arguments[name] = value
            return not slot.needs_judging
        if value is not None or not slot.drops_none:
            try:
                ready = plain(value, (name,))
            except NotJson as error:
                raise self._error(Complaint(error.path, error.problem, error.hint)) from None
            arguments[name] = coerce(binding.tree, ready, slot.schema)
            return False
        return True

    def _missing(self, binding: _Binding, arguments: dict[str, Any]) -> ArgumentError:
        names = [slot.name for slot in binding.positional if slot.name not in arguments]
        word = "argument" if len(names) == 1 else "arguments"
        return self._refusal(f"missing {word} {listing(names)}", names[0])

    def _surplus(self, key: Any, binding: _Binding) -> ArgumentError:
        meant = near(key, binding.slots)
        ask = f"; did you mean {meant!r}?" if meant else ""
        return self._refusal(f"no argument {shortened(repr(key), 60)}{ask}", key if isinstance(key, str) else None)

    def _too_many(self, args: tuple[Any, ...], binding: _Binding) -> ArgumentError:
        names = [slot.name for slot in binding.positional]
        taken = f"{len(names)} by position ({listing(names)})" if names else "none by position"
        given = f"{len(args)} {'argument' if len(args) == 1 else 'arguments'} given by position"
        message = f"{given}; it takes {taken}{', others by name' if self.parameters else ''}"
        return self._refusal(message, None, self._by_name(args, binding))

    def _by_name(self, args: tuple[Any, ...], binding: _Binding) -> str | None:
        """The same call with what is surplus given by name: each to the next argument that takes a value like it."""
        optional = [each for each in self.parameters if not each.required]
        words = [listing((value,)) for value in args[: len(binding.positional)]]
        for value in args[len(binding.positional) :]:
            fitting = [at for at, each in enumerate(optional) if type(value) in binding.slots[each.name].ready]
            if not fitting:
                return None
            words.append(f"{optional[fitting[0]].alias}={listing((value,))}")
            del optional[: fitting[0] + 1]
        return shortened(f"{self._typed}({', '.join(words)})", _MAX_SIGNATURE)

    @property
    def _typed(self) -> str:
        """The tool's name as it is typed in Python."""
        return identifier(self.tool) if _NAME.fullmatch(self.tool) else self.tool

    def _refusal(self, message: str, argument: str | None, hint: str | None = None) -> ArgumentError:
        """An error whose hint is the signature, in short, unless there is a better one."""
        if hint is None:
            words = [f"{each.alias}: {each.annotation}" for each in self.parameters if each.required]
            optional = [each.alias for each in self.parameters if not each.required]
            words += ["*", *optional] if optional else []
            words += ["**arguments"] if self.is_open else []
            hint = shortened(f"{self._typed}({', '.join(words)})", _MAX_SIGNATURE)
        return ArgumentError(message, argument=argument, server=self.server, tool=self.tool, hint=hint)

    def _error(self, complaint: Complaint) -> ArgumentError:
        """An error whose hint is what to do, or what the argument is."""
        name = next((part for part in complaint.path[:1] if isinstance(part, str)), None)
        hint = complaint.hint or self._described(name)
        return ArgumentError(complaint.message, argument=name, server=self.server, tool=self.tool, hint=hint)

    def _described(self, name: str | None) -> str | None:
        for each in self.parameters:
            if each.name == name:
                about = f" · {shortened(each.description, 100)}" if each.description else ""
                return shortened(f"{each.alias}: {each.annotation}", 100) + about
        return None


def _slot(tree: SchemaTree, parameter: Parameter) -> _Slot:
    return _Slot(
        name=parameter.name,
        schema=parameter.schema,
        ready=tree.settled(parameter.schema) - {type(None)},
        drops_none=not parameter.required and not takes_none(tree, parameter.schema),
        needs_judging=not says_only_types(parameter.schema),
    )


def _read(source: Any) -> Schema:
    if not isinstance(source, Mapping):
        try:
            source = loads(cast("bytes | Raw", source))
        except (TypeError, ValueError, RecursionError):
            return {}
    return dict(cast("Mapping[str, Any]", source)) if isinstance(source, Mapping) else {}

"""A tool's input schema, made what a provider takes, with word of what was lost on the way.

References are followed and `allOf` is merged, as the rest of the Python face reads a schema. What a provider has no
keyword for is said in the description instead, where it is short, so that the model still knows.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.text import stripped
from ipymcp.tools.complaints import shortened
from ipymcp.tools.models.keywords import TEXT_OR_NUMBER, is_sound, parted
from ipymcp.tools.schema_tree import (
    KINDS,
    Budget,
    SchemaTree,
    form_kinds,
    kind_of,
    merged,
    properties,
    required_names,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.tools.models.profiles import Profile
    from ipymcp.tools.schema_tree import Schema

__all__ = ["Compiled", "Loss", "compiled", "restored"]

_MOST_NODES: Final = 3_000
_LONGEST_NOTE: Final = 120
_SHORT: Final = 40
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_UNIONS: Final = ("anyOf", "oneOf")
_BUILT: Final = frozenset(
    {"type", "properties", "required", "items", "prefixItems", "additionalProperties", "nullable", "additionalItems"}
    | {"$ref", "$defs", "definitions", "allOf", *_UNIONS}
)
"""What the compiler reads itself."""
_NOT_AT_THE_TOP: Final = frozenset({"nullable", "enum", "const", "not", "default"})
"""Arguments are an object, whatever else their schema says."""
_SILENT: Final = frozenset({"$schema", "$id", "$anchor", "$comment", "examples", "deprecated", "readOnly", "writeOnly"})
"""What says nothing to a model: no loss."""


class Loss(Struct, frozen=True):
    """Something that a provider's declaration does not say."""

    path: str
    """Where in the schema, as `a.b[].c`; empty for the whole."""
    what: str


class Compiled(Struct, frozen=True):
    """A schema as a provider takes it.

    Attributes:
        parameters: The schema: an object's.
        lost: What it does not say any more.
        renamed: The properties that had to be called otherwise: `{new name: the tool's own}`.
    """

    parameters: Schema
    lost: tuple[Loss, ...] = ()
    renamed: Mapping[str, str] = {}


def compiled(schema: object, profile: Profile) -> Compiled:
    """Compile the input schema of a tool, decoded."""
    compiler = _Compiler(SchemaTree(schema if is_object(schema) else {}), profile)
    parameters = compiler.root()
    return Compiled(parameters, tuple(compiler.lost), compiler.renamed)


def restored(arguments: Any, renamed: Mapping[str, str]) -> Any:
    """Arguments by the tool's own names again."""
    if not renamed:
        return arguments
    if is_object(arguments):
        return {renamed.get(key, key): restored(value, renamed) for key, value in arguments.items()}
    return [restored(each, renamed) for each in arguments] if is_array(arguments) else arguments


class _Compiler:
    def __init__(self, tree: SchemaTree, profile: Profile) -> None:
        self.lost: list[Loss] = []
        self.renamed: dict[str, str] = {}
        self._tree = tree
        self._profile = profile
        self._budget = Budget(_MOST_NODES)
        self._definitions: dict[str, Any] = {}
        """Those that refer to themselves, where that may be."""
        self._names: dict[str, str] = {}
        """What each of them is called, by its reference."""
        self._following: list[str] = []

    def root(self) -> Schema:
        """The whole: always an object, without alternatives at its top, which no provider takes."""
        root = self._tree.root
        try:
            if any(each in root for each in ("$ref", "allOf", *_UNIONS)):
                root = self._flat(root)
            own = {word: value for word, value in root.items() if word not in _NOT_AT_THE_TOP}
            result = self._node({**own, "type": "object"}, "", 0)
        except RecursionError:
            self._lose("", "too large: any arguments")
            result = {}
        members: Schema = {}
        result = {"type": "object", "properties": members, **result}
        return {**result, "$defs": self._definitions} if self._definitions else result

    def _flat(self, root: Schema) -> Schema:
        forms = self._tree.alternatives(root)
        if len(forms) > 1:
            self._lose("", "alternatives at the top: the arguments of all of them")
        always = [name for form in forms[:1] for name in required_names(form)]
        always = [name for name in always if all(name in required_names(form) for form in forms)]
        own = {key: value for key, value in root.items() if key not in ("$ref", "allOf", *_UNIONS)}
        return {**own, "properties": self._tree.members(), "required": always}

    # -- one subschema ------------------------------------------------------------------------------------------------

    def _node(self, schema: object, path: str, depth: int) -> Schema:
        if not is_object(schema):
            return {}
        self._budget.spend()
        if depth > self._profile.depth:
            self._lose(path, "deeper than it may be: any JSON")
            return {"description": "any JSON"}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            return self._referred(schema, reference, path, depth)
        return self._plain(self._whole(schema), path, depth)

    def _referred(self, schema: Schema, reference: str, path: str, depth: int) -> Schema:
        if reference in self._following:
            if self._profile.recursion:
                return {"$ref": f"#/$defs/{self._name(reference)}"}
            self._lose(path, "refers to itself: any JSON from there on")
            return {"description": "as above, or any JSON"}
        try:
            target = self._tree.pointer(reference)
        except LookupError:
            self._lose(path, f"refers to nothing: {reference[:60]}")
            target = {}
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        self._following.append(reference)
        try:
            result = self._node({**target, **siblings} if is_object(target) else siblings, path, depth)
        finally:
            self._following.pop()
        if reference in self._names:
            self._definitions.setdefault(self._names[reference], result)
        return result

    def _name(self, reference: str) -> str:
        """What a definition is called: its own name as far as it may stand in a reference, no two the same."""
        if reference not in self._names:
            clean = _NO_NAME.sub("_", reference.rpartition("/")[2]).strip("_") or "root"
            is_taken = clean in self._names.values()
            self._names[reference] = f"{clean}_{len(self._names)}" if is_taken else clean
        return self._names[reference]

    def _whole(self, schema: Schema) -> Schema:
        """Its `allOf` merged into it."""
        parts = schema.get("allOf")
        if not is_array(parts):
            return schema
        whole = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            form = self._tree.alternatives(part)[0]
            whole = {**merged(whole, form), **{key: whole[key] for key in _UNIONS if key in whole}}
        return whole

    def _plain(self, schema: Schema, path: str, depth: int) -> Schema:
        result: Schema = {}
        notes: list[str] = []
        if "const" in schema and "const" not in self._profile.words:
            schema = {**{word: value for word, value in schema.items() if word != "const"}, "enum": [schema["const"]]}
        for word, value in schema.items():
            if word in _BUILT or word in _SILENT or word.startswith("x-"):
                continue
            if not is_sound(word, value):
                self._lose(path, f"{word}: {_shown(value)} is nothing it may be")
            elif word == "description":
                result[word] = stripped(value)
            elif word == "enum":
                self._put_choice(value, path, result, notes)
            elif not self._keeps(word, value):
                self._reword(word, value, path, notes)
            else:
                result[word] = stripped(value) if isinstance(value, str) else value
        self._put_type(schema, path, depth, result, notes)
        if notes:
            result["description"] = " ".join(filter(None, (result.get("description"), f"({'; '.join(notes)})")))
        return result

    def _keeps(self, word: str, value: object) -> bool:
        profile = self._profile
        if word == "format":
            return word in profile.words and value in (profile.formats or (value,))
        return word in profile.words

    def _reword(self, word: str, value: object, path: str, notes: list[str]) -> None:
        if word == "title":
            return
        note = f"{word}: {json.dumps(value, ensure_ascii=False)}"
        if len(note) <= _LONGEST_NOTE:
            notes.append(stripped(note))
            if word != "default":
                self._lose(path, f"{word}: it is told in words")
        else:
            self._lose(path, word)

    def _put_choice(self, values: list[Any], path: str, result: Schema, notes: list[str]) -> None:
        """`enum`; of one that has null, the type says so where the provider takes no other than texts and numbers."""
        if self._profile.any_choices:
            result["enum"] = values
        elif all(kind_of(value) in TEXT_OR_NUMBER for value in values if value is not None):
            if found := [value for value in values if value is not None]:
                result["enum"] = found
        else:
            self._reword("enum", values, path, notes)

    def _put_type(self, schema: Schema, path: str, depth: int, result: Schema, notes: list[str]) -> None:
        branches = [each for union in _UNIONS for each in _array(schema.get(union))]
        names = self._kinds(schema, path, notes)
        if not names and not branches:
            names = sorted(form_kinds(schema) or ())
        is_nullable = schema.get("nullable") is True and "null" not in names
        if is_nullable and names:
            names.append("null")
        if "object" in names:
            self._put_members(schema, path, depth, result)
        if "array" in names:
            self._put_items(schema, path, depth, result)
        if len(names) == 1:
            result["type"] = names[0]
        elif names and self._profile.type_lists:
            result["type"] = names
        elif names:
            result["anyOf"] = parted(result, names)
        if branches:
            variants = [self._node(each, path, depth) for each in branches]
            if "anyOf" not in result:
                result["anyOf"] = [*variants, {"type": "null"}] if is_nullable and not names else variants
            else:
                self._lose(path, "alternatives beside a list of types")
        if (
            "null" in names
            and is_array(result.get("enum"))
            and None not in result["enum"]
            and self._profile.any_choices
        ):
            result["enum"] = [*result["enum"], None]

    def _kinds(self, schema: Schema, path: str, notes: list[str]) -> list[str]:
        """What `type` names, of the types that there are."""
        declared = schema.get("type")
        if declared is None:
            return []
        names = declared if is_array(declared) else [declared]
        if any(name not in KINDS for name in names):
            self._reword("type", declared, path, notes)
        return [name for name in dict.fromkeys(filter(_is_word, names)) if name in KINDS]

    def _put_members(self, schema: Schema, path: str, depth: int, result: Schema) -> None:
        members: Schema = {}
        names: dict[str, str] = {}
        for name, member in properties(schema).items():
            if member is not False:
                names[name] = self._key(name, path)
                members[names[name]] = self._node(member, f"{path}.{name}" if path else name, depth + 1)
        if members or "properties" in schema:
            result["properties"] = members
        required = [names[name] for name in required_names(schema) if name in names]
        if required:
            result["required"] = required
        others = schema.get("additionalProperties")
        if is_object(others) and others:
            result["additionalProperties"] = self._node(others, f"{path}.*", depth + 1)
        elif others is False:
            result["additionalProperties"] = False

    def _put_items(self, schema: Schema, path: str, depth: int, result: Schema) -> None:
        items = schema.get("items")
        first = _array(schema.get("prefixItems")) or _array(items)
        if first:
            self._lose(path, "the places of its items: any of them anywhere")
            variants = [self._node(each, f"{path}[]", depth + 1) for each in first]
            result["items"] = variants[0] if len(variants) == 1 else {"anyOf": variants}
        else:
            result["items"] = self._node(items, f"{path}[]", depth + 1)

    def _key(self, name: str, path: str) -> str:
        pattern = self._profile.key
        if pattern is None or pattern.fullmatch(name):
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        clean = "".join(each if each.isascii() and each.isalnum() else "_" for each in name)[:50]
        new = f"{'_' if clean[:1].isdigit() else ''}{clean}_{digest}"
        self.renamed[new] = name
        self._lose(f"{path}.{name}" if path else name, f"its name: {new}")
        return new

    def _lose(self, path: str, what: str) -> None:
        self.lost.append(Loss(path, what))


def _is_word(value: object) -> bool:
    return isinstance(value, str)


def _shown(value: object) -> str:
    return shortened(stripped(json.dumps(value, ensure_ascii=False)), _SHORT)


def _array(value: object) -> list[Any]:
    return value if is_array(value) else []

"""The parts of a schema that it refers to: which of them stay one definition, and what that is called."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ipymcp.protocol import wire
from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.tools.schema_tree import parts_of, reference_of

if TYPE_CHECKING:
    from ipymcp.tools.models.profiles import Profile
    from ipymcp.tools.schema_tree import Schema, SchemaTree

__all__ = ["SharedParts"]

_WORTH: Final = 100
"""Bytes from which a part that is used twice is better said once."""
_MOST_CHAINED: Final = 16
_MOST_JUDGED: Final = 500
"""Parts among which it is looked for circles."""
_DEFINITIONS: Final = ("$defs", "definitions")
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")


class SharedParts:
    """What a schema uses more than once, or within itself, where a provider takes references.

    Args:
        tree: The schema.
        profile: The provider.
    """

    def __init__(self, tree: SchemaTree, profile: Profile) -> None:
        self._tree = tree
        self._uses: dict[int, int] = {}
        self._parts: dict[int, tuple[str, Schema]] = {}
        """With the reference that led there first, by identity."""
        self._leads: dict[int, set[int]] = {}
        """The parts that each of them refers to."""
        self._names: dict[int, str] = {}
        if not profile.references:
            return
        try:
            self._walk(tree.root, set())
            self._count_places(tree.root)
        except RecursionError:
            return
        circular = {part for part in self._parts if self._is_circular(part)}
        for part, (reference, schema) in self._parts.items():
            is_worth_it = self._uses[part] > 1 and len(wire.encode(schema)) > _WORTH
            if (part in circular and profile.recursion) or (part not in circular and is_worth_it):
                self._names[part] = self._free(reference)

    def target(self, reference: str) -> Schema | None:
        """What a reference leads to in the end, past others; None where that is nothing."""
        for _ in range(_MOST_CHAINED):
            try:
                found = self._tree.pointer(reference)
            except LookupError:
                return None
            if not is_object(found):
                return {} if found is True else None
            further = reference_of(found)
            if further is None or len(found) > 1:
                return found
            reference = further
        return None

    def name(self, schema: Schema) -> str | None:
        """What the definition of a part is called; None of what is no definition."""
        return self._names.get(id(schema))

    def _walk(self, node: Any, leads: set[int]) -> None:
        """Count the references under a part, and under what they lead to."""
        if is_array(node):
            for each in node:
                self._walk(each, leads)
        if not is_object(node):
            return
        reference = reference_of(node)
        found = self.target(reference) if reference is not None else None
        if reference is not None and found is not None:
            part = id(found)
            leads.add(part)
            self._uses[part] = self._uses.get(part, 0) + 1
            if part not in self._parts:
                self._parts[part] = (reference, found)
                self._leads[part] = set()
                self._walk(found, self._leads[part])
        for each in parts_of(node, _DEFINITIONS):
            self._walk(each, leads)

    def _count_places(self, node: Any) -> None:
        """Count a part once more that also stands where it is used, as in `#/properties/a`."""
        if is_array(node):
            for each in node:
                self._count_places(each)
        if is_object(node):
            if id(node) in self._uses:
                self._uses[id(node)] += 1
            for each in parts_of(node, _DEFINITIONS):
                self._count_places(each)

    def _is_circular(self, part: int) -> bool:
        if len(self._parts) > _MOST_JUDGED:
            return True
        seen: set[int] = set()
        ahead = [*self._leads[part]]
        while ahead:
            each = ahead.pop()
            if each == part:
                return True
            if each not in seen:
                seen.add(each)
                ahead += self._leads[each]
        return False

    def _free(self, reference: str) -> str:
        """The part's own name as far as it may stand in a reference, no two the same."""
        clean = _NO_NAME.sub("_", reference.rpartition("/")[2].lstrip("#")).strip("_") or "root"
        return f"{clean}_{len(self._names)}" if clean in self._names.values() else clean

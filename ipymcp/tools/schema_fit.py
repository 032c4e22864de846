"""Which of a schema's alternatives a value is meant for."""

from __future__ import annotations

from typing import Any, Final, cast

from ipymcp.tools.schema_tree import (
    Budget,
    Schema,
    SchemaTree,
    form_kinds,
    is_kind,
    item_schemas,
    json_equal,
    listed_values,
    properties,
    required_names,
)

__all__ = ["Fit", "fits"]

_MAX_LOOKS: Final = 400


def fits(tree: SchemaTree, value: Any, schema: Any) -> bool:
    """Whether a JSON value has one of the schema's forms, as far as types, values and member names tell.

    Quick and bounded: it chooses between alternatives, the validator judges. Beyond the bound everything fits.
    """
    try:
        return Fit(tree, Budget(_MAX_LOOKS)).fits(value, schema)
    except RecursionError:
        return True


class Fit:
    """A look at how values fit, with a budget of lists and dicts to look into.

    Raises:
        RecursionError: The budget is spent.
    """

    def __init__(self, tree: SchemaTree, budget: Budget) -> None:
        self.tree = tree
        self.budget = budget

    def fits(self, value: Any, schema: Any) -> bool:
        """Whether the value has one of the schema's forms."""
        return any(self.fits_form(value, form) for form in self.tree.alternatives(schema))

    def fits_form(self, value: Any, form: Schema) -> bool:
        """Whether the value has this form."""
        if form.get("not") == {}:
            return False
        listed = listed_values(form)
        if listed is not None:
            return any(json_equal(value, each) for each in listed)
        kinds = form_kinds(form)
        if kinds is not None and not is_kind(value, kinds):
            return False
        if isinstance(value, list):
            self.budget.spend()
            item_of = item_schemas(form)
            return all(self.fits(item, item_of(at)) for at, item in enumerate(cast("list[Any]", value)[:50]))
        if isinstance(value, dict):
            self.budget.spend()
            return self._members_fit(cast("Schema", value), form)
        return True

    def _members_fit(self, value: Schema, form: Schema) -> bool:
        known = properties(form)
        if any(name not in value for name in required_names(form)):
            return False
        if form.get("additionalProperties") is False and "patternProperties" not in form and value.keys() - known:
            return False
        return all(self.fits(value[name], known[name]) for name in value.keys() & known)

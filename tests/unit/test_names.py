"""What a user types for a name that is no identifier, or that is taken."""

from __future__ import annotations

import pytest

from ipymcp.runtime.names import aliases, identifier


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("read-file", "read_file"),
        ("from", "from_"),
        ("3d", "n3d"),
        ("_host", "n_host"),
        ("__len__", "n_len__"),
        ("", "n_"),
    ],
)
def test_an_alias_is_an_identifier_that_is_none_of_pythons_or_ours(name: str, typed: str) -> None:
    assert identifier(name) == typed


def test_a_name_that_is_an_identifier_keeps_it_and_others_get_a_number() -> None:
    assert aliases(["x-y", "x_y", "load"], {"load"}) == {"x-y": "x_y_2", "x_y": "x_y", "load": "load_"}

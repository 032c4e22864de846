"""Names both ways."""

import keyword
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp import Mcp
from ipymcp.names import RESERVED_HOST, RESERVED_SERVER, aliases, identifier, model_name, nearest
from ipymcp.notebook.magics.dispatch import MODULES
from ipymcp.runtime.host import Host

NAMES = st.text(min_size=1, max_size=20) | st.sampled_from(["from", "a-b", "a_b", "load", "prompts", "__x__", "1a"])


@given(st.lists(NAMES, max_size=12))
def test_aliases_are_identifiers_all_different_and_none_reserved(names: list[str]) -> None:
    typed = aliases(names, RESERVED_HOST)
    assert list(typed) == list(dict.fromkeys(names))
    assert len(set(typed.values())) == len(typed)
    for alias in typed.values():
        assert alias.isidentifier() and not keyword.iskeyword(alias) and alias not in RESERVED_HOST


def test_a_name_that_is_an_identifier_is_its_own_alias_and_others_get_a_number() -> None:
    assert aliases(["a-b", "a.b", "a_b"]) == {"a-b": "a_b_2", "a.b": "a_b_3", "a_b": "a_b"}
    assert aliases(["x-y", "x_y", "load"], {"load"}) == {"x-y": "x_y_2", "x_y": "x_y", "load": "load_"}


def test_reserved_names_get_an_underscore() -> None:
    assert aliases(["load", "fs"], RESERVED_HOST) == {"load": "load_", "fs": "fs"}
    assert aliases(["prompts", "prompts_"], RESERVED_SERVER) == {"prompts": "prompts__2", "prompts_": "prompts_"}


def test_the_public_names_of_mcp_are_all_reserved() -> None:
    assert {word for word in dir(Mcp) if not word.startswith("_")} <= RESERVED_HOST


def test_every_word_of_a_line_is_a_name_of_mcp() -> None:
    assert [word for word in MODULES if not hasattr(Mcp, word)] == []


def test_no_name_of_a_server_is_out_of_reach_because_mcp_has_it() -> None:
    mcp = Mcp(Host())
    mcp.load({word: {"command": "x", "disabled": True} for word in sorted(RESERVED_HOST)})
    for word in RESERVED_HOST:
        assert mcp[word]._name == getattr(mcp, f"{word}_")._name == mcp.servers[word].name == word
    mcp.close()


@given(NAMES, NAMES)
def test_a_model_name_fits_what_models_take(server: str, tool: str) -> None:
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", model_name(server, tool))
    assert model_name(server, tool) == model_name(server, tool)


def test_model_names_that_had_to_change_carry_a_hash() -> None:
    assert model_name("fs", "read-file") == "fs__read-file"
    assert model_name("a__b", "c") != model_name("a", "b__c")
    assert re.fullmatch(r"x__a_b_[0-9a-f]{8}", model_name("x", "a.b"))
    assert len(model_name("s" * 60, "t" * 60)) == 64


def test_the_nearest_names_are_suggested() -> None:
    assert nearest("ecko", ["echo", "slow"]) == "did you mean 'echo'?"
    assert nearest("get_file", ["set_file", "get_files", "x"]) == "did you mean 'get_files' or 'set_file'?"
    assert nearest("PLOT", ["make_plot"]) == "did you mean 'make_plot'?"
    assert nearest("zzz", ["echo"]) == ""
    assert nearest("", ["echo"]) == ""
    assert nearest("e", ["filesystem"]) == "", "one letter is a part of most names"


@pytest.mark.parametrize(
    ("name", "alias"),
    [
        ("plain", "plain"), ("read-file", "read_file"), ("a.b/c", "a_b_c"), ("from", "from_"), ("1a", "n1a"),
        ("3d", "n3d"), ("_host", "n_host"), ("__len__", "n_len__"), ("", "n_"), ("测试", "测试"), ("élan", "élan"),
        ("e\u0301lan", "élan"), ("ﬁle-名", "file_名"), ("²x", "n2x"), ("a\u202eb", "a_b"), ("a\U0001f600", "a_"),
        ("٣d", "n٣d"),
    ],
)  # fmt: skip
def test_an_alias_is_an_identifier_near_its_name(name: str, alias: str) -> None:
    assert identifier(name) == alias

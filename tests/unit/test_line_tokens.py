"""A `%mcp` line cut into words."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.notebook.line_syntax import LineError, tokenize, tokenize_partial


def texts(line: str) -> list[str]:
    return [word.text for word in tokenize(line).words]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("   ", []),
        ("load fs  git\t./servers.json ", ["load", "fs", "git", "./servers.json"]),
        (r"load x cwd=C:\data\new", ["load", "x", r"cwd=C:\data\new"]),
        (r'x "C:\dir\" y', ["x", "C:\\dir\\", "y"]),
        ("where=it's fine", ["where=it's", "fine"]),
        ("where='it is' x", ["where=it is", "x"]),
        ("where='it''s' x=''''", ["where=it's", "x='"]),
        ("where=\"island = 'Dream'\"", ["where=island = 'Dream'"]),
        ("a='' b=\"\" c=", ["a=", "b=", "c="]),
        ("--header='A: b' --header 'C: d'", ["--header=A: b", "--header", "C: d"]),
        ('args={"a": 1, "b": [2, 3]} x=1', ['args={"a": 1, "b": [2, 3]}', "x=1"]),
        ('s={"a": "} \\" ]"} x', ['s={"a": "} \\" ]"}', "x"]),
        ("path=data/{i + 1}/{d['a b']}.csv x", ["path=data/{i + 1}/{d['a b']}.csv", "x"]),
        ("q=smile:) x=1] y", ["q=smile:)", "x=1]", "y"]),
        ("tools fs.*? !*.write_* q=what?", ["tools", "fs.*?", "!*.write_*", "q=what?"]),
        ("url=https://host/a?b=c&d=e#f", ["url=https://host/a?b=c&d=e#f"]),
        ('foo"bar baz"', ['foo"bar', 'baz"']),
    ],
)
def test_a_line_is_cut_into_the_words_people_mean(line: str, expected: list[str]) -> None:
    assert texts(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x # a note", ["x"]),
        ("# all note", []),
        ("x=#frag y#z", ["x=#frag", "y#z"]),
        ("x='a # b' y={1 # 2} # c", ["x=a # b", "y={1 # 2}"]),
        ("x='it''s' # it's (a note", ["x=it's"]),
    ],
)
def test_a_hash_after_a_blank_begins_a_comment_outside_quotes_and_brackets(line: str, expected: list[str]) -> None:
    assert texts(line) == expected


@pytest.mark.parametrize(
    ("line", "expected", "silent"),
    [
        ("call x a=1;", ["call", "x", "a=1"], True),
        ("call x a='1' ;  # why", ["call", "x", "a=1"], True),
        ("call x a='1';", ["call", "x", "a=1"], True),
        ("call x a=1;;", ["call", "x", "a=1;"], True),
        ("call x a=1; b", ["call", "x", "a=1;", "b"], False),
        ("call x a=1;#b", ["call", "x", "a=1;#b"], False),
        ("call x a='1;'", ["call", "x", "a=1;"], False),
        (";", [], True),
        ('call x {"a": ";"};', ["call", "x", '{"a": ";"}'], True),
        ('call x {"a": 1} ; # done', ["call", "x", '{"a": 1}'], True),
    ],
)
def test_one_trailing_semicolon_is_dropped_and_reported(line: str, expected: list[str], silent: bool) -> None:
    assert texts(line) == expected
    assert tokenize(line).silent is silent


def test_a_word_knows_its_key_its_quote_and_its_place() -> None:
    line = "call  s.t max-results=5 q=\"a b\" 'x=1'"
    words = tokenize(line).words
    assert [(word.key, word.value, word.quoted) for word in words] == [
        (None, "call", ""),
        (None, "s.t", ""),
        ("max-results", "5", ""),
        ("q", "a b", '"'),
        (None, "x=1", "'"),
    ]
    assert [line[word.start : word.end] for word in words] == [word.raw for word in words]


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ('call s.t {"a": 1, "b": "c # d"}  # note', '{"a": 1, "b": "c # d"}'),
        ('call s.t {"a": 1} | extra', '{"a": 1} | extra'),
        (r"call s.t {'p': 'C:\data'}", r"{'p': 'C:\data'}"),
    ],
)
def test_arguments_that_begin_with_a_brace_are_taken_raw(line: str, body: str) -> None:
    word = tokenize(line).words[-1]
    assert word.text == body
    assert word.is_body


def test_a_bare_double_dash_cuts_off_a_command_where_only_quotes_group() -> None:
    line = tokenize("load x --env A=1 -- sh -c 'echo hi; ls' {a [b --k=\"c d\" $VAR C:\\x -- it's # end")
    assert [word.text for word in line.words] == ["load", "x", "--env", "A=1"]
    assert line.argv == ["sh", "-c", "echo hi; ls", "{a", "[b", "--k=c d", "$VAR", "C:\\x", "--", "it's"]


def test_a_quoted_double_dash_cuts_nothing_and_an_empty_command_is_seen() -> None:
    assert tokenize("ask '--' x").command is None
    assert tokenize("load x --").command == ()


@pytest.mark.parametrize(
    ("line", "message", "position"),
    [
        ("call where='it is", "the quote opened at column 12 is not closed: 'it is", 11),
        ("x=[1, (2, 3] y", "] at column 12 does not close the ( opened at column 7: (2, 3] y", 11),
        (
            "x={'a': 1 and much more than fits",
            "the bracket opened at column 3 is not closed: {'a': 1 and much more t…",
            2,
        ),
        ('{"a: 1}', 'the quote opened at column 2 is not closed: "a: 1}', 1),
        ("where='it's' x", "text touches the closing quote at column 10: 'it's' x (inside quotes, write ' twice)", 9),
    ],
)
def test_unbalanced_brackets_are_an_error_with_the_position(line: str, message: str, position: int) -> None:
    with pytest.raises(LineError) as caught:
        tokenize(line)
    assert str(caught.value) == message
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("line", "words", "last", "in_command"),
    [
        ("", [], "", False),
        ("call", [], "call", False),
        ("call ", ["call"], "", False),
        ("call s.t a=1 b='x y", ["call", "s.t", "a=1"], "b=x y", False),
        ("call s.t ids=[1, 'a", ["call", "s.t"], "ids=[1, 'a", False),
        ("load x --", ["load", "x"], "--", False),
        ("load x -- uvx mc", ["load", "x", "uvx"], "mc", True),
    ],
)
def test_an_unfinished_line_has_its_last_word_at_the_cursor(
    line: str, words: list[str], last: str, in_command: bool
) -> None:
    partial = tokenize_partial(line)
    assert partial is not None
    assert [word.text for word in partial.words] == words
    assert partial.last.text == last
    assert partial.last.end == len(line)
    assert partial.in_command is in_command


def test_an_unfinished_line_inside_a_comment_has_no_word() -> None:
    assert tokenize_partial("call x # no") is None


awkward = st.text(alphabet=st.sampled_from("abk=-'\"\\{}[]();# \t$é/.!?"), max_size=40)


@given(awkward)
def test_any_line_is_cut_or_refused_with_a_line_error(line: str) -> None:
    tokenize_partial(line)
    try:
        cut = tokenize(line)
    except LineError as error:
        assert 0 <= error.position < len(line)
    else:
        assert all(line[word.start : word.end] == word.raw for word in cut.words + (cut.command or ()))


@given(st.text(), st.sampled_from("'\""), st.sampled_from(["", "key=", "--option="]))
def test_a_quoted_value_comes_back_as_it_was(value: str, quote: str, key: str) -> None:
    quoted = f"before {key}{quote}{value.replace(quote, quote * 2)}{quote} after"
    words = tokenize(quoted).words
    assert [word.text for word in words] == ["before", key + value, "after"]
    assert words[1].quoted == quote


def test_a_long_string_full_of_backslashes_takes_no_time() -> None:
    began = time.perf_counter()
    with pytest.raises(LineError):
        tokenize('x={"' + "\\" * 20_001)
    assert time.perf_counter() - began < 1

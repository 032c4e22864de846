"""The options of a subcommand."""

import pytest

from ipymcp.notebook.line_syntax import LineError, Option, Parsed, Syntax, split_pasted, tokenize

LOAD = Syntax(
    "load [NAME…] [--trust] [--env K=V]… [--cwd D]",
    (
        Option("--trust"),
        Option("--env", "K=V", repeats=True),
        Option("--cwd", "D"),
        Option("--era", "ERA", choices=("auto", "legacy", "modern")),
        Option("--timeout", "S", number=True),
        Option("--no-wait"),
    ),
)
STOP = Syntax("stop NAME… | --all", (Option("--all"),), instead="--all")
LOGS = Syntax("logs [NAME] [-n N]", (Option("-n", "N", number=True),), at_most=1)
READ = Syntax("read URI", at_least=1, at_most=1)


def parse(syntax: Syntax, line: str) -> Parsed:
    return syntax.parse(tokenize(line).words)


def test_flags_values_and_names_may_stand_in_any_order() -> None:
    parsed = parse(LOAD, "fs --trust --cwd '/a b' git --timeout=2.5 --env A=1 --env B --env C='x y' --era legacy")
    assert [word.text for word in parsed.names] == ["fs", "git"]
    assert parsed.has("--trust")
    assert not parsed.has("--no-wait")
    assert parsed.text("--cwd") == "/a b"
    assert parsed.text("--era") == "legacy"
    assert parsed.number("--timeout") == 2.5
    assert parsed.texts("--env") == ["A=1", "B", "C=x y"]


def test_an_option_of_another_program_is_read_as_the_own_one() -> None:
    load = Syntax("load", (Option("--env", "K=V", repeats=True, also=("-e",)),))
    assert parse(load, "-e A=1 fs --env B=2 -e=C=3").texts("--env") == ["A=1", "B=2", "C=3"]
    assert split_pasted(load, "-e A=1 claude mcp add time -- uvx x") == ("-e A=1", "claude mcp add time -- uvx x")


@pytest.mark.parametrize("line", ["-n 5", "-n5", "-n=5", "fs -n5"])
def test_a_number_may_follow_a_short_option_directly(line: str) -> None:
    assert parse(LOGS, line).number("-n") == 5


def test_an_absent_option_is_none_or_empty() -> None:
    parsed = parse(LOAD, "")
    assert (parsed.text("--cwd"), parsed.number("--timeout"), parsed.texts("--env")) == (None, None, [])


def test_an_option_takes_its_value_after_an_equals_sign_or_a_blank() -> None:
    assert parse(LOAD, "--env=K=V").texts("--env") == ["K=V"]
    assert parse(LOAD, '--env="K=a b"').texts("--env") == ["K=a b"]
    assert parse(LOAD, "--cwd '--odd'").text("--cwd") == "--odd"
    assert parse(LOGS, "fs -n 20").number("-n") == 20


def test_quoted_dashes_negative_numbers_and_arguments_are_not_options() -> None:
    parsed = parse(LOAD, "'--trust' -5 - x=--cwd {--trust}")
    assert [word.text for word in parsed.names] == ["--trust", "-5", "-", "x=--cwd", "{--trust}"]
    assert not parsed.values


@pytest.mark.parametrize(
    ("syntax", "line", "message", "position"),
    [
        (LOAD, "fs --trsut", "there is no option --trsut; did you mean '--trust'?", 3),
        (LOAD, "--zzz=1", "there is no option --zzz; usage: %mcp load [NAME…] [--trust] [--env K=V]… [--cwd D]", 0),
        (LOAD, "--tru", "there is no option --tru; did you mean '--trust'?", 0),
        (LOAD, "fs --cwd", "--cwd needs a value: --cwd D", 3),
        (LOAD, "--cwd --trust", "--cwd needs a value: --cwd D", 0),
        (LOAD, "--trust=yes", "--trust takes no value", 0),
        (LOAD, "--era old", "--era is one of auto, legacy, modern, not 'old'", 0),
        (LOAD, "--timeout soon", "--timeout needs a number, not 'soon'", 0),
        (LOAD, "--timeout nan", "--timeout needs a number, not 'nan'", 0),
        (LOAD, "--cwd a --cwd b", "--cwd is given twice", 8),
        (STOP, "", "give names or --all, one of the two; usage: %mcp stop NAME… | --all", 0),
        (STOP, "fs --all", "give names or --all, not both; usage: %mcp stop NAME… | --all", 8),
        (LOGS, "a b", "b is one too many; usage: %mcp logs [NAME] [-n N]", 2),
        (LOGS, "-n", "-n needs a value: -n N", 0),
        (LOGS, "-m 3", "there is no option -m; usage: %mcp logs [NAME] [-n N]", 0),
        (READ, "", "something is missing; usage: %mcp read URI", 0),
    ],
)
def test_a_mistyped_option_is_an_error_that_says_what_to_write(
    syntax: Syntax, line: str, message: str, position: int
) -> None:
    with pytest.raises(LineError) as caught:
        parse(syntax, line)
    assert (str(caught.value), caught.value.position) == (message, position)


def test_either_names_or_the_flag_for_all_are_given() -> None:
    assert parse(STOP, "--all").names == ()
    assert [word.text for word in parse(STOP, "a b").names] == ["a", "b"]

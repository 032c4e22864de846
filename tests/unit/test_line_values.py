"""Typed values, read with the notebook's names."""

import contextlib
import subprocess
import sys
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.config.config_files import JSON5_MAX_BYTES
from ipymcp.errors import ArgumentError
from ipymcp.notebook.line_syntax import LineError, tokenize
from ipymcp.notebook.line_values import NotebookObject, TypedText, parse_arguments, parse_body, read_value
from ipymcp.schema.tool_schema import ToolSchema
from tests.errors import refused

FRAME = object()
LOCAL = {"i": 7, "both": "local"}
USER = {"n": 5, "frame": FRAME, "both": "user", "row": {"a b": "x:y", "k": [1, 2]}, "limit_rows": 3, "pi": 3.14159}
NAMES = (LOCAL, USER)
TABLE = ToolSchema(
    {"type": "object", "properties": {"table": {"type": "string"}, "limit": {}}, "required": ["table"]},
    server="db",
    tool="query",
)


def value(line: str) -> TypedText | NotebookObject:
    (word,) = tokenize(line).words
    return read_value(word, NAMES)


AS_IT_IS = "single quotes send the text as it is"


def test_a_dollar_name_is_the_notebooks_object_local_names_first() -> None:
    assert value("x=$frame") == NotebookObject(FRAME)
    assert value("x=$both") == NotebookObject("local")


@pytest.mark.parametrize(
    "text",
    [
        *("1.10", "$5.00", "a$", '{"$gt": "$n"}', '{"a": 1}', '[{"a": 1}]', "{}", "a}b", r"C:\data"),
        *("'$n.x'", "'${n}'", "'$n'", "'{n}'", '"^$5$"'),
    ],
)
def test_text_json_and_quoted_text_stay_as_typed(text: str) -> None:
    quoted = text[0] in "'\""
    assert value(f"x={text}") == TypedText(text[1:-1] if quoted else text, quoted=quoted)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("path=data/{i}.csv", "data/7.csv"),
        ('path="data of {i}"', "data of 7"),
        ("x={n}", "5"),
        ("x={n + i}{{}}{n!r:>3}", "12{}  5"),
        ("x={pi:.2f}/{pi:{n}.1f}", "3.14/  3.1"),
        ("x={row['a b']}{row['k'][0:1]}{i != n}", "x:y[1]True"),
        ("x={'+'.join(str(k + i) for k in row['k'])}", "8+9"),
        ("x={n if i else {1: 2}[1]}", "5"),
        ("x={both!r}", "'local'"),
        # what the hints of refused lines advise to write
        ("x={n}/{i}", "5/7"),
        ("x={row['k']}$", "[1, 2]$"),
    ],
)
def test_braces_are_filled_like_an_f_string(line: str, text: str) -> None:
    assert value(line) == TypedText(text, quoted='"' in line)


def test_an_unquoted_dict_with_string_keys_is_that_dict_and_not_a_formatted_string() -> None:
    assert value("args={'a': 10, \"b\": [n, true]}") == NotebookObject({"a": 10, "b": [5, True]})
    assert value("args={**row, 'k': n}") == NotebookObject({"a b": "x:y", "k": 5})


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("limit=$limit_row", "the notebook has no name 'limit_row'", f"did you mean 'limit_rows'? {AS_IT_IS}"),
        ("x={zzz}", "the notebook has no name 'zzz'", AS_IT_IS),
        ("x={row['c']}", "{row['c']} raised KeyError: 'c'", AS_IT_IS),
        (
            "x=a{row:>3}",
            "cannot fill a{row:>3}: at character 2, TypeError: unsupported format string passed to dict.__format__",
            AS_IT_IS,
        ),
        (
            "x=[{'a':n}]",
            "cannot fill [{'a':n}]: at character 2, a string needs no braces: build the value in a cell and pass $name",
            AS_IT_IS,
        ),
        ("x={i}}", "cannot fill {i}}: at character 4, a single } (write }} for one)", AS_IT_IS),
        ('x="{i"', "cannot fill {i: at character 1, this { is not closed", AS_IT_IS),
        ("x=a{}", "cannot fill a{}: at character 2, no expression between the braces", AS_IT_IS),
        ("x={i!x}", "cannot fill {i!x}: at character 3, after ! only r, s or a is allowed", AS_IT_IS),
        *(
            (
                line,
                f"{name} stands for a variable only as the whole value, unquoted",
                f"within a value it is {instead} · {AS_IT_IS}",
            )
            for line, name, instead in [
                ("x=$n/a.txt", "$n", "{n}: x={n}/a.txt"),
                ("x=$n.x", "$n", "{n}: x={n}.x"),
                ('x="$n"', "$n", '{n}: x="{n}"'),
                ("x=a$n", "$n", "{n}: x=a{n}"),
                ("x=$nowhere/x", "$nowhere", "{nowhere}: x={nowhere}/x"),
                ("x={n}/$i", "$i", "{i}: x={n}/{i}"),
                ("x=${n}", "${n}", "{n}: x={n}"),
                ("x=$größe.x", "$größe", "{größe}: x={größe}.x"),
            ]
        ),
    ],
)
def test_a_value_that_cannot_be_read_is_an_error_and_never_sent_as_text(line: str, message: str, hint: str) -> None:
    argument = line.partition("=")[0]
    with pytest.raises(ArgumentError) as caught:
        value(line)
    assert (str(caught.value), caught.value.hint) == (f"{argument}: {message}", hint)
    assert caught.value.argument == argument


def test_the_users_own_error_is_the_cause() -> None:
    with pytest.raises(ArgumentError) as caught:
        value("x={1 / 0}")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_name_missing_in_the_users_own_function_is_not_reported_as_a_name_of_the_line() -> None:
    def broken() -> object:
        return undefined_there  # type: ignore[name-defined]  # noqa: F821

    (word,) = tokenize("x={broken()}").words
    message, _ = refused(ArgumentError, read_value, word, ({"broken": broken},))
    assert message == "x: {broken()} raised NameError: name 'undefined_there' is not defined"


def test_arguments_keep_their_order_and_keys() -> None:
    words = tokenize("max-results=5 frame=$frame").words
    assert parse_arguments(words, NAMES) == {"max-results": "5", "frame": FRAME}


@pytest.mark.parametrize(
    ("line", "message", "position"),
    [
        ("b", "b is not key=value: write table=b", 0),
        ("table=1 b", 'b is not key=value: quote a value that has blanks: table="1 b"', 8),
        ("table = x", "table is not key=value: write table=VALUE, without blanks around the =", 0),
        ("table =x", "table is not key=value: write table=VALUE, without blanks around the =", 0),
        ("limit:5", "limit:5 is not key=value: write limit=5", 0),
        ("table='a' b", "b is not key=value: write limit=b", 10),
        ("{n}/a.txt", "{n}/a.txt is not key=value: write table={n}/a.txt", 0),
        ("a=1 a=2", "a is given twice", 4),
        ("a=hi, b=2", 'a=hi, ends with a comma, but blanks separate arguments: a=hi, or a="hi," with it', 0),
        ("table=“two words” limit=1", '“ is a curly quote: write table="two words"', 0),
        ("table=\u2018two words\u2019", "\u2018 is a curly quote: write table='two words'", 0),
        ("table=”x”", "” is a curly quote: write table=\"x\"; to send them, write table='”x”'", 0),
        ("“two words”", '“ is a curly quote: write "two words"', 0),
    ],
)
def test_words_without_a_key_or_with_a_repeated_one_are_refused(line: str, message: str, position: int) -> None:
    with pytest.raises(LineError) as caught:
        parse_arguments(tokenize(line).words, NAMES, TABLE)
    assert (str(caught.value), caught.value.position) == (message, position)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", {}),
        ("  \n", {}),
        ('{"a": 1, "b": null}', {"a": 1, "b": None}),
        ('{"table": "penguins", "limit": n}', {"table": "penguins", "limit": 5}),
        ('\n  {"limit": n,\n   "all": true, "none": null,}\n', {"limit": 5, "all": True, "none": None}),
        ("{limit: 5}", {"limit": 5}),
        ("{both: 5, filter: {n: true}}", {"both": 5, "filter": {"n": True}}),
        ("{filter: {n: 1}, // why\n x: 'y'}", {"filter": {"n": 1}, "x": "y"}),
        ('{"filter": {n: 1}}', {"filter": {"n": 1}}),
        ('/* c */ {"a": 1}', {"a": 1}),
        (r"{'path': 'C:\data'}", {"path": r"C:\data"}),
        ('{"limit": n}  # the rows', {"limit": 5}),
        ('{**row, "both": both} | {"i": i}', {"a b": "x:y", "k": [1, 2], "both": "local", "i": 7}),
        ("row", {"a b": "x:y", "k": [1, 2]}),
        ("{str(k): [k + i for _ in range(n)] for k in range(1)}", {"0": [7] * 5}),
        ("ordered", {"z": 1}),
    ],
)
def test_a_body_is_json_a_python_dict_or_json5(body: str, expected: dict[str, object]) -> None:
    assert parse_body(body, (*NAMES, {"ordered": OrderedDict(z=1)})) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"a": 1,\n "b" 2}', "line 2, column 6: expecting ':' delimiter"),
        ('{"a": n,\n "b" 2}', "line 2, column 4: ':' expected after dictionary key"),
        ('\n{"a": 1,\n "limit": nn}', "line 3, column 11: the notebook has no name 'nn'"),
        ('{"a": 1,\n "b": 1 / 0}', "line 2: the body raised ZeroDivisionError: division by zero"),
        ("[1, 2]", "the body is a list, not a mapping of arguments"),
        ("{limit: n}", "line 1, column 2: the notebook has no name 'limit'"),
        ("{1: n}", "the argument name 1 is a int, not text"),
        ('{"a": n,\n "b": 2', "line 1, column 1: '{' was never closed"),
        ("\x00", "line 1, column 1: expecting value"),
        (
            "{“a”: 1}",
            'line 1, column 2: expecting property name enclosed in double quotes (curly quotes: replace them by ")',
        ),
    ],
)
def test_a_body_that_cannot_be_read_is_an_error_with_its_place(body: str, message: str) -> None:
    assert refused(ArgumentError, parse_body, body, NAMES)[0] == message


def test_a_long_body_with_comments_is_read_without_importing_json5() -> None:
    long = "y" * JSON5_MAX_BYTES
    script = "import sys; from ipymcp.notebook.line_values import parse_body; body = sys.stdin.read()"
    script += "; print(len(parse_body(body, ({},))['x']), 'json5' in sys.modules)"
    body = f'{{"x": "{long}", /* mine */ "y": true,}}'
    done = subprocess.run([sys.executable, "-c", script], input=body, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (f"{JSON5_MAX_BYTES} False\n", "")


def test_a_long_body_is_not_tried_as_json5() -> None:
    body = "{x: 'a',\n y: true: '" + "y" * JSON5_MAX_BYTES + "'}"
    assert refused(ArgumentError, parse_body, body, NAMES) == (
        "line 2, column 9: invalid syntax",
        "the body is JSON, or a Python dict with the notebook's names; JSON5 only up to 40,000 characters",
    )


@given(st.text(alphabet=st.sampled_from("{}[]():!'\"\\ in=.5,"), max_size=25))
def test_any_value_and_any_body_is_read_or_refused_with_our_own_errors(text: str) -> None:
    with contextlib.suppress(LineError, ArgumentError):
        words = tokenize("x=" + text).words
        read_value(words[0], NAMES)
    with contextlib.suppress(ArgumentError):
        parse_body(text, NAMES)

"""Every public function is given what it cannot take: each refuses it in two lines, with no traceback of its inside."""

import asyncio
import contextlib
import copy
import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ipymcp
from ipymcp import McpError, UnknownName
from ipymcp.api.namespace import Mcp
from ipymcp.api.parts import parts_of
from ipymcp.argument_checks import is_function
from ipymcp.results.content import Text

PENGUINS = "demo://penguins.csv"


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


WRONG: list[Any] = [
    *[None, "", " ", "nowhere", "no.where", "\ud800", "a\0b", "x" * 5000, b"", b"x", b"\xff"],
    *[0, 5, -1, -0.5, 10**400, 10**6000, math.nan, math.inf, True],
    *[(), [], [1], [None], [[]], ["nowhere"], {}, {"a": 1}, {1: 2}, {"a": {}}, {1}, set()],
    *[object(), Unprintable(), object, print, Path("/nowhere/at/all"), Path("\0"), Ellipsis, iter([1]), 1j],
    memoryview(b"x"),
]
OWN = ("__call__", "__getitem__", "__contains__", "__add__")
"""Special methods that users write as syntax."""
NO_FUNCTIONS = {"mcp.__call__", "mcp.demo.__call__"}
"""Special methods that only refuse, and have no signature."""
NOT_CALLED = {"close", "aio", "keep", "has_request", "when_over"}
"""What ends the test, waits for nothing, or is for ipymcp itself."""
INTERNAL = {
    "arun",
    "deadline",
    "end_if_late",
    "leave",
    "note_question",
    "pause_timeout",
    "run",
    "run_on_loop",
    "submit",
}
"""Methods of a call for ipymcp itself."""
GOOD: dict[str, Any] = {"prompt": "hi", "identifier": "t", "response": [], "path": "p", "arguments": {"text": "hi"}}
"""What is given for the arguments that a call cannot do without, while another is wrong."""


@pytest.fixture
def mcp(tmp_path: Path) -> Iterator[Mcp]:
    with contextlib.chdir(tmp_path), ipymcp.connect("demo") as mcp:
        yield mcp


@pytest.fixture(scope="module")
def shared() -> Iterator[Mcp]:
    """A host of the module, for tests that change nothing."""
    with ipymcp.connect("demo") as mcp:
        yield mcp


def faces(mcp: Mcp) -> dict[str, Any]:
    """An object of each class that a user holds."""
    demo = mcp.demo
    call = demo.echo.submit("hi")
    call.result()
    return {
        "mcp": mcp,
        "mcp.servers": mcp.servers,
        "mcp.tools": mcp.tools,
        "mcp.resources": mcp.resources,
        "mcp.prompts": mcp.prompts,
        "mcp.policy": mcp.policy,
        "mcp.pins": mcp.pins,
        "mcp.trust": mcp.trust,
        "mcp.results": mcp.results,
        "server": mcp.servers["demo"],
        "mcp.demo": demo,
        "tool": demo.query,
        "awaited tool": demo.query.aio,
        "resources": demo.resources,
        "resource": demo.resources[PENGUINS],
        "template": demo.resources["demo://penguins/{species}"],
        "read": demo.resources[PENGUINS].read(),
        "prompts": demo.prompts,
        "prompt": demo.prompts.describe,
        "messages": demo.prompts.describe("Gentoo"),
        "call": call,
        "image": demo.plot().images[0],
    }


def functions(mcp: Mcp) -> dict[str, Callable[..., Any]]:
    """All that a user may call, by what it is called here."""
    functions: dict[str, Callable[..., Any]] = {"connect": ipymcp.connect, "aconnect": ipymcp.aconnect}
    for name, face in faces(mcp).items():
        members = [member for member in dir(type(face)) if not member.startswith("_") and member not in NOT_CALLED]
        members += [member for member in OWN if any(member in vars(kind) for kind in type(face).__mro__)]
        for member in members:
            value, where = getattr(face, member), f"{name}.{member}"
            if name != "messages" and where not in NO_FUNCTIONS and is_function(value):
                functions[where] = value
    return functions


def attempts(function: Callable[..., Any]) -> Iterator[Callable[[], Any]]:
    """Calls with one wrong argument each."""
    parameters = inspect.signature(function).parameters
    needed = {
        name: GOOD.get(name, "nowhere")
        for name, each in parameters.items()
        if each.default is each.empty and each.kind is not each.VAR_POSITIONAL and each.kind is not each.VAR_KEYWORD
    }
    for wrong in WRONG:
        for name, each in parameters.items():
            others = {other: value for other, value in needed.items() if other != name}
            positional = [others.pop(other) for other in list(others) if parameters[other].kind is each.POSITIONAL_ONLY]
            if each.kind is each.VAR_POSITIONAL:
                yield lambda wrong=wrong, others=others: function(*others.values(), wrong)
            elif each.kind is each.VAR_KEYWORD:
                yield lambda wrong=wrong, others=others: function(**others, unknown=wrong)
            elif each.kind is each.POSITIONAL_ONLY:
                yield lambda wrong=wrong, positional=positional: function(wrong, *positional)
            else:
                yield lambda wrong=wrong, name=name, others=others: function(**others, **{name: wrong})


def check(where: str, attempt: Callable[[], Any]) -> None:
    """Nothing but our own errors comes out, and each is a line and a hint."""
    try:
        value = attempt()
    except McpError as error:
        lines = error._render_traceback_()
        assert len(lines) <= 2, (where, lines)
        assert all("\n" not in line and len(line) <= 2001 for line in lines), (where, lines)
        "".join(lines).encode()
    except Exception as error:
        if not (isinstance(error, OSError) and where.endswith(".save")):  # Python's own, which names the file
            raise AssertionError(f"{where}: {error!r}") from error
    else:
        if inspect.iscoroutine(value):
            value.close()
        repr(value)


def test_every_function_refuses_what_it_cannot_take_in_two_lines(mcp: Mcp, recwarn: pytest.WarningsRecorder) -> None:
    named = functions(mcp)
    assert {"mcp.load", "mcp.ask", "mcp.history", "tool.options", "mcp.policy.allow", "read.save"} <= named.keys()
    tried = 0
    for where, function in named.items():
        for attempt in attempts(function):
            check(where, attempt)
            tried += 1
    assert tried > 3000


def test_every_function_refuses_arguments_that_it_does_not_have(mcp: Mcp) -> None:
    for where, function in functions(mcp).items():
        owner, _, name = where.rpartition(".")
        if name in OWN or (owner == "call" and name in INTERNAL):
            continue
        kinds = [each.kind for each in inspect.signature(function).parameters.values()]
        attempts: list[Callable[[], Any]] = []
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            attempts.append(lambda function=function: function(cuont=5))
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            too_many = [None] * (len(kinds) + 1)
            attempts.append(lambda function=function, too_many=too_many: function(*too_many))
        for attempt in attempts:
            check(where, attempt)
            with pytest.raises(McpError):
                result = attempt()
                asyncio.run(result) if inspect.iscoroutine(result) else None


def test_attributes_that_are_set_refuse_what_they_cannot_take(mcp: Mcp) -> None:
    for wrong in WRONG:
        check("mcp.roots", lambda wrong=wrong: setattr(mcp, "roots", wrong))
        check("connect(roots=)", lambda wrong=wrong: ipymcp.connect(roots=wrong))
    mcp.roots = None


def penguins(mcp: Mcp) -> Any:
    return mcp.demo.query("penguins", limit=2)


@pytest.mark.parametrize(
    ("miss", "message", "hint"),
    [
        *[
            (lambda mcp, name=name: getattr(penguins(mcp), name), f"a result has no attribute {name!r}", hint)
            for name, hint in {
                **dict.fromkeys(("json", "value", "structured_content", "structuredContent"), "use .data"),
                "isError": "use .is_error; the words are in .text",
                "rows": "use ['rows'], or .df",
                "count": "use ['count']",
                "image": "use .images[0]",
                "save": "use .images[0].save(path) for an image, or write .text to a file",
                "keys": "use .data.keys(…)",
                "upper": "use .text.upper(…)",
                "dta": "did you mean 'data'?",
            }.items()
        ],
        (lambda mcp: penguins(mcp)["nothere"], "demo.query: there is no key 'nothere'", "it has 'rows', 'count'"),
        (lambda mcp: penguins(mcp)["row"], "demo.query: there is no key 'row'", "did you mean 'rows'?"),
        (lambda mcp: mcp.demo.echo('[{"a": 1}]')["a"], "demo.echo: there is no key 'a' in a list of 1",
         "use [0]['a'] for the first one, or .df['a'] for all"),
        (lambda mcp: mcp.demo.resources["demo://penguins.csv"].read().json, "a result has no attribute 'json'",
         "use .data"),
        (lambda mcp: mcp.demo.prompts.describe("Gentoo").txt, "a result has no attribute 'txt'",
         "did you mean 'text'?"),
        (lambda mcp: mcp.map.show_map(), "mcp.map has no attribute 'show_map'", "a server called map is mcp['map']"),
        (lambda mcp: mcp.tools.demo, "a selection of tools has no attribute 'demo'",
         "mcp.demo has its tools; mcp.tools('demo.*') selects them"),
        (lambda mcp: mcp.tools.echo, "a selection of tools has no attribute 'echo'", "use mcp.tools['demo.echo']"),
        (lambda mcp: mcp.servers.demo, "mcp.servers has no attribute 'demo'",
         "use mcp.servers['demo']; mcp.demo has its tools"),
        (lambda mcp: mcp.servers["demo"].echo, "a server has no attribute 'echo'", "use .tools.echo"),
        (lambda mcp: mcp.servers["demo"].sate, "a server has no attribute 'sate'", "did you mean 'state'?"),
        (lambda mcp: mcp.demo.echo.schema, "the tool demo.echo has no attribute 'schema'", "use .input_schema"),
        (lambda mcp: mcp.demo.echo.mpa, "the tool demo.echo has no attribute 'mpa'", "did you mean 'map'?"),
    ],
)  # fmt: skip
def test_an_attribute_or_key_that_is_not_there_is_answered_with_what_is(
    shared: Mcp, miss: Callable[[Mcp], object], message: str, hint: str
) -> None:
    with pytest.raises(UnknownName) as caught:
        miss(shared)
    assert (str(caught.value), caught.value.hint) == (message, hint)


def test_objects_without_an_attribute_are_probed_as_any_other(shared: Mcp) -> None:
    for value in (penguins(shared), shared.demo.echo, shared.tools, shared.servers, shared.servers["demo"]):
        assert not hasattr(value, "nothing") and getattr(value, "nothing", 5) == 5
        for name in ("_repr_latex_", "_ipython_display_", "__array_interface__"):
            with pytest.raises(AttributeError) as caught:
                getattr(value, name)
            assert type(caught.value) is AttributeError
        assert copy.copy(value) is not None and copy.deepcopy(value) is not None


def test_calls_that_are_gathered_although_they_have_ended_give_their_results(shared: Mcp) -> None:
    async def main() -> list[Any]:
        return await asyncio.gather(shared.demo.echo("a"), shared.demo.echo("a"), shared.demo.echo.aio("b"))

    assert [each.text for each in asyncio.run(main())] == ["a", "a", "b"]


def test_wrong_answers_are_told_from_wrong_keys(shared: Mcp) -> None:
    """Indexing an answer indexes its data, with the same errors."""
    result = shared.demo.echo("hi")
    with pytest.raises(TypeError, match="answered with text, not a list or dict"):
        result[5]
    assert result.content == [Text("hi")]


@pytest.mark.parametrize(
    ("attempt", "message", "hint"),
    [
        (
            lambda mcp: mcp.demo.echo.options(timeout="x"),
            "options(): timeout: expected a number of seconds greater than 0 or None, got 'x'",
            "options(*, timeout=None, on_progress=None, as_task=None, caller=None, turn=None)",
        ),
        (
            lambda mcp: mcp.demo.echo.options(caller="bogus"),
            "options(): caller: expected 'user' or 'model' or 'app' or None, got 'bogus'",
            "options(*, timeout=None, on_progress=None, as_task=None, caller=None, turn=None)",
        ),
        (lambda mcp: mcp.tools(["ev.*"]), "tools(): patterns: expected a string, got ['ev.*']", "tools(*patterns)"),
        (
            lambda mcp: mcp.servers["demo"].logs(cuont=5),
            "logs(): no argument 'cuont'; did you mean 'count'?",
            "logs(count=50, *, level='debug')",
        ),
        (
            lambda mcp: mcp.on_elicitation("x"),
            "on_elicitation(): function: expected a function or None, got 'x'",
            "on_elicitation(function)",
        ),
        (lambda mcp: mcp[5], "the name of a server is a string, got 5", None),
    ],
)
def test_the_error_names_the_argument_and_shows_the_call(
    shared: Mcp, attempt: Callable[[Mcp], Any], message: str, hint: str | None
) -> None:
    with pytest.raises(McpError) as caught:
        attempt(shared)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_one_pattern_may_stand_alone_where_several_may(shared: Mcp) -> None:
    parts = parts_of(shared)
    assert parts.selection("demo.echo").names == parts.selection(["demo.echo"]).names == ["demo.echo"]
    with pytest.raises(ipymcp.ArgumentError):
        parts.selection(5)
    assert shared.tools("dmo.*").table.note == "there is no server 'dmo'; did you mean 'demo'?"
    assert shared.tools("demo.nothing*").table.note == "no tools here"

"""Tools as Python functions, on real servers: how they are called, what they refuse, what looking at them shows."""

import copy
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest

import ipymcp
from ipymcp import Mcp, Tool
from tests.environments import server_command
from tests.integration.notebooks import opened, text
from tests.kernels import Kernel


def definition(name: str, *arguments: str) -> dict[str, object]:
    command, *rest = server_command(name, *arguments)
    return {"command": command, "args": rest}


@pytest.fixture(scope="module")
def mcp() -> Iterator[Mcp]:
    servers = {
        "demo": definition("demo"),
        "sdk": definition("sdk2"),
        "own": definition("misbehaving"),
        "load": definition("misbehaving"),
    }
    with ipymcp.connect(servers) as mcp:
        yield mcp


def refusal(call: Callable[[], object]) -> tuple[str, str | None]:
    with pytest.raises(ipymcp.ArgumentError) as caught:
        call()
    return str(caught.value), caught.value.hint


def test_values_are_brought_into_the_schemas_form(mcp: Mcp) -> None:
    assert mcp.sdk.search("x", max_results="7", tags=("a", "b"), near="here").data["tags"] == ["a", "b"]
    assert mcp.sdk.add(2.0, "40").data == 42
    route = {"name": "home", "points": [{"x": 0, "y": 0}, {"x": 3, "y": 4}]}
    assert mcp.sdk.travel(route, speed=2).data["length"] == 2.5


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (lambda mcp: mcp.demo.echo(), "demo.echo: missing argument 'text'", "echo(text: str)"),
        (
            lambda mcp: mcp.demo.slow(3),
            "demo.slow: 1 argument given by position; it takes none by position, others by name",
            "slow(seconds=3)",
        ),
        (
            lambda mcp: mcp.demo.query("penguins", 3),
            "demo.query: 2 arguments given by position; it takes 1 by position ('table'), others by name",
            "query('penguins', limit=3)",
        ),
        (
            lambda mcp: mcp.demo.query("penguins", limt=3),
            "demo.query: no argument 'limt'; did you mean 'limit'?",
            "query(table: Literal['penguins'], *, where, limit)",
        ),
        (
            lambda mcp: mcp.demo.query("penguins", limit="many"),
            "demo.query: limit: expected integer, got 'many'",
            "limit: int · The maximum number of rows.",
        ),
        (
            lambda mcp: mcp.demo.plot(values=[1, float("nan")]),
            "demo.plot: values[1]: is nan, which JSON cannot represent",
            "leave it out, or give a number or None",
        ),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_sent(
    mcp: Mcp, call: Callable[[Mcp], object], message: str, hint: str
) -> None:
    calls = mcp.servers["demo"]._session.calls
    assert refusal(lambda: call(mcp)) == (message, hint)
    assert mcp.servers["demo"]._session.calls == calls


def test_options_change_how_a_tool_is_called_and_leave_it_as_it_was(mcp: Mcp) -> None:
    seen: list[tuple[float, str | None]] = []
    patient = mcp.demo.slow.options(on_progress=lambda progress: seen.append((progress.progress, progress.message)))
    patient(seconds=0.05, steps=2)
    mcp.demo.slow(seconds=0, steps=2)

    assert seen == [(1, "step 1 of 2"), (2, "step 2 of 2")]
    with pytest.raises(ipymcp.CallTimeout, match=r"(?m)^own\.sleep: no answer within 0\.05 s$"):
        mcp.own.sleep.options(timeout=0.05)(5)


def test_a_tool_has_the_signature_and_the_words_of_its_server(mcp: Mcp) -> None:
    expected = "(table: Literal['penguins'], *, where: str | None = None, limit: int = 10) -> ToolResult"

    assert str(inspect.signature(mcp.demo.query)) == str(inspect.signature(mcp.demo.query.aio)) == expected
    documented = inspect.getdoc(mcp.sdk.search)
    assert documented is not None and "Its own name is 'max-results'." in documented
    assert repr(mcp.demo.query) == (
        "demo.query(table: Literal['penguins'], *, where: str | None = None, limit: int = 10)\n"
        "    Rows of a small table that match a condition. The table `penguins` has one row for each bird: speci…"
    )
    assert mcp.demo.query.input_schema["required"] == ["table"]
    assert mcp.demo.query.annotations["readOnlyHint"] is True


def test_servers_and_tools_are_found_by_attribute_and_by_item(mcp: Mcp) -> None:
    assert mcp["load"].echo("a").server == mcp.load_.echo("a").server == "load"
    assert mcp.demo["echo"]("a").text == mcp.tools["demo.echo"]("a").text == "a"
    assert [tool.name for tool in mcp.demo] == ["query", "plot", "slow", "fail", "echo"]
    assert ("echo" in mcp.demo, "nope" in mcp.demo, "demo.echo" in mcp.tools) == (True, False, True)
    assert (hasattr(mcp, "nope"), hasattr(mcp.demo, "nope"), getattr(mcp.demo, "nope", 1)) == (False, False, 1)
    for look_up in (lambda: mcp.dem, lambda: mcp["dem"], lambda: mcp.servers["dem"]):
        with pytest.raises(ipymcp.UnknownName) as caught:
            look_up()
        assert (str(caught.value), caught.value.hint) == ("there is no server 'dem'", "did you mean 'demo'?")
    with pytest.raises(KeyError, match="demo: there is no tool 'quer'"):
        mcp.demo["quer"]


def test_a_selection_takes_both_names_of_a_tool_and_denies_by_both(mcp: Mcp) -> None:
    assert mcp.tools("demo.q*", "demo.e*").names == ["demo.query", "demo.echo"]
    assert mcp.tools("demo", "!*.[!e]*").names == ["demo.echo"]
    assert mcp.tools("!own", "!sdk", "!load", "!demo.*o*").names == ["demo.query", "demo.fail"]
    assert len(mcp.tools("nothing.*")) == 0


def test_a_copy_is_the_thing_itself_and_only_tools_are_pickled(mcp: Mcp) -> None:
    assert copy.copy(mcp.demo.echo) is mcp.demo.echo and copy.deepcopy([mcp.demo.echo])[0] is mcp.demo.echo
    with pytest.raises(TypeError, match=r"pickle mcp\.demo\.echo instead of its \.aio"):
        pickle.dumps(mcp.demo.echo.aio)
    for thing in (mcp, mcp.demo, mcp.servers, mcp.servers["demo"], mcp.tools):
        assert copy.copy(thing) is thing and copy.deepcopy([thing])[0] is thing
        with pytest.raises(TypeError, match="belongs to this process and its MCP servers and cannot be pickled"):
            pickle.dumps(thing)


def test_displays_escape_what_servers_write_and_hold_nothing_that_changes_by_itself(mcp: Mcp) -> None:
    hostile = {"<b>x</b>": definition("demo"), "quick": definition("demo")}
    with ipymcp.connect(hostile) as other:
        for shown in (other, other.tools, other["<b>x</b>"]):
            bundle = shown._repr_mimebundle_()
            assert "&lt;b&gt;x&lt;/b&gt;" in bundle["text/html"] and "<b>x" not in bundle["text/html"]
            assert bundle == shown._repr_mimebundle_()
            assert str(other.servers["quick"].pid) not in bundle["text/html"] + bundle["text/plain"]
        assert repr(other.servers["quick"]) == "quick · ready · 2026-07-28 · 5 tools"


def test_a_repr_starts_nothing_and_waits_for_nothing(mcp: Mcp) -> None:
    servers = {"late": definition("misbehaving", "slow-start=60"), "off": {**definition("demo"), "disabled": True}}
    with ipymcp.connect({}) as other:
        other.load(servers, wait=False)
        assert repr(other) == (
            "MCP servers\n"
            "server  state     protocol  tools  calls  last error\n"
            "late    starting                0      0\n"
            "off     disabled                0      0"
        )
        assert repr(other.late) == "late: tools\ntool  arguments  description\nlate is starting"
        assert repr(other.off) == "off: tools\ntool  arguments  description\noff is disabled"
        assert repr(other.tools) == "MCP tools\ntool  arguments  description\nno tools here · late is starting"
        assert other.servers["off"].state == "disabled"


def test_a_tool_of_a_starting_server_is_waited_for() -> None:
    with ipymcp.connect({}) as mcp:
        mcp.load({"late": definition("misbehaving", "slow-start=0.5")}, wait=False)
        assert mcp.servers["late"].state == "starting"
        assert mcp.late.echo("there").text == "there"


def wait_for_tools(mcp: Mcp, act: Callable[[], object]) -> None:
    changed = threading.Event()
    unsubscribe = mcp._host.events.subscribe(lambda event: changed.set() if "Tools" in type(event).__name__ else None)
    act()
    assert changed.wait(30)
    unsubscribe()


def test_tools_come_and_go_as_the_server_says(mcp: Mcp) -> None:
    wait_for_tools(mcp, lambda: mcp.sdk.grow("brand_new"))
    held = mcp.sdk.brand_new
    assert held().text == "brand_new"
    assert "brand_new" in dir(mcp.sdk)

    wait_for_tools(mcp, lambda: mcp.sdk.shrink("brand_new"))
    assert repr(held) == "<tool sdk.brand_new, gone>"
    with pytest.raises(ipymcp.UnknownName) as caught:
        held()
    assert str(caught.value) == "sdk: there is no tool 'brand_new'"
    assert caught.value.hint == "%mcp tools sdk"


def test_a_tool_held_from_before_follows_its_server_when_that_is_changed(mcp: Mcp) -> None:
    with ipymcp.connect({"s": definition("sdk2")}) as other:
        held: Tool = other.s.echo
        assert held("a").text == "a"
        other.load({"s": definition("misbehaving")})
        assert held("b").text == "b"
        other.load({"s": definition("demo")})
        assert "The text to return." in (inspect.getdoc(other.s.echo) or "")
        assert str(inspect.signature(held)) == "(text: str) -> ToolResult"
        assert refusal(lambda: held(surplus=1)) == ("s.echo: no argument 'surplus'", "echo(text: str)")


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with opened(kernel_name, tmp_path_factory.mktemp("tools"), {"sdk": server_command("sdk2")}) as kernel:
        yield kernel


@pytest.mark.parametrize("code", ["mcp.demo.query", "mcp.demo.query(", "await mcp.demo.query.aio("])
def test_shift_tab_shows_a_tools_own_signature_and_words_once(kernel: Kernel, code: str) -> None:
    shown = kernel.inspect(code)

    assert shown is not None
    assert "    limit: int = 10,\n) -> ToolResult" in shown
    assert "*args" not in shown and "File:" not in shown and "Call docstring" not in shown
    assert shown.count("Rows of a small table that match a condition.") <= 2  # its repr, and its docstring
    assert "limit (int, optional): The maximum number of rows. Default: 10." in shown


def test_a_question_mark_and_help_show_the_same(kernel: Kernel) -> None:
    assert "Its own name is 'max-results'." in kernel.run("mcp.sdk.search?").pager
    assert "Its own name is 'max-results'." in kernel.run("mcp.sdk.search??").pager
    helped = " ".join(kernel.run("help(mcp.sdk.search)").stdout.replace("|", "").split())  # Python 3.13 wraps it
    assert "query: str, *, max_results: int = 10" in helped
    assert "one row for each" not in (kernel.inspect("mcp.demo") or "")
    assert text(kernel, "import inspect\nlist(inspect.signature(mcp.demo.echo).parameters)") == "['text']"

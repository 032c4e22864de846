"""Tab, asked over the wire as a front end asks it: what is offered, where it goes, and what it must not disturb."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.environments import server_command
from tests.integration.notebooks import done, opened
from tests.kernels import Kernel

TOOLS = ["query", "plot", "slow", "fail", "echo"]


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    misbehaving = server_command("misbehaving")
    servers = {"sdk": server_command("sdk2"), "a.b": misbehaving, "load": misbehaving}
    with opened(kernel_name, tmp_path_factory.mktemp("completion"), servers) as kernel:
        (kernel.folder / "servers").mkdir()
        (kernel.folder / "servers" / "own.json").write_text("{}")
        done(kernel, "frame = {'column': [1]}")
        yield kernel


@pytest.fixture(params=[True, False], ids=["with jedi", "without jedi"])
def either(request: pytest.FixtureRequest, kernel: Kernel) -> Kernel:
    done(kernel, f"%config Completer.use_jedi = {request.param}")
    return kernel


def accepted(kernel: Kernel, code: str) -> list[str]:
    """What the cell becomes with each of the matches."""
    completion = kernel.complete(code)
    return [code[: completion.start] + match + code[completion.end :] for match in completion.matches]


@pytest.mark.parametrize(
    ("typed", "becomes"),
    [
        ("mcp.d", ["mcp.demo", "mcp.disable"]),
        ("mcp.demo.", [f"mcp.demo.{tool}" for tool in sorted(TOOLS)]),
        ("x = 1\ny = [mcp.demo.q", ["x = 1\ny = [mcp.demo.query"]),
        ('mcp["', ['mcp["demo', 'mcp["sdk', 'mcp["a.b', 'mcp["load']),
        ("mcp['a.b'].ec", ["mcp['a.b'].echo"]),
        ("mcp.load_.ec", ["mcp.load_.echo"]),
        ("mcp.load.", ["mcp.load.aio"]),
        ('mcp.demo["', [f'mcp.demo["{tool}' for tool in TOOLS]),
        ('mcp.servers["d', ['mcp.servers["demo']),
        ("mcp.servers['demo'].st", [f"mcp.servers['demo'].{word}" for word in ("start", "state", "stop")]),
        ("mcp.demo.query(", ["mcp.demo.query(table=", "mcp.demo.query(where=", "mcp.demo.query(limit="]),
        ("mcp.demo.query(table=", ["mcp.demo.query(table='penguins'"]),
        ('mcp.demo.query("pe', ['mcp.demo.query("penguins']),
        ("mcp.demo.query('penguins', wh", ["mcp.demo.query('penguins', where="]),
        ("mcp.sdk.search('x', order=", ["mcp.sdk.search('x', order='newest'", "mcp.sdk.search('x', order='oldest'"]),
        ("mcp.sdk.search('x', fr", ["mcp.sdk.search('x', from_="]),
        ("await mcp.demo.echo.aio(te", ["await mcp.demo.echo.aio(text="]),
        ("mcp.demo.query.s", ["mcp.demo.query.server", "mcp.demo.query.submit"]),
        ("mcp.demo.echo(a(b, c=3)).d", ["mcp.demo.echo(a(b, c=3)).data", "mcp.demo.echo(a(b, c=3)).df"]),
        ("mcp.demo.slow.submit(seconds=3).ca", ["mcp.demo.slow.submit(seconds=3).cancel"]),
        ("%mcp lo", ["%mcp load ", "%mcp logs "]),
        ("%mcp call ", ["%mcp call demo.", "%mcp call sdk.", "%mcp call a.b.", "%mcp call load."]),
        ("%mcp call demo.", [f"%mcp call demo.{tool}" for tool in TOOLS]),
        ("%mcp call a.b.ec", ["%mcp call a.b.echo"]),
        ("x = %mcp call demo.pl", ["x = %mcp call demo.plot"]),
        ("for i in range(3):\n    %mcp call demo.e", ["for i in range(3):\n    %mcp call demo.echo"]),
        ("%%mcp call demo.e", ["%%mcp call demo.echo"]),
        ("%mcp call demo.query ta", ["%mcp call demo.query table="]),
        ("%mcp call demo.query table=penguins li", ["%mcp call demo.query table=penguins limit="]),
        ("%mcp call demo.query table=", ["%mcp call demo.query table=penguins"]),
        ("%mcp call sdk.search query=x max", ["%mcp call sdk.search query=x max-results="]),
        ("%mcp call sdk.search query=x order=o", ["%mcp call sdk.search query=x order=oldest"]),
        ("%mcp load --no", ["%mcp load --no-wait"]),
        ("%mcp load --era le", ["%mcp load --era legacy"]),
        ("%mcp load ./ser", ["%mcp load ./servers/"]),
        ("%mcp load servers/", ["%mcp load servers/own.json"]),
        ("%mcp stop de", ["%mcp stop demo"]),
        ("%mcp tools !de", ["%mcp tools !demo."]),
        ("%mcp tools demo.*", ["%mcp tools demo.*"]),
        ("%mcp help lo", ["%mcp help load", "%mcp help logs"]),
    ],
)
def test_accepting_a_completion_gives_what_was_meant(either: Kernel, typed: str, becomes: list[str]) -> None:
    assert accepted(either, typed) == becomes


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        *[
            ("import jso", "json"),
            ("frame.ke", "keys"),
            ("frame['co", "column"),
            ("fra", "frame"),
            ("%lo", "%load_ext"),
        ],
        *[("'mcp.demo'.up", "upper"), ("mcp.demo.echo(fra", "frame"), ("mcp.demo.echo(text=fra", "frame")],
        ("%%mcp call demo.echo\n{'text': fra", "frame"),
    ],
)
def test_what_is_not_ours_is_completed_as_ever(either: Kernel, typed: str, offered: str) -> None:
    assert any(match.endswith(offered) for match in either.complete(typed).matches)


def test_the_words_of_mcp_itself_come_with_the_servers(kernel: Kernel) -> None:
    offered = kernel.complete("mcp.").matches
    assert {"a_b", "demo", "load", "load_", "sdk", "servers", "tools", "stop"} <= set(offered)


def test_tab_in_the_middle_of_a_cell_sees_only_what_is_before_it(kernel: Kernel) -> None:
    code = "mcp.demo.ec('x')\nmcp.demo.query('penguins')"
    completion = kernel.complete(code, len("mcp.demo.ec"))
    assert (completion.matches, completion.start, completion.end) == (["echo"], 9, 11)


def test_a_server_that_is_starting_or_failed_holds_nothing_up(kernel: Kernel) -> None:
    late = " ".join(server_command("misbehaving", "slow-start=60"))
    done(kernel, f"%mcp load --no-wait late -- {late};")
    kernel.run("%mcp load gone -- no-such-program;")

    in_code = ["mcp.late.", "mcp.late.echo(", 'mcp.late["', "mcp.gone.", "mcp.nope.x("]
    for typed in [*in_code, "%mcp call late.", "%mcp call late.echo te", "%mcp call gone.x "]:
        kernel.complete(typed, timeout=10)
    assert "late" in kernel.complete("mcp.").matches
    assert kernel.complete("%mcp stop la").matches == ["late"]
    assert done(kernel, "mcp.servers['late'].state").text == "'starting'"
    done(kernel, "%mcp unload late gone;")


def test_new_tools_are_offered_as_soon_as_the_server_has_them(kernel: Kernel) -> None:
    done(
        kernel,
        "import threading\nchanged = threading.Event()\n"
        "end = mcp._host.events.subscribe(lambda event: 'Tools' in type(event).__name__ and changed.set())\n"
        "mcp.sdk.grow('brand_new')\nassert changed.wait(30)\nend()",
    )
    assert accepted(kernel, "mcp.sdk.brand") == ["mcp.sdk.brand_new"]
    assert accepted(kernel, "%mcp call sdk.brand") == ["%mcp call sdk.brand_new"]

"""Tab, asked over the wire as a front end asks it: what is offered, where it goes, and what it must not disturb."""

import time
from collections.abc import Iterator

import pytest

from tests.environments import server_command
from tests.integration.notebooks import done, opened
from tests.kernels import Kernel

TOOLS = ["query", "plot", "slow", "fail", "echo"]
CSV, BIRDS = "demo://penguins.csv", "demo://penguins/{species}"
URIS = [CSV, "demo://notes.md", BIRDS]
SPECIES, TONES = ["Adelie", "Chinstrap", "Gentoo"], ["plain", "playful"]
SALES = ["David", "Eve", "Frank"]
JEDI = 100
"""Seconds that Jedi may take for its first completions, beside other load."""


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    misbehaving = server_command("misbehaving")
    servers = {
        "sdk": server_command("sdk2"),
        "a.b": misbehaving,
        "load": misbehaving,
        "all": server_command("everything"),
    }
    with opened(kernel_name, tmp_path_factory.mktemp("completion"), servers, cold=True) as kernel:
        (kernel.folder / "servers").mkdir()
        (kernel.folder / "servers" / "own.json").write_text("{}")
        done(kernel, "frame = {'column': [1]}")
        yield kernel


@pytest.fixture(params=[True, False], ids=["with jedi", "without jedi"])
def either(request: pytest.FixtureRequest, kernel: Kernel) -> Kernel:
    done(kernel, f"%config Completer.use_jedi = {request.param}")
    return kernel


def accepted(kernel: Kernel, code: str) -> list[str]:
    """The cell's text with each match inserted."""
    completion = kernel.complete(code, timeout=JEDI)
    return [code[: completion.start] + match + code[completion.end :] for match in completion.matches]


@pytest.mark.parametrize(
    ("typed", "becomes"),
    [
        ("mcp.d", ["mcp.demo", "mcp.disable"]),
        ("mcp.demo.", [f"mcp.demo.{word}" for word in sorted([*TOOLS, "prompts", "resources"])]),
        ("x = 1\ny = [mcp.demo.q", ["x = 1\ny = [mcp.demo.query"]),
        ('mcp["', ['mcp["demo', 'mcp["sdk', 'mcp["a.b', 'mcp["load', 'mcp["all']),
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
        ("%mcp call ", ["%mcp call demo.", "%mcp call sdk.", "%mcp call a.b.", "%mcp call load.", "%mcp call all."]),
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
        ("mcp.demo.res", ["mcp.demo.resources"]),
        ("mcp.demo.resources.t", ["mcp.demo.resources.table", "mcp.demo.resources.templates"]),
        ('mcp.demo.resources["', [f'mcp.demo.resources["{uri}' for uri in URIS]),
        (f"mcp.demo.resources['{CSV}'].r", [f"mcp.demo.resources['{CSV}'].read"]),
        (f"mcp.demo.resources['{CSV}'].read().d", [f"mcp.demo.resources['{CSV}'].read().{w}" for w in ("data", "df")]),
        (f"mcp.demo.resources['{BIRDS}'](", [f"mcp.demo.resources['{BIRDS}'](species="]),
        (f"mcp.demo.resources['{BIRDS}'](species=", [f"mcp.demo.resources['{BIRDS}'](species={s!r}" for s in SPECIES]),
        (f"mcp.demo.resources['{BIRDS}']('G", [f"mcp.demo.resources['{BIRDS}']('Gentoo"]),
        (f"mcp.demo.resources['{BIRDS}']('Gentoo').r", [f"mcp.demo.resources['{BIRDS}']('Gentoo').read"]),
        ("mcp.demo.prompts.de", ["mcp.demo.prompts.describe"]),
        ("mcp.demo.prompts['", ["mcp.demo.prompts['describe"]),
        ("mcp.demo.prompts.describe('A", ["mcp.demo.prompts.describe('Adelie"]),
        (
            "mcp.demo.prompts.describe('Adelie', tone='pl",
            [f"mcp.demo.prompts.describe('Adelie', tone='{t}" for t in TONES],
        ),
        ("await mcp.demo.prompts.describe.aio(sp", ["await mcp.demo.prompts.describe.aio(species="]),
        ("mcp.demo.prompts.describe('Adelie').mes", ["mcp.demo.prompts.describe('Adelie').messages"]),
        (
            "mcp.all.prompts.completable_prompt('Sales', name='",
            [f"mcp.all.prompts.completable_prompt('Sales', name='{name}" for name in SALES],
        ),
        ("%mcp resources de", ["%mcp resources demo"]),
        ("%mcp read de", ["%mcp read demo"]),
        ("r = %mcp read demo demo://n", ["r = %mcp read demo demo://notes.md"]),
        (f"%mcp read demo {BIRDS} ", [f"%mcp read demo {BIRDS} species="]),
        (f"%mcp subscribe demo {BIRDS} species=g", [f"%mcp subscribe demo {BIRDS} species=Gentoo"]),
        ("%mcp prompt de", ["%mcp prompt demo."]),
        ("%mcp ask -m x What of $fra", ["%mcp ask -m x What of $frame"]),
        ("%%mcp ask\nSum up @de", ["%%mcp ask\nSum up @demo:"]),
        ("%mcp ask Sum up @demo:demo://n", ["%mcp ask Sum up @demo:demo://notes.md"]),
        ("%mcp ask -m x /demo.de", ["%mcp ask -m x /demo.describe"]),
        ("%%mcp ask -m x\n/demo.describe species=Gentoo to", ["%%mcp ask -m x\n/demo.describe species=Gentoo tone="]),
        ("%%mcp ask\n/demo.describe species=g", ["%%mcp ask\n/demo.describe species=Gentoo"]),
        ("%mcp prompt demo.", ["%mcp prompt demo.describe"]),
        ("%mcp prompt demo.describe species=Adelie to", ["%mcp prompt demo.describe species=Adelie tone="]),
        (
            "%mcp prompt all.completable-prompt department=Sales name=",
            [f"%mcp prompt all.completable-prompt department=Sales name={name}" for name in SALES],
        ),
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
def test_completions_of_python_are_left_as_they_are(either: Kernel, typed: str, offered: str) -> None:
    assert any(match.endswith(offered) for match in either.complete(typed, timeout=JEDI).matches)


def test_the_words_of_mcp_itself_come_with_the_servers(kernel: Kernel) -> None:
    offered = kernel.complete("mcp.").matches
    assert {"a_b", "demo", "load", "load_", "sdk", "servers", "tools", "stop"} <= set(offered)


def test_tab_in_the_middle_of_a_cell_sees_only_what_is_before_it(kernel: Kernel) -> None:
    code = "mcp.demo.ec('x')\nmcp.demo.query('penguins')"
    completion = kernel.complete(code, len("mcp.demo.ec"))
    assert (completion.matches, completion.start, completion.end) == (["echo"], 9, 11)


def test_a_server_that_is_starting_or_failed_does_not_delay_tab(kernel: Kernel) -> None:
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


def test_a_server_that_suggests_nothing_in_time_delays_tab_by_a_second_at_most(kernel: Kernel) -> None:
    slow = " ".join(server_command("offering", "mute=completion/complete,prompts/list"))
    done(kernel, f"%mcp load mute -- {slow};")
    began = time.monotonic()
    kernel.complete("mcp.mute.resources['note://{name}'](name='")
    assert kernel.complete("mcp.mute.prompts.").matches == ["df", "table"]
    assert time.monotonic() - began < 20  # a second each, and a loaded machine
    done(kernel, "%mcp unload mute;")

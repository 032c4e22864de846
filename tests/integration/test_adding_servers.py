"""`%mcp search`, `add` and `outdated` in kernels: a registry on the loopback, and packages that real `uvx` installs."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import kernels
from tests.conftest import StartKernel
from tests.environments import ROOT
from tests.integration.notebooks import done, error, text
from tests.kernels import Kernel
from tests.registry import RegistryServer, package_index, registry_server

KEY = "the key of my clock"
CLOCK = "io.github.example/clock-mcp"


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as served:
        yield served


ENV = {"PATH": f"{ROOT / '.venv/bin'}:/usr/bin:/bin"}


@pytest.fixture
def notebook(start_kernel: StartKernel, registry: RegistryServer) -> Kernel:
    """A kernel that asks the registry, and whose user can run `uvx`."""
    kernel = start_kernel(env=ENV)
    package_index(Path(kernel.environment["HOME"]))
    done(kernel, f"%load_ext ipymcp\n%config IPyMCP.registry = {registry.address!r}")
    return kernel


@pytest.fixture(scope="module")
def shared_kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with kernels.started(kernel_name, tmp_path_factory.mktemp("shared"), ENV) as kernel:
        package_index(Path(kernel.environment["HOME"]))
        done(kernel, "%load_ext ipymcp")
        yield kernel


@pytest.fixture
def unchanged(shared_kernel: Kernel, registry: RegistryServer) -> Iterator[Kernel]:
    """The kernel of the tests that add nothing: neither a server nor a file nor a secret is left."""
    done(shared_kernel, f"%config IPyMCP.registry = {registry.address!r}")
    yield shared_kernel
    assert not own_file(shared_kernel).exists()
    assert text(shared_kernel, "list(mcp)") == "[]"
    assert "none yet" in text(shared_kernel, "%mcp secret list")
    assert text(shared_kernel, "len(mcp.servers.known.df)") == "0"


def own_file(kernel: Kernel) -> Path:
    return Path(kernel.environment["JUPYTER_CONFIG_DIR"], "ipymcp", "mcp.json")


def clock(version: str, **env: str) -> dict[str, object]:
    """The definition of the clock in a file."""
    return {
        "command": "uvx",
        "args": [f"clock-mcp@{version}", "--format=iso"],
        "env": env,
        "registry": {"name": CLOCK, "version": version},
    }


def test_a_server_is_searched_tried_kept_and_used(notebook: Kernel) -> None:
    rows = text(notebook, "%mcp search clock")
    assert rows.splitlines()[2].split()[:3] == [CLOCK, "1.1.0", "pypi"]
    assert "CLOCK_KEY (required, secret) The key of the clock" in text(notebook, f"%mcp search {CLOCK}")
    outcome = done(notebook, f"%mcp add {CLOCK}", [KEY, "y"])
    assert outcome.prompts == ["CLOCK_KEY: ", "Run it? [yes, no] "]
    assert "│ clock will run `uvx clock-mcp@1.1.0 --format=iso` in a folder of its own and will get" in outcome.stdout
    assert "Receives your secret clock-CLOCK_KEY as env.CLOCK_KEY" in outcome.stdout
    assert f"clock is loaded, and in {own_file(notebook)}: 1 tool" in outcome.stdout
    assert text(notebook, "mcp.clock.settings().data") == str(
        {"zone": "UTC", "key": len(KEY), "args": ["--format=iso"]}
    )
    written = clock("1.1.0", CLOCK_KEY="${secret:clock-CLOCK_KEY}", CLOCK_ZONE="UTC")
    assert json.loads(own_file(notebook).read_text()) == {"mcpServers": {"clock": written}}
    pid = text(notebook, "mcp.servers['clock'].pid")
    done(notebook, "%mcp load clock;", [])  # neither a question nor a second start
    assert text(notebook, "mcp.servers['clock'].pid") == pid


def test_in_this_notebook_only_the_cell_reproduces_it_without_the_secret(notebook: Kernel) -> None:
    outcome = done(notebook, "%mcp add clock --for notebook --cell CLOCK_ZONE=Europe/Berlin", [KEY, "y"])
    [inserted] = [each["text"] for each in outcome.payload if each["source"] == "set_next_input"]
    assert KEY not in inserted
    assert "${secret:clock-CLOCK_KEY}" in inserted
    assert not own_file(notebook).exists()
    done(notebook, "%mcp unload clock")
    done(notebook, inserted)
    assert (
        text(notebook, "mcp.clock.settings()['zone'], mcp.clock.settings()['key']") == f"('Europe/Berlin', {len(KEY)})"
    )


def test_a_server_that_asks_for_nothing_is_one_line_in_the_cell(notebook: Kernel) -> None:
    outcome = done(notebook, "%mcp add clock-quiet --for notebook", ["y"])
    assert outcome.stdout.endswith("%mcp load clock_quiet -- uvx clock-quiet@1.0.0\n")
    pid = text(notebook, "mcp.servers['clock_quiet'].pid")
    done(notebook, "%mcp load clock_quiet -- uvx clock-quiet@1.0.0;")
    assert text(notebook, "mcp.servers['clock_quiet'].pid") == pid


def test_a_server_added_to_the_projects_file_needs_no_further_agreement(notebook: Kernel) -> None:
    (notebook.folder / ".git").mkdir()
    done(notebook, "%mcp add clock-quiet --for project --name hands", ["y"])
    document = json.loads((notebook.folder / "mcp.json").read_text())
    assert document["mcpServers"]["hands"]["args"] == ["clock-quiet@1.0.0"]
    done(notebook, "%mcp unload hands")
    assert not done(notebook, "%mcp load hands", []).prompts


def test_a_server_that_does_not_start_leaves_nothing_behind(unchanged: Kernel) -> None:
    outcome = unchanged.run("%mcp add clock-broken", answers=["y"])
    assert outcome.error is not None
    assert outcome.error.traceback.splitlines() == [
        "StartError: clock_broken: could not start: exited with code 1. Last output: the clock has no hands",
        "  Nothing was saved. Check the command. · in: %mcp add clock-broken",
    ]


def test_a_refusal_leaves_neither_a_server_nor_its_secret(unchanged: Kernel) -> None:
    outcome = unchanged.run("%mcp add clock", answers=[KEY, "n"])
    assert outcome.error is not None
    assert outcome.error.evalue.startswith(f"{CLOCK} is not added: you did not agree to it")


def test_where_no_one_can_be_asked_it_is_not_added(unchanged: Kernel) -> None:
    assert error(unchanged, "%mcp add clock")[0] == f"ConfigError: {CLOCK} needs CLOCK_KEY, and no one could be asked"
    assert error(unchanged, "%mcp add clock-quiet")[0].endswith("no one could be asked whether it may run")


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "clock CLOCK_KEY=open",
            "CLOCK_KEY is a secret, which does not belong on the line",
            "leave CLOCK_KEY out: you are asked for it; or CLOCK_KEY=${secret:NAME}",
        ),
        ("clock CLOCK_ZONES=x", f"{CLOCK} has no input 'CLOCK_ZONES'", "did you mean 'CLOCK_ZONE'?"),
        ("clock --way npm", f"{CLOCK} does not run as 'npm'", "it runs as: pypi"),
        (
            "io.github.example/gone",
            "io.github.example/gone 1.0.0 was deleted from {registry}: Published by mistake",
            "choose another",
        ),
        (
            "widget-mcp",
            "io.github.username/widget-mcp cannot be run: cargo has no command that runs one version of a package"
            " without installing it",
            "cargo install NAME --version VERSION, then %mcp config add NAME -- PROGRAM",
        ),
        (
            "io.github.domdomegg/time-mcp-nuget",
            "io.github.domdomegg/time-mcp-nuget needs the program 'dnx', which is not installed",
            "install the .NET SDK 10 or newer, or name the program's full path",
        ),
        ("airtabl", "{registry} has no server 'airtabl'", "io.github.domdomegg/airtable-mcp-server"),
    ],
)
def test_a_server_that_cannot_be_added_is_refused_with_reason_and_remedy(
    unchanged: Kernel, registry: RegistryServer, line: str, message: str, hint: str
) -> None:
    first, second = error(unchanged, f"%mcp add {line}")
    assert first.partition(": ")[2] == message.format(registry=registry.address.removeprefix("http://"))
    assert second.strip().partition(" · in: ")[0] == hint


def test_a_deprecated_server_is_named_as_such_before_it_is_added(notebook: Kernel, registry: RegistryServer) -> None:
    entry = next(each for each in registry.entries if each["server"]["name"].endswith("clock-quiet"))
    status = {**entry["_meta"]["io.modelcontextprotocol.registry/official"], "status": "deprecated"}
    meta = {"io.modelcontextprotocol.registry/official": {**status, "statusMessage": "Use \u202eanother"}}
    registry.entries[registry.entries.index(entry)] = {**entry, "_meta": meta}
    outcome = notebook.run("%mcp add clock-quiet", answers=["n"])
    assert "(publisher not verified; deprecated: 'Use ⟨U+202E⟩another') is to be added" in outcome.stdout
    assert "starting" not in outcome.stderr
    outcome = done(notebook, "%mcp add clock-quiet", ["y"])
    assert "ipymcp: io.github.example/clock-quiet is deprecated: Use ⟨U+202E⟩another" in outcome.stderr


def test_python_searches_and_adds_as_the_magic_does(notebook: Kernel) -> None:
    done(
        notebook,
        f"tools = mcp.add('clock', keep='notebook', version='1.0.0', inputs={{'CLOCK_KEY': {KEY!r}}})",
        ["y"],
    )
    assert text(notebook, "tools.settings()['key']") == str(len(KEY))
    assert text(notebook, "[one.name for one in mcp.search('clock', 'hands').entries]") == "[]"
    assert text(notebook, "len(mcp.search('clock'))") == "3"


def test_newer_versions_are_listed_and_taken_with_the_values_that_are_kept(
    notebook: Kernel, registry: RegistryServer
) -> None:
    done(notebook, f"%mcp add {CLOCK} --version 1.0.0 CLOCK_ZONE=Europe/Berlin", [KEY, "y"])
    done(notebook, "%mcp config add mine -- python -c pass;")
    rows = "[tuple(row.values()) for row in mcp.outdated()]"
    assert ast.literal_eval(text(notebook, rows)) == (
        [
            ("clock", "1.0.0", "1.1.0", f"%mcp add {CLOCK} --name clock --replace"),
            ("mine", "", "", "not compared: it was not added from the registry"),
        ]
    )
    done(notebook, f"%mcp add {CLOCK} --name clock --replace", ["y"])
    written = json.loads(own_file(notebook).read_text())["mcpServers"]["clock"]
    assert written == clock("1.1.0", CLOCK_KEY="${secret:clock-CLOCK_KEY}", CLOCK_ZONE="Europe/Berlin")
    assert text(notebook, f"{rows}[0]") == "('clock', '1.1.0', '', 'up to date')"
    assert text(notebook, "mcp.clock.settings()['key']") == str(len(KEY))


def test_a_models_code_may_not_add_a_server(unchanged: Kernel) -> None:
    done(unchanged, "from ipymcp.security.untrusted import Actor, Conversation, acting")
    cell = "with acting(Actor('model', Conversation())):\n    mcp.add('clock-quiet')"
    assert error(unchanged, cell)[0] == "PolicyError: a model's code may not add a server"


def test_a_server_of_the_users_file_is_copied_and_edited(notebook: Kernel) -> None:
    done(notebook, "%mcp add clock-quiet", ["y"])
    done(notebook, "%mcp config copy clock_quiet second")
    assert not done(notebook, "%mcp load second", []).prompts
    outcome = done(notebook, "%mcp config edit second")
    [inserted] = [each["text"] for each in outcome.payload if each["source"] == "set_next_input"]
    assert inserted.startswith('%%mcp config edit second\n{\n  "command": "uvx",')
    done(notebook, inserted.replace('"command": "uvx"', '"timeout": 7,\n  "colour": "kept",\n  "command": "uvx"'))
    written = json.loads(own_file(notebook).read_text())["mcpServers"]["second"]
    assert (written["timeout"], written["colour"]) == (7, "kept")
    assert not done(notebook, "%mcp load second", []).prompts
    done(notebook, "%mcp config add hidden -- uvx clock-quiet@1.0.0 --token=abcdefgh12345678")
    assert error(notebook, "%mcp config edit hidden")[0] == (
        "ConfigError: hidden has what looks like a secret, which would be saved with the notebook"
    )

"""Servers that a view adds, edits and removes: from a registry on the loopback, by a command, a URL or JSON."""

import ast
import base64
import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ipymcp.api.namespace import Mcp
from ipymcp.runtime.host import Host
from ipymcp.setup.adding import from_values
from tests.environments import ROOT, server_command
from tests.panel.notebooks import NAMED, Notebook, OpenNotebook, named
from tests.panels import DirectView, Message
from tests.processes import wait_until, wait_until_gone
from tests.registry import RegistryServer, package_index, registry_server
from tests.servers.oauth_server import Behaviour, running

CLOCK = "io.github.example/clock-mcp"
KEY = "the key of my clock"
DEMO = server_command("demo")
LINE = " ".join(DEMO)
ENTRY = {"command": DEMO[0], "args": DEMO[1:]}


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with registry_server() as registry:
        yield registry


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder whose `uvx` installs the packages of the registry."""
    home = tmp_path_factory.mktemp("home")
    package_index(home)
    return home


@pytest.fixture
def own_file(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{ROOT / '.venv/bin'}:/usr/bin:/bin")
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config" / "ipymcp" / "mcp.json"


@pytest.fixture
def notebook(open_notebook: OpenNotebook, registry: RegistryServer, own_file: Path) -> Notebook:
    notebook = open_notebook()
    notebook.host.registry_address = registry.address
    return notebook


def tried(view: DirectView, answers: list[Message], **fields: Any) -> Message:
    """The reply to a trial; its questions are answered in turn."""
    number = 7_000 + len(view.received)
    view.send({"kind": "intent", "id": number, "do": "try", "trial": 1, "keep": "me", **fields})
    for answer in answers:
        assert view.answer(view.question(), **answer) is None
        view.until_no_question()
    return view.wait(lambda one: one["kind"] == "reply" and one["id"] == number, timeout=60)


def asked(view: DirectView, kind: str, **fields: Any) -> Message:
    """The question of a trial that has begun."""
    view.send({"kind": "intent", "id": 9_000, "do": "try", "trial": 1, "keep": "me", **fields})
    view.until(lambda state: [one["kind"] for one in state["questions"].values()] == [kind])
    return next(iter(view.state["questions"].values()))


def servers_in(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())["mcpServers"]


def test_a_server_of_the_registry_is_asked_about_tried_and_kept(notebook: Notebook, own_file: Path) -> None:
    view = notebook.view()
    page = view.ask("search", words="clock")
    assert view.ask("registry") == page["registry"]
    assert [row["title"] for row in page["entries"]] == ["Clock", "clock-quiet", "clock-broken"]
    [way] = page["entries"][0]["ways"]
    assert way == {
        "label": "pypi",
        "runs": "uvx clock-mcp@1.1.0 --format={format}",
        "problem": None,
        "inputs": ["CLOCK_KEY"],
    }
    values = {"action": "accept", "content": {"CLOCK_KEY": KEY, "CLOCK_ZONE": "Europe/Berlin", "format": "iso"}}
    agreed = {"servers": ["clock"], "secrets": []}
    reply = tried(view, [values, agreed], by="registry", what=CLOCK, version="1.1.0", way=0)
    assert reply["ok"], reply
    outcome = reply["value"]
    assert [tool["name"] for tool in outcome["tools"]] == ["settings"]
    assert (outcome["problem"], outcome["place"]) == (None, str(own_file))
    assert not own_file.exists()
    assert view.state["servers"] == {}
    assert view.ask("keep", trial=1) == {"name": "clock", "cell": "%mcp load clock"}
    assert servers_in(own_file)["clock"]["env"] == {
        "CLOCK_KEY": "${secret:clock-CLOCK_KEY}",
        "CLOCK_ZONE": "Europe/Berlin",
    }
    view.until_server("clock", "ready")
    assert notebook.mcp.clock.settings().data["key"] == len(KEY)
    assert KEY not in json.dumps(view.received)


def test_a_trial_that_fails_shows_its_log_and_keeps_nothing(notebook: Notebook, own_file: Path) -> None:
    view = notebook.view()
    agreed = {"servers": ["clock_broken"], "secrets": []}
    reply = tried(view, [agreed], by="registry", what="io.github.example/clock-broken", way=0)
    outcome = reply["value"]
    assert outcome["problem"]["message"].endswith("Last output: the clock has no hands")
    assert outcome["log"][1:] == ["the clock has no hands"], "after a line of uv, each line once, and none of ipymcp"
    assert not own_file.exists()
    assert view.reply("keep", trial=1)["error"]["message"] == "this trial does not exist or has not finished"


def test_a_trial_tells_how_its_start_goes_and_starts_the_server_once(notebook: Notebook, tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text(
        "import pathlib, sys, time\n"
        "starts = pathlib.Path(__file__).with_suffix('.starts')\n"
        "starts.write_text((starts.read_text() if starts.exists() else '') + 'x')\n"
        "print('unpacking 1 of 2', file=sys.stderr, flush=True)\n"
        "while not starts.with_suffix('.go').exists():\n"
        "    time.sleep(0.02)\n"
        "sys.exit('no licence')\n"
    )
    view = notebook.view()
    assert view.ask("trial_progress", trial=1) is None
    fields = {"trial": 1, "keep": "notebook", "by": "command", "what": f"{DEMO[0]} {program}", "name": "slow"}
    view.send({"kind": "intent", "id": 9_000, "do": "try", **fields})
    progress: list[Any] = []

    def is_told() -> bool:
        progress.append(view.ask("trial_progress", trial=1))
        return bool(progress[-1]) and progress[-1]["line"] is not None

    wait_until(is_told)
    shown = progress[-1]
    assert (shown["attempt"], shown["attempts"], shown["line"]) == (1, 1, "unpacking 1 of 2")
    assert time.time() - 60 < shown["since"] <= time.time()
    program.with_suffix(".go").touch()
    outcome = view.wait(lambda one: one["kind"] == "reply" and one["id"] == 9_000)["value"]
    assert outcome["problem"]["message"].endswith("Last output: unpacking 1 of 2 / no licence")
    launches = len(program.with_suffix(".starts").read_text())
    assert launches <= 2  # with and without the handshake
    assert view.ask("trial_progress", trial=1) is None


def test_a_command_is_tried_for_this_notebook_and_dropped_or_kept(notebook: Notebook) -> None:
    view = notebook.view()
    fields = {"by": "command", "what": LINE, "keep": "notebook", "name": "mine"}
    assert [tool["name"] for tool in tried(view, [], **fields)["value"]["tools"]][:1]
    view.ask("drop", trial=1)
    assert view.state["servers"] == {}
    assert tried(view, [], **fields)["ok"]
    added = view.ask("keep", trial=1)
    assert added == {"name": "mine", "cell": f"%mcp load mine -- {LINE}"}
    view.until_server("mine", "ready")
    assert view.state["servers"]["mine"]["own"] is False

    pid = notebook.mcp.servers["mine"].pid  # it is started again like others
    assert pid is not None
    psutil.Process(pid).kill()
    view.until(lambda state: state["servers"]["mine"]["pid"] not in (None, pid))
    view.until_server("mine", "ready")


@pytest.mark.parametrize("keep", ["me", "notebook", "project"])
def test_a_command_that_names_a_file_of_the_notebooks_folder_runs_there(
    own_file: Path, tmp_path: Path, keep: str
) -> None:
    notebooks = tmp_path / "project" / "notebooks"
    notebooks.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    program = f"import runpy, sys\nsys.path.insert(0, {str(Path(NAMED).parent)!r})\n"
    (notebooks / "shop.py").write_text(f"{program}runpy.run_path({NAMED!r}, run_name='__main__')\n")
    with contextlib.closing(Mcp(Host(notebook=str(notebooks / "one.ipynb")))) as mcp:
        view = Notebook(mcp).view()
        command = shlex.join([DEMO[0], "shop.py", '{"name": "a"}'])
        outcome = tried(view, [], by="command", what=command, keep=keep, name="my shop!")["value"]
        assert (outcome["problem"], outcome["folder"]) == (None, str(notebooks))
        assert outcome["python"] == "mcp.my_shop_"
        view.ask("keep", trial=1)
        view.until_server("my shop!", "ready")
    file = tmp_path / "project" / "mcp.json"
    if keep != "notebook":
        cwd = servers_in(own_file if keep == "me" else file)["my shop!"]["cwd"]
        assert cwd == (str(notebooks) if keep == "me" else "notebooks")


@pytest.mark.usefixtures("own_file")
def test_servers_that_were_added_are_offered_again_in_a_later_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    path = str(project / "one.ipynb")
    with contextlib.closing(Mcp(Host(notebook=path))) as mcp:
        view = Notebook(mcp).view()
        for name, keep in [("mine", "me"), ("ours", "project"), ("here", "notebook")]:
            reply = tried(view, [], by="command", what=LINE, keep=keep, name=name)
            assert reply["ok"], reply
            view.ask("keep", trial=1)

    with contextlib.closing(Mcp(Host(notebook=path))) as later:
        used = Notebook(later).view().ask("used")

    assert used["names"] == ["mine", "ours", "here"]
    assert (used["what"], used["line"]) == (["mine", "ours", "here"], "%mcp load mine ours here")
    assert used["typed"] == []


def test_secrets_that_are_typed_go_to_the_secret_store(notebook: Notebook, own_file: Path) -> None:
    view = notebook.view()
    tried(view, [], by="command", what=f"API_KEY=abcdefgh12345678 LEVEL=debug {LINE}", name="mine")
    view.ask("keep", trial=1)
    assert servers_in(own_file)["mine"]["env"] == {"API_KEY": "${secret:mine-API_KEY}", "LEVEL": "debug"}
    assert notebook.host.store.secrets.get("mine-API_KEY") == "abcdefgh12345678"


def test_secrets_in_arguments_headers_and_addresses_go_to_the_secret_store(notebook: Notebook, own_file: Path) -> None:
    view, host = notebook.view(), notebook.host
    line = f"{LINE} --token=abcdefgh12345678 --api-key 87654321hgfedcba --level=debug pg://me:pass1word@db/x"
    tried(view, [], by="command", what=line, keep="notebook", name="mine")
    cell = view.ask("keep", trial=1)["cell"]
    assert cell.startswith("mcp.load(")
    [arguments] = [ast.literal_eval(cell.removeprefix("mcp.load(").removesuffix(")"))["mine"]["args"]]
    variables = ["${secret:mine-token}", "${secret:mine-api-key}", "pg://me:${secret:mine-password}@db/x"]
    assert arguments[-5:] == [f"--token={variables[0]}", "--api-key", variables[1], "--level=debug", variables[2]]
    running = psutil.Process(notebook.mcp.servers["mine"].pid)
    assert running.cmdline()[-5:] == shlex.split(line)[-5:]
    url = "http://127.0.0.1:9/mcp?api_key=sesame1234"
    values = {"url": url, "headers": {"Authorization": "Bearer abcdefgh12345678"}}
    tried(view, [], by="fields", what=json.dumps(values), name="far", trial=2)
    addition = host.loop.run(from_values(host, None, {"mcpServers": {"far": values}}, "me"))
    assert addition.definition.url == "http://127.0.0.1:9/mcp?api_key=${secret:far-api_key}"
    assert addition.definition.headers == {"Authorization": "Bearer ${secret:far-Authorization}"}
    kept = {one.name: host.store.secrets.get(one.name) for one in host.store.secrets.kept()}
    assert kept == {
        "mine-token": "abcdefgh12345678",
        "mine-api-key": "87654321hgfedcba",
        "mine-password": "pass1word",
        "far-api_key": "sesame1234",
        "far-Authorization": "abcdefgh12345678",
    }
    host.loop.run(addition.drop())


def test_a_url_and_a_pasted_document_define_a_server(notebook: Notebook, own_file: Path) -> None:
    view = notebook.view()
    values = {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Level": "debug"}}
    reply = tried(view, [], by="fields", what=json.dumps(values), name="far")
    assert reply["value"]["problem"]["message"].startswith("Could not be opened: ")
    document = {"servers": {"pasted": ENTRY}}
    assert tried(view, [], by="json", what=f"// theirs\n{json.dumps(document)}", trial=3)["ok"]
    assert view.ask("keep", trial=3)["cell"] == "%mcp load pasted"
    assert list(servers_in(own_file)) == ["pasted"]


@pytest.mark.usefixtures("own_file")
def test_a_pasted_entry_without_a_name_gets_one_as_its_command_does(notebook: Notebook) -> None:
    view = notebook.view()
    by_command = tried(view, [], by="command", what=LINE, trial=1)["value"]["name"]
    assert tried(view, [], by="json", what=json.dumps(ENTRY), trial=2)["value"]["name"] == by_command
    invalid = json.dumps({"command": 5})
    error = view.reply("try", trial=3, keep="me", by="json", what=invalid)["error"]
    assert error["message"].endswith("mcpServers.server.command: expected a string, got 5")


@pytest.mark.usefixtures("own_file")
def test_the_values_of_a_form_are_checked_one_by_one_and_in_its_own_units(notebook: Notebook) -> None:
    view = notebook.view()
    values = {"command": DEMO[0], "args": DEMO[1:], "timeout": 5000, "env": {"LEVEL": "debug"}, "extra": 1}
    for trial, (wrong, key) in enumerate(
        [({"timeout": "soon"}, "timeout"), ({"env": {"A": 5}}, "env.A"), ({"command": None}, None)], start=1
    ):
        reply = view.reply("try", trial=trial, keep="me", by="fields", what=json.dumps(values | wrong))
        assert not reply["ok"], reply
        assert (reply["error"]["type"], reply["error"].get("key")) == ("ConfigError", key)
    assert tried(view, [], by="fields", what=json.dumps(values), keep="notebook", name="mine", trial=9)["ok"]
    view.ask("keep", trial=9)
    definition = notebook.host.sessions["mine"].definition
    assert (definition.timeout, definition.env, definition.extra) == (5000, {"LEVEL": "debug"}, {"extra": 1})


@pytest.mark.usefixtures("own_file")
def test_what_is_pasted_into_a_form_is_read_if_it_defines_one_server_in_sight(notebook: Notebook) -> None:
    view = notebook.view()
    found = view.ask("pasted", text="claude mcp add weather -e KEY=${KEY} -- uvx weather-mcp --units metric")
    assert found["name"] == "weather"
    values = {"command": "uvx", "args": ["weather-mcp", "--units", "metric"], "env": {"KEY": "${KEY}"}}
    assert json.loads(found["text"]) == values
    document = json.dumps({"servers": {"far": {"type": "http", "url": "https://a.example/mcp"}}})
    assert view.ask("pasted", text=document) == {"name": "far", "text": '{"url": "https://a.example/mcp"}'}
    assert view.ask("pasted", text=f"PORT=1 {LINE}")["name"] is None
    link = "vscode:mcp/install?%7B%22name%22%3A%22a%22%2C%22command%22%3A%22uvx%22%7D"
    for several in (f"a -- {LINE}\nb -- {LINE}", link):
        assert view.ask("pasted", text=several) is None
    assert view.reply("pasted", text="uvx 'a")["error"]["message"] == "pasted: a quote is not closed"


def test_a_field_takes_what_people_paste_also_several_servers(notebook: Notebook, own_file: Path) -> None:
    view = notebook.view()
    entry = json.dumps(ENTRY)
    for trial, (by, what, name) in enumerate(
        [
            ("json", f'"weather": {entry},', "weather"),
            ("json", f"claude mcp add a -- {LINE}", "a"),
            ("command", f"code --add-mcp '{json.dumps({'name': 'b', **ENTRY})}'", "b"),
            ("command", f"c -- {LINE}", "c"),
        ],
        start=1,
    ):
        tried_one = tried(view, [], by=by, what=what, keep="notebook", trial=trial)["value"]
        assert (tried_one["name"], tried_one["problem"]) == (name, None)
        view.ask("drop", trial=trial)
    both = tried(view, [], by="json", what=json.dumps({"servers": {"one": ENTRY, "two": ENTRY}}), trial=9)["value"]
    assert (both["name"], both["problem"], both["runs"].count(" · ")) == ("one, two", None, 1)
    assert {tool["name"].partition(".")[0] for tool in both["tools"]} == {"one", "two"}
    assert view.ask("keep", trial=9) == {"name": "one, two", "cell": "%mcp load one\n%mcp load two"}
    assert list(servers_in(own_file)) == ["one", "two"]
    document = {"one": ENTRY, "wrong": {"command": "false"}}
    failed = tried(view, [], by="json", what=json.dumps(document), keep="notebook", trial=10)["value"]
    assert failed["problem"]["message"] and failed["name"] == "one_2, wrong"
    assert set(notebook.mcp) == {"one", "two"}
    error = view.reply("try", trial=11, keep="me", by="json", what="mcp-server-time")["error"]
    assert "%mcp load time -- uvx mcp-server-time" in error["hint"]


def test_a_link_that_is_pasted_into_a_field_is_asked_about(notebook: Notebook, own_file: Path) -> None:
    view = notebook.view()
    config = base64.b64encode(json.dumps(ENTRY).encode()).decode()
    link = f"cursor://anysphere.cursor-deeplink/mcp/install?name=far&config={config}"
    outcome = tried(view, [{"servers": ["far"]}], by="json", what=link)
    assert outcome["value"]["name"] == "far"


def test_a_trial_counts_the_tools_that_it_does_not_list(notebook: Notebook, own_file: Path) -> None:
    line = " ".join(server_command("misbehaving", "tools=250"))
    outcome = tried(notebook.view(), [], by="command", what=line, name="many")["value"]
    assert (len(outcome["tools"]), len(outcome["tools"]) + outcome["more_tools"] >= 250) == (200, True)


def test_ways_to_run_a_server_have_labels_that_differ(notebook: Notebook) -> None:
    [entry] = notebook.view().ask("search", words="hybrid-mcp")["entries"]
    assert [way["label"] for way in entry["ways"]] == ["npm", "remote, sse", "remote, streamable-http"]


def test_a_server_of_the_own_file_is_edited_duplicated_and_removed(notebook: Notebook, own_file: Path) -> None:
    own_file.parent.mkdir(parents=True)
    entry = {**ENTRY, "colour": "kept", "headers": {}, "env": {"TOKEN": "abcdefgh12345678"}}
    own_file.write_text(json.dumps({"mcpServers": {"mine": entry}, "other": 1}))
    notebook.mcp.load("mine")
    view = notebook.view()
    assert view.state["servers"]["mine"]["own"] is True
    shown = view.ask("definition", server="mine")
    assert shown["keep"] == "me"
    assert "abcdefgh12345678" not in shown["text"]
    changed = {**json.loads(shown["text"]), "timeout": 7}
    assert tried(view, [], by="fields", what=json.dumps(changed), replaces="mine")["ok"]
    view.ask("keep", trial=1)
    written = servers_in(own_file)["mine"]
    assert (written["timeout"], written["colour"], written["env"]) == (7, "kept", {"TOKEN": "${secret:mine-TOKEN}"})
    assert json.loads(own_file.read_text())["other"] == 1
    assert notebook.host.store.secrets.get("mine-TOKEN") == "abcdefgh12345678"
    copied = {key: value for key, value in written.items() if key != "timeout"}
    assert tried(view, [], by="json", what=json.dumps(copied), name="second", trial=2)["ok"]
    view.ask("keep", trial=2)
    assert list(servers_in(own_file)) == ["mine", "second"]
    view.ask("remove", server="second")
    assert list(servers_in(own_file)) == ["mine"]
    view.until(lambda state: list(state["servers"]) == ["mine"])


def test_servers_of_a_file_are_loaded_after_a_question(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "theirs.json").write_text(json.dumps({"mcpServers": {"theirs": ENTRY}}))
    view = notebook.view()
    view.send({"kind": "intent", "id": 900, "do": "load_file", "path": "theirs.json"})
    question = view.question("trust")
    assert (question["kind"], [one["name"] for one in question["candidates"]]) == ("trust", ["theirs"])
    view.answer(question, servers=["theirs"], secrets=[])
    view.until_server("theirs", "ready")


def test_a_server_of_the_project_is_loaded_once_it_is_trusted(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": named({"name": "a"})}}))
    view = notebook.view()
    assert [row["name"] for row in view.ask("known")] == ["theirs"]
    view.ask("load", what=["theirs"])
    question = view.question("trust")
    assert question["candidates"][0]["name"] == "theirs"
    assert any(NAMED in line for line in question["candidates"][0]["lines"])
    view.answer(question, servers=[], secrets=[])
    view.until_server("theirs", "needs_trust")
    view.ask("trust", server="theirs")
    view.answer(view.question("trust"), servers=["theirs"], secrets=[])
    view.until_server("theirs", "ready")


QUIET = {"by": "registry", "what": "io.github.example/clock-quiet", "way": 0}
CLOSED = {"message": "the question is no longer open", "hint": "it was answered or withdrawn", "type": "UnknownName"}


@pytest.mark.parametrize("ends", ["drop", "leave"])
@pytest.mark.parametrize("kind", ["trust", "secret", "login"])
def test_a_trial_that_ends_while_it_asks_closes_its_question_and_starts_nothing(
    notebook: Notebook, own_file: Path, kind: str, ends: str
) -> None:
    host = notebook.host
    view, other = notebook.view(), notebook.view()
    with running(Behaviour()) as server:
        what = {
            "trust": QUIET,
            "secret": {"by": "registry", "what": CLOCK, "way": 0},
            "login": {"by": "json", "what": server.url, "name": "far"},
        }[kind]
        question = asked(view, kind, **what)
        other.until(lambda state: bool(state["questions"]))
        if ends == "drop":
            view.ask("drop", trial=1)
            reply = view.wait(lambda one: one["kind"] == "reply" and one["id"] == 9_000)
            assert reply["error"]["message"] == "the trial was cancelled"
        else:
            view.leave()
        other.until(lambda state: not state["questions"])
        late = {"trust": {"servers": ["clock_quiet"], "secrets": []}}.get(kind, {"action": "accept", "content": {}})
        assert other.reply("answer", question=question["id"], **late)["error"] == CLOSED
        wait_until(lambda: not host.trials.sessions)
        assert list(notebook.mcp.servers) == []
        assert not own_file.exists()
        assert host.store.secrets.kept() == []


def test_a_view_that_goes_leaves_no_trial_behind(notebook: Notebook) -> None:
    view, before = notebook.view(), set(psutil.Process().children(recursive=True))  # servers of other kernels
    assert tried(view, [], by="command", what=LINE, name="mine")["ok"]
    started = [one for one in psutil.Process().children(recursive=True) if one not in before]
    started = [one for one in started if "demo" in " ".join(one.cmdline())]
    assert started
    view.leave()
    wait_until_gone(started)

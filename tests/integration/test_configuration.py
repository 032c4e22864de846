"""The discovered configuration in real kernels: what a bare load starts, what it never runs, and `%mcp config`."""

import ast
import base64
import contextlib
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ipymcp
from tests.conftest import StartKernel
from tests.environments import ROOT, environment, server_command
from tests.integration.notebooks import done, error, text
from tests.kernels import Kernel

MISBEHAVING = server_command("misbehaving")
WHERE = "r = mcp.{}.env()\n(r.data['cwd'], r.data['environ'].get('PWD'))"
ADD = "config add NAME URL | [NAME] {{json}} | NAME -- COMMAND ARG…"
UP = "brings the servers up to date"


def server(*command: str, **values: Any) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:]), **values}


def about(**values: Any) -> dict[str, Any]:
    """A server that tells its environment and folder."""
    return server(*MISBEHAVING, **values)


def own_file(kernel: Kernel) -> Path:
    return Path(kernel.environment["JUPYTER_CONFIG_DIR"], "ipymcp", "mcp.json")


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def project(kernel: Kernel) -> Path:
    (kernel.folder / ".git").mkdir()
    return kernel.folder


@pytest.mark.cold
def test_a_bare_load_starts_the_users_own_servers_and_runs_nothing_of_a_hostile_project(
    start_kernel: StartKernel, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    kernel = start_kernel(env={"PATH": f".::bin:{Path(shutil.which('node') or '').parent}:/usr/bin:/bin"})
    folder = tmp_path / "project"  # the user's own folders do not lie in it
    (folder / ".git").mkdir(parents=True)

    # What a project may bring along. Each leaves a mark if it ever runs.
    script = "#!/bin/sh\ntouch {}\n"
    python = "open({!r}, 'w').close()\n"
    for name in ("json.py", "mcp_server_time.py", "sitecustomize.py"):
        write(folder / name, python.format(str(marks / name)))
    for name in ("tool", "bin/tool", "node_modules/.bin/tool"):
        write(folder / name, script.format(marks / name.replace("/", "-"))).chmod(0o755)
    write(folder / "evil.js", f"require('fs').writeFileSync({str(marks / 'npmrc')!r}, '')")
    write(folder / ".npmrc", f"node-options=--require {folder / 'evil.js'}\n")
    write(folder / "package.json", {"name": "p", "bin": {"tool": "tool"}})
    evil = server("/bin/sh", "-c", f"touch {marks / 'project'}")
    write(folder / ".mcp.json", {"mcpServers": {"evil": evil, "github": evil}})
    write(folder / ".vscode" / "mcp.json", {"servers": {"code": evil, "remote": {"url": "http://127.0.0.1:9/${HOME}"}}})
    write(folder / "opencode.json", {"mcp": {"open": {"type": "local", "command": ["/bin/sh", f"{folder}/tool"]}}})

    time = environment("server-time").python
    own = {
        "time": server(str(time), "-m", "mcp_server_time"),
        "npx": server("npx", "--no-install", "--offline", "tool", restart=False),
        "tool": server("tool"),
        "github": about(),
        "mine": about(),
    }
    write(own_file(kernel), {"mcpServers": own})

    done(kernel, f"%cd -q {folder}")
    done(kernel, "%load_ext ipymcp")
    loaded = done(kernel, "%mcp load")
    lines = loaded.displays[-1]["text/plain"].splitlines()
    why = "belongs to a project"
    assert lines[:5] == [
        f"✗ evil: needs your trust: {folder}/.mcp.json {why}",
        f"✗ github: needs your trust: {folder}/.mcp.json {why}",
        f"✗ code: needs your trust: {folder}/.vscode/mcp.json {why}",
        f"✗ remote: needs your trust: {folder}/.vscode/mcp.json {why}",
        f"✗ open: needs your trust: {folder}/opencode.json {why}",
    ]
    assert lines[5] == "✓ time: ready, 2 tools"
    assert lines[6].startswith("✗ npx: ")
    assert lines[7] == "✗ tool: there is no program 'tool' (looked for tool, on the PATH)"
    assert lines[8].startswith("✓ mine: ready")
    shadowed = f"github: the one in {folder}/.mcp.json shadows that in {own_file(kernel)}"
    assert loaded.stderr == f"ipymcp: {shadowed}\n"

    for word in ("load", "start", "restart"):
        [message, hint] = error(kernel, f"%mcp {word} evil")
        assert message == f"TrustError: evil: needs your trust: {folder}/.mcp.json {why}"
        assert hint.startswith("  %mcp start evil asks for it, or set IPYMCP_TRUST=")
        assert hint.endswith(f" where no one can be asked · in: %mcp {word} evil")
    [message, _] = error(kernel, "mcp.github.env()")
    assert message == f"TrustError: github: needs your trust: {folder}/.mcp.json {why}"
    assert list(marks.iterdir()) == []

    private = Path(kernel.environment["JUPYTER_DATA_DIR"], "ipymcp", "servers", "mine")
    assert ast.literal_eval(text(kernel, WHERE.format("mine"))) == (str(private), str(private))
    assert private.stat().st_mode & 0o777 == 0o700

    [message, _] = error(kernel, f"%mcp load {folder}/.mcp.json evil")  # named, it is still the project's
    assert message == f"TrustError: evil: needs your trust: {folder}/.mcp.json {why}"
    assert list(marks.iterdir()) == []
    [message, _] = error(kernel, "%mcp load ./.mcp.json evil --trust")  # now it runs, but does not speak MCP
    assert message.startswith("StartError: evil: ")
    assert [path.name for path in marks.iterdir()] == ["project"]


def test_a_starter_file_has_comments_and_a_disabled_example_and_replaces_nothing(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    own = own_file(kernel)
    done(kernel, "%load_ext ipymcp")
    made = f"{own} is there now, with a disabled example: edit it, then %mcp load\n"
    assert done(kernel, "%mcp config init").stdout == made
    document = json.loads(own.read_text())
    example = document["mcpServers"]["example"]
    assert example["disabled"] and "//" in example and "//" in document
    assert "example  uvx mcp-server-time  disabled" in text(kernel, "%mcp config")
    done(kernel, f"%mcp config add fs -- {shlex.join(MISBEHAVING)}")
    assert done(kernel, "%mcp load").displays[-1]["text/plain"].splitlines()[-1] == "✓ fs: ready, 13 tools"
    assert json.loads(own.read_text())["//"] == document["//"]
    assert error(kernel, "%mcp config init") == [
        f"ConfigError: {own}: is there already",
        "  %mcp config lists its servers, %mcp config add NAME -- COMMAND ARG… adds one · in: %mcp config init",
    ]
    project(kernel)
    done(kernel, "mcp.config.init(project=True)")
    assert json.loads((kernel.folder / "mcp.json").read_text()) == document


def test_where_servers_run(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    folder = project(kernel)
    (folder / "sub").mkdir()
    write(own_file(kernel), {"mcpServers": {"own": about(cwd=str(folder / "sub")), "plain": about()}})
    write(folder / "sub" / "named.json", {"mcpServers": {"named": about()}})
    done(kernel, "%load_ext ipymcp\n%mcp load;")
    done(kernel, "%mcp load sub/named.json;")
    done(kernel, f"%mcp load typed -- {' '.join(MISBEHAVING)};")
    data = Path(kernel.environment["JUPYTER_DATA_DIR"], "ipymcp", "servers")
    for name, place in {
        "own": folder / "sub",
        "plain": data / "plain",
        "named": folder / "sub",
        "typed": folder,
    }.items():
        assert ast.literal_eval(text(kernel, WHERE.format(name))) == (str(place), str(place)), name


def test_servers_of_a_hosts_folder_run_in_the_project_discovered_or_named(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    folder = project(kernel)
    program, *args = MISBEHAVING
    write(folder / "tools" / "start.sh", f'exec "$P" {shlex.join(args)}\n')
    entry = {"command": "sh", "args": ["tools/start.sh"], "env": {"P": program}}
    write(folder / ".roo" / "mcp.json", {"mcpServers": {"roo": {**entry, "sandbox": {"network": "none"}}}})
    codex = ["[mcp_servers.codex]", 'command = "sh"', 'args = ["tools/start.sh"]', f'env = {{ P = "{program}" }}']
    write(folder / ".codex" / "config.toml", "\n".join(codex))
    write(folder / ".claude" / "mcp.json", {"mcpServers": {"claude": entry}})
    write(folder / "librechat.yaml", "mcpServers:\n  x: {}\n")
    done(kernel, "%load_ext ipymcp")
    loaded = done(kernel, "%mcp load --trust")
    assert [line.partition(":")[0] for line in loaded.displays[-1]["text/plain"].splitlines()] == ["✓ codex", "✓ roo"]
    assert loaded.stderr.splitlines() == [
        f"ipymcp: {folder}/librechat.yaml is there; ipymcp does not read YAML · write its servers as JSON, "
        "or add each: %mcp config add NAME -- COMMAND ARG…",
        f"ipymcp: roo: sandbox.network is not used: it is not confined ({folder}/.roo/mcp.json)",
    ]
    done(kernel, "%mcp load .claude/mcp.json;")
    for name in ("codex", "roo", "claude"):
        assert ast.literal_eval(text(kernel, WHERE.format(name))) == (str(folder), str(folder)), name


def test_the_servers_of_dispatch_are_found_first_in_a_folder_and_asked_about(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    folder = project(kernel)
    file = write(folder / ".dispatch" / "mcp.json", {"servers": {"tracker": about(transport="stdio")}})
    write(folder / "mcp.json", {"mcpServers": {"tracker": server("false")}})
    done(kernel, "%load_ext ipymcp")
    loaded = done(kernel, "%mcp load", answers=["yes"])
    assert f"{file} belongs to a project" in loaded.stdout
    assert "✓ tracker: ready, 13 tools" in loaded.displays[-1]["text/plain"]
    assert text(kernel, "%mcp config explain tracker").splitlines()[0] == f"tracker: from {file} (project)"
    assert ast.literal_eval(text(kernel, WHERE.format("tracker"))) == (str(folder), str(folder))


def test_a_bundles_manifest_is_loaded_and_asks_for_its_settings(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    program, *args = MISBEHAVING
    config = {"command": program, "args": args, "env": {"K": "${user_config.key}", "D": "${__dirname}"}}
    fields = {"key": {"type": "string", "title": "Key", "sensitive": True, "required": True}}
    manifest = {
        "manifest_version": "0.3", "name": "files", "version": "1.0.0", "author": {"url": "https://a.example"},
        "server": {"type": "python", "mcp_config": config}, "user_config": fields,
    }  # fmt: skip
    file = write(kernel.folder / "bundle" / "manifest.json", manifest)
    done(kernel, "%load_ext ipymcp")
    outcome = kernel.run("%mcp load ./bundle/manifest.json files", answers=["s3cr3t", ""])
    assert outcome.error is None, outcome.error
    seen = text(kernel, "e = mcp.files.env().data['environ']\n(e['K'], e['D'])")
    assert ast.literal_eval(seen) == ("s3cr3t", str(file.parent))
    (kernel.folder / "x.mcpb").write_bytes(b"PK")
    assert error(kernel, "%mcp load x.mcpb")[0] == "UnknownName: 'x.mcpb' is an MCPB bundle, not a config file"


def test_the_content_of_a_file_is_a_value_and_masked(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    (kernel.folder / "token").write_text("t0k3n-of-a-file\n")
    document = {"mcp": {"fs": {"type": "local", "command": MISBEHAVING, "environment": {"V": "{file:token}"}}}}
    write(kernel.folder / "sub.json", document)
    done(kernel, "%load_ext ipymcp\n%mcp load ./sub.json;")
    assert text(kernel, "mcp.fs.env().data['environ']['V'] == 't0k3n-of-a-file'") == "True"
    assert "t0k3n" not in error(kernel, "%mcp load t0k3n-of-a-file")[0]
    (kernel.folder / "token").unlink()
    assert error(kernel, "%mcp restart fs")[0].endswith("{file:token} cannot be read: No such file or directory")


def test_a_command_for_windows_is_hinted_at(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    write(kernel.folder / "win.json", {"mcpServers": {"a": server("cmd", "/c", "npx", "-y", "pkg")}})
    done(kernel, "%load_ext ipymcp")
    message, hint = error(kernel, "%mcp load ./win.json a")
    assert message == "CommandNotFound: a: there is no program 'cmd' (looked for cmd, on the PATH)"
    assert hint.startswith("  leave `cmd /c` out here, it is for Windows: the command is npx")


def test_the_folder_is_the_notebooks_and_stays_it(start_kernel: StartKernel, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    write(place / ".mcp.json", {"mcpServers": {"theirs": about()}})
    (place / ".git").mkdir()
    kernel = start_kernel(env={"JPY_SESSION_NAME": str(place / "a.ipynb")})
    done(kernel, "%load_ext ipymcp")
    done(kernel, "%cd -q ..")
    assert f"the notebook's folder is {place}" in text(kernel, "%mcp config")
    assert "theirs" in text(kernel, "%mcp config")

    code = start_kernel(env={"JPY_SESSION_NAME": "vscode-kernel"})
    done(code, f"__vsc_ipynb_file__ = {str(place / 'b.ipynb')!r}\n%load_ext ipymcp")
    assert f"the notebook's folder is {place}" in text(code, "%mcp config")


def test_variables_have_their_values_at_the_start_and_a_restart_takes_new_ones(start_kernel: StartKernel) -> None:
    kernel = start_kernel(env={"FIRST": "1"})
    write(own_file(kernel), {"mcpServers": {"fs": about(env={"A": "${FIRST}", "B": "${NONE}"})}})
    done(kernel, "%load_ext ipymcp")
    [message, hint] = error(kernel, "%mcp load fs")
    assert message == (f"ConfigError: fs: {own_file(kernel)}: mcpServers.fs.env.B: ${{NONE}} is not set in this kernel")
    assert hint == "  os.environ['NONE'] = …, or write ${NONE:-default} · in: %mcp load fs"
    done(kernel, "import os; os.environ['NONE'] = '${FIRST}'\n%mcp start fs")
    seen = "e = mcp.fs.env().data['environ']\n(e['A'], e['B'])"
    assert text(kernel, seen) == "('1', '${FIRST}')"
    done(kernel, "os.environ['FIRST'] = '2'\n%mcp restart fs")
    assert text(kernel, seen) == "('2', '${FIRST}')"


def test_inputs_are_asked_for_once_and_hidden_ones_are_not_shown(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    document = {
        "inputs": [
            {"id": "key", "type": "promptString", "description": "The API key", "password": True},
            {"id": "mode", "type": "pickString", "description": "How", "options": ["fast", "slow"], "default": "slow"},
        ],
        "servers": {"fs": about(env={"K": "${input:key}", "M": "${input:mode}"})},
    }
    write(kernel.folder / "vs.json", document)
    done(kernel, "%load_ext ipymcp")
    [message, _] = error(kernel, "%mcp load ./vs.json fs")  # no one can answer
    assert message.endswith("vs.json: servers.fs.env.K: ${input:key} has no value")
    outcome = kernel.run("%mcp load ./vs.json fs", answers=["s3cr3t", "", ""])
    assert outcome.error is None, outcome.error
    assert "s3cr3t" not in str(outcome)
    assert text(kernel, "e = mcp.fs.env().data['environ']\n(e['K'], e['M'])") == "('s3cr3t', 'slow')"
    done(kernel, "%mcp restart fs")
    assert text(kernel, "mcp.fs.env().data['environ']['K']") == "'s3cr3t'"


def test_the_configuration_is_shown_and_changed_and_its_changes_are_announced(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    folder, own = project(kernel), own_file(kernel)
    done(kernel, "%load_ext ipymcp")
    assert text(kernel, "%mcp config").splitlines()[-1] == (
        f"no servers are configured: %mcp config add NAME -- COMMAND ARG… saves one in {own}; "
        f"a project's servers are in mcp.json, in {kernel.folder} or above it"
    )
    assert done(kernel, "%mcp load").stderr == (
        "ipymcp: no servers are configured here: %mcp load demo, or %mcp config add NAME -- COMMAND ARG…\n"
    )
    command = " ".join(MISBEHAVING)
    added = done(kernel, f"%mcp config add fs timeout=60 env.LEVEL=1.0 -- {command}")
    assert added.stdout == f"fs is in {own}; to start: %mcp load fs\n"
    assert json.loads(own.read_text())["mcpServers"]["fs"] == about(timeout=60, env={"LEVEL": "1.0"})
    assert done(kernel, "%mcp load").displays[0]["text/plain"] == "✓ fs: ready, 13 tools"
    assert "fs      " in text(kernel, "%mcp config") and "  ready  " in text(kernel, "%mcp config")

    write(folder / ".mcp.json", {"mcpServers": {"theirs": about()}})
    assert set(kernel.complete("%mcp load t").matches) == {"theirs"}
    assert kernel.complete("%mcp config exp").matches == ["explain", "export"]
    assert done(kernel, "%mcp").stderr == f"ipymcp: {folder}/.mcp.json is new: %mcp load {UP}\n"
    (folder / ".mcp.json").unlink()

    done(kernel, "%mcp config update fs env.LEVEL=2;")
    assert "  changed  " in text(kernel, "%mcp config")
    assert done(kernel, "%mcp").stderr == ""  # we changed it ourselves
    done(kernel, "%mcp load;")
    assert text(kernel, "mcp.fs.env().data['environ']['LEVEL']") == "'2'"

    write(folder / "mcp.json", {"mcpServers": {"fs": about()}})
    assert done(kernel, "%mcp").stderr == f"ipymcp: {folder}/mcp.json is new: %mcp load {UP}\n"
    assert done(kernel, "%mcp").stderr == ""
    shown = text(kernel, "%mcp config explain fs")
    assert shown.splitlines()[0] == f"fs: from {folder}/mcp.json (project)"
    assert "shadows" in shown
    exported = done(kernel, "%mcp config export opencode fs").text or ""
    assert json.loads(exported)["mcp"]["fs"]["command"] == MISBEHAVING
    assert done(kernel, "%mcp config remove fs").stdout == f"removed fs from {own}\n"
    assert json.loads(own.read_text()) == {"mcpServers": {}}
    (folder / "mcp.json").unlink()
    assert done(kernel, "%mcp load").stderr.splitlines()[0] == (
        "ipymcp: fs: no file defines it any more; it stays until %mcp unload fs"
    )


def test_a_document_is_pasted_into_a_cell_and_a_definition_into_a_line(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    own = own_file(kernel)
    done(kernel, "%load_ext ipymcp")
    code = {"servers": {"my fs": about(env={"PORT": 8080}), "off": {"url": "https://h/mcp"}}}
    pasted = json.dumps(code).replace("{", "{ // as a README has it\n", 1)
    added = done(kernel, f"%%mcp config add\n{pasted}")
    assert added.stdout == f"my fs, off are in {own}; to start: %mcp load 'my fs' off\n"
    assert done(kernel, "%mcp load 'my fs'").displays[0]["text/plain"] == "✓ my fs: ready, 13 tools"
    assert text(kernel, "mcp['my fs'].env().data['environ']['PORT']") == "'8080'"
    done(kernel, "%mcp config add shell {'command': './run.sh', /* note */ 'args': ['.'],};")
    done(kernel, "%mcp config add typed -- ./run.sh .;")
    done(kernel, "%mcp config add remote https://host/mcp --header 'X-Team: birds'")
    written = json.loads(own.read_text())["mcpServers"]
    assert written["remote"] == {"url": "https://host/mcp", "headers": {"X-Team": "birds"}}
    assert written["shell"] == {"command": "./run.sh", "args": ["."]}  # it stands as it was written
    assert written["typed"] == {"command": str(kernel.folder / "run.sh"), "args": [str(kernel.folder)]}
    outcome = kernel.run("%%mcp config remove shell\n{}")
    assert outcome.error is not None and outcome.error.evalue.startswith("%mcp config remove takes no cell")


def test_what_people_paste_is_loaded_from_lines_cells_and_python(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    done(kernel, "%load_ext ipymcp")
    program, *arguments = MISBEHAVING
    line, entry = shlex.join(MISBEHAVING), json.dumps(about())
    for name, cell in {
        "a": f"%mcp load claude mcp add -s user -e LEVEL=1 a -- {line}",
        "b": f"%mcp load claude mcp add-json b '{entry}'",
        "c": f'%%mcp load\n// of a README\n"c": {entry},',
        "d": f"%%mcp load d\n```json\n{entry}\n```",
        "e": f"%%mcp load\n[mcp_servers.e]\ncommand = '{program}'\nargs = {json.dumps(arguments)}\n",
        "f": f"%mcp load f {json.dumps({'mcpServers': {'x': about()}})}",
        "g": f"mcp.load({f'g -- {line}'!r})",
        "h": f"mcp.load('h', command={program!r}, args={arguments!r}, env={{'LEVEL': '1'}})",
        "i": f"mcp.load({json.dumps({'mcpServers': {'i': about()}})!r})",
        "j": f"mcp.load({{'j': {line!r}}})",
        "k": f"mcp.load('k -- {line}', env={{'LEVEL': '1'}})",
        "m": f"%mcp load m command={program} args={json.dumps(arguments)} env.LEVEL=1",
        "misbehaving": f"mcp.load({MISBEHAVING!r})",
    }.items():
        outcome = done(kernel, cell)
        assert text(kernel, f"mcp.servers[{name!r}].state") == "'ready'", cell
        assert cell.startswith("mcp") or f"✓ {name}: ready, 13 tools" in str(outcome.displays)
        if "LEVEL" in cell:
            assert text(kernel, f"mcp.{name}.env().data['environ']['LEVEL']") == "'1'"
    write(kernel.folder / "one.json", about())
    assert "✓ misbehaving: ready" in str(done(kernel, "%mcp load one.json").displays)
    scoped = done(kernel, f"%mcp load claude mcp add -s project l -- {line}").stderr
    assert scoped.startswith("ipymcp: -s project is not used: %mcp config add keeps a server in your own file")
    outcome = kernel.run("%%mcp load\n ")
    assert outcome.error is not None and outcome.error.evalue.startswith(
        "the cell is empty: paste a definition into it"
    )


@pytest.mark.parametrize(
    ("what", "keywords"),
    [
        ((f"own -- {shlex.join(MISBEHAVING)}",), {}),
        (("own", MISBEHAVING), {}),
        (("own",), {"command": MISBEHAVING[0], "args": MISBEHAVING[1:]}),
        ((json.dumps({"mcpServers": {"own": {"command": MISBEHAVING[0], "args": MISBEHAVING[1:]}}}),), {}),
        ((f"claude mcp add own -- {shlex.join(MISBEHAVING)}",), {}),
    ],
)
def test_connect_takes_what_people_have_in_hand(what: tuple[Any, ...], keywords: Any, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), ipymcp.connect(*what, **keywords) as mcp:
        assert [*mcp] == ["own"]
        assert len(mcp.own) == 13


def test_an_address_has_its_headers_from_python_and_from_a_line(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    done(kernel, "%load_ext ipymcp")
    address = "http://127.0.0.1:9/mcp"  # where no one listens
    kernel.run(f"mcp.load('a', url={address!r}, headers={{'X-Team': 'birds'}}, wait=False)")
    kernel.run(f"%mcp load --no-wait --header 'X-Team: birds' b {address}")
    for name in "ab":
        explained = text(kernel, f"mcp.config.explain({name!r})")
        assert address in explained and "birds" in explained, name


def test_a_server_from_a_link_is_shown_and_agreed_to_before_it_runs(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    own = own_file(kernel)
    done(kernel, "%load_ext ipymcp")
    link = "cursor://anysphere.cursor-deeplink/mcp/install?name=far&config="
    link += base64.b64encode(json.dumps(about()).encode()).decode()
    shown = "the link cursor://anysphere.cursor-deeplink/mcp/install is to be "
    for cell in (f"%mcp load {link}", f"mcp.load({link!r})"):
        refused = kernel.run(cell, answers=["no"])
        assert f"{shown}added to this notebook" in refused.stdout and MISBEHAVING[0] in refused.stdout
        assert refused.error is not None
        assert refused.error.traceback.startswith("PolicyError: far: is not loaded: you did not agree to it")
        assert kernel.run(cell).error is not None  # no one can be asked
        assert text(kernel, "list(mcp)") == "[]"
    assert f"{shown}imported into {own}" in kernel.run(f"%mcp config add {link}", answers=["no"]).stdout
    assert not own.exists() or json.loads(own.read_text())["mcpServers"] == {}
    done(kernel, f"%mcp add {link}", answers=["yes"])
    assert text(kernel, "mcp.servers['far'].state") == "'ready'"
    assert json.loads(own.read_text())["mcpServers"]["far"] == about()
    done(kernel, f"%mcp load {link.replace('far', 'near')}", answers=["yes"])
    assert text(kernel, "mcp.servers['near'].state") == "'ready'"


def test_what_people_paste_is_kept_in_a_file(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    own, line = own_file(kernel), shlex.join(MISBEHAVING)
    done(kernel, "%load_ext ipymcp")
    done(kernel, f"%mcp config add claude mcp add a --env LEVEL=1 -- {line}")
    done(kernel, "%mcp config add --transport sse docs https://host.example/mcp")
    done(kernel, f"%%mcp config add\nclaude mcp add b -- {line}\nclaude mcp add c https://host.example/mcp")
    added = done(kernel, f"%mcp add d -- {line}")
    assert added.stdout == f"d is loaded, and in {own}: 13 tools\n"
    two = json.dumps({"mcpServers": {"e": about(), "f": about()}})
    assert done(kernel, f"%%mcp add\n{two}").stdout == f"e, f are loaded, and in {own}: 26 tools\n"
    assert json.loads(own.read_text())["mcpServers"] == {
        "a": about(env={"LEVEL": "1"}),
        "docs": {"url": "https://host.example/mcp", "transport": "sse"},
        "b": about(), "c": {"url": "https://host.example/mcp"},
        "d": about(), "e": about(), "f": about(),
    }  # fmt: skip
    done(kernel, f"mcp.add({f'i -- {line}'!r}, keep='notebook')")
    done(kernel, f"%mcp add --for notebook k command={MISBEHAVING[0]} args={json.dumps(MISBEHAVING[1:])}")
    assert text(kernel, "mcp.servers['i'].state, mcp.servers['k'].state") == "('ready', 'ready')"
    failed = kernel.run(f"%%mcp add\n{json.dumps({'mcpServers': {'g': about(), 'h': server('false')}})}")
    assert failed.error is not None and failed.error.traceback.startswith("StartError: h: ")
    assert text(kernel, "[name for name in mcp if name in 'gh']") == "[]"
    assert not {"g", "h"} & json.loads(own.read_text())["mcpServers"].keys()


def test_the_usable_servers_of_a_named_file_are_loaded(kernel_of_lines: Kernel) -> None:
    kernel = kernel_of_lines
    file = write(kernel.folder / "n.json", {"mcpServers": {"good": about(), "bad": {"command": 5}}})
    expected = f"ConfigError: {file}: mcpServers.bad.command: expected a string, got 5"
    assert error(kernel, "%mcp load ./n.json")[0] == expected
    assert error(kernel, "%mcp load ./n.json bad")[0] == expected
    done(kernel, "%mcp load ./n.json good;")
    assert text(kernel, "mcp.good.env().data['cwd']") == repr(str(kernel.folder))
    write(file, {"mcpServers": {}})
    assert done(kernel, "%mcp load ./n.json").stderr == f"ipymcp: {file} defines no servers\n"
    done(kernel, "%mcp unload good;")


def test_tab_completes_what_follows_each_word(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    project(kernel)
    write(own_file(kernel), {"mcpServers": {"fs": about(env={"T": "${secret:token}"}), "my db": about()}})
    done(kernel, "%load_ext ipymcp\n%mcp load demo;")
    (kernel.folder / "part").mkdir()
    (kernel.folder / "part" / "a.json").write_text("{}")
    (kernel.folder / "part" / "a.lock").write_text("{}")
    done(kernel, "%mcp config add --project mine -- echo;")
    for typed, offered in {
        "config e": ["explain", "edit", "export"],
        "config explain ": ["demo", "mine", "fs", "'my db'"],
        "config explain 'my": ["my db"],
        "config --project remove m": ["mine", "'my db'"],
        "config update fs ti": ["timeout="],
        "config import v": ["vscode"],
        "config import part/": ["part/a.json"],
        "config import --": ["--project", "--replace"],
        "config export boocode f": ["fs"],
        "secret ": ["set", "list", "delete"],
        "secret set ": ["token"],
        "trust ": ["list", "revoke"],
        "trust revoke m": ["mine"],
        "trust revoke --": ["--all"],
        "policy ": ["allow", "ask", "deny", "explain", "reset", "demo."],
        "policy demo.q": ["demo.query"],
        "policy deny demo.q": ["demo.query"],
        "policy explain demo.q": ["demo.query"],
        "policy allow demo.query --": ["--always", "--doubted"],
        "pins ": ["accept", "scan", "export", "demo."],
        "pins accept demo.q": ["demo.query"],
        "pins export part/": ["part/a.json", "part/a.lock"],
        "history --s": ["--server", "--since"],
        "history --server d": ["demo"],
        "history --tool=qu": ["query"],
        "load --cwd p": ["part/"],
        "load my": ["'my db'"],
        "load x -- part/": ["part/a.json", "part/a.lock"],
    }.items():
        assert kernel.complete(f"%mcp {typed}").matches == offered, typed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("config lst", "there is no %mcp config lst; did you mean 'list'?"),
        ("policy alow fs", "there is no %mcp policy alow; did you mean 'allow'?"),
        ("policy allow --always", "something is missing; usage: %mcp policy allow PATTERN… [--always]"),
        ("policy explain a.b c.d", "c.d is one too many; usage: %mcp policy explain SERVER.TOOL"),
        ("policy reset fs", "fs is one too many; usage: %mcp policy reset [--always]"),
        ("trust revoke", "give names or --all, one of the two; usage: %mcp trust revoke NAME|FILE|HASH… | --all"),
        ("trust revoke fs --all", "give names or --all, not both; usage: %mcp trust revoke NAME|FILE|HASH… | --all"),
        ("trust fs", "there is no %mcp trust fs; there are list, revoke"),
        ("pins scan fs", "fs is one too many; usage: %mcp pins scan"),
        ("secret set", "something is missing; usage: %mcp secret set NAME"),
        ("config add", f"something is missing; usage: %mcp {ADD}"),
        ("config add fs", f"something is missing; usage: %mcp {ADD}"),
        ("config add fs x y", f"x is one too many; usage: %mcp {ADD}"),
        ("config add fs {{x: 1}}", 'ConfigError: {own}: mcpServers.fs: expected "command" or "url", found neither'),
        ("config add fs {{x 1}}", "ConfigError: pasted, line 1, column 4: not JSON: unexpected '1'"),
        ("config --project", "there is no option --project; usage: %mcp config [list|explain|add|"),
        ("config explain fs --project", "there is no option --project; usage: %mcp config explain NAME"),
        ("load fs {{x: 1}}", 'ConfigError: pasted: expected the key "mcpServers", found "x"'),
        ("load .", "ConfigError: {folder}: is a folder"),
        ("config add fs --", "there is no command after --"),
        ("config explain", "something is missing; usage: %mcp config explain NAME"),
        ("config explain fs", "UnknownName: no server 'fs' is configured here"),
        ("config update fs", "nothing to change; usage: %mcp config update NAME KEY=VALUE… | URL | {{json}} | --"),
        ("config remove fs -- x", "%mcp config remove takes no command after --"),
        ("config import emacs", "UnknownName: there is no host 'emacs' to import from"),
        ("config import ./none.json", "ConfigError: {folder}/none.json: no such file"),
        ("config export codex", "UnknownName: there is no host 'codex' to export to"),
    ],
)
def test_a_mistyped_line_says_what_to_write(kernel_of_lines: Kernel, line: str, message: str) -> None:
    outcome = kernel_of_lines.run(f"%mcp {line.format()}")
    expected = message.format(own=own_file(kernel_of_lines), folder=kernel_of_lines.folder)
    assert outcome.error is not None
    assert f"{outcome.error.ename}: {outcome.error.evalue}".removeprefix("UsageError: ").startswith(expected)


@pytest.fixture(scope="module")
def kernel_of_lines(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests import kernels

    with kernels.started(kernel_name, tmp_path_factory.mktemp("lines")) as kernel:
        done(kernel, "%load_ext ipymcp")
        yield kernel


def test_a_script_finds_the_same_configuration_and_is_warned_of_its_errors(
    tmp_path: Path, start_kernel: StartKernel
) -> None:
    kernel = start_kernel()
    folder = project(kernel)
    write(folder / "mcp.json", {"mcpServers": {"theirs": about()}})
    write(folder / ".mcp.json", "{")
    write(own_file(kernel), {"mcpServers": {"fs": about()}})
    script = (
        "import logging, ipymcp\nlogging.basicConfig(level='WARNING', format='%(name)s: %(message)s')\n"
        "with ipymcp.connect() as mcp:\n    assert list(mcp) == []\n    mcp.load()\n"
        "    print({name: mcp.servers[name].state for name in mcp})\n"
        "    try:\n        mcp.load('theirs')\n    except ipymcp.PolicyError as error:\n        print(error.server)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder, env={**kernel.environment, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == "{'theirs': 'needs_trust', 'fs': 'ready'}\ntheirs\n"
    wrong = f"{folder}/.mcp.json, line 1, column 2: not JSON: Unexpected end of input"
    wrong += " · look there, and just before, for a missing comma, quote or bracket"
    refused = f"theirs: needs your trust: {folder}/mcp.json belongs to a project"
    said = [line for line in done.stderr.splitlines() if line != "  mcp.load()"]  # Python 3.13 quotes it
    assert said == [f"<string>:5: UserWarning: {line}" for line in (wrong, refused)]


@pytest.mark.parametrize("load", ["mcp.load()", "await mcp.load.aio()"])
def test_loading_from_python_warns_of_the_errors_of_a_file(kernel: Kernel, load: str) -> None:
    (kernel.folder / "mcp.json").write_text("{ oops")
    told = kernel.run(f"%load_ext ipymcp\n{load}").stderr
    assert f"UserWarning: {kernel.folder}/mcp.json, line 1, column 7: not JSON: Unexpected end of input" in told


def test_a_warning_points_at_the_users_line(kernel: Kernel) -> None:
    (kernel.folder / "none.json").write_text('{"mcpServers": {}}')
    script = kernel.folder / "script.py"
    script.write_text(
        "import asyncio, ipymcp\n"
        "with ipymcp.connect('none.json') as mcp:\n"
        "    mcp.load('none.json')\n"
        "async def main():\n"
        "    async with ipymcp.aconnect('none.json') as mcp:\n"
        "        await mcp.load.aio('none.json')\n"
        "        await asyncio.create_task(mcp.load.aio('none.json'))\n"
        "asyncio.run(main())\n"
    )
    environment = {**kernel.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "always", str(script)]
    ran = subprocess.run(
        command, cwd=kernel.folder, env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    lines = [line.removeprefix(f"{script}:") for line in ran.stderr.splitlines() if "UserWarning" in line]
    said = f"UserWarning: {kernel.folder}/none.json defines no servers"
    assert lines == [f"{number}: {said}" for number in (2, 3, 5, 6, 8)]  # a task has no line but that of its loop


def test_a_warning_below_a_line_of_the_magic_is_a_line_without_a_path(kernel: Kernel) -> None:
    (kernel.folder / "none.json").write_text('{"mcpServers": {}}')
    handshaking = shlex.join([sys.executable, str(ROOT / "tests" / "servers" / "named.py"), '{"name": "x"}'])
    done(kernel, f"%load_ext ipymcp\n%mcp load one -- {handshaking};")
    said = done(kernel, "mcp.on_sampling(lambda request: 'x')\n%mcp stop one").stderr
    assert said == "ipymcp: one will use the new sampling setting after a restart: %mcp restart one\n"
    done(kernel, "import ipymcp, warnings\nwarnings.simplefilter('always')")
    with_line = done(kernel, "pass\nwith ipymcp.connect('none.json'): pass").stderr.splitlines()
    assert with_line[0].endswith(f".py:2: UserWarning: {kernel.folder}/none.json defines no servers"), with_line
    assert "ipymcp/tools" not in with_line[0]


def test_the_setting_of_the_model_names_the_servers_that_need_a_restart_in_one_line(kernel: Kernel) -> None:
    handshaking = shlex.join([sys.executable, str(ROOT / "tests" / "servers" / "named.py"), '{"name": "x"}'])
    done(kernel, f"%load_ext ipymcp\n%mcp load one -- {handshaking};\n%mcp load 'my one' -- {handshaking};")
    said = done(kernel, "%config IPyMCP.model = 'openai:gpt-5'")
    late = "these running servers may ask the model only after %mcp restart one 'my one'"
    assert (said.stderr, said.stdout) == ("", f"ipymcp: {late}\n")
    done(kernel, "%mcp restart one 'my one'")
    assert done(kernel, "%config IPyMCP.model = 'openai:gpt-4'").stderr == ""


def test_a_secret_that_is_written_to_a_file_as_typed_is_a_warning(kernel: Kernel) -> None:
    done(kernel, "%load_ext ipymcp")
    (kernel.folder / ".git").mkdir()
    file = kernel.folder / "mcp.json"
    how = "%mcp secret set NAME stores it, and ${secret:NAME} refers to it\n"
    added = done(kernel, "%mcp config add a --project --env API_TOKEN=abc123secret99 -- run --api-key sk-abcdefgh12345")
    assert added.stderr == f"ipymcp: {file} has what looks like a secret in --api-key, API_TOKEN: {how}"
    assert "secret99" not in added.stdout
    clean = done(kernel, "%mcp config add b --project --env API_TOKEN=${secret:kept} --env LEVEL=2 -- run")
    assert clean.stderr == ""
    updated = done(kernel, "%mcp config update b --project env.PASSWORD=hunter2x")
    assert updated.stderr == f"ipymcp: {file} has what looks like a secret in PASSWORD: {how}"

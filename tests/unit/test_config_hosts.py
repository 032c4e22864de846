"""Configuration of other hosts works unchanged: one file of each, read and written back."""

import json
from pathlib import Path
from typing import Any

import pytest

from ipymcp.config import unused_settings
from ipymcp.config.config_files import from_mapping, load
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import EXPORTED, HOSTS, as_own, exported
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
    "codex_config.toml": {
        "local": {
            "command": "uvx", "args": ["mcp-server-files", "--root", "."], "env": {"LEVEL": "debug"},
            "inherit_env": ["AWS_PROFILE", "AWS_REGION"], "start_timeout": 20, "timeout": 45.5,
            "tools": {"*": "deny", "read": "ask", "write": "deny"}, "required": True,
            "codex.tools": {"read": {"approval_mode": "approve"}},
        },
        "remote": {
            "url": "https://mcp.example.com/mcp", "disabled": True,
            "headers": {"X-Team": "blue", "X-Key": "${EXAMPLE_KEY}", "Authorization": "Bearer ${EXAMPLE_TOKEN}"},
        },
        "slow": {"command": "slow", "start_timeout": 90, "added": "2026-01-02"},
    },
    "zed_settings.json": {
        "local": {"command": "npx", "args": ["-y", "some-server"], "env": {"LEVEL": "debug"}},
        "older": {"command": "node", "args": ["server.js"], "env": {"PORT": "80"}, "disabled": True},
        "remote": {"url": "https://remote.example.com/mcp", "headers": {"X-Team": "blue"}},
    },
    "kiro_mcp.json": {
        "docs": {
            "command": "uvx", "args": ["some-docs"], "env": {"TOKEN": "${DOCS_TOKEN}"}, "timeout": 120,
            "auto_approve": ["search"], "tools": {"delete": "deny"},
        },
        "remote": {"url": "https://kiro.example.com/mcp", "headers": {"Authorization": "Bearer ${KIRO_TOKEN}"}},
    },
    "amazonq_mcp.json": {
        "aws": {"command": "uvx", "args": ["awslabs.core-mcp-server@latest"], "timeout": 60, "disabled": True},
        "remote": {"url": "https://q.example.com/mcp"},
    },
    "roo_mcp.json": {
        "local": {
            "command": "node", "args": ["build/index.js"], "cwd": "tools", "env": {"K": "${env:K}"}, "timeout": 15,
            "auto_approve": ["read"], "tools": {"write": "deny"}, "watchPaths": ["build/index.js"],
        },
        "remote": {
            "url": "https://roo.example.com/mcp", "headers": {"X-Key": "${env:ROO_KEY}"}, "disabled": True,
        },
    },
    "kilo_mcp.json": {
        "local": {"command": "npx", "args": ["-y", "some-server"], "auto_approve": ["read"], "timeout": 300},
        "events": {"url": "https://kilo.example.com/sse", "transport": "sse"},
    },
    "junie_mcp.json": {
        "local": {"command": "npx", "args": ["-y", "some-server"], "env": {"LEVEL": "debug"}},
        "remote": {"url": "https://junie.example.com/mcp", "disabled": True},
    },
    "copilot_agent.json": {
        "sentry": {
            "command": "npx", "args": ["@sentry/mcp-server@latest"],
            "env": {"SENTRY_TOKEN": "${COPILOT_MCP_SENTRY_TOKEN}", "LEVEL": "debug"},
            "tools": {"*": "deny", "get_issue": "ask"},
        },
        "docs": {
            "url": "https://docs.example.com/mcp",
            "headers": {"Authorization": "Bearer ${COPILOT_MCP_DOCS}", "X-Key": "${COPILOT_MCP_KEY}"},
        },
    },
    "copilot_ide_mcp.json": {
        "github": {"url": "https://api.githubcopilot.com/mcp/", "headers": {"Authorization": "Bearer ghp"}},
        "local": {"command": "npx", "args": ["-y", "some-server"], "env": {"PORT": "80"}},
    },
    "warp.mcp.json": {
        "local": {"command": "npx", "args": ["-y", "some-server"], "env": {"TOKEN": "${TOKEN}"}, "cwd": "tools"},
        "remote": {"url": "https://warp.example.com/mcp", "headers": {"X-Team": "blue"}},
    },
    "lmstudio_mcp.json": {
        "hub": {"url": "https://lm.example.com/mcp", "headers": {"Authorization": "Bearer t"}, "timeout": 20},
        "local": {"command": "uvx", "args": ["some-server"]},
    },
    "nbi_mcp.json": {
        "local": {"command": "python", "args": ["-m", "some_server"], "disabled": True, "auto_approve": ["read"]},
        "remote": {"url": "https://nbi.example.com/mcp"},
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
    "notebook-intelligence": "nbi_mcp.json",
    "zed": "zed_settings.json",
    "kiro": "kiro_mcp.json",
    "amazon-q": "amazonq_mcp.json",
    "roo": "roo_mcp.json",
    "kilo": "kilo_mcp.json",
    "junie": "junie_mcp.json",
    "copilot-cli": "copilot_mcp-config.json",
    "copilot-agent": "copilot_agent.json",
    "copilot-ide": "copilot_ide_mcp.json",
    "warp": "warp.mcp.json",
    "lm-studio": "lmstudio_mcp.json",
    "boocode": "boocode.json",
    "dispatch": "dispatch.json",
}
LOST = {"jupyter-ai": ["files: jupyter-ai does not read ${TOKEN} in env.TOKEN"]}


def test_every_exported_host_has_a_file_here() -> None:
    assert ROUND.keys() == set(EXPORTED)


@pytest.mark.parametrize("host", ROUND)
def test_an_export_to_a_host_is_what_was_read_from_it(host: str) -> None:
    def without_source(definitions: dict[str, ServerDefinition]) -> dict[str, ServerDefinition]:
        return {name: definition.replace(source=Source()) for name, definition in definitions.items()}

    before = read(FILES / ROUND[host])
    written = exported(before.values(), host, "/notebooks")
    assert list(written.notes) == LOST.get(host, [])
    # the file's path decides the unit of timeouts
    names = [*HOSTS[host].project_files, *(f"{folder}/mcp.json" for folder in HOSTS[host].folders), "x.json"]
    file = f"/home/me/p/{names[0]}"
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
        ({"fs": {"command": "x"}, "other": 5}, 'expected the key "mcpServers", found "fs", "other"'),
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


# Units


@pytest.mark.parametrize(
    ("file", "values", "seconds", "remark"),
    [
        (".gemini/settings.json", {"timeout": 500}, 0.5, "500 milliseconds, the unit of gemini"),
        (".amazonq/mcp.json", {"timeout": 120_000_000}, 120_000, "120,000,000 milliseconds, the unit of amazon-q"),
        ("x.json", {"timeout": 15_000}, 15, "15,000, taken for milliseconds as it is above 1,000"),
        ("x.json", {"timeout": 500, "httpUrl": "https://h/mcp"}, 0.5, "500 milliseconds, the unit of gemini"),
        ("x.json", {"tool_timeout_sec": 5_000}, 5_000, None),
        (".roo/mcp.json", {"timeout": 3_600}, 3_600, None),
        ("x.json", {"timeout": 1_000}, 1_000, None),
        ("x.json", {"timeout": 1_200, "max_timeout": 1_200}, 1_200, None),
    ],
)
def test_a_timeout_is_read_in_the_unit_of_its_host(
    file: str, values: dict[str, Any], seconds: float, remark: str | None
) -> None:
    entry = values if "httpUrl" in values else {"command": "x", **values}
    source = Source(scope="named", file=f"/p/{file}", folder="/p")
    server = definitions({"mcpServers": {"a": entry}}, source)["a"]
    assert (server.timeout, server.source.remarks.get("timeout")) == (seconds, remark)
    lines = unused_settings.lines([server])
    is_guess = remark is not None and "taken for" in remark
    assert lines == ([f'a: the timeout is 15 s ({remark}); with "max_timeout" it is in seconds'] if is_guess else [])


def test_a_timeout_of_ipymcps_own_definitions_is_in_seconds() -> None:
    own = Source(scope="user", file="/home/me/.jupyter/ipymcp/mcp.json")
    definition = definitions({"mcpServers": {"a": {"command": "x", "timeout": 5_000}}}, own)["a"]
    assert definition.timeout == from_mapping({"a": {"command": "x", "timeout": 5_000}})["a"].timeout == 5_000
    assert from_mapping({"mcpServers": {"a": {"command": "x", "timeout": 5_000}}})["a"].timeout == 5
    again = definitions({"mcpServers": {"a": as_own(definition)}}, Source(scope="project", file="/p/mcp.json"))["a"]
    assert again.timeout == 5_000


# Settings that decide who can do what


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"requestInit": {"headers": {"Authorization": "Bearer X"}}}, {"headers": {"Authorization": "Bearer X"}}),
        (
            {"headers": {"X-A": "1"}, "requestInit": {"headers": {"X-B": "2"}, "mode": "cors"}},
            {"headers": {"X-A": "1", "X-B": "2"}, "requestInit": {"mode": "cors"}},
        ),
        ({"bearer_token_env_var": "T"}, {"headers": {"Authorization": "Bearer ${T}"}}),
        ({"http_headers": {"X": "1"}, "env_http_headers": {"Y": "V"}}, {"headers": {"X": "1", "Y": "${V}"}}),
        ({"headers": {"X": "$COPILOT_MCP_A-b"}}, {"headers": {"X": "${COPILOT_MCP_A}-b"}}),
        ({"enabledTools": ["r"]}, {"tools": {"*": "deny", "r": "ask"}}),
        ({"enabled_tools": ["r"], "disabled_tools": ["w"]}, {"tools": {"*": "deny", "r": "ask", "w": "deny"}}),
        ({"autoApprove": True}, {"auto_approve": ["*"]}),
        ({"autoApprove": False}, {}),
        ({"auth": True}, {"oauth": True}),
    ],
)
def test_settings_of_other_hosts_are_honoured(values: dict[str, Any], expected: dict[str, Any]) -> None:
    server = from_mapping({"a": {"url": "https://h/mcp", **values}})["a"]
    assert as_own(server) == {"url": "https://h/mcp", **expected}


def test_the_working_directory_of_warp_is_the_folder() -> None:
    assert from_mapping({"a": {"command": "x", "working_directory": "/w"}})["a"].cwd == "/w"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"requestInit": {"headers": {"x-a": "2"}}, "headers": {"X-A": "1"}},
            'requestInit.headers.x-a: contradicts "headers.X-A"',
        ),
        ({"bearer_token_env_var": "sk-live-1"}, "bearer_token_env_var: expected the name of a variable"),
        ({"env_http_headers": ["a"]}, 'env_http_headers: expected an object of strings, got ["a"]'),
        ({"env_http_headers": {"X": 5}}, "env_http_headers.X: expected the name of a variable"),
    ],
)
def test_headers_that_cannot_be_meant_are_errors(values: dict[str, Any], message: str) -> None:
    document = {"a": {"url": "https://h/mcp", **values}}
    assert refused(ConfigError, from_mapping, document)[0] == f"a.{message}"


NO_HEADERS, NO_RULES = "its headers are not sent", "its rules for tools do not apply"
NO_LOGIN, FREE_LOGIN = "it does not log in that way", "a login that the server requires is not prevented"
UNCONFINED, ELSEWHERE = "it is not confined", "it does not run in that folder"


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"headersHelper": "./token.sh"}, f"headersHelper is not used: {NO_HEADERS}"),
        ({"eventSourceInit": {"headers": {"A": "b"}}}, f"eventSourceInit.headers.A is not used: {NO_HEADERS}"),
        ({"oauth": False}, f"oauth is not used: {FREE_LOGIN}"),
        ({"auth": False}, f"oauth is not used: {FREE_LOGIN}"),
        (
            {"authProviderType": "google_credentials", "targetAudience": "x"},
            f"authProviderType, targetAudience are not used: {NO_LOGIN}",
        ),
        ({"oauth": {"clientId": "c", "callbackPort": 1}}, f"oauth.callbackPort is not used: {NO_LOGIN}"),
        ({"sandbox": {"network": "none"}}, f"sandbox.network is not used: {UNCONFINED}"),
        ({"sandboxEnabled": True}, f"sandboxEnabled is not used: {UNCONFINED}"),
        ({"sandboxEnabled": False}, None),
        ({"sandbox": {"enabled": False}}, None),
        ({"readOnly": True}, f"readOnly is not used: {UNCONFINED}"),
        ({"workspaceFolder": "sub"}, f"workspaceFolder is not used: {ELSEWHERE}"),
        ({"alwaysDeny": ["x"]}, f"alwaysDeny is not used: {NO_RULES}"),
        ({"allowedTools": ["x"]}, f"allowedTools are not used: {NO_RULES}"),
        ({"trust": True}, f"trust is not used: {NO_RULES}"),
        ({"apiKey": "k"}, "apiKey is not used: its token is not sent"),
        ({"tlsVerify": True}, "tlsVerify is not used: its certificates and proxies are not used"),
        ({"watchPaths": ["x"], "gallery": True, "description": "d", "dev": {"watch": "*"}, "icon": ""}, None),
    ],
)
def test_a_setting_that_decides_access_and_is_not_used_is_said_in_one_line(
    values: dict[str, Any], line: str | None
) -> None:
    server = definitions({"mcpServers": {"a": {"url": "https://h/mcp", **values}}}, Source(scope="named", file="f"))[
        "a"
    ]
    assert unused_settings.lines([server]) == ([f"a: {line} (f)"] if line else [])


def test_variables_of_an_address_are_said_to_reach_nothing_unless_a_header_uses_them() -> None:
    remote = {"url": "https://h/mcp", "headers": {"A": "Bearer ${USED}"}, "env": {"USED": "1", "API_KEY": "2"}}
    [line] = unused_settings.lines(from_mapping({"a": remote}).values())
    assert line == "a: env.API_KEY is not used: a server with an address gets no variables (script)"


def test_headers_of_a_command_are_said_to_be_not_sent() -> None:
    server = from_mapping({"a": {"command": "x", "http_headers": {"A": "b"}}})["a"]
    assert unused_settings.lines([server]) == [f"a: http_headers are not used: {NO_HEADERS} (script)"]


@pytest.mark.parametrize(
    ("file", "document", "line"),
    [
        ("opencode.json", {"mcp": {}, "tools": {"a*": False}}, f"tools is not used: {NO_RULES}"),
        ("opencode.json", {"mcp": {}, "permission": {"b_read": "deny"}}, f"permission is not used: {NO_RULES}"),
        ("opencode.json", {"mcp": {}, "tools": {"a*": True, "bash": False}, "permission": {"a_x": "allow"}}, None),
        (".vscode/mcp.json", {"servers": {}, "sandbox": {"network": {}}}, "sandbox is not used: no server is confined"),
        (
            ".amazonq/default.json",
            {"mcpServers": {}, "tools": ["@a/read"]},
            f"tools is not used: {NO_RULES}",
        ),
        (".amazonq/default.json", {"mcpServers": {}, "tools": ["*"]}, None),
        (
            ".gemini/settings.json",
            {"mcpServers": {}, "mcp": {"excluded": ["a"]}},
            "mcp.excluded is not used: all servers are there",
        ),
        (
            ".kiro/settings/mcp.json",
            {"mcpServers": {}, "powers": {"mcpServers": {"power-c": {"command": "c"}}}},
            "powers.mcpServers is not used: the servers of powers are not read",
        ),
    ],
)
def test_a_setting_beside_the_servers_is_said_once_for_the_file(
    file: str, document: dict[str, Any], line: str | None
) -> None:
    table = next(iter(document))
    servers = {"a": {"command": ["x"] if table == "mcp" else "x"}, "b": {"url": "https://h"}}
    read = definitions({**document, table: servers}, Source(scope="named", file=f"/p/{file}"))
    assert unused_settings.lines(read.values()) == ([f"/p/{file}: {line}"] if line else [])


# Documents


@pytest.mark.parametrize(
    ("document", "hint"),
    [
        (
            {"author": {"name": "A", "url": "https://github.com/a"}, "version": "1"},
            '"author" looks like a server and "version" does not: put the servers into "mcpServers"',
        ),
        ({"command": "x", "args": []}, 'it is one server: put it under a name, as in {"mcpServers": {"NAME": {…}}}'),
    ],
)
def test_a_flat_record_is_a_configuration_only_if_every_value_is_a_server(document: Any, hint: str) -> None:
    keys = ", ".join(f'"{key}"' for key in document)
    assert refused(ConfigError, definitions, document, Source(scope="named", file="f.json")) == (
        f'f.json: expected the key "mcpServers", found {keys}', hint
    )  # fmt: skip


def test_a_flat_record_may_name_its_schema() -> None:
    document = {"$schema": "https://s", "a": {"command": "x"}, "b": {"serverUrl": "https://h"}}
    assert list(definitions(document, Source())) == ["a", "b"]


@pytest.mark.parametrize("entry", [{"source": "extension", "enabled": True}, {"settings": {"token": "x"}}])
def test_a_server_of_an_extension_of_zed_is_named_as_such(entry: Any) -> None:
    document = {"context_servers": {"github": entry}}
    assert refused(ConfigError, definitions, document, Source(scope="named", file="f.json")) == (
        "f.json: context_servers.github: is run by an extension of Zed, which ipymcp cannot start",
        "define it with the command that the extension runs",
    )

"""Files in which a server is published, read as configurations: entries of a registry, and manifests of bundles."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from ipymcp.config.config_files import named_source, read_each
from ipymcp.config.definition import ServerDefinition
from ipymcp.config.hosts import as_own
from ipymcp.errors import ConfigError
from ipymcp.registry.published import config_document
from tests.errors import refused

pytestmark = pytest.mark.posix


def published(file: Path, document: Any) -> dict[str, ServerDefinition]:
    file.write_text(json.dumps(document))
    return cast("dict[str, ServerDefinition]", read_each(named_source(str(file)), config_document))


ENTRY: dict[str, Any] = {
    "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
    "name": "io.github.ada/weather", "version": "1.2.3", "description": "d",
    "repository": {"url": "https://github.com/ada/weather", "source": "github"},
}  # fmt: skip
PACKAGE: dict[str, Any] = {
    "registryType": "npm", "identifier": "@ada/weather", "version": "1.2.3", "transport": {"type": "stdio"},
    "packageArguments": [
        {"type": "named", "name": "--region", "isRequired": True, "choices": ["eu", "us"], "default": "eu"}
    ],
    "environmentVariables": [
        {"name": "API_KEY", "isRequired": True, "isSecret": True, "description": "Your key"},
        {"name": "UNITS", "default": "metric"},
        {"name": "PROXY_NAME"},
    ],
}  # fmt: skip
OLD_PACKAGE: dict[str, Any] = {
    "registry_name": "npm", "name": "@ada/weather", "version": "1.2.3",
    "package_arguments": [
        {"type": "named", "name": "--region", "is_required": True, "choices": ["eu", "us"], "default": "eu"}
    ],
    "environment_variables": [
        {"name": "API_KEY", "required": True, "is_secret": True, "description": "Your key"},
        {"name": "UNITS", "default": "metric"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("package", "name"), [(PACKAGE, ENTRY["name"]), (OLD_PACKAGE, "weather")], ids=["current", "older"]
)
def test_an_entry_of_a_registry_is_its_package_with_its_inputs(
    tmp_path: Path, package: dict[str, Any], name: str
) -> None:
    entry = {**ENTRY, "name": name, "packages": [package]}
    servers = published(tmp_path / "server.json", entry)
    assert published(tmp_path / "server.json", {"server": entry, "_meta": {}}) == servers
    assert list(servers) == ["weather"]
    assert as_own(servers["weather"]) == {
        "command": "npx", "args": ["-y", "@ada/weather@1.2.3", "--region=${input:region}"],
        "env": {"API_KEY": "${input:API_KEY}", "UNITS": "metric"},
    }  # fmt: skip
    inputs = servers["weather"].inputs
    assert inputs["API_KEY"] == {
        "id": "API_KEY", "type": "promptString", "description": "Your key", "password": True
    }  # fmt: skip
    assert inputs["region"]["options"] == ["eu", "us"]
    assert inputs["region"]["default"] == "eu"


def test_an_entry_with_an_address_is_a_remote_server(tmp_path: Path) -> None:
    remote = {"type": "streamable-http", "url": "https://h.example/{tenant}/mcp", "headers": [
        {"name": "Authorization", "value": "Bearer {token}", "variables": {"token": {"isRequired": True}}}
    ], "variables": {"tenant": {"isRequired": True}}}  # fmt: skip
    server = published(tmp_path / "server.json", {**ENTRY, "remotes": [remote]})["weather"]
    assert as_own(server) == {
        "url": "https://h.example/${input:tenant}/mcp", "headers": {"Authorization": "Bearer ${input:token}"},
    }  # fmt: skip
    assert server.hides_input("token")


@pytest.mark.parametrize(
    ("values", "message", "hint"),
    [
        ({"packages": []}, "without a package or an address", "https://github.com/ada/weather"),
        (
            {"packages": [{**PACKAGE, "version": "latest"}]},
            "that cannot be run: its version is not fixed (latest)",
            None,
        ),
        ({"packages": [], "version": 5}, "that does not follow the format (", "ask its publisher"),
    ],
)
def test_an_entry_that_cannot_be_run_is_named_as_what_it_is(
    tmp_path: Path, values: dict[str, Any], message: str, hint: str | None
) -> None:
    file = tmp_path / "server.json"
    error = refused(ConfigError, published, file, {**ENTRY, **values})
    assert error[0].startswith(f"{file}: is a server's entry in an MCP registry {message}")
    assert (error[1] or None) == hint


MANIFEST: dict[str, Any] = {
    "manifest_version": "0.3", "name": "my-files", "version": "1.0.0", "author": {"name": "A", "url": "https://a.example"},
    "privacy_policies": [], "tools": [{"name": "read"}],
    "server": {
        "type": "node", "entry_point": "server/index.js",
        "mcp_config": {
            "command": "node",
            "args": ["${__dirname}/server/index.js", "--root=${user_config.root}", "${DOCUMENTS}${/}x"],
            "env": {"KEY": "${user_config.key}", "VERBOSE": "${user_config.verbose}", "N": "${user_config.n}"},
            "platform_overrides": {sys.platform: {"command": "node20"}, "other": {"command": "x"}},
        },
    },
    "user_config": {
        "root": {"type": "directory", "title": "Root", "description": "The root", "multiple": True,
                 "default": ["${HOME}/Desktop"], "required": True},
        "key": {"type": "string", "title": "Key", "sensitive": True, "required": True},
        "verbose": {"type": "boolean", "title": "Verbose", "default": False},
        "n": {"type": "number", "title": "N", "default": 5},
        "unused": {"type": "string", "title": "Unused"},
    },
}  # fmt: skip


def test_the_manifest_of_a_bundle_is_its_command_with_its_settings_as_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    folder = tmp_path / "a${x}"
    folder.mkdir()
    server = published(folder / "manifest.json", MANIFEST)["my_files"]
    path = str(folder).replace("${", "$${")
    assert as_own(server) == {
        "command": "node20",
        "args": [f"{path}/server/index.js", "--root=${input:root}", "${userHome}/Documents${/}x"],
        "env": {"KEY": "${input:key}", "VERBOSE": "${input:verbose}", "N": "${input:n}"},
    }
    assert list(server.inputs.values()) == [
        {
            "id": "root", "type": "promptString", "default": "/home/me/Desktop",
            "description": "Root: The root: one value; for several, write them into args",
        },
        {"id": "key", "type": "promptString", "description": "Key", "password": True},
        {
            "id": "verbose", "type": "pickString", "description": "Verbose", "options": ["true", "false"],
            "default": "false",
        },
        {"id": "n", "type": "promptString", "description": "N", "default": "5"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("node", ["node", "{folder}/s.x"]), ("python", ["python", "{folder}/s.x"]), ("binary", ["{folder}/s.x"]),
        ("uv", ["uv", "run", "--directory", "{folder}", "s.x"]),
    ],
)  # fmt: skip
def test_a_bundle_without_a_command_runs_its_entry_point(tmp_path: Path, kind: str, expected: list[str]) -> None:
    manifest = {"dxt_version": "0.1", "name": "b", "server": {"type": kind, "entry_point": "s.x"}}
    server = published(tmp_path / "manifest.json", manifest)["b"]
    assert [server.command, *server.args] == [word.format(folder=tmp_path) for word in expected]


def test_a_bundle_that_cannot_be_run_is_named_as_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "manifest.json"
    what = f"{file}: is the manifest of an MCPB bundle"
    manifest: dict[str, Any] = {"manifest_version": "0.3", "name": "b", "server": {"type": "other"}}
    assert refused(ConfigError, published, file, manifest)[0] == f"{what} without a command (server.mcp_config)"
    manifest["server"] = {"mcp_config": {"command": "${user_config.no}"}}
    assert refused(ConfigError, published, file, manifest)[0] == f"{what} that has no user_config.no, which it uses"
    assert refused(ConfigError, config_document, MANIFEST, "pasted") == (
        "pasted: is the manifest of an MCPB bundle, whose command begins in its folder",
        "save it in the bundle's folder, then %mcp load FOLDER/manifest.json",
    )


@pytest.mark.parametrize(
    "document",
    [
        [], {"name": "x", "mcpServers": {}, "packages": []}, {"name": "x", "dependencies": {}},
        {"packages": {"command": "x"}, "name": {"command": "y"}}, {"manifest_version": 3, "name": "a chrome extension"},
    ],
)  # fmt: skip
def test_other_documents_are_not_taken_for_published_servers(document: Any) -> None:
    assert config_document(document, "/f.json") is None

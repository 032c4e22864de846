"""Entries of a registry, and the commands that run them, with the recorded entries."""

import contextlib
import os
from pathlib import Path

import pytest

from ipymcp.registry import install
from ipymcp.registry.client import OFFICIAL, is_fixed, read_entry, read_list, verified
from ipymcp.registry.install import Way, ways
from tests.registry import ENTRIES


def recorded_ways(name: str) -> list[Way]:
    """The ways to run the recorded entry whose name ends in `/name`."""
    [*_, document] = [listed for listed in ENTRIES if listed["server"]["name"].endswith(f"/{name}")]
    return ways(read_entry(document))


def package_way(kind: str = "npm", **fields: object) -> Way:
    """The way to run a package, which is complete but for these fields."""
    return only_way(packages=[{"registryType": kind, "identifier": "p", "version": "1.0.0", **fields}])


def remote_way(url: str, **fields: object) -> Way:
    return only_way(remotes=[{"type": "streamable-http", "url": url, **fields}])


def only_way(**fields: object) -> Way:
    [way] = ways(read_entry({"server": {"name": "io.github.evil/p", "version": "1.0.0", **fields}}))
    return way


def named(name: str, value: str | None = None, **fields: object) -> dict[str, object]:
    return {"type": "named", "name": name, "value": value, **fields}


def positional(value: str | None = None, **fields: object) -> dict[str, object]:
    return {"type": "positional", "value": value, **fields}


def test_entries_that_are_not_in_the_published_format_are_counted_and_left_out() -> None:
    listed = read_list({"servers": ENTRIES, "metadata": {"nextCursor": "next", "count": 30}})
    assert (listed.unreadable, listed.cursor) == (2, "next")
    assert "io.github.domdomegg/airtable-mcp-server" in [entry.name for entry in listed.entries]


@pytest.mark.parametrize("document", [[], {}, {"servers": {}}, {"servers": None}, "no", None])
def test_another_document_is_not_a_list_of_servers(document: object) -> None:
    with pytest.raises(ValueError, match="not a list of servers"):
        read_list(document)


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("io.github.domdomegg/airtable-mcp-server", "published by the GitHub account domdomegg"),
        ("com.example/server", "published by the owner of example.com"),
        ("com.example.tools/server", "published by the owner of tools.example.com or a domain above it"),
        ("io.github.a.b/server", "published by the owner of b.a.github.io or a domain above it"),
        ("local/server", ""),
    ],
)
def test_what_the_official_registry_verifies_is_said_and_no_more(name: str, phrase: str) -> None:
    assert verified(name, OFFICIAL) == phrase
    assert verified(name, "https://registry.example.com") == ""


@pytest.mark.parametrize(
    ("name", "index", "preview"),
    [
        ("airtable-mcp-server", 0, "npx -y airtable-mcp-server@1.7.3"),
        ("airtable-mcp-server", 1,
         "docker run -i --rm -e AIRTABLE_API_KEY docker.io/domdomegg/airtable-mcp-server:1.7.3"),
        ("time-mcp-nuget", 0, "dnx TimeMcpServer@1.0.8 --yes"),
        ("time-mcp-pypi", 0, "uvx time-mcp-pypi@1.0.6"),
        ("cyphrex-mcp", 0, "https://mcp.cyphrex.io/mcp"),
        ("knapcode-samplemcpserver", 0, "dnx Knapcode.SampleMcpServer@0.4.0-beta --yes -- mcp start"),
        ("filesystem", 1,
         "docker run -i --rm -e LOG_LEVEL --mount=type=bind,src={source_path},dst={target_path}"
         " docker.io/mcp/filesystem:1.0.2 /project"),
        ("database-manager", 0,
         "docker run -i --rm -e DB_USERNAME -e DB_PASSWORD -e SSL_MODE -e DB_TYPE"
         " docker.io/example/database-manager-mcp:3.1.0 --host={host} --port={port} {database_name}"),
        ("hybrid-mcp", 0, "npx -y @example/hybrid-mcp-server@1.5.0 --mode={mode}"),
        ("hybrid-mcp", 1, "https://mcp.anonymous.modelcontextprotocol.io/sse"),
        ("hybrid-mcp", 2, "https://{tenant}.modelcontextprotocol.io/http"),
    ],
)  # fmt: skip
def test_every_package_is_run_in_one_fixed_version(name: str, index: int, preview: str) -> None:
    way = recorded_ways(name)[index]
    assert (way.problem, way.preview()) == ("", preview)


@pytest.mark.parametrize(
    ("name", "index", "problem"),
    [
        ("airtable-mcp-server", 2, "an MCPB bundle is unpacked and run by a desktop application"),
        ("widget-mcp", 0, "cargo has no command that runs one version of a package without installing it"),
        ("audit-mcp", 0, "a Go module must be installed before it can be run"),
        ("http-package", 0, "it listens on a port of its own"),
        ("git-spec", 0, "'github:evil/pkg' is not the name of a package"),
        ("range", 0, "its version is not fixed (^1.0.0)"),
        ("tag", 0, "its version is not fixed (latest)"),
        ("option", 0, "'--index-url=https://evil.example' is not the name of a package"),
        ("image", 0, "its image has no fixed version"),
        ("elsewhere", 0, "it comes from another registry of packages (https://evil.example)"),
        ("hostile", 0, "its option '--registry=https://evil.example' for npx could change what runs"),
        ("unknown", 0, "packages of the kind 'brew' are unknown to ipymcp"),
    ],
)
def test_a_package_that_cannot_be_run_has_the_reason(name: str, index: int, problem: str) -> None:
    way = recorded_ways(name)[index]
    assert (way.problem, way.is_ready) == (problem, False)


@pytest.mark.parametrize(
    ("kind", "identifier"),
    [
        *(("pypi", name) for name in ("python", "Python3", "python3.11", "pypy", "cp312", "uv", "pip", "ipython")),
        *(("npm", name) for name in ("node", "npm", "npx", "bash", "sh", "bun", "deno", "tsx", "zx", "cross-env")),
    ],
)
def test_a_package_whose_name_is_that_of_an_interpreter_or_runner_is_refused(kind: str, identifier: str) -> None:
    package = {"registryType": kind, "identifier": identifier, "version": "3.11.1", "transport": {"type": "stdio"}}
    package["packageArguments"] = [{"type": "positional", "value": "-c"}, {"type": "positional", "value": "CODE"}]
    entry = read_entry({"server": {"name": "a/b", "version": "1.0.0", "description": "", "packages": [package]}})
    [way] = ways(entry)
    assert way.problem == f"{identifier} is a program that runs what its arguments name, not a server's package"


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("1.2.3", "npm pypi nuget oci"),
        ("v1.0.0", "npm pypi oci"),
        ("0.4.0-beta", "npm pypi nuget oci"),
        ("1.0.0+build", "npm pypi nuget oci"),
        ("1.2", "pypi oci"),
        ("1", "pypi"),
        ("v1", "pypi"),
        ("1.2.3rc1.post2.dev3", "pypi oci"),
        ("2025-01-31", "oci"),
        ("20250131", "pypi oci"),
        ("1.2.3.4", "pypi nuget oci"),
        *((tag, "") for tag in ("1.2-latest", "0-latest", "1.x", "latest", "main", "stable", "next", "")),
        *((text, "") for text in ("1.0.0 --registry=x", ">=1.0", "1" + "rc" * 100 + "!")),
    ],
)
def test_a_fixed_version_is_neither_a_range_nor_a_tag_that_moves(version: str, kinds: str) -> None:
    assert [kind for kind in ("npm", "pypi", "nuget", "oci") if is_fixed(version, kind)] == kinds.split()


def test_values_of_inputs_are_put_where_they_belong() -> None:
    values = {"DB_USERNAME": "me", "DB_PASSWORD": "${secret:db}", "db_type": "mysql", "database_name": "birds"}
    assert recorded_ways("database-manager")[0].definition({**values, "port": "3306"}) == {
        "command": "docker",
        "args": [
            *("run", "-i", "--rm", "-e", "DB_USERNAME", "-e", "DB_PASSWORD", "-e", "SSL_MODE", "-e", "DB_TYPE"),
            "docker.io/example/database-manager-mcp:3.1.0",
            *("--host=localhost", "--port=3306", "birds"),
        ],
        "env": {"DB_USERNAME": "me", "DB_PASSWORD": "${secret:db}", "SSL_MODE": "prefer", "DB_TYPE": "mysql"},
    }


def test_a_remote_server_gets_its_variables_and_headers() -> None:
    _, sse, http = recorded_ways("hybrid-mcp")
    assert sse.definition({"X-API-Key": "${secret:k}"}) == {
        "url": "https://mcp.anonymous.modelcontextprotocol.io/sse",
        "headers": {"X-API-Key": "${secret:k}", "X-Region": "us-east-1"},
        "transport": "sse",
    }
    assert http.definition({"tenant": "acme", "token": "${secret:t}"}) == {
        "url": "https://acme.modelcontextprotocol.io/http",
        "headers": {"Authorization": "Bearer ${secret:t}"},
    }


def test_an_input_that_may_be_repeated_takes_several_values() -> None:
    definition = recorded_ways("filesystem")[0].definition({"target_dir": "/a; /b c"})
    assert definition["args"] == ["-y", "@modelcontextprotocol/server-filesystem@1.0.2", "/a", "/b c"]


FOLDER = {"variables": {"folder": {"isRequired": True, "format": "filepath", "default": "/"}}}


FOR_ANY_RUNNER = [
    positional("evil@latest"), positional("evil:latest"), positional(valueHint="package", default="evil"),
    positional("{x}", variables={"x": {"value": "evil"}}), named("--package", ""), named("--package", "evil"),
    named("--entrypoint", ""), named("--registry", "https://evil.example"),
    named("--@good:registry", "https://evil.example"), named("--from", "evil"), named("-y", "evil"), named("-c", "id"),
    named("--init=x", ""), named(""),
]  # fmt: skip
FOR_DOCKER = [
    named("-iv", "/:/h"),
    named("--entrypoint", "sh"),
    named("--network", "host"),
    named("--privileged", ""),
    named("-v", "/:/h"),
    named("-v", "{folder}:/h", variables={"folder": {"value": "/"}}),
    named("-v", "{folder}/../..:/h", **FOLDER),
    named("-v", "{folder}:/h:shared", **FOLDER),
    named("-v", "{folder}:{to}", variables={**FOLDER["variables"], "to": {"default": "/a:/b,x"}}),
    named("-v", "data:/h"),
    named("--mount", "type=bind,src=/,dst=/h"),
    named("--mount", "type=bind,src={folder},src=/,dst=/h", **FOLDER),
    named("--mount", "type=bind,src={folder},source=/,dst=/h", **FOLDER),
    named("--mount", "type=volume,dst=/h,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/"),
    named("--mount", "type=volume,src={folder},dst=/h", **FOLDER),
    named("--mount", "type=bind,src={folder},dst={to}",
          variables={**FOLDER["variables"], "to": {"default": "/h,volume-opt=device=/"}}),
    named("-e", "AWS_SECRET_ACCESS_KEY"),
    named("-e", "LD_PRELOAD=/evil.so"),
    named("-e", "{name}=x", variables={"name": {}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        *((kind, option) for kind in ("npm", "pypi", "nuget", "oci") for option in FOR_ANY_RUNNER),
        *(("pypi", named("--python", value)) for value in ("/tmp/evil", "3", "{x}", "3.11 x", "")),
        *(("oci", option) for option in FOR_DOCKER),
    ],
    ids=str,
)
def test_an_option_for_the_runner_that_could_change_what_runs_is_refused(kind: str, option: dict[str, object]) -> None:
    way = package_way(kind, runtimeArguments=[option])
    assert way.problem and not way.is_ready


@pytest.mark.parametrize(
    ("kind", "listed", "args"),
    [
        ("npm", [named("-y"), positional("--yes"), named("--yes", "true"), named("-q", "")], ["-y", "-q", "p@1.0.0"]),
        ("pypi", [named("--python", "3.12"), positional("-q")], ["--python=3.12", "-q", "p@1.0.0"]),
        ("nuget", [named("--yes", "")], ["p@1.0.0", "--yes"]),
        (
            "oci",
            [named("-i", ""), positional("--rm"), named("--init"), named("-e", "KIND=a b"), named("-e", "TOKEN")],
            ["run", "-i", "--rm", "-e", "TOKEN", "-e", "KIND", "--init", "p:1.0.0"],
        ),
        ("oci", [named("-v", "{folder}:/h:ro", **FOLDER)], ["run", "-i", "--rm", "-v", "/mine:/h:ro", "p:1.0.0"]),
        (
            "oci",
            [named("--mount", "type=bind,source={folder},target=/h,readonly", **FOLDER)],
            ["run", "-i", "--rm", "--mount=type=bind,source=/mine,target=/h,readonly", "p:1.0.0"],
        ),
    ],
)
def test_options_for_the_runner_that_change_nothing_are_taken_over(
    kind: str, listed: list[dict[str, object]], args: list[str]
) -> None:
    variables = [{"name": "TOKEN", "isSecret": True}] if named("-e", "TOKEN") in listed else []
    way = package_way(kind, runtimeArguments=listed, environmentVariables=variables)
    assert way.problem == ""
    assert way.definition({"folder": "/mine", "TOKEN": "t"})["args"] == args


def test_the_folder_that_a_container_sees_is_the_users_choice_and_not_the_publishers() -> None:
    way = package_way("oci", runtimeArguments=[named("-v", "{folder}:/h", **FOLDER)])
    [folder] = way.inputs()
    assert (folder.default, folder.about.placeholder) == ("", "/")
    with pytest.raises(ValueError, match="it needs folder"):
        way.definition({})


def test_a_value_for_a_container_is_not_among_the_arguments_that_others_can_read() -> None:
    option = named("-e", "OPENAI_API_KEY={key}", variables={"key": {}})
    way = package_way("oci", runtimeArguments=[option])
    assert way.inputs()[0].about.is_secret
    assert way.definition({"key": "${secret:k}"}) == {
        "command": "docker",
        "args": ["run", "-i", "--rm", "-e", "OPENAI_API_KEY", "p:1.0.0"],
        "env": {"OPENAI_API_KEY": "${secret:k}"},
    }


DECISIVE = """NODE_OPTIONS npm_config_registry npm_config_script-shell HTTPS_PROXY DOCKER_HOST CONTAINER_HOST
CONTAINERS_CONF DIRENV_CONFIG NIX_CONFIG UV_CACHE_DIR NUGET_PACKAGES"""


@pytest.mark.parametrize("name", DECISIVE.split())
@pytest.mark.parametrize("kind", ["npm", "oci"])
def test_a_variable_that_decides_what_runs_has_only_a_value_of_the_user(name: str, kind: str) -> None:
    fixed = package_way(kind, environmentVariables=[{"name": name, "value": "evil"}])
    assert fixed.problem.startswith(f"it sets {name}, which decides ")
    asked = package_way(kind, environmentVariables=[{"name": name, "default": "evil"}])
    assert "env" not in asked.definition({})
    assert asked.definition({name: "mine"})["env"] == {name: "mine"}
    through = positional("{" + name + "}", variables={name: {"default": "evil"}})
    both = package_way(kind, packageArguments=[through], environmentVariables=[{"name": name}])
    assert "env" not in both.definition({})


@pytest.mark.parametrize("kind", ["npm", "pypi", "nuget", "oci"])
@pytest.mark.parametrize("name", ["${secret:gh}", "A=${secret:gh}", "A B", "", "A=B", "{env:X}", "-v"])
def test_the_name_of_a_variable_is_one_for_every_kind_of_package(kind: str, name: str) -> None:
    way = package_way(kind, environmentVariables=[{"name": name, "default": "x"}])
    assert way.problem == f"{name!r} is not the name of an environment variable"


VARIABLE = "has a variable of a configuration"


@pytest.mark.parametrize("text", ["${secret:token}", "data/${secret:gh}", "{env:HOME}", "$${x}", "Bearer ${TOK}"])
def test_an_entry_with_a_variable_of_a_configuration_is_refused(text: str) -> None:
    for argument in [
        positional(text),
        named("--x", text),
        named(f"--{text}", "x"),
        positional(valueHint="x", default=text),
        positional(valueHint="x", format="filepath", default=text),
        positional(valueHint="x", choices=["a", text]),
        positional("{x}", variables={"x": {"value": text}}),
        positional("{x}", variables={"x": {"default": text}}),
    ]:
        assert VARIABLE in package_way(packageArguments=[argument]).problem
    assert VARIABLE in remote_way(f"https://x.example/{text}").problem
    headers = [{"name": "Authorization", "value": text}]
    assert VARIABLE in remote_way("https://x.example", headers=headers).problem


@pytest.mark.parametrize("argument", ["${x}", "$${x}", "{env:{x}}"])
def test_a_variable_does_not_arise_where_texts_of_an_entry_meet(argument: str) -> None:
    way = package_way(packageArguments=[positional(argument, variables={"x": {"default": "{secret:gh}"}})])
    assert VARIABLE in way.problem


@pytest.mark.parametrize(
    ("template", "value"),
    [("{cur}{{secret:gh}}", "$"), ("{cur}{rest}", "$"), ("{open}env:X}", "{"), ("${open}", "{mine}"),
     ("${open}", "${secret:mine}"), ("{open}:-x}", "${A")],
)  # fmt: skip
def test_a_variable_does_not_arise_where_a_text_of_the_user_meets_one_of_an_entry(template: str, value: str) -> None:
    variables = {"cur": {}, "open": {}, "rest": {"default": "{secret:gh}"}}
    way = package_way(packageArguments=[positional(template, variables=variables)])
    if way.problem:
        assert VARIABLE in way.problem
        return
    with pytest.raises(ValueError, match="its text would make a variable of what you have given"):
        way.definition({"cur": value, "open": value})


def test_a_variable_of_the_user_stays_one_within_the_text_of_an_entry() -> None:
    assert "has a variable" in package_way(packageArguments=[positional("a{x}b${y", variables={"x": {}})]).problem
    way = package_way(packageArguments=[positional("a$-{x}{b}", variables={"x": {}})])
    assert way.definition({"x": "${secret:mine}$${c"})["args"][-1] == "a$-${secret:mine}$${c{b}"


def test_an_input_is_secret_if_one_use_says_so_or_its_name_does() -> None:
    twice = [positional("{x}", variables={"x": {}}), positional("{x}", variables={"x": {"isSecret": True}})]
    listed = [{"name": "OPENAI_API_KEY"}, {"name": "AUTH", "choices": ["none", "basic"]}, {"name": "USER_NAME"}]
    way = package_way(packageArguments=twice, environmentVariables=listed)
    secrets = {field.key: field.about.is_secret for field in way.inputs()}
    assert secrets == {"x": True, "OPENAI_API_KEY": True, "AUTH": False, "USER_NAME": False}
    headers = [{"name": "Authorization", "value": "Bearer {value}", "variables": {"value": {"default": "d"}}}]
    way = remote_way("https://x.example", headers=headers)
    assert [field.about.is_secret for field in way.inputs()] == [True]
    assert way.definition({}) == {"url": "https://x.example"}  # a secret has no default


def test_a_required_value_is_not_empty() -> None:
    way = package_way(environmentVariables=[{"name": "KEY", "isRequired": True, "isSecret": True}])
    assert way.inputs()[0].schema["minLength"] == 1
    for values in ({}, {"KEY": ""}, {"KEY": " "}):
        with pytest.raises(ValueError, match="it needs KEY"):
            way.definition(values)


DIGEST = "@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("identifier", "version", "image"),
    [
        (f"foo{DIGEST}", None, f"foo{DIGEST}"),
        (f"ghcr.io/a/foo:main{DIGEST}", None, f"ghcr.io/a/foo:main{DIGEST}"),
        ("localhost:5000/a/foo", "1.2.3", "localhost:5000/a/foo:1.2.3"),
        ("foo:1.2.3", None, "foo:1.2.3"),
        *((identifier, None, "") for identifier in ("foo:main", "foo:stable", "foo:1", "foo", "foo@sha256:0")),
        ("foo", "main", ""),
        ("--privileged", "1.2.3", ""),
    ],
)
def test_an_image_has_a_version_or_a_digest(identifier: str, version: str | None, image: str) -> None:
    way = package_way("oci", identifier=identifier, version=version)
    assert (way.preview().rpartition(" ")[2] if way.is_ready or not way.problem else "") == image


@pytest.mark.parametrize(
    ("url", "variables", "problem"),
    [
        ("", {}, "its address is not an HTTP URL ('')"),
        ("{u}", {"u": {"value": ""}}, "its address is not an HTTP URL ('')"),
        ("{u}", {"u": {"default": "unix:///run/docker.sock"}}, "its address is not an HTTP URL"),
        ("{u}", {"u": {"default": "file:///etc/passwd"}}, "its address is not an HTTP URL"),
        ("https://", {}, "its address is not an HTTP URL ('https://')"),
        ("https://x.example/\n%mcp", {}, "its address is not an HTTP URL"),
        ("https://me:word@x.example", {}, "its address contains a login"),
    ],
)
def test_a_remote_server_has_an_address_of_http(url: str, variables: dict[str, object], problem: str) -> None:
    way = remote_way(url, variables=variables)
    assert way.problem.startswith(problem)
    assert way.preview() == ""


def test_an_address_of_the_user_is_checked_when_it_is_given() -> None:
    way = remote_way("{u}", variables={"u": {"isRequired": True}})
    assert (way.problem, way.preview()) == ("", "{u}")
    assert way.definition({"u": "${MY_SERVER}/mcp"})["url"] == "${MY_SERVER}/mcp"
    for address in ("unix:///x.sock", "ftp://x", "x"):
        with pytest.raises(ValueError, match="its address is not an HTTP URL"):
            way.definition({"u": address})


def test_a_program_beside_this_kernels_python_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    way = package_way("pypi")
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    assert way.missing == "uvx"
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / ("uvx.exe" if os.name == "nt" else "uvx")
    program.touch(0o755)
    assert way.missing == ""


def test_inputs_become_fields_of_a_form() -> None:
    fields = {field.key: field.schema for field in recorded_ways("database-manager")[0].inputs()}
    password = {"title": "DB_PASSWORD", "description": "Database password", "format": "password"}
    assert fields["DB_PASSWORD"] == {"type": "string", **password, "minLength": 1}
    assert fields["port"] == {"type": "number", "title": "port", "description": "Database port"}
    assert fields["db_type"]["enum"] == ["postgres", "mysql", "mongodb", "redis"]
    assert (fields["SSL_MODE"]["default"], fields["host"]["default"]) == ("prefer", "localhost")


def test_a_server_that_asks_for_too_much_is_refused() -> None:
    many = [{"name": f"V{number}"} for number in range(60)]
    assert package_way(environmentVariables=many).problem == "it asks for more than 50 values"


def test_a_path_is_made_absolute_from_the_notebooks_folder() -> None:
    [source, *_] = recorded_ways("filesystem")[1].inputs()
    assert source.about.format == "filepath"
    assert install.absolute_path("data", source.about, "/home/me/notes") == "/home/me/notes/data"
    assert install.absolute_path("${HOME}/data", source.about, "/home/me/notes") == "${HOME}/data"


@pytest.mark.anyio
async def test_a_publishers_name_does_not_lead_into_the_users_network(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"inner.example": "10.0.0.1", "here.example": "127.0.0.1", "outer.example": "93.184.215.14"}

    async def resolve(self: object, host: str, port: object, **_: object) -> list[object]:
        if host not in addresses:
            raise OSError("unknown")
        return [(None, None, None, "", (addresses[host], 0))]

    monkeypatch.setattr("asyncio.BaseEventLoop.getaddrinfo", resolve)
    for host, problem in {
        "inner.example": "inner.example leads to 10.0.0.1, which is in your own network",
        "here.example": "here.example leads to 127.0.0.1, which is in your own network",
        "outer.example": "",
        "unknown.example": "",
        "127.0.0.1": "",  # the trust question warns of it
    }.items():
        theirs = [remote_way(f"https://{host}/mcp"), remote_way("https://{h}/", variables={"h": {"default": host}})]
        for way in theirs:
            with pytest.raises(ValueError, match=problem) if problem else contextlib.nullcontext():
                await install.require_public(way, way.definition({}))
        mine = remote_way("https://{h}/mcp", variables={"h": {"isRequired": True}})
        await install.require_public(mine, mine.definition({"h": host}))
    local = package_way()
    await install.require_public(local, local.definition({}))

"""The client of a registry, against one on the loopback: search, pages, cache, offline."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipymcp.errors import ConfigError, McpError, UnknownName
from ipymcp.registry.client import OFFICIAL, Registry
from tests.registry import RegistryServer, registry_server
from tests.serving import reserved_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as served:
        yield served


@pytest.fixture
def registry(server: RegistryServer, tmp_path: Path) -> Registry:
    return Registry(tmp_path / "cache", server.address + "/")


def age(folder: Path, seconds: float) -> None:
    """Make all answers of the cache older."""
    for file in folder.glob("*.json"):
        kept = json.loads(file.read_text())
        file.write_text(json.dumps({**kept, "fetched": kept["fetched"] - seconds, "fresh_until": time.time() - 1}))


async def test_a_search_finds_the_latest_version_of_each_server(registry: Registry) -> None:
    results = await registry.search(["airtable"])
    assert [(entry.name, entry.version) for entry in results.entries] == [
        ("io.github.domdomegg/airtable-mcp-server", "1.7.3")
    ]
    assert (results.cursor, results.notes) == ("", [])


async def test_further_words_are_looked_for_in_descriptions(registry: Registry) -> None:
    results = await registry.search(["domdomegg", "UTC"])
    assert [entry.short_name for entry in results.entries] == ["time-mcp-nuget", "time-mcp-pypi"]


async def test_a_search_reads_as_many_pages_as_it_needs_and_can_be_continued(
    registry: Registry, server: RegistryServer
) -> None:
    server.page = 4
    results = await registry.search(["io"], limit=10)
    assert (len(results.entries), results.cursor) == (12, "12")
    rest = await registry.search(["io"], limit=10, cursor=results.cursor)
    names = [entry.name for entry in (*results.entries, *rest.entries)]
    assert len(set(names)) == len(names)
    assert len(names) == len({entry["server"]["name"] for entry in server.entries}) - 3  # one deleted, two unreadable
    assert rest.notes == ["an entry is left out: not in the published format"]


async def test_deprecated_and_deleted_versions_have_their_status(registry: Registry) -> None:
    old, _ = await registry.entry("io.github.example/old-weather")
    gone, _ = await registry.entry("io.github.example/gone")
    assert (old.status, old.status_message) == ("deprecated", "Use weather-v2 instead")
    assert (gone.status, gone.status_message) == ("deleted", "Published by mistake")
    assert not (await registry.search(["gone"])).entries


async def test_text_of_an_entry_is_one_visible_line(registry: Registry) -> None:
    entry, _ = await registry.entry("io.github.evil/hostile")
    for text in (entry.title, entry.description, entry.status_message):
        assert text.isprintable()
        assert "⟨U+202E⟩" in text


async def test_a_version_that_the_registry_does_not_have_is_unknown(registry: Registry) -> None:
    with pytest.raises(UnknownName, match=r"has no version 9 of 'io.github.example/gone'"):
        await registry.entry("io.github.example/gone", "9")
    with pytest.raises(UnknownName, match=r"has no server 'io.github.example/none'"):
        await registry.entry("io.github.example/none")


async def test_a_fresh_answer_is_not_requested_again(registry: Registry, server: RegistryServer) -> None:
    server.max_age = 60
    for _ in range(3):
        await registry.search(["airtable"])
    assert len(server.requests) == 1


async def test_an_old_answer_is_requested_again_and_may_be_unchanged(
    registry: Registry, server: RegistryServer, tmp_path: Path
) -> None:
    server.etag = '"one"'
    await registry.search(["airtable"])
    age(tmp_path / "cache", 3600)
    results = await registry.search(["airtable"])
    assert (len(server.requests), len(results.entries), results.notes) == (2, 1, [])
    await registry.search(["airtable"])
    assert len(server.requests) == 2  # it is fresh again


async def test_offline_the_cache_answers_and_says_from_when(
    registry: Registry, server: RegistryServer, tmp_path: Path
) -> None:
    await registry.search(["airtable"])
    age(tmp_path / "cache", 3600)
    server.status = 503
    results = await registry.search(["airtable"])
    [file] = (tmp_path / "cache").iterdir()
    when = time.strftime("%Y-%m-%d %H", time.localtime(json.loads(file.read_text())["fetched"]))
    assert [entry.short_name for entry in results.entries] == ["airtable-mcp-server"]
    [note] = results.notes
    assert note.startswith(f"offline: {registry.host} cannot be reached (HTTP 503); this is its answer of {when}")


async def test_offline_other_words_are_looked_for_in_all_that_the_cache_has(tmp_path: Path) -> None:
    with reserved_port() as port:
        with registry_server(port) as server:
            registry = Registry(tmp_path, server.address)
            await registry.search(["domdomegg"])
        results = await registry.search(["time"])
        assert [entry.short_name for entry in results.entries] == ["time-mcp-nuget", "time-mcp-pypi"]
        assert results.notes[0].startswith(f"offline: {registry.host} cannot be reached (")
        assert "; these are in the cache, some since 20" in results.notes[0]
        with pytest.raises(McpError, match="and the cache has no such server"):
            await registry.search(["nothing"])


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"servers": 1}'])
async def test_another_site_is_not_a_registry(registry: Registry, server: RegistryServer, body: bytes) -> None:
    server.body = body
    with pytest.raises(McpError, match="does not answer as an MCP registry"):
        await registry.search(["airtable"])


async def test_an_entry_of_another_name_is_refused(registry: Registry, server: RegistryServer) -> None:
    server.body = json.dumps(server.entries[0]).encode()
    with pytest.raises(McpError, match=r"asked for io.github.a/b latest, it sent io.github.domdomegg/"):
        await registry.entry("io.github.a/b")


async def test_a_redirect_is_not_followed_and_a_long_answer_not_read(
    registry: Registry, server: RegistryServer
) -> None:
    server.status = 302
    with pytest.raises(McpError, match="HTTP 302"):
        await registry.search(["airtable"])
    server.status, server.body = 200, b" " * 2_000_000
    with pytest.raises(McpError, match="an answer of more than 1,048,576 bytes"):
        await registry.search(["airtable"])


async def test_the_official_address_does_not_lead_into_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nowhere(self: object, host: str, port: int, **_: object) -> list[object]:
        return [(None, None, None, "", ("127.0.0.1", port))]

    monkeypatch.setattr("asyncio.BaseEventLoop.getaddrinfo", nowhere)
    with pytest.raises(McpError, match=r"127\.0\.0\.1"):
        await Registry(tmp_path, OFFICIAL).search(["airtable"])


async def test_a_registry_elsewhere_has_to_be_encrypted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not encrypted"):
        await Registry(tmp_path, "http://registry.example.com").search(["airtable"])


async def test_the_cache_is_the_users_alone_and_survives_damage(
    registry: Registry, server: RegistryServer, tmp_path: Path
) -> None:
    await registry.search(["airtable"])
    [file] = (tmp_path / "cache").iterdir()
    if os.name == "posix":
        assert file.stat().st_mode & 0o777 == 0o600
    file.write_text("damaged")
    assert len((await registry.search(["airtable"])).entries) == 1
    assert len(server.requests) == 2


async def test_cached_answers_that_another_user_wrote_are_ignored(
    registry: Registry, server: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.max_age = 3600
    await registry.search(["airtable"])
    [file] = (tmp_path / "cache").iterdir()
    for foreign in (file, file.parent):
        monkeypatch.setattr("ipymcp.registry.client.foreign", lambda path, foreign=foreign: path == foreign)
        before = len(server.requests)
        assert len((await registry.search(["airtable"])).entries) == 1
        assert len(server.requests) == before + 1
    server.status = 503
    with pytest.raises(McpError, match="the cache has no such server"):
        await registry.search(["domdomegg"])


async def test_an_answer_is_fresh_for_a_day_at_most(registry: Registry, server: RegistryServer, tmp_path: Path) -> None:
    await registry.search(["airtable"])
    [file] = (tmp_path / "cache").iterdir()
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "fetched": time.time() - 90_000, "fresh_until": 1e12}))
    await registry.search(["airtable"])
    assert len(server.requests) == 2


async def test_the_login_of_an_address_is_neither_shown_nor_kept(server: RegistryServer, tmp_path: Path) -> None:
    address = server.address.replace("://", "://me:pass%40word@")
    registry = Registry(tmp_path, address)
    assert registry.host == server.address.removeprefix("http://")
    await registry.search(["airtable"])
    [file] = tmp_path.iterdir()
    assert "word" not in file.read_text()
    server.body = b"[]"
    file.unlink()
    with pytest.raises(McpError) as caught:
        await registry.search(["airtable"])
    assert caught.value.message == f"{server.address} does not answer as an MCP registry (not a list of servers)"
    with pytest.raises(ConfigError, match=r"^http://registry\.example\.com: not encrypted"):
        await Registry(tmp_path, "http://me:word@registry.example.com").search(["airtable"])

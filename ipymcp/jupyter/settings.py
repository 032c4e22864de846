"""The user's config, secrets and trust, for a settings page. What is secret goes in and never comes out."""

from __future__ import annotations

import asyncio
import os
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from tornado.web import HTTPError, authenticated

from ipymcp.errors import ConfigError, UnknownName
from ipymcp.jupyter.rest import Rest
from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from ipymcp.jupyter.own import OwnFile
    from ipymcp.state.store import Store

__all__ = ["Agreement", "Agreements", "Check", "Config", "Secret", "SecretNames", "Server"]


class _Settings(Rest):
    """Over the user's own state. What it takes to read config is imported by the first request."""

    def initialize(self, store: Store) -> None:
        """Take what the routes give."""
        self._store = store

    def _own_file(self) -> OwnFile:
        from ipymcp.jupyter.own import OwnFile

        return OwnFile(self._store)

    def _values(self, key: str) -> dict[str, Any]:
        values = self.body().get(key)
        if not is_object(values):
            raise HTTPError(HTTPStatus.BAD_REQUEST, f"{key!r} must be an object")
        return values


class Config(_Settings):
    """`GET config[?path=NOTEBOOK]`: the servers that are configured, for that notebook too, masked."""

    @authenticated
    async def get(self) -> None:
        """All of them."""
        from ipymcp.jupyter.own import listed

        self.say(await asyncio.to_thread(listed, self._folder()))

    def _folder(self) -> str:
        """The notebook's, where Jupyter serves files; else home, which belongs to no project."""
        home, path = os.path.expanduser("~"), self.get_query_argument("path", "")
        root = os.path.realpath(os.path.expanduser(str(getattr(self.contents_manager, "root_dir", "") or home)))
        folder = os.path.realpath(os.path.join(root, os.path.dirname(path.lstrip("/"))))
        if not path:
            return home
        if os.path.commonpath([root, folder]) != root or not os.path.isdir(folder):
            raise HTTPError(HTTPStatus.NOT_FOUND, "there is no such folder")
        return folder


class Check(_Settings):
    """`POST config/check`: what is wrong with a new `definition`, or a `change` of an old one, under a `name`."""

    @authenticated
    async def post(self) -> None:
        """Look, and write nothing."""
        body = self.body()
        name, is_new = self.text(body, "name"), "definition" in body
        values = self._values("definition" if is_new else "change")
        try:
            await self._own_file().check(name, values, is_new=is_new)
        except (ConfigError, UnknownName) as error:
            self.say({"errors": [{"message": error.message, "hint": error.hint or ""}]})
        else:
            self.say({"errors": []})


class Server(_Settings):
    """`config/servers/NAME`: one server in the user's own file."""

    @authenticated
    async def put(self, name: str) -> None:
        """Add it, by its `definition`."""
        await self._own_file().add(name, self._values("definition"))
        self.say({})

    @authenticated
    async def patch(self, name: str) -> None:
        """Change it: null takes a value out."""
        await self._own_file().change(name, self._values("change"))
        self.say({})

    @authenticated
    async def delete(self, name: str) -> None:
        """Take it out."""
        await self._own_file().remove(name)
        self.say({})


class SecretNames(_Settings):
    """`GET secrets`: what there is, by name."""

    @authenticated
    async def get(self) -> None:
        """Names, places and times; no values."""
        kept = await asyncio.to_thread(self._store.secrets.kept)
        self.say({"secrets": [asdict(one) for one in kept]})


class Secret(_Settings):
    """`secrets/NAME`: may be set and deleted, never read."""

    @authenticated
    async def put(self, name: str) -> None:
        """Keep a `value`."""
        value = self.text(self.body(), "value")
        self.say(asdict(await asyncio.to_thread(self._store.secrets.set, name, value)))

    @authenticated
    async def delete(self, name: str) -> None:
        """Forget it."""
        if not await asyncio.to_thread(self._store.secrets.delete, name):
            raise UnknownName(f"no secret {name!r} is kept", hint="GET secrets lists them")
        self.say({})


class Agreements(_Settings):
    """`GET trust`: what the user has agreed to run."""

    @authenticated
    async def get(self) -> None:
        """All of it, oldest first."""
        from ipymcp.jupyter.own import trust_of

        agreed = await trust_of(self._store).agreements()
        self.say({"agreements": [{**asdict(one), "secrets": sorted(one.secrets)} for one in agreed]})


class Agreement(_Settings):
    """`trust/DIGEST`: one of them."""

    @authenticated
    async def delete(self, digest: str) -> None:
        """Take it back: the server is asked about before it starts again."""
        from ipymcp.jupyter.own import trust_of

        if not await trust_of(self._store).revoke(digest):
            raise UnknownName("nothing of that digest was agreed to", hint="GET trust lists what was")
        self.say({})

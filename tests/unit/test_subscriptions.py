"""Subscriptions to resources: how often they are read."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ipymcp.runtime import resources
from ipymcp.runtime.context import Timing


def test_a_resource_that_changes_whenever_it_is_read_is_read_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def read(uri: str) -> msgspec.Raw:
        subscription.is_stale = subscription.is_announced = len(pauses) < 8  # the server announces each read
        return msgspec.Raw(b"1")

    monkeypatch.setattr(asyncio, "sleep", pause)
    session: Any = SimpleNamespace(resources=SimpleNamespace(read=read))
    subscription = resources._SubscribedResource("note://a", listeners=[lambda *_: None], is_stale=True)
    loop: Any = None
    asyncio.run(resources.Subscriptions(session, loop, Timing())._read(subscription))

    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 4.0, 4.0, 4.0])

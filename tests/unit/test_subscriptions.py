"""Subscriptions to resources: how often they are read, and notifications that cannot be read."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ipymcp.protocol.subscriptions import ListenStreams, NotificationDispatcher
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


def test_only_a_malformed_notification_counts_as_a_fault_of_the_server() -> None:
    warnings: list[str] = []

    def fail(uri: str) -> None:
        raise ValueError(f"a bug in the handler of {uri}")

    listener: Any = SimpleNamespace(resource_updated=fail, protocol_warning=warnings.append)
    dispatcher = NotificationDispatcher(listener, ListenStreams(warnings.append), fail, lambda _: None)

    for method, params in (("resources/updated", b'{"uri":"note://a"}'), ("tasks", b'{"taskId":"note://a"}')):
        with pytest.raises(ValueError, match="a bug in the handler of note://a"):
            dispatcher.dispatch(f"notifications/{method}", msgspec.Raw(params))
    assert warnings == []

    for method in ("resources/updated", "tasks", "cancelled", "message"):
        dispatcher.dispatch(f"notifications/{method}", msgspec.Raw(b"[]"))
    assert warnings == [
        "a malformed resource update: []",
        "a malformed task notification: []",
        "a cancellation without a request id: []",
        "a malformed log message: []",
    ]

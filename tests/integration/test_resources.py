"""Resources, templates and prompts, against a raw server in both eras: listed, kept, read, subscribed to."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipymcp import ArgumentError, CallError, CallTimeout, Mcp, RpcError, UnknownName
from ipymcp.results.resource_result import ResourceResult
from tests.bad_servers import PATIENCE, QUICK, News, bad, connected, frames_read, log_of, rendered
from tests.integration.leaks import nothing_leaks  # noqa: F401 - a fixture
from tests.processes import wait_until

SCRIPT = Path(__file__).parents[1] / "servers" / "offering.py"
ERAS = ("legacy", "modern")


def offering(*words: str, era: str = "modern", **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SCRIPT), "--era", era, *words], "era": era, **more}


@pytest.fixture(scope="module", params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def mcp(era: str) -> Iterator[Mcp]:
    with connected({"s": offering(era=era)}) as mcp:
        yield mcp


@pytest.fixture(scope="module")
def shared(era: str) -> Iterator[Mcp]:
    """A host of the module, for tests that change nothing which others see."""
    with connected({"s": offering(era=era)}) as mcp:
        yield mcp


def counts(mcp: Mcp) -> dict[str, int]:
    return mcp.s.counts().data["methods"]


class Changes:
    """A callback that can be waited for."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, value: ResourceResult) -> None:
        with self._changed:
            self.values.append(value.text)
            self._changed.notify_all()

    def until(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.values, PATIENCE), self.values


# -- lists ------------------------------------------------------------------------------------------------------------


def test_nothing_is_listed_before_the_first_look_and_then_once(mcp: Mcp) -> None:
    assert {method for method in counts(mcp) if method.startswith(("resources", "prompts"))} == set()
    assert [resource.uri for resource in mcp.s.resources] == ["note://a", "note://b"]
    assert [template.uri_template for template in mcp.s.resources.templates] == ["note://{name}"]
    assert [prompt.name for prompt in mcp.s.prompts] == ["greet", "plain"]
    seen = counts(mcp)
    assert (seen["resources/list"], seen["resources/templates/list"], seen["prompts/list"]) == (1, 1, 1)
    assert "note://a" in mcp.s.resources
    assert "plain" in mcp.s.prompts
    assert counts(mcp)["resources/list"] == 1


def test_all_pages_are_listed(era: str) -> None:
    with connected({"s": offering("page=1", era=era)}) as mcp:
        assert len(mcp.tools("s.*")) == 7
        assert (len(mcp.s.resources), len(mcp.s.prompts)) == (2, 2)
        assert counts(mcp)["resources/list"] == 2


def test_a_changed_list_is_read_again_at_the_next_look(mcp: Mcp) -> None:
    assert (len(mcp.s.resources), len(mcp.s.prompts)) == (2, 2)
    with News(mcp) as news:
        mcp.s.grow(uri="note://c")
        mcp.s.add_prompt(name="third")
        news.until(lambda: sum(type(event).__name__ == "ListChanged" for event in news.events) == 2)
    assert [resource.name for resource in mcp.s.resources] == ["a", "b", "c"]
    assert mcp.s.prompts.third().text == "Hello, no one."


def test_a_list_is_fresh_for_its_time_and_read_again_after_it() -> None:
    with connected({"long": offering("silent", "ttl=60000"), "short": offering("silent", "ttl=1200")}) as mcp:
        read = time.monotonic()
        assert (len(mcp.long.resources), len(mcp.short.resources)) == (2, 2)
        mcp.long.grow(uri="note://c")
        mcp.short.grow(uri="note://c")
        assert len(mcp.short.resources) == 2 or time.monotonic() - read > 1.2
        wait_until(lambda: len(mcp.short.resources) > 2)
        assert time.monotonic() - read >= 1.2
        assert len(mcp.long.resources) == 2


def test_tools_are_listed_again_at_the_first_look_after_their_time_and_only_then() -> None:
    with (
        connected({"long": offering("silent", "ttl=60000"), "short": offering("silent", "ttl=300")}) as mcp,
        News(mcp) as news,
    ):

        def listed() -> list[int]:
            return [server.counts().data["methods"]["tools/list"] for server in (mcp.long, mcp.short)]

        mcp.long.add_prompt(name="more")
        mcp.short.add_prompt(name="more")
        time.sleep(0.3)  # the time that the server gives
        assert listed() == [1, 1], "it has passed, but nothing has looked"
        repr(mcp.tools)
        news.until(lambda: any(getattr(event, "added", ()) == ("say_more",) for event in news.events))
        assert listed() == [1, 2]
        assert repr(mcp.tools).count("say_more") == 1


def test_a_list_the_server_does_not_know_is_empty(era: str) -> None:
    unknown = "unknown=resources/list,resources/templates/list,prompts/list"
    with connected({"s": offering(unknown, era=era)}) as mcp:
        assert (list(mcp.s.resources), mcp.s.resources.templates, list(mcp.s.prompts)) == ([], [], [])
        assert repr(mcp.s.prompts) == "s: prompts\nprompt  arguments  description\ns has no prompts"
        assert log_of(mcp, "s", "host") == []


def test_a_server_that_declares_none_is_not_asked(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with connected({"s": offering(), "none": bad(f"record={record}")}) as mcp:
        assert {row["server"] for row in mcp.resources.table} == {"s"}
        assert (len(mcp.none.resources), len(mcp.none.prompts)) == (0, 0)
        asked = {frame["method"] for frame in frames_read(record)}
        assert not {method for method in asked if method.startswith(("resources", "prompts"))}


def test_a_list_that_never_comes_fails_that_look_alone(era: str) -> None:
    with connected({"s": offering("mute=resources/list", era=era, timeout=0.3), "t": offering(era=era)}) as mcp:
        with pytest.raises(CallTimeout) as caught:
            len(mcp.s.resources)
        assert str(caught.value) == "s: no answer to resources/list in 0.3 s"
        assert mcp.resources.table.note == "s: no answer to resources/list in 0.3 s"
        assert [row["server"] for row in mcp.resources.table] == ["t", "t", "t"]
        assert mcp.s.prompts.plain().text == "Hello, no one."


def test_a_selection_is_by_server_uri_and_name(shared: Mcp) -> None:
    def uris(*patterns: str) -> list[str]:
        return [resource.uri for resource in shared.resources(*patterns)]

    assert uris("s") == uris("*://*") == uris("s.note*") == ["note://a", "note://b"]
    assert uris("b") == uris("!*a") == ["note://b"]
    assert [prompt.name for prompt in shared.prompts("s.g*")] == ["greet"]
    assert uris("t") == []


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_resource_is_read_by_its_uri_or_its_name_listed_or_not(shared: Mcp) -> None:
    assert shared.s.resources["note://a"].read().text == "first a"
    assert shared.s.resources["b"].read().text == "first b"
    shared.s.write(uri="note://hidden", text="x", tell=False)
    assert shared.s.resources["note://hidden"].read() == shared.s.resources["note://hidden"].read()

    async def main() -> str:
        return (await shared.s.resources["note://a"].read.aio()).text

    assert asyncio.run(main()) == "first a"


def test_a_template_makes_resources(shared: Mcp) -> None:
    template = shared.s.resources["note://{name}"]
    assert template("a").read().text == template(name="a").read().text == "first a"
    with pytest.raises(ArgumentError) as caught:
        template()
    assert rendered(caught.value) == [
        "ArgumentError: s.note://{name}: missing argument 'name'",
        "  note://{name}(name: str)",
    ]


def test_what_is_read_is_kept_for_its_time_and_until_it_changes() -> None:
    with connected({"s": offering("ttl=60000")}) as mcp:
        resource = mcp.s.resources["note://a"]
        with resource.subscribe() as subscription:
            assert [resource.read().text for _ in range(3)] == ["first a"] * 3
            assert counts(mcp)["resources/read"] == 1
            mcp.s.write(uri="note://a", text="second", tell=False)
            assert resource.read().text == "first a"
            changes = Changes()
            with resource.subscribe(changes):
                mcp.s.write(uri="note://a", text="third")
                changes.until("third")
            assert resource.read().text == subscription.value.text == "third"


def test_what_is_read_without_a_time_is_read_every_time(mcp: Mcp) -> None:
    resource = mcp.s.resources["note://a"]
    assert [resource.read().text, resource.read().text] == ["first a", "first a"]
    assert counts(mcp)["resources/read"] == 2


def test_a_resource_that_is_not_there_names_the_nearest(shared: Mcp) -> None:
    assert len(shared.s.resources) == 2
    with pytest.raises(RpcError) as caught:
        shared.s.resources["note://aa"].read()
    assert rendered(caught.value) == ["RpcError: s: note://aa: Resource not found", "  did you mean 'note://a'?"]
    with pytest.raises(UnknownName) as unknown:
        shared.s.resources["c"]
    assert rendered(unknown.value) == ["UnknownName: s: there is no resource 'c'", "  %mcp resources s"]


def test_many_threads_read_at_once(shared: Mcp) -> None:
    with ThreadPoolExecutor(8) as pool:
        read = pool.map(lambda n: shared.s.resources[f"note://{'ab'[n % 2]}"].read().text, range(40))
        assert list(read) == ["first a", "first b"] * 20


# -- prompts ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_called_like_a_function(shared: Mcp) -> None:
    result = shared.s.prompts.greet("Ada")
    assert (result.text, len(result), result[0].role) == ("Hello, Ada.", 1, "user")
    assert shared.s.prompts["greet"](name=5).text == "Hello, 5."
    with pytest.raises(ArgumentError, match="no argument 'nmae'; did you mean 'name'"):
        shared.s.prompts.greet(nmae="x")

    async def main() -> str:
        return (await shared.s.prompts.greet.aio("Bob")).text

    assert asyncio.run(main()) == "Hello, Bob."


# -- subscriptions ----------------------------------------------------------------------------------------------------


def test_a_subscription_is_kept_fresh_and_calls_back(mcp: Mcp) -> None:
    changes = Changes()
    subscription = mcp.s.resources["note://a"].subscribe(changes)
    assert (subscription.value.text, subscription.updated) == ("first a", 0)
    mcp.s.write(uri="note://b", text="another")
    mcp.s.write(uri="note://a", text="second")
    changes.until("second")
    assert (subscription.value.text, subscription.updated) == ("second", 1)
    assert repr(subscription) == "Subscription s note://a, updated 1 time"
    subscription.close()
    assert repr(subscription) == "Subscription s note://a, closed"
    assert changes.values == ["second"]


def test_a_coroutine_function_may_be_called_back_and_what_it_raises_is_in_the_log(mcp: Mcp) -> None:
    called = threading.Event()

    async def fails(value: ResourceResult) -> None:
        called.set()
        raise ZeroDivisionError(value.text)

    with mcp.s.resources["note://a"].subscribe(fails), News(mcp) as news:
        mcp.s.write(uri="note://a", text="second")
        assert called.wait(PATIENCE)
        news.until(
            lambda: news.says("the callback of the subscription to note://a failed: ZeroDivisionError('second')")
        )


def test_a_subscription_outlives_the_server(mcp: Mcp) -> None:
    changes = Changes()
    with mcp.s.resources["note://a"].subscribe(changes) as subscription:
        mcp.s.write(uri="note://a", text="second")
        changes.until("second")
        mcp.restart("s")
        changes.until("first a")  # what the new server has is news
        mcp.s.write(uri="note://a", text="third")
        changes.until("third")
        assert subscription.value.text == "third"


def test_a_subscription_outlives_a_change_of_the_definition(mcp: Mcp, era: str) -> None:
    changes = Changes()
    with mcp.s.resources["note://a"].subscribe(changes):
        mcp.load({"s": offering("poll=60", era=era)})
        with News(mcp) as news:
            mcp.s.write(uri="note://a", text="second")
            news.until(lambda: True)
        changes.until("second")


def test_subscriptions_share_one_listener_that_is_opened_again_when_the_server_ends_it() -> None:
    with connected({"s": offering()}, timing=QUICK) as mcp:
        changes = Changes()
        first = mcp.s.resources["note://a"].subscribe(changes)
        with mcp.s.resources["note://b"].subscribe(changes):
            wanted = [params.get("resourceSubscriptions") for params in mcp.s.counts().data["wanted"]]
            assert wanted == [None, ["note://a"], ["note://a", "note://b"]]
            mcp.s.end_listening()
            wait_until(lambda: len(mcp.s.counts().data["wanted"]) >= 5)  # one for the lists, one for the resources
            mcp.s.write(uri="note://b", text="second b")
            changes.until("second b")
        first.close()


def test_a_server_that_does_not_announce_changes_refuses_a_subscription_in_two_lines(era: str) -> None:
    with connected({"s": offering("silent", era=era)}) as mcp:
        with pytest.raises(CallError) as caught:
            mcp.s.resources["note://a"].subscribe()
        assert rendered(caught.value) == [
            "CallError: s: does not announce changes of its resources",
            "  read the resource again instead",
        ]


def test_a_resource_that_cannot_be_read_cannot_be_subscribed_to(shared: Mcp) -> None:
    with pytest.raises(RpcError, match="note://nowhere: Resource not found"):
        shared.s.resources["note://nowhere"].subscribe()
    assert len(shared._host.sessions["s"].subscriptions) == 0


def test_a_resource_that_has_gone_keeps_its_last_value_and_says_so(mcp: Mcp) -> None:
    changes = Changes()
    with mcp.s.resources["note://a"].subscribe(changes) as subscription, News(mcp) as news:
        mcp.s.forget(uri="note://a")
        mcp.s.grow(uri="note://a")
        mcp.s.write(uri="note://a", text="back")
        changes.until("back")
        mcp.s.forget(uri="note://a")
        mcp._host.loop.call(mcp._host.sessions["s"].subscriptions.updated, "note://a")
        news.until(lambda: news.says("note://a, subscribed to: Resource not found"))
        assert subscription.value.text == "back"
        assert isinstance(subscription.error, RpcError)

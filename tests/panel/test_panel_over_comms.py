"""The panel over comms: a widget's in a cell, one that a page opens; while nothing happens, and when no one reads."""

import json

import pytest

from tests.integration.notebooks import done
from tests.kernels import KERNELS, Kernel
from tests.panel.kernels import load_misbehaving, panel, wait_for_ticks
from tests.panels import CommView, ControlView, PageView, View, wait_for_views

every_kernel = pytest.mark.kernels(*KERNELS)
HELLO = {"kind": "hello", "version": 1, "client": "cell", "wants": ["servers"]}


def count_received(view: CommView) -> int:
    """Count a view's messages; a cell that has ended has brought all that were sent before its end."""
    view.listen(lambda: True, 1)
    return len(view.received)


# -- over a comm that a page opens ------------------------------------------------------------------------------------


@every_kernel
def test_a_page_without_a_relay_opens_a_comm(loaded: Kernel) -> None:
    view = PageView(loaded)
    view.hello(client="sidebar")
    view.ask("stop", server="demo")
    view.until_server("demo", "stopped")


@every_kernel
def test_a_page_works_over_the_control_channel_while_a_cell_blocks_the_kernel(loaded: Kernel) -> None:
    cell = loaded.start("mcp.demo.slow(seconds=60)")
    view = ControlView(loaded)

    assert view.hello(client="sidebar", control=True)["control"] is True
    view.until(lambda state: bool(state["calls"]))
    (call,) = view.state["calls"].values()
    assert (call["tool"], call.get("caller", "user")) == ("slow", "user")
    view.ask("cancel", call=call["id"])

    outcome = cell.wait(20)
    assert outcome.error is not None and outcome.error.ename == "CallCancelled", outcome
    view.send({"kind": "bye"})
    assert done(loaded, "1").text == "1"


def test_malformed_requests_on_the_control_channel_are_ignored(loaded: Kernel) -> None:
    for content in ({}, {"comm_id": 7, "data": {}}, {"comm_id": "c", "data": "hello"}, {"data": {}}):
        loaded.request("ipymcp_request", content)
    assert ControlView(loaded).hello()["kind"] == "hello"
    wait_for_views(loaded, 1)


def test_the_control_channel_does_not_reach_a_widget(loaded: Kernel) -> None:
    widget = panel(loaded)
    loaded.request("ipymcp_request", {"comm_id": widget.comm, "data": {"method": "custom", "content": HELLO}})
    ControlView(loaded).hello()
    wait_for_views(loaded, 1)


@every_kernel
def test_unloading_the_extension_closes_the_comms_of_panels(loaded: Kernel) -> None:
    view, page = panel(loaded), PageView(loaded)
    view.hello()
    page.hello()
    done(loaded, "%unload_ext ipymcp")
    view.listen(lambda: view.is_closed and page.is_closed, 30)
    view.send(HELLO)
    late = PageView(loaded)
    late.listen(lambda: late.is_closed, 30)
    assert late.received == []

    done(loaded, "%load_ext ipymcp")
    done(loaded, "%mcp load demo;")
    again = panel(loaded)
    again.hello()
    wait_for_views(loaded, 1)
    assert again.ask("stop", server="demo") is None


# -- what they cost ---------------------------------------------------------------------------------------------------


def test_open_panels_send_nothing_while_nothing_happens(loaded: Kernel) -> None:
    for view in (panel(loaded), PageView(loaded)):
        view.hello()
        view.until(lambda state: all(state["servers"]["demo"][kind] for kind in ("prompts", "resources")))
    wait_for_ticks(loaded, 5)
    before = len(loaded.comms)
    wait_for_ticks(loaded, 20)
    assert len(loaded.comms) == before


def test_a_view_whose_widget_is_closed_is_detached(loaded: Kernel) -> None:
    view = panel(loaded)
    view.hello()
    wait_for_views(loaded, 1)
    done(loaded, "import ipywidgets\nipywidgets.Widget.close_all()")
    wait_for_views(loaded, 0)


@pytest.mark.cold
def test_a_kernel_that_restarted_ignores_panels_from_before(kernel: Kernel) -> None:
    done(kernel, "%load_ext ipymcp\n%mcp load demo;")
    before = panel(kernel)
    life = before.hello()["kernel"]
    received = count_received(before)
    kernel.restart()
    before.send({"kind": "hello", "version": 1, "client": "cell", "wants": []})
    done(kernel, "%load_ext ipymcp")
    after = panel(kernel)
    assert after.hello()["kernel"] != life
    assert after.state["servers"] == {}
    assert count_received(before) == received


def test_a_view_that_says_bye_is_sent_no_more_until_it_comes_back(loaded: Kernel) -> None:
    view, other = panel(loaded), PageView(loaded)
    view.hello()
    other.hello()
    wait_for_ticks(loaded, 5)
    view.send({"kind": "bye"})
    wait_for_views(loaded, 1)
    received = count_received(view)
    done(loaded, "mcp.stop('demo'); mcp.start('demo')")
    other.until(lambda state: state["servers"]["demo"]["since"] != view.state["servers"]["demo"]["since"])
    assert count_received(view) == received

    view.send({"kind": "intent", "id": 7, "do": "tools"})
    view.send({"kind": "bye"})
    view.hello()
    assert not any(message.get("id") == 7 for message in view.received)
    wait_for_views(loaded, 2)
    assert view.ask("tools", server="demo")


def test_pages_that_read_nothing_are_sent_two_megabytes_and_then_the_newest(loaded: Kernel) -> None:
    load_misbehaving(loaded, "stderr=20000")
    views = (panel(loaded), PageView(loaded))

    def follow() -> None:
        for view in views:
            view.hello()
            view.ask("logs", server="own", on=True)

    follow()
    for view in views:
        view.listen(lambda view=view: size(view) > 1_900_000, 60)
    done(loaded, "import time\nlog = mcp._host.sessions['own'].log\nend = log.total + 40_000")
    done(loaded, "while log.total < end:\n    time.sleep(0.01)")  # the flood goes on, and is not sent
    for view in views:
        received = count_received(view)
        assert size(view) < 2_200_000
        mark = view.of_kind("mark")[-1]["sent"]
        assert 1_700_000 < mark < 2_200_000

        view.send({"kind": "read", "sent": "all of it"})
        view.send({"kind": "read", "sent": mark})
        batch = view.wait(lambda message: message["kind"] == "log", after=received)
        assert batch["dropped"] > 10_000
    follow()  # a page that was loaded again has read nothing of all that
    for view in views:
        view.listen(lambda view=view: size(view) > 3_500_000, 60)


def size(view: View) -> int:
    """Bytes that were sent."""
    return sum(len(json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()) for one in view.received)

"""The panel over comms: a widget's in a cell, one that a page opens; while nothing happens, and when nobody reads."""

import json
import shlex

import pytest

from tests.environments import server_command
from tests.integration.notebooks import done
from tests.kernels import KERNELS, Kernel
from tests.panels import CommView, ControlView, PageView, View, wait_for_views

every_kernel = pytest.mark.kernels(*KERNELS)


def shown(kernel: Kernel) -> CommView:
    return CommView(kernel, done(kernel, "%mcp panel", answers=()).displays)


def quiet(view: View, seconds: float) -> None:
    """Hear what comes until nothing has for so long."""
    while hears_more(view, seconds):
        pass


def hears_more(view: View, seconds: float) -> bool:
    """Whether something comes within that time."""
    count = len(view.heard)
    try:
        view.listen(lambda: len(view.heard) > count, seconds)
    except TimeoutError:
        return False
    return True


# -- over a comm that a page opens ------------------------------------------------------------------------------------


@every_kernel
def test_a_page_without_a_relay_opens_a_comm(loaded: Kernel) -> None:
    view = PageView(loaded)
    view.hello(client="sidebar")
    view.ask("stop", server="demo")
    view.until(lambda state: state["servers"]["demo"]["state"] == "stopped")


def test_on_a_subshell_such_a_comm_is_heard_while_a_cell_blocks(loaded: Kernel) -> None:
    view = PageView(loaded)
    view.hello()
    view.subshell = loaded.make_subshell()
    cell = loaded.start("import time; time.sleep(5)")
    view.ask("stop", server="demo")
    assert not cell.done
    cell.wait()


@every_kernel
def test_by_the_control_channel_a_page_is_heard_while_a_cell_blocks(loaded: Kernel) -> None:
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


@pytest.mark.parametrize("content", [{}, {"comm_id": 7, "data": {}}, {"comm_id": "c", "data": "hello"}, {"data": {}}])
def test_what_is_no_message_of_a_page_is_not_heard(loaded: Kernel, content: dict[str, object]) -> None:
    loaded.request("ipymcp_request", content)
    view = ControlView(loaded)

    assert view.hello()["kind"] == "hello"
    wait_for_views(loaded, 1)


def test_by_the_control_channel_no_widget_is_spoken_to(loaded: Kernel) -> None:
    widget, page = shown(loaded), ControlView(loaded)
    hello = {"kind": "hello", "version": 1, "client": "cell", "wants": []}
    loaded.request("ipymcp_request", {"comm_id": widget.comm, "data": {"method": "custom", "content": hello}})
    page.hello()
    wait_for_views(loaded, 1)


@every_kernel
def test_a_panel_in_a_cell_ends_with_the_extension(loaded: Kernel) -> None:
    view = shown(loaded)
    view.hello()
    done(loaded, "%unload_ext ipymcp")
    loaded.read_until(lambda: closes(loaded, view), 30)
    view.send({"kind": "hello", "version": 1, "client": "cell", "wants": ["servers"]})
    done(loaded, "%load_ext ipymcp")
    done(loaded, "%mcp load demo;")
    again = shown(loaded)
    again.hello()
    wait_for_views(loaded, 1)
    assert again.ask("stop", server="demo") is None


def closes(kernel: Kernel, view: CommView) -> bool:
    """Whether the kernel has closed a view's comm."""
    return any(one["msg_type"] == "comm_close" and one["content"]["comm_id"] == view.comm for one in kernel.comms)


def test_a_page_is_told_that_ipymcp_was_unloaded(loaded: Kernel) -> None:
    view = PageView(loaded)
    view.hello()
    done(loaded, "%unload_ext ipymcp")
    view.listen(lambda: view.is_closed, 30)


def test_without_ipymcp_nobody_hears_it(loaded: Kernel) -> None:
    done(loaded, "%unload_ext ipymcp")
    view = PageView(loaded)
    view.listen(lambda: view.is_closed, 30)
    assert view.heard == []


# -- what they cost ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("open_view", [shown, PageView])
def test_an_open_panel_sends_nothing_while_nothing_happens(loaded: Kernel, open_view: type[PageView]) -> None:
    view = open_view(loaded)
    view.hello()
    quiet(view, 1)
    before = len(loaded.comms)
    assert not hears_more(view, 4)
    assert len(loaded.comms) == before


def test_a_widget_that_is_closed_is_let_go(loaded: Kernel) -> None:
    view = shown(loaded)
    view.hello()
    wait_for_views(loaded, 1)
    done(loaded, "import ipywidgets; ipywidgets.Widget.close_all()")
    wait_for_views(loaded, 0)


def test_a_kernel_that_restarted_hears_nothing_of_panels_before(loaded: Kernel) -> None:
    before = shown(loaded)
    life = before.hello()["kernel"]
    loaded.restart()
    before.send({"kind": "hello", "version": 1, "client": "cell", "wants": []})
    done(loaded, "%load_ext ipymcp")
    after = shown(loaded)
    assert after.hello()["kernel"] != life
    assert after.state["servers"] == {}
    assert not hears_more(before, 1)


def test_a_view_that_says_bye_is_sent_no_more_and_one_that_comes_back_is(loaded: Kernel) -> None:
    view = shown(loaded)
    view.hello()
    quiet(view, 1)
    view.send({"kind": "bye"})
    wait_for_views(loaded, 0)
    done(loaded, "mcp.stop('demo'); mcp.start('demo')")
    assert not hears_more(view, 1)
    view.send({"kind": "intent", "id": 7, "do": "tools"})
    view.send({"kind": "bye"})
    view.hello()
    assert not any(one.get("id") == 7 for one in view.heard)
    wait_for_views(loaded, 1)
    assert view.ask("tools", server="demo")


@pytest.mark.parametrize("open_view", [shown, PageView])
def test_a_page_that_reads_nothing_is_sent_two_megabytes_and_then_the_newest(
    loaded: Kernel, open_view: type[PageView]
) -> None:
    done(loaded, f"%mcp load own -- {shlex.join(server_command('misbehaving', 'stderr=20000'))};")
    view = open_view(loaded)
    view.hello()
    view.ask("logs", server="own", on=True)
    view.listen(lambda: size(view) > 1_900_000, 60)
    quiet(view, 2)
    assert size(view) < 2_200_000
    mark = view.of_kind("mark")[-1]["sent"]
    assert 1_700_000 < mark < 2_200_000

    before = len(view.heard)
    view.send({"kind": "read", "sent": "all of it"})
    view.send({"kind": "read", "sent": mark})
    batch = view.wait(lambda one: one["kind"] == "log", after=before)
    assert batch["dropped"] > 10_000
    view.hello()  # a page that was loaded again has read nothing of all that
    view.ask("logs", server="own", on=True)
    view.listen(lambda: size(view) > 3_500_000, 60)


def size(view: View) -> int:
    """Bytes that were sent."""
    return sum(len(json.dumps(one, ensure_ascii=False, separators=(",", ":")).encode()) for one in view.heard)

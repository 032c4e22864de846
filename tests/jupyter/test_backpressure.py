"""A browser that does not read costs bounded memory, in a real kernel and in a real Jupyter server."""

import itertools
import shlex
import time

from tests.environments import server_command
from tests.jupyter_servers import JupyterServer, memory

VIEWS = "print(len(get_ipython()._ipymcp_extension.panel.views))"


def test_replies_that_are_not_read_pile_up_in_the_kernel_to_a_bound_and_then_the_view_is_let_go(
    server: JupyterServer,
) -> None:
    kernel = server.start_kernel()
    kernel.load()
    kernel.run(f"%mcp load many -- {shlex.join(server_command('misbehaving', 'tools=5000'))}")
    pids = {"kernel": kernel.pid(), "server": server.process.pid}
    with server.view(kernel) as view, server.view(kernel) as other:
        view.hello()
        other.hello()
        assert len(view.ask("tools")) > 5000  # a megabyte
        before = {name: memory(pid) for name, pid in pids.items()}
        deadline = time.monotonic() + 60
        for number in itertools.count(1000, 10):
            for each in range(number, number + 10):
                view.send({"kind": "intent", "id": each, "do": "tools"})
            grown = {name: memory(pid) - before[name] for name, pid in pids.items()}
            assert grown["kernel"] < 160_000_000  # 32 MB of messages, once as they are sent and once as they were made
            assert grown["server"] < 8_000_000
            if kernel.run(VIEWS) == "1\n":
                break
            assert time.monotonic() < deadline
        assert len(other.ask("tools")) > 5000
        view.until_closed()
        assert view.closed is not None

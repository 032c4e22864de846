"""Serve on stdin and stdout until stdin ends."""

from __future__ import annotations

import os
import signal
import sys

if __package__:
    from .server import DemoServer
    from .tools import METHODS, TOOLS, run_tool
else:  # run by path; appended, so that nothing here hides a module of the standard library
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from demo.server import DemoServer  # pyright: ignore
    from demo.tools import METHODS, TOOLS, run_tool  # pyright: ignore


def main() -> None:
    """Run the server. It ignores SIGINT: an interrupt that is typed in a terminal is meant for the client."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stderr.write(f"ipymcp-demo: ready, tools: {', '.join(tool['name'] for tool in TOOLS)}\n")
    server = DemoServer(sys.stdout.fileno(), TOOLS, run_tool, METHODS)
    try:
        for line in sys.stdin.buffer:
            if line.strip():
                server.receive(line)
        server.close()
    except BrokenPipeError:
        return  # the client exited without closing our stdin first


if __name__ == "__main__":
    main()

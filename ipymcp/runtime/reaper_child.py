"""The reaper: a tiny process that ends what a killed kernel leaves behind.

Run by its path with `python -I -S`. It reads lines `+ GROUP START` and `- GROUP` from its standard input, whose other
end only the kernel holds. When the kernel is gone, however it went, the input ends: the groups still listed get a
moment to notice their own input's end, then SIGTERM, then SIGKILL. START is the leader's start time, so that a number
that passed to a stranger is left alone.
"""

import os
import signal
import sys
import time

NOTICE = 0.3
TERM = 1.0


def start_time(pid: int) -> str:
    """The process's start time in clock ticks since boot, or an empty string where nobody tells."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def signal_groups(groups: "dict[int, str]", number: int) -> None:
    """Signal every group that is still the one it was."""
    for group, started in list(groups.items()):
        now = start_time(group)
        try:
            if now and started and now != started:
                raise ProcessLookupError
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            del groups[group]


def main() -> None:
    """Keep the list until the kernel is gone, then end what is on it."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    groups: dict[int, str] = {}
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        group, _, started = rest.partition(" ")
        if word == "+":
            groups[int(group)] = started
        elif word == "-":
            groups.pop(int(group), None)
    deadline = time.monotonic() + NOTICE
    while groups and time.monotonic() < deadline:
        time.sleep(0.05)
        signal_groups(groups, 0)
    signal_groups(groups, signal.SIGTERM)
    deadline = time.monotonic() + TERM
    while groups and time.monotonic() < deadline:
        time.sleep(0.05)
        signal_groups(groups, 0)
    signal_groups(groups, signal.SIGKILL)


if __name__ == "__main__":
    main()

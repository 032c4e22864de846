"""The reaper: a tiny process that ends what a killed kernel leaves behind.

Run by its path with `python -I -S`, and its mark. It reads lines `+ GROUP START` and `- GROUP` from its
standard input, whose other end only the kernel holds. When the kernel is gone, however it went, the input ends: the
groups still listed get a moment to notice their own input's end, then SIGTERM, then SIGKILL. START is the leader's
start time, so that a number that passed to a stranger is left alone.

Descendants that left their group, such as browsers in sessions of their own, are ended as well. Once their parent has
gone nobody could tell whose they are, so on Linux the tree below each leader is looked through every second, and each
process found is remembered by its number and start time. What was started since the last look is found by the mark, a
variable that every server has in its environment and hands down.
"""

import os
import select
import signal
import sys
import time

MARK = "IPYMCP_KERNEL"
"""The environment variable with the mark of the reaper that watches a server."""
NOTICE = 0.3
TERM = 1.0
CHECK_INTERVAL = 1.0
FIRST_CHECK = 0.2
"""Seconds after a server's start; what it starts at once is seen then."""
CHECK_SHARE = 0.05
"""Maximum share of its time spent checking: with many processes it checks less often."""
LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Whether the system lists the children of a process; else all processes have to be looked at."""


def status(pid: int) -> "tuple[int, str] | None":
    """The parent of a running process, and its start time in clock ticks since boot; None where nobody tells."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else (int(fields[1]), fields[19].decode())
    except (OSError, IndexError, ValueError):
        return None


def start_time(pid: int) -> str:
    """The process's start time in clock ticks since boot, or an empty string where it has ended or nobody tells."""
    found = status(pid)
    return found[1] if found is not None else ""


def listed_children(pid: int) -> "list[int]":
    """The children of a process, of all of its threads."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as listed:
                found += map(int, listed.read().split())
    except OSError:
        pass  # it ends just now
    return found


def family() -> "dict[int, list[int]]":
    """The children of every process; empty where the system tells of none."""
    found: dict[int, list[int]] = {}
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return found
    for pid in numbers:
        about = status(pid)
        if about is not None:
            found.setdefault(about[0], []).append(pid)
    return found


class Descendants:
    """All processes that were seen below the leaders, and are still there."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        """Start times by number."""

    def look(self, leaders: "dict[int, str]") -> None:
        """Look through the trees, and forget who has ended."""
        self.known = {pid: started for pid, started in self.known.items() if start_time(pid) == started}
        of_all = {} if LISTS_CHILDREN else family()
        queue = [*(pid for pid, started in leaders.items() if started and start_time(pid) == started), *self.known]
        while queue:
            parent = queue.pop()
            for pid in listed_children(parent) if LISTS_CHILDREN else of_all.get(parent, ()):
                found = status(pid)
                if found is not None and found[0] == parent and self.known.get(pid) != found[1]:
                    self.known[pid] = found[1]
                    queue.append(pid)

    def look_for(self, mark: str) -> None:
        """Add the processes whose environment has this mark."""
        variable = f"{MARK}={mark}".encode()
        try:
            numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        except OSError:
            return
        for pid in numbers:
            try:
                with open(f"/proc/{pid}/environ", "rb") as environment:
                    is_marked = variable in environment.read().split(b"\0")
            except OSError:
                continue  # it has ended, or is another user's
            if is_marked and (started := start_time(pid)):
                self.known[pid] = started

    def signal(self, number: int) -> None:
        """Signal each that is still the process it was."""
        for pid, started in list(self.known.items()):
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except (OSError, AttributeError):
                handle = -1  # an old system: the number may pass to a stranger between the look and the signal
            try:
                if start_time(pid) == started:
                    os.kill(pid, number) if handle < 0 else signal.pidfd_send_signal(handle, number)
            except OSError:
                pass
            finally:
                if handle >= 0:
                    os.close(handle)


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


def keep_list(groups: "dict[int, str]", descendants: Descendants) -> None:
    """Keep the list until the kernel is gone."""
    rest, interval = b"", CHECK_INTERVAL
    looked = time.monotonic()
    while True:
        due = max(0.0, looked + interval - time.monotonic()) if groups or descendants.known else None
        if not select.select([0], [], [], due)[0]:
            looked = time.monotonic()
            descendants.look(groups)
            interval = max(min(2 * interval, CHECK_INTERVAL), (time.monotonic() - looked) / CHECK_SHARE)
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            word, _, leader = line.decode().strip().partition(" ")
            group, _, started = leader.partition(" ")
            if word == "+":
                groups[int(group)] = started
                looked, interval = time.monotonic(), FIRST_CHECK
            elif word == "-":
                groups.pop(int(group), None)


def wait(groups: "dict[int, str]", descendants: Descendants, seconds: float) -> None:
    """Wait until nobody is left, at most so long."""
    deadline = time.monotonic() + seconds
    while (groups or descendants.known) and time.monotonic() < deadline:
        time.sleep(0.05)
        descendants.look(groups)
        signal_groups(groups, 0)


def main() -> None:
    """Keep the list until the kernel is gone, then end what is on it."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    groups: dict[int, str] = {}
    descendants = Descendants()
    keep_list(groups, descendants)
    signal_groups(groups, signal.SIGSTOP)  # or parents would end before their children were seen
    descendants.look(groups)
    if len(sys.argv) > 1:
        descendants.look_for(sys.argv[1])
    signal_groups(groups, signal.SIGCONT)
    wait(groups, descendants, NOTICE)
    signal_groups(groups, signal.SIGTERM)
    descendants.signal(signal.SIGTERM)
    wait(groups, descendants, TERM)
    signal_groups(groups, signal.SIGKILL)
    descendants.signal(signal.SIGKILL)


if __name__ == "__main__":
    main()

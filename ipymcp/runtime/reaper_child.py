"""The reaper: a small process that ends the servers that a killed kernel leaves behind.

Run as a script with `python -I -S`, with its mark as the argument. It keeps a list of process groups, which the kernel
changes by lines `+ GROUP START` and `- GROUP` on the reaper's standard input. Only the kernel holds the other end, so
that the input ends when the kernel does, in whatever way. The groups on the list then get a moment to notice the end of
their own input, then SIGTERM, then SIGKILL. START is the start time of the group's leader: a group whose number was
reused by another process is left alone.

Descendants that left their group, such as browsers in sessions of their own, are ended as well. Once its parent has
ended, a process cannot be traced to its server any more, so on Linux the tree below each leader is searched every
second, and each process found is remembered by its number and start time. Processes started after the last search are
found by the mark, an environment variable that every server has and its descendants inherit. The search is repeated
until no process is left, because one may start another as it ends.
"""

import os
import select
import signal
import sys
import time

MARK = "IPYMCP_KERNEL"
"""The environment variable that holds the mark of the reaper that watches a server."""
INPUT_END_TIMEOUT = 0.3
TERM_TIMEOUT = 1.0
KILL_TIMEOUT = 1.0
SEARCH_INTERVAL = 1.0
FIRST_SEARCH = 0.2
"""Seconds from a server's start to the first search for its descendants."""
SEARCH_SHARE = 0.05
"""Maximum share of time spent searching: with many processes, searches are less frequent."""
LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Whether the system lists the children of a process; otherwise all processes have to be inspected."""


def status(pid: int) -> "tuple[int, str] | None":
    """The parent of a process and its start time in clock ticks since boot; None if it has ended or is unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else (int(fields[1]), fields[19].decode())
    except (OSError, IndexError, ValueError):
        return None


def start_time(pid: int) -> str:
    """The start time of a process in clock ticks since boot; an empty string if it has ended or is unknown."""
    found = status(pid)
    return found[1] if found is not None else ""


def listed_children(pid: int) -> "list[int]":
    """The children of a process, from all of its threads."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as listed:
                found += map(int, listed.read().split())
    except OSError:
        pass  # the process or the thread has just ended
    return found


def all_children() -> "dict[int, list[int]]":
    """The children of every process by its parent; empty on a system without `/proc`."""
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
    """The running processes that have been found below the leaders of the groups."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        """Start times by process number."""

    def search(self, leaders: "dict[int, str]") -> None:
        """Add the descendants of the leaders and of the known processes, and remove the processes that have ended."""
        self.known = {pid: started for pid, started in self.known.items() if start_time(pid) == started}
        children = {} if LISTS_CHILDREN else all_children()
        queue = [*(pid for pid, started in leaders.items() if started and start_time(pid) == started), *self.known]
        while queue:
            parent = queue.pop()
            for pid in listed_children(parent) if LISTS_CHILDREN else children.get(parent, ()):
                found = status(pid)
                if found is not None and found[0] == parent and self.known.get(pid) != found[1]:
                    self.known[pid] = found[1]
                    queue.append(pid)

    def search_mark(self, mark: str) -> None:
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
                continue  # the process has ended, or belongs to another user
            if is_marked and (started := start_time(pid)):
                self.known[pid] = started

    def signal(self, number: int) -> None:
        """Send a signal to each process whose number was not reused."""
        for pid, started in list(self.known.items()):
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except (OSError, AttributeError):
                handle = -1  # without pidfd the number may be reused between the check and the signal
            try:
                if start_time(pid) == started:
                    os.kill(pid, number) if handle < 0 else signal.pidfd_send_signal(handle, number)
            except OSError:
                pass
            finally:
                if handle >= 0:
                    os.close(handle)


def signal_groups(groups: "dict[int, str]", number: int) -> None:
    """Send a signal to each group whose number was not reused; remove the others and those that have ended."""
    for group, started in list(groups.items()):
        now = start_time(group)
        try:
            if now and started and now != started:
                raise ProcessLookupError
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            del groups[group]


def update_until_kernel_ends(groups: "dict[int, str]", descendants: Descendants) -> None:
    """Update the list of groups from standard input, and search for descendants, until the kernel has ended."""
    rest, interval = b"", SEARCH_INTERVAL
    searched = time.monotonic()
    while True:
        due = max(0.0, searched + interval - time.monotonic()) if groups or descendants.known else None
        if not select.select([0], [], [], due)[0]:
            searched = time.monotonic()
            descendants.search(groups)
            interval = max(min(2 * interval, SEARCH_INTERVAL), (time.monotonic() - searched) / SEARCH_SHARE)
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
                searched, interval = time.monotonic(), FIRST_SEARCH
            elif word == "-":
                groups.pop(int(group), None)


def is_anyone_left(groups: "dict[int, str]", descendants: Descendants, mark: str) -> bool:
    """Whether a group or a descendant is left; also looks for processes that were started since the last time."""
    descendants.search(groups)
    signal_groups(groups, 0)  # removes the groups that have ended
    if not groups and not descendants.known:
        descendants.search_mark(mark)
    return bool(groups or descendants.known)


def wait(groups: "dict[int, str]", descendants: Descendants, mark: str, seconds: float) -> None:
    """Wait until all groups and descendants have ended, at most this long."""
    deadline = time.monotonic() + seconds
    while is_anyone_left(groups, descendants, mark) and time.monotonic() < deadline:
        time.sleep(0.05)


def kill(groups: "dict[int, str]", descendants: Descendants, mark: str) -> None:
    """Kill all groups and descendants, until none is left: a process may have started another as it ended."""
    deadline = time.monotonic() + KILL_TIMEOUT
    while True:
        descendants.search_mark(mark)
        signal_groups(groups, signal.SIGKILL)
        descendants.signal(signal.SIGKILL)
        if not is_anyone_left(groups, descendants, mark) or time.monotonic() > deadline:
            return
        time.sleep(0.02)


def main() -> None:
    """Update the list of groups until the kernel has ended, then end the groups and their descendants."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    groups: dict[int, str] = {}
    descendants = Descendants()
    update_until_kernel_ends(groups, descendants)
    signal_groups(groups, signal.SIGSTOP)  # or parents would end before their children were found
    descendants.search(groups)
    mark = sys.argv[1]
    descendants.search_mark(mark)
    signal_groups(groups, signal.SIGCONT)
    wait(groups, descendants, mark, INPUT_END_TIMEOUT)
    signal_groups(groups, signal.SIGTERM)
    descendants.signal(signal.SIGTERM)
    wait(groups, descendants, mark, TERM_TIMEOUT)
    kill(groups, descendants, mark)


if __name__ == "__main__":
    main()

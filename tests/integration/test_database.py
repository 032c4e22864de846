"""The database that all kernels share: written by many processes at once, and what happens where it cannot be used."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ipymcp.storage.database import MIGRATIONS, Database
from ipymcp.storage.history import History

COUNTED = """
import sys
from pathlib import Path
from ipymcp.storage.database import Database
database = Database(Path(sys.argv[1]))
for number in range(50):
    database.execute(
        "INSERT OR REPLACE INTO secrets VALUES ('secret', 'count', 'memory', NULL,"
        " 1 + coalesce((SELECT changed FROM secrets WHERE name = 'count'), 0))"
    )
assert database.is_lasting
database.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


def put(database: Database, name: str) -> None:
    database.execute("INSERT INTO secrets VALUES ('secret', ?, 'vault', x'00', 0)", (name,))


def names(database: Database) -> list[str]:
    return [name for (name,) in database.query("SELECT name FROM secrets ORDER BY name")]


def run(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stderr=subprocess.PIPE)


def test_processes_that_make_and_write_it_at_once_lose_nothing(path: Path) -> None:
    writers = [run(COUNTED, path) for _ in range(4)]
    for writer in writers:
        _, errors = writer.communicate(timeout=100)
        assert (writer.returncode, errors) == (0, b"")
    database = Database(path)
    assert database.query("SELECT changed FROM secrets") == [(200.0,)]
    database.close()


def test_the_file_and_its_folder_are_the_users_alone(path: Path) -> None:
    database = Database(path)
    put(database, "one")
    database.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.chmod(0o664)
    assert names(database) == ["one"]
    database.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    database = Database(path)

    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO secrets VALUES ('secret', 'half', 'vault', x'00', 0)")
        raise KeyError("half")

    with pytest.raises(KeyError, match="half"):
        database.transact(half)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        database.query("SELECT * FROM no_table")
    assert names(database) == []
    assert database.is_lasting
    database.close()


def test_what_was_posted_is_written_when_it_is_closed(path: Path) -> None:
    database = Database(path)
    for number in range(20):
        database.post(
            lambda connection, number=number: connection.execute(
                "INSERT INTO secrets VALUES ('secret', ?, 'vault', x'00', 0)", (f"{number:02}",)
            )
        )
    database.close()
    assert names(database) == [f"{number:02}" for number in range(20)]
    database.close()


def test_a_forked_child_has_a_connection_of_its_own(path: Path) -> None:
    database = Database(path)
    put(database, "parent")
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        code = 1
        try:
            put(database, "child")
            code = 0 if names(database) == ["child", "parent"] else 2
            database.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert names(database) == ["child", "parent"]
    database.close()


KILLED = """
import sys, threading
from pathlib import Path
from ipymcp.storage.database import Database
database = Database(Path(sys.argv[1]))
database.execute("INSERT INTO secrets VALUES ('secret', 'whole', 'vault', x'00', 0)")

def half(connection):
    connection.execute("PRAGMA cache_size = 1")  # what is written reaches the file before the end
    for number in range(2000):
        connection.execute("INSERT INTO secrets VALUES ('secret', ?, 'vault', zeroblob(1000), 0)", (str(number),))
    print("writing", flush=True)
    threading.Event().wait()

database.transact(half)
"""


def test_a_kernel_killed_while_it_writes_leaves_what_was_whole(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"writing\n"
    assert path.with_name("state.db-journal").stat().st_size > 0
    writer.kill()
    writer.wait()
    writer.stdout.close()
    warnings: list[str] = []
    database = Database(path, warnings.append)
    assert names(database) == ["whole"]
    put(database, "next")
    assert database.query("PRAGMA integrity_check") == [("ok",)]
    assert (database.is_lasting, warnings) == (True, [])
    database.close()


# -- where it cannot be used ------------------------------------------------------------------------------------------


def in_memory(path: Path, reason: str, *, timeout: float = 5.0) -> None:
    """A database at this path is used in memory, with one warning; the file is left as it is."""
    before = path.read_bytes() if path.is_file() else None
    warnings: list[str] = []
    database = Database(path, warnings.append, timeout)
    put(database, "one")
    put(database, "two")
    assert names(database) == ["one", "two"]
    assert not database.is_lasting
    text = "new data is kept in memory, until this kernel ends"
    assert warnings == [f"{path} {reason}: {text}"]
    database.close()
    assert names(database) == ["one", "two"]
    database.close()
    assert (path.read_bytes() if path.is_file() else None) == before


def make(path: Path) -> None:
    database = Database(path)
    put(database, "kept")
    database.close()


def test_a_database_of_a_newer_version_is_left_alone(path: Path) -> None:
    make(path)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=1000")
    connection.close()
    in_memory(path, f"was written by a newer ipymcp (version 1000; this one supports {len(MIGRATIONS)})")


def test_a_database_that_stays_locked_is_not_used(path: Path) -> None:
    make(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    in_memory(path, "is locked by another program", timeout=0.2)
    other.execute("ROLLBACK")
    other.close()


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_a_damaged_database_is_left_alone(path: Path, damage: str) -> None:
    make(path)
    data = bytearray(path.read_bytes())
    data = bytearray(b"this is no database\n" * 500) if damage == "text" else data[:100] + b"\xff" * (len(data) - 100)
    path.write_bytes(data)
    in_memory(path, "is damaged")


def test_a_folder_in_its_place_or_a_file_in_that_of_its_folder_is_left_alone(path: Path, tmp_path: Path) -> None:
    path.mkdir(parents=True)
    in_memory(path, "cannot be opened (it is not a regular file)")
    (tmp_path / "file").write_text("")
    in_memory(tmp_path / "file" / "state.db", "cannot be opened (Not a directory)")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_database_of_another_user_is_left_alone(path: Path) -> None:
    make(path)
    os.chown(path, 12345, 12345)
    in_memory(path, "belongs to another user")


def test_a_full_database_is_continued_in_memory_with_its_rows(path: Path) -> None:
    make(path)
    warnings: list[str] = []
    database = Database(path, warnings.append)
    database.query("PRAGMA max_page_count=1")  # as small as it is now: as a disk without space
    put(database, "large" + "x" * 100_000)
    assert names(database) == ["kept", "large" + "x" * 100_000]
    assert not database.is_lasting
    assert [warning.partition(": ")[0] for warning in warnings] == [f"{path} is full"]
    database.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM secrets").fetchall() == [("kept",)]
    connection.close()


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    make(path)
    database = Database(path)
    assert names(database) == ["kept"]
    assert database.query("PRAGMA user_version") == [(len(MIGRATIONS),)]
    database.close()


def test_an_older_database_keeps_its_history_and_learns_how_calls_ended(path: Path) -> None:
    errors = {
        "": "done",
        "ToolError: no such file": "failed",
        "CallCancelled: call 3 was cancelled": "cancelled",
        "CallCancelled: the user interrupted it": "interrupted",
        "PolicyError: you said no": "refused",
        "TrustError: the server needs trust": "refused",
    }
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        for statements in MIGRATIONS[:2]:
            for statement in statements:
                connection.execute(statement)
        for error in errors:
            values = (1.5, 0.25, "user", "fs", "read", 7, 14, error, "a.ipynb", 3, b"{}", b"[]")
            names = "time, duration, caller, server, tool, sent, received, error, notebook, cell, arguments, result"
            connection.execute(f"INSERT INTO history ({names}) VALUES ({', '.join('?' * len(values))})", values)
        connection.execute("PRAGMA user_version=2")
    connection.close()

    database = Database(path)
    history = History(lambda: database, lambda delay, function: True, "a.ipynb")
    entries = asyncio.run(history.entries())
    assert database.is_lasting
    assert {entry.error: entry.outcome for entry in entries} == errors
    assert [entry.id for entry in entries] == [6, 5, 4, 3, 2, 1]
    first = entries[-1]
    assert (first.time, first.duration, first.notebook, first.cell) == (1.5, 0.25, "a.ipynb", 3)
    assert (first.arguments, first.result, first.questions) == (b"{}", b"[]", None)
    database.close(5)

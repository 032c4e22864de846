"""Secrets and logins that outlive the kernel: encrypted in the database, or in a keyring; shared by processes."""

import asyncio
import contextlib
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipymcp.errors import SecretError
from ipymcp.protocol.oauth.clients import Registration
from ipymcp.protocol.oauth.tokens import TokenKey, Tokens
from ipymcp.storage.database import Database
from ipymcp.storage.secrets import Keyring, SecretStore, Vault, process_lock
from ipymcp.storage.store import Store
from tests.environments import ROOT
from tests.integration.notebooks import error
from tests.kernels import Kernel
from tests.servers.oauth_server import Behaviour, running

SEALED = """
import sys
from pathlib import Path
from ipymcp.storage.secrets import Vault
sys.stdin.read(1)
sys.stdout.write(Vault(Path(sys.argv[1])).seal("name", "value").hex())
"""


class Stores(contextlib.ExitStack):
    """Makes stores over one folder, as several kernels do, and closes them."""

    def __init__(self) -> None:
        super().__init__()
        self.warnings: list[str] = []

    def __call__(self) -> Store:
        return self.enter_context(contextlib.closing(Store(self.warnings.append)))


@pytest.fixture
def stores() -> Iterator[Stores]:
    with Stores() as stores:
        yield stores


def refused(act: Any) -> tuple[str, str | None]:
    with pytest.raises(SecretError) as caught:
        act()
    return caught.value.message, caught.value.hint


# -- secrets ----------------------------------------------------------------------------------------------------------


def test_a_secret_is_there_for_every_kernel_and_in_no_file(stores: Stores, state_of_its_own: Path) -> None:
    kept = stores().secrets.set("github-token", "the secret value 123")
    assert (kept.name, kept.place) == ("github-token", "vault")
    other = stores()
    assert other.secrets.get("github-token") == "the secret value 123"
    assert [secret.name for secret in other.secrets.kept()] == ["github-token"]
    for file in state_of_its_own.rglob("*"):
        assert not file.is_file() or b"secret value" not in file.read_bytes()
    assert other.secrets.delete("github-token")
    assert not other.secrets.delete("github-token")
    assert stores().secrets.get("github-token") is None


def test_a_secret_is_kept_in_place_of_the_older_one_under_another_nonce(stores: Stores) -> None:
    store = stores()
    records: list[bytes] = []
    for _ in range(2):
        store.secrets.set("name", "same")
        records += [row[0] for row in store.database.query("SELECT sealed FROM secrets")]
    first, second = records
    assert first[:8] == second[:8]
    assert first[8:20] != second[8:20]


def test_a_record_is_good_under_its_own_name_alone(stores: Stores) -> None:
    store = stores()
    store.secrets.set("mine", "value of mine")
    store.database.execute("UPDATE secrets SET name = 'yours'")
    message = ("the secret 'yours' cannot be read: its record is damaged", "set it again")
    assert refused(lambda: store.secrets.get("yours")) == message


@pytest.mark.parametrize("name", ["", "a b", "a/b", "1", "x{y}", "a\nb"])
def test_a_name_that_is_not_valid_is_refused(stores: Stores, name: str) -> None:
    hint = "use letters, digits, _, . and -"
    assert refused(lambda: stores().secrets.set(name, "value")) == ("this is not a valid name for a secret", hint)


def test_an_empty_secret_is_refused(stores: Stores) -> None:
    message = ("the secret 'name' would be empty; nothing was changed", "%mcp secret delete name")
    assert refused(lambda: stores().secrets.set("name", "")) == message


def test_where_nothing_can_be_kept_a_secret_lasts_as_long_as_the_kernel(stores: Stores, state_of_its_own: Path) -> None:
    state_of_its_own.rmdir()
    state_of_its_own.write_text("no folder")
    store = stores()
    assert store.secrets.set("name", "value").place == "memory"
    assert store.secrets.get("name") == "value"
    assert [kept.place for kept in store.secrets.kept()] == ["memory"]
    assert len(stores.warnings) == 1


# -- the key file -----------------------------------------------------------------------------------------------------


def key_file(folder: Path) -> Path:
    return folder / "vault.key"


def test_kernels_that_make_the_key_at_once_make_one(tmp_path: Path) -> None:
    path = tmp_path / "state" / "vault.key"
    arguments = [sys.executable, "-c", SEALED, str(path)]
    pipe = subprocess.PIPE
    kernels = [subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for kernel in kernels:
        assert kernel.stdin is not None
        kernel.stdin.write("x")
        kernel.stdin.flush()
    sealed = [kernel.communicate(timeout=60)[0] for kernel in kernels]
    assert [Vault(path).open("name", bytes.fromhex(record)) for record in sealed] == ["value"] * 4
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["vault.key"]


def test_without_hard_links_one_key_is_made_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    first, second = Vault(tmp_path / "key"), Vault(tmp_path / "key")
    sealed = first.seal("name", "value")
    assert second.open("name", sealed) == "value"
    assert second.open("name", second.seal("name", "other")) == "other"
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


def test_other_users_rights_to_the_key_are_taken_away(stores: Stores, state_of_its_own: Path) -> None:
    stores().secrets.set("name", "value")
    key_file(state_of_its_own).chmod(0o660)
    assert stores().secrets.get("name") == "value"
    assert stat.S_IMODE(key_file(state_of_its_own).stat().st_mode) == 0o600


def test_a_key_that_others_may_read_for_good_is_refused_unless_told_otherwise(
    stores: Stores, state_of_its_own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores().secrets.set("name", "value")
    path = key_file(state_of_its_own)
    path.chmod(0o660)
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # as on a file system without modes
    message = (
        f"the secret 'name' cannot be read: {path} can be read by other users,"
        " and its file system does not allow changing that",
        "set IPYMCP_STATE_DIR to a folder of yours, or IPYMCP_ALLOW_SHARED_KEY=1 to use it anyway",
    )
    assert refused(lambda: stores().secrets.get("name")) == message
    monkeypatch.setenv("IPYMCP_ALLOW_SHARED_KEY", "1")
    assert stores().secrets.get("name") == "value"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused(stores: Stores, state_of_its_own: Path) -> None:
    path = key_file(state_of_its_own)
    path.write_bytes(os.urandom(32))
    os.chown(path, 12345, 12345)
    message = (f"{path} belongs to another user", "remove it, or set IPYMCP_STATE_DIR")
    assert refused(lambda: stores().secrets.set("name", "value")) == message


def test_a_lost_key_makes_secrets_unreadable_and_deletes_none(stores: Stores, state_of_its_own: Path) -> None:
    stores().secrets.set("old", "old value")
    path = key_file(state_of_its_own)
    key = path.read_bytes()
    path.unlink()
    store = stores()
    lost = f"the key it was encrypted with is not in {path}"
    message = (f"the secret 'old' cannot be read: {lost}", "restore that file, or set it again")
    assert refused(lambda: store.secrets.get("old")) == message
    assert store.secrets.check("old") == lost
    store.secrets.set("new", "new value")  # under a new key
    assert refused(lambda: store.secrets.get("old")) == message
    assert store.secrets.get("new") == "new value"
    path.write_bytes(key)
    assert stores().secrets.get("old") == "old value"


def test_a_key_file_without_a_key_is_an_error_that_says_so(stores: Stores, state_of_its_own: Path) -> None:
    path = key_file(state_of_its_own)
    path.write_bytes(b"x" * 40)
    message = (f"{path} does not contain a key", "restore the right file, or remove it")
    assert refused(lambda: stores().secrets.set("name", "value")) == message


# -- a keyring --------------------------------------------------------------------------------------------------------


class Backend:
    """A keyring backend as the `keyring` package has them."""

    name = "test keyring"

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.delay = 0.0

    def get_password(self, service: str, name: str) -> str | None:
        time.sleep(self.delay)
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        if len(value) > 2560:
            raise ValueError("too long")
        time.sleep(self.delay)
        self.kept[service, name] = value

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


@pytest.fixture
def backend() -> Backend:
    return Backend()


@pytest.fixture
def safe(backend: Backend, tmp_path: Path) -> Any:
    database = Database(tmp_path / "state.db")
    made = SecretStore(database, Vault(tmp_path / "vault.key"))
    made.__dict__["_keyring"] = Keyring(backend, timeout=0.2)
    yield made
    database.close()


def test_a_secret_is_kept_in_the_keyring_where_there_is_one(
    safe: SecretStore, backend: Backend, tmp_path: Path
) -> None:
    assert safe.set("secret", "name", "value").place == "keyring"
    assert backend.kept == {("ipymcp", "secret:name"): "value"}
    assert safe.get("secret", "name") == "value"
    assert not (tmp_path / "vault.key").exists()
    assert safe.delete("secret", "name")
    assert backend.kept == {}


def test_what_the_keyring_does_not_take_is_kept_in_the_vault(safe: SecretStore, backend: Backend) -> None:
    assert safe.set("tokens", "name", "x" * 3000).place == "vault"
    assert safe.get("tokens", "name") == "x" * 3000
    assert backend.kept == {}


def test_a_keyring_that_hangs_is_not_waited_for(safe: SecretStore, backend: Backend) -> None:
    safe.set("secret", "name", "value")
    backend.delay = 1.0
    assert refused(lambda: safe.get("secret", "name")) == (
        "test keyring does not respond within 0.2 s",
        "unlock it, or set IPYMCP_KEYRING=off before the kernel starts: ipymcp's own vault is used then",
    )


def test_a_keyring_that_is_gone_is_an_error_that_says_so(safe: SecretStore) -> None:
    safe.set("secret", "name", "value")
    safe.__dict__["_keyring"] = None
    assert refused(lambda: safe.get("secret", "name")) == (
        "it is in a keyring that is not available now",
        "set it again",
    )


# -- logins -----------------------------------------------------------------------------------------------------------

CLIENT = Registration("client", "client_secret_post", "client-secret", scopes=("a", "b"), is_dynamic=True)
KEY = TokenKey("https://issuer", "https://host/mcp", "digest")
TOKENS = Tokens("access-token-1", CLIENT, "refresh-token-1", 1000.0, 3600.0, ("a",), ("a", "b"))


def test_logins_are_there_for_every_kernel(stores: Stores) -> None:
    async def check() -> None:
        one, other = stores().tokens, stores().tokens
        await one.keep_registration("https://issuer", "http://127.0.0.1:1/callback", CLIENT)
        await one.keep_registration("https://issuer", "http://127.0.0.1:2/callback", CLIENT)
        assert await other.registration("https://issuer", "http://127.0.0.1:1/callback") == CLIENT
        redirects = ("http://127.0.0.1:2/callback", "http://127.0.0.1:1/callback")
        assert await other.redirect_uris("https://issuer") == redirects
        await other.forget_registration("https://issuer", "http://127.0.0.1:1/callback")
        assert await one.registration("https://issuer", "http://127.0.0.1:1/callback") is None

        await one.keep_tokens(KEY, TOKENS)
        assert await other.tokens(KEY) == TOKENS
        assert await other.find("digest") == (KEY, TOKENS)
        assert await other.find("another") is None
        assert await other.tokens(TokenKey("https://other", "https://host/mcp", "digest")) is None
        elsewhere = TokenKey("https://other", "https://host/mcp", "digest")
        await one.keep_tokens(elsewhere, TOKENS)
        await one.keep_tokens(KEY, TOKENS)
        assert await other.find("digest") == (KEY, TOKENS)  # the newest
        await other.forget_tokens(KEY)
        assert await one.find("digest") == (elsewhere, TOKENS)

    asyncio.run(check())


def test_a_login_that_cannot_be_read_is_not_used_and_not_deleted(stores: Stores, state_of_its_own: Path) -> None:
    async def check() -> None:
        await stores().tokens.keep_tokens(KEY, TOKENS)
        key_file(state_of_its_own).unlink()
        store = stores()
        assert await store.tokens.find("digest") is None
        assert len(store.secret_store.kept("tokens")) == 1

    asyncio.run(check())


def test_a_login_that_cannot_be_stored_is_a_warning(stores: Stores, state_of_its_own: Path) -> None:
    key_file(state_of_its_own).write_bytes(b"short" * 10)
    asyncio.run(stores().tokens.keep_tokens(KEY, TOKENS))
    [warning] = stores.warnings
    assert warning.startswith("this login is not stored: ")


LOCKED = """
import asyncio, sys
from pathlib import Path
from ipymcp.storage.secrets import process_lock

async def main():
    async with process_lock(Path(sys.argv[1]), "name", 60):
        print("locked", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


def test_a_lock_is_held_by_one_process_until_it_dies(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    holder = subprocess.Popen([sys.executable, "-c", LOCKED, str(tmp_path)], stdin=pipe, stdout=pipe)
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == b"locked\n"

    async def waits() -> list[str]:
        order: list[str] = []

        async def enter() -> None:
            async with process_lock(tmp_path, "name", 60):
                order.append("entered")

        async with process_lock(tmp_path, "another name", 60):
            order.append("another")
        waiting = asyncio.create_task(enter())
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
        order.append("killed")
        holder.kill()
        await asyncio.wait_for(waiting, 20)
        return order

    assert asyncio.run(waits()) == ["another", "killed", "entered"]
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()


def test_a_lock_is_not_waited_for_forever(tmp_path: Path) -> None:
    async def check() -> None:
        async with process_lock(tmp_path, "name", 60), process_lock(tmp_path, "name", 0.1):
            pass

    asyncio.run(asyncio.wait_for(check(), 20))


REFRESHING = """
import asyncio, sys
from ipymcp.storage.store import Store
from tests.oauth_user import oauth, send

async def main():
    store = Store(lambda text: print(text, flush=True))
    authorizer = oauth(sys.argv[1], store=store.tokens, definition="digest")
    if sys.argv[2] == "wait":
        print("ready", flush=True)
        sys.stdin.readline()
    answer = await send(authorizer, sys.argv[1])
    print(answer.status_code, flush=True)
    store.close()

asyncio.run(main())
"""


def kernel_process(url: str, *how: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", REFRESHING, url, *how]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_kernels_that_refresh_at_once_make_one_request() -> None:
    behaviour = Behaviour(token_lifetime=0.5, issues_refresh_tokens=True)
    with running(behaviour) as server:
        first = kernel_process(server.url, "now")
        assert first.communicate(timeout=60)[0] == "200\n"
        assert [request.fields["grant_type"] for request in server.seen("/token")] == ["authorization_code"]
        behaviour.token_lifetime = 3600
        server.tokens.clear()  # the one that all of them hold is of no use any more
        kernels = [kernel_process(server.url, "wait") for _ in range(3)]
        for kernel in kernels:
            assert kernel.stdout is not None
            assert kernel.stdout.readline() == "ready\n"
        for kernel in kernels:
            assert kernel.stdin is not None
            kernel.stdin.write("go\n")
            kernel.stdin.flush()
        assert [kernel.communicate(timeout=60)[0] for kernel in kernels] == ["200\n"] * 3
        grants = [request.fields["grant_type"] for request in server.seen("/token")]
    assert grants == ["authorization_code", "refresh_token"]


def test_the_store_is_imported_when_something_is_stored() -> None:
    heavy = ["sqlite3", "cryptography", "keyring", "jupyter_core"]
    script = f"""
import sys, ipymcp
from ipymcp.config.config_files import from_mapping
from ipymcp.errors import McpError
from ipymcp.notebook import extension
mcp = ipymcp.host()
repr(mcp), repr(mcp.tools)
print([name for name in {heavy} if name in sys.modules])
mcp.load("demo")
print([name for name in {heavy[1:3]} if name in sys.modules])
mcp.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[]", "[]"]


# -- %mcp secret ------------------------------------------------------------------------------------------------------


@pytest.mark.cold
def test_a_secret_is_set_listed_and_deleted_in_a_cell(kernel: Kernel) -> None:
    kernel.run("%load_ext ipymcp")
    assert kernel.run("%mcp secret list").text == "secrets\nsecret  kept in  changed\nnone yet: %mcp secret set NAME"
    kept = kernel.run("%mcp secret set github-token", answers=["value-of-the-token"])
    assert (kept.prompts, kept.stdout) == (["github-token: "], "kept: github-token (encrypted file)\n")
    listed = kernel.run("%mcp secret list").text or ""
    assert re.fullmatch(r"secrets\nsecret +kept in +changed\ngithub-token +encrypted file +\d{4}-\d\d-\d\d", listed)
    assert error(kernel, "%mcp secret delete github-tokn") == [
        "UnknownName: there is no secret 'github-tokn'",
        "  did you mean 'github-token'? · in: %mcp secret delete github-tokn",
    ]
    assert kernel.run("%mcp secret delete github-token").stdout == "deleted: github-token\n"


def test_a_secret_is_taken_from_a_prompt_alone(kernel: Kernel) -> None:
    kernel.run("%load_ext ipymcp")
    typed = kernel.run("%mcp secret set token the-value-of-it").error
    assert typed is not None
    assert typed.evalue == "give the name only: a prompt asks for the value; a value typed here is visible"
    assert error(kernel, "%mcp secret set token") == [
        "SecretError: cannot ask for 'token': there is no user",
        "  run this line in a notebook · in: %mcp secret set token",
    ]
    missing = kernel.run("%mcp secret put token").error
    assert missing is not None
    assert missing.evalue.startswith("there is no %mcp secret put; there are set, list, delete")

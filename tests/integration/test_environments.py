"""The environments of the servers: each is there, and its server speaks MCP."""

import sys
from pathlib import Path

import pytest

from tests import environments
from tests.environments import MissingEnvironment, server_command


def test_a_missing_environment_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(environments, "ENVS", tmp_path)

    with pytest.raises(MissingEnvironment) as caught:
        server_command("sdk1")
    assert str(caught.value) == (
        "The environment 'sdk1' is missing or out of date: `make test` makes it "
        f"(or `{sys.executable} tests/environments.py sdk1`)."
    )


def test_a_changed_list_of_requirements_is_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "ENVS", tmp_path)
    old = environments.Environment("some", ("left-pad==1",))
    old.folder.mkdir()
    (old.folder / ".made").write_text(old.wanted)

    assert old.is_current()
    assert not environments.Environment("some", ("left-pad==2",)).is_current()


def test_an_environment_that_only_the_nightly_run_needs_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(environments, "ENVS", tmp_path)

    with pytest.raises(MissingEnvironment, match="'kernel-6' is missing or out of date: `make nightly` makes it "):
        environments.kernel_python("kernel-6")


def test_the_settings_of_other_tools_leave_an_installed_ipymcp_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    digest, project = environments.source_digest.__wrapped__, environments._PYPROJECT
    before = digest()

    tools = {**project["tool"], "pytest": {}}
    monkeypatch.setattr(environments, "_PYPROJECT", {**project, "tool": tools})
    assert digest() == before
    monkeypatch.setattr(environments, "_PYPROJECT", {**project, "project": {**project["project"], "dependencies": []}})
    assert digest() != before


def test_an_environment_that_ipymcp_does_not_go_into_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = environments.Environment("some", (), ipymcp=True)
    monkeypatch.setattr(environments, "ENVS", tmp_path)
    versions = iter([{"tornado": "6.4.2"}, {"tornado": "6.5"}])
    monkeypatch.setattr(environments, "_versions", lambda _: next(versions))
    monkeypatch.setattr(environments, "_install", lambda *_: None)
    monkeypatch.setattr(environments, "_wheel", lambda: tmp_path / "ipymcp.whl")
    some.folder.mkdir()
    (some.folder / ".made").write_text(some.wanted)

    with pytest.raises(environments.CannotMake, match=r"moved what was there: tornado 6\.4\.2 -> 6\.5"):
        environments.make(some)
    assert not some.is_made()


@pytest.mark.parametrize("wheel", ["left-pad", ""])
def test_what_has_no_wheel_for_this_machine_is_left_out_where_it_may_be(
    wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = environments.Environment("some", ("--no-index", "left-pad==1"), needs_wheel=wheel)
    monkeypatch.setattr(environments, "ENVS", tmp_path)
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"some": some})
    monkeypatch.setattr(environments, "ATTEMPTS", 1)

    status = environments.main([])

    said = capsys.readouterr().out
    reason = "left out: there is no wheel of left-pad for this machine"
    if wheel:
        assert (status, said, some.left_out) == (0, f"some {reason}\n", reason)
    else:
        assert status == 1 and said.startswith("some FAILED: `"), said
        assert some.left_out is None
    assert not some.is_current()


def test_a_name_that_matches_nothing_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"no environment 'sdk3'; there are: readme, agents, .*sdk2"):
        environments.main(["sdk3"])

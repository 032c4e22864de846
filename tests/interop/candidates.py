"""The servers of the interoperability run: where each comes from, how it is started, and one call of it."""

import contextlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.environments import ENVIRONMENTS, ROOT, environment
from tests.real_servers import COMMITTER
from tests.serving import free_port, serving

Definition = Mapping[str, Any]
"""One server as it stands in `mcpServers`."""

Start = Callable[[Path], AbstractContextManager[Definition]]
"""Makes a server ready to be loaded, at work in a folder; for as long as the `with` lasts."""

SDKS = {"the official SDK 1.x": "sdk1", "the official SDK 2.x": "sdk2"}
"""What the servers that are written for the tests stand for, and their environments."""

TOKEN = "interoperability"
"""Of the Jupyter server that jupyter-mcp-server works on."""

FILE = "interoperability.txt"
TEXT = "a text of two lines\nthis is the second\n"


@dataclass(frozen=True)
class Candidate:
    """One server over one transport, and the call that is made of it."""

    package: str
    """As its registry names it, or what it is."""
    transport: str
    start: Start
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """`{folder}` in one stands for where the server works."""
    answer: str = ""
    """A text that the outcome must hold; of the result, or of the tool's error."""
    note: str = ""
    offline: str = ""
    """A text of the outcome where what the server calls cannot be reached, which is no fault."""

    @property
    def name(self) -> str:
        """The package without its scope and prefix: what the server is loaded as."""
        return self.package.rpartition("/")[2].removeprefix("mcp-server-").removeprefix("server-")

    @property
    def lacks(self) -> str:
        """A requirement of the server that this machine lacks, or an empty string."""
        return "no Chromium on this machine" if self.note == BROWSER and not chromium() else ""

    @property
    def version(self) -> str:
        """The version of the package that is installed."""
        module, environments = self.package, list(ENVIRONMENTS.values())
        if self.package in SDKS:
            module, environments = "mcp", [ENVIRONMENTS[SDKS[self.package]]]
        for each in environments:
            for package in each.folder.glob(f"node_modules/{module}/package.json"):
                return json.loads(package.read_text())["version"]
            if not each.npm and any(re.match(rf"{re.escape(module)}\W", wanted) for wanted in each.requirements):
                name = re.sub(r"[-.]", "_", module)
                for folder in each.folder.glob(f"lib/python3*/site-packages/{name}-*.dist-info"):
                    return folder.name.removeprefix(f"{name}-").removesuffix(".dist-info")
        raise AssertionError(f"{self.package} is in no environment")


# -- how they are started ---------------------------------------------------------------------------------------------


def placed_in(folder: Path, value: Any) -> Any:
    """The value, with the folder for `{folder}`."""
    return value.replace("{folder}", str(folder)) if isinstance(value, str) else value


def npm(env: str, script: str, *arguments: str) -> list[str]:
    """The command of a script in an environment of npm packages."""
    return ["node", str(environment(env).folder / "node_modules" / script), *arguments]


def pypi(env: str, script: str, *arguments: str) -> list[str]:
    """The command of a script in a virtual environment, run by its interpreter."""
    python = environment(env).python
    return [str(python), str(python.parent / script), *arguments]


def own(env: str, *arguments: str) -> list[str]:
    """The command of the server on the official SDK that is written for the tests."""
    return [str(environment(env).python), str(ROOT / "tests" / "servers" / "sdk_server.py"), *arguments]


def child(command: Callable[[Path], list[str]], env: Mapping[str, str] | None = None) -> Start:
    """A server that the host starts, over stdio."""

    def start(folder: Path) -> AbstractContextManager[Definition]:
        program, *arguments = command(folder)
        placed = {name: placed_in(folder, value) for name, value in (env or {}).items()}
        return nullcontext({"command": program, "args": arguments, "cwd": str(folder), "env": placed})

    return start


def remote(command: Callable[[Path, int], list[str]], path: str, *, by_environment: bool = False) -> Start:
    """A server that runs already, at a port of its own; told of it by PORT if it takes no argument."""

    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Definition]:
        port = free_port()
        env = {"PORT": str(port)} if by_environment else {}
        with serving(command(folder, port), port, folder, env) as origin:
            yield {"url": origin + path, **({"transport": "sse"} if path == "/sse" else {})}

    return start


@contextlib.contextmanager
def beside_jupyter(folder: Path) -> Iterator[Definition]:
    """jupyter-mcp-server and the Jupyter server that it drives, both from its environment."""
    port = free_port()
    options = {"IdentityProvider.token": TOKEN, "ServerApp.root_dir": folder, "ServerApp.port": port}
    jupyter = pypi("interop/jupyter", "jupyter-lab", "--no-browser", "--allow-root", "--ip=127.0.0.1")
    settings = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    command = [*jupyter, *(f"--{name}={value}" for name, value in options.items())]
    with serving(command, port, folder, settings) as origin:
        program, *arguments = pypi("interop/jupyter", "jupyter-mcp-server", "start", "--transport", "stdio")
        arguments += ["--document-url", origin, "--document-token", TOKEN]
        arguments += ["--code-sandbox-url", origin, "--code-sandbox-token", TOKEN]
        yield {"command": program, "args": arguments, "cwd": str(folder)}


def with_text(folder: Path) -> Path:
    """A folder with the text file that some of them are asked for."""
    (folder / FILE).write_text(TEXT)
    return folder


def with_table(folder: Path) -> str:
    """An SQLite database of one table and two rows."""
    path = folder / "table.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("create table if not exists numbers (n integer)")
        database.executemany("insert into numbers values (?)", [(1,), (2,)])
    return str(path)


def with_repository(folder: Path) -> str:
    """An empty git repository."""
    import subprocess

    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=folder, check=True, stdin=subprocess.DEVNULL)
    return str(folder)


def chromium() -> str:
    """The browser that the browser servers drive; an empty string if there is none."""
    return shutil.which("chromium") or shutil.which("google-chrome") or ""


# -- which ------------------------------------------------------------------------------------------------------------

EVERYTHING = "@modelcontextprotocol/server-everything"
NETWORK = "needs the network"
BROWSER = "needs a Chromium"
CLOCK = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
PLAYWRIGHT = ("--headless", "--no-sandbox", "--isolated")
DUCK = ("--db-path", ":memory:", "--read-write")
DEVTOOLS = ("--headless", "--isolated", "--chromeArg=--no-sandbox")


def everything(*arguments: str) -> list[str]:
    """server-everything over one of its transports."""
    return npm("npm", f"{EVERYTHING}/dist/index.js", *arguments)


def proxied(folder: Path, port: int) -> list[str]:
    """mcp-proxy in front of mcp-server-time."""
    behind = pypi("server-time", "mcp-server-time")
    return pypi("mcp-proxy", "mcp-proxy", "--host", "127.0.0.1", "--port", str(port), "--", *behind)


def ext_app(name: str) -> Start:
    """One of the examples of MCP Apps."""
    script = f"@modelcontextprotocol/server-{name}/dist/index.js"
    return child(lambda folder: npm("interop/ext-apps", script, "--stdio"))


def remote_ext_app(name: str) -> Start:
    """The same, over HTTP."""
    script = f"@modelcontextprotocol/server-{name}/dist/index.js"
    return remote(lambda folder, port: npm("interop/ext-apps", script), "/mcp", by_environment=True)


def at(port: int) -> tuple[str, ...]:
    """The path at which a server of several listens."""
    return ("--host", "127.0.0.1", "--port", str(port))


def _sdk(title: str, env: str) -> list[Candidate]:
    call: dict[str, Any] = {"tool": "add", "arguments": {"a": 2, "b": 40}, "answer": "42"}
    note = "`tests/servers/sdk_server.py`"
    return [
        Candidate(title, "stdio", child(lambda _: own(env)), **call, note=note),
        Candidate(title, "HTTP", remote(lambda _, port: own(env, "--http", str(port)), "/mcp"), **call, note=note),
        Candidate(title, "SSE", remote(lambda _, port: own(env, "--sse", str(port)), "/sse"), **call, note=note),
    ]


def _everything() -> list[Candidate]:
    call: dict[str, Any] = {"tool": "get-sum", "arguments": {"a": 2, "b": 40}, "answer": "42"}
    http = remote(lambda folder, port: everything("streamableHttp"), "/mcp", by_environment=True)
    sse = remote(lambda folder, port: everything("sse"), "/sse", by_environment=True)
    return [
        Candidate(EVERYTHING, "stdio", child(lambda _: everything("stdio")), **call, note="all of it: below"),
        Candidate(EVERYTHING, "HTTP", http, **call, note="all of it: below"),
        Candidate(EVERYTHING, "SSE", sse, **call, note="all of it: below"),
    ]


def _npm() -> list[Candidate]:
    filesystem = "@modelcontextprotocol/server-filesystem"
    memory = "@modelcontextprotocol/server-memory"
    thinking = "@modelcontextprotocol/server-sequential-thinking"
    return [
        Candidate(
            filesystem,
            "stdio",
            child(lambda folder: npm("npm", f"{filesystem}/dist/index.js", str(with_text(folder)))),
            "read_text_file",
            {"path": FILE},
            TEXT.splitlines()[0],
        ),
        Candidate(
            memory,
            "stdio",
            child(lambda _: npm("npm", f"{memory}/dist/index.js"), {"MEMORY_FILE_PATH": "{folder}/memory.json"}),
            "create_entities",
            {"entities": [{"name": "Ada", "entityType": "person", "observations": ["counts"]}]},
            "Ada",
        ),
        Candidate(
            thinking,
            "stdio",
            child(lambda _: npm("npm", f"{thinking}/dist/index.js")),
            "sequentialthinking",
            {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            "thoughtNumber",
        ),
        Candidate(
            "@antv/mcp-server-chart",
            "stdio",
            child(lambda _: npm("interop/chart", ".bin/mcp-server-chart")),
            "generate_pie_chart",
            {"data": [{"category": "a", "value": 1}]},
            offline="Failed to generate chart",
            note=NETWORK,
        ),
        Candidate(
            "@playwright/mcp",
            "stdio",
            child(
                lambda _: npm(
                    "interop/playwright", "@playwright/mcp/cli.js", *PLAYWRIGHT, "--executable-path", chromium()
                )
            ),
            "browser_navigate",
            {"url": "data:text/html,<title>Hello</title>"},
            "Hello",
            BROWSER,
        ),
        Candidate(
            "@playwright/mcp",
            "HTTP",
            remote(
                lambda _, port: npm(
                    "interop/playwright",
                    "@playwright/mcp/cli.js",
                    *PLAYWRIGHT,
                    *("--executable-path", chromium(), "--allowed-hosts", "*", *at(port)),
                ),
                "/mcp",
            ),
            "browser_navigate",
            {"url": "data:text/html,<title>Hello</title>"},
            "Hello",
            BROWSER,
        ),
        Candidate(
            "chrome-devtools-mcp",
            "stdio",
            child(
                lambda _: npm(
                    "interop/chrome-devtools", ".bin/chrome-devtools-mcp", *DEVTOOLS, "--executablePath", chromium()
                )
            ),
            "list_pages",
            answer="about:blank",
            note=BROWSER,
        ),
    ]


def _pypi() -> list[Candidate]:
    return [
        Candidate(
            "mcp-server-git",
            "stdio",
            child(
                lambda folder: pypi("server-git", "mcp-server-git", "--repository", with_repository(folder)), COMMITTER
            ),
            "git_status",
            {"repo_path": "."},
            "No commits yet",
        ),
        Candidate(
            "mcp-server-time",
            "stdio",
            child(lambda _: pypi("server-time", "mcp-server-time")),
            "convert_time",
            CLOCK,
            "17:45",
        ),
        Candidate(
            "mcp-server-fetch",
            "stdio",
            child(lambda _: pypi("server-fetch", "mcp-server-fetch")),
            "fetch",
            {"url": "http://127.0.0.1/"},
            "not a public address",
            "refuses the loopback, which is its guard",
        ),
        Candidate(
            "mcp-server-sqlite",
            "stdio",
            child(lambda folder: pypi("interop/sqlite", "mcp-server-sqlite", "--db-path", with_table(folder))),
            "read_query",
            {"query": "select sum(n) as total from numbers"},
            "3",
            "with `mcp<2`: it does not run on the SDK 2.x",
        ),
        Candidate(
            "mcp-server-duckdb",
            "stdio",
            child(lambda _: pypi("interop/duckdb", "mcp-server-duckdb", "--db-path", "numbers.duckdb")),
            "query",
            {"query": "select 6 * 7 as answer"},
            "42",
            "with `mcp<2`: it does not run on the SDK 2.x",
        ),
        Candidate(
            "mcp-server-motherduck",
            "stdio",
            child(lambda _: pypi("interop/motherduck", "mcp-server-motherduck", *DUCK)),
            "execute_query",
            {"sql": "select 6 * 7 as answer"},
            "42",
        ),
        Candidate(
            "mcp-server-motherduck",
            "HTTP",
            remote(
                lambda _, port: pypi(
                    "interop/motherduck", "mcp-server-motherduck", *DUCK, "--transport", "http", *at(port)
                ),
                "/mcp",
            ),
            "execute_query",
            {"sql": "select 6 * 7 as answer"},
            "42",
        ),
        Candidate(
            "markitdown-mcp",
            "stdio",
            child(lambda _: pypi("interop/markitdown", "markitdown-mcp")),
            "convert_to_markdown",
            {"uri": "data:text/plain,hello"},
            "hello",
        ),
        Candidate(
            "markitdown-mcp",
            "HTTP",
            remote(lambda _, port: pypi("interop/markitdown", "markitdown-mcp", "--http", *at(port)), "/mcp"),
            "convert_to_markdown",
            {"uri": "data:text/plain,hello"},
            "hello",
        ),
        Candidate(
            "markitdown-mcp",
            "SSE",
            remote(lambda _, port: pypi("interop/markitdown", "markitdown-mcp", "--http", *at(port)), "/sse"),
            "convert_to_markdown",
            {"uri": "data:text/plain,hello"},
            "hello",
        ),
        Candidate(
            "excel-mcp-server",
            "stdio",
            child(lambda _: pypi("server-excel", "excel-mcp-server", "stdio")),
            "create_workbook",
            {"path": "{folder}/book.xlsx"},
            "book.xlsx",
        ),
        Candidate(
            "excel-mcp-server",
            "HTTP",
            remote(lambda _, port: pypi("server-excel", "excel-mcp-server", "streamable-http", *at(port)), "/mcp"),
            "create_workbook",
            {"path": "book.xlsx"},
            "book.xlsx",
        ),
        Candidate(
            "arxiv-mcp-server",
            "stdio",
            child(lambda _: pypi("interop/arxiv", "arxiv-mcp-server", "--storage-path", "papers")),
            "list_papers",
            answer="total_papers",
        ),
        Candidate(
            "awslabs.aws-documentation-mcp-server",
            "stdio",
            child(lambda _: pypi("interop/aws-documentation", "awslabs.aws-documentation-mcp-server")),
            "search_documentation",
            {"search_phrase": "lambda"},
            offline="Error searching AWS docs",
            note=NETWORK,
        ),
        Candidate(
            "jupyter-mcp-server",
            "stdio",
            beside_jupyter,
            "list_files",
            answer="Showing",
            note="beside a Jupyter server of its own",
        ),
        Candidate(
            "mcp-proxy", "HTTP", remote(proxied, "/mcp"), "convert_time", CLOCK, "17:45", "before mcp-server-time"
        ),
        Candidate(
            "mcp-proxy", "SSE", remote(proxied, "/sse"), "convert_time", CLOCK, "17:45", "before mcp-server-time"
        ),
    ]


def _ext_apps() -> list[Candidate]:
    calls: dict[str, tuple[str, dict[str, Any], str]] = {
        "basic-react": ("get-time", {}, "Z"),
        "basic-vanillajs": ("get-time", {}, "Z"),
        "budget-allocator": ("get-budget-data", {}, "Marketing"),
        "cohort-heatmap": ("get-cohort-data", {}, "12 cohorts"),
        "debug": ("debug-log", {"type": "note", "payload": {}}, "Logged"),
        "map": ("show-map", {}, "Displaying globe"),
        "pdf": ("list_pdfs", {}, "PDF"),
        "scenario-modeler": ("get-scenario-data", {}, "Bootstrapped"),
        "system-monitor": ("get-system-info", {}, "cpu"),
        "threejs": ("learn_threejs", {}, "Three.js"),
    }
    return [
        Candidate(f"@modelcontextprotocol/server-{name}", transport, start(name), tool, arguments, answer, "an MCP App")
        for name, (tool, arguments, answer) in calls.items()
        for transport, start in (("stdio", ext_app), ("HTTP", remote_ext_app))
    ]


CANDIDATES = (*_everything(), *(each for sdk in SDKS.items() for each in _sdk(*sdk)), *_npm(), *_pypi(), *_ext_apps())

"""The third-party servers of the suite: where each comes from, how it is started, and one call of it."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tests.browser import chromium
from tests.environments import ENVIRONMENTS, ROOT, environment
from tests.serving import serving

SDKS = {"the official SDK 1.x": "sdk1", "the official SDK 2.x": "sdk2"}
"""The environments of the servers that are written for the tests, by what they stand for."""

EVERYTHING = "@modelcontextprotocol/server-everything"
PATHS = {"HTTP": "/mcp", "SSE": "/sse"}
COMMITTER = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}
FILE = "interoperability.txt"
TEXT = "a text of two lines\nthis is the second\n"


@dataclass(frozen=True)
class Program:
    """A script of an environment, run by its interpreter."""

    env: str
    """The environment's name."""
    script: str
    """The path in `node_modules` or in `bin`, or an absolute path."""
    arguments: str = ""
    """A line for a shell. `{folder}`, `{port}`, `{beside}` and `{chromium}` in it stand for the working directory, the
    port to serve on, the origin of the server beside this one, and the browser."""
    behind: Program | None = None
    """A program whose command follows the arguments."""

    @property
    def is_nightly(self) -> bool:
        """Whether it needs an environment that `make test` does not have."""
        return ENVIRONMENTS[self.env].tier != "test" or (self.behind is not None and self.behind.is_nightly)

    def command(self, **places: object) -> list[str]:
        """The command line.

        Raises:
            MissingEnvironment: The environment has not been made.
        """
        made = environment(self.env)
        script = (made.folder / "node_modules" if made.npm else made.python.parent) / self.script
        arguments = [placed(each, **places) for each in shlex.split(self.arguments)]
        behind = self.behind.command(**places) if self.behind else []
        node = made.folder / "node_modules" / "node" / "bin" / "node"
        interpreter = made.python if not made.npm else node if node.exists() else "node"
        return [str(interpreter), str(script), *arguments, *behind]


@dataclass(frozen=True)
class Call:
    """The call of a server."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    """`{folder}` in a string stands for the working directory."""
    answer: str = ""
    """A text that the result, or the tool's error, must contain."""
    offline: str = ""
    """A text of the outcome where what the server calls cannot be reached, which is not a fault."""


@dataclass(frozen=True)
class Candidate:
    """One server over one transport."""

    package: str
    """Its name in its registry, or what it stands for."""
    transport: str
    program: Program
    call: Call
    note: str = ""
    env: dict[str, str] = field(default_factory=dict[str, str])
    prepare: Callable[[Path], None] | None = None
    """Makes what the server works on."""
    beside: Program | None = None
    """A server that this one needs."""

    @property
    def name(self) -> str:
        """The name of the server in a host: the package without its prefix and suffix, and the transport."""
        scope, _, name = self.package.removeprefix("@modelcontextprotocol/").removeprefix("@").rpartition("/")
        name = name.removeprefix("mcp-server-").removeprefix("server-").removesuffix("-mcp-server")
        name = SDKS.get(self.package) or (f"{scope}-{name}" if scope else name)
        return name if self.transport == "stdio" else f"{name} {self.transport}"

    @property
    def version(self) -> str:
        """The version of the package that is installed."""
        made = environment(self.program.env)
        if made.npm:
            return json.loads((made.folder / "node_modules" / self.package / "package.json").read_text())["version"]
        name = "mcp" if self.package in SDKS else re.sub(r"[-.]", "_", self.package)
        [info] = made.folder.glob(f"lib/python3*/site-packages/{name}-*.dist-info")
        return info.name.removeprefix(f"{name}-").removesuffix(".dist-info")

    @contextlib.contextmanager
    def start(self, folder: Path) -> Iterator[dict[str, Any]]:
        """Make the server ready to be loaded, with a folder to work in; gives its definition in `mcpServers`."""
        if self.prepare is not None:
            self.prepare(folder)
        with contextlib.ExitStack() as running:
            places: dict[str, object] = {"folder": folder}
            if self.beside is not None:
                settings = {f"JUPYTER_{kind}_DIR": str(folder / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
                command = self.beside.command
                server = serving(lambda port: command(folder=folder, port=port), folder, settings)
                places["beside"] = running.enter_context(server).origin
            if self.transport == "stdio":
                program, *arguments = self.program.command(**places)
                env = {name: placed(value, **places) for name, value in self.env.items()}
                yield {"command": program, "args": arguments, "cwd": str(folder), "env": env}
            else:
                server = serving(lambda port: self.program.command(port=port, **places), folder)
                url = running.enter_context(server).origin + PATHS[self.transport]
                yield {"url": url, **({"transport": "sse"} if self.transport == "SSE" else {})}


def placed(value: Any, **places: object) -> Any:
    """The value with what `{folder}` and the like stand for, in its strings."""
    if isinstance(value, list):
        return [placed(each, **places) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: placed(each, **places) for name, each in cast("dict[str, Any]", value).items()}
    if not isinstance(value, str):
        return value
    for name, place in places.items():
        value = value.replace(f"{{{name}}}", str(place))
    return value.replace("{chromium}", chromium.find()) if "{chromium}" in value else value


def over(package: str, call: Call, note: str = "", **programs: Program) -> list[Candidate]:
    """The same server and call over several transports."""
    return [Candidate(package, transport, program, call, note) for transport, program in programs.items()]


# -- what they work on ------------------------------------------------------------------------------------------------


def with_text(folder: Path) -> None:
    """Write the text file that some servers are asked for."""
    (folder / FILE).write_text(TEXT)


def with_table(folder: Path) -> None:
    """Make an SQLite database of one table and two rows."""
    with contextlib.closing(sqlite3.connect(folder / "table.db")) as database, database:
        database.execute("create table numbers (n integer)")
        database.executemany("insert into numbers values (?)", [(1,), (2,)])


def with_repository(folder: Path) -> None:
    """Make an empty git repository."""
    subprocess.run(["git", "init", "-q", "-b", "main", "."], cwd=folder, check=True, stdin=subprocess.DEVNULL)


def with_workbook(folder: Path) -> None:
    """Make a workbook of one sheet, by a library that ipymcp's environment does not have."""
    script = "import openpyxl; book = openpyxl.Workbook(); book.active.title = 'Sales'; book.save('book.xlsx')"
    python = str(environment("server-excel").python)
    subprocess.run([python, "-c", script], cwd=folder, check=True, stdin=subprocess.DEVNULL)


# -- which ------------------------------------------------------------------------------------------------------------

NETWORK = "needs the network"
BROWSER = "needs a Chromium"
NO_SDK2 = "with `mcp<2`: it does not run on the SDK 2.x"
AT = "--host 127.0.0.1 --port {port}"
PLAYWRIGHT = "--headless --no-sandbox --isolated --output-dir {folder} --executable-path {chromium}"
DEVTOOLS = "--headless --isolated --chromeArg=--no-sandbox --executablePath {chromium}"
DUCK = "--db-path :memory: --read-write"
TOKEN = "interoperability"
JUPYTER = (
    f"--document-url {{beside}} --document-token {TOKEN} --code-sandbox-url {{beside}} --code-sandbox-token {TOKEN}"
)
LAB = f"--no-browser --allow-root --ip=127.0.0.1 --ServerApp.port={{port}} --IdentityProvider.token={TOKEN}"
TIME = Program("server-time", "mcp-server-time")
PROXY = Program("mcp-proxy", "mcp-proxy", f"{AT} --", TIME)
SUM = {"a": 2, "b": 40}
NOON = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Kathmandu"}
CONVERT_TIME = Call("convert_time", NOON, "17:45")
SIX_TIMES_SEVEN = "select 6 * 7 as answer"
SUM_OF_TABLE = "select sum(n) + 39 as answer from numbers"
TASK = {
    "name": "Interoperability",
    "description": "Call a tool of each server",
    "implementationGuide": "Load it, and call one of its tools",
    "dependencies": [],
}


def reference(name: str, arguments: str = "") -> Program:
    """A reference server of the protocol."""
    return Program("npm", f"@modelcontextprotocol/server-{name}/dist/index.js", arguments)


def ext_app(name: str, arguments: str = "") -> Program:
    """An example of MCP Apps."""
    return Program("interop/ext-apps", f"@modelcontextprotocol/server-{name}/dist/index.js", arguments)


def from_npm(script: str, arguments: str = "") -> Program:
    """A server of the environment that several share."""
    return Program("interop/npm", script, arguments)


def sdk(env: str, arguments: str = "") -> Program:
    """The server of the tests on an official SDK."""
    return Program(env, str(ROOT / "tests" / "servers" / "sdk_server.py"), arguments)


EXT_APPS = {
    "basic-react": Call("get-time", answer="Z"),
    "basic-vanillajs": Call("get-time", answer="Z"),
    "budget-allocator": Call("get-budget-data", answer="Marketing"),
    "cohort-heatmap": Call("get-cohort-data", answer="12 cohorts"),
    "debug": Call("debug-log", {"type": "note", "payload": {}}, "Logged"),
    "map": Call("show-map", answer="Displaying globe"),
    "pdf": Call("list_pdfs", answer="PDF"),
    "scenario-modeler": Call("get-scenario-data", answer="Bootstrapped"),
    "system-monitor": Call("get-system-info", answer="cpu"),
    "threejs": Call("learn_threejs", answer="Three.js"),
}

CANDIDATES = (
    *over(
        EVERYTHING,
        Call("get-sum", SUM, "42"),
        "all of it: below",
        stdio=reference("everything", "stdio"),
        HTTP=reference("everything", "streamableHttp"),
        SSE=reference("everything", "sse"),
    ),
    *(
        candidate
        for title, env in SDKS.items()
        for candidate in over(
            title,
            Call("add", SUM, "42"),
            "`tests/servers/sdk_server.py`",
            stdio=sdk(env),
            HTTP=sdk(env, "--http {port}"),
            SSE=sdk(env, "--sse {port}"),
        )
    ),
    Candidate(
        "@modelcontextprotocol/server-filesystem",
        "stdio",
        reference("filesystem", "{folder}"),
        Call("read_text_file", {"path": FILE}, TEXT.splitlines()[0]),
        prepare=with_text,
    ),
    Candidate(
        "@modelcontextprotocol/server-memory",
        "stdio",
        reference("memory"),
        Call("create_entities", {"entities": [{"name": "Joan", "entityType": "person", "observations": []}]}, "Joan"),
        env={"MEMORY_FILE_PATH": "{folder}/memory.json"},
    ),
    Candidate(
        "@modelcontextprotocol/server-sequential-thinking",
        "stdio",
        reference("sequential-thinking"),
        Call(
            "sequentialthinking",
            {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
            "thoughtNumber",
        ),
    ),
    Candidate(
        "@antv/mcp-server-chart",
        "stdio",
        Program("interop/chart", ".bin/mcp-server-chart"),
        Call("generate_pie_chart", {"data": [{"category": "a", "value": 1}]}, offline="Failed to generate chart"),
        NETWORK,
    ),
    *over(
        "@playwright/mcp",
        Call("browser_navigate", {"url": "data:text/html,<title>Hello</title>"}, "Hello"),
        BROWSER,
        stdio=Program("interop/playwright", "@playwright/mcp/cli.js", PLAYWRIGHT),
        HTTP=Program("interop/playwright", "@playwright/mcp/cli.js", f"{PLAYWRIGHT} --allowed-hosts '*' {AT}"),
    ),
    Candidate(
        "chrome-devtools-mcp",
        "stdio",
        Program("interop/chrome-devtools", ".bin/chrome-devtools-mcp", DEVTOOLS),
        Call("list_pages", answer="about:blank"),
        BROWSER,
    ),
    Candidate(
        "mcp-server-git",
        "stdio",
        Program("server-git", "mcp-server-git"),
        Call("git_status", {"repo_path": "."}, "No commits yet"),
        env=COMMITTER,
        prepare=with_repository,
    ),
    Candidate("mcp-server-time", "stdio", TIME, CONVERT_TIME),
    Candidate(
        "mcp-server-fetch",
        "stdio",
        Program("server-fetch", "mcp-server-fetch"),
        Call("fetch", {"url": "http://127.0.0.1/"}, "not a public address"),
        "refuses the loopback, which is its guard",
    ),
    Candidate(
        "mcp-server-sqlite",
        "stdio",
        Program("interop/sqlite", "mcp-server-sqlite", "--db-path {folder}/table.db"),
        Call("read_query", {"query": "select sum(n) as total from numbers"}, "3"),
        NO_SDK2,
        prepare=with_table,
    ),
    Candidate(
        "mcp-server-duckdb",
        "stdio",
        Program("interop/duckdb", "mcp-server-duckdb", "--db-path numbers.duckdb"),
        Call("query", {"query": SIX_TIMES_SEVEN}, "42"),
        NO_SDK2,
    ),
    *over(
        "mcp-server-motherduck",
        Call("execute_query", {"sql": SIX_TIMES_SEVEN}, "42"),
        stdio=Program("interop/motherduck", "mcp-server-motherduck", DUCK),
        HTTP=Program("interop/motherduck", "mcp-server-motherduck", f"{DUCK} --transport http {AT}"),
    ),
    *over(
        "markitdown-mcp",
        Call("convert_to_markdown", {"uri": "data:text/plain,hello"}, "hello"),
        stdio=Program("interop/markitdown", "markitdown-mcp"),
        HTTP=Program("interop/markitdown", "markitdown-mcp", f"--http {AT}"),
        SSE=Program("interop/markitdown", "markitdown-mcp", f"--http {AT}"),
    ),
    Candidate(
        "excel-mcp-server",
        "stdio",
        Program("server-excel", "excel-mcp-server", "stdio"),
        Call("create_workbook", {"path": "{folder}/book.xlsx"}, "book.xlsx"),
    ),
    Candidate(
        "excel-mcp-server",
        "HTTP",
        Program("server-excel", "excel-mcp-server", f"streamable-http {AT}"),
        Call("create_workbook", {"path": "served-book.xlsx"}, "book.xlsx"),
    ),
    Candidate(
        "arxiv-mcp-server",
        "stdio",
        Program("interop/arxiv", "arxiv-mcp-server", "--storage-path papers"),
        Call("list_papers", answer="total_papers"),
    ),
    Candidate(
        "awslabs.aws-documentation-mcp-server",
        "stdio",
        Program("interop/aws-documentation", "awslabs.aws-documentation-mcp-server"),
        Call("search_documentation", {"search_phrase": "lambda"}, offline="Error searching AWS docs"),
        NETWORK,
    ),
    Candidate(
        "jupyter-mcp-server",
        "stdio",
        Program("interop/jupyter", "jupyter-mcp-server", f"start --transport stdio {JUPYTER}"),
        Call("list_files", answer="Showing"),
        "beside a Jupyter server of its own",
        beside=Program("interop/jupyter", "jupyter-lab", f"{LAB} --ServerApp.root_dir={{folder}}"),
    ),
    Candidate(
        "mcp-server-calculator",
        "stdio",
        Program("interop/calculator", "mcp-server-calculator"),
        Call("calculate", {"expression": "6 * 7"}, "42"),
    ),
    Candidate(
        "mcp-text-editor",
        "stdio",
        Program("interop/text-editor", "mcp-text-editor"),
        Call(
            "get_text_file_contents",
            {"files": [{"file_path": f"{{folder}}/{FILE}", "ranges": [{"start": 2, "end": 2}]}]},
            TEXT.splitlines()[1],
        ),
        NO_SDK2,
        prepare=with_text,
    ),
    Candidate(
        "mcp-shell-server",
        "stdio",
        Program("interop/shell", "mcp-shell-server"),
        Call("shell_execute", {"command": ["cat", FILE]}, TEXT.splitlines()[0]),
        env={"ALLOW_COMMANDS": "cat"},
        prepare=with_text,
    ),
    Candidate(
        "mcp-alchemy",
        "stdio",
        Program("interop/alchemy", "mcp-alchemy"),
        Call("execute_query", {"query": SUM_OF_TABLE}, "answer: 42"),
        env={"DB_URL": "sqlite:///{folder}/table.db"},
        prepare=with_table,
    ),
    Candidate(
        "office-word-mcp-server",
        "stdio",
        Program("interop/word", "word_mcp_server"),
        Call("create_document", {"filename": "letter.docx", "title": "Hello"}, "letter.docx created"),
    ),
    Candidate(
        "mcp-sympy",
        "stdio",
        Program("interop/sympy", "mcp-sympy"),
        Call("sympy_solve", {"equation": "x**2 - 4", "variables": "x"}, "[-2, 2]"),
    ),
    Candidate(
        "chess-mcp-server",
        "stdio",
        Program("interop/chess", "chess-mcp-server"),
        Call("createGame", {"type": "agent"}, "You are: White"),
    ),
    Candidate(
        "mcp-json-yaml-toml",
        "stdio",
        Program("interop/json-yaml-toml", "mcp-json-yaml-toml"),
        Call("constraint_validate", {"constraint_name": "INT", "value": "forty-two"}, '"valid":false'),
        "its tools for files need `yq`",
    ),
    Candidate(
        "mcp-simple-timeserver",
        "stdio",
        Program("interop/simple-timeserver", "mcp-simple-timeserver"),
        Call(
            "calculate_time_distance",
            {"from_date": "2026-01-01", "to_date": "2026-03-01", "unit": "days"},
            "59.00 days",
        ),
    ),
    Candidate(
        "@bytebase/dbhub",
        "stdio",
        from_npm("@bytebase/dbhub/dist/index.js", "--transport stdio --dsn sqlite://{folder}/table.db"),
        Call("execute_sql", {"sql": SUM_OF_TABLE}, "42"),
        "with Node 22: it does not run on Node 20",
        prepare=with_table,
    ),
    Candidate(
        "@cyanheads/git-mcp-server",
        "stdio",
        from_npm("@cyanheads/git-mcp-server/dist/index.js"),
        Call("git_status", {"path": "{folder}"}, '"currentBranch": "main"'),
        prepare=with_repository,
    ),
    Candidate(
        "@negokaz/excel-mcp-server",
        "stdio",
        from_npm("@negokaz/excel-mcp-server/dist/launcher.js"),
        Call("excel_describe_sheets", {"fileAbsolutePath": "{folder}/book.xlsx"}, "Sales"),
        "written in Go",
        prepare=with_workbook,
    ),
    Candidate(
        "mcp-server-code-runner",
        "stdio",
        from_npm("mcp-server-code-runner/dist/cli.js"),
        Call("run-code", {"code": "console.log(6 * 7)", "languageId": "javascript"}, "42"),
        env={"TMPDIR": "{folder}"},
    ),
    Candidate(
        "mcp-shrimp-task-manager",
        "stdio",
        from_npm("mcp-shrimp-task-manager/dist/index.js"),
        Call("split_tasks", {"updateMode": "append", "tasksRaw": json.dumps([TASK])}, "Interoperability"),
        env={"DATA_DIR": "{folder}/tasks"},
    ),
    Candidate(
        "mcp-sqlite",
        "stdio",
        from_npm("mcp-sqlite/mcp-sqlite-server.js", "{folder}/table.db"),
        Call("query", {"sql": SUM_OF_TABLE}, '"answer": 42'),
        prepare=with_table,
    ),
    *over("mcp-proxy", CONVERT_TIME, "before mcp-server-time", HTTP=PROXY, SSE=PROXY),
    *(
        candidate
        for name, call in EXT_APPS.items()
        for candidate in over(
            f"@modelcontextprotocol/server-{name}",
            call,
            "an MCP App",
            stdio=ext_app(name, "--stdio"),
            HTTP=ext_app(name),
        )
    ),
)

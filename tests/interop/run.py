"""Tries out one server, and all that server-everything has; what comes of it."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from ipymcp import Mcp, McpError, ToolError
from ipymcp.api.servers import ServerTools
from tests.interop.candidates import Candidate, placed_in
from tests.interop.features import FEATURES, SERVER, User

LONGEST = 60


@dataclass(frozen=True)
class Row:
    """The outcome of one server over one transport."""

    candidate: Candidate
    era: str = ""
    tools: int = 0
    resources: int = 0
    templates: int = 0
    prompts: int = 0
    outcome: str = ""
    problem: str = ""
    """Why it is not as it should be; empty if it is."""

    @property
    def was_run(self) -> bool:
        """Whether the machine has what it needs."""
        return not self.candidate.lacks

    def __str__(self) -> str:
        numbers = (self.tools, self.resources, self.templates, self.prompts)
        counts = "{:3} tools {:4} resources {:2} templates {:2} prompts".format(*numbers)
        verdict = f"FAILED: {self.problem}" if self.problem else self.outcome
        return f"{self.candidate.package:<48} {self.candidate.transport:<5} {self.era:<10} {counts}  {verdict}"


def try_out(candidate: Candidate) -> Row:
    """Start a server, load it, count what it has, make its call."""
    if candidate.lacks:
        return Row(candidate, outcome=f"not run: {candidate.lacks}")
    with tempfile.TemporaryDirectory(prefix="ipymcp-interop-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        try:
            with candidate.start(folder) as definition, User(folder).connect(candidate.name, definition) as mcp:
                return _look(candidate, mcp, folder)
        except (McpError, AssertionError) as error:
            return Row(candidate, problem=_shortened(str(error)))


def _look(candidate: Candidate, mcp: Mcp, folder: Path) -> Row:
    server = mcp[candidate.name]
    outcome, problem = _call(candidate, server, folder)
    return Row(
        candidate,
        era=mcp.servers[candidate.name].protocol_version,
        tools=len(server),
        resources=len(server.resources),
        templates=len(server.resources.templates),
        prompts=len(server.prompts),
        outcome=outcome,
        problem=problem,
    )


def _call(candidate: Candidate, server: ServerTools, folder: Path) -> tuple[str, str]:
    """The stable part of the result of the candidate's call, and its fault."""
    arguments = {name: placed_in(folder, value) for name, value in candidate.arguments.items()}
    try:
        outcome, how = server[candidate.tool].call(arguments).text, ""
    except ToolError as error:
        outcome, how = error.result.text, "the tool fails: "
    except McpError as error:
        outcome, how = str(error), "an error: "
    if candidate.offline and candidate.offline in outcome:
        return f"{how}{candidate.offline}", ""
    if candidate.answer not in outcome:
        return "", f"{candidate.tool} answers {_shortened(outcome)!r}, not {candidate.answer!r}"
    return how + (candidate.answer.splitlines()[0] if candidate.answer else "an answer"), ""


def try_features(candidate: Candidate) -> dict[str, str]:
    """Use all that server-everything has, each thing even if another fails: what came of each, by name."""
    outcomes: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="ipymcp-interop-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user = User(folder)
        with candidate.start(folder) as definition, user.connect(SERVER, definition) as mcp:
            for feature in FEATURES:
                try:
                    feature.use(mcp, user)
                except (McpError, AssertionError) as error:
                    outcomes[feature.name] = f"FAILED: {_shortened(str(error))}"
                else:
                    outcomes[feature.name] = "yes"
    return outcomes


def _shortened(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"

"""The arithmetic of the benchmarks, and the server that all contenders call."""

import json
import subprocess
import sys

import pytest

from benchmarks import servers
from benchmarks.contenders import CONTENDERS, ROOT, Contender
from benchmarks.report import median, ratios, table, verdict
from benchmarks.scenarios import Target, scenarios
from benchmarks.workers.floor import Floor

STATELESS = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
SAMPLES = {
    "floor": {0: {"wall_ms": 1.0}, 1: {"wall_ms": 10.0}, 2: {"wall_ms": 2.0}},
    "ours": {0: {"wall_ms": 1.5}, 1: {"wall_ms": 11.0}, 2: {"wall_ms": 2.2}},
    "sdk": {0: {"wall_ms": 4.0}},
}


def ask(method: str, tools: list[dict], **params: object) -> dict:
    request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return json.loads(servers.answer(request, tools))["result"]


def test_a_ratio_is_taken_within_a_round_and_only_where_both_were_measured():
    assert ratios(SAMPLES, "ours", "wall_ms", "floor") == pytest.approx([1.1, 1.1, 1.5])
    assert ratios(SAMPLES, "ours", "wall_ms", "sdk") == pytest.approx([0.375])
    assert median(SAMPLES, "ours", "wall_ms") == 2.2


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target("wall_ms", 1.2, "floor"), "reached"),
        (Target("wall_ms", 1.0, "floor"), "MISSED"),
        (Target("wall_ms", 1.0, "floor", at_least=True), "reached"),
        (Target("wall_ms", 2.0), "MISSED"),
        (Target("wall_ms", 1.0, "fastmcp"), "not measured"),
        (Target("stall_ms", 1.0), "not measured"),
    ],
)
def test_a_target_is_reached_missed_or_not_measured(target: Target, expected: str):
    assert verdict(target, SAMPLES)[1] == expected


def test_a_missing_contender_is_named_with_the_reason():
    call = next(scenario for scenario in scenarios(quick=True) if scenario.name == "call")
    text = table(call, SAMPLES, {"fastmcp": "its environment is not there"})
    assert "| fastmcp                | not measured: its environment is not there |" in text
    lacking = Contender("floor", "floor", "floor", package="no_such_package")
    assert lacking.absence() == "no_such_package is not installed in its environment"


def test_every_scenario_and_target_names_known_contenders():
    for scenario in scenarios(quick=False):
        named = {*scenario.contenders, *(target.who for target in scenario.targets)}
        named |= {target.of for target in scenario.targets if target.of}
        assert named <= CONTENDERS.keys() & {*scenario.contenders}


@pytest.mark.parametrize(("meta", "kind"), [({}, None), (STATELESS, "complete")])
def test_the_light_server_answers_calls_in_both_eras(meta: dict, kind: str | None):
    echoed = ask("tools/call", servers.BASE_TOOLS, name="echo", arguments={"text": "é"}, **meta)
    assert (echoed["content"], echoed.get("resultType")) == ([{"type": "text", "text": "é"}], kind)
    text = ask("tools/call", servers.BASE_TOOLS, name="text", arguments={"megabytes": 1}, **meta)["content"][0]["text"]
    assert 970_000 < len(text) < 1_000_000
    rows = ask("tools/call", servers.BASE_TOOLS, name="rows", arguments={"megabytes": 1}, **meta)["structuredContent"]
    assert rows["rows"][-1]["id"] == 1_000_000 + len(rows["rows"]) - 1


def test_the_light_server_lists_many_tools_by_pages():
    tools = [servers.numbered_tool(number) for number in range(1500)]
    first = ask("tools/list", tools)
    second = ask("tools/list", tools, cursor=first["nextCursor"])
    assert first["tools"] + second["tools"] == tools
    assert "nextCursor" not in second


def test_the_floor_client_and_the_light_server_work_as_a_worker():
    server = f"{sys.executable} -I -S {servers.__file__}"
    lines = f"connect light {server}\nseq 3\nconcurrent 4 2\npayload 1 rows\nservers 2 {server}\nwhat\nquit\n"
    command = [sys.executable, "-m", Floor.__module__]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, check=True, timeout=60)
    *samples, refused = map(json.loads, done.stdout.splitlines())
    assert len(samples) == 5
    assert all(sample["wall_ms"] > 0 for sample in samples)
    assert refused == {"error": "ValueError: unknown command 'what'"}

"""What asking through ipymcp adds to a round of its driver's: the same scripted model and function, with and without.

.envs/models/bin/python -m benchmarks.ask_round       (tests/environments.py models makes that environment)

Alternately, eight times: an agent of pydantic-ai with a plain function as its tool, and `mcp.ask` with that function
beside the demo server's tools. A round is one request to the model and one call. Medians, in milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

ROUNDS = 50
TURNS = 8
MOST = 5.0


def twice(number: int) -> int:
    """Double a number."""
    return 2 * number


def model() -> Any:
    """Calls the function so often, then says that it is done."""
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        is_over = len(messages) > 2 * ROUNDS
        return ModelResponse(parts=[TextPart("Done.") if is_over else ToolCallPart("twice", {"number": 2})])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        if len(messages) > 2 * ROUNDS:
            yield "Done."
        else:
            yield {0: DeltaToolCall("twice", '{"number": 2}', tool_call_id=f"c{len(messages)}")}

    return FunctionModel(answer, stream_function=stream)


def alone() -> None:
    """pydantic-ai by itself, its events read as the driver reads them."""
    from pydantic_ai import Agent
    from pydantic_ai.usage import UsageLimits

    async def main() -> None:
        agent = Agent(model(), tools=[twice])
        async with agent.run_stream_events("go", usage_limits=UsageLimits(request_limit=None)) as events:
            async for _ in events:
                pass

    asyncio.run(main())


def per_round(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) / (ROUNDS + 1) * 1e3


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYMCP_STATE_DIR"] = folder
        import ipymcp
        from ipymcp.llm.backend import Limits

        with ipymcp.connect("demo") as mcp:
            tools = mcp.tools + [twice]  # noqa: RUF005 - no list

            def ours() -> None:
                answer = mcp.ask("go", model=model(), tools=tools, limits=Limits(rounds=1_000, calls=1_000))
                assert len(answer.calls) == ROUNDS, answer

            alone(), ours()
            found = [(per_round(alone), per_round(ours)) for _ in range(TURNS)]
    without, with_ours = (statistics.median(column) for column in zip(*found, strict=True))
    load = os.getloadavg()[0]
    print(
        f"a round: {without:.2f} ms alone, {with_ours:.2f} ms with ipymcp; {TURNS} turns of {ROUNDS}, load {load:.1f}"
    )
    print(f"added: {with_ours - without:.2f} ms (at most {MOST})")
    return with_ours - without > MOST


if __name__ == "__main__":
    sys.exit(main())

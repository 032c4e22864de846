"""The time that an answer of a model may take."""

import asyncio
from collections.abc import Iterator

import pytest

from ipymcp.errors import McpError
from ipymcp.llm.backend import Clock
from ipymcp.runtime.loop import BackgroundLoop

SHORT, LONG = 0.05, 0.3


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("clocked")
    yield loop
    loop.stop()


async def longer(clock: Clock, pauses: int, resumes: int) -> str:
    """An answer that takes longer than the clock gives it, and meanwhile asks the user something."""
    for _ in range(pauses):
        clock.pause()
    await asyncio.sleep(LONG)
    for _ in range(resumes):
        clock.resume()
    return "done"


def test_an_answer_that_takes_too_long_is_an_error(loop: BackgroundLoop) -> None:
    clock = Clock(loop, SHORT)
    with pytest.raises(McpError, match=r"(?m)^no answer within 0\.05 s$"):
        asyncio.run(clock.run(longer(clock, 0, 0)))


def test_the_clock_pauses_while_the_user_is_asked(loop: BackgroundLoop) -> None:
    clock = Clock(loop, SHORT)
    assert asyncio.run(clock.run(longer(clock, 1, 1))) == "done"


def test_the_clock_resumes_after_the_last_of_several_questions(loop: BackgroundLoop) -> None:
    clock = Clock(loop, SHORT)

    async def twice() -> str:
        await longer(clock, 2, 1)
        await longer(clock, 0, 1)
        return await longer(clock, 0, 0)

    with pytest.raises(McpError, match="no answer within"):
        asyncio.run(clock.run(twice()))

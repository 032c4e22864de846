"""Questions go to the waiting call, else to the caller that has waited longest, else nowhere."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from ipymcp.interaction.questions import Question, QuestionKind, Show
from ipymcp.panel.cell_forms import CellForm, CellForms
from ipymcp.runtime.loop import BackgroundLoop
from ipymcp.runtime.question_routing import CallerGone, QuestionRouter
from ipymcp.runtime.waiting import Waiter, WaitingCaller
from tests.unit.scripted_interface import ScriptedInterface

if TYPE_CHECKING:
    from ipymcp.panel.panel import Panel


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("ipymcp-test")
    yield loop
    loop.stop()


@pytest.fixture
def router(loop: BackgroundLoop) -> QuestionRouter:
    router = QuestionRouter(loop.callers)
    router.terminal = ScriptedInterface
    return router


class Waiting:
    """A thread that waits until the end of the context."""

    def __init__(self, loop: BackgroundLoop, subject: object = None) -> None:
        self._waiter = Waiter()
        self._entered = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(loop, subject))

    def __enter__(self) -> threading.Thread:
        self.thread.start()
        self._entered.wait()
        return self.thread

    def __exit__(self, *_: object) -> None:
        self._waiter.put(Waiter.DONE)
        self.thread.join()

    def _run(self, loop: BackgroundLoop, subject: object) -> None:
        self._waiter.callers, self._waiter.subject = loop.callers, subject
        with self._waiter:
            self._entered.set()
            self._waiter.wait()


class Run(Question[Any], frozen=True):
    """A question whose answer is what a function returns where it is asked."""

    kind: ClassVar[QuestionKind] = "form"
    function: Callable[[], Any]

    def ask(self, show: Show) -> Any:
        return self.function()


HERE = Run(threading.current_thread)


def test_no_one_is_asked_without_a_waiting_caller(loop: BackgroundLoop, router: QuestionRouter) -> None:
    future = asyncio.run_coroutine_threadsafe(router.ask(HERE), loop.loop)
    assert future.result(10) is None


def test_no_one_is_asked_if_no_one_can_answer(loop: BackgroundLoop, router: QuestionRouter) -> None:
    router.terminal = lambda: ScriptedInterface(present=False)
    assert loop.run(router.ask(HERE)) is None
    router.terminal = None
    assert loop.run(router.ask(HERE)) is None


def test_a_call_is_asked_where_it_waits(loop: BackgroundLoop, router: QuestionRouter) -> None:
    call = object()
    with Waiting(loop), Waiting(loop, call) as own:
        assert loop.run(router.ask(HERE, call)) is own


def test_a_question_without_a_call_goes_to_the_main_thread_or_else_to_the_longest_waiting(
    loop: BackgroundLoop, router: QuestionRouter
) -> None:
    with Waiting(loop) as first, Waiting(loop):
        assert loop.run(router.ask(HERE)) is threading.main_thread()
        future = asyncio.run_coroutine_threadsafe(router.ask(HERE, object()), loop.loop)
        assert future.result(10) is first


def test_a_thread_with_nested_waits_is_asked_in_the_inner_one(loop: BackgroundLoop, router: QuestionRouter) -> None:
    with Waiter(loop.callers):  # in the midst of which it runs something that asks
        assert loop.run(router.ask(HERE)) is threading.main_thread()


def test_a_question_is_cancelled_when_the_waiting_ends_before_it_is_asked(
    loop: BackgroundLoop, router: QuestionRouter
) -> None:
    waiter, entered = Waiter(loop.callers), threading.Event()
    with waiter:
        future = asyncio.run_coroutine_threadsafe(router.ask(HERE), loop.loop)
        loop.call(entered.set)
        entered.wait()
    assert future.result(10) is None


def test_one_question_is_asked_at_a_time(loop: BackgroundLoop, router: QuestionRouter) -> None:
    busy = threading.Lock()

    def alone() -> bool:
        taken = busy.acquire(blocking=False)
        threading.Event().wait(0.01)
        if taken:
            busy.release()
        return taken

    async def all_at_once() -> list[bool | None]:
        return await asyncio.gather(*(router.ask(Run(alone), object()) for _ in range(6)))

    with Waiting(loop), Waiting(loop), Waiting(loop):
        assert asyncio.run_coroutine_threadsafe(all_at_once(), loop.loop).result(10) == [True] * 6


def test_a_question_that_is_no_longer_needed_is_not_asked(loop: BackgroundLoop, router: QuestionRouter) -> None:
    assert loop.run(router.ask(HERE, is_current=lambda: False)) is None


class Interrupted:
    """Forms whose drawing the user has interrupted."""

    async def draw(self, kind: QuestionKind, caller: WaitingCaller) -> None:
        raise CallerGone


def test_a_user_who_interrupts_the_drawing_of_a_form_is_not_asked_at_a_prompt(
    loop: BackgroundLoop, router: QuestionRouter
) -> None:
    router.cell_forms = Interrupted()
    assert loop.run(router.ask(HERE)) is None


def test_a_question_that_is_withdrawn_while_its_form_is_displayed_leaves_no_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    posted: list[Callable[[], object]] = []
    shown: list[str] = []

    def post(task: Callable[[], object], _: object) -> None:
        posted.append(task)

    def always(*_: object) -> bool:
        return True

    def show(_: CellForm) -> None:
        shown.append("form")

    def end(_: CellForm) -> None:
        shown.clear()

    monkeypatch.setattr(CellForms, "_may_be_seen", always)
    monkeypatch.setattr(CellForm, "show", show)
    monkeypatch.setattr(CellForm, "end", end)
    caller: Any = SimpleNamespace(post=post, is_blocked=False)
    forms = CellForms(SimpleNamespace(display_pub=None), lambda: cast("Panel", None))

    async def withdraw() -> None:
        drawing = asyncio.ensure_future(forms.draw("form", caller))
        await asyncio.sleep(0)
        [display] = posted
        display()  # the cell shows it, and is interrupted at once
        assert shown
        drawing.cancel()
        await asyncio.wait([drawing])
        assert drawing.cancelled()
        await asyncio.sleep(0)

    asyncio.run(withdraw())
    assert not shown


def test_an_error_while_asking_reaches_the_caller(loop: BackgroundLoop, router: QuestionRouter) -> None:
    def fail() -> None:
        raise KeyError("no such widget")

    with pytest.raises(KeyError, match="no such widget"):
        loop.run(router.ask(Run(fail)))


def test_a_task_that_awaits_is_asked_on_its_own_loop(loop: BackgroundLoop, router: QuestionRouter) -> None:
    async def cell() -> tuple[threading.Thread | None, bool]:
        own = asyncio.get_running_loop()
        return await loop.arun(router.ask(Run(lambda: (threading.current_thread(), asyncio.get_running_loop() is own))))

    assert asyncio.run(cell()) == (threading.main_thread(), True)


def test_an_interrupt_of_a_question_in_an_awaiting_task_cancels_the_task_and_not_the_loop(
    loop: BackgroundLoop, router: QuestionRouter
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    async def cell() -> str:
        task = asyncio.ensure_future(loop.arun(router.ask(Run(interrupt))))
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "answered"

    assert asyncio.run(cell()) == "cancelled"

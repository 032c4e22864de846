"""The kernel driver itself, against the three kernels."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests import processes
from tests.conftest import StartKernel
from tests.kernels import KERNELS, Kernel, KernelDied

every_kernel = pytest.mark.kernels(*KERNELS)


@every_kernel
def test_the_versions_are_those_the_name_promises(kernel: Kernel, kernel_name: str) -> None:
    versions = "import ipykernel, IPython; print(ipykernel.__version__, IPython.__version__)"
    ipykernel, ipython = kernel.run(versions).stdout.split()

    promised = {"kernel-7": ("7.", ""), "kernel-6": ("6.", "8."), "kernel-colab": ("6.17.1", "7.34.0")}[kernel_name]
    assert (ipykernel[: len(promised[0])], ipython[: len(promised[1])]) == promised


@every_kernel
def test_ipymcp_can_be_imported(kernel: Kernel) -> None:
    outcome = kernel.run("import ipymcp; ipymcp.__name__")

    assert (outcome.status, outcome.text) == ("ok", "'ipymcp'")


@every_kernel
def test_output_and_result_come_back(kernel: Kernel) -> None:
    outcome = kernel.run(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\n"
        "handle = display({'text/plain': 'old'}, raw=True, display_id=True)\n"
        "handle.update({'text/plain': 'new'}, raw=True)\n6 * 7"
    )

    assert outcome.status == "ok"
    assert outcome.execution_count == 1
    assert (outcome.stdout, outcome.stderr, outcome.text) == ("out\n", "err\n", "42")
    assert outcome.displays == [{"text/plain": "new"}]


@every_kernel
def test_an_error_comes_back_with_its_traceback(kernel: Kernel) -> None:
    outcome = kernel.run("1 / 0")

    assert outcome.status == "error"
    assert outcome.error is not None
    assert (outcome.error.ename, outcome.error.evalue) == ("ZeroDivisionError", "division by zero")
    assert "----> 1 1 / 0" in outcome.error.traceback


@every_kernel
def test_an_interrupt_ends_the_running_cell_and_the_next_one_works(kernel: Kernel) -> None:
    cell = kernel.start("import time\nprint('running', flush=True)\ntime.sleep(60)")
    cell.wait_for_output("running")
    kernel.interrupt()
    outcome = cell.wait(timeout=10)

    assert outcome.error is not None
    assert outcome.error.ename == "KeyboardInterrupt"
    assert kernel.run("'next'").text == "'next'"


@every_kernel
def test_completion_and_inspection_answer(kernel: Kernel) -> None:
    kernel.run("def greet(name):\n    'Say hello.'")

    completion = kernel.complete("gre + 1", 3)
    assert "greet" in completion.matches
    assert (completion.start, completion.end) == (0, 3)
    assert "Say hello." in (kernel.inspect("greet") or "")
    assert kernel.inspect("nothing_of_that_name") is None
    assert "Say hello." in kernel.run("greet?").pager


@every_kernel
def test_a_prompt_is_answered_where_somebody_can(kernel: Kernel) -> None:
    answered = kernel.run("input('Name? ')", answers=["Ada"])
    assert (answered.prompts, answered.text) == (["Name? "], "'Ada'")

    unanswered = kernel.run("input('Name? ')")
    assert unanswered.error is not None
    assert unanswered.error.ename == "StdinNotImplementedError"


def test_cleared_output_is_gone(kernel: Kernel) -> None:
    outcome = kernel.run(
        "from IPython.display import clear_output\nprint('old')\nclear_output(wait=True)\nprint('new')\n"
    )

    assert outcome.stdout == "new\n"


def test_the_home_folder_and_the_settings_are_the_tests_own(kernel: Kernel) -> None:
    code = "import os, pathlib; print(pathlib.Path.home(), os.environ['IPYTHONDIR'], os.getcwd(), sep='\\n')"
    home, ipython, working = kernel.run(code).stdout.splitlines()

    assert [Path(home), Path(ipython), Path(working)] == [
        kernel.folder / "home",
        kernel.folder / "ipython",
        kernel.folder,
    ]


def test_a_cell_that_is_not_done_in_time_says_what_it_had_come_to(kernel: Kernel) -> None:
    cell = kernel.start("import threading\nprint('running')\nthreading.Event().wait()")
    cell.wait_for_output("running")

    with pytest.raises(TimeoutError, match=r"not within 0\.1 s: .*running"):
        cell.wait(timeout=0.1)
    kernel.interrupt()


def test_a_kernel_that_dies_is_noticed(kernel: Kernel) -> None:
    with pytest.raises(KernelDied, match="kernel-7 ended"):
        kernel.run("import os; os._exit(3)")


def test_a_kernel_that_does_not_start_says_what_it_wrote(start_kernel: StartKernel) -> None:
    with pytest.raises(KernelDied, match=r"(?s)kernel-7 does not answer: .*No module named 'encodings'"):
        start_kernel(env={"PYTHONHOME": "/nowhere"})


def test_a_restarted_kernel_is_another_process(kernel: Kernel) -> None:
    kernel.run("x = 1")
    first = psutil.Process(kernel.pid)
    kernel.restart(now=True)

    assert kernel.pid != first.pid
    assert not processes.is_alive(first)
    assert kernel.run("x").error is not None


@every_kernel
@pytest.mark.parametrize("now", [False, True], ids=["in good order", "at once"])
def test_a_kernel_that_was_shut_down_is_gone(kernel: Kernel, now: bool) -> None:
    process = psutil.Process(kernel.pid)
    kernel.shutdown(now=now)

    assert not processes.is_alive(process)


def test_processes_that_a_kernel_leaves_behind_are_found_and_killed(start_kernel: StartKernel) -> None:
    kernel = start_kernel()
    code = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"
    orphan = psutil.Process(int(kernel.run(code).stdout))
    process = psutil.Process(kernel.pid)
    process.kill()
    processes.wait_until_gone([process])

    with pytest.raises(
        AssertionError, match=rf"group {orphan.pid} not gone within 0\.1 s: \['{orphan.pid} sleep 60'\]"
    ):
        processes.wait_until_group_gone(orphan.pid, within=0.1)
    processes.wait_until_group_gone(orphan.pid)

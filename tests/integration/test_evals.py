"""The evaluation in the documentation, with pydantic-evals itself, in a real kernel."""

import re

from tests.asking import asked, asking_kernel
from tests.conftest import StartKernel
from tests.environments import ROOT


def test_the_documented_evaluation_scores_answers_and_is_repeated_from_a_recording(
    start_kernel: StartKernel, models: str
) -> None:
    kernel = asking_kernel(start_kernel, models)
    kernel.run("%config IPyMCP.model = 'openai-chat:gpt-4o'\n%config IPyMCP.replay = 'auto'")
    page = (ROOT / "docs" / "how-to" / "evals.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    code = code.replace("Say hey with the echo tool.", 'demo__echo({\\"text\\": \\"hey\\"})')
    scores = (
        "for case in report.cases:\n    print(case.name, [(n, r.value) for n, r in case.assertions.items()],"
        " case.scores['calls'].value, case.output.is_replayed)"
    )

    outcome = kernel.run(f"{code}\n{scores}")
    first = outcome.stdout.splitlines()[-2:]
    count = len(asked(models))
    again = kernel.run(f"{code}\n{scores}").stdout.splitlines()[-2:]

    assert first == [
        "echo [('Says', True), ('calls demo.echo', True)] 1 False",
        "heaviest [('Says', False), ('calls demo.echo', False)] 0 False",
    ], outcome
    assert again == [f"{line.removesuffix('False')}True" for line in first]
    assert len(asked(models)) == count, "nothing was sent"

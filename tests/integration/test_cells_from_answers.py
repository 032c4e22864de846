"""The code of a model's answer as cells: what an answer offers, in a real kernel."""

from typing import Any

import pytest

from tests.asking import ask, ask_line, shown
from tests.kernels import Kernel, Outcome

CODE = "application/vnd.ipymcp.code+json"
BLOCKS = "Try:\n\n```python\nx = 1\n```\n\nor in a shell:\n\n```bash\nls\n```\n\nand then\n\n```py\nx + 1\n```"


@pytest.fixture
def kernel(asking: Kernel) -> Kernel:
    return asking


def asked_in_cell(kernel: Kernel, text: str, options: str = "") -> Outcome:
    return kernel.run(f"%{ask_line(kernel, '', options=options)}\n{text}")


def offers(outcome: Outcome) -> list[Any]:
    return [display.get(CODE) for display in outcome.displays]


def test_the_code_of_an_answer_is_its_python_blocks(kernel: Kernel) -> None:
    outcome = asked_in_cell(kernel, BLOCKS, "--out answer")

    assert kernel.run("answer.code").result == {"text/plain": repr("x = 1\n\nx + 1")}
    assert offers(outcome) == [None, {}, None], "the text offers its blocks, once it is complete"
    asked_in_cell(kernel, "no code", "--out other")
    assert kernel.run("other.code").result == {"text/plain": "''"}
    assert CODE in (kernel.run("answer").result or {})
    assert CODE not in (kernel.run("other").result or {})


def test_cell_puts_the_code_into_the_next_cell(kernel: Kernel) -> None:
    outcome = asked_in_cell(kernel, BLOCKS, "--cell")

    assert outcome.payload == [{"source": "set_next_input", "text": "x = 1\n\nx + 1", "replace": False}]
    assert kernel.run("x").error is not None, "it is never run"
    none = asked_in_cell(kernel, "no code", "--cell")
    assert none.payload == []
    assert "the answer has no Python block, so --cell added no cell" in none.stderr


def test_a_call_offers_the_line_that_makes_it(kernel: Kernel) -> None:
    outcome = ask(kernel, 'demo__echo({"text": "it\'s"}) demo__nope({"a": 1})', "tools")

    (offer,) = [each for each in offers(outcome) if each is not None]
    assert offer == {"code": 'mcp.demo.echo(text="it\'s")'}
    assert kernel.run(f"str({offer['code']})").text == repr("it's")
    kernel.run("mcp_, mcp = mcp, None")
    outcome = ask(kernel, 'demo__echo({"text": "x"})', "tools")
    assert [each["code"] for each in offers(outcome) if each] == ["mcp_.demo.echo(text='x')"]


def test_a_call_of_a_denied_tool_offers_nothing_and_secrets_stay_masked(kernel: Kernel) -> None:
    kernel.run("%mcp policy deny demo.echo")
    assert not any(offers(ask(kernel, 'demo__echo({"text": "x"})', "tools")))
    kernel.run("%mcp policy allow demo.echo\nfrom ipymcp.masking import masks; masks.add('s3cretvalue')")
    outcome = ask(kernel, 'demo__echo({"text": "s3cretvalue"})', "tools")
    assert "s3cretvalue" not in str(offers(outcome))


def test_without_a_page_the_notebook_tools_say_why_and_are_only_declared_if_named(kernel: Kernel) -> None:
    calls = 'read_cells({}) edit_cell({"cell": "a", "version": "b", "source": "c"})'
    outcome = ask(kernel, calls, "tools", "--tools notebook")

    assert shown(outcome)[0].startswith("tools · 3 tools of notebook, about ")
    answer = next(text for text in shown(outcome) if text.startswith("They answered"))
    assert answer.count("no page of JupyterLab or Notebook 7 is connected") == 2
    names = "[each for each in mcp.tools.model_names if 'cell' in each]"
    assert kernel.run(names).text == "[]"
    assert kernel.run("mcp.tools('notebook', 'demo.echo', '!notebook.edit_*').names").text == str(
        ["demo.echo", "notebook.read_cells", "notebook.insert_cell"]
    )
    assert kernel.run("mcp.tools('demo')('notebook').names").text == "[]", "a narrower selection has no more"
    schema = kernel.run("mcp.tools('notebook.insert_cell').to_openai()[0]['function']['parameters']['properties']").text
    assert "'code', 'markdown', 'raw'" in (schema or "")

"""The completion context at the cursor."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ipymcp.notebook.completion import AttributeContext, LineContext, Step, context_at


def line(text: str) -> LineContext:
    context = context_at(text)
    assert isinstance(context, LineContext)
    assert text[context.start :] == context.partial
    return context


def code(text: str, namespace: str = "mcp") -> AttributeContext:
    context = context_at(text, namespace=namespace)
    assert isinstance(context, AttributeContext)
    assert text[context.start :] == context.partial
    return context


def shown(path: tuple[Step, ...]) -> str:
    return "".join(f"[{step.name}]" if step.item else f".{step.name}{'()' if step.called else ''}" for step in path)


TYPED = {
    "word": (
        *("%mcp |", "%mcp |lo", "x = 1\n  %mcp |lo", "r = %mcp |ca", "d['k'] = %mcp |ca", "%%mcp |ca"),
        *("%mcp help |lo",),
    ),
    "server": ("%mcp restart fs |gi", "%mcp logs fs -n 5 |", "%mcp start |f", "%mcp history --server=|f"),
    "loadable": ("%mcp load |fs", "%mcp load |./ser", "%mcp load ./a.json |fs"),
    "folder": ("%mcp load --cwd |da",),
    "file": ("%mcp load x -- uvx |mc", "%mcp stubs |x"),
    "option-value": ("%mcp load --era |le", "%mcp load --era=|le"),
    "option": ("%mcp load fs |--tr", "%mcp load fs |--", "%mcp trust revoke |--a"),
    "configured": ("%mcp config explain |f", "%mcp config --project update |f", "%mcp config export vscode |f"),
    "setting": ("%mcp config update fs |ti",),
    "source-host": ("%mcp config import |vs",),
    "secret": ("%mcp secret set |to",),
    "trusted": ("%mcp trust revoke |f",),
    "tool": (
        *("%mcp policy deny --always |fs.re", "%mcp pins |fs.re", "%mcp call |fs.re", "%mcp call --timeout 5 |fs.re"),
        *("%%mcp call --out x |fs.re", "%mcp tools fs.* !|git.wr"),
    ),
    "tool-name": ("%mcp history --tool |re",),
    "call": ("%mcp cancel |1",),
    "argument": ("%mcp call fs.read |pa", "%mcp call fs.read path=a |", "%mcp call fs.read \\\n  |pa"),
    "value": ("%mcp call fs.read path=|da", "%mcp call fs.read path='|da ta", "%mcp call fs.read ids=|[1, 2"),
}
"""Lines by the kind of the word at their end, which begins at the bar."""


@pytest.mark.parametrize(("kind", "marked"), [(kind, line) for kind, lines in TYPED.items() for line in lines])
def test_the_word_at_the_cursor_of_a_line_has_a_kind(kind: str, marked: str) -> None:
    before, _, partial = marked.partition("|")
    context = line(before + partial)
    assert (context.kind, context.partial) == (kind, partial)


def test_a_call_names_its_tool_its_arguments_and_the_open_quote() -> None:
    text = "r = %mcp call --timeout 5 fs.read-file path='a b' head=5 mode=\"re"
    assert replace(line(text), options=()) == LineContext(
        kind="value",
        partial="re",
        start=len(text) - 2,
        subcommand="call",
        tool="fs.read-file",
        argument="mode",
        given=(("path", "a b"), ("head", "5")),
        quote='"',
    )
    assert line("%mcp load --era le").argument == "--era"


@pytest.mark.parametrize(
    "text",
    [
        "%mcp", "%mcpx lo", "%time lo", "%mcp call fs.read path='a'", "%mcp call fs.read # pa",
        '%mcp call fs.read {"pa', "%mcp nonsense a", "%mcp secret list a", "%mcp config add fs",
        "%mcp config update fs timeout=6", "%%mcp call fs.read\n{'a': mcp.", "x = 1\n%%mcp call fs.re", "%mcp a=b",
    ],
)  # fmt: skip
def test_other_lines_have_no_context(text: str) -> None:
    assert context_at(text) is None


@pytest.mark.parametrize(
    ("text", "kind", "path", "partial"),
    [
        ("mcp.", "attribute", "", ""),
        ("mcp.f", "attribute", "", "f"),
        ("x = mcp.fs.re", "attribute", ".fs", "re"),
        ("print(1, mcp.fs.re", "attribute", ".fs", "re"),
        ('mcp["f s"].', "attribute", "[f s]", ""),
        ("mcp.servers['fs'].lo", "attribute", ".servers[fs]", "lo"),
        ("(mcp\n  .fs\n  .re", "attribute", ".fs", "re"),
        ("mcp.fs.f.options(timeout=(1, 2)).a", "attribute", ".fs.f", "a"),
        ("%mcp call a.b q=it's (\nmcp.fs.re", "attribute", ".fs", "re"),
        ("# it's\nmcp.fs.re", "attribute", ".fs", "re"),
        ("s = 'abc\nmcp.fs.re", "attribute", ".fs", "re"),
        ('"""doc\'s"""\nmcp.fs.re', "attribute", ".fs", "re"),
        ("mcp[ 'f", "key", "", "f"),
        ('mcp.fs["re', "key", ".fs", "re"),
        ('mcp.servers["', "key", ".servers", ""),
        ("mcp.fs.read_file(", "argument", ".fs.read_file", ""),
        ("mcp.fs.read_file(pa", "argument", ".fs.read_file", "pa"),
        ("await mcp.fs.read_file.aio(pa", "argument", ".fs.read_file.aio", "pa"),
        ("mcp['fs']['read-file'](pa", "argument", "[fs][read-file]", "pa"),
        ("mcp.fs.f.options(timeout=5)(pa", "argument", ".fs.f", "pa"),
        ("mcp.fs.f.options(ti", "argument", ".fs.f.options", "ti"),
        ("mcp.fs.f(mode='re", "value", ".fs.f", "re"),
        ("mcp.fs.f(mode = re", "value", ".fs.f", "re"),
        ('mcp.fs.f("re', "value", ".fs.f", "re"),
        ("mcp.fs.f(x=mcp.git.l", "attribute", ".git", "l"),
        ("mcp.fs.f(1).", "attribute", ".fs.f()", ""),
        ("mcp.fs['f'].submit().re", "attribute", ".fs[f].submit()", "re"),
    ],
)
def test_the_word_at_the_cursor_of_code_has_a_kind_and_a_path(text: str, kind: str, path: str, partial: str) -> None:
    context = code(text)
    assert (context.kind, shown(context.path), context.partial) == (kind, path, partial)


def test_the_arguments_of_a_call_are_read_across_lines_brackets_strings_and_comments() -> None:
    context = code(
        "async def f():\n    return await mcp.fs.f.aio(\n        'a, (b', g([1, 2], x=3),  # one, two=\n"
        "        head={'k': ')'}, *more, **rest, mode='re"
    )
    assert context.path == (Step("fs"), Step("f"), Step("aio"))
    assert (context.kind, context.argument, context.quote) == ("value", "mode", "'")
    assert (context.given, context.positional) == (("head",), 2)


def test_a_comparison_is_not_a_keyword() -> None:
    assert code("mcp.fs.f(a == b, pa").given == ()


def test_the_namespace_may_have_another_name() -> None:
    assert shown(code("tools.fs.re", "tools").path) == ".fs"
    assert context_at("mcp.fs.re", namespace="tools") is None


@pytest.mark.parametrize(
    "text",
    [
        "", "mcp", "mcp(", "xmcp.fs.", "a.mcp.fs.", "f().mcp.", "mcp().fs.", "mcp[i].", "mcp.fs.f().a().te",
        "mcp.fs.f()(te", "# mcp.fs.re", "'mcp.fs.re", "'''\nmcp.fs.re", "mcp.fs.f(a + 'x", "mcp.fs.f(a + b",
        "mcp.fs.f(['x", "mcp.fs.f(5", "x = {'a", "mcp['''f", ")]}", "f(1).",
    ],
)  # fmt: skip
def test_other_code_has_no_context(text: str) -> None:
    assert context_at(text) is None


pieces = st.lists(
    st.sampled_from(
        ["mcp", ".", "fs", "[", "]", "(", ")", "'", '"', '"""', "\\", "\n", "=", ",", " ", "#", "%", "%%mcp ", "%mcp ",
         "call", "a=", "-", "--", "{", "}", "é", "5", ";", "options", "\x00"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


@given(pieces)
def test_any_text_has_a_context_or_none_and_never_an_error(text: str) -> None:
    context = context_at(text)
    if context is not None:
        assert text[context.start :] == context.partial


def test_a_long_cell_is_read_quickly_and_only_its_end_matters() -> None:
    statement = "rows = [f(x, 'it', y=\"z\") for x in range(10)]  # it's so\n"
    cell = statement * (10_000 // len(statement)) + "await mcp.fs.f.aio(rows, mo"

    def seconds() -> float:
        began = time.process_time()
        assert code(cell).positional == 1
        return time.process_time() - began

    # measured: 1.2 ms, a fifth of this cell being brackets, commas and strings; real code 0.5 ms
    assert min(seconds() for _ in range(20)) < 0.005
    assert code(statement * 2_000 + "mcp.fs.re").partial == "re"

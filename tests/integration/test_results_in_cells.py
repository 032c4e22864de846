"""Outputs of cells: results by their type, progress, servers while they load."""

import base64
import json
import sys
from collections.abc import Iterator

import pytest

from tests.environments import server_command
from tests.integration.notebooks import done, error, opened, text
from tests.kernels import Bundle, Kernel


@pytest.fixture(scope="module")
def kernel(kernel_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("results")
    (folder / "files").mkdir()
    servers = {
        "everything": server_command("everything"),
        "sdk": server_command("sdk2"),
        "files": server_command("filesystem", str(folder / "files")),
    }
    with opened(kernel_name, folder, servers, cold=True) as kernel:
        yield kernel


def shown(kernel: Kernel, cell: str) -> Bundle:
    result = done(kernel, cell).result
    assert result is not None
    return result


def test_text_is_text(kernel: Kernel) -> None:
    two_lines = shown(kernel, "mcp.demo.echo('two\\nlines')")
    assert two_lines["text/plain"] == "ToolResult demo.echo:\ntwo\nlines"
    assert ">two\nlines</pre>" in two_lines["text/html"]
    assert shown(kernel, "mcp.sdk.add(1, 2)")["text/plain"] == "ToolResult sdk.add: 3"


def test_the_file_servers_answers_are_read_as_the_text_they_are(kernel: Kernel) -> None:
    folder = kernel.folder / "files"
    done(kernel, f"path = {str(folder / 'a.txt')!r}")
    written = shown(kernel, "mcp.files.write_file(path, 'one\\n  two\\n')")
    assert written["text/plain"].startswith("ToolResult files.write_file: Successfully wrote to ")

    read = shown(kernel, "mcp.files.read_text_file(path)")
    listed = shown(kernel, f"mcp.files.list_directory({str(folder)!r})")
    tree = shown(kernel, f"mcp.files.directory_tree({str(folder)!r})")

    assert all(set(bundle) == {"text/plain", "text/html"} for bundle in (written, read, listed, tree))
    assert ">one\n  two\n</pre>" in read["text/html"]
    assert listed["text/plain"] == "ToolResult files.list_directory: [FILE] a.txt"
    assert tree["text/plain"] == "ToolResult files.directory_tree:\nname   type\na.txt  file"


def test_the_result_of_one_cell_is_an_argument_of_the_next(kernel: Kernel) -> None:
    path = str(kernel.folder / "files" / "b.txt")
    done(
        kernel, f"path = {path!r}\nmcp.files.write_file(path, mcp.demo.echo('one'))\nr = mcp.files.read_text_file(path)"
    )
    assert shown(kernel, "%mcp call demo.echo text=$r")["text/plain"] == "ToolResult demo.echo: one"

    done(kernel, "mcp.files.edit_file(path, {'oldText': r, 'newText': 'two'})")
    done(kernel, "import pandas as pd\nedits = pd.DataFrame({'oldText': ['two'], 'newText': ['three']})")
    done(kernel, "%mcp call files.edit_file path=$path edits=$edits")
    assert kernel.value("mcp.files.read_text_file(path).text") == "three"

    done(kernel, "trip = mcp.sdk.travel({'name': 'a', 'points': {'x': 3, 'y': 4}})")
    assert kernel.value("mcp.sdk.travel({'name': r, 'points': trip['stops']}).data['stops'][0]['x']") == 3


def test_the_members_of_a_list_of_objects_are_shown_by_help_and_errors(kernel: Kernel) -> None:
    helped = kernel.inspect("mcp.files.edit_file") or ""
    assert "edits[].oldText (str): Text to search for - must match exactly." in helped
    members = "edits: list[{'oldText': str, 'newText': str}]"
    for cell in ("mcp.files.edit_file('a', {})", "%mcp call files.edit_file path=a edits={}"):
        assert error(kernel, cell)[0] == "ArgumentError: files.edit_file: edits[0]: 'oldText', 'newText' are missing"
        assert error(kernel, cell)[1].strip().startswith(members)
    for value, problem in (("{'a': {1}}", "route.a: is of type set"), ("{'a': float('nan')}", "route.a: is nan")):
        shown_error = error(kernel, f"mcp.sdk.travel({value})")
        assert shown_error[0].startswith(f"ArgumentError: sdk.travel: {problem}") and "dict" not in shown_error[1]
    for_all = error(kernel, "mcp.sdk.travel({'speed': 5})")[1].strip()
    assert for_all.startswith("pass a dict of all arguments as mcp.sdk.travel.call({…}), or mcp.sdk.travel(**{…})")


def test_markdown_is_drawn_with_nothing_that_runs_or_fetches(kernel: Kernel) -> None:
    bundle = shown(kernel, "mcp.demo.echo('# Head\\n<script>x</script> ![p](https://e.org/p.png) [a](javascript:b)')")

    assert set(bundle) == {"text/markdown", "text/plain"}
    assert bundle["text/markdown"].startswith("# Head\n")
    assert "<script>" not in bundle["text/markdown"] and "![" not in bundle["text/markdown"]
    assert "javascript:" not in bundle["text/markdown"]


def test_data_is_json_and_records_are_a_table(kernel: Kernel) -> None:
    numbers = shown(kernel, "mcp.sdk.numbers(count=3)")
    assert ">[0, 1, 2]</pre>" in numbers["text/html"]
    assert numbers["text/plain"] == "ToolResult sdk.numbers: [0, 1, 2]"
    table = shown(kernel, "mcp.demo.query('penguins', limit=1)")
    assert set(table) == {"text/html", "text/plain"}
    assert ">Torgersen</td>" in table["text/html"] and "count" not in table["text/html"]
    assert table["text/plain"] == (
        "ToolResult demo.query:\n"
        "species  island     bill_length_mm  bill_depth_mm  flipper_length_mm  body_mass_g  sex   year\n"
        "Adelie   Torgersen            38.6           19.0                185         4350  male  2007"
    )


def test_a_lone_image_is_an_image(kernel: Kernel) -> None:
    bundle = shown(kernel, "mcp.sdk.pixel()")
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert bundle["text/plain"] == "ToolResult sdk.pixel: [image: image/png, 70 bytes]"


@pytest.mark.parametrize(
    ("call", "html", "plain"),
    [
        ("get_tiny_image()", '<img src="data:image/png;base64,', "[image: image/png, 4,033 bytes]"),
        (
            "get_annotated_message('error', includeImage=True)",
            ">Error: Operation failed</pre><img ",
            "Error: Operation failed\n[image: ",
        ),
        (
            "get_resource_links(count=2)",
            "Text Resource 2 (demo://resource/dynamic/text/2) · text/plain",
            "[resource: demo://resource/dynamic/text/2]",
        ),
        (
            "get_resource_reference(resourceType='Text', resourceId=1)",
            "<div>demo://resource/dynamic/text/1</div><pre ",
            "Resource 1: This is a plaintext resource created at",
        ),
        (
            "get_resource_reference(resourceType='Blob', resourceId=1)",
            "<div>demo://resource/dynamic/blob/1</div><pre ",
            "[blob: text/plain, ",
        ),
    ],
)
def test_several_parts_are_shown_in_their_order(kernel: Kernel, call: str, html: str, plain: str) -> None:
    bundle = shown(kernel, f"mcp.everything.{call}")
    assert set(bundle) == {"text/html", "text/plain"} | ({"image/png"} if "<img" in html else set())
    assert html in bundle["text/html"]
    assert plain in bundle["text/plain"]


def test_an_error_kept_by_the_user_is_shown_as_one(kernel: Kernel) -> None:
    attempt = "try:\n    mcp.demo.fail(message='<b>oops')\nexcept ipymcp.ToolError as error:\n    kept = error.result"
    bundle = shown(kernel, f"import ipymcp\n{attempt}\nkept")
    assert bundle["text/plain"] == "ToolResult demo.fail (error): <b>oops"
    assert "border:1px solid #d32f2f" in bundle["text/html"] and "&lt;b&gt;oops" in bundle["text/html"]


def test_progress_is_shown_after_half_a_second_and_leaves_one_line(kernel: Kernel) -> None:
    outcome = done(kernel, "%mcp call demo.slow seconds=1.2 steps=12;")
    (line,) = outcome.displays
    assert line["text/plain"] == "demo.slow 12/12 step 12 of 12"
    assert "<progress" not in line["text/html"]
    updates = [message["content"]["data"] for message in outcome.messages if "display_data" in message["msg_type"]]
    assert updates[0]["text/plain"].startswith("demo.slow [##")
    assert '<progress value="0.' in updates[0]["text/html"]


def test_quick_and_silenced_calls_show_no_progress(kernel: Kernel) -> None:
    assert done(kernel, "mcp.demo.slow(seconds=0.1);").displays == []
    done(kernel, "%config IPyMCP.quiet = True")
    assert done(kernel, "mcp.demo.slow(seconds=0.8);").displays == []
    assert done(kernel, "%mcp load demo").displays == []
    done(kernel, "%config IPyMCP.quiet = False")


def test_servers_are_shown_as_they_come_and_never_twice_the_same(kernel: Kernel) -> None:
    command = " ".join(server_command("misbehaving"))
    outcome = done(kernel, f"%mcp load fresh -- {command}")
    states = [m["content"]["data"]["text/plain"] for m in outcome.messages if "display_data" in m["msg_type"]]

    assert states == ["… fresh: starting", "✓ fresh: ready, 13 tools"]
    again = done(kernel, f"%mcp load fresh -- {command}")
    assert [m["msg_type"] for m in again.messages if "display_data" in m["msg_type"]] == ["display_data"]


def test_a_failed_load_is_shown_once(kernel: Kernel) -> None:
    outcome = kernel.run("%mcp load nada -- no-such-program")

    assert outcome.error is not None
    assert outcome.displays[0]["text/plain"] == "✗ nada: failed"
    assert outcome.error.traceback.startswith("CommandNotFound: nada: there is no program 'no-such-program'")
    assert kernel.run("mcp.servers['nada']").text.startswith("nada · failed · "), "the same word as in the tables"


def test_a_console_that_ignores_updates_of_displays_shows_every_reason_and_the_end_of_a_load(kernel: Kernel) -> None:
    program, *arguments = server_command("misbehaving")
    servers = {
        "bad": {"command": "no-such-program"},
        "good": {"command": program, "args": arguments},
        "flaky": {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no database')"]},
    }
    (kernel.folder / "some.json").write_text(json.dumps(servers))

    loaded = kernel.run("%mcp load ./some.json", answers=[], console=True)
    failed = kernel.run("%mcp load nada -- no-such-program", answers=[], console=True)
    called = kernel.run("%mcp call demo.slow seconds=0.8 steps=4;", answers=[], console=True)

    assert [line.strip() for line in loaded.stdout.strip().split("\n")] == [
        *(
            f"… flaky: starting: attempt {attempt} of 4 in {delay} s: no database"
            for attempt, delay in ((2, 1), (3, 2), (4, 4))
        ),
        "✗ bad: there is no program 'no-such-program' (looked for no-such-program, on the PATH)",
        "✓ good: ready, 13 tools",
        "✗ flaky: could not start: exited with code 1. Last output: no database",
    ]
    assert failed.stdout.strip() == "✗ nada: failed"
    assert failed.error is not None
    assert called.stdout.split("\r")[-1].strip() == "demo.slow 4/4 step 4 of 4"
    assert loaded.displays == failed.displays == called.displays == []


def test_a_typed_command_that_ends_by_itself_is_tried_once(kernel: Kernel) -> None:
    code = "open('count', 'a').write('.'); import sys; sys.exit('cannot open database: no folder')"
    outcome = kernel.run(f'%mcp load once -- {sys.executable} -c "{code}"')

    assert outcome.error is not None
    assert outcome.error.evalue.startswith("once: could not start: exited with code 1. Last output: cannot")
    assert (kernel.folder / "count").read_text() == "..", "with the probe of its era, and without"


def test_a_notebook_whose_front_end_takes_input_has_one_display_that_is_updated(kernel: Kernel) -> None:
    outcome = kernel.run("%mcp load demo", answers=[])

    assert outcome.stdout == ""
    assert [display["text/plain"] for display in outcome.displays] == ["✓ demo: ready, 5 tools"]


def test_a_list_of_prompts_says_that_its_server_is_stopped(kernel: Kernel) -> None:
    done(kernel, f"%mcp load still -- {' '.join(server_command('misbehaving'))}\n%mcp stop still")

    assert kernel.run("%mcp prompts still").text.splitlines()[-1] == "no prompts here · still is stopped"


def failed(kernel: Kernel, cell: str) -> str:
    return "\n".join(error(kernel, cell))


OWN = "reported by the tool"


def test_an_error_inside_functions_says_which_line_of_which_function_failed(kernel: Kernel) -> None:
    done(kernel, "def inner(n):\n    mcp.demo.echo('a')\n    mcp.demo.fail(message='no')\ndef outer():\n    inner(3)")
    (kernel.folder / "helpers.py").write_text("def go(mcp):\n    return [mcp.demo.fail(message=x) for x in 'ab']\n")
    assert failed(kernel, "outer()") == (
        f"ToolError: demo.fail: no\n  {OWN} · in: outer() · inner(), line 3: mcp.demo.fail(message='no')"
    )
    assert failed(kernel, "mcp.demo.fail(message='no')").endswith(" · in: mcp.demo.fail(message='no')")
    assert "line 2 of helpers.py: return [mcp.demo.fail(message=x) for x in 'ab']" in failed(
        kernel, "import helpers\nhelpers.go(mcp)"
    )


def test_an_error_in_a_function_that_a_library_calls_names_no_line_of_the_library(kernel: Kernel) -> None:
    cell = "import pandas as pd\npd.Series([1]).map(lambda one: mcp.demo.fail(message=str(one)))"
    assert failed(kernel, cell).endswith(" · in: pd.Series([1]).map(lambda one: mcp.demo.fail(message=str(one)))")


def test_a_result_can_be_awaited_and_a_coroutine_that_was_not_says_what_to_write(kernel: Kernel) -> None:
    assert done(kernel, "(await mcp.demo.echo('x')).text").text == "'x'"
    gathered = "import asyncio\nwords = await asyncio.gather(mcp.demo.echo('a'), mcp.demo.echo('a'))"
    assert done(kernel, f"{gathered}\n[each.text for each in words]").text == "['a', 'a']"
    missed = error(kernel, "mcp.demo.echo('x').json()")
    assert missed[0] == "UnknownName: a result has no attribute 'json'" and "use .data" in missed[1]
    not_awaited = "not called: this is a coroutine, write await before it (or leave out .aio)"
    assert done(kernel, "mcp.demo.echo.aio('x')").text == not_awaited
    assert done(kernel, "mcp.stop.aio('demo')").text == not_awaited
    assert text(kernel, "async def theirs(): ...\ntheirs()").startswith("<coroutine object theirs at ")


def test_a_call_with_too_many_positional_arguments_is_spelled_with_their_names(kernel: Kernel) -> None:
    assert "\n  query('penguins', limit=3) · in: " in failed(kernel, "mcp.demo.query('penguins', 3)")
    assert "\n  get_resource_links(count=3) · in: " in failed(kernel, "mcp.everything.get_resource_links(3)")
    assert "did you mean 'get_sum' or 'get_env'? · in: " in failed(kernel, "mcp.everything.get_sun(1, 2)")


def test_help_says_the_signature_once(kernel: Kernel) -> None:
    shown = kernel.inspect("mcp.demo.query")
    assert shown is not None
    assert shown.count("where:") == 1
    assert "String form: demo.query\n" in shown


def test_a_change_of_policy_shows_the_tools_that_it_concerns(kernel: Kernel) -> None:
    assert text(kernel, "%mcp policy ask demo.echo") == (
        "MCP policy\ntool       you  models  apps  by\n"
        "demo.echo  ask  ask     ask   ask demo.echo (this notebook)\nask demo.echo (this notebook)"
        " · until the kernel stops; after a restart: %mcp restore"
    )
    many = text(kernel, "%mcp policy ask everything.*")
    assert len(many.splitlines()) == 13 and "more: %mcp policy · " in many
    assert "demo.echo" not in done(kernel, "%mcp policy reset").text

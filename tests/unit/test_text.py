"""Untrusted text on its way into a terminal, a cell, an error or a prompt."""

import ast
import pickle
import sys
from pathlib import Path

import pytest

import ipymcp
from ipymcp.errors import ServerError
from ipymcp.text import colored, escaped, one_line, shown_json, stripped, visible


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a\x1b[31mb\x00\x7f", "a␛[31mb␀␡"),
        ("user\u202egnp.exe", "user⟨U+202E⟩gnp.exe"),
        ("a\u200bb\u00ad\ufeff", "a⟨U+200B⟩b⟨U+00AD⟩⟨U+FEFF⟩"),
        ("x\U000e0041\U000e0042", "x⟨U+E0041⟩⟨U+E0042⟩"),
        ("x\ufe0f\ufe0f", "x⟨U+FE0F⟩⟨U+FE0F⟩"),
        (
            "👩\u200d👩 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 \u0645\u200c\u062e",
            "👩\u200d👩 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 \u0645\u200c\u062e",
        ),
        ("a\r\nb\rc\td", "a\nb\nc\td"),
        ("a\ud800b", "a⟨U+D800⟩b"),
        ("a\u2028b\u2029c\x85d", "a⟨U+2028⟩b⟨U+2029⟩c⟨U+0085⟩d"),
        ("naïve 日本 😀", "naïve 日本 😀"),
    ],
)
def test_invisible_characters_are_shown(value: str, shown: str) -> None:
    assert visible(value) == shown


def test_text_is_safe_in_an_element_and_in_an_attribute() -> None:
    assert escaped("<a href=\"x\" id='y'>&\u202e") == ("&lt;a href=&quot;x&quot; id=&#x27;y&#x27;&gt;&amp;⟨U+202E⟩")
    assert escaped(None) == "None"


def test_a_line_stays_one_line() -> None:
    assert one_line("\na\r\nb\rc\n\n") == "a␊b␊c"
    assert one_line("\x1b]52;c;aGk=\x07") == "␛]52;c;aGk=␇"
    assert len(one_line("".join(map(chr, range(sys.maxunicode + 1)))).splitlines()) == 1


def test_any_character_can_be_written_after_the_gate() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    for gate in (visible, one_line, stripped, escaped):
        gate(everything).encode()
        assert gate(gate(everything)) == gate(everything) or gate is escaped


GATES = {"visible", "one_line", "unmasked_line", "escaped", "stripped"}
OUTPUTS = {"print", "input", "getpass", "write"}


def is_gated(call: ast.Call) -> bool:
    """Whether the output of a call is a constant, or the result of a function that makes it visible."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    if name == "warn" and owner != "warnings":
        return True  # a callback, whose receiver is checked
    if name not in {*OUTPUTS, "warn"} or owner not in ("", "warnings", "getpass", "sys.stdout", "sys.stderr"):
        return True
    said = call.args[0] if call.args else ast.Constant("")
    return isinstance(said, ast.Constant) or (isinstance(said, ast.Call) and getattr(said.func, "id", "") in GATES)


def test_all_text_that_is_printed_or_asked_is_made_visible_first() -> None:
    package = Path(ipymcp.__file__).parent
    found = {
        (str(file.relative_to(package)), ast.unparse(call))
        for file in package.rglob("*.py")
        if file.parent != package / "demo"  # a server's output is the protocol
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and not is_gated(call)
    }
    assert found == set()


def test_a_message_is_gated_whenever_it_is_set() -> None:
    error = ServerError("a\nb\x1b", hint="c\r\nd")
    assert (error.message, error.hint, str(error)) == ("a␊b␛", "c␊d", "a␊b␛")
    error.message, error.hint = "x\ny", "z\u202e"
    assert (error.message, error.hint) == ("x␊y", "z⟨U+202E⟩")
    error.server = "s\nt"
    assert str(pickle.loads(pickle.dumps(error))) == "s␊t: x␊y"
    error.add_note("n")
    error.__notes__ = error.__notes__  # as tblib restores them
    assert error.__notes__ == [error.hint, "n"]


def test_invisible_characters_in_json_are_shown() -> None:
    assert shown_json({"a\x1b": ["b\u202e", {"c": 1}, None]}) == {"a␛": ["b⟨U+202E⟩", {"c": 1}, None]}


def test_colours_of_ipython_stay_and_other_escapes_do_not() -> None:
    assert colored("\x1b[31mred\x1b[0m \x1b]52;c\x07\x1b[2J") == "\x1b[31mred\x1b[0m ␛]52;c␇␛[2J"

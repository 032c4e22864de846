"""The structure of the package: no import cycles, no class name twice, docstrings that name what they describe."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import ipymcp

PACKAGE = Path(ipymcp.__file__).parent
RIDDLE = re.compile(
    r"(what|who|whose|whom|whoever|whatever|it|its|those|of|nor|that|they|them|their|as|where|which)\b", re.I
)
"""A first word with which a docstring continues the name instead of naming a thing."""


def modules() -> dict[str, ast.Module]:
    files = sorted(PACKAGE.rglob("*.py"))
    names = (".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in files)
    return {
        name.removesuffix(".__init__"): ast.parse(file.read_text()) for name, file in zip(names, files, strict=True)
    }


MODULES = modules()


def imported(name: str, tree: ast.Module) -> Iterator[str]:
    """The package's modules that a module imports, wherever and for whatever, types included."""
    is_package = (PACKAGE.parent / name.replace(".", "/")).is_dir()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            here = name.split(".")[: len(name.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*here, *filter(None, [node.module])])
            found = [f"{base}.{each.name}" if f"{base}.{each.name}" in MODULES else base for each in node.names]
        else:
            continue
        yield from (each for each in found if each in MODULES and each not in (name, "ipymcp"))


def test_no_module_imports_itself_by_way_of_others_not_even_for_types() -> None:
    TopologicalSorter({name: set(imported(name, tree)) for name, tree in MODULES.items()}).prepare()


def test_a_class_name_exists_once() -> None:
    places: dict[str, list[str]] = {}
    for name, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_types_of_the_front_end_are_those_of_the_kernel() -> None:
    script = PACKAGE.parent / "labextension" / "protocol.py"
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def documented(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module, and the strings below its constants and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                    yield after.value.value if isinstance(after.value, ast.Constant) else ""


def test_docstrings_begin_with_a_noun_or_an_imperative() -> None:
    riddles = [(name, text) for name, tree in MODULES.items() for text in documented(tree) if RIDDLE.match(text)]
    assert riddles == []

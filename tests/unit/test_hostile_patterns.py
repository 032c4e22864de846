"""Every regular expression of the package takes linear time, whatever text it is given.

The patterns are collected from the source: each first argument of a function of `re`, evaluated with the constants that
it names. Hostile texts are made from a pattern itself: its literals and the beginnings of texts that it matches, many
times over. Time is the thread's own, and noise only ever adds to it: a pattern fails if the shortest of several runs
grows faster than the text, at two sizes in a row.
"""

import ast
import builtins
import fnmatch
import importlib
import itertools
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ipymcp
from ipymcp.config import programs
from ipymcp.llm import prompting

PACKAGE = Path(ipymcp.__file__).parent
ANCHORED = {"match", "fullmatch"}
METHODS = {*ANCHORED, "search", "sub", "subn", "split", "findall", "finditer"}
FLAGS_PLACE = {"compile": 1, "sub": 4, "subn": 4, "split": 3}
COMMON = ("a", " ", "\n", "\\", '\\"', "'", "1", "{", "a ", "é")
SMALL = 600
"""Characters of the first texts, of which a quadratic search needs a hundred thousand steps."""
LARGE = 1_000_000
"""Characters of the last text for a pattern of `STRANGERS`; for others, a tenth."""
STRANGERS = ("masking", "names", "text", "protocol", "results", "security", "registry", "schema", "runtime")
"""The modules and packages that read large texts of servers and registries."""
QUICK = 80e-6
"""Seconds in which no quadratic search of a small text ends."""
GROWTH = 2.2
"""Maximum growth of the time in relation to that of the text, which is at least fourfold: 4 if it is quadratic."""


class Module:
    """The source of one module, and the values of its constants."""

    def __init__(self, file: Path) -> None:
        self.name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        self.tree = ast.parse(file.read_text(encoding="utf-8"))
        self.constants: dict[str, ast.expr] = {}
        self.imports: dict[str, tuple[str, str | None]] = {}
        for node in ast.walk(self.tree):
            match node:
                case ast.ImportFrom(module=str(module), level=0):
                    self.imports |= {each.asname or each.name: (module, each.name) for each in node.names}
                case ast.Import():
                    self.imports |= {each.asname or each.name: (each.name, None) for each in node.names}
                case ast.Module() | ast.ClassDef():
                    for statement in node.body:
                        match statement:
                            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                                self.constants.setdefault(name, value)
                            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                                self.constants.setdefault(name, value)
                            case _:
                                pass
                case _:
                    pass

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression. Raises NameError if it is not made of constants."""
        names = [each for each in ast.walk(node) if isinstance(each, ast.Name)]
        bound = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        scope = {each.id: self.lookup(each.id) for each in names if each.id not in bound}
        return eval(compile(ast.Expression(node), self.name, "eval"), scope)

    def lookup(self, name: str) -> Any:
        if name in self.constants:
            try:
                return self.value(self.constants[name])
            except NameError:  # a table of objects, such as that of the hosts
                return getattr(importlib.import_module(self.name), name)
        if name in self.imports:
            module, attribute = self.imports[name]
            if module in MODULES and attribute:
                return MODULES[module].lookup(attribute)
            imported = importlib.import_module(module)
            return getattr(imported, attribute) if attribute else imported
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise NameError(name)

    def origin(self, name: str) -> tuple[str, str]:
        """The module that defines a name, and the name there."""
        module, attribute = self.imports.get(name, (self.name, name))
        return (module, attribute) if module in MODULES and attribute else (self.name, name)

    def calls(self) -> Iterator[ast.Call]:
        """Yield the calls of `re.compile` and the functions that take a pattern."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=name)) if name in {*METHODS, "compile"}:
                    yield node
                case _:
                    pass


MODULES = {module.name: module for module in map(Module, sorted(PACKAGE.rglob("*.py")))}


class Pattern(NamedTuple):
    text: str | bytes
    flags: int
    is_fullmatch: bool
    """Whether it is tried at the beginning of a text only; if not, it is searched everywhere in it."""


def flattened(value: Any) -> Iterator[str]:
    """Yield the strings of a table of patterns."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from flattened(value.values())
    else:
        for each in value:
            yield from flattened(each)


def of_programs(field: str) -> list[str]:
    return [pattern for each in programs._PROGRAMS.values() if (pattern := getattr(each, field))]


def constants(module: str, *names: str) -> list[str]:
    return [text for name in names for text in flattened(MODULES[f"ipymcp.{module}"].lookup(name))]


VARIABLE: dict[str, Callable[[], list[str]]] = {
    "api.stubs: re.search(f'\\\\b{name}\\\\b', body)": lambda: [r"\bDate\b"],
    "config.binding: re.match(regex, each)": lambda: [fnmatch.translate("*a*[a-c]*a?b")],
    r"config.config_files: re.search(f'(?m)^{host.table}[ \\t]*:', text)": lambda: [r"(?m)^table[ \t]*:"],
    "config.redaction: re.sub(pattern, _shortened_part, text)": lambda: constants(
        "config.redaction", "_USERINFO", "_PARAMETER"
    ),
    "config.config_files: re.sub(pattern, _blank, text)": lambda: constants(
        "config.config_files", "_COMMENT", "_COMMA"
    ),
    "config.dangers: re.fullmatch(option, one[:_LONG], re.I | re.S)": lambda: of_programs("side_option"),
    "config.dangers: re.fullmatch(program(name).package_option, option)": lambda: of_programs("package_option"),
    "config.programs: re.fullmatch(option, before)": lambda: of_programs("package_option"),
    "config.programs: re.fullmatch(option, word, re.I | re.S)": lambda: of_programs("shell_option"),
    "config.programs: re.fullmatch(option, word, re.S)": lambda: of_programs("code_option"),
    "registry.client: re.fullmatch(_FIXED[kind], text, re.ASCII | re.I)": lambda: constants(
        "registry.client", "_FIXED"
    ),
    "registry.install: re.fullmatch(_PACKAGE_NAMES[kind], package.identifier)": lambda: constants(
        "registry.install", "_PACKAGE_NAMES"
    ),
    "security.scanner: re.search(pattern, plain, re.I)": lambda: constants("security.scanner", "_INSTRUCTIONS"),
    "llm.prompting: re.sub(pattern, self._replace, self._prompt, flags=re.DOTALL | re.MULTILINE)": lambda: [
        prompting.reference_pattern(["fs", "db"])
    ],
    "llm.schemas: re.compile(value)": list,  # a server's pattern, which is only checked
}
"""The patterns of calls whose first argument is a variable."""


def collected() -> tuple[dict[Pattern, str], set[str]]:
    """Return each pattern with a place where it is used, and the calls of which the patterns are unknown."""
    uses: dict[tuple[str, str], set[str]] = defaultdict(set)
    for module in MODULES.values():
        for node in ast.walk(module.tree):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in METHODS:
                    uses[module.origin(name)].add(attribute)
                case ast.Attribute(value=ast.Attribute(attr=name), attr=attribute) if attribute in METHODS:
                    uses["", name].add(attribute)
                case _:
                    pass
    patterns: dict[Pattern, str] = {}
    unknown: set[str] = set()
    for module in MODULES.values():
        names = {id(value): name for name, value in module.constants.items()}
        for call in module.calls():
            assert isinstance(call.func, ast.Attribute)
            method = call.func.attr
            flags = call.args[FLAGS_PLACE.get(method, 2) :] + [
                each.value for each in call.keywords if each.arg == "flags"
            ]
            line = f"{module.name.removeprefix('ipymcp.')}: {ast.unparse(call)}"
            try:
                found = [module.value(call.args[0])]
            except NameError:
                if line not in VARIABLE:
                    unknown.add(line)
                    continue
                found = VARIABLE[line]()
            methods = {method}
            if method == "compile":
                name = names.get(id(call), "")
                methods = uses[module.name, name] | uses["", name] or METHODS
            for pattern, is_fullmatch in itertools.product(found, (True, False)):
                if methods & ANCHORED if is_fullmatch else methods - ANCHORED:
                    compiled = re.compile(pattern, int(module.value(flags[0])) if flags else 0)
                    patterns[Pattern(compiled.pattern, compiled.flags, is_fullmatch)] = f"{module.name}:{call.lineno}"
    return patterns, unknown


PATTERNS, UNKNOWN = collected()


# -- hostile texts -----------------------------------------------------------------------------------------------------


def parsed(pattern: Pattern) -> Any:
    return importlib.import_module("re._parser").parse(pattern.text, pattern.flags)


def atoms(items: Any, branch: int) -> Iterator[str]:
    """Yield the pieces of a text that matches, roughly; of alternatives the one of this number."""
    for kind, value in items:
        match str(kind):
            case "LITERAL":
                yield chr(value)
            case "ANY":
                yield "a"
            case "NOT_LITERAL":
                yield "b" if value == ord("a") else "a"
            case "IN":
                yield member(value)
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                low, high, inner = value
                yield from [*atoms(inner, branch)] * min(max(low, 1), high, 3)
            case "SUBPATTERN":
                yield from atoms(value[-1], branch)
            case "ATOMIC_GROUP":
                yield from atoms(value, branch)
            case "BRANCH":
                yield from atoms(value[1][branch % len(value[1])], branch)
            case _:
                pass


def nested(value: Any) -> Iterator[Any]:
    """Yield the parts of a pattern within one of its items."""
    if hasattr(value, "getwidth"):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from nested(each)


def words_of(items: Any) -> Iterator[str]:
    """Yield the words in a pattern."""
    word = ""
    for each in [*items, None]:
        match each:
            case (kind, int(value)) if str(kind) == "LITERAL":
                word += chr(value)
                continue
            case (_, inner):
                for part in nested(inner):
                    yield from words_of(part)
            case _:
                pass
        if len(word) > 1:
            yield word
        word = ""


def member(items: list[tuple[Any, Any]]) -> str:
    """A character of a set."""
    texts = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}
    excluded = {chr(value) for kind, value in items if str(kind) == "LITERAL"}
    kind, value = items[0]
    match str(kind):
        case "LITERAL":
            return chr(value)
        case "RANGE":
            return chr(value[0])
        case "CATEGORY":
            return texts.get(str(value), "-")
        case _:
            return next(char for char in "a 1-.é" if char not in excluded)


def hostile(pattern: Pattern) -> tuple[list[str], list[str]]:
    """Return units that are repeated, and beginnings that come before them."""
    tree = parsed(pattern)
    examples = [list(atoms(tree, branch)) for branch in range(6)]
    beginnings = dict.fromkeys(text for each in examples for text in itertools.accumulate(each[:40]) if len(text) <= 24)
    pieces = dict.fromkeys(piece for each in examples for piece in each)
    words = dict.fromkeys(text for word in words_of(tree) for text in (word, f"{word} "))
    units = dict.fromkeys([*COMMON, *list(pieces)[:12], *list(words)[:16], *list(beginnings)[:16]])
    return list(units), ["", *list(beginnings)[:5], *(example for example in map("".join, examples[:2]) if example)]


def runner(pattern: Pattern) -> Callable[[str, str, int], float]:
    """A function that measures the pattern on a beginning and a unit, up to a number of characters."""
    compiled = re.compile(pattern.text, pattern.flags)

    def seconds(beginning: str, unit: str, size: int) -> float:
        text: Any = beginning + unit * (size // len(unit)) + "\0"
        if isinstance(pattern.text, bytes):
            text = text.encode("latin-1", "replace")
        started = time.thread_time()
        if pattern.is_fullmatch:
            compiled.fullmatch(text)
        else:
            deque(compiled.finditer(text), 0)
        return time.thread_time() - started

    return seconds


def problem(pattern: Pattern, large: int) -> str | None:
    """Return the text of up to a number of characters that takes superlinear time, if there is one."""
    seconds = runner(pattern)

    def shortest(beginning: str, unit: str, size: int) -> float:
        return min(seconds(beginning, unit, size) for _ in range(3))

    def grows(beginning: str, unit: str, small: int, large: int) -> bool:
        return shortest(beginning, unit, large) / shortest(beginning, unit, small) > GROWTH * large / small

    slowest, linear = ("", "a"), QUICK
    units, beginnings = hostile(pattern)
    for unit, beginning in itertools.product(units, beginnings):
        if seconds(beginning, unit, SMALL) > linear and (taken := shortest(beginning, unit, SMALL)) > linear:
            if grows(beginning, unit, SMALL, 4 * SMALL) and grows(beginning, unit, 4 * SMALL, 16 * SMALL):
                return f"{beginning!r} and {unit!r} many times"
            slowest, linear = (beginning, unit), 1.5 * taken
    beginning, unit = slowest
    for _ in range(10):  # one run is enough, unless something else had the machine: then for both measurements
        if seconds(beginning, unit, large) <= 2 * GROWTH * 32 * shortest(beginning, unit, large // 32):
            return None
    return f"{beginning!r} and {unit!r}, up to {large:,} characters"


def test_all_patterns_are_collected() -> None:
    assert not UNKNOWN
    assert len(PATTERNS) > 250


@pytest.mark.timed
def test_every_pattern_takes_linear_time() -> None:
    problems = {
        f"{place} {pattern.text!r}": problem(pattern, LARGE if re.split("[.:]", place)[1] in STRANGERS else LARGE // 10)
        for pattern, place in PATTERNS.items()
    }
    assert {place: text for place, text in problems.items() if text} == {}


@pytest.mark.timed
@pytest.mark.parametrize("text", [r"\s+$", r'"(?:\\.|[^"\\])*"', r"<[^>]*>", r"(a|b|ab)*c", r"-[a-z]*v[a-z]*:"])
def test_a_pattern_in_quadratic_time_is_found(text: str) -> None:
    assert problem(Pattern(text, 0, is_fullmatch=False), LARGE // 10) is not None

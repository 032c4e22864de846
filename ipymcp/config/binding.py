"""The files of a project that decide what one of its server definitions runs.

The files are guessed from the definition: each word as a path and as shell code, relative to every folder that another
word names; the settings files of project tools; and all programs and sources of a folder if a variable such as `PATH`
names it, or if no word names what runs and the project is small.
"""

from __future__ import annotations

import fnmatch
import functools
import itertools
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from ipymcp.config.programs import (
    SETTINGS_NAMES,
    decides_code,
    evaluates,
    packages,
    program,
    program_name,
    shell_line,
)
from ipymcp.config.variables import in_folder, respelled
from ipymcp.errors import ConfigError
from ipymcp.files import open_file, read_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference


MAX_WORDS: Final = 2_000
"""Maximum number of words per definition."""
MAX_STEPS: Final = 50_000
"""Maximum number of paths checked per definition."""
MAX_STARTS: Final = 32
"""Maximum number of folders that paths are relative to."""
MAX_MATCHES: Final = 500
"""Maximum number of files per glob."""
_MAX_EXPANDED = 1_000_000
"""Maximum number of characters that variables expand to per definition."""
MAX_SOURCES: Final = 300
"""Maximum number of programs and sources in a folder that is covered as a whole."""
MAX_SOURCE_BYTES: Final = 10_000_000
MAX_LISTED: Final = 50_000
"""Maximum number of names that are listed for the globs of a definition."""
_MAX_ENTRIES = 5_000
MAX_HASHED_BYTES: Final = 100_000_000
"""Maximum size of a file that is read as a whole for a digest."""
_MAX_TOTAL_BYTES = 500_000_000
"""Maximum number of bytes that are read for the digest of a definition."""
_MAX_TEXT = 100_000
_MAX_PATH = 4_096
_MAX_DEPTH = 5
_CHUNK = 1 << 20

_SEPARATORS = re.compile(r"""[\s"'`=;|&()<>,]+|file:(?://)?""")
"""Separators of words in an argument with options."""
_WITHIN = re.compile(rf"[=,;{re.escape(os.pathsep)}]|file:(?://)?")
"""Separators of paths in a word."""
_MODULE = re.compile(r"-[A-Za-z]*m(.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_SHELL_TOKEN = re.compile(
    r"""\$'(?P<ansi>(?:[^'\\]|\\.)*)'|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"|\\(?P<escaped>.)"""
    r"""|(?P<between>[\s;|&()<>`]+)|(?P<plain>[^\s;|&()<>`'"\\$]+|.)""",
    re.DOTALL,
)
_SHELL_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?[-=+?]([^{}]*))?\})")
_WORKING_FOLDER = re.compile(r"\$\(\s*pwd(\s+-[LP])?\s*\)|`\s*pwd(\s+-[LP])?\s*`")
_UNPARSED_SHELL = re.compile(
    r"[`$]|\A[^{]*+\{[^,.]*+[,.][^}]*+\}|(^|[\s;|&(])(eval|source|\.|exec|xargs|find|alias|trap)\s", re.DOTALL
)
"""Shell syntax that may run programs that the words do not name."""
_MOUNT = re.compile(r"(?:-v|--volume=)?([^:]+):(/[^:]*)(?::[\w,]+)?")
"""A folder of this machine and its path in a container."""
_MOUNT_FIELD = re.compile(r"(?:^|,|--mount=)(source|src|target|destination|dst)=([^,]+)")
_MAX_FOLLOWING = 50
"""Maximum number of words after a program that are taken for its arguments."""
_GLOB = re.compile(r"[*?]|\A[^\[]*+\[.[^\]]*+\]", re.DOTALL)
_ENTRIES = ("__main__.py", "__init__.py", "package.json", "index.js", "index.cjs", "index.mjs", "index.ts")
"""Files that an interpreter runs when given a folder."""
_ENDINGS = (".py", ".js", ".cjs", ".mjs", ".ts", ".json")
"""Suffixes that an interpreter may add to a name."""
_SOURCES = re.compile(
    r"\.(py|pyw|pth|pyd|so|dll|dylib|js|jsx|cjs|mjs|ts|tsx|cts|mts|sh|bash|zsh|fish|csh|ps1|psm1|bat|cmd|rb|pl|pm|php|lua"
    r"|go|rs|java|kt|scala|groovy|c|h|cc|cpp|hpp|cs|fs|r|jl|swift|ex|exs|erl|hs|ml|clj|tcl|awk|sed|mk|gradle|jar|class"
    r"|wasm|node|toml|cfg)$"
    r"|(^|/)(makefile|gnumakefile|justfile|rakefile|dockerfile|package\.json|\.npmrc|pipfile|[^/]*\.lock)$",
    re.I,
)
_NO_SOURCES = frozenset({".git", ".hg", ".svn", ".jj", "__pycache__", ".ipynb_checkpoints"})


class Binding(Struct, frozen=True):
    """The project files that a definition's digest covers."""

    files: tuple[Path, ...] = ()
    is_whole: bool = True
    """Whether the files likely include everything that runs; False if code may run other files, or a limit was reached.
    """
    large: frozenset[Path] = frozenset()
    """Files that are too large to be read as a whole: their size, times and both ends are covered."""


class Disk:
    """A short-lived cache of file system lookups, for definitions that are digested together."""

    def __init__(self) -> None:
        self.mode = functools.cache(_mode)
        self.real = functools.cache(_real)
        self.repository = functools.cache(_repository)
        self.sources = functools.cache(_sources)
        self.content = functools.cache(_digest)


def binding(definition: ServerDefinition, disk: Disk | None = None) -> Binding:
    """Return the files in a definition's project that decide what runs, with links resolved."""
    if definition.source.folder is None or definition.command is None:
        return Binding()
    return _Search(definition, disk or Disk()).binding()


def shell_words(line: str) -> Iterator[str]:
    """Yield the words of a line of shell code, unquoted and without operators; variables are not expanded."""
    word: list[str] = []
    for token in _SHELL_TOKEN.finditer(_WORKING_FOLDER.sub("$PWD", line)):
        kind, text = token.lastgroup, token[token.lastgroup or 0]
        if kind == "between":
            if word:
                yield "".join(word)
            word = []
        elif kind == "ansi":
            word.append(_unescaped(text))
        elif kind == "double":
            word.append(re.sub(r'\\(["\\$`\n])', r"\1", text))
        elif kind == "escaped":
            word.append("" if text == "\n" else text)
        elif kind == "single" or text not in "'\"":
            word.append(text)
    if word:
        yield "".join(word)


class _Expansions:
    """The budget for the values of variables in one definition: each may name others a thousand times."""

    def __init__(self) -> None:
        self._left = _MAX_EXPANDED

    @property
    def is_exceeded(self) -> bool:
        return self._left < 0

    def take(self, value: str) -> bool:
        self._left -= len(value) + 1_000
        return self._left >= 0


class _Search:
    """Search for the files of one definition."""

    def __init__(self, definition: ServerDefinition, disk: Disk) -> None:
        self._definition = definition
        self._disk = disk
        self._expansions = _Expansions()
        folder = definition.source.folder or ""
        real = disk.real(folder)
        self._roots = tuple(dict.fromkeys((disk.repository(folder), disk.repository(real))))
        self._found: dict[Path, None] = {}
        self._is_whole = True
        self._steps = 0
        self._listed = 0
        """Names of files that were listed for globs."""
        self._variables: dict[str, str] = {}
        texts = [definition.command or "", *definition.args, definition.env_file or "", *definition.env.values()]
        self._starts: dict[str, None] = dict.fromkeys(
            (os.path.normpath(os.path.join(real, _path(definition.cwd or "", definition, self._expansions))), real)
        )
        self._named: dict[str, None] = {}
        """Start folders that words name."""
        self._variables |= {name: _path(text, definition, self._expansions) for name, text in definition.env.items()}
        texts = [_path(text, definition, self._expansions) for text in texts]
        texts += self._env_file_values()
        self._is_whole = not self._expansions.is_exceeded
        self._words = self._split(texts)
        self._names = [program_name(word) for word in self._words]
        self._programs = {name: program(name) for name in self._names}
        self._is_interpreted = any(one.is_interpreter for one in self._programs.values())

    def binding(self) -> Binding:
        parts = dict.fromkeys(part for word in self._words for part in self._parts(word))
        for option, following in itertools.pairwise((*self._words, "")):
            module = _MODULE.fullmatch(option)
            if module:
                parts |= dict.fromkeys(_modules(module[1] or following))
        for one in self._programs.values():
            parts |= dict.fromkeys(one.settings)
            if one.folder:
                parts |= dict.fromkeys(os.path.join(one.folder, word) for word in self._words)
        if any(one.kind == "container" for one in self._programs.values()):
            parts |= dict.fromkeys(self._mounted())
        self._find_all(parts)
        self._follow_packages()
        self._add_packages()
        self._add_variable_folders()
        if self._may_run_others():
            self._is_whole = False
            self._add_sources(self._roots[-1])
        elif self._needs_sources():
            for folder in [*self._named] or [next(iter(self._starts))]:
                self._add_sources(folder)
        return Binding(tuple(self._found), self._is_whole, frozenset(_large(self._found)))

    # -- words --------------------------------------------------------------------------------------------------------

    def _env_file_values(self) -> list[str]:
        """Return the values in the definition's `env_file`, if that is a file of the project."""
        if self._definition.env_file is None:
            return []
        from ipymcp.config.paths import read_env_file

        named = _path(self._definition.env_file, self._definition, self._expansions)
        for start in self._starts:
            path = os.path.normpath(os.path.join(start, named))
            if os.path.isfile(path) and self._is_within(path):
                try:
                    variables = read_env_file(path, "")
                except ConfigError:
                    continue
                self._variables |= variables
                return list(variables.values())
        return []

    def _split(self, texts: Iterable[str]) -> list[str]:
        """Return the texts themselves, and the words of each as shell code, in order."""
        words: list[str] = []
        for text in texts:
            if len(words) >= MAX_WORDS or len(text) > _MAX_TEXT:
                self._is_whole = False
                break
            words += itertools.islice(self._words_of(text, 0), MAX_WORDS + 1 - len(words))
        if len(words) > MAX_WORDS:
            self._is_whole = False
            del words[MAX_WORDS:]
        for word in words:
            assigned = _ASSIGNMENT.fullmatch(word)
            if assigned:
                self._variables.setdefault(assigned[1], assigned[2])
        return words

    def _words_of(self, text: str, depth: int) -> Iterator[str]:
        yield text
        if depth < _MAX_DEPTH:
            for word in shell_words(text):
                if word == text:
                    return
                yield from self._words_of(word, depth + 1)

    def _parts(self, word: str) -> Iterator[str]:
        """Yield the parts of a word that may be paths."""
        pieces = {word: None, **dict.fromkeys(_WITHIN.split(word)), **dict.fromkeys(_SEPARATORS.split(word))}
        for piece in pieces:
            for each in (piece, piece.lstrip("@<"), piece[2:] if re.match(r"-[A-Za-z][^-]", piece) else ""):
                known = self._with_values(each)
                if known and "\0" not in known and len(known) <= _MAX_PATH:
                    yield os.path.expanduser(known)

    def _with_values(self, text: str) -> str:
        """Replace known shell variables in a word; `$PWD` becomes a relative path, tried in every start folder."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            if name == "PWD":
                return "."
            known = self._variables.get(name, os.environ.get(name))
            text = (known if known is not None else match[3]) or ("" if match[3] is not None else match[0])
            return text[: _MAX_PATH + 1]

        text = text[: _MAX_PATH + 1]
        for _ in range(_MAX_DEPTH):
            changed = _SHELL_VARIABLE.sub(value, text)[: _MAX_PATH + 1]
            if changed == text:
                break
            text = changed
        return text

    def _mounted(self) -> Iterator[str]:
        """Yield the paths here of what the words name in a container; its folders may hold more that runs."""
        mounts: list[tuple[str, str]] = []
        for word in self._words:
            fields = {name[:1]: value for name, value in _MOUNT_FIELD.findall(word)}  # s(ource) to t(arget) or d(st)
            target = fields.get("t", fields.get("d", ""))
            if "s" in fields and target:
                mounts.append((fields["s"], target))
            elif match := _MOUNT.fullmatch(word):
                mounts.append((match[1], match[2]))
        for source, target in mounts:
            source, target = os.path.expanduser(self._with_values(source)), target.rstrip("/")
            if any(self._is_folder(os.path.join(start, source)) for start in self._starts):
                self._is_whole = False
                yield source
                for word in self._words:
                    if word.rstrip("/") == target or word.startswith(f"{target}/"):
                        yield os.path.join(source, word[len(target) :].lstrip("/"))

    # -- files --------------------------------------------------------------------------------------------------------

    def _find_all(self, parts: Iterable[str]) -> None:
        parts = list(parts)
        done: set[str] = set()
        while waiting := [start for start in self._starts if start not in done]:
            for start in waiting:
                done.add(start)
                for part in parts:
                    self._steps += 1
                    if self._steps > MAX_STEPS:
                        self._is_whole = False
                        return
                    self._find(start, part)

    def _find(self, start: str, part: str) -> None:
        path = os.path.normpath(os.path.join(start, part))
        if _GLOB.search(part):
            matches = self._matches(start, part)
            self._is_whole &= len(matches) <= MAX_MATCHES
            for match in matches[:MAX_MATCHES]:
                self._add(os.path.normpath(match))
        self._add(path)
        if self._is_interpreted:
            for ending in _ENDINGS:
                self._add(path + ending)

    def _matches(self, start: str, pattern: str) -> list[str]:
        """Return the paths that a glob may match; unlike the `glob` module, list only so many names."""
        drive, below = os.path.splitdrive(pattern)
        paths = [os.path.join(start, drive + below[:1] if os.path.isabs(pattern) else "")]
        for name in filter(None, below.replace(os.altsep or os.sep, os.sep).split(os.sep)):
            if _GLOB.search(name):
                regex = fnmatch.translate(name)
                listed = ((path, each) for path in paths for each in self._list(path))
                paths = [os.path.join(path, each) for path, each in listed if re.match(regex, each)]
            else:
                paths = [os.path.join(path, name) for path in paths]
        return paths

    def _list(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in itertools.islice(entries, max(0, MAX_LISTED - self._listed) + 1)]
        except OSError:
            return []
        finally:
            self._listed += 1
        self._listed += len(names)
        if self._listed > MAX_LISTED:
            self._is_whole = False
            return []
        return sorted(names)

    def _add(self, path: str) -> None:
        """Add a file to the binding, or a folder to the start folders."""
        mode = self._disk.mode(path)
        if mode is None:
            return
        if stat.S_ISREG(mode):
            real = self._disk.real(path)
            if self._is_within(path) or self._is_within(real):
                self._found[Path(real)] = None
        elif stat.S_ISDIR(mode) and self._is_within(path):
            if path not in self._starts:
                self._named[path] = None
                if len(self._starts) >= MAX_STARTS:
                    self._is_whole = False
                    return
                self._starts[path] = None
            if self._is_interpreted:
                for entry in _ENTRIES:
                    self._add(os.path.join(path, entry))

    def _follow_packages(self) -> None:
        """Add the files that each `package.json` runs."""
        has_scripts = any(one.runs_scripts for one in self._programs.values())
        for package in [path for path in self._found if path.name == "package.json"]:
            folder = str(package.parent)
            for text in _package_texts(package, scripts=has_scripts):
                for word in self._split([text]):
                    for part in self._parts(word):
                        for name in (part, *(part + ending for ending in _ENDINGS), os.path.join(part, "index.js")):
                            path = os.path.normpath(os.path.join(folder, name))
                            if os.path.isfile(path):
                                self._add(path)

    def _add_packages(self) -> None:
        """Add the sources of the folders that are run as packages, such as `uvx --from ./server`."""
        values: dict[str, None] = {}
        for place, name in enumerate(self._names):
            is_fetching = self._programs[name].is_fetching or name in ("pip", "pip3")
            is_fetching = is_fetching or (name == "exec" and "npm" in self._names[:place])
            following = self._words[place + 1 : place + 1 + _MAX_FOLLOWING]
            values |= dict.fromkeys(packages(name, following, is_fetching=is_fetching))
        for value in values:
            self._add_package(value)

    def _add_package(self, value: str, *, is_followed: bool = True) -> None:
        parts = dict.fromkeys(part[: part.find("[", 1)] if part[-1:] == "]" else part for part in self._parts(value))
        for part, start in itertools.product(parts, [*self._starts]):
            self._steps += 1
            if self._steps > MAX_STEPS:
                self._is_whole = False
                return
            path = os.path.normpath(os.path.join(start, part))
            if self._is_folder(path):
                self._add_sources(path)
            elif is_followed and path.endswith(".txt") and Path(self._disk.real(path)) in self._found:
                for requirement in _requirements(path):
                    self._add_package(requirement, is_followed=False)

    def _is_folder(self, path: str) -> bool:
        """Whether a path is a folder of the project."""
        path = os.path.normpath(path)
        return os.path.isdir(path) and self._is_within(path)

    def _add_variable_folders(self) -> None:
        """Add the sources of the folders that variables such as `PATH` name."""
        for name, value in self._variables.items():
            if not decides_code(name):
                continue
            for entry in self._with_values(value).split(os.pathsep):
                if not entry:
                    continue
                for start in [*self._starts]:
                    folder = os.path.normpath(os.path.join(start, os.path.expanduser(entry)))
                    if self._is_folder(folder):
                        self._add_sources(folder)

    def _add_sources(self, folder: str) -> None:
        """Add all programs and sources below a folder, unless there are too many."""
        found = self._disk.sources(folder)
        if found is None:
            self._is_whole = False
        else:
            for path in found:
                self._add(path)

    def _may_run_others(self) -> bool:
        """Whether the words contain code that may run files they do not name."""
        for place, name in enumerate(self._names):
            args = self._words[place + 1 : place + 1 + _MAX_FOLLOWING]
            if evaluates(name, args):
                return True
            line = shell_line(name, args)
            for word in args[line:] if line is not None else ():
                if len(word) > _MAX_PATH or _UNPARSED_SHELL.search(self._with_values(word)):
                    return True
        return False

    def _needs_sources(self) -> bool:
        """Whether a tool runs a project file that no word names."""
        programs = self._programs.items()
        if any(one.has_recipes for _, one in programs):
            return True
        if any(one.is_fetching for _, one in programs):
            return False
        runs_project = any(one.kind in ("node", "project tool") and name != "node" for name, one in programs)
        return runs_project and all(path.name in SETTINGS_NAMES for path in self._found)

    def _is_within(self, path: str) -> bool:
        return any(path == root or path.startswith(os.path.join(root, "")) for root in self._roots)


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except (OSError, ValueError):
        return None


def _real(path: str) -> str:
    return os.path.realpath(path)


def _repository(folder: str) -> str:
    """Return the root of a folder's repository, else the folder."""
    from ipymcp.config.paths import is_root

    place = folder
    while not is_root(place):
        above = os.path.dirname(place)
        if above == place:
            return folder
        place = above
    return place if place != os.path.expanduser("~") else folder


def _sources(folder: str) -> list[str] | None:
    """Return the programs and sources below a folder; None if there are too many."""
    found: list[str] = []
    seen = size = 0
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _NO_SOURCES)
        seen += len(folders) + len(files)
        if seen > _MAX_ENTRIES:
            return None
        for name in sorted(files):
            path = os.path.join(place, name)
            try:
                status = os.stat(path)
            except OSError:
                continue
            if not stat.S_ISREG(status.st_mode) or not (_SOURCES.search(name) or status.st_mode & 0o111):
                continue
            found.append(path)
            size += status.st_size
            if len(found) > MAX_SOURCES or size > MAX_SOURCE_BYTES:
                return None
    return found


def _package_texts(package: Path, *, scripts: bool) -> Iterator[str]:
    """Yield the strings of a `package.json` that name files to run."""
    try:
        data: object = json.loads(read_file(package, MAX_SOURCE_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    if isinstance(data, dict):
        table = cast("Mapping[str, Any]", data)
        for key in ("main", "module", "bin", "exports", "imports", *(("scripts",) if scripts else ())):
            yield from itertools.islice(_texts(table.get(key), 0), MAX_MATCHES)


def _requirements(path: str) -> Iterator[str]:
    """Yield the words of a file of requirements."""
    try:
        text = read_file(path, MAX_SOURCE_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    yield from itertools.islice((word for line in text.splitlines() for word in line.split()), MAX_WORDS)


def _texts(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth < _MAX_DEPTH and isinstance(value, dict):
        for item in cast("Mapping[str, object]", value).values():
            yield from _texts(item, depth + 1)
    elif depth < _MAX_DEPTH and isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _texts(item, depth + 1)


def _modules(name: str) -> Iterator[str]:
    names = name.split(".") if "\0" not in name else []
    for depth in range(1, min(len(names), _MAX_DEPTH * 2) + 1):
        path = os.path.join(*names[:depth])
        if path:
            yield from (f"{path}.py", os.path.join(path, "__init__.py"), os.path.join(path, "__main__.py"))


def _path(text: str, definition: ServerDefinition, budget: _Expansions) -> str:
    """Return a text as a path, with variables expanded to their current values."""
    folder = definition.source.folder or ""

    def value(one: Reference, depth: int = 0) -> str:
        if one.kind == "place":
            return in_folder(one.text, folder)
        held = os.environ.get(one.name) or (definition.env.get(one.name) if depth < _MAX_DEPTH else None) or one.default
        if one.kind != "variable" or held is None or depth > _MAX_DEPTH or not budget.take(held):
            return one.text
        return held if one.name in os.environ else respelled(held, lambda inner: value(inner, depth + 1))

    return os.path.expanduser(respelled(text, value))


def _unescaped(text: str) -> str:
    """Decode the escapes of a shell's `$'…'` string."""
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except ValueError:
        return text


def _large(files: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that are too large, or too large together, to be read as a whole."""
    total = 0
    for path in sorted(files):
        try:
            size = path.stat().st_size
        except OSError:
            continue
        if size > MAX_HASHED_BYTES or total + size > _MAX_TOTAL_BYTES:
            yield path
        else:
            total += size


def _digest(path: Path, *, is_large: bool = False) -> str:
    import hashlib

    digest = hashlib.sha256()
    try:
        with open_file(path) as stream:
            if is_large:
                status = os.fstat(stream.fileno())
                digest.update(f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} ".encode())
                digest.update(stream.read(_CHUNK))
                stream.seek(max(0, status.st_size - _CHUNK))
                digest.update(stream.read(_CHUNK))
                return digest.hexdigest()
            size = 0
            while (chunk := stream.read(_CHUNK)) and size <= MAX_HASHED_BYTES:  # it may grow while it is read
                digest.update(chunk)
                size += len(chunk)
    except OSError:
        return f"unreadable {os.urandom(16).hex()}"
    return digest.hexdigest()

"""The standard error of a program that did not start: the lines with the cause, and whether it is final."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_LINES = 3
"""Maximum number of lines of a program that an error quotes."""
_FINAL_CODES = frozenset({64, 66, 77, 78, 126, 127})
"""Exit codes for a wrong command line, a missing input, missing rights and a wrong configuration (`sysexits.h`), and
those of a shell that cannot run or find a command."""
_USAGE = re.compile(r"^\s*usage\b.*:", re.IGNORECASE)
_FINAL = re.compile(
    "|".join(
        (
            # interpreters: a module or a file is missing, or the code cannot be parsed
            r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError|SyntaxError): ",
            r"No module named ",
            r"can't open file '.*': \[Errno",
            r"Cannot find (?:module|package) ",
            r"^error: Module not found ",
            # command lines that are not accepted
            r"^error: unrecognized|[Uu]nknown (?:option|argument)|[Nn]o such option|unrecognized arguments?\b",
            r"bad option: |flag provided but not defined|^error: (?:unexpected|invalid) (?:argument|value)\b",
            r"required arguments? .*(?:not provided|missing)|arguments? (?:are|is) required|missing required argument",
            # settings that are missing
            r"environment variables? .*(?:required|missing|must be|not (?:set|defined|found|provided))",
            r"(?:[Mm]issing|[Rr]equired|[Uu]nset)(?: \w+)? environment variable",
            r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+ (?:(?:is |was )?(?:required|missing|not set|not defined|undefined|unset)\b"
            r"|(?:must|has to|needs to) be (?:set|provided|defined))",
            # npx and npm, bun, pnpm, yarn, deno
            r"^npm (?:error|ERR!) code E(?:404|401|403|NEEDAUTH|TARGET|NOVERSIONS|NOENT|USAGE|BADPLATFORM|BADENGINE)$",
            r"^npm (?:error|ERR!) code E(?:INVALIDTAGNAME|INVALIDPACKAGENAME|UNSUPPORTEDPROTOCOL)$",
            r"could not determine executable to run",
            r"^error: GET https?://\S+ - 40[134]\b",
            r"ERR_PNPM_FETCH_40[134]|ERR_PNPM_NO_MATCHING_VERSION|is not in the (?:npm|this) registry",
            r"^error: (?:npm|JSR) package .* (?:does not exist|not found)",
            # uvx and uv, pipx and pip
            r"No solution found when resolving|was not found in the package registry|there is no version of ",
            r"executable named `[^`]*` is not provided by|executable `[^`]*` was not found",
            r"Distribution not found at: |No interpreter found for |^error: Failed to (?:parse|spawn): ",
            r"No matching distribution found for |executable script not found in package",
            # docker and podman
            r"pull access denied|repository does not exist|manifest(?: for \S+)?(?: not found|:? unknown)",
            r"invalid reference format|did not resolve to an alias|executable file not found in \$PATH",
            r"requested access to the resource is denied|failed to resolve reference .*: not found",
        )
    )
)
"""Lines after which another start would end the same way."""
_UNREACHABLE = re.compile(
    "|".join(
        (
            r"^npm (?:error|ERR!) code (?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT)$",
            r"^error: Request failed after \d+ retries|^(?:cause: |Caused by: )?(?:error: )?Failed to fetch: ",
            r"Cannot connect to the (?:Docker daemon|Podman socket)|error during connect: ",
            r"NewConnectionError|NameResolutionError",
        )
    )
)
"""Lines of runners whose registry or daemon cannot be reached; they have tried again themselves."""
_ERROR = re.compile(
    r"^(?:[\w.-]+: )?(?:fatal |uncaught )?(?:error|fatal|panic|critical)\b|^[\w.]*(?:Error|Exception)\b|panicked at",
    re.IGNORECASE,
)
"""Lines that look like an error."""
_NOISE = re.compile(
    "|".join(
        (
            r"^npm (?:notice|warn|WARN)\b",
            r"^npm (?:error|ERR!)(?: \d+| \w+)?\s*$",
            r"^npm (?:error|ERR!) (?:syscall|errno|path|dest) ",
            r"^npm (?:error|ERR!) (?:\d+ )?(?:Note that you can also install from a|tarball, folder, http url)",
            r"^npm (?:error|ERR!) (?:A complete log of this run|notarget In most cases)",
            r"^npm (?:error|ERR!)\s+(?:/\S*_logs/|[A-Z]:\\\S*_logs\\)",
            r"^npm (?:error|ERR!) enoent This is related to npm not being able to find a file",
            r"^(?:npm (?:error|ERR!)\s+)?(?:at |[{}\[\]]$)",
            r"^(?:npm (?:error|ERR!)\s+)?(?:code|errno|syscall|type|address|port|requireStack): (?:'|-?\d|\[).*$",
            r"^node:internal/|^throw |^\^+$|^Node\.js v|^Stack backtrace:|^\d+: <unknown>$",
            r"^Run 'docker |^See 'docker |^\[notice\]|^note: run with `RUST_BACKTRACE",
            r"^\+[-+\d ]*$",
        )
    )
)
"""Lines around an error that tell nothing about its cause."""
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_GUTTER = re.compile(r"^\s*\| ")
"""The prefix of each line of an exception in a group, as Python writes it."""


def cannot_improve(exit_code: int | None, stderr: Iterable[str], *, is_first: bool = False) -> bool:
    """Whether a program has ended in a way that another start would not change.

    Args:
        exit_code: The exit code of its process; None while it runs.
        stderr: The last lines of its standard error.
        is_first: Whether the server never ran before: a registry or a daemon that cannot be reached is then final.
    """
    if exit_code is None or exit_code == 0:
        return False
    if exit_code in _FINAL_CODES:
        return True
    return any(
        _FINAL.search(line) or _USAGE.search(line) or (is_first and _UNREACHABLE.search(line))
        for line in map(_plain, stderr)
    )


def cause(stderr: Iterable[str]) -> tuple[str, ...]:
    """The lines of a program's standard error that tell why it failed, at most three; its last ones if none does.

    Notices, stack frames and advice are left out. The last line that looks like an error is always among them.

    Args:
        stderr: The last lines of its standard error, with their indentation.
    """
    lines = [line.strip() for line in stderr if line.strip()]
    telling = [line for line in _without_frames(map(_unguttered, stderr)) if not _NOISE.search(line)] or lines
    start = max(len(telling) - _MAX_LINES, 0)
    for pattern in (_FINAL, _UNREACHABLE, _ERROR):
        found = [index for index, line in enumerate(telling) if pattern.search(line)]
        if found:
            first = found[-1]
            while first - 1 in found and found[-1] - first < _MAX_LINES - 1:
                first -= 1
            start = min(start, first)
            break
    return tuple(telling[start : start + _MAX_LINES])


def _plain(line: str) -> str:
    return _unguttered(line).strip()


def _unguttered(line: str) -> str:
    return _GUTTER.sub("", _COLOR.sub("", line).rstrip())


def _without_frames(lines: Iterable[str]) -> Iterator[str]:
    """Each line but blank ones and Python's stack frames, stripped."""
    is_frame = False
    for line in lines:
        if line.endswith("Traceback (most recent call last):"):
            is_frame = True
        elif is_frame and (not line or line[0].isspace()):
            continue
        else:
            is_frame = False
            if line.strip():
                yield line.strip()

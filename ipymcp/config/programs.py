"""Tables of programs and variables that decide which code runs, for `dangers` and `digest`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


OTHER_USERS: Final = frozenset({"sudo", "doas", "su", "pkexec", "runas"})
WRAPPERS: Final = frozenset(
    {"env", "nohup", "timeout", "nice", "ionice", "setsid", "stdbuf", "xargs", "busybox", "toybox", "command", "exec"}
    | {"start", "cross-env", "dotenv", "direnv", "mise", "parallel", "flock", "watch", "unshare", "chroot", "time"}
)
"""Programs that run another program, given by their arguments."""
CONTAINERS: Final = frozenset({"docker", "podman", "nerdctl"})
NODE: Final = frozenset({"npx", "npm", "pnpm", "yarn", "bunx", "bun", "node", "deno"})
PYTHON: Final = re.compile(r"(python|pypy)[\d.]*w?")
INTERPRETER: Final = re.compile(
    rf"({PYTHON.pattern}|node|bun|deno|tsx|ts-node|ruby|perl|php|lua|Rscript|julia)(\.exe)?"
)
PROJECT_TOOLS: Final = frozenset(
    {
        "uv",
        "uvx",
        "poetry",
        "pipenv",
        "hatch",
        "pdm",
        "pixi",
        "make",
        "just",
        "cargo",
        "go",
        "rye",
        "tox",
        "nox",
        "rake",
    }
    | {"task", "gradle", "mvn", "dotnet", "bazel"}
)
"""Programs that run commands from a project's settings."""
FETCHING: Final = frozenset({"uvx", "npx", "bunx", "dlx", "tool", "x"})
"""Programs and subcommands that run a downloaded package."""
_NODE_FILES = ("package.json", ".npmrc")
SETTINGS_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("npx", "npm"), _NODE_FILES),
    "pnpm": (*_NODE_FILES, "pnpm-workspace.yaml", ".pnpmfile.cjs"),
    "yarn": (*_NODE_FILES, ".yarnrc", ".yarnrc.yml"),
    **dict.fromkeys(("bun", "bunx"), (*_NODE_FILES, "bunfig.toml")),
    "deno": ("deno.json", "deno.jsonc", "package.json"),
    "uv": ("pyproject.toml", "uv.toml", "uv.lock"),
    "uvx": ("uv.toml",),
    "poetry": ("pyproject.toml", "poetry.lock", "poetry.toml"),
    "pipenv": ("Pipfile", "Pipfile.lock"),
    "hatch": ("pyproject.toml", "hatch.toml"),
    "pdm": ("pyproject.toml", "pdm.lock"),
    "rye": ("pyproject.toml",),
    "pixi": ("pixi.toml", "pixi.lock", "pyproject.toml"),
    "make": ("GNUmakefile", "makefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "cargo": ("Cargo.toml", "Cargo.lock", "build.rs", ".cargo/config.toml", ".cargo/config"),
    "go": ("go.mod", "go.work"),
    "tox": ("tox.ini", "pyproject.toml"),
    "nox": ("noxfile.py",),
    "rake": ("Rakefile", "rakefile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "gradle": ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    "mvn": ("pom.xml",),
    "bazel": ("MODULE.bazel", "WORKSPACE", "BUILD", "BUILD.bazel"),
    **dict.fromkeys(
        CONTAINERS, ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml", "Dockerfile")
    ),
}
"""Files in the working folder from which each program takes what to run."""

_SHELL_OPTION = re.compile(r"-[a-z]*c[a-z]*|--(init-)?command(=.*)?", re.I)
_POWERSHELL_OPTION = re.compile(r"[-/](c|command\w*|e|ec|en\w*)", re.I)
SHELL_LINES: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("sh", "bash", "zsh", "dash", "ash", "ksh", "fish", "csh", "tcsh"), _SHELL_OPTION),
    **dict.fromkeys(("powershell", "pwsh"), _POWERSHELL_OPTION),
    "cmd": re.compile(r"/[ckr].*", re.I),
}
"""The option of each shell that precedes code."""
_EVAL = re.compile(r"-e|--eval(=.*)?")
_ANYTHING = re.compile(r".*", re.DOTALL)
EVALUATING: Final[Mapping[str, re.Pattern[str]]] = {
    "python": re.compile(r"-[A-Za-z]*c.*", re.DOTALL),
    "node": re.compile(r"-[a-z]*[epr]|--(eval|print|require|import|loader|experimental-loader)(=.*)?", re.DOTALL),
    "npx": re.compile(r"-c|--call(=.*)?", re.DOTALL),
    "npm": re.compile(r"-c|--call(=.*)?", re.DOTALL),
    "perl": re.compile(r"-[A-Za-z0-9]*[eEmM].*", re.DOTALL),
    "ruby": re.compile(r"-[A-Za-z]*[er].*", re.DOTALL),
    "php": re.compile(r"-[rBEd].*", re.DOTALL),
    "deno": re.compile(r"eval"),
    "bun": re.compile(r"-[epr]|--(eval|print|preload)(=.*)?", re.DOTALL),
    "osascript": re.compile(r"-e"),
    "lua": re.compile(r"-[el].*", re.DOTALL),
    **dict.fromkeys(
        ("Rscript", "rscript", "julia", "groovy", "scala", "elixir", "swift", "ghc", "clojure", "bb"), _EVAL
    ),
    **dict.fromkeys(("octave", "emacs"), re.compile(r"--eval(=.*)?|-f|-l|--load(=.*)?|--funcall(=.*)?")),
    **dict.fromkeys(("vi", "vim", "nvim", "ex"), re.compile(r"-[cSu]|--cmd|\+.*")),
    **dict.fromkeys(("gdb", "lldb"), re.compile(r"-(ex|iex|x|o|s)|--(eval-command|command|one-line|source)(=.*)?")),
    **dict.fromkeys(("expect", "guile"), re.compile(r"-c")),
    "erl": re.compile(r"-(eval|s|run)"),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _ANYTHING),
    "make": re.compile(r"--eval(=.*)?|-E"),
    "java": re.compile(r"-(javaagent|agentpath|agentlib|XX:OnOutOfMemoryError)[:=].*"),
    "sqlite3": re.compile(r"-cmd|-init"),
    "mshta": _ANYTHING,
    "rundll32": _ANYTHING,
}
"""The options of each interpreter that precede code."""
_VALUED = frozenset(
    {"-o", "+o", "-O", "--init-file", "--rcfile", "-W", "-X", "-w", "-ep", "-ex", "-executionpolicy", "-windowstyle"}
)
"""Options that take a value."""
_SUBCOMMANDS = ("exec", "x")
"""Subcommands that precede options."""

_HARMLESS = (
    r"PYTHON(UNBUFFERED|IOENCODING|UTF8|DONTWRITEBYTECODE|HASHSEED|NOUSERSITE|FAULTHANDLER)|NODE_(ENV|NO_WARNINGS)"
    r"|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|GIT_(TERMINAL_PROMPT|OPTIONAL_LOCKS)|UV_(CACHE_DIR|OFFLINE|NO_PROGRESS)"
    r"|NODE_(TLS_REJECT_UNAUTHORIZED|EXTRA_CA_CERTS)"
)
DECIDING: Final = re.compile(
    rf"(?!({_HARMLESS})$)("
    r"NODE_\w+|PYTHON\w+|LD_\w+|DYLD_\w+|GCONV_PATH|GLIBC_TUNABLES|OPENSSL_(CONF|MODULES|ENGINES)"
    r"|PATH|PATHEXT|COMSPEC|CDPATH|FPATH|HOME|USERPROFILE|APPDATA|LOCALAPPDATA|\w*(ASKPASS|PAGER|EDITOR|_WRAPPER|_SHELL)"
    r"|XDG_(CONFIG|DATA|CACHE|STATE)_(HOME|DIRS)|VISUAL|BROWSER|LESS(OPEN|CLOSE|KEY)?"
    r"|SHELL|ENV|IFS|PS4|BASH_(ENV|FUNC_.*)|ZDOTDIR|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|PSMODULEPATH|INPUTRC"
    r"|PERL5(OPT|LIB|DB|SHELL)|PERLLIB|RUBY(OPT|LIB|SHELL)|BUNDLE_\w+|GEM_(HOME|PATH)|PHPRC|PHP_INI_SCAN_DIR"
    r"|LUA_(INIT|PATH|CPATH)\w*|R_(PROFILE|ENVIRON|LIBS|HOME)\w*|JULIA_\w+|TCLLIBPATH|VIMINIT|EXINIT|MYVIMRC"
    r"|_?JAVA_(TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|JAVA_(HOME|OPTS)|(MAVEN|GRADLE|SBT)_(OPTS|USER_HOME)|CLASSPATH"
    r"|npm_config_\w+|(PIP|UV|BUN|YARN|CARGO|POETRY|PDM|PIPX|CONDA|MAMBA)_\w+|DENO_DIR|VIRTUAL_ENV|GOFLAGS|GOPATH|GOROOT"
    r"|RUSTC|MAKE(FILES|FLAGS)|CC|CXX|(CPP|CFLAGS|LDFLAGS)|GIT_\w+|HGRCPATH|SSH_\w+|RSYNC_RSH|CVS_RSH|SVN_SSH"
    r"|ELECTRON_RUN_AS_NODE|DOTNET_\w+|COR(ECLR)?_\w+|WGETRC|CURL_HOME|TERMINFO|TERMCAP|DBUS_\w+|KUBECONFIG"
    r"|AWS_CONFIG_FILE|AWS_SHARED_CREDENTIALS_FILE|BOTO_CONFIG|CLOUDSDK_CONFIG|DOCKER_CONFIG"
    r"|JUPYTER_\w*(PATH|DIR)|IPYTHONDIR|IPYMCP_\w+|TAR_OPTIONS|GREP_OPTIONS|ZIPOPT|MANOPT"
    r")",
    re.I,
)
"""Variables that can make programs run code, or set where they look for it."""
TRAFFIC: Final = re.compile(
    r"(https?|all|ftp|no)_proxy|\w*_PROXY|NODE_EXTRA_CA_CERTS|NODE_TLS_REJECT_UNAUTHORIZED|SSL_CERT_(FILE|DIR)"
    r"|SSLKEYLOGFILE|\w*CA_BUNDLE|DOCKER_(HOST|CONTEXT)|HOSTALIASES|RES_OPTIONS|LOCALDOMAIN|NETRC"
    r"|(\w+_)?(BASE_?UR[LI]|API_?(BASE|URL|HOST)|ENDPOINT(_?UR[LI])?|REGISTRY|INDEX_URL)(_\w+)?"
    r"|(GH|GITHUB|GITLAB|OLLAMA|HF|VAULT|CONSUL|KUBERNETES)_\w*(HOST|ADDR|SERVER_URL)",
    re.I,
)
"""Variables that redirect requests, or expose them to others."""


def program_name(word: str) -> str:
    """Return the program that a word may name, or the empty string."""
    if word.startswith("-") or re.match(r"https?://", word):
        return ""
    name = re.split(r"[/\\]", word)[-1].lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


def options(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the leading options and the first other word, each with the index after it."""
    skipped = False
    for place, word in enumerate(words, start=1):
        if skipped:
            skipped = False
            continue
        yield place, word
        if not word.startswith(("-", "+", "/")) and word not in _SUBCOMMANDS:
            return
        skipped = word.lower() in _VALUED or word in _VALUED


def shell_line(program: str, following: Sequence[str]) -> int | None:
    """Return the index of the code among a shell's arguments, or None."""
    option = SHELL_LINES.get(program)
    return None if option is None else next((at for at, word in options(following) if option.fullmatch(word)), None)


def evaluates(program: str, following: Sequence[str]) -> bool:
    """Whether the arguments of an interpreter contain code."""
    evaluating = EVALUATING.get("python" if PYTHON.fullmatch(program) else program)
    return evaluating is not None and any(evaluating.fullmatch(option) for _, option in options(following))

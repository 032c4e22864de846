"""The table of programs that definitions run, and of variables that decide which code runs.

There is one record per program, which the files of an agreement (`binding`), the warnings (`dangers`) and the hints of
errors derive from.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Program(Struct, frozen=True):
    """A program, and the ways in which it runs other code.

    Options are regular expressions that match a whole argument; they are compiled at first use.
    """

    kind: Literal["", "python", "node", "container", "project tool", "wrapper", "other user"] = ""
    """`project tool`: runs commands from a project's settings; `wrapper`: runs another program, given by its arguments;
    `other user`: runs another program as another user."""
    is_launcher: bool = False
    """Whether servers are usually started with it, so that `%mcp load` recognises it at the start of a command."""
    may_download: bool = False
    """Whether a first start may take long because of a download."""
    is_fetching: bool = False
    """Whether it runs a downloaded package."""
    is_interpreter: bool = False
    """Whether it runs the file or folder that an argument names."""
    install: str = ""
    """Advice for a missing program."""
    settings: tuple[str, ...] = ()
    """Files in the working folder that decide what it runs."""
    folder: str = ""
    """The folder of the programs that its arguments name."""
    runs_scripts: bool = False
    """Whether it runs the scripts of `package.json`."""
    shell_option: str = ""
    """The option of a shell that precedes code; case is ignored."""
    code_option: str = ""
    """Options before the first other argument that contain or precede code."""
    package_option: str = ""
    """Options that name a package to run in addition to, or instead of, the command's argument."""
    has_recipes: bool = False
    """Whether its settings files contain the commands that it runs, so that no argument names them."""
    side_option: str = ""
    """Options at any position that run code, or write files that are run later; case is ignored."""


_NODE = "install Node.js, or name the program's full path"
_UV = "pip install uv, or run the server's own module: -- python -m …"
_NODE_FILES = ("package.json", ".npmrc")
_CONTAINER_FILES = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml", "Dockerfile")
_ENGINE = r"--(host|context|connection|url|config)(=.*)?|(-H=?)?(tcp|ssh)://.*"
"""Options of container programs that choose another engine."""
_PACKAGE = r"-p|--package"
_FROM = r"--(from|spec|with|with-editable|with-requirements)"
_EVAL = r"-e|--eval(=.*)?"
_COMMAND = r"-c|--command(=.*)?"
_SQL = r".*(\\!|\.(shell|system|load)\b).*|(?:(?!\bCOPY\b).)*+COPY\b.*\bPROGRAM\b.*"
_TABLE: Mapping[str, Program] = {
    "python": Program("python", is_launcher=True, is_interpreter=True, code_option=r"-[A-Za-z]*c.*"),
    "node": Program(
        "node",
        is_launcher=True,
        is_interpreter=True,
        install=_NODE,
        code_option=r"-[a-z]*[epr]|--(eval|print|require|import|loader|experimental-loader)(=.*)?",
    ),
    "npx": Program(
        "node",
        is_launcher=True,
        may_download=True,
        is_fetching=True,
        install=_NODE,
        settings=_NODE_FILES,
        folder="node_modules/.bin",
        package_option=_PACKAGE,
        code_option=r"-c|--call(=.*)?",
    ),
    "npm": Program(
        "node",
        install=_NODE,
        settings=_NODE_FILES,
        folder="node_modules/.bin",
        runs_scripts=True,
        package_option=_PACKAGE,
        code_option=r"-c|--call(=.*)?",
    ),
    "pnpm": Program(
        "node",
        may_download=True,
        settings=(*_NODE_FILES, "pnpm-workspace.yaml", ".pnpmfile.cjs"),
        runs_scripts=True,
    ),
    "yarn": Program("node", settings=(*_NODE_FILES, ".yarnrc", ".yarnrc.yml"), runs_scripts=True),
    "bun": Program(
        "node",
        is_interpreter=True,
        settings=(*_NODE_FILES, "bunfig.toml"),
        runs_scripts=True,
        code_option=r"-[epr]|--(eval|print|preload)(=.*)?",
    ),
    "bunx": Program(
        "node",
        is_launcher=True,
        may_download=True,
        is_fetching=True,
        settings=(*_NODE_FILES, "bunfig.toml"),
        package_option=_PACKAGE,
    ),
    "deno": Program(
        "node",
        is_launcher=True,
        is_interpreter=True,
        settings=("deno.json", "deno.jsonc", "package.json"),
        code_option="eval",
    ),
    "tsx ts-node": Program(is_interpreter=True),
    "uv": Program(
        "project tool",
        is_launcher=True,
        may_download=True,
        install=_UV,
        settings=("pyproject.toml", "uv.toml", "uv.lock"),
        package_option=_FROM,
    ),
    "uvx": Program(
        "project tool",
        is_launcher=True,
        may_download=True,
        is_fetching=True,
        install=_UV,
        settings=("uv.toml",),
        package_option=_FROM,
    ),
    "pipx": Program(is_launcher=True, may_download=True, package_option=_FROM),
    "pip pip3": Program(may_download=True, package_option=r"-[er]|--(editable|requirement)"),
    # subcommands of pnpm, yarn, uv and bun
    "dlx x": Program(is_fetching=True, package_option=_PACKAGE),
    "tool": Program(is_fetching=True),
    "docker": Program(
        "container",
        is_launcher=True,
        may_download=True,
        install="install Docker, or name the program's full path",
        settings=_CONTAINER_FILES,
        side_option=_ENGINE,
    ),
    "podman": Program("container", is_launcher=True, may_download=True, settings=_CONTAINER_FILES, side_option=_ENGINE),
    "nerdctl": Program("container", settings=_CONTAINER_FILES, side_option=_ENGINE),
    "docker-compose podman-compose": Program("container", settings=_CONTAINER_FILES, has_recipes=True),
    "compose": Program(has_recipes=True),  # a subcommand of docker, podman and nerdctl
    "poetry": Program("project tool", settings=("pyproject.toml", "poetry.lock", "poetry.toml")),
    "pipenv": Program("project tool", settings=("Pipfile", "Pipfile.lock")),
    "hatch": Program("project tool", settings=("pyproject.toml", "hatch.toml")),
    "pdm": Program("project tool", settings=("pyproject.toml", "pdm.lock")),
    "rye": Program("project tool", settings=("pyproject.toml",)),
    "pixi": Program("project tool", settings=("pixi.toml", "pixi.lock", "pyproject.toml")),
    "make": Program(
        "project tool",
        settings=("GNUmakefile", "makefile", "Makefile"),
        has_recipes=True,
        code_option=r"--eval(=.*)?|-E",
    ),
    "just": Program("project tool", settings=("justfile", "Justfile", ".justfile"), has_recipes=True),
    "cargo": Program(
        "project tool",
        settings=("Cargo.toml", "Cargo.lock", "build.rs", ".cargo/config.toml", ".cargo/config"),
        side_option=r"--config(=.*)?",
    ),
    "go": Program("project tool", settings=("go.mod", "go.work")),
    "tox": Program("project tool", settings=("tox.ini", "pyproject.toml"), has_recipes=True),
    "nox": Program("project tool", settings=("noxfile.py",), has_recipes=True),
    "rake": Program("project tool", settings=("Rakefile", "rakefile"), has_recipes=True),
    "task": Program("project tool", settings=("Taskfile.yml", "Taskfile.yaml"), has_recipes=True),
    "gradle": Program(
        "project tool", settings=("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
    ),
    "mvn": Program("project tool", settings=("pom.xml",)),
    "dotnet": Program("project tool"),
    "dnx": Program(
        is_launcher=True,
        may_download=True,
        is_fetching=True,
        install="install the .NET SDK 10 or newer, or name the program's full path",
        settings=("NuGet.config", "nuget.config"),
    ),
    "bazel": Program("project tool", settings=("MODULE.bazel", "WORKSPACE", "BUILD", "BUILD.bazel")),
    "sudo doas pkexec runas": Program("other user"),
    "su": Program("other user", side_option=_COMMAND),
    "env nohup timeout nice ionice setsid stdbuf xargs busybox toybox command exec": Program("wrapper"),
    "start cross-env dotenv direnv mise parallel watch unshare chroot time": Program("wrapper"),
    "nsenter systemd-run": Program("wrapper", side_option=".*"),
    "flock": Program("wrapper", side_option=_COMMAND),
    "sh bash zsh dash ash ksh fish csh tcsh": Program(shell_option=r"-[abd-z]*+c[a-z]*+|--(init-)?command(=.*)?"),
    "powershell pwsh": Program(shell_option=r"[-/](c|command\w*|e|ec|en\w*)"),
    "cmd": Program(shell_option=r"/[ckr].*"),
    "perl": Program(is_interpreter=True, code_option=r"-[A-Za-z0-9]*[eEmM].*"),
    "ruby": Program(is_interpreter=True, code_option=r"-[A-Za-z]*[er].*"),
    "php": Program(is_interpreter=True, code_option=r"-[rBEd].*"),
    "lua": Program(is_interpreter=True, code_option=r"-[el].*"),
    "rscript julia": Program(is_interpreter=True, code_option=_EVAL),
    "groovy scala elixir swift ghc clojure bb": Program(code_option=_EVAL),
    "osascript": Program(code_option="-e"),
    "octave emacs": Program(code_option=r"--eval(=.*)?|-f|-l|--load(=.*)?|--funcall(=.*)?"),
    "vi vim nvim ex": Program(code_option=r"-[cSu]|--cmd|\+.*"),
    "gdb lldb": Program(code_option=r"-(ex|iex|x|o|s)|--(eval-command|command|one-line|source)(=.*)?"),
    "expect guile": Program(code_option="-c"),
    "erl": Program(code_option=r"-(eval|s|run)"),
    "tclsh wish": Program(is_interpreter=True),
    "tee dd cp mv ln install": Program(side_option=r"(of=)?(/|~|\$|\.\.).*"),
    "awk gawk mawk nawk mshta rundll32": Program(code_option=".*"),
    "java": Program(code_option=r"-(javaagent|agentpath|agentlib|XX:OnOutOfMemoryError)[:=].*"),
    "sqlite3": Program(code_option=r"-cmd|-init", side_option=_SQL),
    "psql mysql": Program(side_option=_SQL),
    "ssh scp sftp autossh mosh rsync": Program(
        side_option=r"(-o)?(Proxy|Local|KnownHosts|Remote)Command\b.*|(-o)?(PKCS11|SecurityKey)Provider\b.*"
        r"|(-o)?Match\b.*exec.*|-[FSIe].*|--(rsh|rsync-path)(=.*)?"
    ),
    "git": Program(
        side_option=r"-c|--config-env(=.*)?|--exec-path=.*|(-u|--upload-pack|--receive-pack|--exec|--template)(=.*)?"
        r"|ext::.*|(core|alias|diff|filter|credential|merge|gpg|protocol)\..+"
    ),
    "find fd": Program(side_option=r"-(exec|execdir|ok|okdir|x|X)|--exec(-batch)?"),
    "tar gtar bsdtar": Program(
        side_option=r"--(checkpoint-action|to-command|use-compress-program|rsh-command|info-script)(=.*)?|-[IF].*"
    ),
    "sed gsed": Program(side_option=r"(\d+|/.*/)?e( .*)?|s\W(?:\w*+\W)++[^\We]*+e\w*+"),
    "socat": Program(side_option=r".*\b(EXEC|SYSTEM|SHELL):.*"),
    "nc ncat netcat": Program(side_option=r"-[^\Wec]*+[ec]\w*+|--(exec|sh-exec|lua-exec)(=.*)?"),
    "script runuser": Program(side_option=_COMMAND),
    "xterm gnome-terminal konsole": Program(side_option=r"-e|--(command|execute)?"),
    "zip": Program(side_option=r"-TT|--unzip-command"),
    "openssl": Program(side_option=r"-(engine|provider)"),
    "gcc cc clang g++": Program(side_option=r"-wrapper|-fplugin=.*|-B.*"),
    "curl": Program(side_option=r"-[oOK].*|--(output|config|remote-name)(=.*)?"),
    "nix nix-shell": Program(side_option=r"--run(=.*)?|--command(=.*)?|-c"),
    "kubectl helm": Program(side_option=r"--kubeconfig(=.*)?|exec"),
    "man less more": Program(side_option=r"-P.*|--pager(=.*)?|\+!.*"),
}
_PROGRAMS = {name: one for names, one in _TABLE.items() for name in names.split()}
_OTHER = Program()
SETTINGS_NAMES = frozenset(path.rpartition("/")[2] for one in _TABLE.values() for path in one.settings)
"""Names of all settings files in the table."""
_VALUED = frozenset(
    {"-o", "+o", "-O", "--init-file", "--rcfile", "-W", "-X", "-w", "-ep", "-ex", "-executionpolicy", "-windowstyle"}
)
"""Options that take a value."""
_SUBCOMMANDS = ("exec", "x")
"""Subcommands that precede options."""
_INSTALLERS = frozenset({"run", "exec", "dlx", "x", "install", "tool", "--"})
"""Subcommands that a package follows."""
_VALUED_BY_RUNNERS = re.compile(
    r"-[pcwifC]|--(python|prefix|registry|index|default-index|(extra-)?index-url|env-file|directory|project|config-file"
    r"|cache|cache-dir|workspace|constraints?|overrides?|find-links|prerelease|resolution|exclude-newer|userconfig"
    r"|node-options|script-shell|filter|dir|call)"
)
"""Options of programs that fetch packages, with a value of their own that names no package."""

_HARMLESS = (
    r"PYTHON(UNBUFFERED|IOENCODING|UTF8|DONTWRITEBYTECODE|HASHSEED|NOUSERSITE|FAULTHANDLER)|NODE_(ENV|NO_WARNINGS)"
    r"|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|GIT_(TERMINAL_PROMPT|OPTIONAL_LOCKS)|UV_(OFFLINE|NO_PROGRESS)"
    r"|NODE_(TLS_REJECT_UNAUTHORIZED|EXTRA_CA_CERTS)"
)
_DECIDING = (
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
    r"|(DOTNET|NUGET)_\w+|COR(ECLR)?_\w+|WGETRC|CURL_HOME|TERMINFO|TERMCAP|DBUS_\w+|KUBECONFIG"
    r"|AWS_CONFIG_FILE|AWS_SHARED_CREDENTIALS_FILE|BOTO_CONFIG|(CONTAINERS|DIRENV|NIX|REGISTRIES)_\w+|CLOUDSDK_CONFIG|DOCKER_CONFIG"
    r"|JUPYTER_\w*(PATH|DIR)|IPYTHONDIR|IPYMCP_\w+|(PUPPETEER|CHROME|CHROMIUM|FIREFOX|GECKO|PLAYWRIGHT|SELENIUM|SE|CYPRESS)_\w*(PATH|BINARY|BIN|DIR|DRIVER|DOWNLOAD_\w+)"
    r"|ELECTRON_\w+|(EDGE|GECKO|CHROME)?WEBDRIVER|QT\w*_(PLUGIN_PATH|PATH|PLUGINS?)|QT_QPA_\w+|QML2?_\w*IMPORT_PATH"
    r"|GTK\w*_(MODULES|PATH|EXE_PREFIX)|GI_TYPELIB_PATH|GIO_\w*MODULE\w*|GIO_USE_\w+|GDK_PIXBUF_MODULE\w*"
    r"|GST_(PLUGIN|REGISTRY)\w*|DOCKER_CLI_PLUGIN_\w+|DOCKER_BUILDKIT_\w+|MSBUILD\w+|\w*SDKSPATH"
    r"|VSTEST_\w+|CMAKE_\w+|PKG_CONFIG\w*|LIBGL_DRIVERS_PATH|VK_\w*(LAYER|ICD|DRIVER)\w*|OCL_ICD_\w+|ALSA_\w+"
    r"|HELM_(PLUGINS|BIN)|KREW_ROOT|KUBECTL_\w*DIFF|TF_(CLI_\w+|PLUGIN_CACHE_DIR)|ANSIBLE_\w+|VAGRANT_\w+"
    r"|GOPRIVATE|GOTOOLCHAIN|GOCACHE|RUSTUP_\w+|COMPOSER_\w+|HOMEBREW_\w+|ASDF_\w+|PYENV_\w+|NVM_\w+|VOLTA_\w+"
    r"|TAR_OPTIONS|GREP_OPTIONS|ZIPOPT|MANOPT"
    r")"
)
_TRAFFIC = (
    r"(https?|all|ftp|no)_proxy|\w*_PROXY|NODE_EXTRA_CA_CERTS|NODE_TLS_REJECT_UNAUTHORIZED|SSL_CERT_(FILE|DIR)"
    r"|SSLKEYLOGFILE|\w*CA_BUNDLE|(DOCKER|CONTAINER)_(HOST|CONTEXT|CONNECTION)|NUGETPACKAGESOURCECREDENTIALS_\w+|HOSTALIASES|RES_OPTIONS|LOCALDOMAIN|NETRC"
    r"|(\w+_)?(BASE_?UR[LI]|API_?(BASE|URL|HOST)|ENDPOINT(_?UR[LI])?|REGISTRY|INDEX_URL)(_\w+)?"
    r"|(GH|GITHUB|GITLAB|OLLAMA|HF|VAULT|CONSUL|KUBERNETES)_\w*(HOST|ADDR|SERVER_URL)"
)


def program_name(word: str) -> str:
    """Return the name of the program that a word may name, or the empty string."""
    if word.startswith("-") or re.match(r"https?://", word):
        return ""
    name = re.split(r"[/\\]", word)[-1].lower()
    return re.sub(r"\.(exe|cmd|bat|ps1)$", "", name)


def options(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the leading options and the first other word, each with the index of the next word."""
    skipped = False
    for place, word in enumerate(words, start=1):
        if skipped:
            skipped = False
            continue
        yield place, word
        if not word.startswith(("-", "+", "/")) and word not in _SUBCOMMANDS:
            return
        skipped = word.lower() in _VALUED or word in _VALUED


def program(name: str) -> Program:
    """Return the record of a program, an empty one for a program that is not in the table."""
    return _PROGRAMS.get("python" if re.fullmatch(r"(python|pypy)[\d.]*w?", name) else name, _OTHER)


def shell_line(name: str, following: Sequence[str]) -> int | None:
    """Return the index of the code among a shell's arguments, or None."""
    option = program(name).shell_option
    if not option:
        return None
    return next((at for at, word in options(following) if re.fullmatch(option, word, re.I | re.S)), None)


def evaluates(name: str, following: Sequence[str]) -> bool:
    """Whether the arguments of an interpreter contain code."""
    option = program(name).code_option
    return bool(option) and any(re.fullmatch(option, word, re.S) for _, word in options(following))


def packages(name: str, following: Sequence[str], *, is_fetching: bool) -> Iterator[str]:
    """Yield the values of a program's options that name packages, and the package that it fetches and runs.

    Args:
        name: The program's name.
        following: The words after it.
        is_fetching: Whether its first argument names a package.
    """
    option = program(name).package_option
    value_of = ""
    for word in following:
        if value_of:
            if value_of == "package":
                yield word
            value_of = ""
            continue
        before, equals, value = word.partition("=")
        if option and re.fullmatch(option, before):
            if equals:
                yield value
            else:
                value_of = "package"
        elif _VALUED_BY_RUNNERS.fullmatch(word):
            value_of = "option"
        elif is_fetching and not word.startswith("-") and word not in _INSTALLERS:
            yield word
            return


def decides_code(variable: str) -> bool:
    """Whether a variable can make programs run code, or decides where they search for code."""
    return re.fullmatch(_DECIDING, _with_underscores(variable), re.I) is not None


def decides_traffic(variable: str) -> bool:
    """Whether a variable redirects requests, or exposes them to others."""
    return re.fullmatch(_TRAFFIC, _with_underscores(variable), re.I) is not None


def _with_underscores(variable: str) -> str:
    """Write a variable as most programs read it: `npm_config_script-shell` is `npm_config_script_shell`."""
    return re.sub(r"\W", "_", variable)

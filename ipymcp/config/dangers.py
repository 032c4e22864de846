"""What is dangerous in a definition: pointed out in the question whether it may run. Nothing is refused for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ipymcp.config.command_dangers import command_dangers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.config.definition import ServerDefinition

__all__ = ["dangers"]

_DECIDING = re.compile(
    r"NODE_(OPTIONS|PATH)|PYTHON(PATH|HOME|STARTUP|USERBASE|INSPECT|WARNINGS|BREAKPOINT|EXECUTABLE|PLATLIBDIR|SAFEPATH)"
    r"|LD_(PRELOAD|LIBRARY_PATH|AUDIT)|DYLD_\w+|GLIBC_TUNABLES|OPENSSL_CONF"
    r"|PATH|PATHEXT|COMSPEC|HOME|USERPROFILE|XDG_(CONFIG|DATA)_(HOME|DIRS)|\w*(ASKPASS|PAGER|EDITOR)"
    r"|SHELL|ENV|IFS|BASH_(ENV|FUNC_.*)|ZDOTDIR|PROMPT_COMMAND|SHELLOPTS"
    r"|PERL5(OPT|LIB|DB)|PERLLIB|RUBY(OPT|LIB)|GEM_(HOME|PATH)|_?JAVA_(TOOL_)?OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH"
    r"|npm_config_\w+|(PIP|UV|BUN|YARN|CARGO)_\w+|DENO_DIR|VIRTUAL_ENV|CONDA_PREFIX|GOFLAGS|RUSTC(_WRAPPER)?"
    r"|GIT_(SSH|SSH_COMMAND|CONFIG\w*|EXEC_PATH)|ELECTRON_RUN_AS_NODE|DOTNET_(STARTUP_HOOKS|ROOT)",
    re.I,
)
_TRAFFIC = re.compile(
    r"(https?|all)_proxy|NODE_EXTRA_CA_CERTS|NODE_TLS_REJECT_UNAUTHORIZED|SSL_CERT_(FILE|DIR)|SSLKEYLOGFILE"
    r"|(REQUESTS|CURL)_CA_BUNDLE|DOCKER_HOST",
    re.I,
)


def dangers(definition: ServerDefinition) -> list[str]:
    """What a person should look at before the server runs, one line each."""
    found = [*command_dangers(definition), *_of_environment(definition), *_of_address(definition)]
    if any(pattern in ("*", "**") for pattern in definition.auto_approve):
        found.append("autoApprove *: models may call all of its tools unasked")
    return list(dict.fromkeys(found))


def _of_environment(definition: ServerDefinition) -> Iterator[str]:
    for name in definition.env:
        if _DECIDING.fullmatch(name):
            yield f"{name}: decides what code runs"
        elif _TRAFFIC.fullmatch(name):
            yield f"{name}: decides where its traffic goes, and who can read it"
    if definition.inherit_env is True:
        yield "inherit_env: it gets every variable of this kernel"
    if definition.env_file is not None:
        yield f"its variables come from a file: {definition.env_file}"


def _of_address(definition: ServerDefinition) -> Iterator[str]:
    if definition.url is None:
        return
    try:
        parts = urlsplit(definition.url)
        host = parts.hostname or ""
    except ValueError:
        return
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        yield "http: what is sent can be read on the way"
    if "@" in parts.netloc:
        yield f"the address holds a login; the server is {host}"
    if not host.isascii() or host.startswith("xn--") or ".xn--" in host:
        yield f"the server's name has letters of other scripts: {ascii(host)[1:-1]}"

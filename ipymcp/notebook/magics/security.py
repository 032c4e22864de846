"""`%mcp policy`, `pins`, `trust` and `secret`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ipymcp.names import is_glob, nearest
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax

if TYPE_CHECKING:
    from ipymcp.api.security import Changes, ToolPins, ToolPolicy, TrustedServers
    from ipymcp.notebook.line_syntax import MagicRequest
    from ipymcp.results.tables import Table


def _policy(request: MagicRequest) -> ToolPolicy | Table | None:
    """Show or change the rules for calls of tools.

        %mcp policy                              every tool, with the decisions for you, models and apps
        %mcp policy deny *.delete_*              refuse these for all callers; globs for server.tool
        %mcp policy ask db.*                     ask me first, for all callers
        %mcp policy allow fs.read_* --always     never ask about these; --always: in all notebooks
        %mcp policy allow mail.send --doubted    do not ask even if the model has read untrusted content
        %mcp policy fs.write_file                all matching rules, where they are from, and the deciding one
        %mcp policy fs                           the decisions for the tools of a server, or that a glob matches
        %mcp policy reset [--always]             remove the rules of this notebook; --always: all rules

    The last matching rule decides. By default your own calls are allowed, and calls by models and apps need approval.
    Further rules come from the tool's hints, autoApprove, the definition's "tools", your answers always and never, and
    this notebook.
    """
    policy = request.mcp.policy
    if not request.names:
        return policy
    word, *names = request.names
    always = request.parsed.has("--always")
    if word not in _POLICY_ACTIONS:
        return _rules_for(request, word)
    match word:
        case "explain":
            return policy.explain(names[0])
        case "reset":
            policy.reset(always)
        case "allow":
            policy.allow(*names, always=always, doubted=request.parsed.has("--doubted"))
        case _:
            {"ask": policy.ask, "deny": policy.deny}[word](*names, always=always)
    return None if request.is_quiet else policy.changed(*names)


def _rules_for(request: MagicRequest, name: str) -> Table:
    """The rules for one tool, or the decisions for the tools that a glob or a server's name matches."""
    is_server = name in request.mcp or name in request.host.aliases().values()
    first, *others = request.parsed.names
    if not (is_server or is_glob(name) or "." in name or "__" in name):
        hint = nearest(name, [*_POLICY_ACTIONS, *request.mcp], limit=1) or f"there are {', '.join(_POLICY_ACTIONS)}"
        raise LineError(f"there is no %mcp policy {name}; {hint}", first.start)
    if others:
        raise LineError(f"{others[0].raw} is one too many; usage: %mcp policy SERVER.TOOL", others[0].start)
    policy = request.mcp.policy
    return policy.changed(name) if is_server or is_glob(name) else policy.explain(name)


def _pins(request: MagicRequest) -> ToolPins | Changes | Table | None:
    """Show whether tools have changed since they were first seen here.

        %mcp pins                          every tool, and whether its definition has changed
        %mcp pins fs · fs.read_file        what has changed, line by line
        %mcp pins accept fs.read_file      accept its current definition; without a name, all
        %mcp pins scan                     suspicious text in the descriptions of tools
        %mcp pins export [FILE]            write mcp.lock beside the notebook: %mcp load --locked refuses differences

    Models do not see a changed tool until it is accepted. %config IPyMCP.pins = "all" also blocks your own calls, "off"
    blocks none.
    """
    pins = request.mcp.pins
    if not request.names:
        return pins
    word, *names = request.names
    match word:
        case "accept":
            accepted = pins.accept(*names)
            request.report(f"accepted: {', '.join(accepted)}" if accepted else "no tool has changed")
        case "scan":
            return pins.scan()
        case "export":
            request.report(f"written: {pins.export(names[0] if names else None)}")
        case _:
            return pins.diff(word, *names)
    return None


def _trust(request: MagicRequest) -> TrustedServers | None:
    """Show or revoke your trust in servers of project files.

        %mcp trust                          trusted servers with their files and secrets
        %mcp trust revoke NAME|FILE|HASH…   revoke trust, and stop the affected servers here
        %mcp trust revoke --all

    A server of a project's file runs only after you have seen its whole definition: %mcp load asks once for each
    definition. To be asked again after a refusal, name the server: %mcp start NAME. %mcp load --trust agrees without a
    question. In programs without a user, set IPYMCP_TRUST to all, none, or complete hashes.
    """
    word, *names = request.names or ["list"]
    if word == "list":
        return request.mcp.trust
    counts = Counter(request.mcp.trust.revoke(*names, everything=request.parsed.has("--all")))
    revoked = ", ".join(name if count == 1 else f"{name} ({count} definitions)" for name, count in counts.items())
    request.report(f"revoked: {revoked}" if revoked else "there were no permissions")
    return None


def _secret(request: MagicRequest) -> Table | None:
    """Save secrets for definitions, which refer to them as ${secret:NAME}.

        %mcp secret set github-token       asks for the value at a prompt
        %mcp secret list                   the names of secrets and where they are kept, without values
        %mcp secret delete github-token
        %mcp secret delete input:token     a password that you entered for ${input:token}; you are asked again

    Secrets are kept in the system's keyring if there is one, else encrypted in a file that only you can read. ipymcp
    masks known secrets in logs, errors, tables and displays, but not in results that a tool returns to Python.
    """
    verb, *rest = request.parsed.names
    secrets = request.mcp.secret
    match verb.text:
        case "set":
            if len(rest) > 1 or rest[0].key is not None:
                problem = "give the name only: a prompt asks for the value; a value typed here is visible"
                raise LineError(problem, verb.end)
            request.report(f"kept: {rest[0].text} ({secrets.set(rest[0].text)})")
        case "delete":
            for word in rest:
                secrets.delete(word.text)
            request.report(f"deleted: {', '.join(word.text for word in rest)}")
        case _:
            return secrets.table
    return None


_ALWAYS = (Option("--always"),)

_POLICY_ACTIONS = {
    "allow": Syntax(
        "policy allow PATTERN… [--always] [--doubted]",
        (*_ALWAYS, Option("--doubted")),
        at_least=1,
        takes=("tool",),
    ),
    **{
        word: Syntax(f"policy {word} PATTERN… [--always]", _ALWAYS, at_least=1, takes=("tool",))
        for word in ("ask", "deny")
    },
    "explain": Syntax("policy explain SERVER.TOOL", at_least=1, at_most=1, takes=("tool",)),
    "reset": Syntax("policy reset [--always]", _ALWAYS, at_most=0),
}

COMMANDS = {
    "policy": Command(
        Syntax(
            "policy [SERVER.TOOL | allow|ask|deny PATTERN… | reset]",
            takes=("tool",),
            actions=_POLICY_ACTIONS,
        ),
        _policy,
    ),
    "pins": Command(
        Syntax(
            "pins [NAME… | accept [NAME…] | scan | export [FILE]]",
            takes=("tool",),
            actions={
                "accept": Syntax("pins accept [NAME…]", takes=("tool",)),
                "scan": Syntax("pins scan", at_most=0),
                "export": Syntax("pins export [FILE]", at_most=1, takes=("file",)),
            },
        ),
        _pins,
    ),
    "trust": Command(
        Syntax(
            "trust [list | revoke NAME|FILE|HASH… | revoke --all]",
            actions={
                "list": Syntax("trust list", at_most=0),
                "revoke": Syntax(
                    "trust revoke NAME|FILE|HASH… | --all", (Option("--all"),), instead="--all", takes=("trusted",)
                ),
            },
        ),
        _trust,
    ),
    "secret": Command(
        Syntax(
            "secret set NAME | list | delete NAME…",
            at_least=1,
            actions={
                "set": Syntax("secret set NAME", at_least=1, takes=("secret",)),
                "list": Syntax("secret list", at_most=0),
                "delete": Syntax("secret delete NAME…", at_least=1, takes=("secret",)),
            },
        ),
        _secret,
    ),
}

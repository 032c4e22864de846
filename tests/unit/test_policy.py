"""Decisions of the policy's rules for each caller."""

import msgspec
import pytest

from ipymcp.errors import PolicyError
from ipymcp.protocol.types import ToolDefinition
from ipymcp.runtime.catalog import ToolEntry
from ipymcp.security.policy import Policy
from ipymcp.security.rules import Decision, Rule, ServerGrants, forbidden_by_mode
from ipymcp.security.untrusted import Conversation
from tests.errors import refused

NO_RIGHTS = ServerGrants()


def entry(name: str = "write_file", server: str = "fs", **hints: bool) -> ToolEntry:
    annotations = msgspec.Raw(msgspec.json.encode(hints)) if hints else msgspec.Raw()
    return ToolEntry(server, name, name.replace("-", "_"), ToolDefinition(name, annotations=annotations))


def decisions(policy: Policy, tool: ToolEntry, rights: ServerGrants = NO_RIGHTS) -> str:
    """The decisions on a call by the user, a model and an app."""
    return " ".join(policy.verdict(tool, rights, caller).decision for caller in ("user", "model", "app"))


def test_a_user_may_call_a_tool_and_a_model_or_an_app_needs_approval() -> None:
    assert decisions(Policy(), entry()) == "allow ask ask"


def test_a_model_and_an_app_may_call_a_read_only_tool_only_if_its_world_is_closed() -> None:
    assert decisions(Policy(), entry(readOnlyHint=True)) == "allow ask ask"
    assert decisions(Policy(), entry(readOnlyHint=True, openWorldHint=False)) == "allow allow allow"
    assert decisions(Policy(), entry(readOnlyHint=True, openWorldHint=True)) == "allow ask ask"


def test_the_users_hints_hold_instead_of_the_servers() -> None:
    rights = ServerGrants(hints=(("write_*", {"readOnlyHint": False}),))
    assert decisions(Policy(), entry(readOnlyHint=True, openWorldHint=False), rights) == "allow ask ask"


def test_auto_approve_is_for_models_and_apps() -> None:
    rights = ServerGrants(auto_approve=("write_file",))
    assert decisions(Policy(), entry(), rights) == "allow allow allow"
    assert decisions(Policy(), entry("delete"), rights) == "allow ask ask"


def test_the_last_rule_of_a_definition_that_matches_decides() -> None:
    rights = ServerGrants(tools=(("*", "ask"), ("read_*", "allow"), ("read_secret", "deny")), auto_approve=("*",))
    policy = Policy()
    assert decisions(policy, entry("write_file"), rights) == "ask ask ask"
    assert decisions(policy, entry("read_file"), rights) == "allow allow allow"
    assert decisions(policy, entry("read_secret"), rights) == "deny deny deny"


def test_rules_of_the_notebook_follow_remembered_ones_and_those_follow_the_definition() -> None:
    policy, rights = Policy(), ServerGrants("d1", tools=(("*", "deny"),))
    policy.remember((Rule("write_*", "allow", "always", "d1"),))
    assert decisions(policy, entry(), rights) == "allow allow allow"
    policy.add_rule(Rule("fs.*", "ask", "this notebook"))
    assert decisions(policy, entry(), rights) == "ask ask ask"
    policy.reset()
    assert decisions(policy, entry(), rights) == "allow allow allow"


def test_a_rule_for_a_definition_does_not_cover_another_of_its_name() -> None:
    policy = Policy()
    policy.remember((Rule("*", "allow", "always", "the user's"),))
    assert decisions(policy, entry(), ServerGrants("the user's")) == "allow allow allow"
    assert decisions(policy, entry(), ServerGrants("a project's")) == "allow ask ask"


def test_a_rule_for_a_tool_does_not_cover_tools_that_its_name_matches() -> None:
    policy = Policy()
    policy.remember((Rule("[*]", "allow", "always", "d1"),))  # a tool named "*", as an answer about it is kept
    assert decisions(policy, entry("*"), ServerGrants("d1")) == "allow allow allow"
    assert decisions(policy, entry("delete"), ServerGrants("d1")) == "allow ask ask"


def test_read_only_mode_refuses_tools_not_declared_read_only() -> None:
    policy, rights = Policy(), ServerGrants(read_only=True, tools=(("*", "allow"),))
    assert decisions(policy, entry(), rights) == "deny deny deny"
    assert decisions(policy, entry(readOnlyHint=False), rights) == "deny deny deny"
    assert decisions(policy, entry(readOnlyHint=True), rights) == "allow allow allow"
    assert refused(PolicyError, policy.check, entry(), rights) == (
        "fs.write_file: read-only mode: it is not declared as read-only",
        'if it only reads: "hints": {"write_file": {"readOnlyHint": true}} in its definition',
    )


def test_hinted_read_only_mode_refuses_tools_declared_to_write() -> None:
    policy, rights = Policy(), ServerGrants(read_only="hinted")
    assert decisions(policy, entry(), rights) == "allow ask ask"
    assert decisions(policy, entry(readOnlyHint=False), rights) == "deny deny deny"


def test_a_denied_call_names_the_rule() -> None:
    policy = Policy()
    policy.add_rule(Rule("fs.write_*", "deny", "this notebook"))
    assert refused(PolicyError, policy.check, entry(), ServerGrants()) == (
        "fs.write_file: denied by the rule 'deny fs.write_* (this notebook)'",
        "%mcp policy explain fs.write_file · %mcp policy allow fs.write_file",
    )


def test_a_disabled_tool_is_refused_whatever_the_rules_say() -> None:
    policy, rights = Policy(), ServerGrants(tools=(("*", "allow"),))
    assert policy.verdict(entry(), rights).decision == "allow"
    policy.filters.set("fs.write_*", allowed=False)
    with pytest.raises(PolicyError, match=r"is disabled by 'fs\.write_\*'"):
        policy.check(entry(), rights)
    policy.filters.set("fs.write_*", allowed=True)
    assert policy.check(entry(), rights).decision == "allow"


def test_a_changed_tool_is_hidden_from_models_and_reported_to_the_user() -> None:
    policy, rights = Policy(), ServerGrants("d1", auto_approve=("*",))
    policy.set_changed(frozenset({("d1", "write_file")}), frozenset())
    assert decisions(policy, entry(), rights) == "allow deny deny"
    notice = "fs.write_file has changed since it was pinned: %mcp pins fs.write_file"
    assert policy.check(entry(), rights).notice == notice
    policy.pins = "all"
    assert decisions(policy, entry(), rights) == "deny deny deny"
    policy.pins = "off"
    assert decisions(policy, entry(), rights) == "allow allow allow"


def test_explain_has_every_rule_in_order() -> None:
    policy, rights = Policy(), ServerGrants("d1", tools=(("*", "allow"),), auto_approve=("*",), origin="mcp.json")
    policy.add_rule(Rule("fs.*", "deny", "this notebook"))
    assert [str(rule) for rule in policy.rules(entry(), rights, "model")] == [
        "ask * (a model's call)",
        "allow * (autoApprove in mcp.json)",
        "allow * (tools in mcp.json)",
        "deny fs.* (this notebook)",
    ]


def test_globs_of_a_definition_may_name_its_server() -> None:
    rights = ServerGrants(
        tools=(("*", "deny"), ("fs.write_*", "allow"), ("git.*", "deny")), hints=(("fs.*", {"readOnlyHint": True}),)
    )
    assert decisions(Policy(), entry(), rights) == "allow allow allow"
    assert decisions(Policy(), entry("delete"), rights) == "deny deny deny"
    assert decisions(Policy(), entry(), ServerGrants(auto_approve=("fs.write_file",))) == "allow allow allow"
    assert forbidden_by_mode(entry(), ServerGrants(read_only=True, hints=rights.hints)) is None


def test_a_rule_says_whether_it_covers_a_model_that_has_read_untrusted_content() -> None:
    policy, tool, read = Policy(), entry(), Conversation()
    read.read("web.fetch")

    def decision() -> Decision:
        return policy.check(tool, NO_RIGHTS, "model", conversation=read).decision

    policy.add_rule(Rule("fs.*", "allow", "this notebook"))
    assert decision() == "ask"
    policy.add_rule(Rule("fs.*", "allow", "this notebook", doubted=True))
    assert decision() == "allow"
    assert policy.verdict(tool, NO_RIGHTS, "model").why == "allow fs.* (this notebook, also for doubted models)"
    policy.add_rule(Rule("fs.write_*", "ask", "this notebook"))
    assert decision() == "ask", "the last rule decides"


@pytest.mark.parametrize(
    "rights",
    [
        ServerGrants("d1", auto_approve=("read_file",)),
        ServerGrants("d1", auto_approve=("fs.read_file",)),
        ServerGrants("d1", tools=(("read_file", "allow"),)),
        ServerGrants("d1", hints=(("read_file", {"readOnlyHint": True, "openWorldHint": False}),)),
    ],
)
def test_a_definition_that_allows_a_tool_does_not_allow_another_with_its_alias(rights: ServerGrants) -> None:
    policy = Policy()
    assert decisions(policy, entry("read_file"), rights) == "allow allow allow"
    assert decisions(policy, entry("read-file"), rights) == "allow ask ask"
    policy.set_changed(frozenset(), frozenset(), frozenset({("d1", "read-file")}))
    assert decisions(policy, entry("read-file"), rights) == "allow deny deny", "it was added later"


def test_a_definition_that_forbids_a_tool_forbids_all_with_its_alias() -> None:
    rights = ServerGrants(tools=(("read_file", "deny"),), hints=(("write_file", {"readOnlyHint": False}),))
    assert decisions(Policy(), entry("read-file"), rights) == "deny deny deny"
    read_only = entry("write-file", readOnlyHint=True, openWorldHint=False)
    assert decisions(Policy(), read_only, rights) == "allow ask ask"


def test_a_new_tool_is_held_back_if_a_glob_of_the_definition_allows_it() -> None:
    policy, rights = Policy(), ServerGrants("d1", auto_approve=("read*",))
    policy.set_changed(frozenset(), frozenset(), frozenset({("d1", "read_all")}))
    assert decisions(policy, entry("read_all"), rights) == "allow deny deny"


def test_rules_of_the_user_are_observed_and_answers_to_questions_are_not() -> None:
    policy, observed = Policy(), list[Rule | None]()
    policy.observer = observed.append
    saved = Rule("fs.*", "deny", "always")
    policy.remember((saved,))
    policy.add_rule(saved)
    policy.add_rule(Rule("*", "allow", "models' calls, answered in this notebook", "digest", "model"))
    own = Rule("fs.write", "deny", "this notebook")
    policy.add_rule(own)
    policy.reset()
    assert observed == [own, None]

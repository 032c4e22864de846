"""What views answer to questions, read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from ipymcp.masking import masks
from ipymcp.notebook.panel.messages import Malformed, texts
from ipymcp.policy.questions import TrustAnswer
from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.runtime.interaction import Answer
from ipymcp.text import visible
from ipymcp.tools.forms import CannotDraw, read_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.panel.messages import Message
    from ipymcp.policy.questions import ApprovalAnswer
    from ipymcp.tools.schema import ToolSchema

__all__ = ["Wrong", "action_of", "approved", "filled", "trusted"]

Action: TypeAlias = Literal["accept", "decline", "cancel"]
_ACTIONS: Final[tuple[Action, ...]] = ("accept", "decline", "cancel")


class Wrong(Struct, frozen=True):
    """What the user is to mend; the question stays open."""

    errors: list[Message]


def action_of(message: Message) -> Action:
    """What the user does with a form or an address.

    Raises:
        Malformed: It does not say.
    """
    for action in _ACTIONS:
        if message.get("action") == action:
            return action
    raise Malformed("an answer's 'action' is accept, decline or cancel")


def filled(message: Message, schema: ToolSchema) -> Answer | Wrong:
    """The answer to a form. Raises as `action_of`."""
    action = action_of(message)
    if action != "accept":
        return Answer(action)
    content = message.get("content", {})
    if not is_object(content):
        raise Malformed("an answer's 'content' is an object")
    complaints = schema.complaints(content)
    if complaints:
        return Wrong([{"path": [*one.path], "message": visible(one.problem)} for one in complaints])
    wrong = _wrong_formats(schema, content)
    if wrong:
        return Wrong(wrong)
    for each in schema.parameters:
        if is_object(each.schema) and each.schema.get("format") == "password":
            masks.add(str(content.get(each.name, "")))
    return Answer("accept", schema.check(content))


def _wrong_formats(schema: ToolSchema, content: Message) -> list[Message]:
    """The values of a form that are no email address, date and so on where one is asked for, as at a prompt."""
    try:
        fields = read_form(schema.tree.root)
    except CannotDraw:  # no form of MCP: its values are judged by the schema alone
        return []
    found = [(field, field.problem(content.get(field.name))) for field in fields]
    return [{"path": [field.name], "message": problem} for field, problem in found if problem is not None]


def trusted(
    message: Message, names: frozenset[str], agreed: frozenset[str], wanted: frozenset[tuple[str, str]]
) -> TrustAnswer:
    """What may run.

    Args:
        message: The view's.
        names: The servers that were asked about.
        agreed: Those of them that may run already.
        wanted: The secrets that they want.

    Raises:
        Malformed: It is no answer.
    """
    servers = frozenset(texts(message, "servers")) & names | agreed
    pairs = message.get("secrets", [])
    if not is_array(pairs) or not all(is_array(pair) and len(pair) == 2 for pair in pairs):
        raise Malformed("an answer's 'secrets' is a list of pairs")
    given = frozenset((str(server), str(secret)) for server, secret in pairs)
    return TrustAnswer(servers, frozenset(pair for pair in given & wanted if pair[0] in servers))


def approved(message: Message, answers: Sequence[ApprovalAnswer]) -> ApprovalAnswer:
    """Whether calls may be made. Raises `Malformed` where that is none of the answers there are."""
    for answer in answers:
        if message.get("answer") == answer:
            return answer
    raise Malformed(f"an answer is one of {', '.join(answers)}")

"""Prompts with references: variables, resources and prompts of servers.

`$name` is replaced by a description of the notebook's variable, `@server:resource` by the resource's content, and
`/server.prompt argument=value` at the start of a line by the messages of the prompt. `$…$` on one line is mathematics
and is not changed; `$$` is a literal `$`. In Markdown code, only `$name` of existing variables is replaced. The states
of open apps follow the prompt.

Content with an untrusted source is never put into a sentence of the user's: it follows the prompt in an element, whose
end tag has an id that depends on all of the text, so that no content can end its element.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from ipymcp.errors import UnknownName
from ipymcp.llm.answer import split_images
from ipymcp.llm.prompt_values import ValueDescription, describe
from ipymcp.llm.recording import digest
from ipymcp.llm.result_text import MAX_LENGTH, as_text, estimate_tokens
from ipymcp.names import nearest
from ipymcp.security.untrusted import source_of_value
from ipymcp.text import cut, stripped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ipymcp.results.content import Image


_SHORT: Final = 200
BUDGET: Final = 20_000
"""Maximum estimated tokens of all variables, resources and prompts in one question."""
_CHARACTERS: Final = 4 * BUDGET
IMAGE_TOKENS: Final = 1_600
"""Estimated tokens of one image; providers count by the size of the image."""
_MAX_IMAGES: Final = 8
# Mathematics as notebooks render it: no space inside the dollar signs, no digit after the closing one.
_TOKEN: Final = (
    r"(?P<display>\$\$(?:(?!\$\$).)+?\$\$(?!\$))|(?P<escaped>\$\$)|(?P<math>\$(?![\s$])[^$\n]*?(?<![\s\\])\$(?![\d\w$]))"
    r"|\$(?P<name>[^\W\d]\w*)"
)
_VALUE: Final = r"""(?:"(?:[^"\n]|"")*+"|'(?:[^'\n]|'')*+'|\S+)"""
_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTES: Final = "\"'"
_PUNCTUATION: Final = ".,;:!?)]}>\"'"


class ReferenceReader(Protocol):
    """The resources and prompts that a prompt may refer to."""

    @property
    def servers(self) -> Collection[str]:
        """The names of the servers."""
        ...

    def resource(self, server: str, name: str) -> Any:
        """Read a resource by its URI or name. May block.

        Raises:
            McpError: There is no such resource, or it cannot be read.
        """
        ...

    def prompt(self, server: str, name: str, arguments: str) -> Any:
        """Get the messages of a prompt. May block.

        Args:
            server: The server's name.
            name: The prompt's name.
            arguments: The `name=value` arguments, as typed.

        Raises:
            McpError: There is no such prompt, or an argument is missing.
        """
        ...


class AppState(Struct, frozen=True):
    """The state that an open app has sent for models.

    Attributes:
        name: The tool that the app belongs to: `server.tool`.
        server: The server's name.
        value: The state: data or text.
        source: The name of the app as a source of untrusted content; empty if the state is trusted.
    """

    name: str
    server: str
    value: Any
    source: str


class Attachment(Struct, frozen=True):
    """A variable, resource, prompt or app whose content is in a prompt."""

    name: str
    """The reference as typed: `$df`."""
    what: str
    """A summary, for people, of the part that the model receives: `DataFrame, 344 x 7: its columns and 5 rows`."""


class NamedImage(Struct, frozen=True):
    """An image in a prompt."""

    name: str
    kind: str
    """The MIME type."""
    image: Image


class FilledPrompt(Struct, frozen=True):
    """A prompt with its references filled in."""

    text: str
    attached: tuple[Attachment, ...] = ()
    images: tuple[NamedImage, ...] = ()
    source: str = ""
    """The untrusted source of one of the references; empty if there is none."""
    tokens: int = 0
    """Estimated tokens of everything that was filled in."""


class _ReferenceBlock(Struct):
    """The content of one reference; `name` refers to it in the text."""

    tag: str
    name: str
    reference: str
    content: ValueDescription
    source: str
    """The untrusted source of the content; empty if there is none."""

    @property
    def is_inline(self) -> bool:
        return self.tag != "app" and not self.source and is_short(self.content.text)

    def attachment(self, length: int) -> Attachment:
        is_cut = not self.is_inline and length < len(self.content.text)
        return Attachment(self.reference, self.content.what + (f", cut to {length:,} characters" if is_cut else ""))

    def element(self, length: int) -> Element:
        text = self.content.text
        if length < len(text):
            text = f"{text[:length]}\n[cut here: the question has no room for more]"
        return Element(self.tag, self.name, text)


class Element(Struct, frozen=True):
    """A text for models that someone else may have written, between tags."""

    tag: str
    name: str
    text: str


def marked_up(elements: Sequence[Element], around: str = "") -> list[str]:
    """Put texts between tags whose id none of the texts can contain.

    Args:
        elements: The texts.
        around: Other text of the same message, on which the id depends.
    """
    # A hash is the same at a replay, and an author who wants to write it would have to know it before.
    number = digest([around, *([one.tag, one.name, one.text] for one in elements)])
    return [
        f'<{one.tag} name={json.dumps(one.name, ensure_ascii=False)} id="{number}">\n{one.text}\n</{one.tag} {number}>'
        for one in elements
    ]


def is_short(text: str) -> bool:
    """Whether a value may stand in the sentence that refers to it."""
    return len(text) <= _SHORT and "\n" not in text


def fill(
    prompt: str,
    names: Mapping[str, Any] | None,
    offers: ReferenceReader | None = None,
    *,
    sees_images: bool = True,
    states: Sequence[AppState] = (),
    source_of: Callable[[str], str] = lambda _: "",
) -> FilledPrompt:
    """Replace the references in a prompt, and add the states of apps.

    Args:
        prompt: The prompt as typed.
        names: The notebook's variables; None leaves the prompt unchanged.
        offers: The servers' resources and prompts; None leaves references to them unchanged.
        sees_images: Whether the model accepts images; if not, only their names are sent.
        states: The states of apps.
        source_of: Returns the untrusted source of a string, or the empty string.

    Raises:
        UnknownName: There is no such variable.
        McpError: A resource or a prompt is unknown or cannot be read, or an argument of a prompt is missing.
    """
    filler = _PromptFiller(prompt, names or {}, offers, sees_images, source_of)
    text = prompt if names is None else filler.replaced()
    for state in states:
        filler.add_state(state)
    return filler.filled(text)


def reference_pattern(servers: Iterable[str]) -> str:
    """Return the pattern of a prompt's references: variables and files, and resources and prompts of these servers."""
    names = "|".join(map(re.escape, sorted(servers, key=len, reverse=True)))
    if not names:
        return _TOKEN
    return (
        rf"{_TOKEN}|(?<![\w@.$/-])@(?P<server>{names}):(?P<resource>\"[^\"\n]+\"|'[^'\n]+'|[^\s\"']\S*)"
        rf"|^[ \t]*/(?P<owner>{names})\.(?P<prompt>[^\s=]+)(?P<arguments>(?:[ \t]+[\w.-]+={_VALUE})*)"
    )


class _PromptFiller:
    """The references of one prompt, each of which is looked up once."""

    def __init__(
        self,
        prompt: str,
        names: Mapping[str, Any],
        offers: ReferenceReader | None,
        sees_images: bool,
        source_of: Callable[[str], str],
    ) -> None:
        self._prompt = prompt
        self._names = names
        self._offers = offers
        self._sees_images = sees_images
        self._source_of = source_of
        self._blocks: dict[str, _ReferenceBlock] = {}
        self._images: list[NamedImage] = []
        self._code = [match.span() for match in _CODE.finditer(prompt)]

    def replaced(self) -> str:
        """The prompt with its references replaced."""
        pattern = reference_pattern(self._offers.servers if self._offers is not None else ())
        return re.sub(pattern, self._replace, self._prompt, flags=re.DOTALL | re.MULTILINE)

    def add_state(self, state: AppState) -> None:
        """Add the state of an app after the prompt."""
        text = cut(stripped(as_text(state.value)), MAX_LENGTH)
        content = ValueDescription(type(state.value).__name__, text)
        name = f"app {state.name} {len(self._blocks)}"  # several apps of one tool may be open
        self._blocks[name] = _ReferenceBlock("app", state.name, f"app {state.name}", content, state.source)

    def filled(self, text: str) -> FilledPrompt:
        """The text with the content of its references."""
        blocks = [*self._blocks.values()]
        room = _CHARACTERS - 4 * IMAGE_TOKENS * len(self._images)
        lengths = _shares([len(block.content.text) for block in blocks], room)
        sized = [*zip(blocks, lengths, strict=True)]
        elements = [block.element(length) for block, length in sized if block.content.text and not block.is_inline]
        return FilledPrompt(
            "\n\n".join([text, *marked_up(elements, text)]),
            tuple(block.attachment(length) for block, length in sized),
            tuple(self._images),
            next((block.source for block in blocks if block.source), ""),
            estimate_tokens(sum(lengths)) + IMAGE_TOKENS * len(self._images),
        )

    def _replace(self, match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        if match["name"]:
            return self._variable(match)
        is_code = any(start <= match.start() < end for start, end in self._code)
        if self._offers is None or match["display"] or match["math"] or is_code:
            return match[0]
        return self._resource(match, self._offers) if match["server"] else self._messages(match, self._offers)

    def _variable(self, match: re.Match[str]) -> str:
        name = match["name"]
        if name in self._names:
            return self._insert("variable", name, match[0], lambda: self._names[name])
        before = match.string[match.start() - 1 : match.start()]
        if before.isalnum() or any(start <= match.start() < end for start, end in self._code):
            return match[0]
        near = nearest(name, self._names, limit=1)
        escape = f"$${name} sends the text ${name}"
        raise UnknownName(f"there is no variable {name!r}", hint=" · ".join(filter(None, [near, escape])))

    def _resource(self, match: re.Match[str], offers: ReferenceReader) -> str:
        name, end = match["resource"], ""
        if name[0] in _QUOTES:
            name = name[1:-1]
        else:
            kept = name.rstrip(_PUNCTUATION)
            name, end = kept, name[len(kept) :]
        if not name:
            return match[0]
        server = match["server"]
        return (
            self._insert("resource", f"{server}:{name}", f"@{server}:{name}", lambda: offers.resource(server, name))
            + end
        )

    def _messages(self, match: re.Match[str], offers: ReferenceReader) -> str:
        owner, prompt, arguments = match["owner"], match["prompt"], match["arguments"].strip()
        name = f"{owner}.{prompt} {arguments}".rstrip()
        return self._insert("prompt", name, f"/{name}", lambda: offers.prompt(owner, prompt, arguments))

    def _insert(self, tag: str, name: str, reference: str, look_up: Callable[[], Any]) -> str:
        """The text that replaces a reference: its content if that is short, else the name of its block."""
        block = self._blocks.get(reference)
        if block is None:
            value = look_up()
            content = self._with_images(name, describe(value))
            source = source_of_value(value)
            if not source and isinstance(value, str) and is_short(value):  # a copy may be of a stranger's text
                source = self._source_of(value)
            block = self._blocks[reference] = _ReferenceBlock(tag, name, reference, content, source)
        text = block.content.text
        return text if block.is_inline and text else name if tag == "variable" else f"[the {tag} {name}]"

    def _with_images(self, name: str, content: ValueDescription) -> ValueDescription:
        """A description whose images were added to the request or, if they are not sent, are named in its text."""
        shown, others = split_images(content.images)
        room = _MAX_IMAGES - len(self._images) if self._sees_images else 0
        self._images += [NamedImage(name, kind, image) for kind, image in shown[:room]]
        notes = [
            f"{image}: not sent, because it is too large or of a type that models do not accept" for image in others
        ]
        if left := len(shown) - min(room, len(shown)):
            reason = f"only {_MAX_IMAGES} are sent" if self._sees_images else "this model accepts no images"
            notes.append(f"[{content.what}{f' ({left} images)' if left > 1 else ''}: not sent, {reason}]")
        if not notes:
            return content
        what = f"{content.what}, not sent" if not content.text else f"{content.what}, images not sent"
        return ValueDescription(what, "\n".join(filter(None, [content.text, *notes])))


def _shares(wanted: Sequence[int], room: int) -> list[int]:
    """Divide space between texts: each gets its wanted length, or an equal share of what shorter texts leave."""
    shares = [0] * len(wanted)
    for left, index in zip(range(len(wanted), 0, -1), sorted(range(len(wanted)), key=wanted.__getitem__), strict=True):
        shares[index] = min(wanted[index], max(room, 0) // left)
        room -= shares[index]
    return shares

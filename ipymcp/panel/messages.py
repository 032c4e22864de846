"""The messages between the views of the panel and the kernel.

`labextension/protocol.py` generates the page's types from this module, the commands and the permissions. A message is
an object with a `kind`; the other fields of an intent depend on its command (`commands.py`). Both sides ignore unknown
kinds and fields.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Final, Literal, NewType, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError

from ipymcp.config.definition import Transport
from ipymcp.errors import McpError
from ipymcp.interaction.cells import Cell, CellAction, CellType
from ipymcp.interaction.questions import PageReply, QuestionKind
from ipymcp.protocol.recording import MessageKind
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results.records import FileFormat
from ipymcp.runtime.server_status import State
from ipymcp.security.rules import Decision
from ipymcp.storage.history import CallSummary, Outcome
from ipymcp.storage.kernel_socket import VERSION

Mode: TypeAlias = Literal["full", "run", "view"]
Part: TypeAlias = Literal["servers", "calls", "questions"]
Keep: TypeAlias = Literal["notebook", "me", "project"]
CodeForm: TypeAlias = Literal["python", "magic"]
JsonObject: TypeAlias = dict[str, Any]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=10_000)]
Texts: TypeAlias = Annotated[list[str], Meta(max_length=1_000)]


# -- from a view ------------------------------------------------------------------------------------------------------


class FromView(Struct):
    """A message of a view, or a part of one. A field with a default may be absent."""


class ViewHello(FromView, tag_field="kind", tag="hello"):
    """The first message of a view, and a request for a new snapshot."""

    version: int
    client: str = "cell"
    wants: list[str] | None = None
    """The parts of the state that the view wants; all if absent. Unknown parts are ignored."""
    server: str | None = None
    """The only server to show."""
    callback: str | None = None
    """The OAuth redirect URL of the page's Jupyter server."""
    control: bool = False
    """Whether the view uses the control channel while the kernel is busy."""
    cells: bool = False
    """Whether the view reads and changes the notebook's cells."""


class Bye(FromView, tag_field="kind", tag="bye"):
    """The view was closed. It may send a hello again."""


class Acknowledgement(FromView, tag_field="kind", tag="read"):
    """The number of bytes that the view has read."""

    sent: int


class Intent(FromView, tag_field="kind", tag="intent"):
    """A command and its fields, which `read` converts to the command's own type."""

    id: int
    do: Any


class NoFields(FromView):
    """A command without fields."""


class ServerFields(FromView):
    """A command to a server."""

    server: Text


class IconFields(ServerFields, kw_only=True):
    """A request for the icon of a server, or of a tool, a prompt or a resource by its name or its URI."""

    of: Literal["server", "tools", "resources", "prompts"]
    name: Text = ""


class AnyServerFields(FromView):
    """A command to one server or to all."""

    server: Text | None = None


class LoadFields(FromView):
    """Servers to load."""

    what: Annotated[Texts, Meta(min_length=1)]


class SearchFields(FromView):
    """Words to look for in the registry."""

    words: Annotated[str, Meta(max_length=200)]
    cursor: Annotated[str, Meta(max_length=2_000)] = ""


class TryFields(FromView):
    """A server to define and start."""

    trial: int
    """The view's number for the trial."""
    by: Literal["registry", "fields", "command", "json"]
    what: Annotated[str, Meta(min_length=1, max_length=100_000)]
    """The name in the registry, the definition that a form has in ipymcp's own format, a command, or a document."""
    keep: Keep
    name: str = ""
    """The name of the server; empty to derive it from the command or URL."""
    version: str | None = None
    way: int | None = None
    """The index of the `RunnableWay` in the registry's entry."""
    replaces: Text | None = None
    """The server to edit, which one of ipymcp's own files defines."""


class PastedFields(FromView):
    """A text that may define a server."""

    text: Annotated[str, Meta(min_length=1, max_length=100_000)]


class TrialFields(FromView):
    """A command about a trial, by the view's number."""

    trial: int


class PathFields(FromView):
    """A config file, relative to the notebook's folder."""

    path: Text


class ToolFields(ServerFields):
    """A command about a tool."""

    tool: Text


class SwitchFields(FromView):
    """Tools to enable or disable."""

    tools: Annotated[list[ToolFields], Meta(min_length=1, max_length=10_000)]


class CallFields(ToolFields):
    """A call."""

    arguments: JsonObject = {}


class CodeFields(CallFields, kw_only=True):
    """A call to convert to code."""

    form: CodeForm


class ValueFields(ServerFields):
    """The value of a variable or secret that a server's definition needs."""

    name: Text
    value: Text


class CancelFields(FromView):
    """A call to cancel."""

    call: int


class ReadFields(ServerFields):
    """A resource to read: a URI, or a template with its arguments."""

    uri: Text | None = None
    template: Text | None = None
    arguments: JsonObject = {}


class PromptFields(ServerFields):
    """A prompt to get."""

    prompt: Text
    arguments: JsonObject = {}


class SuggestFields(ServerFields, kw_only=True):
    """An argument of a prompt or a parameter of a template that is being typed."""

    prompt: Text | None = None
    template: Text | None = None
    argument: Text
    typed: Annotated[str, Meta(max_length=10_000)] = ""
    others: dict[str, str] = {}
    """The values of the other arguments."""


class ResultFields(FromView):
    """A command about the table of a result, by the number of the result."""

    result: int


class RowsFields(ResultFields, kw_only=True):
    """Rows of a result's table. The whole table is sorted, not only these rows."""

    first: Annotated[int, Meta(ge=0)] = 0
    sort: int | None = None
    """The number of the column; None for the order of the result."""
    descending: bool = False


class FileFields(ResultFields, kw_only=True):
    """A part of a result's table as a file."""

    format: FileFormat
    offset: Annotated[int, Meta(ge=0)] = 0


class FollowFields(ServerFields):
    """A command to start or stop following a server's log or messages."""

    on: bool
    """Whether to start."""
    since: int | None = None
    """The number of the last line or message that the view has."""


class HistoryFields(FromView):
    """A selection of finished calls."""

    words: str | None = None
    """Text to find in `server.tool`."""
    outcome: Outcome | None = None
    everywhere: bool = False
    """Whether to include the calls of other notebooks."""
    after: int | None = None
    """Only rows with a higher id."""
    before: int | None = None
    """Only rows with a lower id."""
    limit: int = 100


class PastCallFields(FromView):
    """A finished call, by the id of its row, or a running one, by its number."""

    row: int | None = None
    call: int | None = None


class AnswerFields(PageReply, frozen=True, kw_only=True):
    """A reply to a question."""

    question: Text


class CellFields(FromView):
    """The reply to a `CellRequest`."""

    request: int
    cells: Annotated[list[Cell], Meta(max_length=100_000)] = msgspec.field(default_factory=list[Cell])
    """All cells, or only the inserted or edited one."""
    problem: Annotated[str, Meta(max_length=1_000)] = ""
    """The reason that the request failed; empty if it succeeded."""


ToKernel: TypeAlias = ViewHello | Bye | Acknowledgement | Intent


# -- to a view --------------------------------------------------------------------------------------------------------


class ToView(Struct):
    """A message to a view, or a part of one."""


class Problem(ToView):
    """An error, with a hint how to fix it."""

    message: str
    hint: str | None = None
    type: str | None = None
    key: str | UnsetType = UNSET
    """The key of the wrong value in a server's definition, such as `env.TOKEN`."""


class StartProgress(ToView):
    """A start in progress."""

    attempt: int
    attempts: int
    """Maximum attempts."""
    since: float
    line: str | None
    """The last line that the program wrote to stderr."""


class ServerRow(ToView):
    """A server. Times are seconds since the epoch."""

    name: str
    alias: str
    state: State
    lazy: bool
    transport: Transport
    protocol: str | None
    """The negotiated version of the protocol."""
    version: str | None
    where: str
    """The command line or URL."""
    source: str
    own: bool
    """Whether one of ipymcp's own files defines the server, so that it can be edited and removed."""
    since: float | None
    pid: int | None
    calls: int
    tools: int
    resources: int | None
    prompts: int | None
    disabled_tools: int
    tools_version: int
    """A number that changes with the server's tools or their policy."""
    error: Problem | None
    missing: str | None
    """The name of a variable or secret of the definition without a value; `set_value` sets it."""
    starting: StartProgress | None
    instructions: str | None
    capabilities: list[str]
    has_icon: bool = False


class CallProgress(ToView):
    """The progress that a server has reported."""

    progress: float
    total: float | None
    message: str | None


class CallRow(ToView):
    """A running call."""

    id: int
    server: str
    tool: str
    started: float
    progress: CallProgress | None
    origin: str
    """Maker of the call: `user`, `panel`, `model` or `app`."""
    cell: int | None
    waits: bool
    """Whether it waits for an answer of the user."""


class Badge(ToView):
    """A property of a tool."""

    text: str
    kind: Literal["safe", "danger", "neutral"]


class ToolRow(ToView, omit_defaults=True):
    """A tool. Only the command `tool` returns the schemas."""

    server: str
    name: str
    alias: str
    title: str | None
    description: str | None
    badges: list[Badge]
    decision: Decision
    disabled: bool
    changed: bool
    findings: list[str]
    has_icon: bool = False
    schema: JsonObject | None = None
    output_schema: JsonObject | None = None


class PreviewImage(ToView):
    """An image of a preview."""

    mime: str
    data: str


class PreviewLink(ToView):
    """A link to a resource."""

    uri: str
    name: str


class TableColumn(ToView):
    """A column of a table."""

    name: str
    is_numeric: bool
    """Whether all cells of the page are numbers."""


class TablePage(ToView):
    """Some rows of a table as text."""

    columns: list[TableColumn]
    more_columns: int
    rows: list[list[str]]
    first: int
    total: int
    """The number of all rows."""


class TableRecord(ToView):
    """All values of one row."""

    members: list[tuple[str, str]]
    """Names and texts."""
    more: int
    """The number of values that are not sent."""


class ResultTable(ToView):
    """The first page of a result's table, and the number of the result to request other pages."""

    result: int
    page: TablePage
    notes: list[str]
    """Lines below the table."""


class FilePart(ToView):
    """A part of a file in base64."""

    data: str
    size: int
    """Size of the whole file in bytes."""
    next: int | None
    """The offset of the next part; None after the last part."""


class Preview(ToView):
    """The result of a call, a resource or a prompt, truncated for display."""

    text: str | None
    html: str | None
    image: PreviewImage | None
    json: Any
    links: list[PreviewLink]
    truncated: bool
    size: int
    variable: str | None
    """The expression for the full value in the notebook."""
    table: ResultTable | None = None
    """The table to show instead of the HTML."""
    markdown: str | None = None
    """The text as Markdown that is safe to render, for a page that can; None if it is not Markdown."""


class QuestionHead(ToView):
    """The fields of a question that its page does not have. A view only receives questions that it may answer."""

    id: str
    kind: QuestionKind


QuestionRow = NewType("QuestionRow", dict[str, Any])
"""A `QuestionHead` and a `QuestionPage` in one object."""


class StateRows(ToView):
    """The state by row keys."""

    servers: dict[str, ServerRow]
    calls: dict[str, CallRow]
    questions: dict[str, QuestionRow]


class StateChanges(ToView, omit_defaults=True):
    """The changed rows by row keys; None for a removed row."""

    servers: dict[str, ServerRow | None] = {}
    calls: dict[str, CallRow | None] = {}
    questions: dict[str, QuestionRow | None] = {}


class LogRow(ToView):
    """A line of a log."""

    n: int
    time: float
    level: str
    source: str
    text: str


class StringParameter(ToView):
    """A parameter of a resource template or a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class UsedServers(ToView):
    """The servers that this notebook loaded earlier and that are not loaded now."""

    names: list[str]
    what: list[str]
    """The arguments for `load` of the servers that can be loaded again, which are not defined in a cell."""
    line: str
    """The same as a `%mcp load` line; empty if no server can be loaded again."""
    typed: list[str]
    """The names of the servers that are defined in a cell."""


class MissingServer(ToView):
    """A server that this notebook used and that cannot be restored."""

    name: str
    reason: str


class RestoredServers(ToView):
    """The reply to `restore`: what this notebook used before is back."""

    servers: list[str]
    """The names of the servers that are loaded again; one that fails to start is one of them."""
    rules: int
    """The number of tools that were switched on or off, and of rules, that apply again."""
    missing: list[MissingServer]


class OfferRow(ToView, kw_only=True):
    """The common fields of resources, templates and prompts."""

    name: str
    title: str | None = None
    description: str | None = None
    has_icon: bool = False


class ResourceRow(OfferRow):
    """A resource."""

    uri: str
    mime: str | None = None
    size: float | None = None


class TemplateRow(OfferRow):
    """A resource template (RFC 6570)."""

    template: str
    parameters: list[StringParameter]


class ResourceRows(ToView):
    """The resources and templates of a server."""

    resources: list[ResourceRow]
    templates: list[TemplateRow]


class PromptRow(OfferRow):
    """A prompt."""

    arguments: list[StringParameter]


class HistoryRow(CallSummary, frozen=True, kw_only=True):
    """A finished call."""

    call: int | None = None
    """The number of the call, if this kernel made it recently."""


class CallDetails(ToView):
    """The details of one call that its row does not contain."""

    arguments: str | None = None
    """JSON; None if they are not known."""
    result: Preview | None = None
    is_too_large: bool = False
    """Whether the result was too large to be kept as a whole."""
    openable: bool = False
    """Whether the result can be kept in `mcp.results`."""
    error: Problem | None = None
    questions: list[str] = []
    """Questions that the user was asked, with the answers."""
    repeatable: bool = False
    """Whether the arguments are known exactly, so that the same call can be made again."""


class RunnableWay(ToView):
    """One way to run a server of the registry."""

    label: str
    runs: str
    """The command or the URL, with the names of its inputs in braces."""
    problem: str | None
    """The reason that this way is not possible here, and what to do."""
    inputs: list[str]
    """The names of the values that the user must enter."""


class RegistryRow(ToView):
    """A server of the registry."""

    name: str
    title: str
    description: str
    version: str
    publisher: str
    is_verified: bool
    status: str
    """The reason that the server cannot or should not be added; empty for an active server."""
    is_deleted: bool
    website: str
    ways: list[RunnableWay]


class RegistryPage(ToView):
    """Servers of the registry, and the cursor for the next page."""

    registry: str
    entries: list[RegistryRow]
    cursor: str
    notes: list[str]


class TrialTool(ToView):
    """A tool of a server in a trial."""

    name: str
    description: str | None


class Trial(ToView):
    """The outcome of a trial: the server's tools, or the problem and the last lines of its log."""

    name: str
    place: str
    """The file that will define the server, or the notebook."""
    runs: str
    folder: str
    """The folder that its program runs in; empty if it has none, or for several servers."""
    python: str
    """How Python reaches the server once it is saved; empty for several servers."""
    tools: list[TrialTool]
    more_tools: int
    """The number of tools that are not listed."""
    problem: Problem | None
    log: list[str]
    notes: list[str]


class AddedServer(ToView):
    """A server that was added, and the cell that loads it."""

    name: str
    cell: str


class OwnDefinition(ToView):
    """A server's definition in one of ipymcp's own files, as JSON with masked secrets."""

    text: str
    keep: Keep


class PastedDefinition(ToView):
    """The only server that a text defines."""

    name: str | None
    """The name in the text; None if there is none."""
    text: str
    """The definition as JSON."""


class UnloadedServer(ToView):
    """A configured server that is not loaded."""

    name: str
    source: str
    where: str
    is_project: bool
    """Whether a file of the notebook's project defines it."""


class FieldError(ToView):
    """The error of one value of a form."""

    path: list[str | int]
    message: str


class FieldErrors(ToView):
    """The errors of a form's values."""

    errors: list[FieldError]


class StartedCall(ToView):
    """The number of a started call; a `result` message follows."""

    call: int


class CallText(ToView):
    """A call as code."""

    text: str


class MemoryUse(ToView):
    """The resident memory of a server's processes, in bytes."""

    bytes: int
    processes: int


class KernelHello(ToView, tag_field="kind", tag="hello"):
    """The kernel's identity and the view's current permissions."""

    version: int
    ipymcp: str
    mode: Mode
    namespace: str
    kernel: str
    visitor: bool = False
    """Whether the user is a visitor, who sees no details of the machine."""
    control: bool = False
    """Whether views may use the control channel, which running cells do not block."""


class Snapshot(ToView, tag_field="kind", tag="snapshot"):
    """The whole state."""

    seq: int
    state: StateRows


class Patch(ToView, tag_field="kind", tag="patch"):
    """The changes since the previous snapshot or patch, whose number is lower by one."""

    seq: int
    set: StateChanges


class SuccessReply(ToView, tag_field="kind", tag="reply"):
    """The reply to an intent."""

    id: int
    ok: Literal[True]
    value: Any


class FailureReply(ToView, tag_field="kind", tag="reply"):
    """The reply to a failed intent or to a malformed message."""

    id: int | None
    ok: Literal[False]
    error: Problem


class FinishedCall(ToView, tag_field="kind", tag="result"):
    """The result of a call that the view has made."""

    call: int
    ok: Literal[True]
    preview: Preview


class FailedCall(ToView, tag_field="kind", tag="result"):
    """The error of a call that the view has made."""

    call: int
    ok: Literal[False]
    error: Problem


class LogBatch(ToView, tag_field="kind", tag="log"):
    """New lines of a log that the view follows."""

    server: str
    lines: list[LogRow]
    dropped: int
    """The number of lines before these that are not sent."""


class MessageRow(ToView):
    """A JSON-RPC message between the kernel and a server."""

    n: int
    time: float
    sent: bool
    type: MessageKind
    method: str
    id: str | None
    size: int
    duration: float | None
    """Seconds from the request to this response."""
    text: str
    """The beginning of the message, at most `size` bytes."""


class MessageBatch(ToView, tag_field="kind", tag="protocol"):
    """New messages of a server that the view follows."""

    server: str
    lines: list[MessageRow]
    dropped: int
    """The number of messages before these that are not sent."""


class HistoryUpdate(ToView, tag_field="kind", tag="history"):
    """The number of finished calls."""

    over: int


class CellRequest(ToView, tag_field="kind", tag="cells"):
    """A request to read the notebook's cells, to insert one, or to edit one."""

    id: int
    do: CellAction
    cell: str
    """The cell to edit, or to insert below; empty to insert below the running cell."""
    source: str
    was: str
    """The source of the cell to edit as it was read; a cell that has changed since is not edited."""
    type: CellType


class Mark(ToView, tag_field="kind", tag="mark"):
    """The number of bytes sent so far over a channel without flow control; the view replies with `read`."""

    sent: int


FromKernel: TypeAlias = (
    KernelHello
    | Snapshot
    | Patch
    | SuccessReply
    | FailureReply
    | FinishedCall
    | FailedCall
    | LogBatch
    | MessageBatch
    | HistoryUpdate
    | CellRequest
    | Mark
)


# -- apps -------------------------------------------------------------------------------------------------------------


class AppFields(FromView):
    """A command about an app, by its number."""

    app: int


class CloseAppFields(AppFields):
    """A command to close one of the places that show an app. The last one closes the app."""

    page: Text = ""
    """An identifier of the place."""


class OpenAppFields(CloseAppFields):
    """A request for the page of an app."""

    known: Texts = []
    """Hashes of the pages that the view already has."""


class AgreeFields(AppFields):
    """The user's consent to show a page."""

    hash: Text
    """The hash of the page that the user was asked about."""
    grants: bool
    """Whether the page gets the access that it declares."""
    eval: bool = False
    """Whether its scripts may also use `eval`."""


class LeaveAppFields(AppFields):
    """A notice that one of the pages of an app was closed."""

    page: Text
    """An identifier of the page."""


class AppRequestFields(LeaveAppFields):
    """A JSON-RPC request of a page."""

    method: Text
    params: JsonObject


class FollowCallFields(LeaveAppFields):
    """A request for the call of an app, once it has changed."""

    version: int
    """The version that the view knows."""


class AppCall(ToView, kw_only=True):
    """The call of an app, as far as it is known. The members are those of `CallData`."""

    version: int = 0
    partial: Any = None
    input: Any = None
    result: Any = None
    cancelled: str | None = None


class OpenedApp(AppCall, kw_only=True):
    """A page to show, or the reason that the user must agree first."""

    server: str
    tool: str
    title: str
    hash: str
    asks: Literal["first", "changed"] | None
    """The reason that the user must agree first; None if no consent is needed."""
    may_agree: bool
    """Whether this view may agree."""
    domains: list[str]
    """The origins that the page declares."""
    permissions: list[str]
    """The browser features that the page declares."""
    is_granted: bool = False
    """Whether the user has granted these origins and features."""
    html: str | None = None
    """The HTML of the page; None if the view has it, or if the user must agree first."""
    frame: str = ""
    """The HTML of the frame that shows the page."""
    query: str = ""
    """The query string for the same frame at the Jupyter server."""
    allow: str = ""
    """The `allow` attribute of the frame."""
    has_border: bool | None = None
    connect: list[str] = []
    """Granted origins of requests."""
    resource: list[str] = []
    """Granted origins of scripts, styles, images, fonts and media."""
    definition: JsonObject = {}
    """The definition of the tool."""


class AppReply(ToView):
    """The response to a request of a page."""

    result: Any = None
    error: str = ""
    code: int = 0


# -- reading and writing ----------------------------------------------------------------------------------------------

_KINDS: Final = {"hello": ViewHello, "bye": Bye, "read": Acknowledgement, "intent": Intent}
_MAX_REASON: Final = 300
F = TypeVar("F", bound=Struct)


class Malformed(McpError):
    """A message of a view is malformed."""


def is_hello(message: object) -> bool:
    """Whether a message opens a connection."""
    return is_object(message) and message.get("kind") == "hello"


def decode(message: object) -> ToKernel | None:
    """Decode a view's message; None for an unknown kind, which a later version may have.

    Raises:
        Malformed: The message is not an object, or a field of it is missing or wrong.
    """
    if not is_object(message):
        raise Malformed("a message is a JSON object")
    kind = message.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        return None
    try:
        return read(message, _KINDS[kind], kind)
    except Malformed:
        version = message.get("version")
        if kind != "hello" or version == VERSION:
            raise
        version = version if isinstance(version, int) else 0
        return ViewHello(version=version, client="cell")  # the other fields may differ in that version


def read(message: JsonObject, form: type[F], name: str) -> F:
    """Convert a message to its type.

    Args:
        message: The message; fields that the type lacks are ignored.
        form: The type.
        name: The name of the message in an error.

    Raises:
        Malformed: A field is missing or wrong.
    """
    try:
        return msgspec.convert(message, form)
    except ValidationError as error:
        raise Malformed(f"{name!r} is malformed: {str(error)[:_MAX_REASON]}") from None


def encode(message: ToView) -> bytes:
    """Encode a message as one line of strict JSON."""
    try:
        return msgspec.json.encode(message)  # NaN and infinities become null
    except UnicodeEncodeError:
        text = json.dumps(sound(msgspec.to_builtins(message)), ensure_ascii=False, separators=(",", ":"))
        return text.encode()


def sound(value: Any) -> Any:
    """Return a value without NaN, infinities and lone surrogates, which strict JSON cannot express."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_object(value):
        return {sound(key): sound(item) for key, item in value.items()}
    if isinstance(value, tuple):
        value = [*value]  # pyright: ignore[reportUnknownVariableType]
    return [sound(item) for item in value] if is_array(value) else value


def finite(number: float | None) -> float | None:
    """Return a finite number unchanged, else None."""
    return number if number is not None and math.isfinite(number) else None


class Channel(Protocol):
    """A channel to a view."""

    async def send_line(self, line: bytes) -> None:
        """Send an encoded message; wait until the next one can be sent."""
        ...

    def restart(self, hello: ViewHello) -> None:
        """Handle a hello: the view has read or lost everything sent so far."""
        ...

    def acknowledge(self, count: int) -> None:
        """Handle the number of bytes that the view has read."""
        ...

    def delivers_answers(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers arrive while a cell is running, or blocks the kernel's main thread."""
        ...

    def detach(self) -> None:
        """Handle that the view was detached."""
        ...

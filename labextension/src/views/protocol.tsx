import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { MessageKind, MessageRow } from "../protocol";
import { serversOf } from "../store";
import { bytes, clock, count, duration, singleLine, visible } from "../text";
import { trans } from "../translation";
import { saveRows, useCopy, usePanel, useSelect, useStream } from "./context";
import { ListAndDetail } from "./detail";
import { Button, FilterSelect, Lines, SearchField, ServerSelect, StreamBar } from "./parts";
import { Rows } from "./rows";

const KINDS: MessageKind[] = ["request", "response", "error", "notification", "batch", "malformed"];

const kindTitles = (): { [Kind in MessageKind]: string } => ({
  request: trans.__("Request"),
  response: trans.__("Response"),
  error: trans.__("Error response"),
  notification: trans.__("Notification"),
  batch: trans.__("Batch"),
  malformed: trans.__("Not a message"),
});

const line = (row: MessageRow): string =>
  `${clock(row.time, true)} ${row.sent ? "\u2192" : "\u2190"} ${visible(row.text)}`;

/** The JSON-RPC messages between the kernel and a server, from when this view is opened to when it is closed. */
export function ProtocolView({ active, server }: { active: boolean; server: string }): JSX.Element {
  const { model } = usePanel();
  const all = useSelect((state) => state.servers);
  const show = (protocol: string): void => model.show("activity", { protocol });
  return (
    <Messages
      key={server}
      active={active}
      server={server}
      head={
        <>
          <Button quiet onClick={() => show("")}>
            {"\u2039"} {trans.__("Calls")}
          </Button>
          <ServerSelect servers={serversOf(all)} value={server} onChange={show} />
        </>
      }
    />
  );
}

function Messages({ active, server, head }: { active: boolean; server: string; head: JSX.Element }): JSX.Element {
  const copy = useCopy();
  const [paused, setPaused] = useState(false);
  const [kind, setKind] = useState<MessageKind | "">("");
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<number | null>(null);
  const stream = useStream("protocol", server, true, active && !paused);
  const requests = useMemo(() => requestsOf(stream.rows), [stream.rows]);
  const rows = useMemo(() => {
    const words = search.toLowerCase();
    const isShown = (row: MessageRow): boolean =>
      (!kind || row.type === kind) &&
      (!words || `${row.method} ${requests.get(row)?.text ?? ""} ${row.text}`.toLowerCase().includes(words));
    // A request and its response are one row, that of the response.
    const answered = new Set(kind ? [] : requests.values());
    return stream.rows.filter((each) => !answered.has(each) && isShown(each)).reverse();
  }, [stream.rows, requests, kind, search]);
  const withRequests = [...rows].reverse().flatMap((each) => [requests.get(each) ?? [], each].flat());
  const row = stream.rows.find((each) => each.n === chosen);
  const request = row && requests.get(row);
  const titles = kindTitles();
  const list = (
    <>
      <div class="mcp-toolbar mcp-filters">
        {head}
        <FilterSelect<typeof kind>
          label={trans.__("Kind")}
          value={kind}
          options={[["", trans.__("All messages")], ...KINDS.map((each) => [each, titles[each]] as const)]}
          onChange={setKind}
        />
        <SearchField label={trans.__("Search messages")} value={search} onInput={setSearch} />
      </div>
      <StreamBar
        paused={paused}
        onPause={setPaused}
        onCopy={() => copy(withRequests.map(line).join("\n"))}
        count={
          trans._n("%2 message", "%2 messages", rows.length, count(rows.length)) +
          (stream.dropped > 0
            ? trans._n(
                ", %2 earlier message not shown",
                ", %2 earlier messages not shown",
                stream.dropped,
                count(stream.dropped),
              )
            : "")
        }
      >
        <Button quiet onClick={() => saveRows(`protocol-${server}`, withRequests)}>
          {trans.__("Save")}
        </Button>
      </StreamBar>
      <Rows
        count={rows.length}
        keyOf={(at) => String(rows[at]?.n)}
        height={24}
        label={trans.__("Messages of %1", singleLine(server))}
        selected={row ? rows.indexOf(row) : -1}
        added={rows[0]?.n ?? 0}
        onSelect={(at) => setChosen(rows[at]?.n ?? null)}
        empty={trans.__("No messages since this view was opened.")}
        draw={(at) => rows[at] && <MessageLine row={rows[at]} request={requests.get(rows[at])} />}
      />
    </>
  );
  return (
    <div class="mcp-view">
      <ListAndDetail
        list={list}
        detail={
          row ? (
            <>
              {request && <Message row={request} />}
              <Message row={row} />
            </>
          ) : null
        }
        subject={String(chosen ?? "")}
        hint={trans.__("Messages are recorded while this view is open. Choose one to see it.")}
        onBack={() => setChosen(null)}
      />
    </div>
  );
}

/** The request of each response. */
function requestsOf(rows: MessageRow[]): Map<MessageRow, MessageRow> {
  const open = new Map<string, MessageRow>();
  const requests = new Map<MessageRow, MessageRow>();
  for (const row of rows) {
    if (row.type === "request") open.set(`${row.sent} ${row.id}`, row);
    const request = open.get(`${!row.sent} ${row.id}`);
    if (request && (row.type === "response" || row.type === "error")) requests.set(row, request);
  }
  return requests;
}

const titleOf = (row: MessageRow): string => singleLine(row.method) || kindTitles()[row.type];

function Direction({ row }: { row: MessageRow }): JSX.Element {
  const word = row.sent ? trans.__("sent") : trans.__("received");
  return (
    <span title={word}>
      <span aria-hidden="true">{row.sent ? "\u2192" : "\u2190"}</span>
      <span class="mcp-visually-hidden">{word}</span>
    </span>
  );
}

function MessageLine({ row, request }: { row: MessageRow; request: MessageRow | undefined }): JSX.Element {
  const isBad = row.type === "error" || row.type === "malformed";
  return (
    <>
      <span class="mcp-muted mcp-figure">{clock((request ?? row).time)}</span>
      {request && <Direction row={request} />}
      <Direction row={row} />
      <span class={isBad ? "mcp-ellipsis mcp-tone-bad" : "mcp-ellipsis"}>
        {titleOf(row)}
        {row.method && (!request || row.type === "error") && (row.type === "response" || row.type === "error") && (
          <span class="mcp-muted"> {kindTitles()[row.type]}</span>
        )}
      </span>
      <span class="mcp-muted mcp-figure">
        {bytes(row.size)}
        {row.duration !== null && ` \u00b7 ${duration(row.duration)}`}
      </span>
    </>
  );
}

function Message({ row }: { row: MessageRow }): JSX.Element {
  const copy = useCopy();
  const kind = kindTitles()[row.type];
  const text = useMemo(() => {
    try {
      return JSON.stringify(JSON.parse(row.text), null, 2);
    } catch {
      return row.text; // cut, or not JSON
    }
  }, [row]);
  return (
    <section class="mcp-tool" aria-label={trans.__("Selected message: %1", kind)}>
      <div class="mcp-head">
        <h3>{titleOf(row)}</h3>
        <Button quiet onClick={() => copy(visible(text))}>
          {trans.__("Copy")}
        </Button>
      </div>
      <div class="mcp-muted">
        {[
          `${row.sent ? trans.__("sent") : trans.__("received")} ${clock(row.time, true)}`,
          kind,
          row.id !== null && `id ${singleLine(row.id)}`,
          bytes(row.size),
          row.duration !== null && trans.__("%1 after its request", duration(row.duration)),
        ]
          .filter(Boolean)
          .join(" · ")}
      </div>
      <Lines label={trans.__("Text of the %1", kind.toLowerCase())} text={visible(text)} />
    </section>
  );
}

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Call, HistoryRow } from "../protocol";
import { callsOf } from "../store";
import { bytes, clock, count, duration, singleLine, visible } from "../text";
import { useLatest, useLoaded, useSelect } from "./context";
import { CallProgress, ProblemBox } from "./parts";
import { Rows } from "./rows";

const CALLER_LABELS = { user: "", model: "by a model", app: "by an app" };
const MAX_HISTORY_ROWS = 500;
/** Minimum milliseconds between history reloads. */
const REFRESH_INTERVAL = 150;
const OUTCOME_LABELS = { succeeded: "", failed: "failed", cancelled: "cancelled" };

/** Running calls and the call history. */
export function CallsView({ active }: { active: boolean }): JSX.Element {
  const all = useSelect((state) => state.calls);
  const finishedCalls = useSelect((state) => state.finishedCalls);
  const calls = callsOf(all);
  const [failed, setFailed] = useState(false);
  const [chosen, setChosen] = useState<number | null>(null);
  const { value, problem, reload } = useLoaded(
    "history",
    active ? { limit: MAX_HISTORY_ROWS, ...(failed && { failed }) } : null,
    `history ${failed}`,
  );
  const seen = useRef(finishedCalls);
  useEffect(() => {
    if (!active || seen.current === finishedCalls) return;
    // Many calls may finish in a second; reload only a few times.
    const timer = setTimeout(() => {
      seen.current = finishedCalls;
      reload();
    }, REFRESH_INTERVAL);
    return () => clearTimeout(timer);
  }, [active, finishedCalls, reload]);
  const rows = useLatest(value) ?? [];
  const index = rows.findIndex((each) => each.id === chosen);
  const row = rows[index];
  return (
    <div class="mcp-view">
      <section class="mcp-running" aria-label="Running calls">
        {calls.length === 0 && <p class="mcp-empty">No calls are running.</p>}
        {calls.map((call) => (
          <RunningCall key={call.id} call={call} />
        ))}
      </section>
      <div class="mcp-toolbar mcp-with-rule">
        <h3>History</h3>
        <label class="mcp-check">
          <input type="checkbox" checked={failed} onChange={(event) => setFailed(event.currentTarget.checked)} />
          failed only
        </label>
        <span class="mcp-spacer" />
        <button type="button" class="mcp-button" onClick={reload}>
          Refresh
        </button>
      </div>
      {problem && <ProblemBox problem={problem} />}
      <Rows
        count={rows.length}
        height={24}
        label="History"
        selected={index}
        onSelect={(at) => setChosen(at === index ? null : (rows[at]?.id ?? null))}
        empty={value ? "No calls yet." : ""}
        draw={(at) => rows[at] && <HistoryLine row={rows[at]} />}
      />
      {row && (
        <section class="mcp-call-detail" tabIndex={0} aria-label="Selected call">
          <HistoryDetail row={row} />
        </section>
      )}
    </div>
  );
}

function RunningCall({ call }: { call: Call }): JSX.Element {
  return (
    <div class="mcp-running-call">
      <div class="mcp-ellipsis">
        {singleLine(`${call.server}.${call.tool}`)} <span class="mcp-muted">{CALLER_LABELS[call.caller] ?? ""}</span>
      </div>
      <CallProgress call={call} />
    </div>
  );
}

function HistoryLine({ row }: { row: HistoryRow }): JSX.Element {
  return (
    <>
      <span class="mcp-muted mcp-figure">{clock(row.time)}</span>
      <span class="mcp-ellipsis mcp-grow">{singleLine(`${row.server}.${row.tool}`)}</span>
      <span class={row.outcome === "failed" ? "mcp-row-badges mcp-tone-bad" : "mcp-row-badges mcp-muted"}>
        {OUTCOME_LABELS[row.outcome] || duration(row.duration)}
      </span>
    </>
  );
}

function HistoryDetail({ row }: { row: HistoryRow }): JSX.Element {
  return (
    <>
      <h3>{singleLine(`${row.server}.${row.tool}`)}</h3>
      <div class="mcp-muted">
        {new Date(row.time * 1000).toLocaleString()} · {duration(row.duration)} · {bytes(row.sent)} sent,{" "}
        {bytes(row.received)} received {CALLER_LABELS[row.caller as Call["caller"]] ?? ""}
      </div>
      {row.error && (
        <div class={row.outcome === "failed" ? "mcp-prose mcp-tone-bad" : "mcp-prose"}>{visible(row.error)}</div>
      )}
    </>
  );
}

/** The number of running calls as tab text; empty for none. */
export const runningCount = (calls: { [id: string]: Call }): string => {
  const running = Object.keys(calls).length;
  return running ? count(running) : "";
};

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Call, HistoryRow } from "../protocol";
import { callsOf } from "../store";
import { bytes, clock, count, line, visible } from "../text";
import { useLoaded, useSelect } from "./context";
import { CallProgress, ProblemBox, seconds } from "./parts";
import { Rows } from "./rows";

const CALLERS = { user: "", model: "by a model", app: "by an app" };
const MOST = 500;
/** Between two looks at the history, in milliseconds. */
const PACE = 150;
const OUTCOMES = { succeeded: "", failed: "failed", cancelled: "cancelled" };

/** What runs, and what ran. */
export function CallsView({ active }: { active: boolean }): JSX.Element {
  const all = useSelect((state) => state.calls);
  const over = useSelect((state) => state.over);
  const calls = callsOf({ calls: all, servers: {}, questions: {} });
  const [failed, setFailed] = useState(false);
  const [chosen, setChosen] = useState<number | null>(null);
  const { value, problem, reload } = useLoaded(
    "history",
    active ? { limit: MOST, ...(failed && { failed }) } : null,
    `history ${failed}`,
  );
  const seen = useRef(over);
  useEffect(() => {
    if (!active || seen.current === over) return;
    // Of a thousand calls a second the history is asked for a few times.
    const timer = setTimeout(() => {
      seen.current = over;
      reload();
    }, PACE);
    return () => clearTimeout(timer);
  }, [active, over, reload]);
  // While a newer list is on its way the old one stays: no flicker.
  const last = useRef<HistoryRow[]>([]);
  if (value) last.current = value;
  const rows = value ?? last.current;
  const index = rows.findIndex((each) => each.id === chosen);
  const row = rows[index];
  return (
    <div class="mcp-view">
      <section class="mcp-running" aria-label="Running calls">
        {calls.length === 0 && <p class="mcp-none">Nothing is running.</p>}
        {calls.map((call) => (
          <RunningCall key={call.id} call={call} />
        ))}
      </section>
      <div class="mcp-toolbar mcp-ruled">
        <h3>History</h3>
        <label class="mcp-check">
          <input type="checkbox" checked={failed} onChange={(event) => setFailed(event.currentTarget.checked)} />
          failed only
        </label>
        <span class="mcp-space" />
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
        <section class="mcp-about-row" tabIndex={0} aria-label="The chosen call">
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
        {line(`${call.server}.${call.tool}`)} <span class="mcp-dim">{CALLERS[call.caller] ?? ""}</span>
      </div>
      <CallProgress call={call} />
    </div>
  );
}

function HistoryLine({ row }: { row: HistoryRow }): JSX.Element {
  return (
    <>
      <span class="mcp-dim mcp-figure">{clock(row.time)}</span>
      <span class="mcp-ellipsis mcp-grow">{line(`${row.server}.${row.tool}`)}</span>
      <span class={row.outcome === "failed" ? "mcp-marks mcp-tone-bad" : "mcp-marks mcp-dim"}>
        {OUTCOMES[row.outcome] || seconds(row.duration)}
      </span>
    </>
  );
}

function HistoryDetail({ row }: { row: HistoryRow }): JSX.Element {
  return (
    <>
      <h3>{line(`${row.server}.${row.tool}`)}</h3>
      <div class="mcp-dim">
        {new Date(row.time * 1000).toLocaleString()} · {seconds(row.duration)} · {bytes(row.sent)} sent,{" "}
        {bytes(row.received)} received {CALLERS[row.caller as Call["caller"]] ?? ""}
      </div>
      {row.error && (
        <div class={row.outcome === "failed" ? "mcp-prose mcp-tone-bad" : "mcp-prose"}>{visible(row.error)}</div>
      )}
    </>
  );
}

/** Of what runs, for the tab's note. */
export const runningNote = (calls: { [id: string]: Call }): string => {
  const running = Object.keys(calls).length;
  return running ? count(running) : "";
};

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Call, HistoryRow } from "../protocol";
import { callsOf } from "../store";
import { bytes, clock, count, line } from "../text";
import { useLoaded, useSelect } from "./context";
import { CallProgress, ProblemBox, seconds } from "./parts";
import { Rows } from "./rows";

const CALLERS = { user: "", model: "by a model", app: "by an app" };
const MOST = 500;

/** What runs, and what ran. */
export function CallsView({ active }: { active: boolean }): JSX.Element {
  const all = useSelect((state) => state.calls);
  const results = useSelect((state) => state.results);
  const calls = callsOf({ calls: all, servers: {}, questions: {} });
  const [failed, setFailed] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const { value, problem, reload } = useLoaded(
    "history",
    active ? { limit: MOST, ...(failed && { failed }) } : null,
    `history ${failed}`,
  );
  const seen = useRef(results);
  useEffect(() => {
    if (active && seen.current !== results) reload();
    seen.current = results;
  }, [active, results, reload]);
  const rows = value ?? [];
  const row = rows[chosen];
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
        selected={chosen}
        onSelect={(index) => setChosen(index === chosen ? -1 : index)}
        empty={value ? "No calls yet." : ""}
        draw={(index) => rows[index] && <HistoryLine row={rows[index]} />}
      />
      <div class="mcp-about-row">{row && <HistoryDetail row={row} />}</div>
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
      <span class={row.error ? "mcp-marks mcp-tone-bad" : "mcp-marks mcp-dim"}>
        {row.error ? "failed" : seconds(row.duration)}
      </span>
    </>
  );
}

function HistoryDetail({ row }: { row: HistoryRow }): JSX.Element {
  return (
    <>
      <div class="mcp-dim">
        {new Date(row.time * 1000).toLocaleString()} · {seconds(row.duration)} · {bytes(row.sent)} sent,{" "}
        {bytes(row.received)} received {CALLERS[row.caller as Call["caller"]] ?? ""}
      </div>
      {row.error && <div class="mcp-tone-bad">{line(row.error)}</div>}
    </>
  );
}

/** Of what runs, for the tab's note. */
export const runningNote = (calls: { [id: string]: Call }): string => {
  const running = Object.keys(calls).length;
  return running ? count(running) : "";
};

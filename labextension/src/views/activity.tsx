import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { CallRow, HistoryRow, Outcome, Problem, Verbs } from "../protocol";
import { callsOf, isVisitor, problemOf } from "../store";
import { clock, count, duration, singleLine, visible } from "../text";
import { trans } from "../translation";
import { saveRows, useAllowed, useCopy, useInsert, useLoaded, usePanel, useRequest, useSelect } from "./context";
import { ListAndDetail } from "./detail";
import { Button, CallProgress, FilterSelect, Lines, ProblemBox, SearchField } from "./parts";
import { PreviewView } from "./preview";
import { late } from "./late";
import { Rows } from "./rows";

const ProtocolView = late(async () => (await import("./protocol")).ProtocolView);

const PAGE_SIZE = 200;
/** Maximum number of rows that are loaded at once; after a longer absence the list is loaded again. */
const MAX_NEW_ROWS = 500;
/** Minimum milliseconds between two loads of new rows. */
const REFRESH_INTERVAL = 150;
const ROW_HEIGHT = 38;

/** `ended`: the call has finished, but its outcome is not known yet. */
type CallState = "running" | "ended" | Outcome;

/** The mark and the tone of each state. */
const LOOKS: { [State in CallState]: [mark: string, tone: string] } = {
  running: ["\u25d4", "busy"],
  done: ["\u2713", "good"],
  failed: ["\u2715", "bad"],
  cancelled: ["\u2298", "off"],
  interrupted: ["\u25a0", "ask"],
  refused: ["\u2296", "bad"],
  ended: ["\u00b7", "off"],
};

const stateTitles = (): { [State in CallState]: string } => ({
  running: trans.__("running"),
  done: trans.__("done"),
  failed: trans.__("failed"),
  cancelled: trans.__("cancelled"),
  interrupted: trans.__("interrupted"),
  refused: trans.__("refused"),
  ended: trans.__("ended"),
});
const FILTERS = ["running", "done", "failed", "cancelled", "interrupted", "refused"] as const;

/** A call in the list. */
interface Item {
  key: string;
  row: number | null;
  call: number | null;
  state: CallState;
  /** Seconds since the epoch. */
  time: number;
  server: string;
  tool: string;
  origin: string;
  cell: number | null;
  running?: CallRow;
  finished?: HistoryRow;
}

const runningItem = (running: CallRow): Item => ({
  ...{ key: `c${running.id}`, row: null, call: running.id, state: "running", time: running.started, running },
  ...{ server: running.server, tool: running.tool, origin: running.origin, cell: running.cell },
});

/** A finished call keeps the key that it had while it ran. */
const finishedItem = (finished: HistoryRow): Item => ({
  ...{ key: keyOf(finished), row: finished.id, call: finished.call ?? null, state: finished.outcome, finished },
  ...{ server: finished.server, tool: finished.tool, origin: finished.caller, cell: finished.cell },
  time: finished.time,
});

const keyOf = ({ id, call }: HistoryRow): string => (typeof call === "number" ? `c${call}` : `h${id}`);
const callsText = ({ calls }: HistoryRow): string =>
  typeof calls === "number" ? trans._n("map of %2 call", "map of %2 calls", calls, count(calls)) : "";
const nameOf = ({ server, tool }: { server: string; tool: string }): string => singleLine(`${server}.${tool}`);

function callerTitle({ origin, cell }: Item): string {
  const where = typeof cell === "number" ? trans.__("cell %1", cell) : "";
  if (origin === "user") return where || trans.__("code");
  const titles: { [origin: string]: string } = {
    panel: trans.__("panel"),
    model: trans.__("model"),
    app: trans.__("app"),
  };
  return [titles[origin] ?? singleLine(origin), where].filter(Boolean).join(" · ");
}

/** A time of day, with the date unless that is today. */
function moment(time: number): string {
  const date = new Date(time * 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? clock(time) : `${date.toLocaleDateString()} ${clock(time)}`;
}

interface History {
  rows: HistoryRow[] | null;
  problem: Problem | null;
  /** Number of rows that were added at the top. */
  added: number;
  loadOlder: () => void;
}

/** How much of the history was loaded with one filter. */
class LoadProgress {
  /** Time of the last load of new rows, in milliseconds since the epoch. */
  lastLoad = 0;
  /** Number of finished calls at that time. */
  finishedCalls = -1;
  isComplete = true;
  isLoadingOlder = false;
  /** Ends with the last load: loads run one after the other. */
  work = Promise.resolve();

  constructor(readonly key: string) {}
}

/** The finished calls: the latest page, then each new call, and older pages on demand. */
function useHistory(active: boolean, filter: Verbs["history"][0]): History {
  const { model } = usePanel();
  const finishedCalls = useSelect((state) => state.finishedCalls);
  const helloCount = useSelect((state) => state.helloCount);
  const key = JSON.stringify([filter, helloCount]);
  const [state, setState] = useState<Omit<History, "loadOlder">>({ rows: null, problem: null, added: 0 });
  const current = useRef(state);
  current.current = state;
  const loaded = useRef(new LoadProgress(""));
  /** Load a page after the running loads. */
  const load = (page: (rows: HistoryRow[]) => Verbs["history"][0], merge: (found: HistoryRow[]) => void): void => {
    const progress = loaded.current;
    progress.work = progress.work.then(async () => {
      if (loaded.current !== progress) return;
      try {
        const rows = await model.request("history", { ...filter, ...page(current.current.rows ?? []) });
        if (loaded.current === progress) merge(rows);
      } catch (error) {
        if (loaded.current === progress) setState((old) => ({ ...old, problem: problemOf(error) }));
      }
    });
  };
  const replace = (rows: HistoryRow[]): void => {
    loaded.current.isComplete = rows.length < PAGE_SIZE;
    setState({ rows: rows.slice(0, PAGE_SIZE), problem: null, added: 0 });
  };
  const loadNew = (): void =>
    load(
      ([newest]) => (newest ? { after: newest.id, limit: MAX_NEW_ROWS } : { limit: PAGE_SIZE }),
      (rows) => {
        const old = current.current;
        if (!old.rows?.length || rows.length === MAX_NEW_ROWS) replace(rows);
        else setState({ rows: [...rows, ...old.rows], problem: null, added: old.added + rows.length });
      },
    );
  useEffect(() => {
    if (!active) return;
    if (loaded.current.key !== key) {
      loaded.current = new LoadProgress(key);
      loaded.current.finishedCalls = finishedCalls;
      return load(() => ({ limit: PAGE_SIZE }), replace);
    }
    const progress = loaded.current;
    if (progress.finishedCalls === finishedCalls) return;
    // Many calls may finish in a second; load only a few times.
    const timer = setTimeout(
      () => {
        progress.finishedCalls = finishedCalls;
        progress.lastLoad = Date.now();
        loadNew();
      },
      Math.max(0, progress.lastLoad + REFRESH_INTERVAL - Date.now()),
    );
    return () => clearTimeout(timer);
  }, [active, key, finishedCalls]);
  const loadOlder = (): void => {
    const progress = loaded.current;
    if (progress.isComplete || progress.isLoadingOlder) return;
    progress.isLoadingOlder = true;
    load(
      (rows) => ({ before: rows.at(-1)?.id ?? 0, limit: PAGE_SIZE }),
      (rows) => {
        progress.isLoadingOlder = false;
        progress.isComplete = rows.length < PAGE_SIZE;
        setState({ ...current.current, rows: [...(current.current.rows ?? []), ...rows] });
      },
    );
  };
  return { ...state, loadOlder };
}

/** All calls, running ones first, and the details of the chosen one. */
export function ActivityView({ active }: { active: boolean }): JSX.Element {
  const { model } = usePanel();
  const all = useSelect((state) => state.calls);
  const protocol = useSelect((state) => state.navigation.protocol);
  const servers = useSelect((state) => state.servers);
  const [shown, setShown] = useState<"" | (typeof FILTERS)[number]>("");
  const [everywhere, setEverywhere] = useState(false);
  const [words, setWords] = useState("");
  const visitor = useSelect(isVisitor);
  const mayWatch = useAllowed("protocol");
  const { rows, problem, added, loadOlder } = useHistory(active && shown !== "running", {
    ...(words && { words }),
    ...(shown && shown !== "running" && { outcome: shown }),
    ...(everywhere && { everywhere }),
  });
  const isShown = (call: CallRow): boolean =>
    (!shown || shown === "running") && nameOf(call).toLowerCase().includes(words.toLowerCase());
  const running = callsOf(all).filter(isShown).reverse();
  const finished = shown === "running" ? [] : (rows ?? []);
  const [chosen, setChosen] = useState<string | null>(null);
  const item = useItem(chosen, Object.values(all), rows ?? []);
  const titles = stateTitles();
  const [first] = Object.keys(servers);
  const list = (
    <>
      <div class="mcp-toolbar mcp-filters">
        <FilterSelect<typeof shown>
          label={trans.__("State")}
          value={shown}
          options={[["", trans.__("All states")], ...FILTERS.map((each) => [each, titles[each]] as const)]}
          onChange={setShown}
        />
        <SearchField label={trans.__("Search calls")} value={words} onInput={setWords} />
      </div>
      <div class="mcp-toolbar mcp-compact">
        {!visitor && (
          <label class="mcp-check">
            <input
              type="checkbox"
              checked={everywhere}
              onChange={(event) => setEverywhere(event.currentTarget.checked)}
            />
            {trans.__("All notebooks")}
          </label>
        )}
        <span class="mcp-spacer" />
        {finished.length > 0 && (
          <Button quiet onClick={() => saveRows("activity", finished)}>
            {trans.__("Save")}
          </Button>
        )}
        {mayWatch && first !== undefined && (
          <Button quiet onClick={() => model.show("activity", { protocol: first })}>
            {trans.__("Protocol\u2026")}
          </Button>
        )}
      </div>
      {problem && <ProblemBox problem={problem} />}
      {running.length > 0 && (
        <section class="mcp-running" aria-label={trans.__("Running calls")}>
          {running.map((call) => (
            <RunningCall key={call.id} call={call} onOpen={() => setChosen(`c${call.id}`)} />
          ))}
        </section>
      )}
      <Rows
        count={finished.length}
        keyOf={(at) => (finished[at] ? keyOf(finished[at]) : "")}
        height={ROW_HEIGHT}
        label={trans.__("Calls")}
        selected={item ? finished.findIndex((each) => keyOf(each) === item.key) : -1}
        added={added}
        onEnd={loadOlder}
        onSelect={(at) => finished[at] && setChosen(keyOf(finished[at]))}
        empty={running.length ? "" : rows ? trans.__("No calls yet.") : ""}
        draw={(at) => finished[at] && <CallLine item={finishedItem(finished[at])} />}
      />
    </>
  );
  return (
    <>
      <div class="mcp-view" hidden={protocol !== ""}>
        <ListAndDetail
          list={list}
          detail={item && <CallView item={item} everywhere={everywhere} onOpen={setChosen} />}
          subject={chosen ?? ""}
          hint={trans.__("Choose a call to see its arguments and its result.")}
          onBack={() => setChosen(null)}
        />
      </div>
      {protocol !== "" && mayWatch && <ProtocolView active={active} server={protocol} />}
    </>
  );
}

/** The chosen call. A call that has just finished is kept until its row arrives. */
function useItem(key: string | null, running: CallRow[], rows: HistoryRow[]): Item | null {
  const latest = useRef<Item | null>(null);
  const call = running.find((each) => `c${each.id}` === key);
  const row = call ? undefined : rows.find((each) => keyOf(each) === key);
  const found = call ? runningItem(call) : row ? finishedItem(row) : null;
  const before = latest.current;
  if (key === null) latest.current = null;
  else if (found) latest.current = found;
  else if (before?.running && before.key === key) {
    const { running: _, ...rest } = before;
    latest.current = { ...rest, state: "ended" };
  }
  return latest.current;
}

function StateWord({ state }: { state: CallState }): JSX.Element {
  const [mark, tone] = LOOKS[state] ?? LOOKS.ended;
  return (
    <span class={`mcp-figure mcp-tone-${tone}`}>
      <span aria-hidden="true">{mark}</span> {stateTitles()[state] ?? singleLine(state)}
    </span>
  );
}

function RunningCall({ call, onOpen }: { call: CallRow; onOpen(): void }): JSX.Element {
  const item = runningItem(call);
  return (
    <div class="mcp-running-call">
      <div class="mcp-call-head">
        <button type="button" class="mcp-button mcp-quiet mcp-ellipsis" onClick={onOpen}>
          {nameOf(call)}
        </button>
        <span class="mcp-muted mcp-ellipsis mcp-grow">{callerTitle(item)}</span>
      </div>
      <CallProgress call={call} />
    </div>
  );
}

function CallLine({ item }: { item: Item }): JSX.Element {
  return (
    <div class="mcp-call-lines">
      <div class="mcp-call-head">
        <span class="mcp-ellipsis mcp-grow">{nameOf(item)}</span>
        <StateWord state={item.state} />
      </div>
      <div class="mcp-call-head mcp-muted">
        <span class="mcp-figure">{moment(item.time)}</span>
        <span class="mcp-ellipsis mcp-grow">
          {[callerTitle(item), item.finished && callsText(item.finished)].filter(Boolean).join(" \u00b7 ")}
        </span>
        <span class="mcp-figure">{item.finished && duration(item.finished.duration)}</span>
      </div>
    </div>
  );
}

/** The details of a call, and buttons for it. */
function CallView({
  item,
  everywhere,
  onOpen,
}: {
  item: Item;
  /** Whether calls of other notebooks are listed too. */
  everywhere: boolean;
  onOpen(key: string): void;
}): JSX.Element {
  const { model } = usePanel();
  const insert = useInsert();
  const { row, call, server, tool, finished, running } = item;
  const ref = { ...(row !== null && { row }), ...(call !== null && { call }) };
  const { value, problem } = useLoaded("details", ref, `${item.key} ${item.state}`);
  const act = useRequest();
  const copy = useCopy();
  const mayRepeat = useAllowed("repeat");
  const mayCode = useAllowed("repeat_code");
  const mayKeep = useAllowed("keep_result");
  const [busy, setBusy] = useState(false);
  const repeat = async (): Promise<void> => {
    setBusy(true);
    const started = await act("repeat", ref, trans.__("Started again."));
    setBusy(false);
    if (started) onOpen(`c${started.call}`);
  };
  const openResult = async (): Promise<void> => {
    const kept = await act("keep_result", ref);
    if (kept) await insert(kept.text);
  };
  const error = value?.error ?? (finished?.error ? { message: finished.error } : null);
  return (
    <section class="mcp-tool" aria-label={trans.__("Selected call")}>
      <div class="mcp-head">
        <h3>{nameOf(item)}</h3>
        {!running && <StateWord state={item.state} />}
      </div>
      <div class="mcp-muted">
        {[
          new Date(item.time * 1000).toLocaleString(),
          callerTitle(item),
          finished && callsText(finished),
          finished && duration(finished.duration),
          everywhere && finished?.notebook && singleLine(finished.notebook),
        ]
          .filter(Boolean)
          .join(" · ")}
      </div>
      <div class="mcp-actions mcp-no-padding">
        {mayRepeat && value?.repeatable && (
          <Button busy={busy} onClick={() => void repeat()}>
            {trans.__("Run again")}
          </Button>
        )}
        {mayCode && value?.repeatable && (
          <Button onClick={() => void act("repeat_code", ref).then((code) => code && copy(code.text))}>
            {trans.__("Copy as code")}
          </Button>
        )}
        <Button onClick={() => model.show("tools", { server: "", kind: "tools", tool: { server, name: tool } })}>
          {trans.__("Open tool")}
        </Button>
        {mayKeep && value?.openable && (
          <Button onClick={() => void openResult()}>{trans.__("Open result in a new cell")}</Button>
        )}
      </div>
      {running && <CallProgress call={running} />}
      {problem && <ProblemBox problem={problem} />}
      {error && <ProblemBox problem={error} />}
      {value?.questions?.map((each) => (
        <p key={each} class="mcp-warning">
          {visible(each)}
        </p>
      ))}
      {value && (
        <>
          <h3>{trans.__("Arguments")}</h3>
          {typeof value.arguments === "string" ? (
            <Lines label={trans.__("Arguments")} text={visible(value.arguments)} />
          ) : (
            <p class="mcp-muted">{trans.__("Not kept")}</p>
          )}
          {item.state === "done" && <h3>{trans.__("Result")}</h3>}
          {value.is_too_large && (
            <p class="mcp-muted">{trans.__("The result was too large to be kept as a whole; run it again.")}</p>
          )}
          {value.result && <PreviewView preview={value.result} label={trans.__("Result of %1", nameOf(item))} />}
          {item.state === "done" && !value.result && !value.is_too_large && (
            <p class="mcp-muted">{trans.__("Not kept")}</p>
          )}
        </>
      )}
    </section>
  );
}

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LogRow } from "../protocol";
import { serversOf } from "../store";
import { clock, count, singleLine } from "../text";
import { trans } from "../translation";
import { useCopy, useSelect, useStream } from "./context";
import { FilterSelect, SearchField, ServerSelect, StreamBar } from "./parts";
import { indexes, useTops, useVisibleRange } from "./rows";
import type { WindowProps } from "./rows";

const LEVELS: { [level: string]: number } = {
  debug: 0,
  info: 1,
  notice: 1,
  warning: 2,
  warn: 2,
  error: 3,
  critical: 3,
  alert: 3,
  emergency: 3,
};
const levelFilters = (): string[] => [
  trans.__("All levels"),
  trans.__("Info and above"),
  trans.__("Warnings"),
  trans.__("Errors"),
];
const rank = (level: string): number => LEVELS[level.toLowerCase()] ?? 1;
const LEVEL_CLASSES = ["mcp-muted", "", "mcp-tone-ask", "mcp-tone-bad"];

export function LogsView({
  active,
  server,
  onServer,
}: {
  active: boolean;
  server: string;
  onServer(name: string): void;
}): JSX.Element {
  const all = useSelect((state) => state.servers);
  const servers = serversOf(all);
  const now = servers.some((each) => each.name === server) ? server : (servers[0]?.name ?? "");
  if (!now) return <p class="mcp-empty">{trans.__("No servers are loaded.")}</p>;
  return (
    <Log
      key={now}
      active={active}
      server={now}
      select={<ServerSelect servers={servers} value={now} onChange={onServer} />}
    />
  );
}

function Log({ active, server, select }: { active: boolean; server: string; select: JSX.Element }): JSX.Element {
  const copy = useCopy();
  const [paused, setPaused] = useState(false);
  const [follow, setFollow] = useState(true);
  const [minLevel, setMinLevel] = useState(0);
  const [search, setSearch] = useState("");
  const isFollowed = active && !paused;
  const log = useStream("logs", server, isFollowed, isFollowed);
  const rows = useMemo(() => {
    const words = search.toLowerCase();
    if (!minLevel && !words) return log.rows;
    return log.rows.filter((row) => rank(row.level) >= minLevel && (!words || row.text.toLowerCase().includes(words)));
  }, [log.rows, minLevel, search]);
  const copyRows = (): void =>
    copy(rows.map((row) => `${clock(row.time, true)} ${row.level} ${row.source} ${row.text}`).join("\n"));
  return (
    <div class="mcp-view">
      <div class="mcp-toolbar mcp-filters">
        {select}
        <FilterSelect
          label={trans.__("Level")}
          value={String(minLevel)}
          options={levelFilters().map((title, index) => [String(index), title])}
          onChange={(level) => setMinLevel(Number(level))}
        />
        <SearchField label={trans.__("Search the log")} value={search} onInput={setSearch} />
      </div>
      <StreamBar
        paused={paused}
        onPause={setPaused}
        onCopy={copyRows}
        count={
          trans._n("%2 line", "%2 lines", rows.length, count(rows.length)) +
          (log.dropped > 0
            ? trans._n(", %2 earlier line not shown", ", %2 earlier lines not shown", log.dropped, count(log.dropped))
            : "")
        }
      >
        <label class="mcp-check">
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
          {trans.__("Auto-scroll")}
        </label>
      </StreamBar>
      <Stream
        count={rows.length}
        linesOf={(index, columns) => linesOf(rows[index], columns)}
        label={trans.__("Log of %1", singleLine(server))}
        follow={follow && !paused}
        onFollow={setFollow}
        version={log.version}
        drawLines={(index, lines) => rows[index] && <LogLine row={rows[index]} lines={lines} />}
      />
    </div>
  );
}

/** The level of a row that is not information. */
const levelOf = ({ level }: LogRow): string => (/^(info|notice)$/i.test(level) ? "" : `${singleLine(level)} `);
const headOf = (row: LogRow): string => `${clock(row.time)} ${levelOf(row)}`;

const wrapped = new WeakMap<LogRow, { columns: number; lines: string[] }>();

/** The lines of a row's text; the first one follows time and level. */
function linesOf(row: LogRow | undefined, columns: number): string[] {
  if (!row) return [""];
  const known = wrapped.get(row);
  if (known?.columns === columns) return known.lines;
  const lines = wrap(singleLine(row.text), columns, headOf(row).length);
  wrapped.set(row, { columns, lines });
  return lines;
}

function LogLine({ row, lines }: { row: LogRow; lines: string[] }): JSX.Element {
  return (
    <>
      <span class="mcp-muted">{clock(row.time)} </span>
      <span class={LEVEL_CLASSES[rank(row.level)]}>{levelOf(row)}</span>
      <span>{lines.join("\n")}</span>
    </>
  );
}

/** Pixels of a line of a stream, and of its padding on both sides; as in the styles. */
const LINE_HEIGHT = 18;
const LINE_PADDING = 16;

interface StreamProps extends Pick<WindowProps, "count"> {
  /** The lines of a row where a line has so many columns. */
  linesOf(index: number, columns: number): string[];
  drawLines(index: number, lines: string[]): ComponentChildren;
  label: string;
  /** Scroll to the end as rows arrive. */
  follow: boolean;
  onFollow(follow: boolean): void;
  /** Changes as rows arrive. */
  version: unknown;
}

/** A list of text that grows at the end, such as a log. Screen readers do not announce new rows. */
export function Stream(props: StreamProps): JSX.Element {
  const { count, linesOf, drawLines, label, follow, onFollow, version } = props;
  const [columns, setColumns] = useState(Infinity);
  const height = useCallback(
    (index: number) => LINE_HEIGHT * linesOf(index, columns).length,
    [version, columns, count],
  );
  const tops = useTops(count, height);
  const top = (index: number): number => tops[index] ?? 0;
  const { box, visibleRows, measure } = useVisibleRange(count, top, (list) => {
    const width = (list.querySelector(".mcp-columns")?.clientWidth ?? 0) / 100;
    if (width > 0) setColumns(Math.max(1, Math.floor((list.clientWidth - LINE_PADDING) / width)));
  });
  const isProgrammatic = useRef(false);
  const end = top(count);
  useLayoutEffect(() => {
    if (!follow || !box.current) return;
    isProgrammatic.current = true;
    box.current.scrollTop = end;
    measure();
  }, [follow, end, version]);
  const scrolled = (): void => {
    measure();
    const list = box.current;
    if (!list) return;
    if (isProgrammatic.current) {
      isProgrammatic.current = false;
      return;
    }
    const atEnd = list.scrollTop + list.clientHeight >= end - LINE_HEIGHT;
    if (atEnd !== follow) onFollow(atEnd);
  };
  return (
    <div
      class="mcp-rows mcp-stream"
      role="log"
      aria-live="off"
      aria-label={label}
      tabIndex={0}
      ref={box}
      onScroll={scrolled}
    >
      <div class="mcp-columns" aria-hidden="true" />
      <div style={{ height: `${end}px` }}>
        <div style={{ transform: `translateY(${top(visibleRows.first)}px)` }}>
          {indexes(visibleRows).map((index) => (
            <div key={index} class="mcp-line" style={{ height: `${height(index)}px` }}>
              {drawLines(index, linesOf(index, columns))}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

const WIDE = /[\u1100-\ud7ff\uf900-\uffef]/g;
/** The number of columns that a text fills in a font whose characters have one width. */
export const columnsOf = (text: string): number => text.replace(WIDE, "xx").length;

/** Break a text between words, and a word that is longer than a line within.
 *
 * @param indent The columns of the first line that are taken.
 */
export function wrap(text: string, columns: number, indent: number): string[] {
  const lines: string[] = [];
  for (let rest = text, room = Math.max(1, columns - indent); ; room = columns) {
    if (columnsOf(rest) <= room) return [...lines, rest];
    let end = Math.floor(room * (rest.length / columnsOf(rest)));
    while (end > 1 && columnsOf(rest.slice(0, end)) > room) end -= 1;
    const space = rest.lastIndexOf(" ", end);
    const [word = ""] = rest.split(" ", 1);
    const isWordNext = space <= 0 && room < columns && columnsOf(word) <= columns;
    if (space > 0) end = space;
    lines.push(isWordNext ? "" : rest.slice(0, Math.max(1, end)));
    if (!isWordNext) rest = rest.slice(Math.max(1, end)).replace(/^ /, "");
  }
}

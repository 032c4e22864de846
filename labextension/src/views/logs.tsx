import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { LogLine } from "../protocol";
import { serversOf } from "../store";
import { clock, count, plural, singleLine } from "../text";
import { useCopy, usePanel, useSelect } from "./context";
import { Button, ServerSelect } from "./parts";
import { Stream } from "./rows";

/** Minimum milliseconds between renders. */
const REDRAW_INTERVAL = 100;

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
const FILTERS = ["all levels", "info and above", "warnings", "errors"];
const rank = (level: string): number => LEVELS[level.toLowerCase()] ?? 1;
const LEVEL_CLASSES = ["mcp-muted", "", "mcp-tone-ask", "mcp-tone-bad"];

interface LogSnapshot {
  rows: LogLine[];
  dropped: number;
  version: number;
}

function useLog(server: string, active: boolean, paused: boolean): LogSnapshot {
  const { model } = usePanel();
  const buffer = model.logs(server);
  const [snapshot, setSnapshot] = useState<LogSnapshot>({
    rows: buffer.rows,
    dropped: buffer.dropped,
    version: buffer.version,
  });
  useEffect(() => {
    if (!active || paused || !server) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = (): void => {
      timer = undefined;
      setSnapshot({ rows: buffer.rows, dropped: buffer.dropped, version: buffer.version });
    };
    draw();
    const unsubscribe = model.watchLogs(server, () => {
      timer ??= setTimeout(draw, REDRAW_INTERVAL);
    });
    return () => {
      clearTimeout(timer);
      unsubscribe();
    };
  }, [model, server, active, paused, buffer]);
  return snapshot;
}

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
  if (!now) return <p class="mcp-empty">No servers are loaded.</p>;
  return (
    <Log
      key={now}
      active={active}
      server={now}
      select={<ServerSelect servers={servers} value={now} label="Server" onChange={onServer} />}
    />
  );
}

function Log({ active, server, select }: { active: boolean; server: string; select: JSX.Element }): JSX.Element {
  const copy = useCopy();
  const [paused, setPaused] = useState(false);
  const [follow, setFollow] = useState(true);
  const [minLevel, setMinLevel] = useState(0);
  const [search, setSearch] = useState("");
  const log = useLog(server, active, paused);
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
        <select
          class="mcp-input mcp-select"
          aria-label="Level"
          value={String(minLevel)}
          onChange={(event) => setMinLevel(Number(event.currentTarget.value))}
        >
          {FILTERS.map((title, index) => (
            <option key={title} value={String(index)}>
              {title}
            </option>
          ))}
        </select>
        <input
          class="mcp-input mcp-grow"
          type="search"
          aria-label="Search the log"
          placeholder="Search"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
      </div>
      <div class="mcp-toolbar mcp-compact">
        <button type="button" class="mcp-button" aria-pressed={paused} onClick={() => setPaused(!paused)}>
          {paused ? "Resume" : "Pause"}
        </button>
        <label class="mcp-check">
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
          follow
        </label>
        <Button quiet onClick={copyRows}>
          Copy
        </Button>
        <span class="mcp-spacer" />
        <span class="mcp-muted mcp-figure">
          {plural(rows.length, "line")}
          {log.dropped > 0 && `, ${count(log.dropped)} earlier not shown`}
        </span>
      </div>
      <Stream
        count={rows.length}
        height={18}
        label={`Log of ${singleLine(server)}`}
        follow={follow && !paused}
        onFollow={setFollow}
        version={log.version}
        draw={(index) => {
          const row = rows[index];
          return row && <LogRow row={row} />;
        }}
      />
    </div>
  );
}

function LogRow({ row }: { row: LogLine }): JSX.Element {
  return (
    <>
      <span class="mcp-muted">{clock(row.time)}</span>{" "}
      <span class={`mcp-level ${LEVEL_CLASSES[rank(row.level)]}`}>{singleLine(row.level)}</span>{" "}
      <span>{singleLine(row.text)}</span>
    </>
  );
}

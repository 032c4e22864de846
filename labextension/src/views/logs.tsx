import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { LogLine } from "../protocol";
import { serversOf } from "../store";
import { clock, count, counted, line } from "../text";
import { usePanel, useSelect } from "./context";
import { Button, ServerSelect } from "./parts";
import { Stream } from "./rows";

/** Between two drawings, in milliseconds: ten a second at most, however fast lines come. */
const PACE = 100;

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
const TONES = ["mcp-dim", "", "mcp-tone-ask", "mcp-tone-bad"];

interface Drawn {
  rows: LogLine[];
  dropped: number;
  version: number;
}

function useLog(server: string, active: boolean, paused: boolean): Drawn {
  const { model } = usePanel();
  const buffer = model.logs(server);
  const [drawn, setDrawn] = useState<Drawn>({ rows: buffer.rows, dropped: buffer.dropped, version: buffer.version });
  useEffect(() => {
    if (!active || paused || !server) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = (): void => {
      timer = undefined;
      setDrawn({ rows: buffer.rows, dropped: buffer.dropped, version: buffer.version });
    };
    draw();
    const leave = model.watchLogs(server, () => {
      timer ??= setTimeout(draw, PACE);
    });
    return () => {
      clearTimeout(timer);
      leave();
    };
  }, [model, server, active, paused, buffer]);
  return drawn;
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
  const servers = serversOf({ servers: all, calls: {}, questions: {} });
  const now = servers.some((each) => each.name === server) ? server : (servers[0]?.name ?? "");
  if (!now) return <p class="mcp-none">No servers, no logs.</p>;
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
  const { services, model } = usePanel();
  const [paused, setPaused] = useState(false);
  const [follow, setFollow] = useState(true);
  const [least, setLeast] = useState(0);
  const [search, setSearch] = useState("");
  const log = useLog(server, active, paused);
  const rows = useMemo(() => {
    const words = search.toLowerCase();
    if (!least && !words) return log.rows;
    return log.rows.filter((row) => rank(row.level) >= least && (!words || row.text.toLowerCase().includes(words)));
  }, [log.rows, least, search]);
  const latest = useRef(rows);
  latest.current = rows;
  const copy = (): void => {
    const text = latest.current
      .map((row) => `${clock(row.time, true)} ${row.level} ${row.source} ${row.text}`)
      .join("\n");
    services.copy(text).then(
      () => model.notify("Copied."),
      (error: Error) => model.notify(error.message, true),
    );
  };
  return (
    <div class="mcp-view">
      <div class="mcp-toolbar mcp-filters">
        {select}
        <select
          class="mcp-input mcp-select"
          aria-label="Level"
          value={String(least)}
          onChange={(event) => setLeast(Number(event.currentTarget.value))}
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
      <div class="mcp-toolbar mcp-slim">
        <button type="button" class="mcp-button" aria-pressed={paused} onClick={() => setPaused(!paused)}>
          {paused ? "Resume" : "Pause"}
        </button>
        <label class="mcp-check">
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.currentTarget.checked)} />
          follow
        </label>
        <Button quiet onClick={copy}>
          Copy
        </Button>
        <span class="mcp-space" />
        <span class="mcp-dim mcp-figure">
          {counted(rows.length, "line")}
          {log.dropped > 0 && `, ${count(log.dropped)} earlier not shown`}
        </span>
      </div>
      <Stream
        count={rows.length}
        height={18}
        label={`Log of ${line(server)}`}
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
      <span class="mcp-dim">{clock(row.time)}</span>{" "}
      <span class={`mcp-level ${TONES[rank(row.level)]}`}>{line(row.level)}</span> <span>{line(row.text)}</span>
    </>
  );
}

import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { LogRow } from "../protocol";
import { serversOf } from "../store";
import { clock, count, singleLine } from "../text";
import { trans } from "../translation";
import { useCopy, useSelect, useStream } from "./context";
import { FilterSelect, SearchField, ServerSelect, StreamBar } from "./parts";
import { Stream } from "./rows";

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
  trans.__("all levels"),
  trans.__("info and above"),
  trans.__("warnings"),
  trans.__("errors"),
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
          {trans.__("auto-scroll")}
        </label>
      </StreamBar>
      <Stream
        count={rows.length}
        height={18}
        label={trans.__("Log of %1", singleLine(server))}
        follow={follow && !paused}
        onFollow={setFollow}
        version={log.version}
        draw={(index) => {
          const row = rows[index];
          return row && <LogLine row={row} />;
        }}
      />
    </div>
  );
}

function LogLine({ row }: { row: LogRow }): JSX.Element {
  return (
    <>
      <span class="mcp-muted">{clock(row.time)}</span>{" "}
      <span class={`mcp-level ${LEVEL_CLASSES[rank(row.level)]}`}>{singleLine(row.level)}</span>{" "}
      <span>{singleLine(row.text)}</span>
    </>
  );
}

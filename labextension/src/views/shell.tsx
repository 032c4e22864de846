import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { ViewName } from "../store";
import { VIEWS, versionMismatch, mode } from "../store";
import { count, visible } from "../text";
import { Boundary } from "./boundary";
import { CallsView, runningCount } from "./calls";
import { useAllowed, usePanel, useSelect, useUniqueId } from "./context";
import { LogsView } from "./logs";
import { PromptsView, ResourcesView } from "./offers";
import { Button, Tabs } from "./parts";
import { CELL_FORM_CLASS, Questions, useClickGuard } from "./questions";
import { ServerCard, ServersView } from "./servers";
import { ToolsView } from "./tools";

const TITLES: { [Name in ViewName]: string } = {
  servers: "Servers",
  tools: "Tools",
  resources: "Resources",
  prompts: "Prompts",
  calls: "Calls",
  logs: "Logs",
};

/** The whole panel. */
export function Shell(): JSX.Element {
  const prefix = useUniqueId();
  const settling = useClickGuard();
  const { model } = usePanel();
  const { view: now, tools, logs } = useSelect((state) => state.navigation);
  const running = useSelect((state) => runningCount(state.calls));
  // Views are created on first use and kept, to preserve what was typed.
  const visited = useRef(new Set<ViewName>());
  visited.current.add(now);
  const logsShown = useAllowed("logs");
  const tabs = VIEWS.filter((name) => name !== "logs" || logsShown).map((name) => ({
    name,
    title: TITLES[name],
    ...(name === "calls" && { note: running }),
  }));
  const draw: { [Name in ViewName]: () => JSX.Element } = {
    servers: () => <ServersView go={(view, server) => model.show(view, server)} />,
    tools: () => <ToolsView server={tools} onServer={(server) => model.show("tools", server)} />,
    resources: () => <ResourcesView />,
    prompts: () => <PromptsView />,
    calls: () => <CallsView active={now === "calls"} />,
    logs: () => <LogsView active={now === "logs"} server={logs} onServer={(server) => model.show("logs", server)} />,
  };
  return (
    <div class={`mcp-panel${settling}`}>
      <ConnectionBanner />
      <Boundary>
        <Questions prefix={prefix} />
      </Boundary>
      <Tabs names={tabs} now={now} onChange={(name) => model.show(name)} prefix={prefix} label="MCP panel" />
      {tabs.map(({ name }) => (
        <div
          key={name}
          class="mcp-page"
          role="tabpanel"
          id={`${prefix}-${name}`}
          aria-labelledby={`${prefix}-tab-${name}`}
          hidden={name !== now}
        >
          {visited.current.has(name) && <Boundary>{draw[name]()}</Boundary>}
        </div>
      ))}
      <Notice />
      <StatusLine />
    </div>
  );
}

/** The card of one server. */
export function Card({ name }: { name: string }): JSX.Element {
  const prefix = useUniqueId();
  const settling = useClickGuard();
  const server = useSelect((state) => state.servers[name]);
  const connection = useSelect((state) => state.connection);
  const synced = useSelect((state) => state.synced);
  return (
    <div class={`mcp-panel mcp-single${settling}`}>
      <ConnectionBanner />
      <Boundary>
        <Questions prefix={prefix} />
      </Boundary>
      <Boundary>{server && <ServerCard server={server} open />}</Boundary>
      {!server && (
        <p class="mcp-empty">
          {synced ? `${visible(name)} is not loaded.` : (connection.reason ?? "Waiting for the kernel\u2026")}
        </p>
      )}
      <Notice />
      <StatusLine />
    </div>
  );
}

/** Questions only, below the cell that waits for an answer. */
export function CellForm(): JSX.Element {
  const prefix = useUniqueId();
  const settling = useClickGuard();
  return (
    <div class={`mcp-panel mcp-single ${CELL_FORM_CLASS}${settling}`}>
      <ConnectionBanner />
      <Boundary>
        <Questions prefix={prefix} />
      </Boundary>
    </div>
  );
}

/** A warning that the panel is disconnected or has a different protocol version. */
function ConnectionBanner(): JSX.Element | null {
  const text = useSelect((state) =>
    state.connection.state === "closed" ? state.connection.reason : versionMismatch(state),
  );
  return text === null ? null : (
    <p class="mcp-warning mcp-banner" role="alert">
      {visible(text)}
    </p>
  );
}

const NOTICE_TIMEOUT = 4000;

/** A notice that overlays the panel, so the layout stays. Errors stay until dismissed. */
function Notice(): JSX.Element {
  const { model } = usePanel();
  const notice = useSelect((state) => state.notice);
  useEffect(() => {
    if (!notice || notice.bad) return;
    const timer = setTimeout(() => model.store.set({ notice: null }), NOTICE_TIMEOUT);
    return () => clearTimeout(timer);
  }, [notice, model]);
  return (
    <div class="mcp-notice-area" role="status" aria-live="polite">
      {notice && (
        <div class={notice.bad ? "mcp-notice mcp-notice-error" : "mcp-notice"}>
          <div class="mcp-prose mcp-grow">{visible(notice.text)}</div>
          <Button quiet onClick={() => model.store.set({ notice: null })}>
            Dismiss
          </Button>
        </div>
      )}
    </div>
  );
}

/** Server counts and connection state in one line. */
function StatusLine(): JSX.Element {
  const state = useSelect((each) => each);
  const servers = Object.values(state.servers);
  const ready = servers.filter((server) => server.state === "ready").length;
  const failed = servers.filter((server) => server.state === "error").length;
  const now = mode(state);
  const words = [
    servers.length ? `${count(ready)} of ${count(servers.length)} ready` : "no servers",
    failed > 0 && `${count(failed)} failed`,
    state.hello && now === "view" && "read-only",
    state.hello && now === "run" && "servers cannot be changed here",
  ];
  const link = {
    connecting: "connecting\u2026",
    busy: state.connection.reason ?? "",
    closed: "not connected",
    open: state.waiting ? "the kernel is busy; replies will be delayed" : "",
  }[state.connection.state];
  return (
    <div class="mcp-status">
      <span>{words.filter(Boolean).join(" · ")}</span>
      <span class="mcp-ellipsis mcp-connection-state" role="status" title={visible(link)}>
        {visible(link)}
      </span>
    </div>
  );
}

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { PanelState, ViewName } from "../store";
import { VIEWS, versionMismatch, mode } from "../store";
import { count, singleLine, visible } from "../text";
import { trans } from "../translation";
import { Boundary } from "./boundary";
import { useAllowed, usePanel, useSelect, useUniqueId } from "./context";
import { IconButton } from "./icons";
import { late } from "./late";
import { Button, Tabs, attention } from "./parts";
import { CELL_FORM_CLASS, Questions, useClickGuard } from "./questions";
import { ServerCard, ServersView } from "./servers";
import { OffersView } from "./tools";

const LogsView = late(async () => (await import("./logs")).LogsView);
const ActivityView = late(async () => (await import("./activity")).ActivityView);

const viewTitles = (): { [Name in ViewName]: string } => ({
  servers: trans.__("Servers"),
  tools: trans.__("Tools"),
  activity: trans.__("Activity"),
  logs: trans.__("Logs"),
});

/** The common parts of all panels: a banner for a lost connection and the open question, above the rest. */
function Frame(props: { kind?: string; prefix: string; children?: ComponentChildren }): JSX.Element {
  const guard = useClickGuard();
  return (
    <div class={`mcp-panel ${props.kind ?? ""}${guard}`}>
      <ConnectionBanner />
      <Boundary>
        <Questions prefix={props.prefix} />
      </Boundary>
      {props.children}
    </div>
  );
}

/** The whole panel. */
export function Shell(): JSX.Element {
  const prefix = useUniqueId();
  const { model } = usePanel();
  const { view: now, logs } = useSelect((state) => state.navigation);
  const running = useSelect((state) => runningCount(state.calls));
  // Views are created on first use and kept, to preserve what was typed.
  const visited = useRef(new Set<ViewName>());
  visited.current.add(now);
  const needs = useSelect((state) => attention(state.servers));
  const logsShown = useAllowed("logs");
  useFocusKept(prefix, now);
  const titles = viewTitles();
  const tabs = VIEWS.filter((name) => name !== "logs" || logsShown).map((name) => ({
    name,
    title: titles[name],
    ...(name === "activity" && { note: running }),
    ...(name === "servers" && { attention: needs }),
  }));
  const draw: { [Name in ViewName]: () => JSX.Element } = {
    servers: () => <ServersView go={(view, target) => model.show(view, target)} />,
    tools: () => <OffersView />,
    activity: () => <ActivityView active={now === "activity"} />,
    logs: () => (
      <LogsView active={now === "logs"} server={logs} onServer={(server) => model.show("logs", { server })} />
    ),
  };
  return (
    <Frame prefix={prefix}>
      <TitleRow />
      <Tabs
        names={tabs}
        now={now}
        onChange={(name) => model.show(name)}
        prefix={prefix}
        label={trans.__("MCP panel")}
      />
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
    </Frame>
  );
}

/** The number of running calls as tab text; empty for none. */
const runningCount = (calls: PanelState["calls"]): string => {
  const running = Object.keys(calls).length;
  return running ? count(running) : "";
};

/** Move the focus to the tab if another view was opened from inside one, which is hidden now. */
function useFocusKept(prefix: string, now: ViewName): void {
  const before = useRef(now);
  // The element is looked up while drawing: hiding it takes the focus away.
  const page = document.activeElement?.closest(`[id="${prefix}-${before.current}"]`) ?? null;
  useLayoutEffect(() => {
    const isMoved = before.current !== now && page !== null;
    before.current = now;
    if (isMoved) document.getElementById(`${prefix}-tab-${now}`)?.focus();
  }, [now]);
}

/** The name of the panel's notebook, for a panel outside of the notebook. */
function TitleRow(): JSX.Element | null {
  const { services } = usePanel();
  const notebook = useSelect((state) => state.notebook);
  if (!notebook) return null;
  return (
    <div class="mcp-title-row">
      <h2 class="mcp-ellipsis mcp-grow" title={singleLine(notebook)}>
        {trans.__("MCP servers")} <span class="mcp-muted">· {singleLine(notebook)}</span>
      </h2>
      {services.openInMainArea && (
        <IconButton icon="open" label={trans.__("Open in main area")} onClick={services.openInMainArea} />
      )}
    </div>
  );
}

/** The card of one server. */
export function Card({ name }: { name: string }): JSX.Element {
  const server = useSelect((state) => state.servers[name]);
  const connection = useSelect((state) => state.connection);
  const synced = useSelect((state) => state.synced);
  return (
    <Frame kind="mcp-single" prefix={useUniqueId()}>
      <Boundary>{server && <ServerCard server={server} open />}</Boundary>
      {!server && (
        <p class="mcp-empty">
          {synced
            ? trans.__("%1 is not loaded.", singleLine(name))
            : (connection.reason ?? trans.__("Waiting for the kernel\u2026"))}
        </p>
      )}
      <Notice />
      <StatusLine />
    </Frame>
  );
}

/** A panel with only questions, below the cell that waits for an answer. */
export function CellForm(): JSX.Element {
  return <Frame kind={`mcp-single ${CELL_FORM_CLASS}`} prefix={useUniqueId()} />;
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
            {trans.__("Dismiss")}
          </Button>
        </div>
      )}
    </div>
  );
}

/** Server counts and connection state in one line. */
function StatusLine(): JSX.Element {
  const { scope } = usePanel().model;
  const state = useSelect((each) => each);
  const servers = Object.values(state.servers);
  const ready = servers.filter((server) => server.state === "ready").length;
  const failed = servers.filter((server) => server.state === "error").length;
  const now = mode(state);
  // Beside a sidebar JupyterLab's status bar counts them.
  const counts = scope.client === "cell" && servers.length > 0;
  const words = [
    counts && trans.__("%1 of %2 ready", count(ready), count(servers.length)),
    counts && failed > 0 && trans.__("%1 failed", count(failed)),
    state.hello && now === "view" && trans.__("Read-only"),
    state.hello && now === "run" && trans.__("Servers cannot be changed here"),
  ];
  const link = {
    connecting: trans.__("Connecting\u2026"),
    busy: state.connection.reason ?? "",
    closed: trans.__("Not connected"),
    open: state.waiting ? trans.__("The kernel is busy; replies will be delayed") : "",
  }[state.connection.state];
  const summary = words.filter(Boolean).join(" · ");
  return (
    <div class={`mcp-status${summary || link ? "" : " mcp-visually-hidden"}`}>
      <span>{summary}</span>
      <span class="mcp-ellipsis mcp-connection-state" role="status" title={visible(link)}>
        {visible(link)}
      </span>
    </div>
  );
}

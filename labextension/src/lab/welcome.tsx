/** What the sidebar says where there is no panel to show: why, and what to do. */

import type { ComponentChildren, JSX } from "preact";
import { h, render } from "preact";
import { createRoot } from "../root";
import { visible } from "../text";
import { Button } from "../views/parts";
import type { ConnectionStatus } from "./connectionstatus";

export interface WelcomeActions {
  load(): void;
  retry(): void;
  insert(text: string): void;
}

export interface WelcomeView {
  show(status: ConnectionStatus): void;
  remove(): void;
}

/** Draw it into an element. */
export function drawWelcome(element: HTMLElement, actions: WelcomeActions): WelcomeView {
  const root = createRoot(element, "sidebar");
  return {
    show: (status) => render(h(Welcome, { status, actions }), root.element),
    remove: root.remove,
  };
}

function Welcome({ status, actions }: { status: ConnectionStatus; actions: WelcomeActions }): JSX.Element | null {
  switch (status.kind) {
    case "no-notebook":
      return <Message title="No notebook is open">Open a notebook to see its MCP servers here.</Message>;
    case "no-kernel":
      return <Message title="This notebook has no kernel">Start one to use MCP servers in it.</Message>;
    case "connecting":
      return <Message title={"Connecting to the kernel\u2026"} />;
    case "other-language":
      return (
        <Message title="Not a Python kernel">
          ipymcp works in Python notebooks; this notebook's kernel runs {visible(status.language)}.
        </Message>
      );
    case "absent":
      return <NotLoaded status={status} actions={actions} />;
    case "disconnected":
      return (
        <Message title={visible(status.ended.message)}>
          {status.ended.hint && <div>{visible(status.ended.hint)}</div>}
          <div class="mcp-actions">
            <Button onClick={actions.retry}>Try again</Button>
          </div>
        </Message>
      );
    case "panel":
      return null;
  }
}

function NotLoaded({
  status,
  actions,
}: {
  status: Extract<ConnectionStatus, { kind: "absent" }>;
  actions: WelcomeActions;
}): JSX.Element {
  const { command, loading, problem } = status;
  return (
    <Message title="ipymcp is not loaded in this notebook">
      <div>
        Load it to use MCP servers here: the button runs <code>{command}</code> in the kernel.
      </div>
      <div class="mcp-actions">
        <Button primary disabled={loading} onClick={actions.load}>
          {loading ? "Loading\u2026" : "Load ipymcp"}
        </Button>
      </div>
      <div role="status" aria-live="polite">
        {loading && <div class="mcp-muted">If a cell is running, loading starts when it ends.</div>}
        {problem && (
          <div class="mcp-problem mcp-prose">
            <div>{visible(problem.message)}</div>
            {problem.remedy && <Remedy text={problem.remedy} actions={actions} />}
          </div>
        )}
      </div>
    </Message>
  );
}

function Remedy({ text, actions }: { text: string; actions: WelcomeActions }): JSX.Element {
  return (
    <>
      <div>
        Run <code>{text}</code> in a cell, then load ipymcp.
      </div>
      <div class="mcp-actions">
        <Button onClick={() => actions.insert(text)}>Insert into a cell</Button>
      </div>
    </>
  );
}

function Message({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <section class="mcp-panel mcp-welcome" aria-label="MCP panel">
      <h2>{title}</h2>
      {children}
    </section>
  );
}

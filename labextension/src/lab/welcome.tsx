/** The contents of the sidebar while there is no panel: the reason, and what the user can do. */

import type { ComponentChildren, JSX } from "preact";
import { h, render } from "preact";
import { useState } from "preact/hooks";
import { createRoot } from "../root";
import { visible } from "../text";
import { trans } from "../translation";
import { Button } from "../views/parts";
import { restoreQuestion } from "../views/restore";
import type { ConnectionStatus } from "./connectionstatus";

export interface WelcomeActions {
  /** Load ipymcp. `again`: then load the servers that the notebook used. `insert`: then insert a cell that does the same. */
  load(then: { again: boolean; insert: boolean }): void;
  retry(): void;
  insert(text: string): void;
  /** Create a notebook; absent where the page cannot. */
  createNotebook?(): void;
}

export interface WelcomeView {
  /** Show a status, the names of servers that the notebook used before, and the label of the command that waits. */
  show(status: ConnectionStatus, used?: string[], waiting?: string): void;
  remove(): void;
}

/** Draw the welcome view into an element. */
export function drawWelcome(element: HTMLElement, actions: WelcomeActions): WelcomeView {
  const root = createRoot(element, "sidebar");
  return {
    show: (status, used = [], waiting = "") => render(h(Welcome, { status, used, waiting, actions }), root.element),
    remove: root.remove,
  };
}

interface WelcomeProps {
  status: ConnectionStatus;
  used: string[];
  waiting: string;
  actions: WelcomeActions;
}

function Welcome({ status, used, waiting, actions }: WelcomeProps): JSX.Element | null {
  switch (status.kind) {
    case "no-notebook":
      return (
        <Message title={trans.__("No notebook is open")}>
          {waiting
            ? trans.__("%1 needs a notebook: open one.", waiting)
            : trans.__("Open a notebook to see its MCP servers here.")}
          {actions.createNotebook && (
            <div class="mcp-actions">
              <Button primary={waiting !== ""} onClick={actions.createNotebook}>
                {trans.__("New notebook")}
              </Button>
            </div>
          )}
        </Message>
      );
    case "no-kernel":
      return (
        <Message title={trans.__("This notebook has no kernel")}>
          {trans.__("Start one to use MCP servers in it.")}
        </Message>
      );
    case "connecting":
      return <Message title={trans.__("Connecting to the kernel\u2026")} />;
    case "other-language":
      return (
        <Message title={trans.__("Not a Python kernel")}>
          {trans.__("ipymcp works in Python notebooks; this notebook's kernel runs %1.", visible(status.language))}
        </Message>
      );
    case "absent":
      return <NotLoaded status={status} used={used} waiting={waiting} actions={actions} />;
    case "disconnected":
      return (
        <Message title={visible(status.ended.message)}>
          {status.ended.hint && <div>{visible(status.ended.hint)}</div>}
          <div class="mcp-actions">
            <Button onClick={actions.retry}>{trans.__("Try again")}</Button>
          </div>
        </Message>
      );
    case "panel":
      return null;
  }
}

function NotLoaded({
  status,
  used,
  waiting,
  actions,
}: WelcomeProps & { status: Extract<ConnectionStatus, { kind: "absent" }> }): JSX.Element {
  const { command, loading, problem } = status;
  const [insert, setInsert] = useState(false);
  return (
    <Message title={trans.__("ipymcp is not loaded in this notebook")}>
      <div>
        {waiting && `${trans.__("%1 needs ipymcp: load it first.", waiting)} `}
        {used.length ? restoreQuestion(used) : trans.__("Load it to use MCP servers here.")}{" "}
        {trans.__("The button runs in the kernel:")} <code>{command}</code>
      </div>
      <div class="mcp-actions">
        <Button primary disabled={loading} onClick={() => actions.load({ again: used.length > 0, insert })}>
          {loading ? trans.__("Loading\u2026") : used.length ? trans.__("Restore") : trans.__("Load ipymcp")}
        </Button>
        {used.length > 0 && (
          <Button quiet disabled={loading} onClick={() => actions.load({ again: false, insert })}>
            {trans.__("Load ipymcp only")}
          </Button>
        )}
      </div>
      <label class="mcp-check">
        <input type="checkbox" checked={insert} onChange={(event) => setInsert(event.currentTarget.checked)} />
        {trans.__("Also insert the cell that does this")}
      </label>
      <div role="status" aria-live="polite">
        {loading && <div class="mcp-muted">{trans.__("If a cell is running, loading starts when it ends.")}</div>}
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
        {trans.__("Run this in a cell, then load ipymcp:")} <code>{text}</code>
      </div>
      <div class="mcp-actions">
        <Button onClick={() => actions.insert(text)}>{trans.__("Insert into a cell")}</Button>
      </div>
    </>
  );
}

function Message({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <section class="mcp-panel mcp-welcome" aria-label={trans.__("MCP panel")}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}

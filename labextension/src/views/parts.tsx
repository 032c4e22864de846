/** Components shared by the views. */

import type { ComponentChildren, JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Badge, Call, Problem, ServerState } from "../protocol";
import { singleLine, visible, wholeDuration } from "../text";
import { useRequest, useAllowed, useNow, useUniqueId } from "./context";

export const STATE_LABELS: { [State in ServerState]: string } = {
  disabled: "disabled",
  stopped: "stopped",
  starting: "starting",
  ready: "ready",
  restarting: "restarting",
  error: "failed",
  needs_trust: "needs trust",
  needs_auth: "needs login",
  unreachable: "unreachable",
};

const TONES: { [State in ServerState]: "good" | "busy" | "bad" | "ask" | "off" } = {
  disabled: "off",
  stopped: "off",
  starting: "busy",
  ready: "good",
  restarting: "busy",
  error: "bad",
  needs_trust: "ask",
  needs_auth: "ask",
  unreachable: "bad",
};

export function StateMark({ state }: { state: ServerState }): JSX.Element {
  const word = STATE_LABELS[state] ?? singleLine(state);
  return (
    <span class={`mcp-state mcp-tone-${TONES[state] ?? "off"}`}>
      <span class="mcp-dot" aria-hidden="true" />
      {word}
    </span>
  );
}

const SEVERITIES: { [kind: string]: number } = { danger: 2, neutral: 1, safe: 0 };

/** The most severe badge, for rows with space for only one. */
export function mostSevere(badges: Badge[]): Badge[] {
  const [first, ...others] = badges;
  if (!first) return [];
  const rank = ({ kind }: Badge): number => SEVERITIES[kind] ?? 1;
  return [others.reduce((found, each) => (rank(each) > rank(found) ? each : found), first)];
}

export function Badges({ badges }: { badges: Badge[] }): JSX.Element {
  return (
    <>
      {badges.map(({ text, kind }) => (
        <span key={text} class={`mcp-badge mcp-badge-${kind === "safe" || kind === "danger" ? kind : "neutral"}`}>
          {singleLine(text)}
        </span>
      ))}
    </>
  );
}

/** Messages longer than this scroll and need keyboard focus. */
const LONG_MESSAGE = 400;

export function ProblemBox({ problem }: { problem: Problem }): JSX.Element {
  return (
    <div class="mcp-problem" tabIndex={problem.message.length > LONG_MESSAGE ? 0 : undefined}>
      <div>{visible(problem.message)}</div>
      {problem.hint && <div class="mcp-hint">{visible(problem.hint)}</div>}
    </div>
  );
}

/** Preformatted text, focusable so that it scrolls by keyboard. */
export function Lines({ label, text }: { label: string; text: string }): JSX.Element {
  return (
    <pre class="mcp-pre" tabIndex={0} role="region" aria-label={label}>
      {text}
    </pre>
  );
}

interface ButtonProps {
  onClick: () => void;
  children: ComponentChildren;
  primary?: boolean;
  quiet?: boolean;
  disabled?: boolean;
  /** Ignore clicks but keep the focus. */
  busy?: boolean;
  label?: string;
}

export function Button({ onClick, children, primary, quiet, disabled, busy, label }: ButtonProps): JSX.Element {
  const kind = primary ? " mcp-primary" : quiet ? " mcp-quiet" : "";
  return (
    <button
      type="button"
      class={`mcp-button${kind}`}
      disabled={disabled ?? false}
      aria-disabled={busy === true ? true : undefined}
      aria-label={label}
      onClick={busy === true ? undefined : onClick}
    >
      {children}
    </button>
  );
}

/** An expandable section. */
export function Disclosure(props: { title: string; open?: boolean; children: () => ComponentChildren }): JSX.Element {
  const [open, setOpen] = useState(props.open ?? false);
  const id = useUniqueId();
  return (
    <div class="mcp-disclosure">
      <button type="button" class="mcp-caret" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        {props.title}
      </button>
      <div id={id} hidden={!open}>
        {open && props.children()}
      </div>
    </div>
  );
}

/** A call's progress, running time and Cancel button, at a constant height. */
export function CallProgress({ call }: { call: Call }): JSX.Element {
  const now = useNow(true);
  const act = useRequest();
  const mayCancel = useAllowed("cancel");
  const { progress } = call;
  const total = progress?.total ?? null;
  const part = progress && total ? Math.min(1, Math.max(0, progress.progress / total)) : null;
  const name = `${call.server}.${call.tool}`;
  return (
    <div class="mcp-call">
      <div class="mcp-call-line">
        <span class="mcp-ellipsis">
          {progress?.message ? singleLine(progress.message) : part === null ? "running" : `${Math.round(part * 100)} %`}
        </span>
        <span class="mcp-muted mcp-figure">{wholeDuration(now - call.started)}</span>
        {mayCancel && (
          <Button label={`Cancel ${singleLine(name)}`} onClick={() => void act("cancel", { call: call.id })}>
            Cancel
          </Button>
        )}
      </div>
      <div
        class={part === null ? "mcp-bar mcp-bar-open" : "mcp-bar"}
        role="progressbar"
        aria-label={`Progress of ${singleLine(name)}`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={part === null ? undefined : Math.round(part * 100)}
      >
        <div style={part === null ? undefined : { width: `${part * 100}%` }} />
      </div>
    </div>
  );
}

interface TabsProps<Name extends string> {
  names: readonly { name: Name; title: string; note?: string }[];
  now: Name;
  onChange(name: Name): void;
  prefix: string;
  label: string;
}

/** A tab bar with arrow-key navigation. */
export function Tabs<Name extends string>({ names, now, onChange, prefix, label }: TabsProps<Name>): JSX.Element {
  const bar = useRef<HTMLDivElement>(null);
  const go = (index: number): void => {
    const tab = names[(index + names.length) % names.length];
    if (!tab) return;
    onChange(tab.name);
    bar.current?.querySelector<HTMLElement>(`[id="${prefix}-tab-${tab.name}"]`)?.focus();
  };
  const keys = (event: KeyboardEvent): void => {
    const index = names.findIndex((tab) => tab.name === now);
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    go(to);
  };
  return (
    <div class="mcp-tabs" role="tablist" aria-label={label} ref={bar} onKeyDown={keys}>
      {names.map(({ name, title, note }) => (
        <button
          key={name}
          type="button"
          role="tab"
          class="mcp-tab"
          id={`${prefix}-tab-${name}`}
          aria-selected={name === now}
          aria-controls={`${prefix}-${name}`}
          tabIndex={name === now ? 0 : -1}
          onClick={() => onChange(name)}
        >
          {title}
          {note && <span class="mcp-count">{note}</span>}
          {note && <span class="mcp-visually-hidden"> running</span>}
        </button>
      ))}
    </div>
  );
}

/** A server dropdown. */
export function ServerSelect(props: {
  servers: { name: string }[];
  value: string;
  label: string;
  onChange(name: string): void;
}): JSX.Element {
  return (
    <select
      class="mcp-input mcp-select"
      aria-label={props.label}
      value={props.value}
      onChange={(event) => props.onChange(event.currentTarget.value)}
    >
      {props.servers.map(({ name }) => (
        <option key={name} value={name}>
          {singleLine(name)}
        </option>
      ))}
    </select>
  );
}

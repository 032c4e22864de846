/** What several views are made of. */

import type { ComponentChildren, JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Badge, Call, Problem, ServerState } from "../protocol";
import { duration, line, visible, whole } from "../text";
import { useAct, useMay, useNow, useUnique } from "./context";

export const STATE_WORDS: { [State in ServerState]: string } = {
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
  const word = STATE_WORDS[state] ?? line(state);
  return (
    <span class={`mcp-state mcp-tone-${TONES[state] ?? "off"}`}>
      <span class="mcp-dot" aria-hidden="true" />
      {word}
    </span>
  );
}

const RANKS: { [kind: string]: number } = { danger: 2, neutral: 1, safe: 0 };

/** The one that a user must not miss, where there is room for one alone. */
export function worst(badges: Badge[]): Badge[] {
  const [first, ...others] = badges;
  if (!first) return [];
  const rank = ({ kind }: Badge): number => RANKS[kind] ?? 1;
  return [others.reduce((found, each) => (rank(each) > rank(found) ? each : found), first)];
}

export function Badges({ badges }: { badges: Badge[] }): JSX.Element {
  return (
    <>
      {badges.map(({ text, kind }) => (
        <span key={text} class={`mcp-badge mcp-badge-${kind === "safe" || kind === "danger" ? kind : "neutral"}`}>
          {line(text)}
        </span>
      ))}
    </>
  );
}

/** Characters of a message that may not all be in sight. */
const LONG = 400;

export function ProblemBox({ problem }: { problem: Problem }): JSX.Element {
  return (
    <div class="mcp-problem" tabIndex={problem.message.length > LONG ? 0 : undefined}>
      <div>{visible(problem.message)}</div>
      {problem.hint && <div class="mcp-fix">{visible(problem.hint)}</div>}
    </div>
  );
}

/** Lines as they are. It scrolls, and so the keyboard can get there. */
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
  /** It does nothing for now, and keeps the focus. */
  busy?: boolean;
  label?: string;
  danger?: boolean;
}

export function Button({ onClick, children, primary, quiet, disabled, busy, label, danger }: ButtonProps): JSX.Element {
  const kind = primary ? " mcp-primary" : danger ? " mcp-danger" : quiet ? " mcp-quiet" : "";
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

/** A part that opens. */
export function Disclosure(props: { title: string; open?: boolean; children: () => ComponentChildren }): JSX.Element {
  const [open, setOpen] = useState(props.open ?? false);
  const id = useUnique();
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

/** How far a call is, since when, and the way to end it. Its place is always as high. */
export function CallProgress({ call }: { call: Call }): JSX.Element {
  const now = useNow(true);
  const act = useAct();
  const mayCancel = useMay("cancel");
  const { progress } = call;
  const total = progress?.total ?? null;
  const part = progress && total ? Math.min(1, Math.max(0, progress.progress / total)) : null;
  const name = `${call.server}.${call.tool}`;
  return (
    <div class="mcp-call">
      <div class="mcp-call-line">
        <span class="mcp-ellipsis">
          {progress?.message ? line(progress.message) : part === null ? "running" : `${Math.round(part * 100)} %`}
        </span>
        <span class="mcp-dim mcp-figure">{whole(now - call.started)}</span>
        {mayCancel && (
          <Button label={`Cancel ${line(name)}`} onClick={() => void act("cancel", { call: call.id })}>
            Cancel
          </Button>
        )}
      </div>
      <div
        class={part === null ? "mcp-bar mcp-bar-open" : "mcp-bar"}
        role="progressbar"
        aria-label={`Progress of ${line(name)}`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={part === null ? undefined : Math.round(part * 100)}
      >
        <div style={part === null ? undefined : { width: `${part * 100}%` }} />
      </div>
    </div>
  );
}

export const seconds = duration;

interface TabsProps<Name extends string> {
  names: readonly { name: Name; title: string; note?: string }[];
  now: Name;
  onChange(name: Name): void;
  prefix: string;
  label: string;
}

/** Tabs that the arrow keys walk through. */
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
          {note && <span class="mcp-unseen"> running</span>}
        </button>
      ))}
    </div>
  );
}

/** Which server; the first where none was chosen. */
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
          {line(name)}
        </option>
      ))}
    </select>
  );
}

/** Components shared by the views. */

import type { ComponentChildren, JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Badge, CallRow, Problem, ServerRow, Verb } from "../protocol";
import { singleLine, visible, webAddress, wholeDuration } from "../text";
import { trans } from "../translation";
import { problemText, useAllowed, useCopy, useNow, useRequest, useUniqueId } from "./context";

/** An intent that acts on a whole server. */
export type ServerAction = Extract<
  Verb,
  "start" | "stop" | "restart" | "unload" | "enable" | "disable" | "trust" | "login"
>;

/** The labels of the buttons and menu items for the actions. */
export const ACTION_TITLES: { [A in ServerAction]: () => string } = {
  start: () => trans.__("Start"),
  stop: () => trans.__("Stop"),
  restart: () => trans.__("Restart"),
  unload: () => trans.__("Unload"),
  enable: () => trans.__("Enable"),
  disable: () => trans.__("Disable"),
  trust: () => trans.__("Trust\u2026"),
  login: () => trans.__("Log in"),
};

interface StateView {
  label: () => string;
  tone: "good" | "busy" | "bad" | "ask" | "off";
  /** The actions that are available; the first is the primary one. */
  actions: ServerAction[];
}

/** The labels are the same as in the tables and messages of the kernel. */
const STATES: { [State in ServerRow["state"]]: StateView } = {
  disabled: { label: () => trans.__("disabled"), tone: "off", actions: ["enable", "unload"] },
  stopped: { label: () => trans.__("stopped"), tone: "off", actions: ["start", "disable", "unload"] },
  starting: { label: () => trans.__("starting"), tone: "busy", actions: ["stop"] },
  ready: { label: () => trans.__("ready"), tone: "good", actions: ["stop", "restart", "disable", "unload"] },
  restarting: { label: () => trans.__("restarting"), tone: "busy", actions: ["stop"] },
  error: { label: () => trans.__("failed"), tone: "bad", actions: ["start", "disable", "unload"] },
  needs_trust: { label: () => trans.__("needs trust"), tone: "ask", actions: ["trust", "disable", "unload"] },
  needs_auth: { label: () => trans.__("needs login"), tone: "ask", actions: ["login", "disable", "unload"] },
  unreachable: { label: () => trans.__("unreachable"), tone: "bad", actions: ["start", "disable", "unload"] },
};

/** The label, tone and actions of a state. A state that this page does not know has no actions. */
export function stateView(state: ServerRow["state"]): StateView {
  return STATES[state] ?? { label: () => singleLine(state), tone: "off", actions: [] };
}

/** What needs the user's attention: `bad` if a server failed, else `ask` if one waits for trust or a login. */
export function attention(servers: { [name: string]: ServerRow }): "bad" | "ask" | null {
  const tones = new Set(Object.values(servers).map(({ state }) => stateView(state).tone));
  return tones.has("bad") ? "bad" : tones.has("ask") ? "ask" : null;
}

/** The words for `attention`. */
export const ATTENTION_TITLES = {
  bad: () => trans.__("A server failed"),
  ask: () => trans.__("A server needs your answer"),
};

export function StateMark({ state }: { state: ServerRow["state"] }): JSX.Element {
  const { label, tone } = stateView(state);
  return (
    <span class={`mcp-state mcp-tone-${tone}`}>
      <span class="mcp-dot" aria-hidden="true" />
      {label()}
    </span>
  );
}

export function Badges({ badges }: { badges: (Badge & { title?: string })[] }): JSX.Element {
  return (
    <>
      {badges.map(({ text, kind, title }) => (
        <span
          key={text}
          class={`mcp-badge mcp-badge-${kind === "safe" || kind === "danger" ? kind : "neutral"}`}
          title={title}
        >
          {singleLine(text)}
        </span>
      ))}
    </>
  );
}

/** Messages longer than this scroll and need keyboard focus. */
const LONG_MESSAGE = 400;

interface ProblemProps {
  problem: Problem;
  onRetry?: () => void;
  /** The label of the button for `onRetry`, if it does something else first. */
  retry?: string;
  /** Show the log of the server that failed. */
  onLog?: () => void;
  children?: ComponentChildren;
}

/** An error with its hint, and buttons to retry, see the log and copy the text. */
export function ProblemBox({ problem, onRetry, retry, onLog, children }: ProblemProps): JSX.Element {
  const copy = useCopy();
  return (
    <div class="mcp-problem">
      <div class="mcp-problem-text" tabIndex={problem.message.length > LONG_MESSAGE ? 0 : undefined}>
        <div>{visible(problem.message)}</div>
        {problem.hint && <div class="mcp-hint">{visible(problem.hint)}</div>}
      </div>
      {children}
      <div class="mcp-problem-actions">
        {onRetry && (
          <Button quiet onClick={onRetry}>
            {retry ?? trans.__("Retry")}
          </Button>
        )}
        {onLog && (
          <Button quiet onClick={onLog}>
            {trans.__("View log")}
          </Button>
        )}
        <Button quiet onClick={() => copy(visible(problemText(problem)))}>
          {trans.__("Copy")}
        </Button>
      </div>
    </div>
  );
}

/** A link for http and https URLs; plain text for any other URI. */
export function ExternalLink({ uri, name }: { uri: string; name: string }): JSX.Element {
  const address = webAddress(uri);
  if (address === null) {
    return (
      <>
        {singleLine(name)} <code>{singleLine(uri)}</code>
      </>
    );
  }
  return (
    <a href={address} rel="noopener noreferrer" target="_blank" title={singleLine(uri)}>
      {singleLine(name) || singleLine(uri)}
    </a>
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
  /** Absent for a button that submits its form. */
  onClick?: () => void;
  children: ComponentChildren;
  primary?: boolean;
  quiet?: boolean;
  disabled?: boolean;
  /** Ignore clicks but keep the focus. */
  busy?: boolean;
  label?: string;
  title?: string;
}

export function Button({ onClick, children, primary, quiet, disabled, busy, label, title }: ButtonProps): JSX.Element {
  const kind = primary ? " mcp-primary" : quiet ? " mcp-quiet" : "";
  return (
    <button
      type={onClick ? "button" : "submit"}
      class={`mcp-button${kind}`}
      disabled={disabled ?? false}
      aria-disabled={busy === true ? true : undefined}
      aria-label={label}
      title={title}
      onClick={busy === true ? (event) => event.preventDefault() : onClick}
    >
      {children}
    </button>
  );
}

/** The button that submits a form. */
export function SubmitButton(props: Omit<ButtonProps, "onClick" | "primary" | "title">): JSX.Element {
  return <Button primary title={trans.__("Enter; Ctrl+Enter in a text of several lines")} {...props} />;
}

/** An expandable section. */
export function Disclosure(props: { title: string; open?: boolean; children: () => ComponentChildren }): JSX.Element {
  const [open, setOpen] = useState(props.open ?? false);
  const id = useUniqueId();
  return (
    <div>
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
export function CallProgress({ call }: { call: CallRow }): JSX.Element {
  const now = useNow(true);
  const act = useRequest();
  const mayCancel = useAllowed("cancel");
  const { progress } = call;
  const total = progress?.total ?? null;
  const part = progress && total ? Math.min(1, Math.max(0, progress.progress / total)) : null;
  const name = `${call.server}.${call.tool}`;
  const words = (): string => {
    if (call.waits) return trans.__("Waiting for your answer");
    if (progress?.message) return singleLine(progress.message);
    return part === null ? trans.__("Running") : `${Math.round(part * 100)} %`;
  };
  return (
    <div class="mcp-call">
      <div class="mcp-call-line">
        <span class="mcp-ellipsis">{words()}</span>
        <span class="mcp-muted mcp-figure">{wholeDuration(now - call.started)}</span>
        {mayCancel && (
          <Button label={trans.__("Cancel %1", singleLine(name))} onClick={() => void act("cancel", { call: call.id })}>
            {trans.__("Cancel")}
          </Button>
        )}
      </div>
      <div
        class={part === null ? "mcp-bar mcp-bar-open" : "mcp-bar"}
        role="progressbar"
        aria-label={trans.__("Progress of %1", singleLine(name))}
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
  names: readonly { name: Name; title: string; note?: string; attention?: "bad" | "ask" | null }[];
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
      {names.map(({ name, title, note, attention: needs }) => (
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
          {note && <span class="mcp-visually-hidden"> {trans.__("running")}</span>}
          {needs && (
            <span class={`mcp-tab-dot mcp-tone-${needs}`} role="img" aria-label={ATTENTION_TITLES[needs]()}>
              <span class="mcp-dot" />
            </span>
          )}
        </button>
      ))}
    </div>
  );
}

/** A search field. */
export function SearchField(props: {
  label: string;
  value: string;
  onInput(words: string): void;
  onKeyDown?: (event: KeyboardEvent) => void;
}): JSX.Element {
  return (
    <input
      class="mcp-input mcp-grow"
      type="search"
      aria-label={props.label}
      placeholder={props.label}
      value={props.value}
      onInput={(event) => props.onInput(event.currentTarget.value)}
      onKeyDown={props.onKeyDown}
    />
  );
}

/** A dropdown that filters a list. */
export function FilterSelect<Value extends string>(props: {
  label: string;
  value: Value;
  /** Values and titles. */
  options: readonly (readonly [value: Value, title: string])[];
  onChange(value: Value): void;
}): JSX.Element {
  return (
    <select
      class="mcp-input"
      aria-label={props.label}
      value={props.value}
      onChange={(event) => props.onChange(event.currentTarget.value as Value)}
    >
      {props.options.map(([value, title]) => (
        <option key={value} value={value}>
          {title}
        </option>
      ))}
    </select>
  );
}

/** A toolbar for rows that keep arriving: buttons to pause and copy, and the number of rows. */
export function StreamBar(props: {
  paused: boolean;
  onPause(paused: boolean): void;
  onCopy(): void;
  count: string;
  children?: ComponentChildren;
}): JSX.Element {
  const { paused, onPause } = props;
  return (
    <div class="mcp-toolbar mcp-compact">
      <button type="button" class="mcp-button" aria-pressed={paused} onClick={() => onPause(!paused)}>
        {paused ? trans.__("Resume") : trans.__("Pause")}
      </button>
      {props.children}
      <Button quiet onClick={props.onCopy}>
        {trans.__("Copy")}
      </Button>
      <span class="mcp-spacer" />
      <span class="mcp-muted mcp-figure">{props.count}</span>
    </div>
  );
}

/** A server dropdown. */
export function ServerSelect(props: {
  servers: { name: string }[];
  value: string;
  onChange(name: string): void;
}): JSX.Element {
  const { servers, ...rest } = props;
  const options = servers.map(({ name }) => [name, singleLine(name)] as const);
  return <FilterSelect label={trans.__("Server")} options={options} {...rest} />;
}

/** A name and its value in a list of facts. */
export function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

import type { Call, KernelHello, Mode, Patch, Problem, Question, Result, Server, State, Verb } from "./protocol";
import { VERSION } from "./protocol";
import type { Connection, Unsubscribe } from "./transport";

export const VIEWS = ["servers", "tools", "resources", "prompts", "calls", "logs"] as const;
export type ViewName = (typeof VIEWS)[number];

/** Which view is to be seen, and the servers it is narrowed to; empty for none. */
export interface Looking {
  view: ViewName;
  tools: string;
  logs: string;
}

/** All that the views draw, but the logs. */
export interface PanelState extends State {
  connection: Connection;
  hello: KernelHello | null;
  /** How often the kernel said hello: what was asked for before may have changed. */
  greetings: number;
  /** Whether a snapshot has come. */
  synced: boolean;
  looking: Looking;
  /** How calls that this panel made ended, by call. */
  results: { [call: string]: Result };
  /** How many calls were over when the kernel last said so: the history has changed with each. */
  over: number;
  /** An intent has waited so long that the user should know. */
  waiting: boolean;
  /** The last thing worth saying in passing. */
  notice: { text: string; bad: boolean; count: number } | null;
}

export const EMPTY: PanelState = {
  connection: { state: "connecting" },
  hello: null,
  greetings: 0,
  synced: false,
  servers: {},
  calls: {},
  questions: {},
  looking: { view: "servers", tools: "", logs: "" },
  results: {},
  over: 0,
  waiting: false,
  notice: null,
};

const MOST_RESULTS = 50;

/** A value that tells when it changes. */
export class Store<S extends object> {
  private readonly listeners = new Set<() => void>();

  constructor(private value: S) {}

  get = (): S => this.value;

  set(change: Partial<S>): void {
    this.value = { ...this.value, ...change };
    for (const listener of [...this.listeners]) listener();
  }

  subscribe = (listener: () => void): Unsubscribe => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

/** The state after a patch. Parts it does not name stay the same objects. */
export function patched(state: State, patch: Patch): State {
  return {
    servers: merged(state.servers, patch.set.servers),
    calls: merged(state.calls, patch.set.calls),
    questions: merged(state.questions, patch.set.questions),
  };
}

function merged<T>(old: { [key: string]: T }, set: { [key: string]: T | null } | undefined): { [key: string]: T } {
  if (!set) return old;
  const fresh = { ...old };
  for (const [key, value] of Object.entries(set)) {
    if (value === null) delete fresh[key];
    else fresh[key] = value;
  }
  return fresh;
}

/** The results with one more; the oldest go. */
export function withResult(results: PanelState["results"], result: Result): PanelState["results"] {
  const entries = [...Object.entries(results), [String(result.call), result] as const];
  return Object.fromEntries(entries.slice(-MOST_RESULTS));
}

const RUN: ReadonlySet<Verb> = new Set<Verb>([
  "call",
  "cancel",
  "validate",
  "code",
  "resources",
  "read",
  "prompts",
  "prompt",
  "answer",
]);
const VIEW: ReadonlySet<Verb> = new Set<Verb>(["logs", "tools", "tool", "history"]);

const VISITORS_LACK: ReadonlySet<Verb> = new Set<Verb>(["logs", "code"]);

/** Whether the person is a stranger to the notebook, and has none to put code into. */
export const isVisitor = (state: PanelState): boolean => state.hello?.visitor ?? false;

/** What this panel may do; the kernel enforces it as well. */
export function mode(state: PanelState): Mode {
  if (!state.hello || state.hello.version !== VERSION) return "view";
  return state.hello.mode;
}

/** Whether a button for this verb makes sense. */
export function may(state: PanelState, verb: Verb): boolean {
  if (VISITORS_LACK.has(verb) && isVisitor(state)) return false;
  if (VIEW.has(verb)) return true;
  const now = mode(state);
  return now === "full" || (now === "run" && RUN.has(verb));
}

/** What to say where kernel and panel do not speak the same version; null where they do. */
export function mismatch(state: PanelState): string | null {
  const { hello } = state;
  if (!hello || hello.version === VERSION) return null;
  const [behind, where] =
    hello.version > VERSION ? ["this panel", "JupyterLab"] : [`ipymcp ${hello.ipymcp} in the kernel`, "the kernel"];
  return (
    `The kernel speaks version ${hello.version} of the panel's protocol, this panel version ${VERSION}: you can look, ` +
    `not act. Upgrade ${behind}: run pip install --upgrade ipymcp in the environment of ${where}, then restart it.`
  );
}

const byName = (one: { name: string }, other: { name: string }): number => (one.name < other.name ? -1 : 1);

export const serversOf = (state: State): Server[] => Object.values(state.servers).sort(byName);
export const callsOf = (state: State): Call[] => Object.values(state.calls).sort((one, other) => one.id - other.id);
/** In the order in which they are asked; what only waits for a browser comes last. */
export const questionsOf = (state: State): Question[] =>
  Object.values(state.questions).sort((one, other) => Number(one.type === "wait") - Number(other.type === "wait"));

/** Something is said in passing. */
export function noticed({ notice }: PanelState, text: string, bad: boolean): Partial<PanelState> {
  return { notice: { text, bad, count: (notice?.count ?? 0) + 1 } };
}

/** A view is brought to the front; of one server, where the view has servers to choose from. */
export function looked({ looking }: PanelState, view: ViewName, server?: string): Partial<PanelState> {
  const narrowed = server !== undefined && (view === "tools" || view === "logs") ? { [view]: server } : {};
  return { looking: { ...looking, ...narrowed, view } };
}

/** Whatever was thrown, as something to show. */
export function problemOf(error: unknown): Problem {
  if (error instanceof KernelError) return error.problem;
  return { message: error instanceof Error ? error.message : String(error) };
}

/** The kernel refused an intent, or cannot answer any more. */
export class KernelError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

import type { Call, KernelHello, Mode, Patch, Problem, Question, Result, Server, State, Verb } from "./protocol";
import { VERSION } from "./protocol";
import type { ConnectionState, Unsubscribe } from "./transport";

export const VIEWS = ["servers", "tools", "resources", "prompts", "calls", "logs"] as const;
export type ViewName = (typeof VIEWS)[number];

/** The current view and the server filters of views; empty for all. */
export interface Navigation {
  view: ViewName;
  tools: string;
  logs: string;
}

/** The state that the views render, except logs. */
export interface PanelState extends State {
  connection: ConnectionState;
  hello: KernelHello | null;
  /** Number of hellos received; loaded values are reloaded after each. */
  helloCount: number;
  /** Whether a snapshot has arrived. */
  synced: boolean;
  navigation: Navigation;
  /** Results of this panel's calls, by call id. */
  results: { [call: string]: Result };
  /** Number of finished calls, as last reported by the kernel. */
  finishedCalls: number;
  /** Whether a reply is taking long enough to tell the user. */
  waiting: boolean;
  /** The current notice. */
  notice: { text: string; bad: boolean; count: number } | null;
}

export const INITIAL_STATE: PanelState = {
  connection: { state: "connecting" },
  hello: null,
  helloCount: 0,
  synced: false,
  servers: {},
  calls: {},
  questions: {},
  navigation: { view: "servers", tools: "", logs: "" },
  results: {},
  finishedCalls: 0,
  waiting: false,
  notice: null,
};

const MAX_RESULTS = 50;

/** An observable value. */
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

/** Apply a patch. Unchanged parts keep their identity. */
export function withPatch(state: State, patch: Patch): State {
  return {
    servers: mergeRows(state.servers, patch.set.servers),
    calls: mergeRows(state.calls, patch.set.calls),
    questions: mergeRows(state.questions, patch.set.questions),
  };
}

function mergeRows<T>(old: { [key: string]: T }, set: { [key: string]: T | null } | undefined): { [key: string]: T } {
  if (!set) return old;
  const fresh = { ...old };
  for (const [key, value] of Object.entries(set)) {
    if (value === null) delete fresh[key];
    else fresh[key] = value;
  }
  return fresh;
}

/** Add a result, dropping the oldest above the limit. */
export function withResult(results: PanelState["results"], result: Result): PanelState["results"] {
  const entries = [...Object.entries(results), [String(result.call), result] as const];
  return Object.fromEntries(entries.slice(-MAX_RESULTS));
}

const RUN_VERBS: ReadonlySet<Verb> = new Set<Verb>([
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
const VIEW_VERBS: ReadonlySet<Verb> = new Set<Verb>(["logs", "tools", "tool", "history"]);

const HIDDEN_FROM_VISITORS: ReadonlySet<Verb> = new Set<Verb>(["logs", "code"]);

/** Whether the user is a visitor without access to the notebook, as in Voilà. */
export const isVisitor = (state: PanelState): boolean => state.hello?.visitor ?? false;

/** The panel's permission mode, which the kernel enforces too. */
export function mode(state: PanelState): Mode {
  if (!state.hello || state.hello.version !== VERSION) return "view";
  return state.hello.mode;
}

/** Whether the mode allows an intent. */
export function isAllowed(state: PanelState, verb: Verb): boolean {
  if (HIDDEN_FROM_VISITORS.has(verb) && isVisitor(state)) return false;
  if (VIEW_VERBS.has(verb)) return true;
  const now = mode(state);
  return now === "full" || (now === "run" && RUN_VERBS.has(verb));
}

/** A message if kernel and panel use different protocol versions, else null. */
export function versionMismatch(state: PanelState): string | null {
  const { hello } = state;
  if (!hello || hello.version === VERSION) return null;
  const [behind, where] =
    hello.version > VERSION ? ["this panel", "JupyterLab"] : [`ipymcp ${hello.ipymcp} in the kernel`, "the kernel"];
  return (
    `The kernel uses version ${hello.version} of the panel protocol and this panel version ${VERSION}, so the panel is ` +
    `read-only. Upgrade ${behind}: run pip install --upgrade ipymcp in the environment of ${where}, then restart it.`
  );
}

const byName = (one: { name: string }, other: { name: string }): number => (one.name < other.name ? -1 : 1);

export const serversOf = (servers: State["servers"]): Server[] => Object.values(servers).sort(byName);
export const callsOf = (calls: State["calls"]): Call[] => Object.values(calls).sort((one, other) => one.id - other.id);
/** Open questions in order, with those that only wait for a browser last. */
export const questionsOf = (questions: State["questions"]): Question[] =>
  Object.values(questions).sort((one, other) => Number(one.type === "wait") - Number(other.type === "wait"));

/** Return the change that shows a notice. */
export function withNotice({ notice }: PanelState, text: string, bad: boolean): Partial<PanelState> {
  return { notice: { text, bad, count: (notice?.count ?? 0) + 1 } };
}

/** Return the change that shows a view, filtered by server if the view supports it. */
export function withView({ navigation: looking }: PanelState, view: ViewName, server?: string): Partial<PanelState> {
  const narrowed = server !== undefined && (view === "tools" || view === "logs") ? { [view]: server } : {};
  return { navigation: { ...looking, ...narrowed, view } };
}

/** Convert a caught value to a problem to display. */
export function problemOf(error: unknown): Problem {
  if (error instanceof KernelError) return error.problem;
  return { message: error instanceof Error ? error.message : String(error) };
}

/** The kernel refused an intent, or the connection ended. */
export class KernelError extends Error {
  constructor(readonly problem: Problem) {
    super(problem.message);
  }
}

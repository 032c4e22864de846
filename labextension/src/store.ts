import type {
  CallRow,
  FailedCall,
  FinishedCall,
  JsonObject,
  Keep,
  KernelHello,
  Mode,
  Patch,
  Problem,
  QuestionRow,
  ResourceUpdate,
  ServerRow,
  StateRows,
  UsedServers,
  Verb,
} from "./protocol";
import { HIDDEN_FROM_VISITORS, RUN_VERBS, VERSION, VIEW_VERBS } from "./protocol";
import { trans } from "./translation";
import type { ConnectionState, Unsubscribe } from "./transport";

export const VIEWS = ["servers", "tools", "activity", "logs"] as const;
export type ViewName = (typeof VIEWS)[number];
/** The kinds of entries that the view "tools" can list. */
export const OFFER_KINDS = ["tools", "resources", "prompts"] as const;
export type OfferKind = (typeof OFFER_KINDS)[number];

/** The current view, and what is selected in the views. */
export interface Navigation {
  view: ViewName;
  kind: OfferKind;
  /** The only server whose tools, resources or prompts are listed; empty for all. */
  tools: string;
  /** The server whose log is shown; empty for the first. */
  logs: string;
  /** The key of the tool that is open; empty for none. */
  tool: string;
  /** The server whose messages are recorded and shown in the view "activity"; empty for none. */
  protocol: string;
}

/** What to show in a view. Absent fields leave the view as it is. */
export interface Target {
  server?: string;
  kind?: OfferKind;
  tool?: { server: string; name: string } | null;
  protocol?: string;
}

/** The initial values of the view that adds a server. */
export interface Adding {
  kind: "registry" | "command" | "url" | "json";
  /** The definition to begin with. */
  definition: JsonObject;
  name: string;
  keep: Keep;
  /** The server that is edited; null for a new one. */
  replaces: string | null;
}

/** The outcome of a call that the panel made. */
export type CallOutcome = FinishedCall | FailedCall;

/** The state that the views render, except logs. */
export interface PanelState extends StateRows {
  /** The notebook's name above a panel that is not in it; empty for none. */
  notebook: string;
  connection: ConnectionState;
  hello: KernelHello | null;
  /** Number of hellos received; loaded values are reloaded after each. */
  helloCount: number;
  /** Whether a snapshot has arrived. */
  synced: boolean;
  navigation: Navigation;
  /** The initial values of the open view that adds a server; null while it is closed. */
  adding: Adding | null;
  /** The servers that the notebook used and that are not loaded, as last reported by the kernel; null before. */
  used: UsedServers | null;
  /** Results of this panel's calls, by call id. */
  results: { [call: string]: CallOutcome };
  /** The resources that the panel is subscribed to, by server and URI. */
  subscribed: { [key: string]: ResourceUpdate };
  /** Number of finished calls, as last reported by the kernel. */
  finishedCalls: number;
  /** Whether a reply is taking long enough to tell the user. */
  waiting: boolean;
  /** The current notice. */
  notice: { text: string; bad: boolean; count: number } | null;
}

export const INITIAL_STATE: PanelState = {
  notebook: "",
  connection: { state: "connecting" },
  hello: null,
  helloCount: 0,
  synced: false,
  servers: {},
  calls: {},
  questions: {},
  navigation: { view: "servers", kind: "tools", tools: "", logs: "", tool: "", protocol: "" },
  adding: null,
  used: null,
  results: {},
  subscribed: {},
  finishedCalls: 0,
  waiting: false,
  notice: null,
};

const MAX_RESULTS = 50;

/** An observable value. */
export class Store<S extends object> {
  readonly #listeners = new Set<() => void>();

  constructor(private value: S) {}

  get = (): S => this.value;

  set(change: Partial<S>): void {
    this.value = { ...this.value, ...change };
    for (const listener of [...this.#listeners]) listener();
  }

  subscribe = (listener: () => void): Unsubscribe => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };
}

/** Apply a patch. Unchanged parts keep their identity. */
export function withPatch(state: StateRows, patch: Patch): StateRows {
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
export function withResult(results: PanelState["results"], result: CallOutcome): PanelState["results"] {
  const entries = [...Object.entries(results), [String(result.call), result] as const];
  return Object.fromEntries(entries.slice(-MAX_RESULTS));
}

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
    hello.version > VERSION
      ? [trans.__("this panel"), "JupyterLab"]
      : [trans.__("ipymcp %1 in the kernel", hello.ipymcp), trans.__("the kernel")];
  return trans.__(
    "The kernel uses version %1 of the panel protocol and this panel version %2, so the panel is read-only. " +
      "Upgrade %3: install the latest ipymcp in the environment of %4, then restart it.",
    hello.version,
    VERSION,
    behind,
    where,
  );
}

/** The order of servers everywhere in the panel. */
export const compareNames = (one: string, other: string): number => (one < other ? -1 : 1);

export const serversOf = (servers: StateRows["servers"]): ServerRow[] =>
  Object.values(servers).sort((one, other) => compareNames(one.name, other.name));
export const callsOf = (calls: StateRows["calls"]): CallRow[] =>
  Object.values(calls).sort((one, other) => one.id - other.id);
/** Open questions in order, with those that only wait for a browser last. */
export const questionsOf = (questions: StateRows["questions"]): QuestionRow[] =>
  Object.values(questions).sort((one, other) => Number(one.type === "wait") - Number(other.type === "wait"));

/** The card in a cell's output that also shows a question; empty for none. */
export const cardOf = (question: QuestionRow): string => (question.type === "approve" && question.card) || "";

/** Return the change that shows a notice. */
export function withNotice({ notice }: PanelState, text: string, bad: boolean): Partial<PanelState> {
  return { notice: { text, bad, count: (notice?.count ?? 0) + 1 } };
}

/** Return the change that shows a view. */
export function withView({ navigation }: PanelState, view: ViewName, target: Target): Partial<PanelState> {
  const { server, kind = navigation.kind, protocol = navigation.protocol, tool } = target;
  const filter = server !== undefined && (view === "tools" || view === "logs") ? { [view]: server } : {};
  const opened = tool === undefined ? {} : { tool: tool ? toolKey(tool) : "" };
  return { navigation: { ...navigation, ...filter, ...opened, kind, protocol, view } };
}

/** Return the change that opens the view that adds a server. */
export function withAdding(state: PanelState, adding: Partial<Adding> = {}): Partial<PanelState> {
  const begin: Adding = { kind: "registry", definition: {}, name: "", keep: "me", replaces: null, ...adding };
  return { ...withView(state, "servers", {}), adding: begin };
}

/** Return the change that a message about a subscription makes. */
export function withUpdate({ subscribed }: PanelState, update: ResourceUpdate): Partial<PanelState> {
  const { [uriKey(update)]: _, ...others } = subscribed;
  return { subscribed: update.updates === null ? others : { ...others, [uriKey(update)]: update } };
}

export const uriKey = ({ server, uri }: { server: string; uri: string }): string => `${server}\n${uri}`;

export const toolKey = (tool: { server: string; name: string }): string => `${tool.server}\n${tool.name}`;

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

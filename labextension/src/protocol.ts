/** What a view and the kernel say to each other, version 1. Both sides ignore kinds and fields they do not know. */

export const VERSION = 1;

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type Mode = "full" | "run" | "view";

export type ServerState =
  "disabled" | "stopped" | "starting" | "ready" | "restarting" | "error" | "needs_trust" | "needs_auth" | "unreachable";

/** A fault, and what mends it. */
export interface Problem {
  message: string;
  hint?: string | null;
  type?: string;
}

/** Times are seconds since the epoch. */
export interface Server {
  name: string;
  alias: string;
  state: ServerState;
  lazy: boolean;
  transport: "stdio" | "http" | "sse";
  era: "handshake" | "stateless" | null;
  version: string | null;
  where: string;
  source: string;
  since: number | null;
  pid: number | null;
  calls: number;
  tools: number;
  resources: number | null;
  prompts: number | null;
  disabled_tools: number;
  /** Another number after every change of its tools, or of what is decided of them. Absent where the kernel is older. */
  tools_version?: number;
  error: Problem | null;
  instructions: string | null;
  capabilities: string[];
}

export interface Progress {
  progress: number;
  total: number | null;
  message: string | null;
}

/** A call that runs. */
export interface Call {
  id: number;
  server: string;
  tool: string;
  caller: "user" | "model" | "app";
  started: number;
  progress: Progress | null;
  where: "panel" | "notebook";
}

export interface Badge {
  text: string;
  kind: "safe" | "danger" | "neutral";
}

/** A tool, as a list shows it; with its schemas when asked for by name. */
export interface Tool {
  server: string;
  name: string;
  alias: string;
  title: string | null;
  description: string | null;
  badges: Badge[];
  decision: "allow" | "ask" | "deny";
  disabled: boolean;
  changed: boolean;
  findings: string[];
  schema?: JsonObject;
  output_schema?: JsonObject | null;
}

/** What a call, a resource or a prompt gave, cut to what a page can show. */
export interface Preview {
  text: string | null;
  html: string | null;
  image: { mime: string; data: string } | null;
  json: Json | undefined;
  links: { uri: string; name: string }[];
  truncated: boolean;
  size: number;
  /** Where the whole value lies in the notebook. */
  variable: string | null;
}

/** What a question is about; the kernel shows and lets answer only what the mode allows. */
export type QuestionKind = "trust" | "login" | "secret" | "approval" | "form" | "sampling";

interface Asked {
  id: string;
  /** Absent where the kernel is older. */
  kind?: QuestionKind;
  server: string;
  title: string;
  message: string;
  /** A card in a cell's output that has it as well, in JupyterLab and Notebook 7. */
  card?: string;
}

export interface WantedCall {
  server: string;
  tool: string;
  arguments: JsonObject;
  caller: "user" | "model" | "app" | "server";
  why: string;
  hints: string;
  /** Python that would run here, if that is what the call does: shown whole. */
  code?: string;
}

export type ApprovalAnswer = "once" | "answer" | "server" | "notebook" | "always" | "never" | "no";

export interface TrustCandidate {
  name: string;
  lines: string[];
  dangers: string[];
  secrets: string[];
}

export interface ApproveQuestion extends Asked {
  type: "approve";
  calls: WantedCall[];
  answers: ApprovalAnswer[];
}
export interface TrustQuestion extends Asked {
  type: "trust";
  candidates: TrustCandidate[];
}
export interface FillQuestion extends Asked {
  type: "fill";
  schema: JsonObject;
}
export interface VisitQuestion extends Asked {
  type: "visit";
  url: string;
  domain: string;
}
export interface WaitQuestion extends Asked {
  type: "wait";
}
export type Question = ApproveQuestion | TrustQuestion | FillQuestion | VisitQuestion | WaitQuestion;

export interface State {
  servers: { [name: string]: Server };
  calls: { [id: string]: Call };
  questions: { [id: string]: Question };
}

export interface LogLine {
  n: number;
  time: number;
  level: string;
  source: "stderr" | "server" | "host";
  text: string;
}

export interface Resource {
  uri: string;
  name: string;
  title?: string | null;
  description?: string | null;
  mime?: string | null;
  size?: number | null;
}

/** Addresses with variables, RFC 6570. */
export interface ResourceTemplate {
  template: string;
  /** Absent where the kernel is older. */
  parameters?: { name: string; required: boolean }[];
  name: string;
  title?: string | null;
  description?: string | null;
}

export interface Prompt {
  name: string;
  title?: string | null;
  description?: string | null;
  arguments: { name: string; description?: string | null; required?: boolean }[];
}

/** A call that is over. `error` is empty where it succeeded. */
export interface HistoryRow {
  id: number;
  outcome: "succeeded" | "failed" | "cancelled";
  time: number;
  duration: number;
  caller: string;
  server: string;
  tool: string;
  sent: number;
  received: number;
  error: string;
}

/** A server that could be loaded. */
export interface KnownServer {
  name: string;
  source: string;
  where?: string | null;
}

export interface ArgumentError {
  path: (string | number)[];
  message: string;
}

interface OfServer {
  server: string;
}
interface OfTool extends OfServer {
  tool: string;
}
interface WithArguments extends OfTool {
  arguments: JsonObject;
}

/** Every intent: its fields, and the value of its reply. */
export interface Verbs {
  start: [OfServer, unknown];
  stop: [OfServer, unknown];
  restart: [OfServer, unknown];
  unload: [OfServer, unknown];
  start_all: [object, unknown];
  stop_all: [object, unknown];
  enable: [OfServer & { tool?: string }, unknown];
  disable: [OfServer & { tool?: string }, unknown];
  trust: [OfServer, unknown];
  login: [OfServer, unknown];
  load: [{ what: string[] }, unknown];
  known: [object, KnownServer[]];
  tools: [{ server?: string }, Tool[]];
  tool: [OfTool, Tool];
  validate: [WithArguments, { errors: ArgumentError[] }];
  call: [WithArguments, { call: number }];
  cancel: [{ call: number }, unknown];
  code: [WithArguments & { form: "python" | "magic" }, { text: string }];
  resources: [OfServer, { resources: Resource[]; templates: ResourceTemplate[] }];
  read: [OfServer & ({ uri: string } | { template: string; arguments: JsonObject }), Preview];
  prompts: [OfServer, Prompt[]];
  prompt: [OfServer & { prompt: string; arguments: { [name: string]: string } }, Preview];
  logs: [OfServer & { on: boolean; since?: number }, unknown];
  history: [{ server?: string; tool?: string; failed?: boolean; limit?: number }, HistoryRow[]];
  memory: [OfServer, { bytes: number; processes: number }];
  answer: [Answer, unknown];
}
export type Verb = keyof Verbs;

export type Answer =
  | { question: string; action: "accept" | "decline" | "cancel"; content?: JsonObject }
  | { question: string; answer: ApprovalAnswer }
  | { question: string; servers: string[]; secrets: [string, string][] };

export interface ViewHello {
  kind: "hello";
  version: number;
  client: "cell" | "sidebar";
  wants: ("servers" | "calls" | "questions")[];
  /** For a card of one server. */
  server?: string;
  /** Where the page's Jupyter server takes the answers to logins. */
  callback?: string;
  /** Whether it speaks by the control channel while the kernel is busy. */
  control?: boolean;
}
/** The view is closed. It may say hello again. */
export interface Bye {
  kind: "bye";
}
/** It has read so many bytes of what was sent. */
export interface Read {
  kind: "read";
  sent: number;
}
export type Intent = { [V in Verb]: { kind: "intent"; id: number; do: V } & Verbs[V][0] }[Verb];
export type ToKernel = ViewHello | Intent | Bye | Read;

export interface KernelHello {
  kind: "hello";
  version: number;
  ipymcp: string;
  mode: Mode;
  namespace: string;
  kernel: string;
  /** Whether the person at the page is a stranger to the notebook, who is shown nothing of its machine. */
  visitor?: boolean;
  /** Whether views may speak by the control channel, which a cell does not block. */
  control?: boolean;
}
export interface Snapshot {
  kind: "snapshot";
  seq: number;
  state: State;
}
export interface Patch {
  kind: "patch";
  seq: number;
  set: { [Part in keyof State]?: { [key: string]: State[Part][string] | null } };
}
export type Reply =
  { kind: "reply"; id: number; ok: true; value?: unknown } | { kind: "reply"; id: number; ok: false; error: Problem };
export type Result =
  | { kind: "result"; call: number; ok: true; preview: Preview }
  | { kind: "result"; call: number; ok: false; error: Problem };
export interface LogBatch {
  kind: "log";
  server: string;
  lines: LogLine[];
  dropped: number;
}
/** Calls are over that the view has not heard of: so many were, in all. */
export interface HistoryNews {
  kind: "history";
  over: number;
}
/** So many bytes were sent until here, over what does not push back: to be answered by `read`. */
export interface Mark {
  kind: "mark";
  sent: number;
}
export type FromKernel = KernelHello | Snapshot | Patch | Reply | Result | LogBatch | HistoryNews | Mark;

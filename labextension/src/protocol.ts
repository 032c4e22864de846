/** The messages between a panel and the kernel, version 1. Both sides ignore unknown kinds and fields. */

export const VERSION = 1;

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type Mode = "full" | "run" | "view";

export type ServerState =
  "disabled" | "stopped" | "starting" | "ready" | "restarting" | "error" | "needs_trust" | "needs_auth" | "unreachable";

/** An error and how to fix it. */
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
  /** Changes with the server's tools or their policy. Absent in older kernels. */
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

/** A running call. */
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

/** A tool. Only the `tool` intent includes the schemas. */
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

/** The result of a call, a resource or a prompt, truncated for display. */
export interface Preview {
  text: string | null;
  html: string | null;
  image: { mime: string; data: string } | null;
  json: Json | undefined;
  links: { uri: string; name: string }[];
  truncated: boolean;
  size: number;
  /** The notebook variable that holds the full value. */
  variable: string | null;
}

/** The subject of a question. The kernel sends only those that the mode allows. */
export type QuestionKind = "trust" | "login" | "secret" | "approval" | "form" | "sampling";

interface QuestionBase {
  id: string;
  /** Absent in older kernels. */
  kind?: QuestionKind;
  server: string;
  title: string;
  message: string;
  /** The card in a cell's output that shows the question too, in JupyterLab and Notebook 7. */
  card?: string;
}

export interface WantedCall {
  server: string;
  tool: string;
  arguments: JsonObject;
  caller: "user" | "model" | "app" | "server";
  why: string;
  hints: string;
  /** The Python code that the call would run, shown in full. */
  code?: string;
}

export type ApprovalAnswer = "once" | "answer" | "server" | "notebook" | "always" | "never" | "no";

export interface TrustCandidate {
  name: string;
  lines: string[];
  dangers: string[];
  secrets: string[];
}

export interface ApproveQuestion extends QuestionBase {
  type: "approve";
  calls: WantedCall[];
  answers: ApprovalAnswer[];
}
export interface TrustQuestion extends QuestionBase {
  type: "trust";
  candidates: TrustCandidate[];
}
export interface FillQuestion extends QuestionBase {
  type: "fill";
  schema: JsonObject;
}
export interface VisitQuestion extends QuestionBase {
  type: "visit";
  url: string;
  domain: string;
}
export interface WaitQuestion extends QuestionBase {
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

/** A URI template (RFC 6570). */
export interface ResourceTemplate {
  template: string;
  /** Absent in older kernels. */
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

/** A finished call. `error` is empty if it succeeded. */
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

/** A configured server that is not loaded. */
export interface KnownServer {
  name: string;
  source: string;
  where?: string | null;
}

export interface ArgumentError {
  path: (string | number)[];
  message: string;
}

interface ServerFields {
  server: string;
}
interface ToolFields extends ServerFields {
  tool: string;
}
interface CallFields extends ToolFields {
  arguments: JsonObject;
}

/** The intents: their fields and the value of their replies. */
export interface Verbs {
  start: [ServerFields, unknown];
  stop: [ServerFields, unknown];
  restart: [ServerFields, unknown];
  unload: [ServerFields, unknown];
  start_all: [object, unknown];
  stop_all: [object, unknown];
  enable: [ServerFields & { tool?: string }, unknown];
  disable: [ServerFields & { tool?: string }, unknown];
  trust: [ServerFields, unknown];
  login: [ServerFields, unknown];
  load: [{ what: string[] }, unknown];
  known: [object, KnownServer[]];
  tools: [{ server?: string }, Tool[]];
  tool: [ToolFields, Tool];
  validate: [CallFields, { errors: ArgumentError[] }];
  call: [CallFields, { call: number }];
  cancel: [{ call: number }, unknown];
  code: [CallFields & { form: "python" | "magic" }, { text: string }];
  resources: [ServerFields, { resources: Resource[]; templates: ResourceTemplate[] }];
  read: [ServerFields & ({ uri: string } | { template: string; arguments: JsonObject }), Preview];
  prompts: [ServerFields, Prompt[]];
  prompt: [ServerFields & { prompt: string; arguments: { [name: string]: string } }, Preview];
  logs: [ServerFields & { on: boolean; since?: number }, unknown];
  history: [{ server?: string; tool?: string; failed?: boolean; limit?: number }, HistoryRow[]];
  memory: [ServerFields, { bytes: number; processes: number }];
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
  /** The server, for a server card. */
  server?: string;
  /** The OAuth redirect URL of the page's Jupyter server. */
  callback?: string;
  /** Whether the panel uses the control channel while the kernel is busy. */
  control?: boolean;
}
/** The panel was closed. It may send hello again. */
export interface Bye {
  kind: "bye";
}
/** Acknowledges the number of bytes read. */
export interface Acknowledgement {
  kind: "read";
  sent: number;
}
export type Intent = { [V in Verb]: { kind: "intent"; id: number; do: V } & Verbs[V][0] }[Verb];
export type ToKernel = ViewHello | Intent | Bye | Acknowledgement;

export interface KernelHello {
  kind: "hello";
  version: number;
  ipymcp: string;
  mode: Mode;
  namespace: string;
  kernel: string;
  /** Whether the user is a visitor, who sees no details of the machine. */
  visitor?: boolean;
  /** Whether panels may use the control channel, which running cells do not block. */
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
/** Reports the total number of finished calls. */
export interface HistoryUpdate {
  kind: "history";
  over: number;
}
/** Reports the number of bytes sent over a channel without backpressure; the panel replies with `read`. */
export interface Mark {
  kind: "mark";
  sent: number;
}
export type FromKernel = KernelHello | Snapshot | Patch | Reply | Result | LogBatch | HistoryUpdate | Mark;

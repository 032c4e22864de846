/** A transport with nobody at the other end, and a kernel that answers from a table. */

import type {
  FromKernel,
  Intent,
  Json,
  KernelHello,
  Mode,
  QuestionRow,
  ServerRow,
  StateRows,
  ToKernel,
  ToolRow,
  Verb,
  Verbs,
} from "../src/protocol";
import type { ConnectionState, Transport, Unsubscribe } from "../src/transport";

export class FakeTransport implements Transport {
  readonly sent: ToKernel[] = [];
  private readonly messages = new Set<(message: FromKernel) => void>();
  private readonly states = new Set<(connection: ConnectionState) => void>();
  /** Called for each message that is sent. */
  answer: (message: ToKernel) => void = () => undefined;

  constructor(private connection: ConnectionState = { state: "open" }) {}

  send(message: ToKernel): void {
    this.sent.push(message);
    this.answer(message);
  }

  onMessage(listener: (message: FromKernel) => void): Unsubscribe {
    this.messages.add(listener);
    return () => this.messages.delete(listener);
  }

  onState(listener: (connection: ConnectionState) => void): Unsubscribe {
    this.states.add(listener);
    listener(this.connection);
    return () => this.states.delete(listener);
  }

  /** The kernel says something. */
  say(message: FromKernel): void {
    for (const listener of [...this.messages]) listener(message);
  }

  become(connection: ConnectionState): void {
    this.connection = connection;
    for (const listener of [...this.states]) listener(connection);
  }

  get listeners(): number {
    return this.messages.size + this.states.size;
  }
}

export type Answers = { [V in Verb]?: (fields: Verbs[V][0]) => Verbs[V][1] | Promise<Verbs[V][1]> };

export class Refusal extends Error {
  constructor(
    message: string,
    readonly hint: string | null = null,
  ) {
    super(message);
  }
}

/** Says hello, sends its state, and answers each verb it has a function for with what that gives. */
export class FakeKernel {
  readonly transport = new FakeTransport();
  readonly hello: KernelHello;
  readonly intents: Intent[] = [];
  private seq = 0;

  constructor(
    public state: StateRows,
    readonly answers: Answers = {},
    given: Partial<KernelHello> & { mode?: Mode } = {},
  ) {
    this.hello = {
      kind: "hello",
      version: 1,
      ipymcp: "0.1.0",
      mode: "full",
      namespace: "mcp",
      kernel: "one",
      ...given,
    };
    this.transport.answer = (message) => {
      if (message.kind === "intent") this.intents.push(message);
      queueMicrotask(() => this.heard(message));
    };
  }

  patch(set: { [Part in keyof StateRows]?: { [key: string]: StateRows[Part][string] | null } }): void {
    this.transport.say({ kind: "patch", seq: ++this.seq, set });
  }

  /** Patches get lost on the way. */
  lose(count = 1): void {
    this.seq += count;
  }

  asked<V extends Verb>(verb: V): (Verbs[V][0] & { id: number })[] {
    return this.intents.filter((intent) => intent.do === verb) as unknown as (Verbs[V][0] & { id: number })[];
  }

  private heard(message: ToKernel): void {
    if (message.kind === "hello") {
      this.transport.say(this.hello);
      this.transport.say({ kind: "snapshot", seq: this.seq, state: this.state });
      return;
    }
    if (message.kind === "intent") void this.reply(message);
  }

  private async reply(intent: Intent): Promise<void> {
    const { kind: _kind, id, do: verb, ...fields } = intent;
    const answer = this.answers[verb] as ((fields: object) => Json) | undefined;
    try {
      const value = answer ? await answer(fields) : null;
      this.transport.say({ kind: "reply", id, ok: true, value });
    } catch (error) {
      const { message, hint = null } = error as Refusal;
      this.transport.say({ kind: "reply", id, ok: false, error: { message, hint, type: "PolicyError" } });
    }
  }
}

export function server(name: string, given: Partial<ServerRow> = {}): ServerRow {
  return {
    name,
    alias: name,
    state: "ready",
    lazy: false,
    transport: "stdio",
    protocol: "2026-07-28",
    version: "1.4.0",
    where: `uvx mcp-server-${name}`,
    source: "mcp.json",
    own: false,
    since: 1_790_000_000,
    pid: 4711,
    calls: 3,
    tools: 5,
    resources: null,
    prompts: null,
    disabled_tools: 0,
    tools_version: 1,
    error: null,
    missing: null,
    starting: null,
    instructions: null,
    capabilities: ["tools"],
    ...given,
  };
}

export function tool(of: string, name: string, given: Partial<ToolRow> = {}): ToolRow {
  return {
    server: of,
    name,
    alias: name,
    title: null,
    description: null,
    badges: [],
    decision: "allow",
    disabled: false,
    changed: false,
    findings: [],
    ...given,
  };
}

export function stateOf(servers: ServerRow[] = [], questions: QuestionRow[] = []): StateRows {
  return {
    servers: Object.fromEntries(servers.map((each) => [each.name, each])),
    calls: {},
    questions: Object.fromEntries(questions.map((each) => [each.id, each])),
  };
}

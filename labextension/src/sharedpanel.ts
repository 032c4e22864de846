/** Panels that share the connection of another panel. */

import type { LogBuffer } from "./logbuffer";
import type { Panel, Scope } from "./panelmodel";
import type { State, Verb, Verbs } from "./protocol";
import { INITIAL_STATE, Store, withView, withNotice } from "./store";
import type { PanelState, ViewName } from "./store";
import type { Unsubscribe } from "./transport";

/** A panel that shares another's connection and state but has its own navigation and notices. */
export class SharedPanel implements Panel {
  readonly store = new Store<PanelState>(INITIAL_STATE);
  private readonly unsubscribe: Unsubscribe;
  private lastState: State = INITIAL_STATE;

  constructor(
    private readonly main: Panel,
    readonly scope: Scope,
  ) {
    this.update();
    this.unsubscribe = main.store.subscribe(() => this.update());
  }

  request<V extends Verb>(verb: V, fields: Verbs[V][0]): Promise<Verbs[V][1]> {
    return this.main.request(verb, fields);
  }

  notify(text: string, bad = false): void {
    this.store.set(withNotice(this.store.get(), text, bad));
  }

  show(view: ViewName, server?: string): void {
    this.store.set(withView(this.store.get(), view, server));
  }

  logs(server: string): LogBuffer {
    return this.main.logs(server);
  }

  watchLogs(server: string, listener: () => void): Unsubscribe {
    return this.main.watchLogs(server, listener);
  }

  close(): void {
    this.unsubscribe();
  }

  private update(): void {
    const { navigation: _looking, notice: _notice, ...shared } = this.main.store.get();
    const { server, card } = this.scope;
    const ofServer = server === undefined ? {} : this.forServer(shared, server);
    const ofCard = card === undefined ? {} : { questions: filterValues(shared.questions, (one) => one.card === card) };
    this.lastState = shared;
    this.store.set({ ...shared, ...ofServer, ...ofCard });
  }

  /** Filter the state by server. Unchanged parts keep their identity. */
  private forServer(now: State, server: string): State {
    const { lastState } = this;
    const before = this.store.get();
    return {
      servers:
        now.servers === lastState.servers ? before.servers : filterValues(now.servers, ({ name }) => name === server),
      calls: now.calls === lastState.calls ? before.calls : filterValues(now.calls, (call) => call.server === server),
      questions:
        now.questions === lastState.questions
          ? before.questions
          : filterValues(now.questions, (one) => one.server === server),
    };
  }
}

function filterValues<T>(rows: { [key: string]: T }, isOwn: (row: T) => boolean): { [key: string]: T } {
  return Object.fromEntries(Object.entries(rows).filter(([, row]) => isOwn(row)));
}

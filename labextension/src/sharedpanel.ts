/** Panels that share the connection of another panel. */

import type { RowBuffer, StreamName, Streams } from "./rowbuffer";
import type { Panel, Scope } from "./panelmodel";
import type { StateRows, Verb, Verbs } from "./protocol";
import { INITIAL_STATE, Store, cardOf, withView, withNotice } from "./store";
import type { PanelState, Target, ViewName } from "./store";
import type { Unsubscribe } from "./transport";

/** A panel that shares another's connection and state but has its own navigation and notices. */
export class SharedPanel implements Panel {
  readonly store = new Store<PanelState>(INITIAL_STATE);
  readonly #unsubscribe: Unsubscribe;
  #lastState: StateRows = INITIAL_STATE;

  constructor(
    private readonly main: Panel,
    readonly scope: Scope,
  ) {
    this.#update();
    this.#unsubscribe = main.store.subscribe(() => this.#update());
  }

  request<V extends Verb>(verb: V, fields: Verbs[V][0]): Promise<Verbs[V][1]> {
    return this.main.request(verb, fields);
  }

  notify(text: string, bad = false): void {
    this.store.set(withNotice(this.store.get(), text, bad));
  }

  show(view: ViewName, target: Target = {}): void {
    this.store.set(withView(this.store.get(), view, target));
  }

  rows<Name extends StreamName>(name: Name, server: string): RowBuffer<Streams[Name]> {
    return this.main.rows(name, server);
  }

  follow(name: StreamName, server: string, listener: () => void): Unsubscribe {
    return this.main.follow(name, server, listener);
  }

  close(): void {
    this.#unsubscribe();
  }

  #update(): void {
    const {
      navigation: _looking,
      adding: _adding,
      used: _used,
      notice: _notice,
      notebook: _notebook,
      ...shared
    } = this.main.store.get();
    const { server, card } = this.scope;
    const ofServer = server === undefined ? {} : this.#forServer(shared, server);
    const ofCard =
      card === undefined ? {} : { questions: filterValues(shared.questions, (one) => cardOf(one) === card) };
    this.#lastState = shared;
    this.store.set({ ...shared, ...ofServer, ...ofCard });
  }

  /** Filter the state by server. Unchanged parts keep their identity. */
  #forServer(now: StateRows, server: string): StateRows {
    const lastState = this.#lastState;
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

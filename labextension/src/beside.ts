/** Panels that share one conversation with the kernel. */

import type { LogBuffer } from "./logbuffer";
import type { Panel, Scope } from "./panelmodel";
import type { State, Verb, Verbs } from "./protocol";
import { EMPTY, Store, looked, noticed } from "./store";
import type { PanelState, ViewName } from "./store";
import type { Unsubscribe } from "./transport";

/** Another panel beside one: what it looks at, and what is said to it in passing, are its own. */
export class Beside implements Panel {
  readonly store = new Store<PanelState>(EMPTY);
  private readonly leave: Unsubscribe;
  private whole: State = EMPTY;

  constructor(
    private readonly main: Panel,
    readonly scope: Scope,
  ) {
    this.follow();
    this.leave = main.store.subscribe(() => this.follow());
  }

  ask<V extends Verb>(verb: V, fields: Verbs[V][0]): Promise<Verbs[V][1]> {
    return this.main.ask(verb, fields);
  }

  notify(text: string, bad = false): void {
    this.store.set(noticed(this.store.get(), text, bad));
  }

  show(view: ViewName, server?: string): void {
    this.store.set(looked(this.store.get(), view, server));
  }

  logs(server: string): LogBuffer {
    return this.main.logs(server);
  }

  watchLogs(server: string, listener: () => void): Unsubscribe {
    return this.main.watchLogs(server, listener);
  }

  close(): void {
    this.leave();
  }

  private follow(): void {
    const { looking: _looking, notice: _notice, ...shared } = this.main.store.get();
    const { server, card } = this.scope;
    const own = server === undefined ? {} : this.narrowed(shared, server);
    const asked = card === undefined ? {} : { questions: only(shared.questions, (one) => one.card === card) };
    this.whole = shared;
    this.store.set({ ...shared, ...own, ...asked });
  }

  /** A card has its own server's rows. What has not changed stays the same object. */
  private narrowed(now: State, server: string): State {
    const { whole } = this;
    const had = this.store.get();
    return {
      servers: now.servers === whole.servers ? had.servers : only(now.servers, ({ name }) => name === server),
      calls: now.calls === whole.calls ? had.calls : only(now.calls, (call) => call.server === server),
      questions:
        now.questions === whole.questions ? had.questions : only(now.questions, (one) => one.server === server),
    };
  }
}

function only<T>(rows: { [key: string]: T }, isOwn: (row: T) => boolean): { [key: string]: T } {
  return Object.fromEntries(Object.entries(rows).filter(([, row]) => isOwn(row)));
}

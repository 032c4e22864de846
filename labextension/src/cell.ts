/** The panel in a cell: an anywidget whose messages are the panel's. */

import { mount } from "./panel";
import type { Scope } from "./panelmodel";
import type { FromKernel } from "./protocol";
import { pageServices } from "./services";
import type { Connection, Transport } from "./transport";

/** What anywidget gives a view of its model. */
export interface WidgetModel {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: string, listener: (...given: never[]) => void): void;
  off(event: string, listener: (...given: never[]) => void): void;
  /** JupyterLab's and Voilà's know their kernel; others' may not say. */
  widget_manager?: { kernel?: Kernel | null };
}

interface Kernel {
  disposed?: { connect(slot: () => void): unknown; disconnect(slot: () => void): unknown };
}

const GONE: Connection = { state: "closed", reason: "The kernel is gone. Run the cell again for a new panel." };

/** How long after news of the comm it is tried, in milliseconds: a restart disposes of it a little later. */
const SETTLES = 500;

/** The model's comm. A view is told that the comm's life changed, not to what: what is sent over a dead one throws. */
export function commTransport(model: WidgetModel): Transport {
  const listeners = new Set<(connection: Connection) => void>();
  const tell = (connection: Connection): void => {
    for (const listener of [...listeners]) listener(connection);
  };
  return {
    send(message) {
      try {
        model.send(message);
      } catch {
        tell(GONE);
      }
    },
    onMessage(listener) {
      const heard = (message: FromKernel): void => listener(message);
      model.on("msg:custom", heard as never);
      return () => model.off("msg:custom", heard as never);
    },
    onState(listener) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const changed = (): void => {
        listener(GONE);
        clearTimeout(timer);
        timer = setTimeout(() => listener({ state: "open" }), SETTLES);
      };
      // One that is shut down, or exchanged for another, leaves its comms as they were.
      const gone = (): void => listener(GONE);
      const kernel = model.widget_manager?.kernel;
      kernel?.disposed?.connect(gone);
      model.on("comm_live_update", changed);
      listeners.add(listener);
      listener({ state: "open" });
      return () => {
        clearTimeout(timer);
        listeners.delete(listener);
        kernel?.disposed?.disconnect(gone);
        model.off("comm_live_update", changed);
      };
    },
  };
}

/** The views that are open, by model: they share its comm. */
const views = new WeakMap<WidgetModel, number>();

function scopeOf(model: WidgetModel): Scope {
  const server = model.get("server");
  if (model.get("asks") === true) return { client: "cell", wants: ["questions"] };
  return { client: "cell", ...(typeof server === "string" && server !== "" && { server }) };
}

/** Draws a panel, the card of the server that the model names, or what is asked alone. */
export function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const transport = commTransport(model);
  const leave = mount(el, transport, pageServices, scopeOf(model));
  views.set(model, (views.get(model) ?? 0) + 1);
  return () => {
    leave();
    const left = (views.get(model) ?? 1) - 1;
    views.set(model, left);
    if (left === 0) transport.send({ kind: "bye" });
  };
}

export default { render };

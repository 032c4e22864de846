/** The panel as an anywidget in a cell's output. */

import { parseApp } from "./app/options";
import { AppView } from "./app/view";
import type { AppOptions } from "./app/options";
import { draw, mount } from "./panel";
import { PanelModel } from "./panelmodel";
import type { Panel, Scope } from "./panelmodel";
import type { FromKernel } from "./protocol";
import { pageServices } from "./services";
import { trans } from "./translation";
import type { ConnectionState, Transport } from "./transport";

/** The part of anywidget's model interface that the panel uses. */
export interface WidgetModel {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: string, listener: (...given: never[]) => void): void;
  off(event: string, listener: (...given: never[]) => void): void;
  /** JupyterLab's and Voilà's managers expose the kernel; others may not. */
  widget_manager?: { kernel?: Kernel | null };
}

interface Kernel {
  disposed?: { connect(slot: () => void): unknown; disconnect(slot: () => void): unknown };
}

const kernelGone = (): ConnectionState => ({
  state: "closed",
  reason: trans.__("The kernel is gone. Run the cell again for a new panel."),
});

/** Milliseconds from a comm change to a reconnection attempt, because a restart disposes of the comm a little later. */
const RECONNECT_DELAY = 500;

/** A transport over the model's comm. A change event does not tell whether the comm is open; sending on a closed one throws. */
export function commTransport(model: WidgetModel): Transport {
  const listeners = new Set<(connection: ConnectionState) => void>();
  const setState = (connection: ConnectionState): void => {
    for (const listener of [...listeners]) listener(connection);
  };
  return {
    send(message) {
      try {
        model.send(message);
      } catch {
        setState(kernelGone());
      }
    },
    onMessage(listener) {
      const receive = (message: FromKernel): void => listener(message);
      model.on("msg:custom", receive as never);
      return () => model.off("msg:custom", receive as never);
    },
    onState(listener) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const changed = (): void => {
        listener(kernelGone());
        clearTimeout(timer);
        timer = setTimeout(() => listener({ state: "open" }), RECONNECT_DELAY);
      };
      // A kernel that is shut down or replaced does not close its comms.
      const gone = (): void => listener(kernelGone());
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

function mountApp(element: HTMLElement, transport: Transport, options: AppOptions): () => void {
  const panel = new PanelModel(transport, { client: "cell", wants: ["servers", "questions"] });
  const drawQuestions = (parent: HTMLElement, shared: Panel): (() => void) => draw(parent, shared, pageServices);
  const view = new AppView(element, panel, { ...pageServices, drawQuestions }, options);
  return () => {
    view.dispose();
    panel.close();
  };
}

/** The number of open views by model. All views of a model share its comm. */
const views = new WeakMap<WidgetModel, number>();

function scopeOf(model: WidgetModel): Scope {
  const server = model.get("server");
  if (model.get("asks") === true) return { client: "cell", wants: ["questions"] };
  return { client: "cell", ...(typeof server === "string" && server !== "" && { server }) };
}

/** Render the panel, a server card, a question form or an app, according to the model's traits. */
export function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const transport = commTransport(model);
  const app = parseApp(model.get("app"));
  const unmount = app ? mountApp(el, transport, app) : mount(el, transport, pageServices, scopeOf(model));
  views.set(model, (views.get(model) ?? 0) + 1);
  return () => {
    unmount();
    const remaining = (views.get(model) ?? 1) - 1;
    views.set(model, remaining);
    if (remaining === 0) transport.send({ kind: "bye" });
  };
}

export default { render };

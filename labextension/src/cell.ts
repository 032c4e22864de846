/** The panel in a cell: an anywidget whose messages are the panel's. */

import { mount } from "./panel";
import type { FromKernel } from "./protocol";
import { pageServices } from "./services";
import type { Connection, Transport } from "./transport";

/** What anywidget gives a view of its model. */
export interface WidgetModel {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: string, listener: (...given: never[]) => void): void;
  off(event: string, listener: (...given: never[]) => void): void;
  /** Whether a kernel is at the other end, where the widget manager says. */
  comm_live?: boolean;
}

const GONE: Connection = { state: "closed", reason: "The kernel is gone. Run the cell again for a new panel." };

export function commTransport(model: WidgetModel): Transport {
  const live = (): Connection => (model.comm_live === false ? GONE : { state: "open" });
  return {
    send: (message) => model.send(message),
    onMessage(listener) {
      const heard = (message: FromKernel): void => listener(message);
      model.on("msg:custom", heard as never);
      return () => model.off("msg:custom", heard as never);
    },
    onState(listener) {
      const changed = (): void => listener(live());
      model.on("comm_live_update", changed);
      changed();
      return () => model.off("comm_live_update", changed);
    },
  };
}

/** Draws a panel, or the card of the server that the model names. */
export function render({ model, el }: { model: WidgetModel; el: HTMLElement }): () => void {
  const server = model.get("server");
  const scope = { client: "cell" as const, ...(typeof server === "string" && server !== "" && { server }) };
  return mount(el, commTransport(model), pageServices, scope);
}

export default { render };

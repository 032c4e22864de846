import type { ComponentChild } from "preact";
import { h, render } from "preact";
import { PanelModel } from "./panelmodel";
import type { Panel, Scope } from "./panelmodel";
import { createRoot } from "./root";
import type { Services } from "./services";
import { pageServices } from "./services";
import type { Transport } from "./transport";
import { PanelContext } from "./views/context";
import { Asking, Card, Shell } from "./views/shell";

/** Draw a panel into an element.
 *
 * @returns What takes it out again.
 */
export function mount(
  element: HTMLElement,
  transport: Transport,
  services: Services = pageServices,
  scope: Scope = { client: "cell" },
): () => void {
  const model = new PanelModel(transport, scope);
  const leave = draw(element, model, services);
  return () => {
    leave();
    model.close();
  };
}

/** Draw a panel whose conversation goes on without it: a status bar may show it too.
 *
 * @returns What takes it out again.
 */
export function draw(element: HTMLElement, model: Panel, services: Services): () => void {
  const { scope } = model;
  const { element: root, remove } = createRoot(element, scope.client);
  // Lumino keeps its shortcuts to itself here: "a" typed into a field must not add a cell.
  root.dataset["lmSuppressShortcuts"] = "true";
  render(h(PanelContext.Provider, { value: { model, services }, children: viewOf(scope) }), root);
  return remove;
}

function viewOf({ server, wants }: Scope): ComponentChild {
  if (server !== undefined) return h(Card, { name: server });
  return wants?.join() === "questions" ? h(Asking, null) : h(Shell, null);
}

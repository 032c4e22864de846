import type { ComponentChild } from "preact";
import { h, render } from "preact";
import { PanelModel } from "./panelmodel";
import type { Panel, Scope } from "./panelmodel";
import { createRoot } from "./root";
import type { Services } from "./services";
import { pageServices } from "./services";
import type { Transport } from "./transport";
import { PanelContext } from "./views/context";
import { CellForm, Card, Shell } from "./views/shell";

/** Mount a panel with its own model.
 *
 * @returns A function that unmounts it.
 */
export function mount(
  element: HTMLElement,
  transport: Transport,
  services: Services = pageServices,
  scope: Scope = { client: "cell" },
): () => void {
  const model = new PanelModel(transport, scope);
  const unmount = draw(element, model, services);
  return () => {
    unmount();
    model.close();
  };
}

/** Mount a panel for an existing model, which outlives it.
 *
 * @returns A function that unmounts it.
 */
export function draw(element: HTMLElement, model: Panel, services: Services): () => void {
  const { scope } = model;
  const { element: root, remove } = createRoot(element, scope.client);
  // Suppress Lumino's shortcuts, so that typing "a" into a field does not add a cell. The selectors of the panel's own
  // shortcuts match an element inside of this one.
  root.dataset["lmSuppressShortcuts"] = "true";
  render(h(PanelContext.Provider, { value: { model, services }, children: viewOf(scope) }), root);
  return remove;
}

function viewOf({ server, wants }: Scope): ComponentChild {
  if (server !== undefined) return h(Card, { name: server });
  return wants?.join() === "questions" ? h(CellForm, null) : h(Shell, null);
}

import { render } from "preact";
import css from "./styles/panel.css?inline";

export interface Root {
  element: HTMLElement;
  /** Unmount and remove it. */
  remove(): void;
}

/** Append a styled element for Preact to render into. */
export function createRoot(parent: HTMLElement, client: "cell" | "sidebar"): Root {
  const element = document.createElement("div");
  element.className = `ipymcp ipymcp-${client}`;
  const style = document.createElement("style");
  style.textContent = css;
  parent.append(style, element);
  return {
    element,
    remove: () => {
      render(null, element);
      element.remove();
      style.remove();
    },
  };
}

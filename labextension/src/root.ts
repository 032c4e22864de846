import { render } from "preact";
import css from "./styles/panel.css?inline";

export interface Root {
  element: HTMLElement;
  /** Unmount and remove it. */
  remove(): void;
}

let isPageStyled = false;

/** Style all panels of the page at once. Each added style sheet makes the browser index those of the whole page again. */
export function stylePage(): void {
  if (!isPageStyled) document.head.append(createStyle());
  isPageStyled = true;
}

function createStyle(): HTMLStyleElement {
  const style = document.createElement("style");
  style.textContent = css;
  return style;
}

/** Append an element for Preact to render into, with its styles unless the page has them. */
export function createRoot(parent: HTMLElement, client: "cell" | "sidebar"): Root {
  const element = document.createElement("div");
  element.className = `ipymcp ipymcp-${client}`;
  const style = isPageStyled ? null : createStyle();
  parent.append(...(style ? [style] : []), element);
  return {
    element,
    remove: () => {
      render(null, element);
      element.remove();
      style?.remove();
    },
  };
}

import type { BoundFunctions, queries } from "@testing-library/preact";
import { fireEvent, waitFor, within } from "@testing-library/preact";
import { afterEach } from "vitest";
import { mount } from "../src/panel";
import type { Scope } from "../src/panelmodel";
import type { Services } from "../src/services";
import type { FakeKernel } from "./fake";

export interface Screen {
  root: HTMLElement;
  see: BoundFunctions<typeof queries>;
  inserted: string[];
  copied: string[];
  opened: string[];
  unmount(): void;
  click(name: string | RegExp): void;
  tab(name: string): void;
  /** Choose an item of a menu, once the menu's button is there. */
  menu(name: string | RegExp, item: string): Promise<void>;
  /** Show the tools, resources or prompts. */
  list(kind: string): void;
  /** The names of the tools in the list, with the server in front. */
  tools(): string[];
  /** The text of what is said in passing. */
  notice(): string;
}

const open: Screen[] = [];

/** The panel before a kernel, once its first snapshot is drawn. */
export async function show(kernel: FakeKernel, scope?: Scope): Promise<Screen> {
  const element = document.body.appendChild(document.createElement("div"));
  const inserted: string[] = [];
  const copied: string[] = [];
  const opened: string[] = [];
  const services: Services = {
    insertCode: async (text) => {
      inserted.push(text);
      return "inserted";
    },
    copy: async (text) => void copied.push(text),
    renderMarkdown: async (text) =>
      `<h2>${text.slice(2)}<a href="#x">\u00b6</a></h2><img src="https://far.example/x" onerror="alert(1)">`,
    openExternal: (url) => void opened.push(url),
  };
  const unmount = mount(element, kernel.transport, services, scope);
  const root = element.querySelector<HTMLElement>(".ipymcp") ?? element;
  const see = within(root);
  const screen: Screen = {
    root,
    see,
    inserted,
    copied,
    opened,
    unmount: () => {
      unmount();
      element.remove();
    },
    click: (name) => void fireEvent.click(see.getByRole("button", { name })),
    tab: (name) => void fireEvent.click(see.getByRole("tab", { name: new RegExp(`^${name}`) })),
    menu: async (name, item) => {
      fireEvent.click(await see.findByRole("button", { name }));
      fireEvent.click(await see.findByRole("menuitem", { name: item }));
    },
    list: (kind) => {
      screen.tab("Tools");
      const group = see.getAllByRole("group", { name: "What to list" }).find((each) => !each.closest("[hidden]"));
      if (group) fireEvent.click(within(group).getByRole("button", { name: kind }));
    },
    tools: () => toolsIn(root),
    notice: () => root.querySelector(".mcp-notice .mcp-prose")?.textContent ?? "",
  };
  open.push(screen);
  await waitFor(() => {
    if (!root.querySelector(".mcp-status")) throw new Error("not drawn");
  });
  await new Promise((resolve) => setTimeout(resolve));
  return screen;
}

/** The tools that a panel lists, with their servers. */
export function toolsIn(root: HTMLElement): string[] {
  let server = "";
  return [...root.querySelectorAll("[role=treeitem]")].flatMap((item) => {
    const name = item.querySelector(".mcp-group, .mcp-member > :first-child")?.textContent ?? "";
    if (item.getAttribute("aria-level") === "1") server = name;
    return item.getAttribute("aria-level") === "1" ? [] : [`${server}.${name}`];
  });
}

/** Types into a field, as the browser tells it. */
export function type(field: Element, value: string): void {
  fireEvent.input(field, { target: { value } });
}

export function choose(select: Element, title: string): void {
  const options = [...(select as HTMLSelectElement).options];
  const option = options.find((each) => each.textContent === title);
  if (!option) throw new Error(`no option ${title}: ${options.map((each) => each.textContent).join(", ")}`);
  fireEvent.change(select, { target: { value: option.value } });
}

afterEach(() => {
  for (const screen of open.splice(0)) screen.unmount();
});

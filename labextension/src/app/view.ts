/** An app in a cell's output: its frame, the questions to the user about it, and its display mode. */

import type { Panel } from "../panelmodel";
import type { Services } from "../services";
import { SharedPanel } from "../sharedpanel";
import { problemOf } from "../store";
import css from "../styles/app.css?inline";
import { singleLine, visible } from "../text";
import { trans } from "../translation";
import { problemText } from "../views/context";
import type { AppCall, JsonObject, OpenedApp } from "../protocol";
import type { AppFile } from "./bridge";
import { Bridge } from "./bridge";
import type { DisplayMode } from "./context";
import { MAX_HEIGHT, fixedContext, sizeOf, themeOf } from "./context";
import type { StopReason } from "./frame";
import type { AppOptions } from "./options";
import { AppFrame } from "./frame";

export interface AppServices extends Services {
  /** The URL of the frame's document at the Jupyter server; absent if the server does not have ipymcp's extension. */
  frameUrl?(query: string): string;
  /** Draw the questions about calls of the app. */
  drawQuestions(element: HTMLElement, panel: Panel): () => void;
}

/** Minimum height of a frame in pixels. A page whose content has no height of its own, such as a canvas, keeps it. */
const MIN_HEIGHT = 150;
/** Milliseconds for which a new bar ignores clicks. */
const GUARD_DELAY = 400;
const THEME_DELAY = 100;
const MAX_PAGES = 20;
const MAX_SHOWN = 2000;

/** The HTML of the pages that were received last, by hash. */
const pages = new Map<string, string>();

export class AppView {
  readonly #root = document.createElement("div");
  readonly #head = document.createElement("div");
  readonly #bars = document.createElement("div");
  readonly #questions: SharedPanel;
  readonly #undrawQuestions: () => void;
  readonly #unsubscribe: () => void;
  readonly #observers: { disconnect(): void }[] = [];
  #frame: AppFrame | null = null;
  #bridge: Bridge | null = null;
  #opened: OpenedApp | null = null;
  /** The version of the call that the app knows. */
  #version = 0;
  /** The bridge whose call is followed. */
  #followed: Bridge | null = null;
  #mode: DisplayMode = "inline";
  #question: (() => void) | null = null;
  #blocked = new Set<string>();
  #isDisposed = false;
  /** Identifies this view's page, for the kernel. */
  readonly #page = String(Math.random());

  constructor(
    parent: HTMLElement,
    private readonly panel: Panel,
    readonly services: AppServices,
    private readonly options: AppOptions,
  ) {
    const style = document.createElement("style");
    style.textContent = css;
    this.#root.className = "ipymcp-app";
    this.#root.dataset["lmSuppressShortcuts"] = "true";
    this.#head.className = "ipymcp-app-head";
    this.#head.tabIndex = -1;
    // JupyterLab searches for shortcuts from the focused element outwards.
    this.#head.dataset["lmSuppressShortcuts"] = "true";
    this.#root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.#head.contains(event.target as Node)) this.#escape(this.#head);
    });
    this.#bars.setAttribute("role", "status");
    const asked = document.createElement("div");
    this.#root.append(style, this.#head, asked, this.#bars);
    parent.append(this.#root);
    this.#questions = new SharedPanel(panel as never, {
      client: "cell",
      wants: ["questions"],
      card: `app ${options.app}`,
    });
    this.#undrawQuestions = services.drawQuestions(asked, this.#questions);
    this.#unsubscribe = panel.store.subscribe(() => this.#serversChanged());
    void this.#open();
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    void this.#bridge?.teardown("removed");
    this.#notifyKernel("app_close", { page: this.#page });
    this.#unsubscribe();
    this.#closeFrame();
    this.#undrawQuestions();
    this.#questions.close();
    this.#root.remove();
  }

  // -- opening

  async #open(): Promise<void> {
    const { app } = this.options;
    this.#bars.replaceChildren();
    try {
      const opened = await this.panel.request("app_open", { app, page: this.#page, known: [...pages.keys()] });
      if (this.#isDisposed) return this.#notifyKernel("app_close", { page: this.#page });
      this.#opened = opened;
      this.#drawHead();
      if (opened.asks !== null) return this.#askToOpen(opened);
      const html = opened.html ?? pages.get(opened.hash);
      if (html === undefined) return;
      pages.delete(opened.hash);
      pages.set(opened.hash, html);
      for (const oldest of [...pages.keys()].slice(0, -MAX_PAGES)) pages.delete(oldest);
      this.#show(opened, html);
    } catch (error) {
      this.#showBar(problemText(problemOf(error)), this.#retry(trans.__("Try again")));
    }
  }

  #askToOpen({ asks, domains, permissions, may_agree: mayAgree, hash, server }: OpenedApp): void {
    const name = singleLine(server);
    const needs = [
      ...(domains.length ? [trans.__("It wants to connect to: %1", domains.join(", "))] : []),
      ...(permissions.length ? [trans.__("It wants to use: %1", permissions.join(", "))] : []),
    ];
    const why =
      asks === "changed"
        ? trans.__("The app of %1 has changed since you saw it last.", name)
        : trans.__("This result has an app: a page made by the server %1.", name);
    const text = [why, ...needs].join("\n");
    if (!mayAgree) return this.#showBar(`${text}\n${trans.__("Only the notebook's author can agree to it.")}`, []);
    const agree = (grants: boolean) => (): void => void this.#agree(hash, grants);
    this.#showBar(
      text,
      needs.length
        ? [
            [trans.__("Allow"), agree(true)],
            [trans.__("Show without"), agree(false)],
          ]
        : [[trans.__("Show"), agree(false)]],
    );
  }

  async #agree(hash: string, grants: boolean, allowsEval = false): Promise<void> {
    try {
      await this.panel.request("app_agree", { app: this.options.app, hash, grants, eval: allowsEval });
      await this.#bridge?.teardown("closed");
      this.#closeFrame();
      await this.#open();
    } catch (error) {
      this.#showBar(problemText(problemOf(error)), this.#retry(trans.__("Try again")));
    }
  }

  #show(opened: OpenedApp, html: string): void {
    this.#closeFrame();
    const url = this.services.frameUrl?.(opened.query ?? "") ?? null;
    const title = trans.__("App of %1", singleLine(`${opened.server}.${opened.tool}`));
    const frame = new AppFrame(
      {
        html,
        title,
        allow: opened.allow ?? "",
        frames: new URLSearchParams(opened.query).has("frame"),
        frame: opened.frame ?? "",
        url,
      },
      {
        message: (message) => this.#bridge?.receive(message),
        stopped: (reason) => this.#stopped(reason),
        blocked: (uri, directive) => this.#showBlocked(uri, directive),
        escaped: () => this.#escape(frame.element),
      },
    );
    this.#frame = frame;
    frame.setScheme(themeOf(this.#root).theme);
    frame.element.classList.toggle("ipymcp-app-border", opened.has_border ?? true);
    if (this.options.height !== null) frame.element.style.height = `${this.options.height}px`;
    this.#bridge = new Bridge(this.#host, (message) => frame.send(message), withDefaults(opened, opened.definition));
    this.#version = opened.version ?? 0;
    void this.#follow();
    this.#root.append(frame.element);
    this.#drawHead();
    this.#observe();
  }

  /** Tell the app what becomes of its call, until the call is over. */
  async #follow(): Promise<void> {
    const bridge = this.#bridge;
    if (!bridge || bridge.isOver || this.#followed === bridge) return;
    this.#followed = bridge;
    try {
      while (this.#bridge === bridge && !bridge.isOver) {
        const { app } = this.options;
        const call = await this.panel.request("app_call", { app, page: this.#page, version: this.#version });
        if (call.version === this.#version || this.#bridge !== bridge) return;
        this.#version = call.version ?? 0;
        bridge.update(withDefaults(call, this.#opened?.definition));
      }
    } catch {
      // The connection ended, or the app was closed. `serversChanged` follows again once there is another connection.
      if (this.#followed === bridge) this.#followed = null;
    }
  }

  #isFirst = true;

  #initialized(): void {
    this.#drawHead();
    const { mode } = this.options;
    if (this.#isFirst && this.#bridge?.modes?.includes(mode)) this.#setMode(mode);
    this.#isFirst = false;
  }

  #retry(label: string): [string, () => void][] {
    return [[label, () => void this.#open()]];
  }

  #notifyKernel(verb: "app_leave" | "app_close" | "app_request", fields: object): void {
    this.panel.request(verb, { app: this.options.app, ...fields } as never).catch(() => undefined);
  }

  #closeFrame(): void {
    this.#question?.();
    this.#setMode("inline");
    for (const each of this.#observers.splice(0)) each.disconnect();
    if (this.#frame) this.#notifyKernel("app_leave", { page: this.#page });
    this.#frame?.close();
    this.#frame = this.#bridge = null;
    this.#blocked.clear();
  }

  /** Close the app when its server is unloaded. */
  #serversChanged(): void {
    const { synced, servers } = this.panel.store.get();
    if (synced) void this.#follow();
    if (synced && this.#frame && !Object.hasOwn(servers, this.#opened?.server ?? "")) void this.#close("unloaded");
  }

  readonly #close = async (reason: "closed" | "unloaded" = "closed"): Promise<void> => {
    await this.#bridge?.teardown(reason);
    if (this.#isDisposed || !this.#frame) return;
    this.#closeFrame();
    this.#drawHead();
    this.#notifyKernel("app_close", { page: this.#page });
    this.#showBar(trans.__("The app is closed."), this.#retry(trans.__("Show again")));
  };

  #stopped(reason: StopReason): void {
    const why: { [Reason in StopReason]: string } = {
      rate: trans.__("it sent more than 1,000 messages in a second"),
      noise: trans.__("it sent more than 100 messages in 10 seconds past its frame"),
      size: trans.__("it sent more than 10 MB in a second"),
      depth: trans.__("it sent a message nested more than 100 levels deep"),
      left: trans.__("it tried to leave its page"),
      silent: trans.__("it did not respond for 15 seconds"),
    };
    this.#closeFrame();
    this.#drawHead();
    this.#showBar(trans.__("The app was stopped: %1.", why[reason]), this.#retry(trans.__("Show again")));
    const params = { level: "warning", data: trans.__("stopped: %1", why[reason]) };
    this.#notifyKernel("app_request", { page: this.#page, method: "notifications/message", params });
  }

  // -- requests of the app

  readonly #host = {
    context: () => ({
      ...fixedContext(),
      ...themeOf(this.#root),
      displayMode: this.#mode,
      containerDimensions: this.#size(),
      ...(this.#opened && { toolInfo: { tool: this.#opened.definition ?? {} } }),
    }),
    capabilities: () => ({
      openLinks: {},
      downloadFile: {},
      serverTools: {},
      serverResources: {},
      logging: {},
      message: { text: {} },
      updateModelContext: { text: {}, structuredContent: {} },
      sandbox: { csp: { connectDomains: this.#opened?.connect ?? [], resourceDomains: this.#opened?.resource ?? [] } },
    }),
    request: async (method: string, params: object) => {
      const { app } = this.options;
      const fields = { app, page: this.#page, method, params: params as JsonObject };
      const reply = await this.panel.request("app_request", fields);
      return { result: reply.result, error: reply.error ?? "", code: reply.code ?? 0 };
    },
    resize: (height: number) => this.#resize(height),
    setMode: (mode: DisplayMode) => this.#requestMode(mode),
    openLink: (url: string) =>
      this.#ask(trans.__("The app wants to open %1", url), [[trans.__("Open"), () => this.services.openExternal(url)]]),
    offerMessage: (text: string) =>
      this.#ask(trans.__("The app suggests asking the model:\n%1", clipped(text)), [
        [trans.__("Insert as a cell"), () => void this.services.insertCode(askCell(text))],
      ]),
    download: (files: AppFile[]) =>
      this.#ask(trans.__("The app wants to save %1", files.map(({ name }) => name).join(", ")), [
        [trans.__("Save"), () => files.forEach(save)],
      ]),
    teardown: () => void this.#close(),
    initialized: () => this.#initialized(),
  };

  /** Ask the user; resolves to whether they agreed. One question is open at a time, and others are refused. */
  #ask(text: string, answers: [string, () => void][]): Promise<boolean> {
    if (this.#question) return Promise.resolve(false);
    return new Promise((resolve) => {
      const finish = (isAgreed: boolean): void => {
        this.#question = null;
        bar.remove();
        resolve(isAgreed);
      };
      const accepting = answers.map(([label, act]): [string, () => void] => [
        label,
        () => {
          act();
          finish(true);
        },
      ]);
      const bar = this.#addBar(text, [...accepting, [trans.__("No"), () => finish(false)]]);
      this.#question = () => finish(false);
    });
  }

  #showBlocked(uri: string, directive: string): void {
    if (this.#blocked.has(uri) || this.#blocked.size >= 4) return;
    this.#blocked.add(uri);
    // Many libraries only test whether eval is allowed, so this is not worth a warning.
    if (uri === "eval" || uri === "wasm-eval") return this.#drawHead();
    this.#addBar(trans.__("Blocked, since the app did not declare it: %1 (%2)", visible(uri), directive), [], true);
  }

  // -- size, mode and theme

  #size(): { [key: string]: number } {
    const { options } = this;
    const [frame, mode] = [this.#frame, this.#mode];
    return sizeOf(mode, frame?.element ?? this.#root, options.height);
  }

  #resize(height: number): void {
    if (this.options.height !== null || !this.#frame) return;
    const { element } = this.#frame;
    const border = element.offsetHeight - element.clientHeight;
    element.style.height = `${Math.min(MAX_HEIGHT, Math.max(MIN_HEIGHT, Math.ceil(height) + border))}px`;
  }

  /** Change the mode at the app's request: only right after a user action, because the app may then cover the page. */
  #requestMode(mode: DisplayMode): DisplayMode {
    const isWanted = mode === "inline" || navigator.userActivation.isActive;
    if (isWanted && this.#bridge?.modes?.includes(mode)) this.#setMode(mode);
    return this.#mode;
  }

  #setMode(mode: DisplayMode): void {
    if (mode === this.#mode) return;
    this.#mode = mode;
    const root = this.#root;
    root.classList.toggle("ipymcp-app-pip", mode === "pip");
    if (mode === "inline") root.removeAttribute("popover");
    else if (!root.hasAttribute("popover")) {
      root.setAttribute("popover", "manual");
      root.showPopover();
    }
    this.#drawHead();
    this.#bridge?.contextChanged({ displayMode: mode, containerDimensions: this.#size() });
  }

  /** Move the focus from the app to the line above it, and from there to the cell. An app that falsely reports Escape must not
   * direct the user's keys to the notebook. */
  #escape(from: HTMLElement): void {
    if (this.#mode !== "inline") this.#setMode("inline");
    else if (from === this.#head) this.#root.parentElement?.closest<HTMLElement>("[tabindex]")?.focus();
    if (from !== this.#head && document.activeElement === from) this.#head.focus();
  }

  #observe(): void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = (): void => {
      const theme = themeOf(this.#root);
      this.#frame?.setScheme(theme.theme);
      this.#bridge?.contextChanged(theme);
    };
    const themed = new MutationObserver(() => {
      clearTimeout(timer);
      timer = setTimeout(changed, THEME_DELAY);
    });
    themed.observe(document.body, { attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    let width = this.#root.clientWidth;
    const resized = new ResizeObserver(() => {
      if (this.#root.clientWidth === width && this.#mode === "inline") return;
      width = this.#root.clientWidth;
      this.#bridge?.contextChanged({ containerDimensions: this.#size() });
    });
    resized.observe(this.#root);
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", changed);
    this.#observers.push(themed, resized, { disconnect: () => dark.removeEventListener("change", changed) });
  }

  // -- title line and bars

  #drawHead(): void {
    const [opened, head] = [this.#opened, this.#head];
    const name = document.createElement("span");
    name.textContent = opened ? singleLine(`${opened.server} · ${opened.title}`) : "";
    const buttons: HTMLElement[] = [];
    if (this.#frame) {
      const modes = this.#bridge?.modes ?? [];
      if (this.#mode !== "inline") {
        buttons.push(button(trans.__("Back to the notebook"), () => this.#setMode("inline")));
      } else {
        if (modes.includes("fullscreen")) {
          buttons.push(button(trans.__("Full screen"), () => this.#setMode("fullscreen")));
        }
        if (modes.includes("pip")) buttons.push(button(trans.__("Corner"), () => this.#setMode("pip")));
      }
      if (opened?.may_agree && (this.#blocked.has("eval") || this.#blocked.has("wasm-eval"))) {
        const allow = button(
          trans.__("Allow eval"),
          () => void this.#agree(opened.hash, opened.is_granted ?? false, true),
        );
        allow.title = trans.__("The app tried to run code that it generates (eval), which is blocked.");
        buttons.unshift(allow);
      }
      buttons.push(button(trans.__("Close"), () => void this.#close()));
    }
    head.replaceChildren(name, ...buttons);
  }

  #showBar(text: string, answers: [string, () => void][]): void {
    this.#bars.replaceChildren();
    this.#addBar(text, answers);
  }

  #addBar(text: string, answers: [string, () => void][], canBeClosed = false): HTMLElement {
    const bar = document.createElement("div");
    bar.className = "ipymcp-app-bar";
    const label = document.createElement("span");
    label.textContent = visible(text);
    const all = answers.map(([name, act]) => button(name, act));
    if (canBeClosed) all.push(button(trans.__("Dismiss"), () => bar.remove()));
    // A bar may appear below the pointer: a click that was meant for something else must not answer it.
    for (const each of all) each.disabled = true;
    setTimeout(() => {
      for (const each of all) each.disabled = false;
    }, GUARD_DELAY);
    bar.append(label, ...all);
    this.#bars.append(bar);
    return bar;
  }
}

function button(label: string, act: () => void): HTMLButtonElement {
  const element = document.createElement("button");
  element.type = "button";
  element.dataset["lmSuppressShortcuts"] = "true";
  element.textContent = label;
  element.addEventListener("click", act);
  return element;
}

/** A call with the schema's defaults for arguments that were left out, once it has all of its arguments. */
function withDefaults(call: AppCall, definition: unknown): AppCall {
  const { input } = call;
  if (input === null || input === undefined) return call;
  const { properties } =
    (definition as { inputSchema?: { properties?: { [name: string]: unknown } } }).inputSchema ?? {};
  const declared = Object.entries(properties ?? {}).flatMap(([name, schema]) =>
    Object(schema) === schema && "default" in (schema as object) ? [[name, (schema as JsonObject)["default"]]] : [],
  );
  return { ...call, input: { ...Object.fromEntries(declared), ...(input as JsonObject) } as JsonObject };
}

const clipped = (text: string): string => (text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text);

/** A cell that asks the model, with nothing that is evaluated or refers to a variable, a resource or a prompt. */
function askCell(text: string): string {
  const plain = visible(text)
    .replace(/[{}$]/g, (character) => character + character)
    .replace(/(?<![\p{L}\p{N}_@.$/-])@(?=[^\n]*:)|^[ \t]*\/(?=[^\n]*\.)/gmu, "$& ");
  return `%%mcp ask\n${plain}`;
}

function save({ name, type, data }: AppFile): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

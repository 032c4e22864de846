/** A notebook's panel and its connection to the current kernel. */

import type { ISessionContext } from "@jupyterlab/apputils";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";
import { draw } from "../panel";
import { PanelModel } from "../panelmodel";
import type { Services } from "../services";
import { pageServices } from "../services";
import { problemOf } from "../store";
import { problemText } from "../views/context";
import { loadingCell, restore } from "../views/restore";
import { cellThatLoads, insertBelow, insertCode, insertFirst } from "./cells";
import { connectByComm } from "./comm";
import { loadExtension } from "./loadextension";
import { connectByRelay } from "./relay";
import type { RelayEndpoint } from "./relay";
import type { LoadAttempt, ConnectionStatus } from "./connectionstatus";
import { CONNECTING, NOT_LOADED, NO_KERNEL, connectionStatus } from "./connectionstatus";
import { KernelTransport } from "./transport";
import { UsedServers } from "./usedservers";
import type { WelcomeActions, WelcomeView } from "./welcome";
import { drawWelcome } from "./welcome";

/** Retries of the connection after ipymcp was loaded, over some seconds, before that is a problem. */
const RETRIES_AFTER_LOAD = 4;

/** Return the relay endpoint of a kernel. */
export type RelayEndpoints = (kernelId: string) => RelayEndpoint;

interface KernelConversation {
  kernel: Kernel.IKernelConnection;
  transport: KernelTransport;
  model: PanelModel;
  /** Whether the kernel runs Python. */
  isPython: boolean;
  close(): void;
}

const RESTARTING = new Set<Kernel.Status>(["restarting", "autorestarting"]);
const PYTHON = "python";
const BUSY = new Set<Kernel.Status>(["busy", "unknown"]);

export class NotebookView {
  /** Shown in the sidebar while the notebook is active. */
  readonly node = document.createElement("div");
  /** The connection status or the panel state changed. */
  readonly changed = new Signal<this, void>(this);
  connectionStatus: ConnectionStatus = NO_KERNEL;
  #conversation: KernelConversation | null = null;
  /** Whether it has had a kernel: without one, the notebook then waits for no first kernel. */
  #hadKernel = false;
  #attempt: LoadAttempt = NOT_LOADED;
  readonly used: UsedServers;
  /** The actions after loading ipymcp, once the panel is connected; see `load`. */
  #afterLoad: { again: boolean; insert: boolean } | null = null;
  #isDisposed = false;
  readonly #context: ISessionContext;

  constructor(
    readonly notebook: NotebookPanel,
    private readonly relays: RelayEndpoints,
    /** Return the label of the command that waits for ipymcp; empty if there is none. */
    private readonly waiting: () => string,
    openInMainArea?: (view: NotebookView) => void,
  ) {
    if (openInMainArea) this.#services.openInMainArea = () => openInMainArea(this);
    this.node.style.height = "100%";
    this.used = new UsedServers(() => notebook.context.path);
    this.#context = notebook.sessionContext;
    notebook.title.changed.connect(this.#renamed, this);
    this.#context.kernelChanged.connect(this.#kernelChanged, this);
    this.#context.statusChanged.connect(this.#statusChanged, this);
    this.#reconnect();
    void this.#context.ready.then(() => {
      if (!this.#conversation && !this.#isDisposed) this.#reconnect();
    });
  }

  /** The panel model; null while not connected. */
  get model(): PanelModel | null {
    return this.connectionStatus.kind === "panel" && this.#conversation ? this.#conversation.model : null;
  }

  /** Whether the part of the notebook that is in sight has such an element. */
  hasInSight(selector: string): boolean {
    const { top, bottom } = this.notebook.content.node.getBoundingClientRect();
    return [...this.notebook.content.node.querySelectorAll(selector)].some((each) => {
      const box = each.getBoundingClientRect();
      // A form that waits for its question has no height.
      return each.getClientRects().length > 0 && box.bottom > top && box.top < bottom;
    });
  }

  get name(): string {
    return this.notebook.title.label;
  }

  /** Load ipymcp in the kernel.
   *
   * @param then `again`: then load the servers that the notebook used. `insert`: then insert a cell that does the same.
   */
  async load(then: { again: boolean; insert: boolean } | null = null): Promise<void> {
    const conversation = this.#conversation;
    const status = this.connectionStatus;
    if (!conversation || status.kind !== "absent" || status.loading) return;
    this.#afterLoad = then;
    this.#setAttempt({ ...NOT_LOADED, loading: true });
    const problem = await loadExtension(conversation.kernel, status.command);
    if (conversation !== this.#conversation) return;
    if (!problem) conversation.transport.retrySoon(RETRIES_AFTER_LOAD);
    this.#setAttempt({ loading: problem === null, loaded: problem === null, problem });
  }

  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    this.#end();
    this.#removePanel();
    this.#removeWelcome();
    Signal.clearData(this);
    this.node.remove();
  }

  #renamed(): void {
    this.#conversation?.model.store.set({ notebook: this.name });
  }

  // -- the kernel

  #kernelChanged(): void {
    this.#reconnect();
  }

  #statusChanged(_: ISessionContext, status: Kernel.Status): void {
    const conversation = this.#conversation;
    if (!conversation) return;
    if (RESTARTING.has(status)) return this.#reconnect(false);
    conversation.transport.setBusy(BUSY.has(status));
    if (status === "idle" && conversation.isPython) conversation.transport.retrySoon();
  }

  /** Disconnect, and connect to the current kernel. A kernel that is not up is connected once it is idle. */
  #reconnect(isUp = true): void {
    this.#end();
    this.#attempt = NOT_LOADED;
    const kernel = this.#context.session?.kernel;
    if (!kernel) return this.#setStatus(this.#context.isReady || this.#hadKernel ? NO_KERNEL : CONNECTING);
    this.#hadKernel = true;
    const conversation = (this.#conversation = this.#open(kernel));
    this.#setStatus(CONNECTING);
    void languageOf(kernel).then((language) => {
      if (conversation !== this.#conversation) return;
      conversation.isPython = language.toLowerCase() === PYTHON;
      if (!conversation.isPython) this.#setStatus({ kind: "other-language", language });
      else if (isUp) conversation.transport.connect();
    });
  }

  #open(kernel: Kernel.IKernelConnection): KernelConversation {
    const transport = new KernelTransport({
      relay: connectByRelay(this.relays(kernel.id)),
      comm: connectByComm(kernel),
    });
    const model = new PanelModel(transport, {
      client: "sidebar",
      cells: async (request) => (await import("./notebookcells")).cellsReply(this.notebook, request),
    });
    model.store.set({ notebook: this.name });
    const unsubscribe = [
      transport.onChange(() => this.#updateStatus()),
      model.store.subscribe(() => {
        if (this.connectionStatus.kind !== "panel" && model.store.get().synced) this.#updateStatus();
        this.used.save(model.store.get());
        if (this.#afterLoad && model.store.get().synced) void this.#finishLoad(model, this.#afterLoad);
        this.changed.emit();
      }),
    ];
    const close = (): void => {
      for (const each of unsubscribe) each();
      model.close();
      transport.close();
    };
    return { kernel, transport, model, isPython: false, close };
  }

  async #finishLoad(model: PanelModel, { again, insert }: { again: boolean; insert: boolean }): Promise<void> {
    this.#afterLoad = null;
    try {
      if (insert) insertFirst(this.notebook, loadingCell(again ? (await model.request("used", {})).line : ""));
      if (again) await restore(model);
    } catch (error) {
      model.notify(problemText(problemOf(error)), true);
    }
  }

  #end(): void {
    this.used.end();
    this.#conversation?.close();
    this.#conversation = null;
  }

  #setAttempt(attempt: LoadAttempt): void {
    this.#attempt = attempt;
    this.#updateStatus();
  }

  /** Show how the connection is. The panel is drawn once, when the kernel's state has arrived after its hello. */
  #updateStatus(): void {
    const conversation = this.#conversation;
    if (!conversation) return;
    const status = connectionStatus(conversation.transport, this.#attempt);
    if (status.kind === "panel") this.#attempt = NOT_LOADED;
    if (status.kind !== "panel" || conversation.model.store.get().synced) this.#setStatus(status);
  }

  // -- rendering

  #welcome: WelcomeView | null = null;
  #unmountPanel: (() => void) | null = null;

  /** Show the connection status again, because what waits for a connection changed. */
  showStatus(): void {
    this.#welcome?.show(this.connectionStatus, this.used.names(), this.waiting());
  }

  #setStatus(status: ConnectionStatus): void {
    this.connectionStatus = status;
    const { model } = this;
    if (model === null) {
      this.#removePanel();
      this.#welcome ??= drawWelcome(this.node, this.welcomeActions);
      this.#welcome.show(status, this.used.names(), this.waiting());
    } else {
      this.#removeWelcome();
      this.#unmountPanel ??= draw(this.node, model, this.#services);
    }
    this.changed.emit();
  }

  readonly welcomeActions: WelcomeActions = {
    load: (then) => void this.load(then),
    retry: () => this.#conversation?.transport.connect(),
    insert: (text) => void insertCode(this.notebook, text),
  };

  #removeWelcome(): void {
    this.#welcome?.remove();
    this.#welcome = null;
  }

  #removePanel(): void {
    this.#unmountPanel?.();
    this.#unmountPanel = null;
  }

  #servicesWith(insert: typeof insertCode): Services {
    return {
      ...pageServices,
      insertCode: (text, uses) => insert(this.notebook, text, uses),
      insertFirst: (text) => insertFirst(this.notebook, text),
      cellThatLoads: (name) => cellThatLoads(this.notebook, name),
      renderMarkdown: (text) => renderMarkdown(this.notebook, text),
    };
  }

  readonly #services = this.#servicesWith(insertCode);

  /** The URL of the document that contains an app's page, for a query that names the granted access. */
  readonly frameUrl = (query: string): string => this.relays(this.#context.session?.kernel?.id ?? "").frameUrl(query);

  /** For panels in outputs: the active cell contains the panel, so code is inserted below it. */
  readonly cellServices = this.#servicesWith(insertBelow);
}

/** Render Markdown as the notebook's cells do. */
async function renderMarkdown({ content: { rendermime } }: NotebookPanel, text: string): Promise<string> {
  const renderer = rendermime.createRenderer("text/markdown");
  try {
    await renderer.renderModel(rendermime.createModel({ data: { "text/markdown": text } }));
    // eslint-disable-next-line no-restricted-properties -- read, not set
    return renderer.node.innerHTML;
  } finally {
    renderer.dispose();
  }
}

/** The language of a kernelspec; Python if it is unavailable. */
async function languageOf(kernel: Kernel.IKernelConnection): Promise<string> {
  try {
    return (await kernel.spec)?.language ?? PYTHON;
  } catch {
    return PYTHON;
  }
}

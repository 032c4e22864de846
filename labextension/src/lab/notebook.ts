/** One notebook's panel: the kernel behind it, as it comes, restarts and goes, and what is drawn of it. */

import type { ISessionContext } from "@jupyterlab/apputils";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Kernel } from "@jupyterlab/services";
import { Signal } from "@lumino/signaling";
import type { Widget } from "@lumino/widgets";
import { draw } from "../panel";
import { PanelModel } from "../panelmodel";
import type { Services } from "../services";
import { pageServices } from "../services";
import { insertBelow, insertCode } from "./cells";
import { commTo } from "./comm";
import { loaded } from "./loading";
import { relayTo } from "./relay";
import type { RelayPlace } from "./relay";
import type { Attempt, Standing } from "./standing";
import { CONNECTING, NOT_TRIED, NO_KERNEL, standingOf } from "./standing";
import { KernelTransport } from "./transport";
import type { Drawn } from "./welcome";
import { drawWelcome } from "./welcome";

/** Gives where the Jupyter server has its relay to a kernel. */
export type Relays = (kernelId: string) => RelayPlace;

interface Talk {
  kernel: Kernel.IKernelConnection;
  transport: KernelTransport;
  model: PanelModel;
  /** Whether ipymcp could be in it. */
  isPython: boolean;
  close(): void;
}

const RESTARTS = new Set<Kernel.Status>(["restarting", "autorestarting"]);
const PYTHON = "python";
const WORKS = new Set<Kernel.Status>(["busy", "unknown"]);

export class NotebookView {
  /** Drawn in the sidebar while its notebook is the active one. */
  readonly node = document.createElement("div");
  /** How it stands, or what its servers are, has changed. */
  readonly changed = new Signal<this, void>(this);
  standing: Standing = NO_KERNEL;
  /** What is live in its cells, where that is the question of a card. */
  readonly asking = new Set<{ card: string | undefined; widget: Widget }>();
  private talk: Talk | null = null;
  private attempt: Attempt = NOT_TRIED;
  private isDisposed = false;
  private readonly context: ISessionContext;

  constructor(
    readonly notebook: NotebookPanel,
    private readonly relays: Relays,
  ) {
    this.node.style.height = "100%";
    this.context = notebook.sessionContext;
    this.context.kernelChanged.connect(this.kernelChanged, this);
    this.context.statusChanged.connect(this.statusChanged, this);
    this.begin();
    void this.context.ready.then(() => {
      if (!this.talk && !this.isDisposed) this.begin();
    });
  }

  /** The conversation with the kernel; null where there is nobody to talk to. */
  get model(): PanelModel | null {
    return this.standing.is === "panel" && this.talk ? this.talk.model : null;
  }

  /** Whether a card in sight has that question. */
  asksIn(card: string): boolean {
    return [...this.asking].some((each) => each.card === card && each.widget.isVisible);
  }

  get name(): string {
    return this.notebook.title.label;
  }

  /** Load ipymcp in the kernel. */
  async load(): Promise<void> {
    const { talk, standing } = this;
    if (!talk || standing.is !== "absent" || standing.loading) return;
    this.tried({ ...NOT_TRIED, loading: true });
    const problem = await loaded(talk.kernel, standing.command);
    if (talk !== this.talk) return;
    this.tried({ loading: problem === null, loaded: problem === null, problem });
    if (!problem) talk.transport.knock();
  }

  dispose(): void {
    if (this.isDisposed) return;
    this.isDisposed = true;
    this.end();
    this.undrawPanel();
    this.undrawWelcome();
    Signal.clearData(this);
    this.node.remove();
  }

  // -- the kernel ------------------------------------------------------------------------------------------------------

  private kernelChanged(): void {
    this.begin();
  }

  private statusChanged(_: ISessionContext, status: Kernel.Status): void {
    const { talk } = this;
    if (!talk) return;
    if (RESTARTS.has(status)) return this.begin(false);
    talk.transport.setBusy(WORKS.has(status));
    if (status === "idle" && talk.isPython) talk.transport.knock();
  }

  /** Nothing of the kernel before is kept. One that is not up yet is reached when it is idle. */
  private begin(isUp = true): void {
    this.end();
    this.attempt = NOT_TRIED;
    const kernel = this.context.session?.kernel;
    if (!kernel) return this.stand(this.context.isReady ? NO_KERNEL : CONNECTING);
    const talk = (this.talk = this.open(kernel));
    this.stand(CONNECTING);
    void languageOf(kernel).then((language) => {
      if (talk !== this.talk) return;
      talk.isPython = language.toLowerCase() === PYTHON;
      if (!talk.isPython) this.stand({ is: "other-language", language });
      else if (isUp) talk.transport.connect();
    });
  }

  private open(kernel: Kernel.IKernelConnection): Talk {
    const transport = new KernelTransport({ relay: relayTo(this.relays(kernel.id)), comm: commTo(kernel) });
    const model = new PanelModel(transport, { client: "sidebar" });
    const leave = [
      transport.onNews(() => this.stand(standingOf(transport, this.attempt))),
      model.store.subscribe(() => this.changed.emit()),
    ];
    const close = (): void => {
      for (const each of leave) each();
      model.close();
      transport.close();
    };
    return { kernel, transport, model, isPython: false, close };
  }

  private end(): void {
    this.talk?.close();
    this.talk = null;
  }

  private tried(attempt: Attempt): void {
    this.attempt = attempt;
    if (this.talk) this.stand(standingOf(this.talk.transport, attempt));
  }

  // -- what is drawn ---------------------------------------------------------------------------------------------------

  private welcome: Drawn | null = null;
  private leavePanel: (() => void) | null = null;

  private stand(standing: Standing): void {
    this.standing = standing;
    const { model } = this;
    if (model === null) {
      this.undrawPanel();
      this.welcome ??= drawWelcome(this.node, {
        load: () => void this.load(),
        retry: () => this.talk?.transport.connect(),
        insert: (text) => void insertCode(this.notebook, text),
      });
      this.welcome.show(standing);
    } else {
      this.undrawWelcome();
      this.leavePanel ??= draw(this.node, model, this.services);
    }
    this.changed.emit();
  }

  private undrawWelcome(): void {
    this.welcome?.remove();
    this.welcome = null;
  }

  private undrawPanel(): void {
    this.leavePanel?.();
    this.leavePanel = null;
  }

  private readonly services: Services = {
    ...pageServices,
    insertCode: (text) => insertCode(this.notebook, text),
  };

  /** For panels in its cells: the active one holds what made the panel, and code goes below it. */
  readonly cellServices: Services = {
    ...pageServices,
    insertCode: (text) => insertBelow(this.notebook, text),
  };
}

/** What its kernelspec says; Python where that cannot be had. */
async function languageOf(kernel: Kernel.IKernelConnection): Promise<string> {
  try {
    return (await kernel.spec)?.language ?? PYTHON;
  } catch {
    return PYTHON;
  }
}

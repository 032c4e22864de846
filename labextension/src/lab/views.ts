/** The views of open notebooks, created when a notebook becomes active or shows a panel in an output. */

import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";
import type { PanelModel } from "../panelmodel";
import type { QuestionRow } from "../protocol";
import { questionsOf } from "../store";
import { NotebookView } from "./notebook";
import type { RelayEndpoints } from "./notebook";

export interface WaitingCommand {
  label: string;
  execute(view: NotebookView, model: PanelModel): void;
}

export class NotebookViews {
  /** The active notebook changed. */
  readonly currentChanged = new Signal<this, NotebookView | null>(this);
  /** Some open notebook's state or connection status changed. */
  readonly anyChanged = new Signal<this, void>(this);
  /** The active notebook's state or connection status changed. */
  readonly changed = new Signal<this, void>(this);
  /** A question was asked in some open notebook. */
  readonly asked = new Signal<this, { view: NotebookView; question: QuestionRow }>(this);
  current: NotebookView | null = null;
  /** The command that waits until ipymcp is loaded in the active notebook. */
  waiting: WaitingCommand | null = null;
  readonly #views = new Map<NotebookPanel, NotebookView>();

  constructor(
    tracker: INotebookTracker,
    private readonly relays: RelayEndpoints,
    private readonly openInMainArea?: (view: NotebookView) => void,
  ) {
    tracker.currentChanged.connect((_, notebook) => this.#setCurrent(notebook));
    this.#setCurrent(tracker.currentWidget);
  }

  /** Return the view of an open notebook. */
  viewOf(notebook: NotebookPanel): NotebookView {
    return this.#views.get(notebook) ?? this.#create(notebook);
  }

  /** Return the views of all open notebooks that have one. */
  all(): NotebookView[] {
    return [...this.#views.values()];
  }

  /** The label of the command that waits; empty if there is none. */
  get waitingLabel(): string {
    return (this.waiting?.label ?? "").replace("\u2026", "");
  }

  /** Run a command on the active notebook, as soon as ipymcp is loaded there. */
  run(command: WaitingCommand): void {
    this.waiting = command;
    this.#continueWaiting();
    this.current?.showStatus();
    this.changed.emit();
  }

  #continueWaiting(): void {
    const { waiting, current } = this;
    if (!waiting || !current?.model?.store.get().synced) return;
    this.waiting = null;
    waiting.execute(current, current.model);
  }

  #setCurrent(notebook: NotebookPanel | null): void {
    const view = notebook && !notebook.isDisposed ? this.viewOf(notebook) : null;
    if (view === this.current) return;
    this.current = view;
    this.#continueWaiting();
    view?.showStatus();
    this.currentChanged.emit(view);
    this.changed.emit();
  }

  #create(notebook: NotebookPanel): NotebookView {
    const view = new NotebookView(notebook, this.relays, () => this.waitingLabel, this.openInMainArea);
    this.#views.set(notebook, view);
    const announced = new Set<string>();
    view.changed.connect(() => {
      this.#announceQuestions(view, announced);
      if (view === this.current) {
        this.#continueWaiting();
        this.changed.emit();
      }
      this.anyChanged.emit();
    });
    notebook.disposed.connect(() => {
      this.#views.delete(notebook);
      view.dispose();
      if (view === this.current) this.#setCurrent(null);
      this.anyChanged.emit();
    });
    return view;
  }

  /** Emit `asked` once for each question. */
  #announceQuestions(view: NotebookView, announced: Set<string>): void {
    const questions = view.model ? questionsOf(view.model.store.get().questions) : [];
    const open = new Set(questions.map(({ id }) => id));
    for (const id of announced) if (!open.has(id)) announced.delete(id);
    for (const question of questions) {
      if (announced.has(question.id)) continue;
      announced.add(question.id);
      this.asked.emit({ view, question });
    }
  }
}

/** Milliseconds from a change until what stands beside the panel follows. */
const DRAWING_DELAY = 100;

/** Return a function that runs another once after a change, or several, when the panel is drawn. */
export function afterDrawing(run: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      run();
    }, DRAWING_DELAY);
  };
}

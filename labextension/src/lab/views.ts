/** Which notebook is looked at: one view for each that was the active one, or has a panel in a cell, and is open still. */

import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { Signal } from "@lumino/signaling";
import type { Question } from "../protocol";
import { questionsOf } from "../store";
import { NotebookView } from "./notebook";
import type { Relays } from "./notebook";

export class NotebookViews {
  /** Another notebook is the active one. */
  readonly currentChanged = new Signal<this, NotebookView | null>(this);
  /** The active one has changed: what it shows, or how it stands. */
  readonly changed = new Signal<this, void>(this);
  /** Somebody asks something, in a notebook that may not be the active one. */
  readonly asked = new Signal<this, { view: NotebookView; question: Question }>(this);
  current: NotebookView | null = null;
  private readonly views = new Map<NotebookPanel, NotebookView>();

  constructor(
    tracker: INotebookTracker,
    private readonly relays: Relays,
  ) {
    tracker.currentChanged.connect((_, notebook) => this.look(notebook));
    this.look(tracker.currentWidget);
  }

  /** That of an open notebook. */
  of(notebook: NotebookPanel): NotebookView {
    return this.views.get(notebook) ?? this.begin(notebook);
  }

  private look(notebook: NotebookPanel | null): void {
    const view = notebook && !notebook.isDisposed ? this.of(notebook) : null;
    if (view === this.current) return;
    this.current = view;
    this.currentChanged.emit(view);
    this.changed.emit();
  }

  private begin(notebook: NotebookPanel): NotebookView {
    const view = new NotebookView(notebook, this.relays);
    this.views.set(notebook, view);
    const told = new Set<string>();
    view.changed.connect(() => {
      this.heed(view, told);
      if (view === this.current) this.changed.emit();
    });
    notebook.disposed.connect(() => {
      this.views.delete(notebook);
      view.dispose();
      if (view === this.current) this.look(null);
    });
    return view;
  }

  /** Tell of each question once. */
  private heed(view: NotebookView, told: Set<string>): void {
    const questions = view.model ? questionsOf(view.model.store.get()) : [];
    const open = new Set(questions.map(({ id }) => id));
    for (const id of told) if (!open.has(id)) told.delete(id);
    for (const question of questions) {
      if (told.has(question.id)) continue;
      told.add(question.id);
      this.asked.emit({ view, question });
    }
  }
}

/** All that each panel in a notebook carries: it finds the panel's code in the page, or has the kernel send it.
 *
 * The code is kept by its digest, so kernels with other versions in one page do not meet. It comes as the buffer of a
 * message, never as a trait, and so is in no saved notebook.
 */

interface Panel {
  render(view: View): () => void;
}
interface Model {
  get(name: string): unknown;
  send(content: unknown): void;
  on(event: string, listener: (content: { kind?: string }, buffers: DataView<ArrayBuffer>[]) => void): void;
}
interface View {
  model: Model;
  el: HTMLElement;
}
interface Code {
  asked: boolean;
  panel: Promise<Panel>;
  settle(panel: Promise<Panel>): void;
}

/** The first view asks; one that has waited so many milliseconds asks as well: the first one's kernel may be gone. */
const PATIENCE = 8000;
/** What was said while the page made the kernel's subshell waits for the end of a cell: it is said once more. */
const AGAIN = 700;

function codeOf(digest: string): Code {
  const page = globalThis as { ipymcpPanels?: { [digest: string]: Code } };
  const known = (page.ipymcpPanels ??= {});
  const found = known[digest];
  if (found) return found;
  let settle = (_panel: Promise<Panel>): void => undefined;
  const panel = new Promise<Panel>((resolve) => (settle = resolve));
  return (known[digest] = { asked: false, panel, settle });
}

function ask(model: Model, code: Code): void {
  code.asked = true;
  model.on("msg:custom", ({ kind }, [text]) => {
    if (kind !== "library" || !text) return;
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    code.settle(import(address).then((module: { default: Panel }) => module.default));
  });
  // Where its kernel is gone another view's may be there.
  if (!say(model)) code.asked = false;
}

/** Whether it could be said. */
function say(model: Model): boolean {
  try {
    model.send({ kind: "library" });
    return true;
  } catch {
    return false;
  }
}

function render({ model, el }: View): () => void {
  const code = codeOf(String(model.get("library")));
  const note = document.createElement("div");
  let leave: (() => void) | null = null;
  let wanted = true;
  const isFirst = !code.asked;
  if (isFirst) ask(model, code);
  const again = setTimeout(() => isFirst && say(model), AGAIN);
  const slow = setTimeout(() => {
    note.textContent =
      "The kernel is busy or gone. The panel appears when it is free; run the cell again if it was restarted.";
    ask(model, code);
  }, PATIENCE);
  el.append(note);
  code.panel.then(
    (panel) => {
      clearTimeout(again);
      clearTimeout(slow);
      note.remove();
      if (wanted) leave = panel.render({ model, el });
    },
    (error: unknown) => {
      clearTimeout(slow);
      note.textContent = `The panel could not be loaded: ${String(error)}`;
    },
  );
  return () => {
    wanted = false;
    clearTimeout(again);
    clearTimeout(slow);
    leave?.();
  };
}

export default { render };

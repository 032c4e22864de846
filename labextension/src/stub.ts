/** The loader in each panel widget: finds the panel's code in the page or requests it from the kernel.
 *
 * The code is cached by digest, so kernels with different versions can share a page. It arrives as the buffer of a
 * message, not as a trait, so saved notebooks do not contain it.
 */

import { trans } from "./translation";

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
interface LoadedCode {
  isRequested: boolean;
  panel: Promise<Panel>;
  resolve(panel: Promise<Panel>): void;
}

/** Milliseconds after which other views also request the code, in case the first view's kernel has ended. */
const RETRY_TIMEOUT = 8000;
/** Milliseconds after which the first request is sent again: one sent before the page has a subshell waits until the running
 * cell ends. */
const RESEND_DELAY = 700;

function codeOf(digest: string): LoadedCode {
  const page = globalThis as { ipymcpPanels?: { [digest: string]: LoadedCode } };
  const byDigest = (page.ipymcpPanels ??= {});
  const found = byDigest[digest];
  if (found) return found;
  let settle = (_panel: Promise<Panel>): void => undefined;
  const panel = new Promise<Panel>((resolve) => (settle = resolve));
  return (byDigest[digest] = { isRequested: false, panel, resolve: settle });
}

function loadCode(model: Model, code: LoadedCode): void {
  code.isRequested = true;
  model.on("msg:custom", ({ kind }, [text]) => {
    if (kind !== "library" || !text) return;
    const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    code.resolve(import(address).then((module: { default: Panel }) => module.default));
  });
  // This view's kernel has ended; let another view send the request.
  if (!requestCode(model)) code.isRequested = false;
}

/** Send the request; return whether the comm is still open. */
function requestCode(model: Model): boolean {
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
  let unmount: (() => void) | null = null;
  let isMounted = true;
  const isFirst = !code.isRequested;
  if (isFirst) loadCode(model, code);
  const resend = setTimeout(() => isFirst && requestCode(model), RESEND_DELAY);
  const slow = setTimeout(() => {
    note.textContent = trans.__(
      "The kernel is busy or was restarted. The panel appears once the kernel is idle; after a restart, run the cell again.",
    );
    loadCode(model, code);
  }, RETRY_TIMEOUT);
  el.append(note);
  code.panel.then(
    (panel) => {
      clearTimeout(resend);
      clearTimeout(slow);
      note.remove();
      if (isMounted) unmount = panel.render({ model, el });
    },
    (error: unknown) => {
      clearTimeout(slow);
      note.textContent = trans.__("The panel could not be loaded: %1", String(error));
    },
  );
  return () => {
    isMounted = false;
    clearTimeout(resend);
    clearTimeout(slow);
    unmount?.();
  };
}

export default { render };

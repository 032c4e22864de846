import { createContext } from "preact";
import { useCallback, useContext, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Panel } from "../panelmodel";
import type { Problem, Verb, Verbs } from "../protocol";
import type { StreamName, Streams } from "../rowbuffer";
import type { Services } from "../services";
import { isAllowed, problemOf } from "../store";
import type { PanelState } from "../store";
import { trans } from "../translation";

export interface PanelContextValue {
  model: Panel;
  services: Services;
}

export const PanelContext = createContext<PanelContextValue | null>(null);

export function usePanel(): PanelContextValue {
  const scope = useContext(PanelContext);
  if (!scope) throw new Error("a view outside of a panel");
  return scope;
}

/** Select a part of the state; the view rerenders when that part changes. */
export function useSelect<T>(select: (state: PanelState) => T): T {
  const { store } = usePanel().model;
  const [, redraw] = useState(0);
  const value = select(store.get());
  const latest = useRef({ select, value });
  latest.current = { select, value };
  useLayoutEffect(() => {
    const check = (): void => {
      if (!Object.is(latest.current.select(store.get()), latest.current.value)) redraw((count) => count + 1);
    };
    check();
    return store.subscribe(check);
  }, [store]);
  return value;
}

/** Return a function that tells whether the mode allows an intent. It changes only with the kernel's hello. */
export function useMode(): (verb: Verb) => boolean {
  const { store } = usePanel().model;
  useSelect((state) => state.hello);
  return (verb) => isAllowed(store.get(), verb);
}

export const useAllowed = (verb: Verb): boolean => useMode()(verb);

/** Return a function that sends an intent and shows errors as notices. */
export function useRequest(): <V extends Verb>(
  verb: V,
  fields: Verbs[V][0],
  done?: string,
) => Promise<Verbs[V][1] | undefined> {
  const { model } = usePanel();
  return useCallback(
    async (verb, fields, done) => {
      try {
        const value = await model.request(verb, fields);
        if (done) model.notify(done);
        return value;
      } catch (error) {
        model.notify(problemText(problemOf(error)), true);
        return undefined;
      }
    },
    [model],
  );
}

/** Return a function that copies text and shows a notice. */
export function useCopy(): (text: string) => void {
  const { model, services } = usePanel();
  return (text) =>
    void services.copy(text).then(
      () => model.notify(trans.__("Copied.")),
      (error: Error) => model.notify(error.message, true),
    );
}

/** Milliseconds within which every browser has started to save the file. */
const REVOKE_DELAY = 60_000;

/** Save a file as a download. */
export function saveFile(name: string, parts: BlobPart[]): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_DELAY);
}

/** Save rows as lines of JSON. */
export const saveRows = (name: string, rows: readonly object[]): void =>
  saveFile(`${name}.jsonl`, [rows.map((row) => `${JSON.stringify(row)}\n`).join("")]);

/** Return a function that inserts code that uses `mcp` into the notebook, or copies it, and shows a notice. */
export function useInsert(): (text: string) => Promise<void> {
  const { model, services } = usePanel();
  return async (text) => {
    const where = await services.insertCode(text, "mcp");
    model.notify(
      where === "inserted" ? trans.__("Inserted into the notebook.") : trans.__("Copied: paste it into a cell."),
    );
  };
}

/** The last value that was not null, to avoid flicker while a new one loads. */
export function useLatest<T>(value: T | null): T | null {
  const latest = useRef(value);
  if (value !== null) latest.current = value;
  return latest.current;
}

export const problemText = ({ message, hint }: Problem): string => (hint ? `${message}\n${hint}` : message);

export interface Loaded<T> {
  value: T | null;
  problem: Problem | null;
  loading: boolean;
  reload: () => void;
}

/** Load a value from the kernel, again whenever the key changes; null fields load nothing. */
export function useLoaded<V extends Verb>(verb: V, fields: Verbs[V][0] | null, key: string): Loaded<Verbs[V][1]> {
  const { model } = usePanel();
  const [state, setState] = useState<Omit<Loaded<Verbs[V][1]>, "reload"> & { key: string }>(notLoaded(key));
  const [reloads, setReloads] = useState(0);
  const isEnabled = fields !== null;
  const helloCount = useSelect((each) => each.helloCount);
  useEffect(() => {
    if (fields === null) return;
    let isCurrent = true;
    setState((old) => ({ ...(old.key === key ? old : notLoaded(key)), loading: true }));
    model.request(verb, fields).then(
      (value) => isCurrent && setState({ value, problem: null, loading: false, key }),
      (error: unknown) => isCurrent && setState({ value: null, problem: problemOf(error), loading: false, key }),
    );
    return () => {
      isCurrent = false;
    };
  }, [model, verb, key, isEnabled, reloads, helloCount]);
  const reload = useCallback(() => setReloads((old) => old + 1), []);
  return { ...state, reload };
}

const notLoaded = (key: string): { value: null; problem: null; loading: boolean; key: string } => ({
  value: null,
  problem: null,
  loading: false,
  key,
});

/** Minimum milliseconds between two drawings of a stream. */
const REDRAW_INTERVAL = 100;

export interface StreamRows<Row> {
  rows: Row[];
  dropped: number;
  version: number;
}

/** The rows of a server's log or messages: received while `followed`, and drawn while `drawn`. */
export function useStream<Name extends StreamName>(
  name: Name,
  server: string,
  followed: boolean,
  drawn: boolean,
): StreamRows<Streams[Name]> {
  const { model } = usePanel();
  const buffer = model.rows(name, server);
  const snapshot = (): StreamRows<Streams[Name]> => ({
    rows: buffer.rows,
    dropped: buffer.dropped,
    version: buffer.version,
  });
  const [state, setState] = useState(snapshot);
  const draw = useRef<() => void>(() => undefined);
  useEffect(() => {
    if (!followed || !server) return;
    return model.follow(name, server, () => draw.current());
  }, [model, name, server, followed]);
  useEffect(() => {
    if (!drawn) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    setState(snapshot());
    draw.current = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        setState(snapshot());
      }, REDRAW_INTERVAL);
    };
    return () => {
      clearTimeout(timer);
      draw.current = () => undefined;
    };
  }, [buffer, drawn]);
  return state;
}

/** A page-wide unique id prefix. Preact's own ids are unique only within one panel. */
export function useUniqueId(): string {
  return useState(() => `mcp-${Math.random().toString(36).slice(2)}`)[0];
}

/** The current time in seconds, updated every second while `ticking`. */
export function useNow(ticking: boolean): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    if (!ticking) return;
    const tick = (): void => setNow(Date.now() / 1000);
    tick();
    const timer = setInterval(tick, 1000);
    return () => clearInterval(timer);
  }, [ticking]);
  return now;
}

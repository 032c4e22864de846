import { createContext } from "preact";
import { useCallback, useContext, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Panel } from "../panelmodel";
import type { Problem, Verb, Verbs } from "../protocol";
import type { Services } from "../services";
import { may, problemOf } from "../store";
import type { PanelState } from "../store";

export interface PanelScope {
  model: Panel;
  services: Services;
}

export const PanelContext = createContext<PanelScope | null>(null);

export function usePanel(): PanelScope {
  const scope = useContext(PanelContext);
  if (!scope) throw new Error("a view outside of a panel");
  return scope;
}

/** A part of the state; the view is drawn again when that part changes. */
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

export const useMay = (verb: Verb): boolean => useSelect((state) => may(state, verb));

/** Asks the kernel and says in passing what went wrong. */
export function useAct(): <V extends Verb>(
  verb: V,
  fields: Verbs[V][0],
  done?: string,
) => Promise<Verbs[V][1] | undefined> {
  const { model } = usePanel();
  return useCallback(
    async (verb, fields, done) => {
      try {
        const value = await model.ask(verb, fields);
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

export const problemText = ({ message, hint }: Problem): string => (hint ? `${message}\n${hint}` : message);

export interface Loaded<T> {
  value: T | null;
  problem: Problem | null;
  loading: boolean;
  reload: () => void;
}

/** What the kernel answers, asked for again whenever the key changes; null asks for nothing. */
export function useLoaded<V extends Verb>(verb: V, fields: Verbs[V][0] | null, key: string): Loaded<Verbs[V][1]> {
  const { model } = usePanel();
  const [state, setState] = useState<Omit<Loaded<Verbs[V][1]>, "reload"> & { key: string }>(nothing(key));
  const [turn, setTurn] = useState(0);
  const asked = fields !== null;
  const greetings = useSelect((each) => each.greetings);
  useEffect(() => {
    if (fields === null) return;
    let current = true;
    setState((old) => ({ ...(old.key === key ? old : nothing(key)), loading: true }));
    model.ask(verb, fields).then(
      (value) => current && setState({ value, problem: null, loading: false, key }),
      (error: unknown) => current && setState({ value: null, problem: problemOf(error), loading: false, key }),
    );
    return () => {
      current = false;
    };
  }, [model, verb, key, asked, turn, greetings]);
  const reload = useCallback(() => setTurn((old) => old + 1), []);
  return { ...state, reload };
}

const nothing = (key: string): { value: null; problem: null; loading: boolean; key: string } => ({
  value: null,
  problem: null,
  loading: false,
  key,
});

/** Begins the ids of a part's elements: those of Preact's own are unique in a panel, and a page has several. */
export function useUnique(): string {
  return useState(() => `mcp-${Math.random().toString(36).slice(2)}`)[0];
}

/** The time now, in seconds, drawn again every second while somebody needs it. */
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

import type { JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import type { Value } from "../form/values";
import { argumentsOf } from "../form/values";
import type { ArgumentError, JsonObject, Problem, Tool } from "../protocol";
import { problemOf } from "../store";
import { line, visible } from "../text";
import { useAct, useLoaded, useMay, usePanel, useSelect } from "./context";
import { Badges, Button, CallProgress, Disclosure, Lines, ProblemBox } from "./parts";
import { PreviewView } from "./preview";

/** What was typed into a tool's form, and the last call made of it. It stays while another tool is looked at. */
export interface Draft {
  value: Value;
  call: number | null;
}

const ANYTHING: JsonObject = { type: "object" };

/** One tool: what it does, its form, what it gave. */
export function ToolView({ row, draft, onChange }: { row: Tool; draft: Draft; onChange(): void }): JSX.Element {
  const { server, name } = row;
  const { value, problem } = useLoaded(
    "tool",
    { server, tool: name },
    `${server}\n${name}\n${row.changed}\n${row.disabled}\n${row.decision}`,
  );
  const tool = value ?? row;
  const full = useMay("enable");
  const mayCall = useMay("call");
  const act = useAct();
  const toggle = async (): Promise<void> => {
    await act(row.disabled ? "enable" : "disable", { server, tool: name });
    onChange();
  };
  return (
    <div class="mcp-tool">
      <div class="mcp-head">
        <h3>
          <span class="mcp-dim">{line(server)}.</span>
          {line(name)}
        </h3>
        {full && (
          <Button quiet onClick={() => void toggle()}>
            {row.disabled ? "Enable" : "Disable"}
          </Button>
        )}
      </div>
      {tool.title && tool.title !== name && <div class="mcp-title">{line(tool.title)}</div>}
      <div class="mcp-badges">
        <Badges badges={tool.badges} />
        {row.decision !== "allow" && (
          <span class={row.decision === "deny" ? "mcp-badge mcp-badge-danger" : "mcp-badge mcp-badge-neutral"}>
            {row.decision === "deny" ? "denied by policy" : "asks first"}
          </span>
        )}
        {row.disabled && <span class="mcp-badge mcp-badge-neutral">disabled</span>}
      </div>
      {tool.changed && <p class="mcp-warning">Its definition changed since it was first seen.</p>}
      {tool.findings.map((finding) => (
        <p key={finding} class="mcp-warning">
          {visible(finding)}
        </p>
      ))}
      {tool.description && <Description text={tool.description} />}
      {problem && <ProblemBox problem={problem} />}
      {value && (
        <Disclosure title="Schema">
          {() => (
            <>
              <Lines label="Schema" text={visible(JSON.stringify(value.schema ?? ANYTHING, null, 2))} />
              {value.output_schema && (
                <>
                  <div class="mcp-dim">What it gives</div>
                  <Lines label="What it gives" text={visible(JSON.stringify(value.output_schema, null, 2))} />
                </>
              )}
            </>
          )}
        </Disclosure>
      )}
      {value && mayCall && <Runner tool={value} draft={draft} disabled={row.disabled} />}
    </div>
  );
}

const LONG = 600;

function Description({ text }: { text: string }): JSX.Element {
  const [all, setAll] = useState(false);
  const shown = visible(text.trim());
  if (shown.length <= LONG) return <div class="mcp-prose">{shown}</div>;
  return (
    <div class="mcp-prose">
      {all ? shown : `${shown.slice(0, LONG)}\u2026`}{" "}
      <Button quiet onClick={() => setAll(!all)}>
        {all ? "Less" : "More"}
      </Button>
    </div>
  );
}

const NONE: ArgumentError[] = [];
/** Of typing, in milliseconds. */
const PAUSE = 400;
const GRACE = 3000;

/** Whether a call is gone without a result: the connection ended meanwhile. A result may come after the call's end. */
function useLost(waits: boolean, runs: boolean): boolean {
  const [lost, setLost] = useState(false);
  const seen = useRef({ runs: false, greetings: -1 });
  const greetings = useSelect((state) => state.greetings);
  useEffect(() => {
    if (!waits) seen.current = { runs: false, greetings };
    else if (runs) seen.current.runs = true;
    setLost(false);
    if (!waits || runs || !(seen.current.runs || greetings > seen.current.greetings)) return;
    const timer = setTimeout(() => setLost(true), GRACE);
    return () => clearTimeout(timer);
  }, [waits, runs, greetings]);
  return lost;
}

function Runner({ tool, draft, disabled }: { tool: Tool; draft: Draft; disabled: boolean }): JSX.Element {
  const { model, services } = usePanel();
  const mayInsert = useMay("code");
  const schema = tool.schema ?? ANYTHING;
  const [form, setForm] = useState<FormState>({ value: draft.value, broken: false });
  const [errors, setErrors] = useState<ArgumentError[]>(NONE);
  const [call, setCall] = useState(draft.call);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [turn, setTurn] = useState(0);
  const running = useSelect((state) => (call === null ? undefined : state.calls[call]));
  const result = useSelect((state) => (call === null ? undefined : state.results[call]));
  useEffect(() => {
    draft.call = call;
  }, [draft, call]);
  const changed = useCallback(
    (state: FormState) => {
      draft.value = state.value;
      setForm(state);
    },
    [draft],
  );
  const isRunning = call !== null && !result;
  const isLost = useLost(isRunning, running !== undefined);
  useEffect(() => {
    if (!isLost) return;
    setCall(null);
    setProblem({
      message: "The call is over, but its result did not reach this panel.",
      hint: "Calls lists how it ended.",
    });
  }, [isLost]);
  const outcome = useRef<HTMLDivElement>(null);
  const runner = useRef<HTMLElement>(null);
  const inOutcome = useRef(false);
  useLayoutEffect(() => {
    // Cancel goes with the call: the focus goes back to Run.
    if (isRunning || !inOutcome.current || outcome.current?.contains(document.activeElement)) return;
    inOutcome.current = false;
    runner.current?.querySelector<HTMLElement>(".mcp-primary")?.focus();
  }, [isRunning, running === undefined]);
  const ran = useRef(false);
  useEffect(() => {
    if (!ran.current || !result) return;
    ran.current = false;
    outcome.current?.scrollIntoView({ block: "nearest" });
  }, [result]);
  const target = { server: tool.server, tool: tool.name };
  // What was wrong is judged again as it is mended.
  const judged = useRef(form.value);
  useEffect(() => {
    if (!errors.length || judged.current === form.value || form.broken) return;
    const timer = setTimeout(() => {
      judged.current = form.value;
      const ask = model.ask("validate", { ...target, arguments: argumentsOf(form.value, schema) });
      ask.then(({ errors: found }) => setErrors(found.length ? found : NONE)).catch(() => setErrors(NONE));
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [errors, form]);

  const attempt = async (deed: (values: JsonObject) => Promise<void>): Promise<void> => {
    if (busy) return;
    if (form.broken) return setErrors([{ path: [], message: "Some of it is not JSON yet." }]);
    setBusy(true);
    setProblem(null);
    try {
      await deed(argumentsOf(form.value, schema));
    } catch (error) {
      setProblem(problemOf(error));
    } finally {
      setBusy(false);
    }
  };
  const run = (): Promise<void> =>
    attempt(async (values) => {
      const { errors: found } = await model.ask("validate", { ...target, arguments: values });
      judged.current = form.value;
      setErrors(found.length ? found : NONE);
      if (found.length) return;
      ran.current = true;
      setCall((await model.ask("call", { ...target, arguments: values })).call);
    });
  const insert = (as: "python" | "magic"): Promise<void> =>
    attempt(async (values) => {
      const { text } = await model.ask("code", { ...target, arguments: values, form: as });
      const where = await services.insertCode(text);
      model.notify(where === "inserted" ? "Inserted into the notebook." : "Copied: paste it into a cell.");
    });
  const reset = (): void => {
    draft.value = {};
    setErrors(NONE);
    setTurn(turn + 1);
  };
  return (
    <section class="mcp-runner" ref={runner} aria-label={`Run ${line(tool.name)}`}>
      <SchemaForm
        key={turn}
        schema={schema}
        initial={draft.value}
        errors={errors}
        onChange={changed}
        onSubmit={() => void run()}
        empty="It takes no arguments."
        head={
          <Button quiet onClick={reset}>
            Reset
          </Button>
        }
      >
        <Button primary disabled={disabled} busy={busy || isRunning} onClick={() => void run()}>
          Run
        </Button>
        {mayInsert && (
          <>
            <Button busy={busy} onClick={() => void insert("python")}>
              Insert as code
            </Button>
            <Button busy={busy} onClick={() => void insert("magic")}>
              Insert as %mcp line
            </Button>
          </>
        )}
      </SchemaForm>
      <div
        class="mcp-outcome"
        ref={outcome}
        onFocusIn={() => (inOutcome.current = true)}
        onFocusOut={(event) => {
          if (event.relatedTarget !== null) inOutcome.current = false;
        }}
      >
        <span class="mcp-unseen" role="status">
          {result ? (result.ok ? "The call succeeded." : "The call failed.") : isRunning ? "The call is running." : ""}
        </span>
        {isRunning && running && <CallProgress call={running} />}
        {isRunning && !running && <div class="mcp-call mcp-dim">sent</div>}
        {problem && <ProblemBox problem={problem} />}
        {result?.ok === false && <ProblemBox problem={result.error} />}
        {result?.ok && <PreviewView preview={result.preview} label={`Result of ${tool.name}`} />}
      </div>
    </section>
  );
}

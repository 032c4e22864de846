import type { JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import type { Value } from "../form/values";
import { argumentsOf } from "../form/values";
import type { FieldError, JsonObject, Problem, ToolRow } from "../protocol";
import { problemOf } from "../store";
import { singleLine, visible } from "../text";
import { trans } from "../translation";
import { useRequest, useLoaded, useAllowed, useInsert, usePanel, useSelect } from "./context";
import { Icon } from "./icons";
import type { MenuItem } from "./menu";
import { MenuButton } from "./menu";
import { Badges, Button, CallProgress, Lines, ProblemBox, SubmitButton } from "./parts";
import { PreviewView } from "./preview";
import { Prose } from "./prose";

/** A tool's form values and last call, kept while other tools are shown. */
export interface Draft {
  value: Value;
  call: number | null;
}

const ANY_OBJECT: JsonObject = { type: "object" };

/** A tool's description, form and result. */
export function ToolView({ row, draft, onChange }: { row: ToolRow; draft: Draft; onChange(): void }): JSX.Element {
  const { server, name } = row;
  const { value, problem, reload } = useLoaded(
    "tool",
    { server, tool: name },
    `${server}\n${name}\n${row.changed}\n${row.disabled}\n${row.decision}`,
  );
  const tool = value ?? row;
  const full = useAllowed("enable_tools");
  const mayCall = useAllowed("call");
  const act = useRequest();
  const [schemaShown, setSchemaShown] = useState(false);
  const items = (): MenuItem[] => [
    {
      label: schemaShown ? trans.__("Hide schema") : trans.__("Show schema"),
      onChoose: () => setSchemaShown(!schemaShown),
    },
    ...(full
      ? [{ label: row.disabled ? trans.__("Enable") : trans.__("Disable"), onChoose: () => void toggle() }]
      : []),
  ];
  const toggle = async (): Promise<void> => {
    await act(row.disabled ? "enable_tools" : "disable_tools", { tools: [{ server, tool: name }] });
    onChange();
  };
  return (
    <div class="mcp-tool">
      <div class="mcp-head">
        <h3>
          <span class="mcp-muted">{singleLine(server)}.</span>
          {singleLine(name)}
        </h3>
        <MenuButton items={items} label={trans.__("Actions of %1", singleLine(name))} kind="mcp-icon-button">
          <Icon name="more" />
        </MenuButton>
      </div>
      {tool.title && tool.title !== name && <div>{singleLine(tool.title)}</div>}
      <div class="mcp-badges">
        <Badges badges={tool.badges} />
        {row.decision !== "allow" && (
          <span class={row.decision === "deny" ? "mcp-badge mcp-badge-danger" : "mcp-badge mcp-badge-neutral"}>
            {row.decision === "deny" ? trans.__("denied by policy") : trans.__("asks first")}
          </span>
        )}
        {row.disabled && <span class="mcp-badge mcp-badge-neutral">{trans.__("disabled")}</span>}
      </div>
      {tool.changed && (
        <p class="mcp-warning">{trans.__("This tool's definition has changed since it was first seen.")}</p>
      )}
      {tool.findings.map((finding) => (
        <p key={finding} class="mcp-warning">
          {visible(finding)}
        </p>
      ))}
      {tool.description && <Description text={tool.description} />}
      {problem && <ProblemBox problem={problem} onRetry={reload} />}
      {schemaShown && value && (
        <>
          <Lines label={trans.__("Schema")} text={visible(JSON.stringify(value.schema ?? ANY_OBJECT, null, 2))} />
          {value.output_schema && (
            <>
              <div class="mcp-muted">{trans.__("Output schema")}</div>
              <Lines label={trans.__("Output schema")} text={visible(JSON.stringify(value.output_schema, null, 2))} />
            </>
          )}
        </>
      )}
      {value && mayCall && <Runner tool={value} draft={draft} disabled={row.disabled} />}
    </div>
  );
}

const MAX_DESCRIPTION = 600;

function Description({ text }: { text: string }): JSX.Element {
  const [all, setAll] = useState(false);
  const shown = text.trim();
  if (shown.length <= MAX_DESCRIPTION) return <Prose text={shown} />;
  return (
    <div>
      <Prose text={all ? shown : `${shown.slice(0, MAX_DESCRIPTION)}\u2026`} />
      <Button quiet onClick={() => setAll(!all)}>
        {all ? trans.__("Less") : trans.__("More")}
      </Button>
    </div>
  );
}

const NO_ERRORS: FieldError[] = [];
/** Milliseconds without typing before arguments are validated again. */
const VALIDATE_DELAY = 400;
const RESULT_TIMEOUT = 3000;
/** Milliseconds in which a result is drawn. */
const DRAWING_TIME = 1000;

/** Whether a call ended without a result, for example because the connection broke. Results may arrive late. */
function useLostResult(isWaiting: boolean, isRunning: boolean): boolean {
  const [lost, setLost] = useState(false);
  const seen = useRef({ runs: false, helloCount: -1 });
  const helloCount = useSelect((state) => state.helloCount);
  useEffect(() => {
    if (!isWaiting) seen.current = { runs: false, helloCount };
    else if (isRunning) seen.current.runs = true;
    setLost(false);
    if (!isWaiting || isRunning || !(seen.current.runs || helloCount > seen.current.helloCount)) return;
    const timer = setTimeout(() => setLost(true), RESULT_TIMEOUT);
    return () => clearTimeout(timer);
  }, [isWaiting, isRunning, helloCount]);
  return lost;
}

function Runner({ tool, draft, disabled }: { tool: ToolRow; draft: Draft; disabled: boolean }): JSX.Element {
  const { model } = usePanel();
  const insertCode = useInsert();
  const mayInsert = useAllowed("code");
  const logs = useAllowed("logs");
  const schema = tool.schema ?? ANY_OBJECT;
  const [form, setForm] = useState<FormState>({ value: draft.value, problems: NO_ERRORS });
  const [errors, setErrors] = useState<FieldError[]>(NO_ERRORS);
  const [call, setCall] = useState(draft.call);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const [resets, setResets] = useState(0);
  const running = useSelect((state) => (call === null ? undefined : state.calls[call]));
  const result = useSelect((state) => (call === null ? undefined : state.results[call]));
  const isAsked = useSelect((state) => Object.values(state.questions).some((each) => each.server === tool.server));
  useEffect(() => {
    draft.call = call;
  }, [draft, call]);
  const handleChange = useCallback(
    (state: FormState) => {
      draft.value = state.value;
      setForm(state);
    },
    [draft],
  );
  const isRunning = call !== null && !result;
  const isLost = useLostResult(isRunning, running !== undefined);
  useEffect(() => {
    if (!isLost) return;
    setCall(null);
    setProblem({
      message: trans.__("The call ended, but its result did not reach this panel."),
      hint: trans.__("See Activity for how it ended."),
    });
  }, [isLost]);
  const outcome = useRef<HTMLDivElement>(null);
  const runner = useRef<HTMLElement>(null);
  const hadFocus = useRef(false);
  useLayoutEffect(() => {
    // The Cancel button disappears with the call; return the focus to Run.
    if (isRunning || !hadFocus.current || outcome.current?.contains(document.activeElement)) return;
    hadFocus.current = false;
    runner.current?.querySelector<HTMLElement>(".mcp-primary")?.focus();
  }, [isRunning, running === undefined]);
  const ran = useRef(false);
  useEffect(() => {
    const box = outcome.current;
    if (!ran.current || !result || !box) return;
    ran.current = false;
    // A table or an image has its height only once it is drawn.
    const observer = new ResizeObserver(() => box.scrollIntoView({ block: "nearest" }));
    observer.observe(box);
    const timer = setTimeout(() => observer.disconnect(), DRAWING_TIME);
    return () => {
      clearTimeout(timer);
      observer.disconnect();
    };
  }, [result]);
  const target = { server: tool.server, tool: tool.name };
  // Validate again while the user fixes errors.
  const validated = useRef(form.value);
  useEffect(() => {
    if (!errors.length || validated.current === form.value) return;
    const timer = setTimeout(() => {
      validated.current = form.value;
      if (form.problems.length) return setErrors(form.problems);
      const ask = model.request("validate", { ...target, arguments: argumentsOf(form.value, schema) });
      ask.then(({ errors: found }) => setErrors(found.length ? found : NO_ERRORS)).catch(() => setErrors(NO_ERRORS));
    }, VALIDATE_DELAY);
    return () => clearTimeout(timer);
  }, [errors, form]);

  const withArguments = async (action: (values: JsonObject) => Promise<void>): Promise<void> => {
    if (busy) return;
    if (form.problems.length) return setErrors(form.problems);
    setBusy(true);
    setProblem(null);
    try {
      await action(argumentsOf(form.value, schema));
    } catch (error) {
      setProblem(problemOf(error));
    } finally {
      setBusy(false);
    }
  };
  const run = (): Promise<void> =>
    withArguments(async (values) => {
      const { errors: found } = await model.request("validate", { ...target, arguments: values });
      validated.current = form.value;
      setErrors(found.length ? found : NO_ERRORS);
      if (found.length) return;
      ran.current = true;
      setCall((await model.request("call", { ...target, arguments: values })).call);
    });
  const insert = (as: "python" | "magic"): Promise<void> =>
    withArguments(async (values) => {
      const { text } = await model.request("code", { ...target, arguments: values, form: as });
      await insertCode(text);
    });
  const reset = (): void => {
    draft.value = {};
    setErrors(NO_ERRORS);
    setResets(resets + 1);
  };
  return (
    <section class="mcp-runner" ref={runner} aria-label={trans.__("Run %1", singleLine(tool.name))}>
      <SchemaForm
        key={resets}
        schema={schema}
        initial={draft.value}
        errors={errors}
        onChange={handleChange}
        onSubmit={() => void run()}
        empty={trans.__("No arguments.")}
        head={
          <Button quiet onClick={reset}>
            {trans.__("Reset")}
          </Button>
        }
      >
        <SubmitButton disabled={disabled} busy={busy || isRunning}>
          {trans.__("Run")}
        </SubmitButton>
        {mayInsert && (
          <span class="mcp-split">
            <Button busy={busy} onClick={() => void insert("python")}>
              {trans.__("Insert as code")}
            </Button>
            <MenuButton
              items={() => [{ label: trans.__("Insert as %mcp line"), onChoose: () => void insert("magic") }]}
              label={trans.__("Other ways to insert it")}
            >
              {"\u25be"}
            </MenuButton>
          </span>
        )}
      </SchemaForm>
      <div
        class="mcp-outcome"
        ref={outcome}
        onFocusIn={() => (hadFocus.current = true)}
        onFocusOut={(event) => {
          if (event.relatedTarget !== null) hadFocus.current = false;
        }}
      >
        <span class="mcp-visually-hidden" role="status">
          {result
            ? result.ok
              ? trans.__("The call succeeded.")
              : trans.__("The call failed.")
            : isRunning
              ? trans.__("The call is running.")
              : ""}
        </span>
        {isRunning && running && <CallProgress call={running} />}
        {isRunning && !running && (
          <div class="mcp-call mcp-muted">
            {isAsked ? trans.__("Waiting for your answer") : trans.__("Waiting to start")}
          </div>
        )}
        {problem && <ProblemBox problem={problem} />}
        {result?.ok === false && (
          <ProblemBox
            problem={result.error}
            onRetry={() => void run()}
            {...(logs && { onLog: () => model.show("logs", { server: tool.server }) })}
          />
        )}
        {result?.ok && <PreviewView preview={result.preview} label={trans.__("Result of %1", tool.name)} />}
      </div>
    </section>
  );
}

/** A server's definition as a form: a program with its arguments and variables, or an address with its headers. */

import type { JSX } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useForm, useProblem } from "../form/context";
import type { FormState } from "../form/form";
import { SchemaForm } from "../form/form";
import type { AnyControlProps } from "../form/inputs";
import { commonAttributes } from "../form/inputs";
import { isObject, valueText } from "../form/schema";
import { argumentsOf } from "../form/values";
import type { FieldError, Json, JsonObject, Problem, TryFields } from "../protocol";
import { problemOf } from "../store";
import { singleLine } from "../text";
import { trans } from "../translation";
import { problemText, usePanel } from "./context";
import { Button } from "./parts";

export type DefinitionKind = "command" | "url";

/** Whether a definition is a program or an address; null if it has neither or both. */
export function kindOf(definition: JsonObject): DefinitionKind | null {
  if ("command" in definition === "url" in definition) return null;
  return "url" in definition ? "url" : "command";
}

const CONTROLS = new Map([
  ["args", Words],
  ["env", Settings],
  ["headers", Settings],
]);

/** The fields and their order. The values of `CONTROLS` are not those of a schema. */
function schemaOf(kind: DefinitionKind): JsonObject {
  const text = (title: string, description = ""): JsonObject => ({ type: "string", title, description });
  const timeout = { type: "number", title: trans.__("Timeout in seconds") };
  const properties: JsonObject =
    kind === "url"
      ? { url: text(trans.__("Address")), headers: text(trans.__("Headers")), timeout }
      : {
          command: text(trans.__("Program"), trans.__("Or paste a whole command, also one for another host.")),
          args: text(trans.__("Arguments"), trans.__("As typed on a command line.")),
          env: text(trans.__("Variables")),
          cwd: text(trans.__("Working folder")),
          timeout,
        };
  return { type: "object", required: [kind], properties };
}

/** A definition that was pasted, with the name that it has there. */
export interface Pasted {
  definition: JsonObject;
  name: string | null;
}

interface Props {
  kind: DefinitionKind;
  initial: JsonObject;
  /** The reason that the definition was refused. */
  problem: Problem | null;
  /** The fields for the place and the name. */
  where: JSX.Element;
  submit: JSX.Element;
  /** Try a definition, or the text of several. */
  onTry(wanted: Pick<TryFields, "by" | "what">, title: string): void;
  /** Fill in what was pasted. */
  onPaste(pasted: Pasted): void;
}

export function DefinitionForm(props: Props): JSX.Element {
  const { initial, problem, onTry, onPaste } = props;
  const { model } = usePanel();
  const [kind, setKind] = useState(props.kind);
  const schema = useMemo(() => schemaOf(kind), [kind]);
  const [form, setForm] = useState<FormState>({ value: initial, problems: NO_ERRORS });
  const [errors, setErrors] = useState(NO_ERRORS);
  useEffect(() => setErrors(problem?.key ? [fieldError(problem.key, problem)] : NO_ERRORS), [problem]);
  const handleChange = useCallback((state: FormState) => {
    setForm(state);
    // Edited as JSON, a program may become an address.
    const now = isObject(state.value) && kindOf(state.value);
    if (now) setKind(now);
  }, []);
  /** Read a command or document in place of the program or address; null if it does not define exactly one server. */
  const read = async (definition: JsonObject): Promise<JsonObject | null> => {
    const { [kind]: given, ...others } = definition;
    const typed = valueText(given ?? "").trim();
    const isPlain = !/\s/.test(typed) && (kind === "url" || !/^https?:/.test(typed));
    if (isPlain || typed === initial[kind]) return definition;
    const pasted = await model.request("pasted", { text: typed });
    if (!pasted) return null;
    const whole = joined(JSON.parse(pasted.text) as JsonObject, others);
    onPaste({ definition: whole, name: pasted.name });
    return whole;
  };
  const send = async (): Promise<void> => {
    if (form.problems.length) return setErrors(form.problems);
    const definition = argumentsOf(form.value, schema);
    if (!kindOf(definition)) return setErrors([{ path: [kind], message: trans.__("Required") }]);
    try {
      const whole = await read(definition);
      const typed = valueText(definition[kind] ?? "");
      if (whole) onTry({ by: "fields", what: JSON.stringify(whole) }, typed);
      else onTry({ by: "command", what: typed }, typed);
    } catch (error) {
      setErrors([{ path: [kind], message: problemText(problemOf(error)) }]);
    }
  };
  return (
    <div
      class="mcp-add-form"
      onPaste={({ target, clipboardData }) => {
        const field = target as HTMLTextAreaElement;
        if (field.value || !field.closest(`[data-path='["${kind}"]']`)) return;
        const text = clipboardData?.getData("text/plain");
        // An error is shown when the form is sent.
        if (text) void read({ ...argumentsOf(form.value, schema), [kind]: text }).catch(() => undefined);
      }}
    >
      <SchemaForm
        schema={schema}
        initial={initial}
        errors={errors}
        controls={CONTROLS}
        onChange={handleChange}
        onSubmit={() => void send()}
        empty=""
        foot={props.where}
      >
        {props.submit}
      </SchemaForm>
    </div>
  );
}

const NO_ERRORS: FieldError[] = [];

/** The error of a value, which the kernel names as `timeout` or `env.TOKEN`, for the field that has it. */
function fieldError(key: string, problem: Problem): FieldError {
  const [name = key] = key.split(/[.[]/);
  const message = problemText(problem).split(`${key}: `).at(-1) ?? "";
  return { path: [name], message: name === key ? message : `${key}: ${message}` };
}

/** Add what was filled in to a definition: lists are joined, and so are objects. */
function joined(definition: JsonObject, filled: JsonObject): JsonObject {
  const whole: JsonObject = { ...filled, ...definition };
  for (const [key, value] of Object.entries(definition)) {
    const other = filled[key];
    if (Array.isArray(value) && Array.isArray(other)) whole[key] = [...value, ...other];
    else if (isObject(value) && isObject(other)) whole[key] = { ...value, ...other };
  }
  return whole;
}

// -- arguments

const PART = /(\s+)|([^\s"'\\]+)|\\([\s"'\\$`&|;<>()#])|(\\)|"((?:[^"\\]|\\[^])*)"|'([^']*)'/y;
/** What is replaced outside of single quotes. */
const OPEN = /\\(["\\$`\n])|\$(?=[A-Za-z_])(\w+)/g;
/** A word that needs no quotes. */
const PLAIN = /^(?:[^\s"'\\$`&|;<>()#]|\$\{)+$/;

/** Split a line as shells do, like the kernel; null if a quote is not closed. `$NAME` becomes `${NAME}`. */
export function splitWords(line: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  for (PART.lastIndex = 0; PART.lastIndex < line.length;) {
    const match = PART.exec(line);
    if (!match) return null;
    const [, blank, plain, escaped, backslash, double, single] = match;
    if (blank !== undefined) {
      if (word !== null) words.push(word);
      word = null;
      continue;
    }
    const open = (plain ?? double)?.replace(OPEN, (_, sign?: string, name?: string) => sign ?? `\${${name}}`);
    word = (word ?? "") + (open ?? escaped ?? backslash ?? single ?? "");
  }
  return word === null ? words : [...words, word];
}

/** Join words to a line that `splitWords` splits into them again. */
export const joinWords = (words: readonly string[]): string =>
  words.map((word) => (PLAIN.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`)).join(" ");

function Words(props: AnyControlProps): JSX.Element {
  const { path, value } = props;
  const { change } = useForm();
  const [text, setText] = useState(() => joinWords(Array.isArray(value) ? value.map(valueText) : []));
  const problem = splitWords(text) ? null : trans.__("A quote is not closed.");
  useProblem(path, problem);
  return (
    <>
      <textarea
        {...commonAttributes(props)}
        class="mcp-input mcp-text mcp-code"
        rows={1}
        spellcheck={false}
        aria-invalid={props.invalid || problem !== null}
        value={text}
        onInput={({ currentTarget }) => {
          const words = splitWords(currentTarget.value);
          setText(currentTarget.value);
          if (words) change(path, words.length ? words : undefined);
        }}
      />
      {problem && <span class="mcp-field-error">{problem}</span>}
    </>
  );
}

// -- variables and headers

interface Setting {
  id: number;
  name: string;
  value: Json;
}

const SECRET_NAME = /key|token|secret|passw|auth|credential/i;

/** Where a value comes from; empty for one that the definition has. */
function originOf({ name, value }: Setting): string {
  const text = valueText(value);
  if (text.includes("${secret:")) return trans.__("From your secrets");
  if (text.includes("${input:")) return trans.__("Asked for at the start");
  if (text.includes("${")) return trans.__("A variable of the kernel");
  if (text.startsWith("\u2022")) return trans.__("Hidden; it stays as it is");
  return text && SECRET_NAME.test(name) ? trans.__("Will be kept in your secrets") : "";
}

// eslint-disable-next-line ipymcp/translated -- a selector
const LAST_NAME = ".mcp-setting:last-of-type input";

/** Rows of names and values, which can be added and removed. */
function Settings({ id, path, value, invalid, describedBy }: AnyControlProps): JSX.Element {
  const { change } = useForm();
  const next = useRef(0);
  const box = useRef<HTMLDivElement>(null);
  const [rows, setRows] = useState<Setting[]>(() =>
    Object.entries(isObject(value) ? value : {}).map(([name, each]) => ({ id: next.current++, name, value: each })),
  );
  const problemAt = ({ name }: Setting, index: number): string | null => {
    if (!name) return trans.__("A name is missing.");
    const isFirst = rows.findIndex((each) => each.name === name) === index;
    return isFirst ? null : trans.__("%1 is there twice.", singleLine(name));
  };
  useProblem(path, rows.map(problemAt).find(Boolean) ?? null);
  const update = (changed: Setting[], focus = ""): void => {
    setRows(changed);
    change(path, changed.length ? Object.fromEntries(changed.map((row) => [row.name, row.value])) : undefined);
    if (focus) setTimeout(() => box.current?.querySelector<HTMLElement>(focus)?.focus());
  };
  const add = path[0] === "headers" ? trans.__("Add header") : trans.__("Add variable");
  return (
    <div ref={box} role="group" aria-labelledby={`${id}-name`} aria-describedby={describedBy}>
      {rows.map((row, index) => {
        const origin = originOf(row);
        const isHidden = SECRET_NAME.test(row.name) && !/\$\{|^\u2022/.test(valueText(row.value));
        const edit = (part: Partial<Setting>): void =>
          update(rows.map((each) => (each === row ? { ...row, ...part } : each)));
        return (
          <div key={row.id} class="mcp-setting">
            <input
              class="mcp-input mcp-code"
              aria-label={trans.__("Name %1", index + 1)}
              aria-invalid={invalid && problemAt(row, index) !== null}
              placeholder={trans.__("Name")}
              value={row.name}
              onInput={({ currentTarget }) => edit({ name: currentTarget.value })}
            />
            <input
              class="mcp-input mcp-code"
              type={(isHidden ? "password" : "text") as "text"}
              autocomplete="new-password"
              aria-label={trans.__("Value of %1", singleLine(row.name) || index + 1)}
              aria-describedby={origin ? `${id}-${row.id}` : undefined}
              placeholder={trans.__("Value")}
              value={valueText(row.value)}
              onInput={({ currentTarget }) => edit({ value: currentTarget.value })}
            />
            <Button
              quiet
              label={trans.__("Remove %1", singleLine(row.name) || index + 1)}
              onClick={() =>
                update(
                  rows.filter((each) => each !== row),
                  "[id]",
                )
              }
            >
              {"\u2715"}
            </Button>
            {origin && (
              <span class="mcp-muted" id={`${id}-${row.id}`}>
                {origin}
              </span>
            )}
          </div>
        );
      })}
      <button
        type="button"
        class="mcp-button"
        id={id}
        aria-label={add}
        onClick={() => update([...rows, { id: next.current++, name: "", value: "" }], LAST_NAME)}
      >
        {add}
      </button>
    </div>
  );
}

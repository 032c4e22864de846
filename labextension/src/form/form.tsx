import type { ComponentChildren, JSX } from "preact";
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ArgumentError } from "../protocol";
import { visible } from "../text";
import { useUnique } from "../views/context";
import type { FormScope } from "./context";
import { FormContext, errorsByPath, keyOf, pathText } from "./context";
import { Properties } from "./fields";
import { JsonInput } from "./inputs";
import type { Field, Schema } from "./schema";
import { fieldOf, isObject } from "./schema";
import type { Value } from "./values";
import { argumentsOf, withValue } from "./values";

/** What a form holds and whether it can be sent. */
export interface FormState {
  value: Value;
  /** Whether some text is not JSON yet. */
  broken: boolean;
}

interface FormProps {
  schema: Schema;
  initial?: Value;
  errors: ArgumentError[];
  onChange(state: FormState): void;
  onSubmit(): void;
  /** What an empty form says. */
  empty: string;
  /** Beside the way to edit it as JSON. */
  head?: ComponentChildren;
  /** What is done with it. */
  children?: ComponentChildren;
}

/** A form made from a JSON Schema. It only draws: whether the arguments fit is the kernel's to say. */
export function SchemaForm(props: FormProps): JSX.Element {
  const { schema, errors, onChange, onSubmit, children } = props;
  const [value, setValue] = useState<Value>(props.initial ?? {});
  const [asJson, setAsJson] = useState(false);
  const bad = useRef(new Set<string>());
  const [isBad, setBad] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const prefix = useUnique();
  const field = useMemo(() => topOf(schema), [schema]);
  const scope = useMemo<Omit<FormScope, "errors">>(
    () => ({
      root: schema,
      prefix,
      change: (path, change) => setValue((old: Value) => withValue(old, path, change)),
      broken: (path, problem) => {
        if (problem === null) bad.current.delete(keyOf(path));
        else bad.current.add(keyOf(path));
        setBad(bad.current.size > 0);
      },
    }),
    [schema, prefix],
  );
  const full = useMemo<FormScope>(() => ({ ...scope, errors: errorsByPath(errors) }), [scope, errors]);
  const broken = isBad || (asJson && value !== undefined && !isObject(value));
  useEffect(() => onChange({ value, broken }), [value, broken, onChange]);
  useEffect(() => focusFirst(form.current, errors), [errors]);
  const toggle = useCallback(() => {
    bad.current.clear();
    setBad(false);
    setAsJson(!asJson);
    setValue((old: Value) => argumentsOf(old, schema));
  }, [asJson, schema]);
  const titles = (name: string): string | null => {
    const property = field.properties.find((each) => each.name === name);
    return property ? fieldOf(property.schema, schema).title : null;
  };
  const isEmpty = field.kind === "object" && !field.properties.length && field.rest === null;
  return (
    <FormContext.Provider value={full}>
      <form
        ref={form}
        class="mcp-form"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          onSubmit();
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey || event.shiftKey)) return;
          event.preventDefault();
          event.stopPropagation();
          onSubmit();
        }}
      >
        {!isEmpty && (
          <div class="mcp-form-head">
            {props.head}
            <button type="button" class="mcp-button mcp-quiet" aria-pressed={asJson} onClick={toggle}>
              {asJson ? "Edit as form" : "Edit as JSON"}
            </button>
          </div>
        )}
        <Complaints errors={errors} titleOf={titles} />
        {asJson ? (
          <JsonInput
            id={`${prefix}-json`}
            field={{ ...field, kind: "json" } as Extract<Field, { kind: "json" }>}
            path={[]}
            value={value}
            required
            disabled={false}
            about={undefined}
            invalid={errors.length > 0}
            rows={8}
          />
        ) : isEmpty ? (
          <p class="mcp-dim">{props.empty}</p>
        ) : field.kind === "object" ? (
          <Properties field={field} path={[]} value={value} within={field.refs} />
        ) : null}
        <div class="mcp-actions">{children}</div>
      </form>
    </FormContext.Provider>
  );
}

/** Arguments are an object, whatever their schema says; one that names no properties takes any. */
function topOf(schema: Schema): Extract<Field, { kind: "object" }> {
  const field = fieldOf(schema, schema);
  if (field.kind === "object") return field;
  const isOpen = !isObject(schema) || !("properties" in schema);
  return { ...field, kind: "object", properties: [], rest: isOpen ? true : null };
}

const MOST = 20;

/** All that the kernel finds wrong, announced; also what belongs to a field that is not drawn. */
function Complaints({
  errors,
  titleOf,
}: {
  errors: ArgumentError[];
  titleOf(name: string): string | null;
}): JSX.Element {
  return (
    <div role="alert">
      {errors.length > 0 && (
        <ul class="mcp-complaints">
          {errors.slice(0, MOST).map(({ path, message }, index) => (
            <li key={index}>
              {path.length > 0 && <Place path={path} titleOf={titleOf} />} {visible(message)}
            </li>
          ))}
          {errors.length > MOST && <li>and {errors.length - MOST} more</li>}
        </ul>
      )}
    </div>
  );
}

/** The field that an error is about, by the label that the form has for it. */
function Place({ path, titleOf }: { path: ArgumentError["path"]; titleOf(name: string): string | null }): JSX.Element {
  const [first] = path;
  const title = path.length === 1 && typeof first === "string" ? titleOf(first) : null;
  return title ? <strong>{visible(title)}</strong> : <code>{visible(pathText(path))}</code>;
}

function focusFirst(form: HTMLFormElement | null, errors: ArgumentError[]): void {
  // From the button that was pressed; who is typing stays where they are.
  const focused = document.activeElement;
  if (!form || !errors.length || !focused?.matches("button") || !form.contains(focused)) return;
  form.querySelector<HTMLElement>(".mcp-field :is(input,select,textarea)[aria-invalid=true]")?.focus();
}

import type { ComponentChildren, JSX } from "preact";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { FieldError } from "../protocol";
import { visible } from "../text";
import { trans } from "../translation";
import { useUniqueId } from "../views/context";
import type { Controls, FormContextValue } from "./context";
import { FormContext, errorsByPath, keyOf, pathText } from "./context";
import { Properties } from "./fields";
import { JsonInput } from "./inputs";
import type { Field, Schema } from "./schema";
import { fieldOf, isObject, valueText } from "./schema";
import type { Path, Value } from "./values";
import { argumentsOf, emptyItems, withValue, withoutBlanks, withRequired } from "./values";

/** A form's value and whether it can be submitted. */
export interface FormState {
  value: Value;
  /** Why the form cannot be sent: fields that are chosen or added but empty, and invalid JSON. */
  problems: FieldError[];
}

type Strings = { [name: string]: string };

interface FormProps {
  schema: Schema;
  initial?: Value;
  errors: FieldError[];
  onChange(state: FormState): void;
  onSubmit(): void;
  /** Suggest values of a property, given what is typed and the other values. */
  suggest?: (name: string, typed: string, others: Strings) => Promise<string[]>;
  controls?: Controls;
  /** Text for a schema without fields. */
  empty: string;
  /** Shown beside the button that edits the value as JSON. */
  head?: ComponentChildren;
  /** Shown above the buttons. */
  foot?: ComponentChildren;
  /** Action buttons. */
  children?: ComponentChildren;
}

/** A form generated from a JSON Schema. Validation is up to the kernel. */
export function SchemaForm(props: FormProps): JSX.Element {
  const { schema, errors, onChange, onSubmit, controls = NO_CONTROLS, children } = props;
  const [value, setValue] = useState<Value>(props.initial ?? {});
  const [asJson, setAsJson] = useState(false);
  const [fieldProblems, setFieldProblems] = useState<ReadonlyMap<string, FieldError>>(new Map());
  const form = useRef<HTMLFormElement>(null);
  const prefix = useUniqueId();
  const field = useMemo(() => objectField(schema), [schema]);
  const scope = useMemo<Omit<FormContextValue, "errors" | "problems">>(
    () => ({
      root: schema,
      prefix,
      controls,
      change: (path, change) => setValue((old: Value) => withValue(old, path, change)),
      setProblem: (path, problem) =>
        setFieldProblems((old: ReadonlyMap<string, FieldError>) => {
          const next = new Map(old);
          if (problem === null) next.delete(keyOf(path));
          else next.set(keyOf(path), { path, message: problem });
          return next;
        }),
    }),
    [schema, prefix],
  );
  const latest = useRef({ value, suggest: props.suggest });
  latest.current = { value, suggest: props.suggest };
  const isSuggesting = props.suggest !== undefined;
  const contextValue = useMemo<FormContextValue>(() => {
    const suggest = async ([name]: Path, typed: string): Promise<string[]> => {
      const given = Object.entries(isObject(latest.current.value) ? latest.current.value : {});
      const others = given.filter(([key]) => key !== name).map(([key, each]) => [key, valueText(each)]);
      const found = latest.current.suggest?.(String(name), typed, Object.fromEntries(others) as Strings);
      return (await found) ?? [];
    };
    return { ...scope, errors: errorsByPath(errors), problems: fieldProblems, ...(isSuggesting && { suggest }) };
  }, [scope, errors, fieldProblems, isSuggesting]);
  const problems = useMemo<FieldError[]>(() => {
    const isNoObject = asJson && value !== undefined && !isObject(value);
    if (isNoObject) return [{ path: [], message: trans.__("The arguments must be a JSON object.") }];
    const empty = emptyItems(value).map((each) => [keyOf(each.path), each] as const);
    return [...new Map([...empty, ...fieldProblems]).values()];
  }, [fieldProblems, value, asJson]);
  // At once: Enter may follow what was typed before the next frame.
  useLayoutEffect(() => onChange({ value, problems }), [value, problems, onChange]);
  useEffect(() => focusFirstError(form.current, errors), [errors]);
  const toggle = useCallback(() => {
    setFieldProblems(new Map());
    setAsJson(!asJson);
    setValue((old: Value) => (asJson ? withoutBlanks : withRequired)(argumentsOf(old, schema), schema));
  }, [asJson, schema]);
  const titles = (name: string): string | null => {
    const property = field.properties.find((each) => each.name === name);
    return property ? fieldOf(property.schema, schema).title : null;
  };
  const isEmpty = field.kind === "object" && !field.properties.length && field.rest === null;
  return (
    <FormContext.Provider value={contextValue}>
      <form
        ref={form}
        class="mcp-form"
        noValidate
        onSubmit={(event) => {
          event.preventDefault();
          onSubmit();
        }}
        onKeyDown={(event) => {
          const { target, currentTarget, key, ctrlKey, metaKey, shiftKey, isComposing } = event;
          if (key !== "Enter" || isComposing) return;
          // A field of one row is a text area, so that Shift+Enter makes a line in it.
          const isOneRow = (target as HTMLElement).matches("textarea[rows='1']");
          if (!(ctrlKey || metaKey || (isOneRow && !shiftKey))) return;
          event.preventDefault();
          event.stopPropagation();
          currentTarget.querySelector<HTMLElement>("[type=submit]")?.click();
        }}
      >
        {!isEmpty && (
          <div class="mcp-form-head">
            {props.head}
            <button type="button" class="mcp-button mcp-quiet" aria-pressed={asJson} onClick={toggle}>
              {asJson ? trans.__("Edit as fields") : trans.__("Edit as JSON")}
            </button>
          </div>
        )}
        <FormErrors errors={errors} titleOf={titles} />
        {asJson ? (
          <JsonInput
            id={`${prefix}-json`}
            field={{ ...field, kind: "json" } as Extract<Field, { kind: "json" }>}
            path={[]}
            value={value}
            required
            disabled={false}
            describedBy={undefined}
            invalid={errors.length > 0}
            rows={8}
          />
        ) : isEmpty ? (
          <p class="mcp-muted">{props.empty}</p>
        ) : field.kind === "object" ? (
          <Properties field={field} path={[]} value={value} parentRefs={field.refs} />
        ) : null}
        {props.foot}
        <div class="mcp-actions">{children}</div>
      </form>
    </FormContext.Provider>
  );
}

const NO_CONTROLS: Controls = new Map();

/** Treat any schema as an object schema; without `properties` it accepts any key. */
function objectField(schema: Schema): Extract<Field, { kind: "object" }> {
  const field = fieldOf(schema, schema);
  if (field.kind === "object") return field;
  const isOpen = !isObject(schema) || !("properties" in schema);
  return { ...field, kind: "object", properties: [], rest: isOpen ? true : null };
}

const MAX_ERRORS = 20;

/** All validation errors, announced to screen readers, including those of hidden fields. */
function FormErrors({ errors, titleOf }: { errors: FieldError[]; titleOf(name: string): string | null }): JSX.Element {
  return (
    <div role="alert">
      {errors.length > 0 && (
        <ul class="mcp-form-errors">
          {errors.slice(0, MAX_ERRORS).map(({ path, message }, index) => (
            <li key={index}>
              {path.length > 0 && <ErrorLocation path={path} titleOf={titleOf} />} {visible(message)}
            </li>
          ))}
          {errors.length > MAX_ERRORS && <li>{trans.__("and %1 more", errors.length - MAX_ERRORS)}</li>}
        </ul>
      )}
    </div>
  );
}

/** The label or path of the field that an error refers to. */
function ErrorLocation({
  path,
  titleOf,
}: {
  path: FieldError["path"];
  titleOf(name: string): string | null;
}): JSX.Element {
  const [first] = path;
  const title = path.length === 1 && typeof first === "string" ? titleOf(first) : null;
  return title ? <strong>{visible(title)}</strong> : <code>{visible(pathText(path))}</code>;
}

function focusFirstError(form: HTMLFormElement | null, errors: FieldError[]): void {
  // Move the focus only from a pressed button, not while the user is typing.
  const focused = document.activeElement;
  if (!form || !errors.length || !focused?.matches("button") || !form.contains(focused)) return;
  form
    .querySelector<HTMLElement>(".mcp-field :is(input,select,textarea,[role=radiogroup])[aria-invalid=true]")
    ?.focus();
}

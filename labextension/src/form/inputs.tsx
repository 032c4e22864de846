/** Controls for values without nested fields. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Json } from "../protocol";
import { singleLine } from "../text";
import { trans } from "../translation";
import { keyOf, useForm, useProblem } from "./context";
import type { Field, Option } from "./schema";
import { isLongText, valueText } from "./schema";
import type { Path, Value } from "./values";

export interface AnyControlProps {
  id: string;
  field: Field;
  path: Path;
  value: Value;
  required: boolean;
  disabled: boolean;
  /** Ids of the describing elements. */
  describedBy: string | undefined;
  invalid: boolean;
}

export type ControlProps<Kind extends Field["kind"]> = Omit<AnyControlProps, "field"> & {
  field: Extract<Field, { kind: Kind }>;
};

const placeholder = (field: Field): string =>
  field.default === undefined ? "" : singleLine(valueText(field.default)).slice(0, 80);

interface Attributes {
  id: string;
  disabled: boolean;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean;
  "aria-required": boolean;
}

export function commonAttributes(props: AnyControlProps): Attributes {
  return {
    id: props.id,
    disabled: props.disabled,
    "aria-describedby": props.describedBy,
    "aria-invalid": props.invalid,
    "aria-required": props.required,
  };
}

/** The label of the choice that sends nothing. */
export function unsetLabel({ field, required }: AnyControlProps): string {
  if (field.default !== undefined) return trans.__("Default: %1", placeholder(field));
  return required ? trans.__("Choose\u2026") : trans.__("Not set");
}

const TYPES = { text: "text", password: "password", date: "date", time: "time", email: "email", url: "url" } as const;

/** Milliseconds without typing before values are suggested. */
const SUGGEST_DELAY = 200;

/** The values that are suggested for a field while it has the focus. */
function useSuggestions(path: Path, typed: string, hasFocus: boolean): string[] {
  const { suggest } = useForm();
  const [found, setFound] = useState<string[]>([]);
  useEffect(() => {
    if (!suggest || !hasFocus) return;
    let isCurrent = true;
    const ask = (): void => void suggest(path, typed).then((values) => isCurrent && setFound(values));
    const timer = setTimeout(ask, SUGGEST_DELAY);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [typed, hasFocus, keyOf(path)]);
  return found;
}

export function TextInput(props: ControlProps<"text">): JSX.Element {
  const { field, value, path, id } = props;
  const { change, suggest } = useForm();
  const [hasFocus, setHasFocus] = useState(false);
  const text = value === undefined || value === null ? "" : valueText(value);
  const set = (event: Event): void => {
    const typed = (event.currentTarget as HTMLInputElement).value;
    change(path, typed === "" ? undefined : typed);
  };
  const suggested = useSuggestions(path, text, hasFocus);
  const options = [...new Set([...field.examples, ...suggested])];
  if (field.format === "date-time") return <DateTimeInput {...props} />;
  const isLong = field.format === "long" || (field.format === "text" && isLongText(String(path.at(-1))));
  if (isLong || (field.format === "text" && !field.examples.length && !suggest)) {
    return (
      <textarea
        {...commonAttributes(props)}
        class="mcp-input mcp-text"
        rows={isLong ? 4 : 1}
        placeholder={placeholder(field)}
        value={text}
        onInput={set}
        spellcheck={false}
      />
    );
  }
  return (
    <>
      <input
        {...commonAttributes(props)}
        class="mcp-input"
        type={TYPES[field.format === "long" ? "text" : field.format] as "text"}
        placeholder={placeholder(field)}
        value={text}
        onInput={set}
        onFocus={() => setHasFocus(true)}
        onBlur={() => setHasFocus(false)}
        list={options.length ? `${id}-examples` : undefined}
        autocomplete={field.format === "password" ? "new-password" : "off"}
        spellcheck={false}
      />
      {options.length > 0 && (
        <datalist id={`${id}-examples`}>
          {options.map((example) => (
            <option key={example} value={example} />
          ))}
        </datalist>
      )}
    </>
  );
}

/** A date and time in the browser's time zone, sent with its UTC offset (RFC 3339). */
function DateTimeInput(props: ControlProps<"text">): JSX.Element {
  const { change } = useForm();
  const { value, path } = props;
  const local = typeof value === "string" ? value.slice(0, 16) : "";
  return (
    <input
      {...commonAttributes(props)}
      class="mcp-input"
      type="datetime-local"
      value={local}
      onInput={(event) => {
        const typed = event.currentTarget.value;
        change(path, typed === "" ? undefined : withOffset(typed));
      }}
    />
  );
}

function withOffset(local: string): string {
  const minutes = -new Date(local).getTimezoneOffset() || 0;
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const seconds = local.length === 16 ? ":00" : "";
  return `${local}${seconds}${minutes < 0 ? "-" : "+"}${String(hours).padStart(2, "0")}:${String(rest).padStart(2, "0")}`;
}

const JSON_NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** Parse a number; return other text unchanged for the kernel to reject. */
function parseNumber(text: string): Value {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const value = Number(trimmed);
  const isExact = !/^-?\d+$/.test(trimmed) || Number.isSafeInteger(value);
  return JSON_NUMBER.test(trimmed) && isExact && Number.isFinite(value) ? value : trimmed;
}

export function NumberInput(props: ControlProps<"number">): JSX.Element {
  const { field, value, path } = props;
  const { change } = useForm();
  const [text, setText] = useState(value === undefined || value === null ? "" : valueText(value));
  const typedValue = parseNumber(text);
  useEffect(() => {
    if (typedValue !== value) setText(value === undefined || value === null ? "" : valueText(value));
  }, [value]);
  return (
    <input
      {...commonAttributes(props)}
      class="mcp-input mcp-number"
      type="text"
      inputMode={field.integer ? "numeric" : "decimal"}
      placeholder={placeholder(field)}
      value={text}
      autocomplete="off"
      onInput={(event) => {
        setText(event.currentTarget.value);
        change(path, parseNumber(event.currentTarget.value));
      }}
    />
  );
}

/** A choice of true, false and, where it may be left out, what that means. */
export function BooleanInput(props: ControlProps<"boolean">): JSX.Element {
  const { value, path, id } = props;
  const { change } = useForm();
  const options = [
    { value: true, label: trans.__("True") },
    { value: false, label: trans.__("False") },
    ...(props.required ? [] : [{ value: undefined, label: unsetLabel(props) }]),
  ];
  const { disabled, ...attributes } = commonAttributes(props);
  return (
    <span {...attributes} role="radiogroup" class="mcp-segment" aria-labelledby={`${id}-name`} tabIndex={-1}>
      {options.map((option) => (
        <label key={option.label}>
          <input
            type="radio"
            name={id}
            disabled={disabled}
            checked={(value ?? undefined) === option.value}
            onChange={() => change(path, option.value)}
          />
          {option.label}
        </label>
      ))}
    </span>
  );
}

export function EnumInput(props: ControlProps<"enum">): JSX.Element {
  return <Options {...props} options={props.field.options} />;
}

function Options({ options, ...props }: AnyControlProps & { options: Option[] }): JSX.Element {
  const { value, path } = props;
  const { change } = useForm();
  const index = options.findIndex((option) => option.value === value);
  return (
    <select
      {...commonAttributes(props)}
      class="mcp-input mcp-select"
      value={String(index)}
      onChange={(event) => change(path, options[Number(event.currentTarget.value)]?.value)}
    >
      <option value="-1">{unsetLabel(props)}</option>
      {options.map((option, each) => (
        <option key={each} value={String(each)}>
          {singleLine(option.label)}
        </option>
      ))}
    </select>
  );
}

/** A checkbox for each option. */
export function MultiSelect({
  id,
  field,
  path,
  value,
  disabled,
  describedBy: about,
}: ControlProps<"several">): JSX.Element {
  const { change } = useForm();
  const chosen = Array.isArray(value) ? value : [];
  const toggle = (option: Json, on: boolean): void => {
    const next = field.options
      .map((each) => each.value)
      .filter((each) => (each === option ? on : chosen.includes(each)));
    change(path, next.length ? next : undefined);
  };
  return (
    <span id={id} role="group" class="mcp-multi-select" aria-describedby={about} tabIndex={-1}>
      {field.options.map((option) => (
        <label key={valueText(option.value)} class="mcp-check">
          <input
            type="checkbox"
            disabled={disabled}
            checked={chosen.includes(option.value)}
            onChange={(event) => toggle(option.value, event.currentTarget.checked)}
          />
          {singleLine(option.label)}
        </label>
      ))}
    </span>
  );
}

/** A constant: sent if it is required, else if its checkbox is checked. */
export function FixedInput(props: ControlProps<"const" | "null">): JSX.Element {
  const { field, path, value, required } = props;
  const { change } = useForm();
  const fixed = field.kind === "const" ? field.value : null;
  if (required) return <code id={props.id}>{singleLine(valueText(fixed))}</code>;
  return (
    <label class="mcp-check">
      <input
        {...commonAttributes(props)}
        type="checkbox"
        checked={value !== undefined}
        onChange={(event) => change(path, event.currentTarget.checked ? fixed : undefined)}
      />
      <code>{singleLine(valueText(fixed))}</code>
    </label>
  );
}

/** A JSON text area for schemas without a dedicated control. */
export function JsonInput(props: AnyControlProps & { rows?: number }): JSX.Element {
  const { field, path, value } = props;
  const { change } = useForm();
  const [text, setText] = useState(() => formatJson(value));
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (problem === null && formatJson(parseJson(text).value) !== formatJson(value)) setText(formatJson(value));
  }, [value]);
  useProblem(path, problem);
  const set = (typed: string): void => {
    const read = parseJson(typed);
    setText(typed);
    setProblem(read.problem);
    if (read.problem === null) change(path, read.value);
  };
  return (
    <>
      <textarea
        {...commonAttributes(props)}
        class="mcp-input mcp-code"
        rows={props.rows ?? 3}
        placeholder={placeholder(field) || "JSON"}
        value={text}
        spellcheck={false}
        aria-invalid={props.invalid || problem !== null}
        onInput={(event) => set(event.currentTarget.value)}
      />
      {problem !== null && <span class="mcp-field-error">{problem}</span>}
    </>
  );
}

const formatJson = (value: Value): string => (value === undefined ? "" : JSON.stringify(value, null, 2));

function parseJson(text: string): { value: Value; problem: string | null } {
  if (text.trim() === "") return { value: undefined, problem: null };
  try {
    return { value: JSON.parse(text) as Json, problem: null };
  } catch {
    return { value: undefined, problem: trans.__('Invalid JSON. Strings need double quotes: "text".') };
  }
}

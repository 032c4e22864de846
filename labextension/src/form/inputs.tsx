/** The controls for values that hold no others. */

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Json } from "../protocol";
import { line } from "../text";
import { keyOf, useForm } from "./context";
import type { Field, Option } from "./schema";
import { shown } from "./schema";
import type { Path, Value } from "./values";

export interface AnyControlProps {
  id: string;
  field: Field;
  path: Path;
  value: Value;
  required: boolean;
  disabled: boolean;
  /** Ids of what describes it. */
  about: string | undefined;
  invalid: boolean;
}

export type ControlProps<Kind extends Field["kind"]> = Omit<AnyControlProps, "field"> & {
  field: Extract<Field, { kind: Kind }>;
};

const placeholder = (field: Field): string =>
  field.default === undefined ? "" : line(shown(field.default)).slice(0, 80);

interface Attributes {
  id: string;
  disabled: boolean;
  "aria-describedby": string | undefined;
  "aria-invalid": boolean;
  "aria-required": boolean;
}

function common(props: AnyControlProps): Attributes {
  return {
    id: props.id,
    disabled: props.disabled,
    "aria-describedby": props.about,
    "aria-invalid": props.invalid,
    "aria-required": props.required,
  };
}

const TYPES = { text: "text", password: "password", date: "date", time: "time", email: "email", url: "url" } as const;

export function TextInput(props: ControlProps<"text">): JSX.Element {
  const { field, value, path, id } = props;
  const { change } = useForm();
  const text = value === undefined || value === null ? "" : shown(value);
  const set = (event: Event): void => {
    const typed = (event.currentTarget as HTMLInputElement).value;
    change(path, typed === "" ? undefined : typed);
  };
  if (field.format === "date-time") return <MomentInput {...props} />;
  if (field.format === "long" || (field.format === "text" && !field.examples.length)) {
    return (
      <textarea
        {...common(props)}
        class="mcp-input mcp-text"
        rows={field.format === "long" ? 4 : 1}
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
        {...common(props)}
        class="mcp-input"
        type={TYPES[field.format] as "text"}
        placeholder={placeholder(field)}
        value={text}
        onInput={set}
        list={field.examples.length ? `${id}-examples` : undefined}
        autocomplete={field.format === "password" ? "new-password" : "off"}
        spellcheck={false}
      />
      {field.examples.length > 0 && (
        <datalist id={`${id}-examples`}>
          {field.examples.map((example) => (
            <option key={example} value={example} />
          ))}
        </datalist>
      )}
    </>
  );
}

/** A date and time of day in this browser's time zone, sent with its offset (RFC 3339). */
function MomentInput(props: ControlProps<"text">): JSX.Element {
  const { change } = useForm();
  const { value, path } = props;
  const local = typeof value === "string" ? value.slice(0, 16) : "";
  return (
    <input
      {...common(props)}
      class="mcp-input"
      type="datetime-local"
      value={local}
      onInput={(event) => {
        const typed = event.currentTarget.value;
        change(props.path.length ? path : [], typed === "" ? undefined : withOffset(typed));
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

/** The number, or the text as typed: the kernel says what is wrong with it. */
function numberOf(text: string): Value {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const value = Number(trimmed);
  const isExact = !/^-?\d+$/.test(trimmed) || Number.isSafeInteger(value);
  return JSON_NUMBER.test(trimmed) && isExact && Number.isFinite(value) ? value : trimmed;
}

export function NumberInput(props: ControlProps<"number">): JSX.Element {
  const { field, value, path } = props;
  const { change } = useForm();
  const [text, setText] = useState(value === undefined || value === null ? "" : shown(value));
  const own = numberOf(text);
  useEffect(() => {
    if (own !== value) setText(value === undefined || value === null ? "" : shown(value));
  }, [value]);
  return (
    <input
      {...common(props)}
      class="mcp-input mcp-number"
      type="text"
      inputMode={field.integer ? "numeric" : "decimal"}
      placeholder={placeholder(field)}
      value={text}
      autocomplete="off"
      onInput={(event) => {
        setText(event.currentTarget.value);
        change(path, numberOf(event.currentTarget.value));
      }}
    />
  );
}

/** A box to tick where there is a default, else three answers: true, false, none. */
export function BooleanInput(props: ControlProps<"boolean">): JSX.Element {
  const { field, value, path } = props;
  const { change } = useForm();
  if (typeof field.default === "boolean" && (value === undefined || typeof value === "boolean")) {
    return (
      <span class="mcp-check">
        <input
          {...common(props)}
          type="checkbox"
          checked={value ?? field.default}
          onChange={(event) => change(path, event.currentTarget.checked)}
        />
        <span aria-hidden="true">{String(value ?? field.default)}</span>
      </span>
    );
  }
  const options = [true, false].map((each) => ({ value: each, label: String(each) }));
  return <Options {...props} options={options} />;
}

export function EnumInput(props: ControlProps<"enum">): JSX.Element {
  return <Options {...props} options={props.field.options} />;
}

function Options({ options, ...props }: AnyControlProps & { options: Option[] }): JSX.Element {
  const { field, value, path, required } = props;
  const { change } = useForm();
  const index = options.findIndex((option) => option.value === value);
  const unset = field.default !== undefined ? `default: ${placeholder(field)}` : required ? "choose\u2026" : "not set";
  return (
    <select
      {...common(props)}
      class="mcp-input mcp-select"
      value={String(index)}
      onChange={(event) => change(path, options[Number(event.currentTarget.value)]?.value)}
    >
      <option value="-1">{unset}</option>
      {options.map((option, each) => (
        <option key={each} value={String(each)}>
          {line(option.label)}
        </option>
      ))}
    </select>
  );
}

/** Any number of the options, each a box to tick. */
export function SeveralInput({ id, field, path, value, disabled, about }: ControlProps<"several">): JSX.Element {
  const { change } = useForm();
  const chosen = Array.isArray(value) ? value : [];
  const toggle = (option: Json, on: boolean): void => {
    const next = field.options
      .map((each) => each.value)
      .filter((each) => (each === option ? on : chosen.includes(each)));
    change(path, next.length ? next : undefined);
  };
  return (
    <span id={id} role="group" class="mcp-several" aria-describedby={about} tabIndex={-1}>
      {field.options.map((option) => (
        <label key={shown(option.value)} class="mcp-check">
          <input
            type="checkbox"
            disabled={disabled}
            checked={chosen.includes(option.value)}
            onChange={(event) => toggle(option.value, event.currentTarget.checked)}
          />
          {line(option.label)}
        </label>
      ))}
    </span>
  );
}

/** A value there is no choice about; it goes along where it must, or where it is ticked. */
export function FixedInput(props: ControlProps<"const" | "null">): JSX.Element {
  const { field, path, value, required } = props;
  const { change } = useForm();
  const fixed = field.kind === "const" ? field.value : null;
  if (required) return <code id={props.id}>{line(shown(fixed))}</code>;
  return (
    <label class="mcp-check">
      <input
        {...common(props)}
        type="checkbox"
        checked={value !== undefined}
        onChange={(event) => change(path, event.currentTarget.checked ? fixed : undefined)}
      />
      <code>{line(shown(fixed))}</code>
    </label>
  );
}

/** For whatever no field can ask. */
export function JsonInput(props: AnyControlProps & { rows?: number }): JSX.Element {
  const { field, path, value } = props;
  const { change, broken } = useForm();
  const [text, setText] = useState(() => written(value));
  const [problem, setProblem] = useState<string | null>(null);
  useEffect(() => {
    if (problem === null && written(parsed(text).value) !== written(value)) setText(written(value));
  }, [value]);

  useEffect(() => () => broken(path, null), [keyOf(path)]);
  const set = (typed: string): void => {
    const read = parsed(typed);
    setText(typed);
    setProblem(read.problem);
    broken(path, read.problem);
    if (read.problem === null) change(path, read.value);
  };
  return (
    <>
      <textarea
        {...common(props)}
        class="mcp-input mcp-code"
        rows={props.rows ?? 3}
        placeholder={placeholder(field) || "JSON"}
        value={text}
        spellcheck={false}
        aria-invalid={props.invalid || problem !== null}
        onInput={(event) => set(event.currentTarget.value)}
      />
      {problem !== null && <span class="mcp-wrong">{problem}</span>}
    </>
  );
}

const written = (value: Value): string => (value === undefined ? "" : JSON.stringify(value, null, 2));

function parsed(text: string): { value: Value; problem: string | null } {
  if (text.trim() === "") return { value: undefined, problem: null };
  try {
    return { value: JSON.parse(text) as Json, problem: null };
  } catch {
    return { value: undefined, problem: 'Not JSON yet. Texts stand in double quotes: "text".' };
  }
}

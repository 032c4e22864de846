/** A field of any kind, and those that hold others. */

import type { JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Json, JsonObject } from "../protocol";
import { line, visible } from "../text";
import { memo } from "../views/memo";
import { keyOf, useForm } from "./context";
import type { AnyControlProps, ControlProps } from "./inputs";
import { BooleanInput, EnumInput, FixedInput, JsonInput, NumberInput, SeveralInput, TextInput } from "./inputs";
import type { Field, Property, Schema } from "./schema";
import { fieldOf, isObject } from "./schema";
import type { Path, Value } from "./values";
import { blank, branchOf, constants } from "./values";

interface FieldProps {
  name: string;
  schema: Schema;
  path: Path;
  value: Value;
  required: boolean;
  /** The `$ref`s it lies in. */
  within: readonly string[];
}

const same = (one: FieldProps, other: FieldProps): boolean =>
  one.schema === other.schema &&
  one.value === other.value &&
  one.required === other.required &&
  one.name === other.name &&
  keyOf(one.path) === keyOf(other.path);

const HOLDS_OTHERS = new Set<Field["kind"]>(["object", "array", "tuple", "choice"]);

/** One value: its label, its control, what it means and what is wrong with it. */
export const FieldView = memo(function FieldView(props: FieldProps): JSX.Element | null {
  const { name, schema, path, value, required, within } = props;
  const { root, prefix, change, errors } = useForm();
  const field = useMemo(() => fieldOf(schema, root), [schema, root]);
  const id = `${prefix}-${path.map((key) => encodeURIComponent(key)).join("/")}`;
  const wrong = errors.get(keyOf(path)) ?? [];
  const offersNull = field.nullable && (required || (field.default !== undefined && field.default !== null));
  const about =
    [field.description && `${id}-about`, wrong.length && `${id}-wrong`].filter(Boolean).join(" ") || undefined;
  if (field.readOnly) return null;
  const isItem = typeof path.at(-1) === "number";
  const nested = HOLDS_OTHERS.has(field.kind);
  const control = {
    id,
    field,
    path,
    value,
    required,
    disabled: value === null && offersNull,
    about,
    invalid: wrong.length > 0,
  };
  const head = (
    <>
      {nested ? (
        <span class="mcp-name" id={`${id}-name`}>
          {line(field.title ?? name)}
        </span>
      ) : (
        <label class="mcp-name" for={id}>
          {line(field.title ?? name)}
        </label>
      )}
      <span class="mcp-dim">{[hintOf(field), required && !isItem && "required"].filter(Boolean).join(" · ")}</span>
      {offersNull && (
        <label class="mcp-check mcp-null">
          <input
            type="checkbox"
            checked={value === null}
            onChange={(event) => change(path, event.currentTarget.checked ? null : undefined)}
          />
          null
        </label>
      )}
    </>
  );
  return (
    <div class={nested ? "mcp-field mcp-nested" : "mcp-field"} data-path={keyOf(path)}>
      <div class="mcp-label">{head}</div>
      {field.description && (
        <div class="mcp-about" id={`${id}-about`}>
          {visible(field.description)}
        </div>
      )}
      {wrong.length > 0 && (
        <div class="mcp-wrong" id={`${id}-wrong`}>
          {wrong.map(visible).join("\n")}
        </div>
      )}
      <Control {...control} within={within} />
    </div>
  );
}, same);

function hintOf(field: Field): string {
  switch (field.kind) {
    case "number": {
      const word = field.integer ? "whole number" : "number";
      const { minimum: low, maximum: high } = field;
      if (low !== null && high !== null) return `${word}, ${low} to ${high}`;
      if (low !== null) return `${word}, at least ${low}`;
      return high === null ? word : `${word}, at most ${high}`;
    }
    case "array":
    case "several":
    case "tuple":
      return "list";
    case "json":
      return "JSON";
    case "text":
      return field.format === "text" || field.format === "long" ? "" : field.format;
    default:
      return "";
  }
}

type Nested<Kind extends Field["kind"]> = ControlProps<Kind> & { within: readonly string[] };

function Control(props: AnyControlProps & { within: readonly string[] }): JSX.Element {
  const { field } = props;
  switch (field.kind) {
    case "text":
      return <TextInput {...props} field={field} />;
    case "number":
      return <NumberInput {...props} field={field} />;
    case "boolean":
      return <BooleanInput {...props} field={field} />;
    case "enum":
      return <EnumInput {...props} field={field} />;
    case "several":
      return <SeveralInput {...props} field={field} />;
    case "const":
    case "null":
      return <FixedInput {...props} field={field} />;
    case "choice":
      return <ChoiceField {...props} field={field} />;
    case "object":
      return <ObjectField {...props} field={field} />;
    case "array":
    case "tuple":
      return <ListField {...props} field={field} />;
    case "json":
      return <JsonInput {...props} />;
  }
}

/** Opens on demand where it need not be there or contains itself. */
function ObjectField({ field, path, value, required, within, id, disabled }: Nested<"object">): JSX.Element {
  const recursive = field.refs.some((ref) => within.includes(ref));
  const [open, setOpen] = useState((required && !recursive) || value !== undefined);
  const inside = useMemo(() => [...within, ...field.refs], [within, field]);
  const { change } = useForm();
  if (disabled) return <></>;
  if (!open) {
    return (
      <button type="button" id={id} class="mcp-button" aria-expanded="false" onClick={() => setOpen(true)}>
        Fill in
      </button>
    );
  }
  return (
    <div class="mcp-inside" role="group" aria-labelledby={`${id}-name`}>
      <Properties field={field} path={path} value={value} within={inside} />
      {!required && (
        <button
          type="button"
          class="mcp-button"
          aria-expanded="true"
          onClick={() => {
            setOpen(false);
            change(path, undefined);
          }}
        >
          Leave out
        </button>
      )}
    </div>
  );
}

const AT_ONCE = 40;
const MANY = 25;

/** The properties of an object; of very many those that are looked for. */
export function Properties(props: {
  field: Extract<Field, { kind: "object" }>;
  path: Path;
  value: Value;
  within: readonly string[];
}): JSX.Element {
  const { field, path, value, within } = props;
  const [drawn, setDrawn] = useState(AT_ONCE);
  const [wanted, setWanted] = useState("");
  const { errors } = useForm();
  const ordered = useMemo(
    () => [...field.properties.filter((each) => each.required), ...field.properties.filter((each) => !each.required)],
    [field],
  );
  const has = (property: Property): boolean => isObject(value) && Object.hasOwn(value, property.name);
  const words = wanted.toLowerCase();
  const found = words ? ordered.filter((each) => each.name.toLowerCase().includes(words)) : ordered;
  const shown = found.filter((each, index) => index < drawn || has(each) || errors.has(keyOf([...path, each.name])));
  const left = found.length - shown.length;
  return (
    <>
      {ordered.length > MANY && (
        <input
          class="mcp-input mcp-find"
          type="search"
          placeholder={`Find one of ${ordered.length} fields`}
          aria-label={`Find one of ${ordered.length} fields`}
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
      )}
      {shown.map(({ name, schema, required }) => (
        <FieldView
          key={name}
          name={name}
          schema={schema}
          path={[...path, name]}
          value={isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined}
          required={required}
          within={within}
        />
      ))}
      {left > 0 && (
        <button type="button" class="mcp-button" onClick={() => setDrawn(drawn + AT_ONCE)}>
          Show {Math.min(left, AT_ONCE)} of {left} more fields
        </button>
      )}
      {field.rest !== null && <Table field={field} rest={field.rest} path={path} value={value} within={within} />}
    </>
  );
}

interface Row {
  id: number;
  key: string;
}

/** Keys of the user's own, each with a value of one kind. */
function Table(props: {
  field: Extract<Field, { kind: "object" }>;
  rest: Schema;
  path: Path;
  value: Value;
  within: readonly string[];
}): JSX.Element {
  const { field, rest, path, value, within } = props;
  const { change, root } = useForm();
  const next = useRef(0);
  const [rows, setRows] = useState<Row[]>(() => {
    const known = new Set(field.properties.map((property) => property.name));
    const keys = isObject(value) ? Object.keys(value).filter((key) => !known.has(key)) : [];
    return keys.map((key) => ({ id: next.current++, key }));
  });
  const rename = (row: Row, key: string): void => {
    const old = isObject(value) && row.key !== "" ? value[row.key] : undefined;
    const twin = rows.some((each) => each.id !== row.id && each.key === row.key);
    setRows(rows.map((each) => (each.id === row.id ? { ...each, key } : each)));
    if (row.key !== "" && !twin) change([...path, row.key], undefined);
    if (key !== "") change([...path, key], old ?? blank(fieldOf(rest, root)));
  };
  const remove = (row: Row): void => {
    setRows(rows.filter((each) => each.id !== row.id));
    if (row.key !== "") change([...path, row.key], undefined);
  };
  return (
    <div class="mcp-table">
      {rows.map((row, index) => (
        <div key={row.id} class="mcp-item">
          <div class="mcp-grow">
            <input
              class="mcp-input"
              aria-label={`Key ${index + 1}`}
              placeholder="key"
              value={row.key}
              onInput={(event) => rename(row, event.currentTarget.value)}
            />
            {row.key !== "" && (
              <FieldView
                name="value"
                schema={rest}
                path={[...path, row.key]}
                value={isObject(value) && Object.hasOwn(value, row.key) ? value[row.key] : undefined}
                required={false}
                within={within}
              />
            )}
          </div>
          <button type="button" class="mcp-button" aria-label={`Remove key ${index + 1}`} onClick={() => remove(row)}>
            Remove
          </button>
        </div>
      ))}
      <button type="button" class="mcp-button" onClick={() => setRows([...rows, { id: next.current++, key: "" }])}>
        Add a key
      </button>
    </div>
  );
}

/** Items that can be added and removed; those of a tuple are there from the beginning. */
function ListField({ field, path, value, within, id, disabled }: Nested<"array" | "tuple">): JSX.Element {
  const { change, root } = useForm();
  const given = useMemo(() => (Array.isArray(value) ? value : []), [value]);
  const ids = useRef<number[]>([]);
  const next = useRef(0);
  const group = useRef<HTMLDivElement>(null);
  const inside = useMemo(() => [...within, ...field.refs], [within, field]);
  if (disabled) return <></>;
  const count = field.kind === "tuple" ? field.items.length : given.length;
  while (ids.current.length < count) ids.current.push(next.current++);
  ids.current.length = count;
  const schemaOf = (index: number): Schema => (field.kind === "tuple" ? (field.items[index] ?? true) : field.items);
  const add = (): void => {
    if (field.kind !== "array") return;
    change(path, [...given, begun(field.items, root) as Json]);
    later(() =>
      group.current?.querySelector<HTMLElement>(".mcp-item:last-of-type :is(input,select,textarea)")?.focus(),
    );
  };
  const remove = (index: number): void => {
    ids.current.splice(index, 1);
    const rest = given.filter((_, each) => each !== index);
    change(path, rest.length ? rest : undefined);
    later(() => group.current?.querySelector<HTMLElement>(".mcp-add")?.focus());
  };
  const full = field.kind === "array" && field.most !== null && count >= field.most;
  return (
    <div class="mcp-inside" role="group" aria-labelledby={`${id}-name`} ref={group}>
      {ids.current.map((key, index) => (
        <div key={key} class="mcp-item">
          <div class="mcp-grow">
            <FieldView
              name={String(index + 1)}
              schema={schemaOf(index)}
              path={[...path, index]}
              value={given[index]}
              required={true}
              within={inside}
            />
          </div>
          {field.kind === "array" && (
            <button
              type="button"
              class="mcp-button"
              aria-label={`Remove item ${index + 1}`}
              onClick={() => remove(index)}
            >
              Remove
            </button>
          )}
        </div>
      ))}
      {field.kind === "array" && (
        <button type="button" class="mcp-button mcp-add" id={id} disabled={full} onClick={add}>
          Add an item
        </button>
      )}
    </div>
  );
}

function begun(schema: Schema, root: Schema): Value {
  const field = fieldOf(schema, root);
  return field.kind === "object" ? (constants(schema, root) as Json) : blank(field);
}

const later = (act: () => void): void => void setTimeout(act);

/** One of several forms a value may have. */
function ChoiceField(props: Nested<"choice">): JSX.Element {
  const { field, path, value, required, within, id, disabled, about, invalid } = props;
  const { change, root } = useForm();
  const [chosen, setChosen] = useState(() => branchOf(value, field.branches, root));
  const inside = useMemo(() => [...within, ...field.refs], [within, field]);
  const branch = field.branches[chosen];
  const choose = (index: number): void => {
    setChosen(index);
    const schema = field.branches[index]?.schema;
    const start: JsonObject | undefined = schema === undefined ? undefined : constants(schema, root);
    const isFixed = schema !== undefined && fieldOf(schema, root).kind === "const";
    change(path, start && Object.keys(start).length ? start : isFixed ? blank(fieldOf(schema, root)) : undefined);
  };
  if (disabled) return <></>;
  return (
    <div class="mcp-inside">
      <select
        id={id}
        class="mcp-input mcp-select"
        aria-labelledby={`${id}-name`}
        aria-describedby={about}
        aria-invalid={invalid}
        value={String(chosen)}
        onChange={(event) => choose(Number(event.currentTarget.value))}
      >
        <option value="-1">{required ? "choose\u2026" : "not set"}</option>
        {field.branches.map((each, index) => (
          <option key={index} value={String(index)}>
            {line(each.label)}
          </option>
        ))}
      </select>
      {branch && <Bare key={chosen} schema={branch.schema} {...{ path, value, within: inside }} name={branch.label} />}
    </div>
  );
}

/** A branch's control; the choice has said its name. */
function Bare({ schema, path, value, within, name }: Omit<FieldProps, "required">): JSX.Element {
  const { root, prefix } = useForm();
  const field = useMemo(() => fieldOf(schema, root), [schema, root]);
  const id = `${prefix}-${path.map((key) => encodeURIComponent(key)).join("/")}-one`;
  const common = { id, path, value, required: true, disabled: false, about: undefined, invalid: false, within };
  return (
    <>
      {field.description && <div class="mcp-about">{visible(field.description)}</div>}
      <span id={`${id}-name`} class="mcp-unseen">
        {line(name)}
      </span>
      <label for={id} class="mcp-unseen">
        {line(name)}
      </label>
      <Control {...common} field={field} />
    </>
  );
}

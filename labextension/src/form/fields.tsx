/** Form fields, including nested ones. */

import type { JSX } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import type { Json } from "../protocol";
import { singleLine, visible } from "../text";
import { trans } from "../translation";
import { memo } from "../views/memo";
import { Prose } from "../views/prose";
import { keyOf, useForm, useProblem } from "./context";
import type { AnyControlProps, ControlProps } from "./inputs";
import {
  BooleanInput,
  EnumInput,
  FixedInput,
  JsonInput,
  MultiSelect,
  NumberInput,
  TextInput,
  unsetLabel,
} from "./inputs";
import type { Field, Property, Schema } from "./schema";
import { fieldOf, isObject } from "./schema";
import type { Path, Value } from "./values";
import { initialValue, branchOf, constantProperties } from "./values";

interface FieldProps {
  name: string;
  schema: Schema;
  path: Path;
  value: Value;
  required: boolean;
  /** The `$ref`s of the enclosing schemas, to detect recursion. */
  parentRefs: readonly string[];
}

const isSameField = (one: FieldProps, other: FieldProps): boolean =>
  one.schema === other.schema &&
  one.value === other.value &&
  one.required === other.required &&
  one.name === other.name &&
  keyOf(one.path) === keyOf(other.path);

const NESTED_KINDS = new Set<Field["kind"]>(["object", "array", "tuple", "choice"]);

/** A field's label, description, errors and control. */
export const FieldView = memo(function FieldView(props: FieldProps): JSX.Element | null {
  const { name, schema, path, value, required, parentRefs } = props;
  const { root, prefix, change, errors } = useForm();
  const field = useMemo(() => fieldOf(schema, root), [schema, root]);
  const id = `${prefix}-${path.map((key) => encodeURIComponent(key)).join("/")}`;
  const wrong = errors.get(keyOf(path)) ?? [];
  const offersNull = field.nullable && (required || (field.default !== undefined && field.default !== null));
  const describedBy =
    [field.description && `${id}-about`, wrong.length && `${id}-wrong`].filter(Boolean).join(" ") || undefined;
  if (field.readOnly) return null;
  const isItem = typeof path.at(-1) === "number";
  const nested = NESTED_KINDS.has(field.kind);
  const control = {
    id,
    field,
    path,
    value,
    required,
    disabled: value === null && offersNull,
    describedBy,
    invalid: wrong.length > 0,
  };
  const head = (
    <>
      {nested ? (
        <span class="mcp-name" id={`${id}-name`}>
          {singleLine(field.title ?? name)}
        </span>
      ) : (
        <label class="mcp-name" id={`${id}-name`} for={id}>
          {singleLine(field.title ?? name)}
        </label>
      )}
      <span class="mcp-muted">
        {[kindLabel(field), required && !isItem && trans.__("required")].filter(Boolean).join(" · ")}
      </span>
      {offersNull && (
        <label class="mcp-check mcp-null">
          <input
            type="checkbox"
            checked={value === null}
            onChange={(event) => change(path, event.currentTarget.checked ? null : undefined)}
          />
          {"null"}
        </label>
      )}
    </>
  );
  return (
    <div class="mcp-field" data-path={keyOf(path)}>
      <div class="mcp-label">{head}</div>
      {field.description && (
        <div class="mcp-about" id={`${id}-about`}>
          <Prose text={field.description} />
        </div>
      )}
      {wrong.length > 0 && (
        <div class="mcp-field-error" id={`${id}-wrong`}>
          {wrong.map(visible).join("\n")}
        </div>
      )}
      <Control {...control} parentRefs={parentRefs} />
    </div>
  );
}, isSameField);

function kindLabel(field: Field): string {
  switch (field.kind) {
    case "number": {
      const word = field.integer ? trans.__("whole number") : trans.__("number");
      const { minimum: low, maximum: high } = field;
      if (low !== null && high !== null) return trans.__("%1, %2 to %3", word, low, high);
      if (low !== null) return trans.__("%1, at least %2", word, low);
      return high === null ? word : trans.__("%1, at most %2", word, high);
    }
    case "array":
    case "several":
    case "tuple":
      return trans.__("list");
    case "json":
      return "JSON";
    case "text":
      return field.format === "text" || field.format === "long" ? "" : field.format;
    default:
      return "";
  }
}

type Nested<Kind extends Field["kind"]> = ControlProps<Kind> & { parentRefs: readonly string[] };

function Control(props: AnyControlProps & { parentRefs: readonly string[] }): JSX.Element {
  const { field, path } = props;
  const { controls } = useForm();
  const Own = path.length === 1 && controls.get(String(path[0]));
  if (Own) return <Own {...props} />;
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
      return <MultiSelect {...props} field={field} />;
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

/** An object field, collapsed while optional or recursive. */
function ObjectField({ field, path, value, required, parentRefs, id, disabled }: Nested<"object">): JSX.Element {
  const recursive = field.refs.some((ref) => parentRefs.includes(ref));
  const [open, setOpen] = useState((required && !recursive) || value !== undefined);
  const refs = useMemo(() => [...parentRefs, ...field.refs], [parentRefs, field]);
  const { change } = useForm();
  const set = (): void => {
    setOpen(true);
    if (!required) change(path, {});
  };
  if (disabled) return <></>;
  if (!open) {
    return (
      <button type="button" id={id} class="mcp-button" aria-expanded="false" onClick={set}>
        {trans.__("Set")}
      </button>
    );
  }
  return (
    <div class="mcp-nested-fields" role="group" aria-labelledby={`${id}-name`}>
      <Properties field={field} path={path} value={value} parentRefs={refs} />
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
          {trans.__("Clear")}
        </button>
      )}
    </div>
  );
}

const PAGE_SIZE = 40;
const SEARCH_THRESHOLD = 25;

/** An object's properties, with a search box if there are many. */
export function Properties(props: {
  field: Extract<Field, { kind: "object" }>;
  path: Path;
  value: Value;
  parentRefs: readonly string[];
}): JSX.Element {
  const { field, path, value, parentRefs } = props;
  const [limit, setLimit] = useState(PAGE_SIZE);
  const [query, setQuery] = useState("");
  const { errors, problems } = useForm();
  const ordered = useMemo(
    () => [...field.properties.filter((each) => each.required), ...field.properties.filter((each) => !each.required)],
    [field],
  );
  const has = (property: Property): boolean => isObject(value) && Object.hasOwn(value, property.name);
  const words = query.toLowerCase();
  const hasProblem = ({ name }: Property): boolean => {
    const key = keyOf([...path, name]);
    return [...problems.keys()].some((each) => each === key || each.startsWith(`${key.slice(0, -1)},`));
  };
  // A field with a problem stays: it would lose what it holds beside its value.
  const isFound = (each: Property): boolean => each.name.toLowerCase().includes(words) || hasProblem(each);
  const found = words ? ordered.filter(isFound) : ordered;
  const shown = found.filter((each, index) => index < limit || has(each) || errors.has(keyOf([...path, each.name])));
  const hiddenCount = found.length - shown.length;
  return (
    <>
      {ordered.length > SEARCH_THRESHOLD && (
        <input
          class="mcp-input mcp-find"
          type="search"
          placeholder={trans.__("Search %1 fields", ordered.length)}
          aria-label={trans.__("Search %1 fields", ordered.length)}
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
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
          parentRefs={parentRefs}
        />
      ))}
      {hiddenCount > 0 && (
        <button type="button" class="mcp-button" onClick={() => setLimit(limit + PAGE_SIZE)}>
          {trans.__("Show %1 of %2 more fields", Math.min(hiddenCount, PAGE_SIZE), hiddenCount)}
        </button>
      )}
      {field.rest !== null && (
        <AdditionalProperties field={field} rest={field.rest} path={path} value={value} parentRefs={parentRefs} />
      )}
    </>
  );
}

interface Row {
  id: number;
  key: string;
  /** Whether the row is not part of the form's value, because its key is empty or taken. */
  isHeld: boolean;
  /** The value of such a row. */
  held: Value;
}

/** User-defined keys whose values share a schema. */
function AdditionalProperties(props: {
  field: Extract<Field, { kind: "object" }>;
  rest: Schema;
  path: Path;
  value: Value;
  parentRefs: readonly string[];
}): JSX.Element {
  const { field, rest, path, value, parentRefs } = props;
  const { change, root, problems } = useForm();
  const next = useRef(0);
  const valueOf = (key: string): Value => (isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined);
  const [rows, setRows] = useState<Row[]>(() => {
    const known = new Set(field.properties.map((property) => property.name));
    const keys = isObject(value) ? Object.keys(value).filter((key) => !known.has(key)) : [];
    return keys.map((key) => ({ id: next.current++, key, isHeld: false, held: undefined }));
  });
  const problem = (row: Row): string | null => {
    if (row.key === "") return trans.__("A key is empty.");
    if (row.isHeld) return trans.__("The key %1 is there twice.", singleLine(row.key));
    const isEmpty = valueOf(row.key) === undefined && !problems.has(keyOf([...path, row.key]));
    return isEmpty ? trans.__("%1 has no value", singleLine(row.key)) : null;
  };
  useProblem(path, rows.map(problem).find((each) => each !== null) ?? null);
  /** Show the rows, and take those whose key is free into the form's value. */
  const update = (changed: Row[]): void => {
    const taken = new Set(field.properties.map((property) => property.name));
    for (const row of changed) if (!row.isHeld) taken.add(row.key);
    const take = (row: Row): Row => {
      if (!row.isHeld || row.key === "" || taken.has(row.key)) return row;
      taken.add(row.key);
      change([...path, row.key], row.held ?? initialValue(fieldOf(rest, root)));
      return { ...row, isHeld: false, held: undefined };
    };
    setRows(changed.map(take));
  };
  const rename = (row: Row, key: string): void => {
    const held = row.isHeld ? row.held : valueOf(row.key);
    if (!row.isHeld) change([...path, row.key], undefined);
    update(rows.map((each) => (each.id === row.id ? { ...row, key, isHeld: true, held } : each)));
  };
  const remove = (row: Row): void => {
    if (!row.isHeld) change([...path, row.key], undefined);
    update(rows.filter((each) => each.id !== row.id));
  };
  const add = (): void => setRows([...rows, { id: next.current++, key: "", isHeld: true, held: undefined }]);
  return (
    <div class="mcp-table">
      {rows.map((row, index) => (
        <div key={row.id} class="mcp-item">
          <div class="mcp-grow">
            <input
              class="mcp-input"
              aria-label={trans.__("Key %1", index + 1)}
              placeholder={trans.__("Key")}
              value={row.key}
              onInput={(event) => rename(row, event.currentTarget.value)}
            />
            {!row.isHeld && (
              <FieldView
                name="value"
                schema={rest}
                path={[...path, row.key]}
                value={valueOf(row.key)}
                required={false}
                parentRefs={parentRefs}
              />
            )}
          </div>
          <button
            type="button"
            class="mcp-button"
            aria-label={trans.__("Remove key %1", index + 1)}
            onClick={() => remove(row)}
          >
            {trans.__("Remove")}
          </button>
        </div>
      ))}
      <button type="button" class="mcp-button" onClick={add}>
        {trans.__("Add a key")}
      </button>
    </div>
  );
}

/** A list whose items can be added and removed, or a tuple of fixed length. */
function ListField({ field, path, value, parentRefs, id, disabled }: Nested<"array" | "tuple">): JSX.Element {
  const { change, root } = useForm();
  const items = useMemo(() => (Array.isArray(value) ? value : []), [value]);
  const ids = useRef<number[]>([]);
  const next = useRef(0);
  const group = useRef<HTMLDivElement>(null);
  const refs = useMemo(() => [...parentRefs, ...field.refs], [parentRefs, field]);
  if (disabled) return <></>;
  const count = field.kind === "tuple" ? field.items.length : items.length;
  while (ids.current.length < count) ids.current.push(next.current++);
  ids.current.length = count;
  const schemaOf = (index: number): Schema => (field.kind === "tuple" ? (field.items[index] ?? true) : field.items);
  const add = (): void => {
    if (field.kind !== "array") return;
    change(path, [...items, initialItem(field.items, root) as Json]);
    defer(() =>
      group.current?.querySelector<HTMLElement>(".mcp-item:last-of-type :is(input,select,textarea)")?.focus(),
    );
  };
  const remove = (index: number): void => {
    ids.current.splice(index, 1);
    const rest = items.filter((_, each) => each !== index);
    change(path, rest.length ? rest : undefined);
    defer(() => group.current?.querySelector<HTMLElement>(".mcp-add")?.focus());
  };
  const full = field.kind === "array" && field.maxItems !== null && count >= field.maxItems;
  return (
    <div class="mcp-nested-fields" role="group" aria-labelledby={`${id}-name`} ref={group}>
      {ids.current.map((key, index) => (
        <div key={key} class="mcp-item">
          <div class="mcp-grow">
            <FieldView
              name={String(index + 1)}
              schema={schemaOf(index)}
              path={[...path, index]}
              value={items[index]}
              required={true}
              parentRefs={refs}
            />
          </div>
          {field.kind === "array" && (
            <button
              type="button"
              class="mcp-button"
              aria-label={trans.__("Remove item %1", index + 1)}
              onClick={() => remove(index)}
            >
              {trans.__("Remove")}
            </button>
          )}
        </div>
      ))}
      {field.kind === "array" && (
        <button type="button" class="mcp-button mcp-add" id={id} disabled={full} onClick={add}>
          {trans.__("Add an item")}
        </button>
      )}
    </div>
  );
}

function initialItem(schema: Schema, root: Schema): Value {
  const field = fieldOf(schema, root);
  return field.kind === "object" ? (constantProperties(schema, root) as Json) : initialValue(field);
}

const defer = (act: () => void): void => void setTimeout(act);

/** A choice between alternative schemas. */
function ChoiceField(props: Nested<"choice">): JSX.Element {
  const { field, path, value, parentRefs, id, disabled, describedBy: about, invalid } = props;
  const { change, root } = useForm();
  const [chosen, setChosen] = useState(() => branchOf(value, field.branches, root));
  const refs = useMemo(() => [...parentRefs, ...field.refs], [parentRefs, field]);
  const branch = field.branches[chosen];
  const choose = (index: number): void => {
    setChosen(index);
    const schema = field.branches[index]?.schema;
    // A boolean begins without a value, because the user is to choose one.
    const isChosenNext = schema === undefined || fieldOf(schema, root).kind === "boolean";
    change(path, isChosenNext ? undefined : initialItem(schema, root));
  };
  // An alternative that was chosen and left empty is not silently left out.
  useProblem(path, !disabled && branch && value === undefined ? trans.__("Required") : null);
  if (disabled) return <></>;
  return (
    <div class="mcp-nested-fields">
      <select
        id={id}
        class="mcp-input mcp-select"
        aria-labelledby={`${id}-name`}
        aria-describedby={about}
        aria-invalid={invalid}
        value={String(chosen)}
        onChange={(event) => choose(Number(event.currentTarget.value))}
      >
        <option value="-1">{unsetLabel(props)}</option>
        {field.branches.map((each, index) => (
          <option key={index} value={String(index)}>
            {singleLine(each.label)}
          </option>
        ))}
      </select>
      {branch && (
        <BranchControl key={chosen} schema={branch.schema} {...{ path, value, parentRefs: refs }} name={branch.label} />
      )}
    </div>
  );
}

/** The control of the chosen alternative, without a visible label. */
function BranchControl({ schema, path, value, parentRefs, name }: Omit<FieldProps, "required">): JSX.Element {
  const { root, prefix } = useForm();
  const field = useMemo(() => fieldOf(schema, root), [schema, root]);
  const id = `${prefix}-${path.map((key) => encodeURIComponent(key)).join("/")}-one`;
  const common = {
    id,
    path,
    value,
    required: true,
    disabled: false,
    describedBy: undefined,
    invalid: false,
    parentRefs,
  };
  return (
    <>
      {field.description && (
        <div class="mcp-about">
          <Prose text={field.description} />
        </div>
      )}
      <span id={`${id}-name`} class="mcp-visually-hidden">
        {singleLine(name)}
      </span>
      <label for={id} class="mcp-visually-hidden">
        {singleLine(name)}
      </label>
      <Control {...common} field={field} />
    </>
  );
}

/** Convert a JSON Schema to form fields, one level at a time, so recursive schemas are cheap. */

import type { Json, JsonObject } from "../protocol";
import { trans } from "../translation";

/** `true` allows anything. */
export type Schema = JsonObject | boolean;

interface Common {
  title: string | null;
  description: string | null;
  default: Json | undefined;
  /** Whether null is allowed in addition to the kind. */
  nullable: boolean;
  readOnly: boolean;
}

export interface Option {
  value: Json;
  label: string;
}

export interface Branch {
  label: string;
  schema: Schema;
}

export interface Property {
  name: string;
  schema: Schema;
  required: boolean;
}

/** The input control of a string. */
export type TextFormat = "text" | "long" | "password" | "date" | "time" | "date-time" | "email" | "url";

export type Shape =
  | { kind: "text"; format: TextFormat; examples: string[] }
  | { kind: "number"; integer: boolean; minimum: number | null; maximum: number | null }
  | { kind: "boolean" }
  | { kind: "null" }
  | { kind: "const"; value: Json }
  | { kind: "enum"; options: Option[] }
  | { kind: "several"; options: Option[] }
  | { kind: "object"; properties: Property[]; rest: Schema | null }
  | { kind: "array"; items: Schema; maxItems: number | null }
  | { kind: "tuple"; items: Schema[] }
  | { kind: "choice"; branches: Branch[] }
  | { kind: "json" };

export type Field = Common & Shape & { /** The `$ref`s that were followed to this schema. */ refs: string[] };

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isSchema = (value: unknown): value is Schema => typeof value === "boolean" || isObject(value);
const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);
const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
const list = (value: unknown): Json[] => (Array.isArray(value) ? value : []);
const schemas = (value: unknown): Schema[] => list(value).filter(isSchema);

const MAX_REFS = 32;

/** Resolve a local JSON Pointer `$ref`; undefined if there is no such schema. Never fetches. */
export function resolvePointer(ref: string, root: Schema): Schema | undefined {
  if (!ref.startsWith("#")) return undefined;
  let found: unknown = root;
  for (const part of ref.slice(1).split("/").filter(Boolean)) {
    const key = unescapePointer(part);
    if (!isObject(found) && !Array.isArray(found)) return undefined;
    if (!Object.hasOwn(found, key)) return undefined;
    found = (found as JsonObject)[key];
  }
  return isSchema(found) ? found : undefined;
}

function unescapePointer(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
  } catch {
    return part;
  }
}

/** Resolve `$ref`, with sibling keys overriding the target; null if it does not resolve. */
function resolveRef(schema: Schema, root: Schema, refs: string[]): JsonObject | null {
  let current = schema;
  for (let step = 0; step <= MAX_REFS; step++) {
    if (typeof current === "boolean") return current ? {} : null;
    const ref = current["$ref"];
    if (typeof ref !== "string") return current;
    const target = resolvePointer(ref, root);
    if (target === undefined) return null;
    refs.push(ref);
    const { $ref: _followed, ...beside } = current;
    current = typeof target === "boolean" ? (target ? beside : target) : { ...target, ...beside };
  }
  return null;
}

/** Convert a schema to a field. Schemas without a dedicated control become `json`. */
export function fieldOf(schema: Schema, root: Schema): Field {
  const refs: string[] = [];
  const found = resolveRef(schema, root, refs);
  if (!found) return { ...commonOf({}), refs, kind: "json" };
  const plain = mergeAllOf(found, root, refs);
  const { shape, nullable } = shapeOf(plain, root);
  const common = commonOf(plain);
  return { ...common, ...shape, nullable: nullable || plain["nullable"] === true, refs };
}

function commonOf(schema: JsonObject): Common {
  return {
    title: text(schema["title"]),
    description: text(schema["description"]),
    default: schema["default"],
    nullable: false,
    readOnly: schema["readOnly"] === true,
  };
}

/** Merge `allOf` into the schema where its parts are compatible. */
function mergeAllOf(schema: JsonObject, root: Schema, refs: string[]): JsonObject {
  const parts = schemas(schema["allOf"]);
  if (!parts.length) return schema;
  const { allOf: _flattened, ...rest } = schema;
  let merged: JsonObject = rest;
  for (const part of parts) {
    const found = resolveRef(part, root, refs);
    if (!found || "allOf" in found) return { title: schema["title"] ?? null, not: {} };
    merged = {
      ...found,
      ...merged,
      ...mergeKey("properties", found, merged),
      required: [...list(found["required"]), ...list(merged["required"])],
    };
  }
  return merged;
}

function mergeKey(key: string, one: JsonObject, other: JsonObject): JsonObject {
  const [a, b] = [one[key], other[key]];
  return isObject(a) && isObject(b) ? { [key]: { ...a, ...b } } : {};
}

interface NullableShape {
  shape: Shape;
  nullable: boolean;
}

const notNullable = (shape: Shape): NullableShape => ({ shape, nullable: false });

function shapeOf(schema: JsonObject, root: Schema): NullableShape {
  if ("const" in schema) return notNullable({ kind: "const", value: schema["const"] ?? null });
  if (Array.isArray(schema["enum"])) return enumOf(schema["enum"], schema["enumNames"]);
  const branches = schemas(schema["anyOf"] ?? schema["oneOf"]);
  if (branches.length && !isObject(schema["properties"])) return choiceOf(branches, schema, root);
  if (Array.isArray(schema["type"])) return shapeOfTypes(schema["type"], schema, root);
  const type = typeof schema["type"] === "string" ? schema["type"] : guessType(schema);
  return notNullable(shapeOfType(type, schema, root));
}

function guessType(schema: JsonObject): string {
  if (isObject(schema["properties"])) return "object";
  if (isSchema(schema["items"])) return "array";
  if (typeof schema["format"] === "string" || typeof schema["pattern"] === "string") return "string";
  return "";
}

function enumOf(values: Json[], names: unknown): NullableShape {
  const titles = list(names);
  const options = values
    .map((value, index) => ({ value, label: text(titles[index]) ?? valueText(value) }))
    .filter((option) => option.value !== null);
  return { shape: { kind: "enum", options }, nullable: values.includes(null) };
}

/** Format a value: strings as they are, others as JSON. */
export const valueText = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Return the branches as options if all are `{const, title}` or `{enum: […]}`. */
function optionsOf(branches: Schema[], root: Schema): Option[] | null {
  const options: Option[] = [];
  for (const branch of branches) {
    const found = resolveRef(branch, root, []);
    if (!found) return null;
    if ("const" in found) {
      const value = found["const"] ?? null;
      options.push({ value, label: text(found["title"]) ?? valueText(value) });
    } else if (Array.isArray(found["enum"])) {
      options.push(...found["enum"].map((value) => ({ value, label: valueText(value) })));
    } else return null;
  }
  return options;
}

function isNull(schema: Schema, root: Schema): boolean {
  const found = resolveRef(schema, root, []);
  return found !== null && (found["type"] === "null" || ("const" in found && found["const"] === null));
}

function choiceOf(all: Schema[], around: JsonObject, root: Schema): NullableShape {
  const branches = all.filter((branch) => !isNull(branch, root));
  const nullable = branches.length < all.length;
  if (branches.length === 0) return notNullable({ kind: "null" });
  const options = optionsOf(branches, root);
  if (options) return { shape: { kind: "enum", options }, nullable };
  if (branches.length === 1) return branchShape(branches[0] ?? true, root, nullable);
  const { anyOf: _any, oneOf: _one, title: _title, description: _about, default: _default, ...shared } = around;
  const labels = branches.map((branch, index) => labelOf(branch, root, index));
  return {
    shape: {
      kind: "choice",
      branches: branches.map((branch, index) => ({
        label:
          labels.indexOf(labels[index] ?? "") === index ? (labels[index] ?? "") : `${labels[index]} (${index + 1})`,
        schema: isObject(branch) ? { ...shared, ...branch } : branch,
      })),
    },
    nullable,
  };
}

function branchShape(schema: Schema, root: Schema, nullable: boolean): NullableShape {
  const found = resolveRef(schema, root, []);
  if (!found) return { shape: { kind: "json" }, nullable };
  const shaped = shapeOf(mergeAllOf(found, root, []), root);
  return { shape: shaped.shape, nullable: nullable || shaped.nullable };
}

function labelOf(branch: Schema, root: Schema, index: number): string {
  const refs: string[] = [];
  const found = resolveRef(branch, root, refs);
  if (!found) return trans.__("form %1", index + 1);
  const type = found["type"];
  return (
    text(found["title"]) ??
    refs[0]?.split("/").pop() ??
    ("const" in found
      ? valueText(found["const"] ?? null)
      : typeof type === "string"
        ? typeLabel(type, found)
        : trans.__("form %1", index + 1))
  );
}

function typeWord(type: string): string {
  switch (type) {
    case "string":
      return trans.__("text");
    case "number":
      return trans.__("number");
    case "integer":
      return trans.__("whole number");
    case "boolean":
      return trans.__("true or false");
    case "object":
      return trans.__("object");
    case "array":
      return trans.__("list");
    default:
      return type;
  }
}

function typeLabel(type: string, schema: JsonObject): string {
  const word = typeWord(type);
  const items = schema["items"];
  if (type !== "array" || !isObject(items) || typeof items["type"] !== "string") return word;
  return trans.__("list of %1", typeWord(items["type"]));
}

function shapeOfTypes(types: Json[], schema: JsonObject, root: Schema): NullableShape {
  const names = types.filter((type): type is string => typeof type === "string" && type !== "null");
  const nullable = types.includes("null");
  if (names.length === 0) return notNullable({ kind: nullable ? "null" : "json" });
  if (names.length === 1) return { shape: shapeOfType(names[0] ?? "", schema, root), nullable };
  const { title: _title, description: _about, default: _default, ...shared } = schema;
  const branches = names.map((type) => ({ label: typeLabel(type, schema), schema: { ...shared, type } }));
  return { shape: { kind: "choice", branches }, nullable };
}

function shapeOfType(type: string, schema: JsonObject, root: Schema): Shape {
  switch (type) {
    case "string":
      return { kind: "text", format: formatOf(schema), examples: list(schema["examples"]).map(valueText).slice(0, 20) };
    case "number":
    case "integer":
      return {
        kind: "number",
        integer: type === "integer",
        minimum: number(schema["minimum"]),
        maximum: number(schema["maximum"]),
      };
    case "boolean":
    case "null":
      return { kind: type };
    case "object":
      return objectOf(schema);
    case "array":
      return arrayOf(schema, root);
    default:
      return { kind: "json" };
  }
}

const FORMATS: { [format: string]: TextFormat } = {
  password: "password",
  date: "date",
  time: "time",
  "date-time": "date-time",
  email: "email",
  uri: "url",
  url: "url",
  textarea: "long",
  multiline: "long",
};
const LONG_TEXT = 300;
/** Names of properties whose text has several lines. */
const LONG_NAME =
  /(^|[_-])(body|code|content|contents|html|markdown|patch|script|source|sql)$|(Body|Code|Content|Html|Markdown|Script|Sql)$/;

/** Whether a text of this name is usually long. */
export const isLongText = (name: string): boolean => LONG_NAME.test(name);

function formatOf(schema: JsonObject): TextFormat {
  const { format, writeOnly, contentMediaType, maxLength } = schema;
  if (writeOnly === true) return "password";
  const known = typeof format === "string" && Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
  if (known) return known;
  return typeof contentMediaType === "string" || (number(maxLength) ?? 0) > LONG_TEXT ? "long" : "text";
}

function objectOf(schema: JsonObject): Shape {
  const given = isObject(schema["properties"]) ? schema["properties"] : {};
  const required = new Set(list(schema["required"]));
  const properties = Object.entries(given)
    .filter((entry): entry is [string, Schema] => isSchema(entry[1]) && entry[1] !== false)
    .map(([name, property]) => ({ name, schema: property, required: required.has(name) }));
  for (const name of required) {
    if (typeof name === "string" && !Object.hasOwn(given, name)) {
      properties.push({ name, schema: true, required: true });
    }
  }
  const additional = schema["additionalProperties"];
  const patterns = isObject(schema["patternProperties"]) ? Object.values(schema["patternProperties"]) : [];
  const rest = patterns.find(isSchema) ?? (isSchema(additional) ? additional : properties.length ? false : true);
  // An object schema without constraints accepts any JSON.
  if (!properties.length && rest === true) return { kind: "json" };
  return { kind: "object", properties, rest: rest === false || (rest === true && properties.length > 0) ? null : rest };
}

function arrayOf(schema: JsonObject, root: Schema): Shape {
  const prefix = schemas(schema["prefixItems"] ?? schema["items"]);
  if (prefix.length) {
    return schema["items"] === false || "prefixItems" in schema ? { kind: "tuple", items: prefix } : { kind: "json" };
  }
  const items = isSchema(schema["items"]) ? schema["items"] : true;
  if (schema["uniqueItems"] === true || isObject(items)) {
    const item = fieldOf(items, root);
    if (item.kind === "enum" && !item.nullable) return { kind: "several", options: item.options };
  }
  return { kind: "array", items, maxItems: number(schema["maxItems"]) };
}

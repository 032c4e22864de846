/** What a JSON Schema asks for, as the kind of field that asks for it. One level at a time: recursion costs nothing. */

import type { Json, JsonObject } from "../protocol";

/** `true` allows anything. */
export type Schema = JsonObject | boolean;

interface Common {
  title: string | null;
  description: string | null;
  default: Json | undefined;
  /** Null is allowed beside what the kind says. */
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

/** How a string is typed. */
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
  | { kind: "array"; items: Schema; most: number | null }
  | { kind: "tuple"; items: Schema[] }
  | { kind: "choice"; branches: Branch[] }
  | { kind: "json" };

export type Field = Common & Shape & { /** The `$ref`s that led here. */ refs: string[] };

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isSchema = (value: unknown): value is Schema => typeof value === "boolean" || isObject(value);
const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);
const number = (value: unknown): number | null => (typeof value === "number" ? value : null);
const list = (value: unknown): Json[] => (Array.isArray(value) ? value : []);
const schemas = (value: unknown): Schema[] => list(value).filter(isSchema);

const MOST_REFS = 32;

/** The schema a `$ref` names within its document; undefined where there is none. Nothing is ever fetched. */
export function lookUp(ref: string, root: Schema): Schema | undefined {
  if (!ref.startsWith("#")) return undefined;
  let found: unknown = root;
  for (const part of ref.slice(1).split("/").filter(Boolean)) {
    const key = unescaped(part);
    if (!isObject(found) && !Array.isArray(found)) return undefined;
    if (!Object.hasOwn(found, key)) return undefined;
    found = (found as JsonObject)[key];
  }
  return isSchema(found) ? found : undefined;
}

function unescaped(part: string): string {
  try {
    return decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
  } catch {
    return part;
  }
}

/** The schema without its `$ref`, what stands beside it laid over; null where it leads nowhere. */
function followed(schema: Schema, root: Schema, refs: string[]): JsonObject | null {
  let current = schema;
  for (let step = 0; step <= MOST_REFS; step++) {
    if (typeof current === "boolean") return current ? {} : null;
    const ref = current["$ref"];
    if (typeof ref !== "string") return current;
    const target = lookUp(ref, root);
    if (target === undefined) return null;
    refs.push(ref);
    const { $ref: _followed, ...beside } = current;
    current = typeof target === "boolean" ? (target ? beside : target) : { ...target, ...beside };
  }
  return null;
}

/** What a schema asks for. What no field can ask for is `json`: typed by hand. */
export function fieldOf(schema: Schema, root: Schema): Field {
  const refs: string[] = [];
  const found = followed(schema, root, refs);
  if (!found) return { ...commonOf({}), refs, kind: "json" };
  const plain = flattened(found, root, refs);
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

/** `allOf` laid into the schema itself, where its parts only add to each other. */
function flattened(schema: JsonObject, root: Schema, refs: string[]): JsonObject {
  const parts = schemas(schema["allOf"]);
  if (!parts.length) return schema;
  const { allOf: _flattened, ...rest } = schema;
  let merged: JsonObject = rest;
  for (const part of parts) {
    const found = followed(part, root, refs);
    if (!found || "allOf" in found) return { title: schema["title"] ?? null, not: {} };
    merged = {
      ...found,
      ...merged,
      ...bothOf("properties", found, merged),
      required: [...list(found["required"]), ...list(merged["required"])],
    };
  }
  return merged;
}

function bothOf(key: string, one: JsonObject, other: JsonObject): JsonObject {
  const [a, b] = [one[key], other[key]];
  return isObject(a) && isObject(b) ? { [key]: { ...a, ...b } } : {};
}

interface Shaped {
  shape: Shape;
  nullable: boolean;
}

const only = (shape: Shape): Shaped => ({ shape, nullable: false });

function shapeOf(schema: JsonObject, root: Schema): Shaped {
  if ("const" in schema) return only({ kind: "const", value: schema["const"] ?? null });
  if (Array.isArray(schema["enum"])) return enumOf(schema["enum"], schema["enumNames"]);
  const branches = schemas(schema["anyOf"] ?? schema["oneOf"]);
  if (branches.length && !isObject(schema["properties"])) return choiceOf(branches, schema, root);
  if (Array.isArray(schema["type"])) return typesOf(schema["type"], schema, root);
  const type = typeof schema["type"] === "string" ? schema["type"] : guessed(schema);
  return only(typedOf(type, schema, root));
}

function guessed(schema: JsonObject): string {
  if (isObject(schema["properties"])) return "object";
  if (isSchema(schema["items"])) return "array";
  if (typeof schema["format"] === "string" || typeof schema["pattern"] === "string") return "string";
  return "";
}

function enumOf(values: Json[], names: unknown): Shaped {
  const titles = list(names);
  const options = values
    .map((value, index) => ({ value, label: text(titles[index]) ?? shown(value) }))
    .filter((option) => option.value !== null);
  return { shape: { kind: "enum", options }, nullable: values.includes(null) };
}

/** A value in few words. */
export const shown = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value));

/** `[{const, title}]`, `[{enum: […]}]`: options, if all of them are. */
function optionsOf(branches: Schema[], root: Schema): Option[] | null {
  const options: Option[] = [];
  for (const branch of branches) {
    const found = followed(branch, root, []);
    if (!found) return null;
    if ("const" in found) {
      const value = found["const"] ?? null;
      options.push({ value, label: text(found["title"]) ?? shown(value) });
    } else if (Array.isArray(found["enum"])) {
      options.push(...found["enum"].map((value) => ({ value, label: shown(value) })));
    } else return null;
  }
  return options;
}

function isNull(schema: Schema, root: Schema): boolean {
  const found = followed(schema, root, []);
  return found !== null && (found["type"] === "null" || ("const" in found && found["const"] === null));
}

function choiceOf(all: Schema[], around: JsonObject, root: Schema): Shaped {
  const branches = all.filter((branch) => !isNull(branch, root));
  const nullable = branches.length < all.length;
  if (branches.length === 0) return only({ kind: "null" });
  const options = optionsOf(branches, root);
  if (options) return { shape: { kind: "enum", options }, nullable };
  if (branches.length === 1) return inner(branches[0] ?? true, root, nullable);
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

function inner(schema: Schema, root: Schema, nullable: boolean): Shaped {
  const found = followed(schema, root, []);
  if (!found) return { shape: { kind: "json" }, nullable };
  const shaped = shapeOf(flattened(found, root, []), root);
  return { shape: shaped.shape, nullable: nullable || shaped.nullable };
}

function labelOf(branch: Schema, root: Schema, index: number): string {
  const refs: string[] = [];
  const found = followed(branch, root, refs);
  if (!found) return `form ${index + 1}`;
  const type = found["type"];
  return (
    text(found["title"]) ??
    refs[0]?.split("/").pop() ??
    ("const" in found
      ? shown(found["const"] ?? null)
      : typeof type === "string"
        ? named(type, found)
        : `form ${index + 1}`)
  );
}

const WORDS: { [type: string]: string } = {
  string: "text",
  number: "number",
  integer: "whole number",
  boolean: "true or false",
  object: "object",
  array: "list",
};

function named(type: string, schema: JsonObject): string {
  const word = WORDS[type] ?? type;
  const items = schema["items"];
  if (type !== "array" || !isObject(items) || typeof items["type"] !== "string") return word;
  return `list of ${WORDS[items["type"]] ?? items["type"]}`;
}

function typesOf(types: Json[], schema: JsonObject, root: Schema): Shaped {
  const names = types.filter((type): type is string => typeof type === "string" && type !== "null");
  const nullable = types.includes("null");
  if (names.length === 0) return only({ kind: nullable ? "null" : "json" });
  if (names.length === 1) return { shape: typedOf(names[0] ?? "", schema, root), nullable };
  const { title: _title, description: _about, default: _default, ...shared } = schema;
  const branches = names.map((type) => ({ label: named(type, schema), schema: { ...shared, type } }));
  return { shape: { kind: "choice", branches }, nullable };
}

function typedOf(type: string, schema: JsonObject, root: Schema): Shape {
  switch (type) {
    case "string":
      return { kind: "text", format: formatOf(schema), examples: list(schema["examples"]).map(shown).slice(0, 20) };
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
  // An object that says nothing of itself takes whatever JSON there is.
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
  return { kind: "array", items, most: number(schema["maxItems"]) };
}

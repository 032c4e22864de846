/** Form values: JSON, with `undefined` for empty fields. */

import type { FieldError, Json, JsonObject } from "../protocol";
import { trans } from "../translation";
import type { Field, Schema } from "./schema";
import { fieldOf, isObject } from "./schema";

export type Value = Json | undefined;
export type Path = (string | number)[];

/** Return a copy with the value at a path replaced. Setting undefined removes a key. */
export function withValue(value: Value, path: Path, change: Value): Value {
  const [key, ...rest] = path;
  if (key === undefined) return change;
  if (typeof key === "number") {
    const items = Array.isArray(value) ? [...value] : [];
    items[key] = withValue(items[key], rest, change) as Json;
    return items;
  }
  const object = isObject(value) ? { ...value } : {};
  const inner = withValue(Object.hasOwn(object, key) ? object[key] : undefined, rest, change);
  if (inner === undefined) delete object[key];
  // Not by assignment, because a property may be named __proto__.
  else Object.defineProperty(object, key, { value: inner, enumerable: true, configurable: true, writable: true });
  return object;
}

/** Return the arguments to send, without empty fields. An optional object that was set is sent even if it is empty. */
export function argumentsOf(value: Value, schema: Schema): JsonObject {
  const kept = prune(value, schema, schema, 0);
  return isObject(kept) ? kept : {};
}

/** Return an error for each item of a list that was added and left empty. */
export function emptyItems(value: Value, path: Path = []): FieldError[] {
  if (value === undefined) return typeof path.at(-1) === "number" ? [{ path, message: trans.__("Required") }] : [];
  // Array.from: a list that is filled from its end has holes.
  if (Array.isArray(value)) return Array.from(value).flatMap((item, index) => emptyItems(item, [...path, index]));
  return isObject(value) ? Object.entries(value).flatMap(([key, item]) => emptyItems(item, [...path, key])) : [];
}

/** Return the value with a null for each missing required property, as places to fill in as JSON. */
export function withRequired(value: JsonObject, schema: Schema): JsonObject {
  const field = fieldOf(schema, schema);
  const required = field.kind === "object" ? field.properties.filter((each) => each.required) : [];
  return { ...Object.fromEntries(required.map(({ name }) => [name, null])), ...value };
}

/** Return the value without the nulls of `withRequired`. */
export function withoutBlanks(value: JsonObject, schema: Schema): JsonObject {
  const field = fieldOf(schema, schema);
  const properties = new Map(field.kind === "object" ? field.properties.map((each) => [each.name, each]) : []);
  const isBlank = (name: string): boolean => {
    const property = properties.get(name);
    return value[name] === null && property !== undefined && !fieldOf(property.schema, schema).nullable;
  };
  return Object.fromEntries(Object.entries(value).filter(([name]) => !isBlank(name)));
}

const MAX_DEPTH = 64;
const MAX_IMPLIED_DEPTH = 6;

function prune(value: Value, schema: Schema, root: Schema, depth: number): Value {
  if (value === null || typeof value !== "object" || depth > MAX_DEPTH) return value;
  const field = fieldOf(schema, root);
  if (Array.isArray(value)) {
    const items = field.kind === "array" ? field.items : true;
    return value
      .filter((item) => (item as Value) !== undefined)
      .map((item) => prune(item, items, root, depth + 1) as Json);
  }
  if (field.kind !== "object") return value;
  const kept = new Map<string, Json>();
  const properties = new Map(field.properties.map((property) => [property.name, property]));
  for (const [name, item] of Object.entries(value)) {
    const property = properties.get(name);
    const inner = property ? prune(item, property.schema, root, depth + 1) : item;
    if (inner !== undefined) kept.set(name, inner);
  }
  for (const { name, schema: inner, required } of field.properties) {
    if (!required || kept.has(name) || depth >= MAX_IMPLIED_DEPTH) continue;
    const made = impliedValue(fieldOf(inner, root), inner, root, depth);
    if (made !== undefined) kept.set(name, made);
  }
  return Object.fromEntries(kept);
}

/** The value of a required field that leaves no choice: a constant, or an empty object. */
function impliedValue(field: Field, schema: Schema, root: Schema, depth: number): Value {
  if (field.nullable) return undefined;
  if (field.kind === "const") return field.value;
  return field.kind === "object" ? prune({}, schema, root, depth + 1) : undefined;
}

/** The initial value of a new item. */
export function initialValue(field: Field): Value {
  if (field.default !== undefined) return field.default;
  switch (field.kind) {
    case "object":
      return {};
    case "array":
    case "several":
    case "tuple":
      return [];
    case "const":
      return field.value;
    case "boolean":
      return false;
    case "null":
      return null;
    default:
      return undefined;
  }
}

/** The default values of an object schema's properties. */
export function defaults(schema: Schema, root: Schema = schema): JsonObject {
  const field = fieldOf(schema, root);
  if (field.kind !== "object") return {};
  const values = field.properties.map(({ name, schema: inner }) => [name, fieldOf(inner, root).default] as const);
  return Object.fromEntries(values.filter((entry): entry is [string, Json] => entry[1] !== undefined));
}

/** The required constants of an object schema. */
export function constantProperties(schema: Schema, root: Schema = schema): JsonObject {
  const field = fieldOf(schema, root);
  if (field.kind !== "object") return {};
  const fixed: [string, Json][] = [];
  for (const property of field.properties) {
    const inner = fieldOf(property.schema, root);
    if (inner.kind === "const" && property.required) fixed.push([property.name, inner.value]);
  }
  return Object.fromEntries(fixed);
}

/** The index of the branch that best matches a value; -1 for none. */
export function branchOf(value: Value, branches: { schema: Schema }[], root: Schema): number {
  if (value === undefined) return -1;
  const fits = branches.map(({ schema }) => matchScore(value, fieldOf(schema, root), root));
  const best = Math.max(...fits);
  return best > 0 ? fits.indexOf(best) : -1;
}

function matchScore(value: Json, field: Field, root: Schema): number {
  switch (field.kind) {
    case "text":
      return typeof value === "string" ? 1 : 0;
    case "number":
      return typeof value === "number" && (!field.integer || Number.isInteger(value)) ? (field.integer ? 2 : 1) : 0;
    case "boolean":
      return typeof value === "boolean" ? 1 : 0;
    case "enum":
      return field.options.some((option) => option.value === value) ? 3 : 0;
    case "const":
      return JSON.stringify(field.value) === JSON.stringify(value) ? 3 : 0;
    case "array":
    case "several":
    case "tuple":
      return Array.isArray(value) ? 1 : 0;
    case "object":
      return isObject(value) ? objectMatchScore(value, field.properties, root) : 0;
    case "json":
      return 0.5;
    default:
      return 0;
  }
}

/** Matching constants (discriminators) count more than matching keys. */
function objectMatchScore(value: JsonObject, properties: { name: string; schema: Schema }[], root: Schema): number {
  let score = 1;
  for (const { name, schema } of properties) {
    if (!Object.hasOwn(value, name)) continue;
    const inner = fieldOf(schema, root);
    if (inner.kind === "const") {
      if (JSON.stringify(inner.value) !== JSON.stringify(value[name])) return 0;
      score += 100;
    } else score += 1;
  }
  return score;
}

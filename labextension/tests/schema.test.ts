import { describe, expect, test } from "vitest";
import type { Schema } from "../src/form/schema";
import { fieldOf, resolvePointer } from "../src/form/schema";
import { argumentsOf, branchOf, defaults, withValue } from "../src/form/values";
import type { JsonObject } from "../src/protocol";
import schemas from "./fixtures/schemas.json";

const field = (schema: Schema, root: Schema = schema): ReturnType<typeof fieldOf> => fieldOf(schema, root);

describe("a schema's kind of field", () => {
  test.each<[JsonObject, JsonObject]>([
    [{ type: "string" }, { kind: "text", format: "text" }],
    [
      { type: "string", format: "password" },
      { kind: "text", format: "password" },
    ],
    [
      { type: "string", format: "date-time" },
      { kind: "text", format: "date-time" },
    ],
    [
      { type: "string", format: "constructor" },
      { kind: "text", format: "text" },
    ],
    [
      { type: "string", maxLength: 4000 },
      { kind: "text", format: "long" },
    ],
    [
      { type: "integer", minimum: 1 },
      { kind: "number", integer: true, minimum: 1, maximum: null },
    ],
    [{ type: "boolean" }, { kind: "boolean" }],
    [{ const: 3 }, { kind: "const", value: 3 }],
    [
      { enum: ["a", null, 2] },
      {
        kind: "enum",
        nullable: true,
        options: [
          { value: "a", label: "a" },
          { value: 2, label: "2" },
        ],
      },
    ],
    [
      { enum: ["a"], enumNames: ["the first"] },
      { kind: "enum", options: [{ value: "a", label: "the first" }] },
    ],
    [{ oneOf: [{ const: "r", title: "red" }] }, { kind: "enum", options: [{ value: "r", label: "red" }] }],
    [{ type: ["string", "null"] }, { kind: "text", nullable: true }],
    [
      { type: "string", nullable: true },
      { kind: "text", nullable: true },
    ],
    [
      { anyOf: [{ type: "integer" }, { type: "null" }], default: null },
      { kind: "number", nullable: true, default: null },
    ],
    [{ type: "array", items: { enum: ["a", "b"] } }, { kind: "several" }],
    [{ type: "array", prefixItems: [{ type: "string" }, {}] }, { kind: "tuple" }],
    [
      { type: "object", additionalProperties: { type: "string" } },
      { kind: "object", properties: [], rest: { type: "string" } },
    ],
    [{ type: "object" }, { kind: "json" }],
    [{}, { kind: "json" }],
    [{ not: { type: "string" } }, { kind: "json" }],
    [{ $ref: "https://example.com/schema" }, { kind: "json" }],
    [{ $ref: "#/$defs/missing" }, { kind: "json" }],
    [{ $ref: "#" }, { kind: "json" }],
  ])("%j", (schema, expected) => {
    expect(field(schema)).toMatchObject(expected);
  });

  test("several types are a choice, named in words", () => {
    const found = field({ type: ["string", "array", "null"], items: { type: "string" } });
    expect(found).toMatchObject({ kind: "choice", nullable: true });
    expect(found.kind === "choice" && found.branches.map((branch) => branch.label)).toEqual(["text", "list of text"]);
  });

  test("branches are named by title or definition, twins apart", () => {
    const root: JsonObject = {
      anyOf: [{ $ref: "#/$defs/Circle" }, { type: "object", title: "Square" }, { type: "object", title: "Square" }],
      $defs: { Circle: { type: "object", properties: { r: { type: "number" } } } },
    };
    const found = field(root);
    expect(found.kind === "choice" && found.branches.map((branch) => branch.label)).toEqual([
      "Circle",
      "Square",
      "Square (3)",
    ]);
  });

  test("a reference is followed within the document, with what stands beside it", () => {
    const root: JsonObject = {
      $defs: { "a/b": { type: "integer", title: "old" } },
      x: { $ref: "#/$defs/a~1b", title: "new" },
    };
    expect(field(root["x"] as JsonObject, root)).toMatchObject({
      kind: "number",
      title: "new",
      refs: ["#/$defs/a~1b"],
    });
    expect(resolvePointer("#/__proto__", root)).toBeUndefined();
  });

  test("references in a circle are typed as JSON", () => {
    const root: JsonObject = { $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } };
    expect(field({ $ref: "#/$defs/a" }, root).kind).toBe("json");
  });

  test("allOf adds up", () => {
    const found = field({
      allOf: [
        { type: "object", properties: { a: { type: "string" } }, required: ["a"] },
        { properties: { b: { type: "integer" } } },
      ],
    });
    expect(found.kind === "object" && found.properties.map(({ name, required }) => [name, required])).toEqual([
      ["b", false],
      ["a", true],
    ]);
  });

  test("an object with variants beside its properties keeps its properties", () => {
    const found = field({
      type: "object",
      properties: { a: {}, b: {} },
      anyOf: [{ required: ["a"] }, { required: ["b"] }],
    });
    expect(found.kind).toBe("object");
  });

  test("every level of every schema of real servers has a field", () => {
    const kinds = new Map<string, number>();
    const walk = (schema: Schema, root: Schema, depth: number): void => {
      if (depth > 8) return;
      const found = fieldOf(schema, root);
      kinds.set(found.kind, (kinds.get(found.kind) ?? 0) + 1);
      if (found.kind === "object") found.properties.forEach((property) => walk(property.schema, root, depth + 1));
      if (found.kind === "array") walk(found.items, root, depth + 1);
      if (found.kind === "choice") found.branches.forEach((branch) => walk(branch.schema, root, depth + 1));
    };
    for (const schema of Object.values(schemas as unknown as { [name: string]: JsonObject })) walk(schema, schema, 0);
    expect(Object.fromEntries(kinds)).toMatchObject({
      text: expect.any(Number),
      choice: expect.any(Number),
      array: expect.any(Number),
    });
    expect(kinds.get("json") ?? 0).toBe(0);
  });
});

describe("the arguments of a form", () => {
  const schema: JsonObject = {
    type: "object",
    required: ["must", "kind", "inner"],
    properties: {
      must: { type: "string" },
      kind: { const: "k" },
      inner: { type: "object", properties: { deep: { type: "string" } } },
      may: { type: "object", properties: { deep: { type: "string" } } },
      rows: {
        type: "array",
        items: { type: "object", properties: { may: { type: "object", properties: { a: {} } } } },
      },
    },
  };

  test("keys left empty go; constants, required objects and optional ones that were set stay", () => {
    expect(argumentsOf({}, schema)).toEqual({ kind: "k", inner: {} });
    const typed = withValue(withValue({}, ["may", "deep"], "x"), ["may", "deep"], undefined);
    expect(argumentsOf(typed, schema)).toEqual({ kind: "k", inner: {}, may: {} });
    expect(argumentsOf({ rows: [{ may: {} }] }, schema)).toEqual({ kind: "k", inner: {}, rows: [{ may: {} }] });
  });

  test("false, zero, null and the empty text that was typed as JSON stay", () => {
    const open: JsonObject = { type: "object", properties: { a: {}, b: {}, c: {}, d: {} } };
    expect(argumentsOf({ a: false, b: 0, c: null, d: "" }, open)).toEqual({ a: false, b: 0, c: null, d: "" });
  });

  test("a required object that contains itself is not made without end", () => {
    const loop: JsonObject = { type: "object", properties: { next: { $ref: "#" } }, required: ["next"] };
    expect(JSON.stringify(argumentsOf({}, loop)).length).toBeLessThan(200);
  });

  test("a change touches nothing but its way", () => {
    const before = { a: { b: [1, { c: 2 }] }, d: { e: 1 } };
    const after = withValue(before, ["a", "b", 1, "c"], 3) as typeof before;
    expect(after).toEqual({ a: { b: [1, { c: 3 }] }, d: { e: 1 } });
    expect(after.d).toBe(before.d);
    expect(before.a.b[1]).toEqual({ c: 2 });
  });

  test("a property named __proto__ is a property", () => {
    const value = withValue({}, ["__proto__", "polluted"], "yes");
    expect(Object.keys(value as object)).toEqual(["__proto__"]);
    expect(({} as { polluted?: string }).polluted).toBeUndefined();
  });

  test("defaults fill a form that begins with them", () => {
    expect(
      defaults({
        type: "object",
        properties: { a: { type: "string", default: "x" }, b: { type: "boolean", default: false }, c: {} },
      }),
    ).toEqual({
      a: "x",
      b: false,
    });
  });

  test("a value finds its branch by its constants", () => {
    const branches = ["a", "b"].map((kind) => ({
      schema: { type: "object", properties: { kind: { const: kind } } } as JsonObject,
    }));
    expect(branchOf({ kind: "b" }, branches, true)).toBe(1);
    expect(branchOf(undefined, branches, true)).toBe(-1);
  });
});

import { cleanup, fireEvent, render, waitFor, within } from "@testing-library/preact";
import { afterEach, describe, expect, test } from "vitest";
import type { FormState } from "../src/form/form";
import { SchemaForm } from "../src/form/form";
import type { Schema } from "../src/form/schema";
import { argumentsOf } from "../src/form/values";
import type { FieldError, Json, JsonObject } from "../src/protocol";
import schemas from "./fixtures/schemas.json";
import { choose, type } from "./screen";

afterEach(cleanup);

const made = schemas as unknown as { [name: string]: JsonObject };
const NONE: FieldError[] = [];
const schemaOf = (name: string): JsonObject => {
  const schema = made[name];
  if (!schema) throw new Error(name);
  return schema;
};

function form(schema: Schema, given: { errors?: FieldError[]; initial?: JsonObject } = {}) {
  let state: FormState = { value: {}, problems: NONE };
  let submits = 0;
  const onChange = (next: FormState): void => {
    state = next;
  };
  const draw = (errors: FieldError[]) => (
    <SchemaForm
      schema={schema}
      initial={given.initial ?? {}}
      errors={errors}
      onChange={onChange}
      onSubmit={() => (submits += 1)}
      empty="No arguments."
    >
      <button type="submit">Run</button>
    </SchemaForm>
  );
  const { container, rerender } = render(draw(given.errors ?? NONE));
  const box = container as HTMLElement;
  return {
    container: box,
    see: within(box),
    wrong: (errors: FieldError[]) => rerender(draw(errors)),
    sent: () => argumentsOf(state.value, schema),
    broken: () => state.problems.length > 0,
    problems: () => state.problems.map(({ path, message }) => [path, message]),
    submits: () => submits,
    click: (name: string, index = 0) => {
      const button = within(box).getAllByRole("button", { name })[index];
      if (!button) throw new Error(name);
      fireEvent.click(button);
    },
  };
}

const props = (properties: JsonObject, required: string[] = []): JsonObject => ({
  type: "object",
  properties,
  required,
});
const soon = (check: () => void): Promise<void> => waitFor(check);

describe("a form", () => {
  test.each(Object.keys(made))(
    "of a real server's tool is drawn, and sends nothing of what is left empty: %s",
    (name) => {
      const { sent, container } = form(schemaOf(name));
      expect(container.querySelectorAll(".mcp-form > .mcp-field").length).toBe(
        Object.keys((schemaOf(name)["properties"] ?? {}) as object).length,
      );
      for (const value of Object.values(sent())) expect(value).toEqual({});
    },
  );

  test("texts, numbers, choices and boxes become values of their types", async () => {
    const { see, sent } = form(
      props({
        t: { type: "string" },
        i: { type: "integer" },
        e: { enum: ["a", 2] },
        b: { type: "boolean" },
        d: { type: "boolean", default: true },
      }),
    );
    type(see.getByLabelText("t"), "00123");
    type(see.getByLabelText("i"), "12");
    choose(see.getByLabelText("e"), "2");
    fireEvent.click(within(see.getByRole("radiogroup", { name: "b" })).getByLabelText("False"));
    const d = within(see.getByRole("radiogroup", { name: "d" }));
    expect((d.getByLabelText("Default: true") as HTMLInputElement).checked).toBe(true);
    fireEvent.click(d.getByLabelText("False"));
    await soon(() => expect(sent()).toEqual({ t: "00123", i: 12, e: 2, b: false, d: false }));
    type(see.getByLabelText("t"), "");
    choose(see.getByLabelText("e"), "Not set");
    fireEvent.click(within(see.getByRole("radiogroup", { name: "b" })).getByLabelText("Not set"));
    await soon(() => expect(sent()).toEqual({ i: 12, d: false }));
  });

  test("what is no number goes as it was typed: the kernel says what is wrong", async () => {
    const { see, sent } = form(props({ n: { type: "number" }, big: { type: "integer" } }));
    type(see.getByLabelText("n"), "1.5e3");
    type(see.getByLabelText("big"), "9007199254740993");
    await soon(() => expect(sent()).toEqual({ n: 1500, big: "9007199254740993" }));
    type(see.getByLabelText("n"), "many");
    await soon(() => expect(sent()["n"]).toBe("many"));
  });

  test("an item is added, filled and removed", async () => {
    const { see, sent, click } = form(schemaOf("filesystem.read_multiple_files"));
    click("Add an item");
    click("Add an item");
    await soon(() => expect(see.getAllByLabelText(/^[12]$/)).toHaveLength(2));
    type(see.getByLabelText("1"), "a.txt");
    type(see.getByLabelText("2"), "b.txt");
    await soon(() => expect(sent()).toEqual({ paths: ["a.txt", "b.txt"] }));
    click("Remove item 1");
    await soon(() => expect(sent()).toEqual({ paths: ["b.txt"] }));
    expect((see.getByLabelText("1") as HTMLTextAreaElement).value).toBe("b.txt");
  });

  test("objects in lists in objects are filled (memory's create_entities)", async () => {
    const { see, sent, click } = form(schemaOf("memory.create_entities"));
    click("Add an item");
    type(await see.findByLabelText("name"), "Ada");
    type(see.getByLabelText("entityType"), "person");
    click("Add an item", 0);
    await soon(() => expect(sent()).toMatchObject({ entities: [{ name: "Ada", entityType: "person" }] }));
  });

  test("a list of choices, nested twice (excel's write_range)", async () => {
    const { see, sent, click } = form(schemaOf("excel.write_range"));
    click("Add an item", 0);
    await soon(() => expect(see.getAllByRole("button", { name: "Add an item" }).length).toBe(3));
    click("Add an item", 0);
    const choice = await waitFor(() => see.getByRole("combobox"));
    choose(choice, "number");
    type(await waitFor(() => see.getByRole("textbox", { name: "number" })), "3");
    await soon(() => expect(sent()).toMatchObject({ rows: [[3]] }));
  });

  test("a choice of objects sends the constants that tell them apart", async () => {
    const { see, sent } = form(
      props({
        shape: {
          oneOf: [
            { title: "circle", ...props({ kind: { const: "circle" }, r: { type: "number" } }, ["kind"]) },
            { title: "square", ...props({ kind: { const: "square" }, a: { type: "number" } }, ["kind"]) },
          ],
        },
      }),
    );
    choose(see.getByRole("combobox"), "square");
    type(await see.findByLabelText("a"), "2");
    await soon(() => expect(sent()).toEqual({ shape: { kind: "square", a: 2 } }));
    choose(see.getByRole("combobox"), "circle");
    await soon(() => expect(sent()).toEqual({ shape: { kind: "circle" } }));
  });

  test("null can be said where it differs from nothing", async () => {
    const { see, sent } = form(props({ n: { type: ["string", "null"] } }, ["n"]));
    fireEvent.click(see.getByLabelText("null"));
    await soon(() => expect(sent()).toEqual({ n: null }));
    fireEvent.click(see.getByLabelText("null"));
    await soon(() => expect(sent()).toEqual({}));
  });

  test("keys of the user's own are a table", async () => {
    const { see, sent, click } = form(props({ env: { type: "object", additionalProperties: { type: "string" } } }));
    click("Set");
    await soon(() => click("Add a key"));
    type(await see.findByLabelText("Key 1"), "HOME");
    type(await see.findByLabelText("value"), "/root");
    await soon(() => expect(sent()).toEqual({ env: { HOME: "/root" } }));
    type(see.getByLabelText("Key 1"), "USER");
    await soon(() => expect(sent()).toEqual({ env: { USER: "/root" } }));
    click("Remove key 1");
    await soon(() => expect(sent()).toEqual({ env: {} }));
    click("Clear");
    await soon(() => expect(sent()).toEqual({}));
  });

  test("what no field can ask is typed as JSON, and not sent before it is JSON", async () => {
    const { see, sent, broken } = form(props({ x: { not: { type: "string" } } }));
    type(see.getByLabelText("x"), "{1");
    await soon(() => expect(broken()).toBe(true));
    expect(see.getByText('Invalid JSON. Strings need double quotes: "text".')).toBeTruthy();
    type(see.getByLabelText("x"), '{"a": [1]}');
    await soon(() => expect([broken(), sent()]).toEqual([false, { x: { a: [1] } }]));
  });

  const place = props({ lat: { type: "number" }, lon: { type: "number" } }, ["lat", "lon"]);
  const target = { anyOf: [{ type: "string" }, { type: "integer" }, { title: "place", ...place }] };
  const names = { type: "object", additionalProperties: { type: "string" } };
  test.each<
    [string, Json, [act: "press" | "choose" | "type", text: string][], JsonObject, [(string | number)[], string][]]
  >([
    ["an optional object", place, [["press", "Set"]], { x: {} }, []],
    [
      "an optional object in an optional one",
      props({ y: place }),
      [
        ["press", "Set"],
        ["press", "Set"],
      ],
      { x: { y: {} } },
      [],
    ],
    ["an object among choices", target, [["choose", "place"]], { x: {} }, []],
    ["a text among choices", target, [["choose", "text"]], {}, [[["x"], "Required"]]],
    [
      "a choice that was taken back",
      target,
      [
        ["choose", "text"],
        ["choose", "Not set"],
      ],
      {},
      [],
    ],
    [
      "true or false among choices",
      { anyOf: [{ type: "boolean" }, { type: "integer" }] },
      [["choose", "true or false"]],
      {},
      [[["x"], "Required"]],
    ],
    ["a list among choices", { anyOf: [{ type: "string" }, { type: "array" }] }, [["choose", "list"]], { x: [] }, []],
    [
      "an item of a list",
      { type: "array", items: { type: "string" } },
      [["press", "Add an item"]],
      { x: [] },
      [[["x", 0], "Required"]],
    ],
    [
      "a pair, filled from its end",
      { prefixItems: [{ type: "string" }, { type: "string" }], type: "array" },
      [["type", "2=b"]],
      { x: ["b"] },
      [[["x", 0], "Required"]],
    ],
    [
      "a key",
      names,
      [
        ["press", "Set"],
        ["press", "Add a key"],
      ],
      { x: {} },
      [[["x"], "A key is empty."]],
    ],
    [
      "a key's value",
      names,
      [
        ["press", "Set"],
        ["press", "Add a key"],
        ["type", "Key 1=A"],
      ],
      { x: {} },
      [[["x"], "A has no value"]],
    ],
    [
      "a second key of the same name",
      names,
      [
        ["press", "Set"],
        ["press", "Add a key"],
        ["type", "Key 1=A"],
        ["type", "value=1"],
        ["press", "Add a key"],
        ["type", "Key 2=A"],
      ],
      { x: { A: "1" } },
      [[["x"], "The key A is there twice."]],
    ],
  ])("what was chosen, set or added is not left out because it is empty: %s", async (_, x, steps, kept, errors) => {
    const { see, sent, problems, click } = form(props({ x }));
    for (const [act, text] of steps) {
      const [label = "", value = ""] = text.split("=");
      if (act === "press") await soon(() => click(text));
      else if (act === "choose") choose(see.getByRole("combobox"), text);
      else type(await see.findByLabelText(label), value);
    }
    await soon(() => expect([sent(), problems()]).toEqual([kept, errors]));
  });

  test("invalid JSON is not lost when another field is searched for", async () => {
    const { see, problems } = form(
      props(Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`f${index}`, {}]))),
    );
    type(see.getByLabelText("f3"), "{1");
    type(see.getByRole("searchbox"), "f4");
    await soon(() => expect(see.queryByLabelText("f5")).toBeNull());
    expect((see.getByLabelText("f3") as HTMLTextAreaElement).value).toBe("{1");
    expect(problems()).toEqual([[["f3"], 'Invalid JSON. Strings need double quotes: "text".']]);
  });

  test("all of it can be edited as JSON and back", async () => {
    const { see, sent, click, broken } = form(props({ a: { type: "string" }, n: { type: "integer" } }));
    type(see.getByLabelText("a"), "x");
    await soon(() => expect(sent()).toEqual({ a: "x" }));
    click("Edit as JSON");
    const text = await waitFor(() => see.getByRole("textbox"));
    expect(JSON.parse((text as HTMLTextAreaElement).value)).toEqual({ a: "x" });
    type(text, "[1]");
    await soon(() => expect(broken()).toBe(true));
    type(text, '{"a": "y", "n": 3}');
    await soon(() => expect([sent(), broken()]).toEqual([{ a: "y", n: 3 }, false]));
    click("Edit as fields");
    await soon(() => expect((see.getByLabelText("n") as HTMLInputElement).value).toBe("3"));
  });

  test("as JSON what is required stands there as null, and is missing again in the form", async () => {
    const { see, sent, click } = form(props({ a: { type: "string" }, b: { type: "integer" }, c: {} }, ["a", "b"]));
    type(see.getByLabelText("a"), "x");
    await soon(() => expect(sent()).toEqual({ a: "x" }));
    click("Edit as JSON");
    const text = (await waitFor(() => see.getByRole("textbox"))) as HTMLTextAreaElement;
    await soon(() => expect(JSON.parse(text.value)).toEqual({ a: "x", b: null }));
    click("Edit as fields");
    await soon(() => expect(sent()).toEqual({ a: "x" }));
  });

  test("what has a name of long text is given several lines", () => {
    const { see } = form(
      props({ body: { type: "string" }, messageBody: { type: "string" }, nobody: { type: "string" } }),
    );
    const rows = ["body", "messageBody", "nobody"].map((name) => see.getByLabelText(name).getAttribute("rows"));
    expect(rows).toEqual(["4", "4", "1"]);
  });

  test("what contains itself opens on demand, ever deeper", async () => {
    const tree: JsonObject = {
      ...props({ name: { type: "string" }, child: { $ref: "#/$defs/Node" } }, ["name", "child"]),
      $defs: {},
    };
    tree["$defs"] = { Node: props({ name: { type: "string" }, child: { $ref: "#/$defs/Node" } }, ["name", "child"]) };
    const { see, click } = form(tree);
    for (let depth = 1; depth < 5; depth++) {
      await soon(() => expect(see.getAllByLabelText("name")).toHaveLength(depth + 1));
      click("Set");
    }
  });

  test("what is wrong stands at its field and in a list that is announced", async () => {
    const { see, wrong } = form(props({ a: { type: "object", properties: { b: { type: "integer" } } } }, ["a"]));
    wrong([
      { path: ["a", "b"], message: "is too small" },
      { path: [], message: "something is missing" },
    ]);
    await soon(() => expect(see.getByLabelText("b").getAttribute("aria-invalid")).toBe("true"));
    const described = see.getByLabelText("b").getAttribute("aria-describedby") ?? "";
    expect(document.getElementById(described)?.textContent).toBe("is too small");
    expect(see.getByRole("alert").textContent).toContain("a.b is too small");
    expect(see.getByRole("alert").textContent).toContain("something is missing");
  });

  test("Enter submits a field of one row, where Shift+Enter makes a line; Ctrl+Enter submits any", () => {
    const { see, submits } = form(props({ a: { type: "string" }, b: { type: "string", maxLength: 5000 }, c: {} }));
    const press = (name: string, keys: KeyboardEventInit = {}): boolean =>
      fireEvent.keyDown(see.getByLabelText(name), { key: "Enter", ...keys });
    expect(press("a"), "no line is made").toBe(false);
    expect(submits()).toBe(1);
    expect(press("a", { shiftKey: true })).toBe(true);
    expect(press("a", { isComposing: true })).toBe(true);
    expect(press("b")).toBe(true);
    expect(press("c")).toBe(true);
    expect(submits()).toBe(1);
    for (const name of ["a", "b", "c"]) press(name, { ctrlKey: true });
    expect(submits()).toBe(4);
  });

  test("no arguments need no form", () => {
    const { see } = form({ type: "object", properties: {} });
    expect(see.getByText("No arguments.")).toBeTruthy();
  });

  test("a schema that names no arguments takes any", async () => {
    const { see, sent, click } = form({ type: "object" });
    click("Add a key");
    type(await see.findByLabelText("Key 1"), "a");
    type(await see.findByLabelText("value"), "[1]");
    await soon(() => expect(sent()).toEqual({ a: [1] }));
  });

  test("1,000 fields: the required and the first ones are drawn, any other is found by its name", async () => {
    const names = Array.from({ length: 1000 }, (_, index) => `field_${index}`);
    const schema = props(Object.fromEntries(names.map((name) => [name, { type: "string" }])), ["field_999"]);
    const { see, sent, container } = form(schema);
    expect(container.querySelectorAll(".mcp-field").length).toBeLessThanOrEqual(41);
    expect(container.querySelector(".mcp-name")?.textContent).toBe("field_999");
    type(see.getByRole("searchbox"), "field_512");
    type(await see.findByLabelText("field_512"), "x");
    type(see.getByRole("searchbox"), "");
    await soon(() => expect(sent()).toEqual({ field_512: "x" }));
    expect(see.getByLabelText("field_512")).toBeTruthy();
  });
});

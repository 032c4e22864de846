import axe from "axe-core";
import { fireEvent, waitFor } from "@testing-library/preact";
import { expect, test } from "vitest";
import type { JsonObject, Question } from "../src/protocol";
import { FakeKernel, server, stateOf, tool } from "./fake";
import schemas from "./fixtures/schemas.json";
import { show } from "./screen";

/** Colours need a browser that paints: they are looked at there. */
async function faults(root: HTMLElement): Promise<string[]> {
  const { violations } = await axe.run(root, {
    rules: { "color-contrast": { enabled: false }, region: { enabled: false } },
  });
  return violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 200)}`));
}

const made = schemas as unknown as { [name: string]: JsonObject };
const questions: Question[] = [
  { id: "1", server: "demo", type: "fill", title: "Who?", message: "Say.", schema: made["excel.write_range"] ?? {} },
  {
    id: "1",
    server: "demo",
    type: "approve",
    title: "May it?",
    message: "",
    answers: ["once", "always", "no"],
    calls: [{ server: "a", tool: "b", arguments: { c: 1 }, caller: "model", why: "", hints: "" }],
  },
  {
    id: "1",
    server: "demo",
    type: "trust",
    title: "May they?",
    message: "",
    candidates: [{ name: "a", lines: ["x"], dangers: ["y"], secrets: ["z"] }],
  },
];

test.each(["Servers", "Tools", "Resources", "Prompts", "Calls", "Logs"])("axe finds nothing in %s", async (name) => {
  const kernel = new FakeKernel(
    stateOf([
      server("demo", { resources: 1, prompts: 1 }),
      server("b", { state: "error", error: { message: "x", hint: "y" } }),
    ]),
    {
      tools: () => Object.keys(made).map((key) => tool("demo", key, { badges: [{ text: "read-only", kind: "safe" }] })),
      tool: ({ tool: key }) => tool("demo", key, { ...(made[key] && { schema: made[key] }) }),
      resources: () => ({ resources: [{ uri: "a://b", name: "b" }], templates: [] }),
      prompts: () => [{ name: "p", arguments: [{ name: "a" }] }],
      history: () => [
        {
          id: 1,
          outcome: "succeeded",
          time: 1,
          duration: 1,
          caller: "user",
          server: "a",
          tool: "b",
          sent: 1,
          received: 1,
          error: "",
        },
      ],
    },
  );
  const { see, tab, root, click } = await show(kernel);
  kernel.patch({
    calls: { 5: { id: 5, server: "a", tool: "b", caller: "user", started: 1, progress: null, where: "notebook" } },
  });
  kernel.transport.say({
    kind: "log",
    server: "demo",
    dropped: 0,
    lines: [{ n: 1, time: 1, level: "info", source: "host", text: "x" }],
  });
  if (name === "Servers") click("demo");
  tab(name);
  if (["Tools", "Resources", "Prompts"].includes(name)) {
    await waitFor(() => expect(root.querySelector("[role=listbox]")).not.toBeNull());
    const options = [...root.querySelectorAll("[role=listbox] [role=option]")];
    fireEvent.click(
      options.find((option) => option.textContent?.includes("transform_range")) ?? (options[0] as Element),
    );
    await waitFor(() => expect(see.getAllByRole("heading").length).toBeGreaterThan(0));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(await faults(root)).toEqual([]);
});

test.each(questions)("axe finds nothing in a question: $type", async (question) => {
  const { root } = await show(new FakeKernel(stateOf([server("demo")], [question])));
  expect(await faults(root)).toEqual([]);
});

test("two panels of one page have no id in common: what a label names is its own panel's", async () => {
  const [question] = questions;
  const state = { ...stateOf([server("demo")]), questions: { "1": question as Question } };
  for (const _ of [1, 2]) await show(new FakeKernel(state));
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  expect(ids.length).toBeGreaterThan(30);
  expect(new Set(ids).size).toBe(ids.length);
});

import axe from "axe-core";
import { fireEvent, waitFor } from "@testing-library/preact";
import { expect, test } from "vitest";
import type { JsonObject, QuestionRow } from "../src/protocol";
import { RESULT } from "./demo";
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
const questions: QuestionRow[] = [
  {
    id: "1",
    kind: "form",
    server: "demo",
    type: "fill",
    title: "Who?",
    message: "Say.",
    schema: made["excel.write_range"] ?? {},
  },
  {
    id: "1",
    server: "demo",
    kind: "approval",
    type: "approve",
    title: "May it?",
    message: "",
    answers: ["once", "always", "no"],
    calls: [{ server: "a", tool: "b", arguments: { c: 1 }, caller: "model", why: "", hints: "" }],
  },
  {
    id: "1",
    server: "demo",
    kind: "trust",
    type: "trust",
    title: "May they?",
    message: "",
    candidates: [{ name: "a", summary: "will run `x`.", lines: ["x"], dangers: ["y"], secrets: ["z"] }],
  },
];

const MESSAGE = {
  ...{ n: 1, time: 1, sent: true, type: "request" as const, method: "ping", id: "1", size: 9, duration: null },
  text: "{}",
};

test.each(["Servers", "Tools", "Resources", "Prompts", "Activity", "Logs"])("axe finds nothing in %s", async (name) => {
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
      details: () => ({ arguments: "{}", result: RESULT, questions: ["May it?"], repeatable: true }),
      history: () => [
        {
          id: 1,
          outcome: "done",
          time: 1,
          duration: 1,
          caller: "user",
          server: "a",
          tool: "b",
          sent: 1,
          received: 1,
          error: "",
          notebook: "a.ipynb",
          cell: 3,
        },
      ],
    },
  );
  const { see, tab, list, root, click } = await show(kernel);
  kernel.patch({
    calls: { 5: { id: 5, server: "a", tool: "b", origin: "user", cell: 3, started: 1, progress: null, waits: false } },
  });
  kernel.transport.say({
    kind: "log",
    server: "demo",
    dropped: 0,
    lines: [{ n: 1, time: 1, level: "info", source: "host", text: "x" }],
  });
  if (name === "Servers") click("demo");
  if (!["Tools", "Resources", "Prompts"].includes(name)) tab(name);
  else {
    list(name);
    await waitFor(() => expect(root.querySelector(`[aria-label=${name}] .mcp-row`)).not.toBeNull());
    const options = [...root.querySelectorAll(`[aria-label=${name}] .mcp-row:not([aria-expanded])`)];
    fireEvent.click(
      options.find((option) => option.textContent?.includes("transform_range")) ?? (options[0] as Element),
    );
    await waitFor(() => expect(see.getAllByRole("heading").length).toBeGreaterThan(0));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  if (name === "Activity") {
    fireEvent.click(await see.findByRole("option", { name: /a.b/ }));
    await see.findByRole("heading", { name: "Arguments" });
  }
  expect(await faults(root)).toEqual([]);
  if (name !== "Activity") return;
  click("Protocol\u2026");
  await see.findByLabelText("Search messages");
  kernel.transport.say({ kind: "protocol", server: "demo", dropped: 0, lines: [MESSAGE] });
  fireEvent.click(await see.findByRole("option", { name: /ping/ }));
  await see.findAllByRole("region", { name: /^Selected message/ });
  expect(await faults(root)).toEqual([]);
});

test.each(questions)("axe finds nothing in a question: $type", async (question) => {
  const { root } = await show(new FakeKernel(stateOf([server("demo")], [question])));
  expect(await faults(root)).toEqual([]);
});

test("two panels of one page have no id in common: what a label names is its own panel's", async () => {
  const [question] = questions;
  const state = { ...stateOf([server("demo")]), questions: { "1": question as QuestionRow } };
  for (const _ of [1, 2]) await show(new FakeKernel(state));
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  expect(ids.length).toBeGreaterThan(30);
  expect(new Set(ids).size).toBe(ids.length);
});

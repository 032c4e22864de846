/** A kernel with the demo server, for the tests of views. */

import type { CallRow, Preview } from "../src/protocol";
import { FakeKernel, server, stateOf, tool } from "./fake";

export const RESULT: Preview = {
  text: "42",
  html: null,
  image: null,
  json: null,
  links: [],
  truncated: false,
  size: 2,
  variable: null,
};
export const CALL: CallRow = {
  id: 5,
  server: "demo",
  tool: "slow",
  origin: "model",
  cell: 3,
  started: Date.now() / 1000 - 70,
  progress: { progress: 1, total: 4, message: "a quarter" },
  waits: false,
};
const SCHEMA = {
  type: "object",
  required: ["text"],
  properties: { text: { type: "string" }, times: { type: "integer", default: 1 } },
};

export function demo(given: object = {}): FakeKernel {
  const echo = tool("demo", "echo", {
    description: "Says it back.\nTwice.",
    badges: [{ text: "read-only", kind: "safe" }],
  });
  const kernel: FakeKernel = new FakeKernel(
    stateOf([server("demo", { resources: 1, prompts: 1 }), server("fs", { state: "stopped", since: null, pid: null })]),
    {
      tools: () => [echo, tool("demo", "slow"), tool("fs", "read_file")],
      tool: () => ({ ...echo, schema: SCHEMA }),
      validate: ({ arguments: values = {} }) => ({
        errors:
          "text" in values
            ? []
            : [
                { path: [], message: '"text" is a required property' },
                { path: ["times"], message: "too few" },
              ],
      }),
      call: () => ({ call: 9 }),
      code: ({ form }) => ({ text: form === "python" ? 'mcp.demo.echo("x")' : "%mcp call demo.echo text=x" }),
      memory: () => ({ bytes: 83_400_000, processes: 3 }),
      known: () => [{ name: "time", source: "mcp.json", where: "uvx time", is_project: false }],
      resources: () => ({ resources: [{ uri: "demo://cities", name: "cities" }], templates: [] }),
      read: () => RESULT,
      prompts: () => [{ name: "sum", arguments: [{ name: "text", required: true }, { name: "words" }] }],
      prompt: () => RESULT,
      history: () => [
        {
          id: 1,
          outcome: "done",
          time: 1,
          duration: 0.25,
          caller: "user",
          server: "demo",
          tool: "echo",
          sent: 9,
          received: 2,
          error: "",
          notebook: "a.ipynb",
          cell: 3,
        },
        {
          id: 2,
          outcome: "failed",
          time: 2,
          duration: 1,
          caller: "model",
          server: "demo",
          tool: "fail",
          sent: 9,
          received: 0,
          error: "ToolError: no",
          notebook: "a.ipynb",
          cell: 3,
        },
      ],
    },
    given,
  );
  return kernel;
}

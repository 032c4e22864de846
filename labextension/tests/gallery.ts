/** A page to look at: the panel before a kernel that makes things up. `node tests/gallery.mjs` builds and draws it. */

import { mount } from "../src/panel";
import type { JsonObject, Preview, Question } from "../src/protocol";
import { FakeKernel, server, stateOf, tool } from "./fake";
import schemas from "./fixtures/schemas.json";

const now = Date.now() / 1000;
const made = schemas as unknown as { [name: string]: JsonObject };

const servers = [
  server("demo", {
    since: now - 3725,
    prompts: 1,
    resources: 2,
    instructions: "A small server to try things with.\nAsk it anything.",
  }),
  server("excel", { tools: 46, disabled_tools: 2, since: now - 40, version: "2.2.2", calls: 1204 }),
  server("filesystem", { era: "handshake", tools: 14, since: now - 90_000 }),
  server("git", { state: "starting", since: null, pid: null, tools: 0 }),
  server("github-enterprise-cloud", {
    state: "needs_auth",
    transport: "http",
    where: "https://mcp.example.com/mcp",
    since: null,
    pid: null,
    tools: 0,
  }),
  server("memory", { state: "stopped", since: null, pid: null, tools: 0 }),
  server("postgres", {
    state: "error",
    since: null,
    pid: null,
    tools: 0,
    error: {
      message: "postgres ended before it was ready: PGPASSWORD is not set",
      hint: "It is set here, but not passed on: %mcp load postgres --env PGPASSWORD",
    },
  }),
  server("project-tools", { state: "needs_trust", source: ".vscode/mcp.json", since: null, pid: null, tools: 0 }),
  server("thinking", { state: "disabled", since: null, pid: null, tools: 0 }),
];

const about: { [name: string]: string } = {
  "excel.create_chart": "Draws a chart from ranges of a sheet.\nIts kind decides what the series may say.",
  "demo.query": "Runs a query on the demo's table.",
};
const tools = Object.keys(made).map((name, index) => {
  const [of = "", ...rest] = name.split(".");
  return tool(of, rest.join("."), {
    description: about[name] ?? "Does what its name says.",
    badges:
      index % 3
        ? [{ text: "read-only", kind: "safe" }]
        : [
            { text: "destructive", kind: "danger" },
            { text: "reaches outside", kind: "neutral" },
          ],
    decision: index % 5 ? "allow" : "ask",
    findings: index % 9 ? [] : ["The description holds 3 characters that cannot be seen."],
    changed: index % 8 === 4,
  });
});

const preview: Preview = {
  text: null,
  html: "<table><thead><tr><th>city</th><th>people</th></tr></thead><tbody><tr><td>Oslo</td><td>717,710</td></tr><tr><td>Bergen</td><td>291,940</td></tr></tbody></table><p>From <a href='https://example.com'>the register</a>.<script>alert(1)</script></p>",
  image: null,
  json: [{ city: "Oslo" }],
  links: [
    { uri: "https://example.com/a", name: "source" },
    { uri: "file:///tmp/a.csv", name: "a.csv" },
  ],
  truncated: true,
  size: 20_400_000,
  variable: "mcp_result_3",
};

const questions: { [name: string]: Question } = {
  approve: {
    id: "a",
    server: "excel",
    type: "approve",
    title: "May a model make this call?",
    message: "",
    answers: ["once", "answer", "server", "notebook", "always", "never", "no"],
    calls: [
      {
        server: "excel",
        tool: "delete_sheet",
        arguments: { workbook: "budget.xlsx", sheet: "2024" },
        caller: "model",
        why: "models are asked for",
        hints: "may destroy",
      },
    ],
  },
  fill: {
    id: "f",
    server: "demo",
    type: "fill",
    title: "demo asks",
    message: "Who are you?",
    schema: {
      type: "object",
      required: ["name"],
      properties: {
        name: { type: "string", title: "Name" },
        age: { type: "integer", minimum: 0, maximum: 150, default: 30 },
        born: { type: "string", format: "date" },
        colour: {
          type: "string",
          oneOf: [
            { const: "r", title: "red" },
            { const: "g", title: "green" },
          ],
        },
        news: { type: "boolean", default: true },
        tags: { type: "array", items: { enum: ["a", "b", "c"] } },
      },
    },
  },
  trust: {
    id: "t",
    server: "project-tools",
    type: "trust",
    title: "May these servers run?",
    message: ".vscode/mcp.json defines servers that would run with your rights.",
    candidates: [
      {
        name: "project-tools",
        lines: ["command: npx -y some-tools", "env: TOKEN = ${secret:token}"],
        dangers: ["npx fetches the package when it starts"],
        secrets: ["token"],
      },
    ],
  },
  visit: {
    id: "v",
    server: "github",
    type: "visit",
    title: "Log in to github",
    message: "github wants you to log in.",
    url: "https://login.example.com/authorize?client_id=4711",
    domain: "login.example.com",
  },
};

const asked = new URLSearchParams(location.search);
const kernel = new FakeKernel(
  asked.get("view") === "empty"
    ? stateOf()
    : stateOf(servers, asked.get("question") ? [questions[asked.get("question") ?? ""] as Question] : []),
  {
    tools: () => tools,
    tool: ({ server: of, tool: name }) => ({
      ...(tools.find((each) => each.server === of && each.name === name) ?? tool(of, name)),
      schema: made[`${of}.${name}`] ?? {},
    }),
    validate: ({ arguments: given }) => ({
      errors: Object.keys(given).length
        ? []
        : [
            { path: [], message: '"sql" is a required property' },
            { path: ["rows"], message: '"x" is not of type "integer"' },
          ],
    }),
    call: () => {
      setTimeout(() => kernel.transport.say({ kind: "result", call: 7, ok: true, preview }), 50);
      return { call: 7 };
    },
    code: () => ({ text: "mcp.demo.query()" }),
    memory: () => ({ bytes: 83_400_000, processes: 3 }),
    known: () => [
      { name: "time", source: "mcp.json" },
      { name: "fetch", source: ".vscode/mcp.json" },
    ],
    resources: () => ({
      resources: [{ uri: "demo://cities", name: "cities", mime: "text/csv", description: "All cities" }],
      templates: [{ template: "demo://city/{name}", name: "city" }],
    }),
    read: () => preview,
    prompts: () => [
      {
        name: "summarise",
        description: "Sums a text up.",
        arguments: [{ name: "text", required: true }, { name: "words" }],
      },
    ],
    history: () =>
      Array.from({ length: 200 }, (_, index) => ({
        id: 200 - index,
        outcome: index % 6 === 2 ? "failed" : "succeeded",
        time: now - index * 61,
        duration: index / 7,
        caller: index % 3 ? "user" : "model",
        server: "excel",
        tool: "read_range",
        sent: 80,
        received: 1400,
        error: index % 6 === 2 ? "ToolError: no such sheet" : "",
      })),
    logs: ({ server: of, on }) => {
      if (on) {
        kernel.transport.say({
          kind: "log",
          server: of,
          dropped: 31,
          lines: Array.from({ length: 300 }, (_, n) => ({
            n,
            time: now - 300 + n,
            level: ["info", "debug", "warning", "error"][n % 4] ?? "info",
            source: "stderr" as const,
            text: n % 7 ? `listening on stdio, request ${n} took ${n * 3} ms` : "a long line ".repeat(30),
          })),
        });
      }
      return null;
    },
  },
);
document.documentElement.dataset["theme"] = asked.get("theme") ?? "light";
document.body.dataset["jpThemeLight"] = String(asked.get("theme") !== "dark");
const single = asked.get("server");
mount(
  document.body.appendChild(document.createElement("div")),
  kernel.transport,
  undefined,
  single ? { client: "cell", server: single } : { client: "cell" },
);
setTimeout(() => {
  if (asked.get("view") === "empty") return;
  kernel.patch({
    calls: {
      3: {
        id: 3,
        server: "excel",
        tool: "calculate",
        caller: "model",
        started: now - 75,
        progress: { progress: 3, total: 8, message: "sheet 3 of 8" },
        where: "notebook",
      },
      4: { id: 4, server: "demo", tool: "slow", caller: "user", started: now - 4, progress: null, where: "notebook" },
    },
  });
}, 50);

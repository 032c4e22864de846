import { fireEvent, waitFor, within } from "@testing-library/preact";
import { expect, test } from "vitest";
import { joinWords, splitWords } from "../src/views/definition";
import type { Json, JsonObject } from "../src/protocol";
import { FakeKernel, Refusal, server, stateOf } from "./fake";
import { show, type } from "./screen";
import type { Screen } from "./screen";

const OUTCOME = {
  ...{ name: "mine", place: "mcp.json", runs: "x", folder: "/", python: "mcp.mine", tools: [], more_tools: 0 },
  ...{ problem: null, log: [], notes: [] },
};

/** The form that edits a server, and what it sends. */
async function edit(definition: JsonObject): Promise<Screen & { kernel: FakeKernel; sent(): JsonObject }> {
  const kernel: FakeKernel = new FakeKernel(stateOf([server("mine", { own: true })]), {
    definition: () => ({ text: JSON.stringify(definition), keep: "me" }),
    try: () => OUTCOME,
  });
  const screen = await show(kernel);
  screen.click("Actions of mine");
  fireEvent.click(await screen.see.findByRole("menuitem", { name: "Edit\u2026" }));
  await screen.see.findByRole("heading", { name: "Edit mine" });
  const sent = (): JsonObject => JSON.parse(String(kernel.asked("try").at(-1)?.what)) as JsonObject;
  return { ...screen, kernel, sent };
}

const start = async ({ click, kernel }: { click: Screen["click"]; kernel: FakeKernel }): Promise<void> => {
  const before = kernel.asked("try").length;
  click(/^(Start and test|Try again)$/);
  await waitFor(() => expect(kernel.asked("try")).toHaveLength(before + 1));
};

test.each<[string, string[]]>([
  ["-y pkg@1.2 --root .", ["-y", "pkg@1.2", "--root", "."]],
  [`'mcp<2' "a b" ''`, ["mcp<2", "a b", ""]],
  [String.raw`C:\tools\x.exe a\ b`, [String.raw`C:\tools\x.exe`, "a b"]],
  [`--token $TOKEN '$TOKEN' "$A-\\$B" \${secret:x}`, ["--token", "${TOKEN}", "$TOKEN", "${A}-$B", "${secret:x}"]],
])("arguments are split as shells do: %s", (line, words) => {
  expect(splitWords(line)).toEqual(words);
  expect(splitWords(joinWords(words))).toEqual(words);
});

test("a quote that is not closed splits into nothing, and every word survives being joined", () => {
  expect(splitWords("a 'b")).toBeNull();
  const words = ["it's", 'say "x"', "\\", "$HOME", "", "a\nb", "${A}", "é", "(1)", "a;b"];
  expect(splitWords(joinWords(words))).toEqual(words);
});

test("a program is edited as fields: nothing that has no field is lost, and references stay as they are", async () => {
  const definition = {
    ...{ command: "npx", args: ["-y", "two words"], timeout: 40, lazy: true, colour: { a: 1 } },
    env: { API_KEY: "${secret:mine-API_KEY}", LEVEL: "debug", TOKEN: "\u2022\u2022\u2022\u2022 (12 characters)" },
  };
  const screen = await edit(definition);
  const { see, sent, click } = screen;
  const value = (label: string): string => (see.getByLabelText(label) as HTMLInputElement).value;
  expect(value("Program")).toBe("npx");
  expect(value("Arguments")).toBe("-y 'two words'");
  expect(value("Value of API_KEY")).toBe("${secret:mine-API_KEY}");
  expect((see.getByLabelText("Value of API_KEY") as HTMLInputElement).type).toBe("text");
  expect(see.getByText("From your secrets")).toBeTruthy();
  expect(see.getByText("Hidden; it stays as it is")).toBeTruthy();
  await start(screen);
  expect(sent()).toEqual(definition);
  expect(screen.kernel.asked("try")[0]).toMatchObject({ by: "fields", replaces: "mine", keep: "me" });
  click("Cancel");
  type(see.getByLabelText("Arguments"), "-y other --root=.");
  click("Remove LEVEL");
  click("Add variable");
  type(await see.findByLabelText("Name 3"), "NEW_KEY");
  const secret = (await see.findByLabelText("Value of NEW_KEY")) as HTMLInputElement;
  expect(secret.type).toBe("password");
  type(secret, "s3cret");
  await see.findByText("Will be kept in your secrets");
  type(see.getByLabelText("Working folder"), "/tmp");
  await start(screen);
  const { LEVEL: _, ...env } = definition.env;
  expect(sent()).toEqual({
    ...definition,
    ...{ args: ["-y", "other", "--root=."], cwd: "/tmp", env: { ...env, NEW_KEY: "s3cret" } },
  });
});

test("fields and JSON show the same definition", async () => {
  const screen = await edit({ url: "https://a.example/mcp", headers: { "X-Level": "1" } });
  const { see, click, sent } = screen;
  type(see.getByLabelText("Address"), "https://b.example/mcp");
  type(see.getByLabelText("Value of X-Level"), "2");
  click("Edit as JSON");
  const json = async (): Promise<HTMLTextAreaElement> =>
    (await see.findByPlaceholderText("JSON")) as HTMLTextAreaElement;
  expect(JSON.parse((await json()).value)).toEqual({ url: "https://b.example/mcp", headers: { "X-Level": "2" } });
  type(await json(), JSON.stringify({ command: "uvx", args: ["a"], env: { A: "b" }, more: true }));
  await waitFor(() => click("Edit as fields"));
  expect(((await see.findByLabelText("Program")) as HTMLInputElement).value).toBe("uvx");
  expect((see.getByLabelText("Value of A") as HTMLInputElement).value).toBe("b");
  await start(screen);
  expect(sent()).toEqual({ command: "uvx", args: ["a"], env: { A: "b" }, more: true });
});

test("what is wrong stands at its field, and nothing is sent", async () => {
  const screen = await edit({ command: "npx", env: { A: "b" } });
  const { see, click, kernel } = screen;
  const errorOf = (label: string): string | null | undefined =>
    see.getByLabelText(label).closest(".mcp-field")?.querySelector(".mcp-field-error")?.textContent;
  type(see.getByLabelText("Arguments"), "'open");
  await waitFor(() => expect(errorOf("Arguments")).toBe("A quote is not closed."));
  click("Start and test");
  type(see.getByLabelText("Arguments"), "closed");
  click("Add variable");
  type(await see.findByLabelText("Name 2"), "A");
  await waitFor(() => expect((see.getByLabelText("Name 2") as HTMLInputElement).value).toBe("A"));
  click("Start and test");
  await waitFor(() => expect(errorOf("Name 1")).toBe("A is there twice."));
  expect(see.getByLabelText("Name 2").getAttribute("aria-invalid")).toBe("true");
  expect(kernel.asked("try")).toEqual([]);
});

test("an error that the kernel finds in a value stands at the field of that value", async () => {
  const screen = await edit({ command: "npx", timeout: 5 });
  const { see, kernel } = screen;
  kernel.answers.try = () => {
    throw new Refusal("pasted: mcpServers.mine.timeout: expected a number of seconds, got 0", "write seconds");
  };
  const fail = kernel.transport.say.bind(kernel.transport);
  kernel.transport.say = (message) =>
    fail(
      message.kind === "reply" && !message.ok
        ? { ...message, error: { ...message.error, type: "ConfigError", key: "timeout" } }
        : message,
    );
  await start(screen);
  const field = see.getByLabelText("Timeout in seconds").closest<HTMLElement>(".mcp-field");
  await waitFor(() => expect(field?.textContent).toContain("expected a number of seconds, got 0\nwrite seconds"));
  expect(see.queryByText(/^pasted/)).toBeNull();
});

test("a whole command in place of the program is read by the kernel, as is one that is pasted", async () => {
  const found: { [text: string]: Json } = {
    "KEY=1 npx -y a": { command: "npx", args: ["-y", "a"], env: { KEY: "1" } },
    "claude mcp add far https://a.example/mcp": { url: "https://a.example/mcp" },
  };
  const kernel: FakeKernel = new FakeKernel(stateOf([server("demo")]), {
    pasted: ({ text }) => (found[text] ? { name: "far", text: JSON.stringify(found[text]) } : null),
    try: () => OUTCOME,
  });
  const { see, click, tab, root } = await show(kernel);
  click("Add server\u2026");
  await see.findByRole("heading", { name: "Add a server" });
  tab("Command");
  const panel = (name: string): ReturnType<typeof within> => within(see.getByRole("tabpanel", { name }) as HTMLElement);
  type(await see.findByLabelText("Program"), "KEY=1 npx -y a");
  type(panel("Command").getByLabelText("Arguments"), "--more");
  await waitFor(() => expect((see.getByLabelText("Arguments") as HTMLInputElement).value).toBe("--more"));
  fireEvent.click(panel("Command").getByRole("button", { name: "Start and test" }));
  await waitFor(() => expect(kernel.asked("try")).toHaveLength(1));
  const sent = JSON.parse(String(kernel.asked("try")[0]?.what)) as JsonObject;
  expect(sent).toEqual({ command: "npx", args: ["-y", "a", "--more"], env: { KEY: "1" } });
  fireEvent.click(await see.findByRole("button", { name: "Cancel" }));
  expect((panel("Command").getByLabelText("Program") as HTMLInputElement).value).toBe("npx");

  type(panel("Command").getByLabelText("Program"), "");
  const field = panel("Command").getByLabelText("Program") as HTMLTextAreaElement;
  await waitFor(() => expect(field.value).toBe(""));
  const clipboardData = { getData: () => "claude mcp add far https://a.example/mcp" };
  fireEvent(field, Object.assign(new Event("paste", { bubbles: true }), { clipboardData }));
  await waitFor(() => expect(root.querySelector("[role=tabpanel]:not([hidden]) .mcp-form")).toBeTruthy());
  await waitFor(() =>
    expect((panel("URL").getByLabelText("Address") as HTMLInputElement).value).toBe("https://a.example/mcp"),
  );
  expect((panel("URL").getByLabelText("Name") as HTMLInputElement).value).toBe("far");
});

import type { Problem, UnloadedServer } from "../src/protocol";
import { fireEvent, waitFor, within } from "@testing-library/preact";
import { describe, expect, test } from "vitest";
import { draw } from "../src/panel";
import { PanelModel } from "../src/panelmodel";
import { pageServices } from "../src/services";
import { CALL, RESULT, demo } from "./demo";
import { FakeKernel, server, stateOf, tool } from "./fake";
import { wrap } from "../src/views/logs";
import { choose, show, toolsIn, type } from "./screen";

const known = (name: string, is_project: boolean): UnloadedServer => ({
  ...{ name, source: "mcp.json", where: "", is_project },
});

describe("servers", () => {
  test("each shows its state in a word, and the button that its state asks for", async () => {
    const kernel = demo();
    const { see } = await show(kernel);
    const [first, second] = see.getAllByRole("listitem");
    expect(first?.textContent).toContain("ready");
    expect(second?.textContent).toContain("stopped");
    fireEvent.click(see.getByRole("button", { name: "Start fs" }));
    expect(kernel.asked("start")).toMatchObject([{ server: "fs" }]);
  });

  test("a card is closed; opened it tells what it runs, the rest with its details, and memory only when asked", async () => {
    const kernel = demo();
    kernel.state = stateOf([server("demo")]);
    const { see, click, root } = await show(kernel);
    expect(see.queryByText("uvx mcp-server-demo")).toBeNull();
    click("demo");
    await waitFor(() =>
      expect(root.querySelector(".mcp-details")?.textContent).toBe("Commanduvx mcp-server-demoSourcemcp.jsonDetails"),
    );
    click("Details");
    for (const text of ["stdio", "2026-07-28", "1.4.0", "4711"]) expect(await see.findByText(text)).toBeTruthy();
    expect(kernel.asked("memory")).toEqual([]);
    click("Measure the memory of demo");
    await see.findByText("83 MB (3 processes)");
  });

  test("a dot says in words that a server failed, or else that one waits for the user", async () => {
    const kernel = demo();
    const { see } = await show(kernel);
    const dot = (): string | null | undefined =>
      see
        .getByRole("tab", { name: /^Servers/ })
        .querySelector("[role=img]")
        ?.getAttribute("aria-label");
    expect(dot()).toBeUndefined();
    kernel.patch({ servers: { fs: server("fs", { state: "needs_trust" }) } });
    await waitFor(() => expect(dot()).toBe("A server needs your answer"));
    kernel.patch({ servers: { demo: server("demo", { state: "error" }) } });
    await waitFor(() => expect(dot()).toBe("A server failed"));
    kernel.patch({ servers: { demo: server("demo"), fs: server("fs") } });
    await waitFor(() => expect(dot()).toBeUndefined());
  });

  test("a menu has what can be done with a server, and gives the focus back", async () => {
    const kernel = demo();
    const { see, root, click } = await show(kernel);
    const opener = see.getByRole("button", { name: "Actions of demo" });
    opener.focus();
    fireEvent.click(opener);
    const items = (): string[] => see.queryAllByRole("menuitem").map((item) => item.textContent);
    expect(items()).toEqual([
      "Stop",
      "Restart",
      "5 tools",
      "1 resource",
      "1 prompt",
      "Log",
      "Protocol",
      "Disable",
      "Unload",
    ]);
    expect(document.activeElement?.textContent).toBe("Stop");
    fireEvent.keyDown(document.activeElement as Element, { key: "ArrowUp" });
    expect(document.activeElement?.textContent).toBe("Unload");
    fireEvent.keyDown(document.activeElement as Element, { key: "Escape" });
    await waitFor(() => expect(items()).toEqual([]));
    expect(document.activeElement).toBe(opener);

    fireEvent.contextMenu(root.querySelector(".mcp-card-line") as Element, { clientX: 5, clientY: 5 });
    await waitFor(() => expect(items()).toContain("Unload"));
    fireEvent.focusOut(document.activeElement as Element);
    await waitFor(() => expect(items()).toEqual([]));
    fireEvent.click(opener);
    fireEvent.click(await see.findByRole("menuitem", { name: "Unload" }));
    expect(kernel.asked("unload")).toMatchObject([{ server: "demo" }]);

    click("Actions of demo");
    fireEvent.click(await see.findByRole("menuitem", { name: "1 prompt" }));
    await see.findByRole("treeitem", { name: "sum" });
  });

  test("all servers are started, stopped, restarted, and asked for their tools again", async () => {
    const kernel = demo();
    const { menu } = await show(kernel);
    const items = ["Start all servers", "Stop all servers", "Restart all servers", "List all tools again"];
    for (const item of items) await menu("Actions of all servers", item);
    expect(kernel.intents.map((one) => one.do)).toEqual(["start_all", "stop_all", "restart_all", "refresh"]);
  });

  test("a dot on the tab says that one failed, else that one waits for the user", async () => {
    const kernel = new FakeKernel(stateOf([server("a", { state: "error" }), server("b", { state: "needs_trust" })]));
    const { see } = await show(kernel);
    const dot = (): string | null | undefined =>
      within(see.getByRole("tab", { name: /^Servers/ }))
        .queryByRole("img")
        ?.getAttribute("aria-label");
    expect(dot()).toBe("A server failed");
    kernel.patch({ servers: { a: server("a") } });
    await waitFor(() => expect(dot()).toBe("A server needs your answer"));
    kernel.patch({ servers: { b: server("b") } });
    await waitFor(() => expect(dot()).toBeUndefined());
  });

  test("a failed one shows its error with the fix without being opened", async () => {
    const error = { message: "it ended at once", hint: "pip install it" };
    const { see } = await show(new FakeKernel(stateOf([server("a", { state: "error", error }), server("b")])));
    expect(see.getByText("it ended at once")).toBeTruthy();
    expect(see.getByText("pip install it")).toBeTruthy();
  });

  test("a refusal is said, with its hint, until it is dismissed", async () => {
    const kernel = demo();
    kernel.answers.stop = () => {
      throw Object.assign(new Error("a call runs"), { hint: "%mcp cancel 3" });
    };
    const { click, notice } = await show(kernel);
    click("Stop demo");
    await waitFor(() => expect(notice()).toBe("a call runs\n%mcp cancel 3"));
    click("Dismiss");
    await waitFor(() => expect(notice()).toBe(""));
  });

  test("view mode shows no buttons that act, run mode none that change servers", async () => {
    const acts = /^(Start|Stop|Restart|Disable|Enable|Unload|Load|Trust|Log in|Run|Insert|Measure)/;
    for (const mode of ["view", "run"] as const) {
      const { see, tab, click, root, unmount } = await show(demo({ mode }));
      fireEvent.click(see.getByRole("button", { name: "demo" }));
      await waitFor(() => see.getByText("uvx mcp-server-demo"));
      expect(see.queryAllByRole("button", { name: acts })).toEqual([]);
      tab("Tools");
      fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
      await waitFor(() => click("Actions of echo"));
      expect((await see.findAllByRole("menuitem")).map((item) => item.textContent)).toEqual(["Show schema"]);
      click("Actions of echo");
      await new Promise((resolve) => setTimeout(resolve, 20));
      const runs = see.queryAllByRole("button", { name: /^(Run|Insert|Other ways to insert)/ }).length;
      expect(runs).toBe(mode === "run" ? 3 : 0);
      expect(root.querySelectorAll("form")).toHaveLength(mode === "run" ? 1 : 0);
      unmount();
    }
  });

  test("without servers it says how to begin, and a button does it", async () => {
    const kernel = new FakeKernel(stateOf(), { known: () => [known("time", false)] });
    const { see, click, inserted } = await show(kernel);
    await see.findByText("%mcp load demo");
    click("Load the demo server");
    click("Insert this line");
    fireEvent.click(await see.findByRole("button", { name: "Load time" }));
    await waitFor(() => expect(kernel.asked("load")).toMatchObject([{ what: ["demo"] }, { what: ["time"] }]));
    expect(inserted).toEqual(["%mcp load demo"]);
  });

  test("in a project, its servers are what is offered first", async () => {
    const kernel = new FakeKernel(stateOf(), {
      known: () => [known("weather", true), known("time", false), known("clock", true)],
    });
    const { see } = await show(kernel);
    const button = await see.findByRole("button", { name: "Load 2 servers of this project" });
    expect(button.className).toContain("mcp-primary");
    fireEvent.click(button);
    await waitFor(() => expect(kernel.asked("load")).toMatchObject([{ what: ["weather", "clock"] }]));
    expect(see.queryByRole("button", { name: "Load the demo server" })).toBeNull();
    expect(see.getByRole("button", { name: "Load demo" })).toBeTruthy();
  });

  test("what the notebook used and is missing stays offered above what is loaded, until it is forgotten", async () => {
    const used = { names: ["demo", "shop"], what: ["demo"], line: "%mcp load demo", typed: ["shop"] };
    const kernel: FakeKernel = new FakeKernel(stateOf(), {
      known: () => [known("demo", false), known("time", false)],
      used: () => used,
      restore: () => {
        kernel.patch({ servers: { demo: server("demo") } });
        Object.assign(used, { names: ["shop"], what: [], line: "" });
        return { servers: ["demo"], rules: 0, missing: [{ name: "shop", reason: "it is not\nstored" }] };
      },
    });
    const { see, click, notice: said } = await show(kernel);
    const notice = await see.findByRole("region", { name: "Servers used before" });
    expect(notice.textContent).toBe("Restore demo?shop was loaded by a cell that is gone: add it again. RestoreForget");
    expect(see.queryByRole("button", { name: "Load demo" })).toBeNull();
    click("Restore");
    await see.findByRole("button", { name: "Stop demo" });
    const text = (): string => see.getByRole("region", { name: "Servers used before" }).textContent;
    await waitFor(() => expect(text()).toBe("shop was loaded by a cell that is gone: add it again. Forget"));
    expect(said()).toBe("Not restored:\nshop: it is not stored");
    click("Forget");
    await waitFor(() => expect(see.queryByRole("region", { name: "Servers used before" })).toBeNull());
    expect(kernel.asked("forget")).toMatchObject([{ what: ["shop"] }]);
  });

  test("icons come once the kernel has them, as images, and a letter stands where there is none", async () => {
    const icon = "data:image/png;base64,AAAA";
    const kernel = new FakeKernel(stateOf([server("shop", { has_icon: true }), server("42 birds")]), {
      tools: () => [tool("shop", "order", { has_icon: true }), tool("shop", "plain")],
      icon: ({ of }) => (of === "tools" ? "data:image/svg+xml;base64,BBBB" : icon),
    });
    const { root, see, tab } = await show(kernel);
    const images = (): (string | null)[] => [...root.querySelectorAll("img")].map((each) => each.getAttribute("src"));
    const letters = [...root.querySelectorAll(".mcp-emblem[data-letter]")].map((each) =>
      each.getAttribute("data-letter"),
    );
    expect(letters).toEqual(["4", "S"]);
    await waitFor(() => expect(images()).toEqual([icon]));
    tab("Tools");
    await see.findByRole("treeitem", { name: /order/ });
    await waitFor(() => expect(images()).toContain("data:image/svg+xml;base64,BBBB"));
    expect(kernel.asked("icon").map(({ of, name }) => [of, name])).toEqual([
      ["server", ""],
      ["tools", "order"],
    ]);
  });

  test("another version of the protocol is said, and nothing can be done", async () => {
    const { see } = await show(demo({ version: 3, ipymcp: "9.0" }));
    expect(see.getByRole("alert").textContent).toContain("Upgrade this panel");
    expect(see.queryAllByRole("button", { name: /^(Start|Stop)/ })).toEqual([]);
  });

  test("a card shows one server and asks for it alone", async () => {
    const kernel = demo();
    const { see, root } = await show(kernel, { client: "cell", server: "demo" });
    expect(kernel.transport.sent[0]).toMatchObject({ kind: "hello", server: "demo" });
    expect(see.getByText("uvx mcp-server-demo")).toBeTruthy();
    expect(root.textContent).not.toContain("fs");
  });
});

describe("tools", () => {
  test("words are searched over servers, names and descriptions", async () => {
    const { see, tab, tools } = await show(demo());
    tab("Tools");
    await waitFor(() => expect(tools()).toEqual(["demo.echo", "demo.slow", "fs.read_file"]));
    type(see.getByRole("searchbox", { name: "Search tools" }), "demo twice");
    await waitFor(() => expect(tools()).toEqual(["demo.echo"]));
    expect(see.getByText("1 of 3 tools")).toBeTruthy();
    type(see.getByRole("searchbox", { name: "Search tools" }), "nothing like it");
    await see.findByText("Nothing matches the search.");
  });

  test("a form is filled, judged by the kernel, run, and its result shown", async () => {
    const kernel = demo();
    const { see, tab, click, root } = await show(kernel);
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    await see.findByRole("button", { name: "Run" });
    expect(root.querySelector(".mcp-detail")?.textContent).toContain("Says it back.\nTwice.");
    click("Run");
    await waitFor(() =>
      expect(
        see
          .getAllByRole("alert")
          .map((each) => each.textContent)
          .join(),
      ).toContain("required property"),
    );
    expect(see.getByLabelText("times").getAttribute("aria-invalid")).toBe("true");
    expect(kernel.asked("call")).toEqual([]);

    type(see.getByLabelText("text"), "hello");
    await waitFor(() => expect((see.getByLabelText("text") as HTMLTextAreaElement).value).toBe("hello"));
    click("Run");
    await waitFor(() =>
      expect(kernel.asked("call")).toMatchObject([{ server: "demo", tool: "echo", arguments: { text: "hello" } }]),
    );
    kernel.patch({ calls: { 9: { ...CALL, id: 9, tool: "echo" } } });
    await see.findByRole("progressbar", { name: "Progress of demo.echo" });
    click("Cancel demo.echo");
    expect(kernel.asked("cancel")).toMatchObject([{ call: 9 }]);
    kernel.patch({ calls: { 9: null } });
    kernel.transport.say({ kind: "result", call: 9, ok: true, preview: RESULT });
    await waitFor(() => expect(root.querySelector(".mcp-pre")?.textContent).toBe("42"));
    expect(see.getByText("The call succeeded.")).toBeTruthy();
  });

  test("what was wrong is judged again while it is mended, and the focus stays", async () => {
    const kernel = demo();
    const { see, tab, click } = await show(kernel);
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    await see.findByRole("button", { name: "Run" });
    see.getByRole("button", { name: "Run" }).focus();
    click("Run");
    await waitFor(() => expect(document.activeElement).toBe(see.getByLabelText("times")));
    see.getByLabelText("text").focus();
    type(see.getByLabelText("text"), "x");
    await waitFor(() => expect(see.getByLabelText("times").getAttribute("aria-invalid")).toBe("false"));
    expect(document.activeElement).toBe(see.getByLabelText("text"));
    expect(kernel.asked("validate")).toHaveLength(2);
  });

  test("a failed call shows its error with the hint", async () => {
    const kernel = demo();
    const { see, tab, click } = await show(kernel);
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    await see.findByRole("button", { name: "Run" });
    type(see.getByLabelText("text"), "x");
    await waitFor(() => expect((see.getByLabelText("text") as HTMLTextAreaElement).value).toBe("x"));
    click("Run");
    await waitFor(() => expect(kernel.asked("call")).toHaveLength(1));
    kernel.transport.say({ kind: "result", call: 9, ok: false, error: { message: "it broke", hint: "mend it" } });
    await see.findByText("it broke");
    expect(see.getByText("mend it")).toBeTruthy();
  });

  test("the call goes into the notebook, as code and as a line", async () => {
    const { see, tab, click, menu, inserted, notice } = await show(demo());
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    await see.findByRole("button", { name: "Run" });
    click("Insert as code");
    await waitFor(() => expect(inserted).toHaveLength(1));
    await waitFor(() => expect(notice()).toBe("Inserted into the notebook."));
    await menu("Other ways to insert it", "Insert as %mcp line");
    await waitFor(() => expect(inserted).toEqual(['mcp.demo.echo("x")', "%mcp call demo.echo text=x"]));
  });

  test("what was typed stays while another tool or tab is looked at", async () => {
    const { see, tab } = await show(demo());
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    type(await see.findByLabelText("text"), "kept");
    fireEvent.click(see.getByRole("treeitem", { name: /slow/ }));
    tab("Servers");
    tab("Tools");
    fireEvent.click(see.getByRole("treeitem", { name: /echo/ }));
    await waitFor(() => expect((see.getByLabelText("text") as HTMLTextAreaElement).value).toBe("kept"));
  });

  test("the list is asked for again when a server's tools change", async () => {
    const kernel = demo();
    const { tab, tools } = await show(kernel);
    tab("Tools");
    await waitFor(() => expect(tools()).toHaveLength(3));
    kernel.answers.tools = () => [tool("fs", "new")];
    kernel.patch({ servers: { fs: server("fs", { tools: 1 }) } });
    await waitFor(() => expect(tools()).toEqual(["fs.new"]));
  });

  test("the list is walked with the keys", async () => {
    const { see, tab } = await show(demo());
    tab("Tools");
    const list = await see.findByRole("tree", { name: "Tools" });
    fireEvent.keyDown(list, { key: "ArrowDown" });
    fireEvent.keyDown(list, { key: "ArrowDown" });
    await waitFor(() => expect(list.getAttribute("aria-activedescendant")).toBe(see.getAllByRole("treeitem")[1]?.id));
    fireEvent.keyDown(list, { key: "Enter" });
    await waitFor(() => expect(see.getAllByRole("treeitem")[1]?.getAttribute("aria-selected")).toBe("true"));
  });

  test("a server's tools are folded and unfolded, by mouse and by the arrows", async () => {
    const { see, tab, tools } = await show(demo());
    tab("Tools");
    const list = await see.findByRole("tree", { name: "Tools" });
    fireEvent.click(see.getByRole("treeitem", { name: "demo 2 tools" }));
    await waitFor(() => expect(tools()).toEqual(["fs.read_file"]));
    fireEvent.keyDown(list, { key: "Home" });
    fireEvent.keyDown(list, { key: "ArrowRight" });
    await waitFor(() => expect(tools()).toHaveLength(3));
    fireEvent.keyDown(list, { key: "ArrowRight" });
    await waitFor(() => expect(list.getAttribute("aria-activedescendant")).toBe(see.getAllByRole("treeitem")[1]?.id));
    fireEvent.keyDown(list, { key: "ArrowLeft" });
    await waitFor(() => expect(list.getAttribute("aria-activedescendant")).toBe(see.getAllByRole("treeitem")[0]?.id));
    fireEvent.keyDown(list, { key: "ArrowLeft" });
    await waitFor(() => expect(tools()).toEqual(["fs.read_file"]));
  });

  test("several tools are disabled by one request, with one message", async () => {
    const kernel = demo();
    const { see, tab, click, notice } = await show(kernel);
    tab("Tools");
    await see.findByRole("tree", { name: "Tools" });
    click("Enable or disable several tools");
    fireEvent.click(see.getByRole("treeitem", { name: "demo 2 tools" }));
    fireEvent.click(see.getByRole("treeitem", { name: /^slow/ }));
    await see.findByText("1 selected");
    expect(see.getByRole("treeitem", { name: "demo 2 tools" }).getAttribute("aria-checked")).toBe("mixed");
    click("All");
    await see.findByText("3 selected");
    fireEvent.click(see.getByRole("treeitem", { name: /^slow/ }));
    await see.findByText("2 selected");
    click("Disable");
    await waitFor(() => expect(notice()).toBe("2 tools disabled."));
    expect(kernel.asked("disable_tools")).toMatchObject([
      {
        tools: [
          { server: "demo", tool: "echo" },
          { server: "fs", tool: "read_file" },
        ],
      },
    ]);
    expect(see.getByText("0 selected")).toBeTruthy();
  });
});

describe("resources and prompts", () => {
  test("a resource is read when it is chosen", async () => {
    const kernel = demo();
    const { see, list, root } = await show(kernel);
    list("Resources");
    fireEvent.click(await see.findByRole("treeitem", { name: /cities/ }));
    await waitFor(() => expect(root.querySelector(".mcp-pre")?.textContent).toBe("42"));
    expect(kernel.asked("read")).toMatchObject([{ server: "demo", uri: "demo://cities" }]);
  });

  test("are listed by server, searched over all, and a server that fails hides no other", async () => {
    const kernel = demo();
    const servers = [
      server("demo", { resources: 1 }),
      server("files", { resources: 2 }),
      server("lost", { resources: 1 }),
    ];
    kernel.state = stateOf(servers);
    kernel.answers["resources"] = ({ server: name }) => {
      if (name === "lost") throw new Error("lost does not answer");
      return { resources: [{ uri: `${String(name)}://notes`, name: `notes of ${String(name)}` }], templates: [] };
    };
    const { see, list, root } = await show(kernel);
    list("Resources");
    await see.findByText("lost does not answer");
    const rows = (): (string | null)[] => see.getAllByRole("treeitem").map((row) => row.textContent);
    expect(rows()).toEqual(["demo1 resource", "notes of demo", "files1 resource", "notes of files"]);
    type(see.getByRole("searchbox", { name: "Search resources" }), "files");
    await waitFor(() => expect(rows()).toEqual(["files1 resource", "notes of files"]));
    expect(root.textContent).toContain("1 of 2 resources");
  });

  test("a resource is subscribed to, and shown again when it changes", async () => {
    const kernel = demo();
    let text = "first";
    kernel.answers["resources"] = () => ({
      ...{ resources: ["a://b", "c://d"].map((uri) => ({ uri, name: uri })), templates: [], subscribable: true },
    });
    kernel.answers["read"] = () => ({ ...RESULT, text });
    const { see, list, click } = await show(kernel);
    list("Resources");
    fireEvent.click(await see.findByRole("treeitem", { name: /a:/ }));
    await see.findByText("first");
    const say = (updates: number | null, problem: Problem | null = null): void =>
      kernel.transport.say({ kind: "resource", server: "demo", uri: "a://b", updates, problem });
    kernel.answers["subscribe"] = ({ on }) => (say(on ? 0 : null), null);
    click("Subscribe");
    await see.findByText("no change yet");
    text = "second";
    say(1);
    await see.findByText("second");
    see.getByText("changed 1 time");
    expect(kernel.asked("read").at(-1)).toMatchObject({ server: "demo", uri: "a://b", again: true });
    expect(see.getByRole("treeitem", { name: /a:/ }).textContent).toBe("a://bsubscribed");

    fireEvent.click(see.getByRole("treeitem", { name: /c:/ }));
    say(2);
    await waitFor(() => expect(see.getByRole("treeitem", { name: /a:/ }).textContent).toBe("a://bchanged"));
    fireEvent.click(see.getByRole("treeitem", { name: /a:/ }));
    say(2, { message: "the file is gone" });
    await see.findByText("the file is gone");
    click("Unsubscribe");
    await see.findByRole("button", { name: "Subscribe" });
    expect(kernel.asked("subscribe")).toMatchObject([{ on: true }, { on: false }]);
  });

  test("a subscription goes on after the connection was lost, and ends with what it was for", async () => {
    const kernel = demo();
    kernel.answers["resources"] = () => ({
      resources: [{ uri: "a://b", name: "b" }],
      templates: [],
      subscribable: true,
    });
    const { see, list } = await show(kernel);
    list("Resources");
    fireEvent.click(await see.findByRole("treeitem", { name: /b/ }));
    const update = { kind: "resource", server: "demo", uri: "a://b", updates: 0 } as const;
    kernel.answers["subscribe"] = () => (kernel.transport.say(update), null);
    kernel.transport.say(update);
    await see.findByRole("button", { name: "Unsubscribe" });
    kernel.transport.become({ state: "closed", reason: "lost" });
    kernel.transport.become({ state: "open" });
    await waitFor(() => expect(kernel.asked("subscribe")).toMatchObject([{ uri: "a://b", on: true }]));
    await see.findByRole("button", { name: "Unsubscribe" });
    kernel.transport.say({ ...update, updates: null });
    await see.findByRole("button", { name: "Subscribe" });
  });

  test("a prompt's arguments are a form", async () => {
    const kernel = demo();
    const { see, list, click } = await show(kernel);
    list("Prompts");
    fireEvent.click(await see.findByRole("treeitem", { name: /sum/ }));
    type(await see.findByLabelText("text"), "hello");
    await waitFor(() => expect((see.getByLabelText("text") as HTMLTextAreaElement).value).toBe("hello"));
    click("Get");
    await waitFor(() =>
      expect(kernel.asked("prompt")).toMatchObject([{ prompt: "sum", arguments: { text: "hello" } }]),
    );
  });
});

describe("logs", () => {
  const line = (n: number, level: string, text: string): object => ({ n, time: n, level, source: "stderr", text });

  test("are followed only while they are looked at, filtered, searched, paused and copied", async () => {
    const kernel = demo();
    const { see, tab, root, click, copied } = await show(kernel);
    const drawn = (): string[] =>
      [...root.querySelectorAll(".mcp-line > :last-child")].map((row) => row.textContent ?? "");
    const say = (...lines: object[]): void =>
      kernel.transport.say({ kind: "log", server: "demo", lines: lines as never, dropped: 0 });
    tab("Logs");
    await waitFor(() => expect(kernel.asked("logs")).toMatchObject([{ server: "demo", on: true }]));
    say(line(1, "info", "up"), line(2, "error", "down"), line(3, "debug", "sideways"));
    await waitFor(() => expect(drawn()).toEqual(["up", "down", "sideways"]));
    choose(see.getByRole("combobox", { name: "Level" }), "Errors");
    await waitFor(() => expect(drawn()).toEqual(["down"]));
    choose(see.getByRole("combobox", { name: "Level" }), "All levels");
    type(see.getByRole("searchbox", { name: "Search the log" }), "SIDE");
    await waitFor(() => expect(drawn()).toEqual(["sideways"]));
    click("Copy");
    expect(copied[0]).toMatch(/debug stderr sideways$/);
    type(see.getByRole("searchbox", { name: "Search the log" }), "");
    click("Pause");
    await waitFor(() => expect(kernel.asked("logs").at(-1)).toMatchObject({ on: false }));
    click("Resume");
    await waitFor(() => expect(kernel.asked("logs").at(-1)).toMatchObject({ on: true, since: 3 }));
    tab("Servers");
    await waitFor(() => expect(kernel.asked("logs").at(-1)).toMatchObject({ on: false }));
  });
});

describe("a long line of a log", () => {
  test.each<[string, number, number, string[]]>([
    ["tool query on penguins", 12, 0, ["tool query", "on penguins"]],
    ["tool query on penguins", 14, 6, ["tool", "query on", "penguins"]],
    ["information came", 14, 6, ["", "information", "came"]],
    ["abcdefghij kl", 4, 0, ["abcd", "efgh", "ij", "kl"]],
    ["\u65e5\u672c\u8a9e\u3067 ok", 4, 0, ["\u65e5\u672c", "\u8a9e\u3067", "ok"]],
    ["", 10, 12, [""]],
  ])("is broken between words, and only a word that is too long within: %s", (text, columns, indent, lines) => {
    expect(wrap(text, columns, indent)).toEqual(lines);
  });
});

describe("the panel", () => {
  test("its tabs are walked with the arrow keys", async () => {
    const { see } = await show(demo());
    const tabs = see.getByRole("tablist");
    fireEvent.keyDown(tabs, { key: "ArrowRight" });
    await waitFor(() => expect(see.getByRole("tab", { name: "Tools" }).getAttribute("aria-selected")).toBe("true"));
    expect(document.activeElement).toBe(see.getByRole("tab", { name: "Tools" }));
    fireEvent.keyDown(tabs, { key: "End" });
    await waitFor(() => expect(see.getByRole("tab", { name: "Logs" }).getAttribute("aria-selected")).toBe("true"));
    fireEvent.keyDown(tabs, { key: "ArrowRight" });
    await waitFor(() => expect(see.getByRole("tab", { name: "Servers" }).getAttribute("aria-selected")).toBe("true"));
  });

  test("a view is brought to the front from outside, of one server", async () => {
    const kernel = demo();
    const model = new PanelModel(kernel.transport, { client: "sidebar" });
    const element = document.body.appendChild(document.createElement("div"));
    const leave = draw(element, model, pageServices);
    model.show("tools", { server: "fs" });
    await waitFor(() => expect(toolsIn(element)).toEqual(["fs.read_file"]));
    leave();
    expect(kernel.transport.listeners).toBe(2);
    model.close();
    element.remove();
  });

  test("says why the connection ended", async () => {
    const kernel = demo();
    const { see } = await show(kernel);
    kernel.transport.become({ state: "closed", reason: "The kernel died." });
    await see.findByText("The kernel died.");
  });

  test("unmounting leaves nothing behind", async () => {
    const kernel = demo();
    const { unmount } = await show(kernel);
    unmount();
    expect(kernel.transport.listeners).toBe(0);
    expect(document.body.innerHTML).toBe("");
  });
});

describe("bad luck", () => {
  test("a state that cannot be drawn leaves the other views", async () => {
    const broken = { ...server("demo"), error: 7 as never, where: null as never };
    const { see, tab } = await show(new FakeKernel(stateOf([broken]), { tools: () => [tool("demo", "echo")] }));
    await see.findByText(/^This view cannot be displayed: /);
    tab("Tools");
    await see.findByRole("treeitem", { name: /echo/ });
  });

  test("a call whose result was lost with the connection does not run for ever", async () => {
    const kernel = demo();
    const { see, tab, click } = await show(kernel);
    tab("Tools");
    fireEvent.click(await see.findByRole("treeitem", { name: /echo/ }));
    await see.findByRole("button", { name: "Run" });
    type(see.getByLabelText("text"), "x");
    await waitFor(() => expect((see.getByLabelText("text") as HTMLTextAreaElement).value).toBe("x"));
    click("Run");
    await waitFor(() => expect(kernel.asked("call")).toHaveLength(1));
    kernel.transport.become({ state: "closed", reason: "gone" });
    kernel.transport.become({ state: "open" });
    await see.findByText("The call ended, but its result did not reach this panel.", {}, { timeout: 5000 });
    expect((see.getByRole("button", { name: "Run" }) as HTMLButtonElement).disabled).toBe(false);
  });

  test("what was asked for is asked for again when the connection comes back", async () => {
    const kernel = demo();
    const { see, tab } = await show(kernel);
    tab("Tools");
    await waitFor(() => expect(kernel.asked("tools")).toHaveLength(1));
    kernel.transport.become({ state: "closed", reason: "gone" });
    kernel.transport.become({ state: "open" });
    await waitFor(() => expect(kernel.asked("tools")).toHaveLength(2));
    expect(await see.findAllByRole("treeitem")).toHaveLength(5);
  });
});

describe("errors", () => {
  const failed = (name: string, missing: string | null): FakeKernel =>
    new FakeKernel(stateOf([server(name, { state: "error", error: { message: "no luck", hint: "try" }, missing })]));

  test("a failed start is tried again, its log shown, its error copied", async () => {
    const kernel = failed("far", null);
    const { see, click, copied } = await show(kernel);
    click("Retry");
    click("Copy");
    expect(kernel.asked("start")).toMatchObject([{ server: "far" }]);
    await waitFor(() => expect(copied).toEqual(["no luck\ntry"]));
    click("View log");
    expect(see.getByRole("tab", { name: /^Logs/ }).getAttribute("aria-selected")).toBe("true");
  });

  test("what a server needs from you is the first button below its reason", async () => {
    for (const [state, label, verb] of [
      ["needs_trust", "Trust\u2026", "trust"],
      ["needs_auth", "Log in", "login"],
    ] as const) {
      const error = { message: "it has to be agreed to", hint: "" };
      const kernel = new FakeKernel(stateOf([server("far", { state, error })]));
      const { root, click, unmount } = await show(kernel);
      const [first] = root.querySelectorAll(".mcp-problem-actions button");
      expect(first?.textContent).toBe(label);
      click(label);
      await waitFor(() => expect(kernel.asked(verb)).toMatchObject([{ server: "far" }]));
      unmount();
    }
  });

  test("a value that is missing is typed into a field that hides it", async () => {
    const kernel = failed("far", "API_KEY");
    const { see, click } = await show(kernel);
    const field = see.getByLabelText("Value of API_KEY") as HTMLInputElement;
    expect(field.type).toBe("password");
    expect((see.getByRole("button", { name: "Set and start" }) as HTMLButtonElement).disabled).toBe(true);
    type(field, "k");
    await waitFor(() => click("Set and start"));
    await waitFor(() =>
      expect(kernel.asked("set_value")).toMatchObject([{ server: "far", name: "API_KEY", value: "k" }]),
    );
  });

  test("a start says its attempt, its seconds and the last line", async () => {
    const starting = { attempt: 2, attempts: 4, since: Date.now() / 1000 - 12, line: "no\ndatabase" };
    const { root } = await show(new FakeKernel(stateOf([server("far", { state: "restarting", starting })])));
    expect(root.querySelector(".mcp-starting")?.textContent).toMatch(/^attempt 2 of 4 · 1[23] s · no database$/);
  });
});

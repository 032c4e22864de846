import { fireEvent, waitFor, within } from "@testing-library/preact";
import { describe, expect, test, vi } from "vitest";
import type { CallDetails, HistoryRow, MessageRow } from "../src/protocol";
import { CALL, RESULT, demo } from "./demo";
import type { Answers } from "./fake";
import { FakeKernel, server, stateOf } from "./fake";
import { choose, show, type } from "./screen";

const row = (id: number, given: Partial<HistoryRow> = {}): HistoryRow => ({
  ...{ id, time: id, duration: 0.5, caller: "user", server: "demo", tool: `t${id}`, sent: 1, received: 1 },
  ...{ outcome: "done", error: "", notebook: "a.ipynb", cell: 3, ...given },
});

const DETAILS: CallDetails = { arguments: '{"a": 1}', result: RESULT, openable: true, repeatable: true };

/** The drawn rows of the list, without the options of dropdowns. */
const lines = (root: HTMLElement): HTMLElement[] => [...root.querySelectorAll<HTMLElement>("[role=option]")];

const chosen = (root: HTMLElement): string =>
  root.querySelector("[role=option][aria-selected=true]")?.textContent ?? "";

/** A kernel with these finished calls, which it pages through as the real one does. */
/** The files that the page saves from now on. */
function savedFiles(): [name: string, Blob][] {
  const saved: [string, Blob][] = [];
  let blob = new Blob();
  vi.spyOn(URL, "createObjectURL").mockImplementation((each) => ((blob = each as Blob), "blob:1"));
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
    saved.push([this.download, blob]);
  });
  return saved;
}

/** The values of a file with a line of JSON for each. */
const linesOf = async (file: Blob | undefined): Promise<unknown[]> =>
  ((await file?.text()) ?? "")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as unknown);

function kernelOf(rows: HistoryRow[], answers: Answers = {}, hello = {}): FakeKernel {
  return new FakeKernel(
    stateOf([server("demo"), server("fs")]),
    {
      history: ({ after, before, limit = 100, outcome }) =>
        [...rows]
          .reverse()
          .filter(
            (each) =>
              each.id > (after ?? 0) && each.id < (before ?? Infinity) && (!outcome || each.outcome === outcome),
          )
          .slice(0, limit),
      details: () => DETAILS,
      ...answers,
    },
    hello,
  );
}

describe("activity", () => {
  test("what runs is on top with its progress, and can be cancelled", async () => {
    const kernel = demo();
    const { see, tab, click } = await show(kernel);
    kernel.patch({ calls: { 5: CALL } });
    await waitFor(() => expect(see.getByRole("tab", { name: /^Activity/ }).textContent).toBe("Activity1 running"));
    tab("Activity");
    const running = await see.findByRole("region", { name: "Running calls" });
    expect(running.textContent).toContain("demo.slowmodel \u00b7 cell 3");
    expect(running.textContent).toMatch(/a quarter1 min 1\d s/);
    expect(within(running).getByRole("progressbar").getAttribute("aria-valuenow")).toBe("25");
    click("Cancel demo.slow");
    expect(kernel.asked("cancel")).toMatchObject([{ call: 5 }]);
    kernel.patch({ calls: { 5: null } });
    await waitFor(() => expect(see.queryByRole("region", { name: "Running calls" })).toBeNull());
  });

  test("a call says once that it runs, or that it waits for an answer", async () => {
    const kernel = demo();
    const { see, tab } = await show(kernel);
    tab("Activity");
    kernel.patch({ calls: { 5: { ...CALL, progress: null } } });
    const running = await see.findByRole("region", { name: "Running calls" });
    expect(running.textContent?.match(/running/gi)).toHaveLength(1);
    kernel.patch({ calls: { 5: { ...CALL, waits: true } } });
    await waitFor(() => expect(running.textContent).toMatch(/cell 3Waiting for your answer1 min/));
    expect(running.textContent).not.toContain("Running");
  });

  test("a call from outside of a cell names who made it", async () => {
    const { tab, root } = await show(kernelOf([row(1, { cell: null }), row(2, { cell: null, caller: "model" })]));
    tab("Activity");
    await waitFor(() => expect(lines(root)).toHaveLength(2));
    expect(lines(root).map((line) => line.querySelector(".mcp-muted .mcp-grow")?.textContent)).toEqual([
      "model",
      "code",
    ]);
  });

  test("a map is one line with the number of its calls, and cannot be run again as one call", async () => {
    const rows = [row(1, { map: 4, calls: 10_000, outcome: "failed", error: "CallError: 9,997 succeeded, 3 failed" })];
    const kernel = kernelOf(rows, { details: () => ({ ...DETAILS, repeatable: false }) });
    const { see, tab } = await show(kernel);
    tab("Activity");
    const line = await waitFor(() => see.getByRole("option", { name: /t1/ }));
    expect(line.textContent).toContain("cell 3 \u00b7 map of 10,000 calls");
    fireEvent.click(line);
    await waitFor(() => expect(see.getByText(/9,997 succeeded, 3 failed/)).toBeTruthy());
    expect(see.queryByRole("button", { name: "Run again" })).toBeNull();
  });

  test("each outcome has its own word and mark, and each call its caller", async () => {
    const outcomes = ["done", "failed", "cancelled", "interrupted", "refused"] as const;
    const callers = ["user", "panel", "model", "app", "user"];
    const rows = outcomes.map((outcome, index) =>
      row(index + 1, { outcome, caller: callers[index] ?? "", cell: index < 4 && index !== 1 ? 7 : null }),
    );
    const { tab, root } = await show(kernelOf(rows));
    tab("Activity");
    await waitFor(() => expect(lines(root)).toHaveLength(5));
    const drawn = lines(root).map((each) =>
      [...each.querySelectorAll(".mcp-figure, .mcp-muted > .mcp-ellipsis")].map((part) => part.textContent),
    );
    expect(drawn.map(([word]) => word)).toEqual([
      "\u2296 refused",
      "\u25a0 interrupted",
      "\u2298 cancelled",
      "\u2715 failed",
      "\u2713 done",
    ]);
    expect(drawn.map((parts) => parts[2])).toEqual([
      "code",
      "app \u00b7 cell 7",
      "model \u00b7 cell 7",
      "panel",
      "cell 7",
    ]);
    expect(drawn[0]?.[3]).toBe("0.5 s");
  });

  test("each call appears as it ends, and the chosen one stays chosen by what it is", async () => {
    const rows = [row(1, { call: 5 })];
    const kernel = kernelOf(rows);
    const { see, tab, root } = await show(kernel);
    tab("Activity");
    fireEvent.click(await see.findByRole("option", { name: /t1/ }));
    rows.push(row(2, { outcome: "cancelled" }), row(3, { outcome: "failed", error: "a\nb" }));
    kernel.transport.say({ kind: "history", over: 3 });
    await waitFor(() => expect(lines(root)).toHaveLength(3));
    expect(kernel.asked("history").at(-1)).toMatchObject({ after: 1 });
    expect(chosen(root)).toContain("demo.t1");
    expect(see.getByRole("region", { name: "Selected call" }).textContent).toContain("demo.t1");
    fireEvent.click(see.getByRole("option", { name: /t3/ }));
    await waitFor(() => expect(see.getByText("a b", { collapseWhitespace: true }).textContent).toBe("a\nb"));
  });

  test("a call that was opened while it ran stays open when it has ended", async () => {
    const rows: HistoryRow[] = [];
    const kernel = kernelOf(rows);
    const { see, tab, click, root } = await show(kernel);
    tab("Activity");
    kernel.patch({ calls: { 5: CALL } });
    await see.findByRole("region", { name: "Running calls" });
    click("demo.slow");
    const detail = within(await see.findByRole("region", { name: "Selected call" }));
    await detail.findByRole("button", { name: "Cancel demo.slow" });
    kernel.patch({ calls: { 5: null } });
    await waitFor(() => expect(detail.queryByRole("button", { name: /Cancel/ })).toBeNull());
    detail.getByText(/ended/);
    rows.push(row(1, { call: 5, tool: "slow", outcome: "interrupted" }));
    kernel.transport.say({ kind: "history", over: 1 });
    await detail.findByText(/interrupted/);
    expect(chosen(root)).toContain("demo.slow");
    await waitFor(() => expect(kernel.asked("details").at(-1)).toMatchObject({ row: 1, call: 5 }));
  });

  test("a call shows its arguments, questions and result, and is made again, copied, found and kept", async () => {
    const kernel = kernelOf([row(4, { call: 9 })], {
      details: () => ({ ...DETAILS, questions: ["May demo.t4 be called? \u00b7 allowed once"] }),
      repeat: () => ({ call: 12 }),
      repeat_code: () => ({ text: "mcp.demo.t4(a=1)" }),
      keep_result: () => ({ text: "mcp.results[9]" }),
    });
    const { see, tab, click, copied, inserted, root } = await show(kernel);
    tab("Activity");
    fireEvent.click(await see.findByRole("option", { name: /t4/ }));
    expect((await see.findByRole("region", { name: "Arguments" })).textContent).toBe('{"a": 1}');
    see.getByText("May demo.t4 be called? \u00b7 allowed once");
    see.getByRole("group", { name: "Result of demo.t4" });
    click("Run again");
    await waitFor(() => expect(kernel.asked("repeat")).toMatchObject([{ row: 4, call: 9 }]));
    click("Copy as code");
    await waitFor(() => expect(copied).toEqual(["mcp.demo.t4(a=1)"]));
    click("Open result in a new cell");
    await waitFor(() => expect(inserted).toEqual(["mcp.results[9]"]));
    click("Open tool");
    await waitFor(() => expect(root.querySelector("[role=tab][aria-selected=true]")?.textContent).toBe("Tools"));
  });

  test("the list is saved as lines of JSON", async () => {
    const { tab, click, root } = await show(kernelOf([row(1), row(2)]));
    tab("Activity");
    await waitFor(() => expect(lines(root)).toHaveLength(2));
    const saved = savedFiles();
    click("Save");
    vi.restoreAllMocks();
    expect(saved.map(([name]) => name)).toEqual(["activity.jsonl"]);
    expect(await linesOf(saved[0]?.[1])).toMatchObject([
      { id: 2, tool: "t2" },
      { id: 1, tool: "t1" },
    ]);
  });

  test("what was not kept is said, and cannot be made again", async () => {
    const kernel = kernelOf([row(4)], { details: () => ({ arguments: null, result: null, repeatable: false }) });
    const { see, tab } = await show(kernel);
    tab("Activity");
    fireEvent.click(await see.findByRole("option", { name: /t4/ }));
    await waitFor(() => expect(see.getAllByText("Not kept")).toHaveLength(2));
    for (const name of ["Run again", "Copy as code", "Open result in a new cell"]) {
      expect(see.queryByRole("button", { name })).toBeNull();
    }
  });

  test("a result that was too large to be kept is said to be, and cannot be opened", async () => {
    const kernel = kernelOf([row(4)], { details: () => ({ arguments: "{}", is_too_large: true, repeatable: true }) });
    const { see, tab } = await show(kernel);
    tab("Activity");
    fireEvent.click(await see.findByRole("option", { name: /t4/ }));
    await see.findByText("The result was too large to be kept as a whole; run it again.");
    see.getByRole("button", { name: "Run again" });
    expect(see.queryByText("not kept")).toBeNull();
    expect(see.queryByRole("button", { name: "Open result in a new cell" })).toBeNull();
  });

  test("view mode shows a call without buttons that run something, and only full mode the protocol", async () => {
    for (const mode of ["view", "run", "full"]) {
      const { see, tab, unmount } = await show(kernelOf([row(4, { call: 9 })], {}, { mode }));
      tab("Activity");
      fireEvent.click(await see.findByRole("option", { name: /t4/ }));
      await see.findByRole("region", { name: "Arguments" });
      const runs = see.queryAllByRole("button", { name: /Run again|Copy as code|Open result/ });
      expect(runs).toHaveLength(mode === "view" ? 0 : 3);
      expect(see.queryAllByRole("button", { name: "Protocol\u2026" })).toHaveLength(mode === "full" ? 1 : 0);
      unmount();
    }
  });

  test("calls are searched and filtered by the kernel, and older ones loaded at the end", async () => {
    const rows = Array.from({ length: 450 }, (_, index) => row(index + 1));
    const kernel = kernelOf(rows);
    const { see, tab, root } = await show(kernel);
    tab("Activity");
    const size = (): string | null | undefined => root.querySelector("[role=option]")?.getAttribute("aria-setsize");
    await waitFor(() => expect(size()).toBe("200"));
    const list = see.getByRole("listbox", { name: "Calls" });
    list.scrollTop = 200 * 38;
    fireEvent.scroll(list);
    await waitFor(() => expect(kernel.asked("history").at(-1)).toMatchObject({ before: 251 }));
    await waitFor(() => expect(size()).toBe("400"));
    choose(see.getByRole("combobox", { name: "State" }), "refused");
    await waitFor(() => expect(kernel.asked("history").at(-1)).toMatchObject({ outcome: "refused" }));
    fireEvent.click(see.getByLabelText("All notebooks"));
    await waitFor(() => expect(kernel.asked("history").at(-1)).toMatchObject({ everywhere: true }));
    type(see.getByRole("searchbox", { name: "Search calls" }), "slow");
    await waitFor(() => expect(kernel.asked("history").at(-1)).toMatchObject({ words: "slow" }));
  });

  test("new calls do not move the rows that one has scrolled to", async () => {
    const rows = Array.from({ length: 100 }, (_, index) => row(index + 1));
    const kernel = kernelOf(rows);
    const { see, tab } = await show(kernel);
    tab("Activity");
    const list = await see.findByRole("listbox", { name: "Calls" });
    list.scrollTop = 380;
    fireEvent.scroll(list);
    rows.push(row(101), row(102));
    kernel.transport.say({ kind: "history", over: 2 });
    await waitFor(() => expect(list.scrollTop).toBe(380 + 2 * 38));
  });
});

describe("the protocol", () => {
  const message = (n: number, given: Partial<MessageRow> = {}): MessageRow => ({
    ...{ n, time: n, sent: n % 2 === 1, type: n % 2 ? "request" : "response", method: "tools/call", id: "1" },
    ...{ size: 40, duration: n % 2 ? null : 0.25, text: `{"id":1,"n":${n}}`, ...given },
  });
  const say = (kernel: FakeKernel, ...lines: MessageRow[]): void =>
    kernel.transport.say({ kind: "protocol", server: "demo", lines, dropped: 0 });

  test("of a server is recorded from when it is opened until it is closed, whatever is looked at", async () => {
    const kernel = kernelOf([]);
    const { see, tab, click, root } = await show(kernel);
    tab("Activity");
    expect(kernel.asked("protocol")).toEqual([]);
    click("Protocol\u2026");
    await waitFor(() => expect(kernel.asked("protocol")).toMatchObject([{ server: "demo", on: true }]));
    tab("Servers");
    say(kernel, message(1), message(2));
    tab("Activity");
    await waitFor(() => expect(lines(root)).toHaveLength(1));
    expect(kernel.asked("protocol")).toHaveLength(1);
    choose(see.getByRole("combobox", { name: "Server" }), "fs");
    await waitFor(() =>
      expect(kernel.asked("protocol").slice(1)).toMatchObject([
        { server: "demo", on: false },
        { server: "fs", on: true },
      ]),
    );
    click(/Calls/);
    await waitFor(() => expect(kernel.asked("protocol").at(-1)).toMatchObject({ server: "fs", on: false }));
    await see.findByText("No calls yet.");
  });

  test("is searched, filtered, paused, opened and copied", async () => {
    const kernel = kernelOf([]);
    const { see, tab, click, copied, root } = await show(kernel);
    tab("Activity");
    click("Protocol\u2026");
    await waitFor(() => expect(kernel.asked("protocol")).toHaveLength(1));
    say(
      kernel,
      message(1),
      message(2),
      message(3, { type: "notification", method: "notifications/progress", id: null }),
    );
    const options = (): string[] => lines(root).map((each) => each.textContent ?? "");
    await waitFor(() => expect(options()).toHaveLength(2));
    expect(options()[1]).toMatch(/\u2192sent\u2190receivedtools\/call40 B \u00b7 0.3 s$/);
    choose(see.getByRole("combobox", { name: "Kind" }), "Response");
    await waitFor(() => expect(options()).toHaveLength(1));
    choose(see.getByRole("combobox", { name: "Kind" }), "All messages");
    type(see.getByRole("searchbox", { name: "Search messages" }), "PROGRESS");
    await waitFor(() => expect(options()).toHaveLength(1));
    type(see.getByRole("searchbox", { name: "Search messages" }), "");
    click("Pause");
    await see.findByRole("button", { name: "Resume" });
    say(kernel, message(5, { id: "2" }));
    await new Promise((resolve) => setTimeout(resolve, 150));
    expect(options()).toHaveLength(2);
    click("Resume");
    await waitFor(() => expect(options()).toHaveLength(3));
    click("Copy");
    expect(copied[0]?.split("\n")).toHaveLength(4);
    const saved = savedFiles();
    click("Save");
    expect(saved.map(([name]) => name)).toEqual(["protocol-demo.jsonl"]);
    expect(await linesOf(saved[0]?.[1])).toMatchObject([{ n: 1 }, { n: 2 }, { n: 3 }, { n: 5 }]);
    vi.restoreAllMocks();
    fireEvent.click(lines(root).at(-1) as Element);
    const texts = (await see.findAllByRole("region", { name: /^Text of the/ })).map((each) => each.textContent);
    expect(texts).toEqual(['{\n  "id": 1,\n  "n": 1\n}', '{\n  "id": 1,\n  "n": 2\n}']);
    say(kernel, message(6, { id: "2" }));
    await waitFor(() => expect(options()[0]).toMatch(/sent\u2190received/));
    expect(chosen(root)).toContain("sent");
  });
});

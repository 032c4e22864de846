import { waitFor } from "@testing-library/preact";
import { expect, test, vi } from "vitest";
import { MAX_ROWS } from "../src/rowbuffer";
import { FakeKernel, server, stateOf, tool } from "./fake";
import { show, type } from "./screen";

// How much is drawn, not how long it takes: a loaded machine draws as much as a quiet one.

test("5,000 tools: those in sight are drawn, and a search answers", async () => {
  const tools = Array.from({ length: 5000 }, (_, index) =>
    tool(`server${index % 20}`, `tool_${index}`, { description: "does things" }),
  );
  const kernel = new FakeKernel(stateOf(Array.from({ length: 20 }, (_, index) => server(`server${index}`))), {
    tools: () => tools,
  });
  const { see, tab, root } = await show(kernel);
  tab("Tools");
  await waitFor(() => expect(root.querySelectorAll("[role=treeitem]").length).toBeGreaterThan(0));
  expect(root.querySelectorAll("[role=treeitem]").length).toBeLessThan(60);
  expect(root.querySelector("[role=treeitem]")?.getAttribute("aria-setsize")).toBe("20");
  type(see.getByRole("searchbox", { name: "Search tools" }), "tool_4321");
  await waitFor(() => expect(root.querySelectorAll("[role=treeitem]")).toHaveLength(2));
});

test("200 servers are drawn, and a patch to one draws that one alone", async () => {
  const servers = Array.from({ length: 200 }, (_, index) => server(`server${String(index).padStart(3, "0")}`));
  const kernel = new FakeKernel(stateOf(servers));
  const { root } = await show(kernel);
  const rows = [...root.querySelectorAll("li")];
  expect(rows).toHaveLength(200);
  const drawn = new Set<Element | undefined>();
  const observer = new MutationObserver((changes) => {
    for (const { target } of changes) drawn.add(rows.find((row) => row.contains(target)));
  });
  observer.observe(rows[0]?.parentElement as Element, {
    childList: true,
    subtree: true,
    characterData: true,
    attributes: true,
  });
  kernel.patch({ servers: { server150: server("server150", { state: "stopped" }) } });
  await waitFor(() => expect(root.querySelectorAll("li")[150]?.textContent).toContain("stopped"));
  observer.disconnect();
  expect([...drawn]).toEqual([rows[150]]);
});

test("a flood of 50,000 log lines is drawn ten times a second at most, and at most 2,000 rows are kept", async () => {
  const kernel = new FakeKernel(stateOf([server("a")]));
  const { tab, root } = await show(kernel);
  tab("Logs");
  await waitFor(() => expect(kernel.asked("logs")).toHaveLength(1));
  await new Promise((resolve) => setTimeout(resolve, 20));
  vi.useFakeTimers();
  try {
    let drawings = 0;
    const observer = new MutationObserver(() => (drawings += 1));
    observer.observe(root, { childList: true, subtree: true, characterData: true });
    for (let batch = 0; batch < 100; batch++) {
      const lines = Array.from({ length: 500 }, (_, index) => {
        const n = batch * 500 + index;
        return { n, time: n, level: "info", source: "stderr" as const, text: `line ${n}` };
      });
      kernel.transport.say({ kind: "log", server: "a", lines, dropped: 0 });
      await vi.advanceTimersByTimeAsync(10);
    }
    await vi.advanceTimersByTimeAsync(200);
    observer.disconnect();
    expect(drawings).toBeGreaterThan(0);
    expect(drawings).toBeLessThanOrEqual(2 * 12);
    expect(root.querySelectorAll(".mcp-line").length).toBeLessThan(100);
    expect(root.querySelector(".mcp-compact .mcp-figure")?.textContent).toBe(
      `${MAX_ROWS.logs.toLocaleString("en")} lines, 48,000 earlier lines not shown`,
    );
  } finally {
    vi.useRealTimers();
  }
});

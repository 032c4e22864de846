/** Results: small ones, tables page by page, rows in full, files. */

import axe from "axe-core";
import { fireEvent, render, waitFor } from "@testing-library/preact";
import { expect, test, vi } from "vitest";
import type { Preview, RowsFields, TablePage } from "../src/protocol";
import { sanitise } from "../src/sanitise";
import { Prose, plainLine } from "../src/views/prose";
import { RESULT } from "./demo";
import { FakeKernel, server, stateOf, tool } from "./fake";
import type { Screen } from "./screen";
import { show } from "./screen";

const TOTAL = 120;
const EVIL = "<img src=x onerror=alert(1)>\u202E";

function page({ first = 0, sort = null, descending = false }: Partial<RowsFields> = {}): TablePage {
  const numbers = Array.from({ length: TOTAL }, (_, index) =>
    sort !== null && descending ? TOTAL - index : index + 1,
  );
  return {
    columns: [
      { name: "name", is_numeric: false },
      { name: "n", is_numeric: true },
    ],
    more_columns: 3,
    rows: numbers.slice(first, first + 50).map((number) => [number === 1 ? EVIL : `row ${number}`, `${number}`]),
    first,
    total: TOTAL,
  };
}
const TABLE: Preview = {
  ...RESULT,
  text: "{}",
  variable: "mcp.results[7]",
  table: { result: 7, page: page(), notes: ["count: 120"] },
};
const FILE = btoa("a,b\n1,2\n");

async function run(preview: Preview): Promise<{ screen: Screen; kernel: FakeKernel }> {
  const kernel: FakeKernel = new FakeKernel(stateOf([server("demo")]), {
    tools: () => [tool("demo", "echo")],
    call: () => ({ call: 9 }),
    tool: () => tool("demo", "echo", { schema: { type: "object", properties: {} } }),
    validate: () => ({ errors: [] }),
    rows: page,
    row: ({ first = 0 }) => ({ members: [["name", `row ${first}\n${EVIL}`]], more: 2 }),
    file: ({ offset = 0 }) => ({ data: FILE, size: 16, next: offset ? null : 8 }),
  });
  const screen = await show(kernel);
  screen.tab("Tools");
  fireEvent.click(await screen.see.findByRole("treeitem", { name: /echo/ }));
  await screen.see.findByRole("button", { name: "Run" });
  screen.click("Run");
  await waitFor(() => expect(kernel.asked("call")).toHaveLength(1));
  await new Promise((resolve) => setTimeout(resolve));
  kernel.transport.say({ kind: "result", call: 9, ok: true, preview });
  const result = await screen.see.findByRole("group", { name: /^Result of/ });
  if (preview.table) await waitFor(() => expect(result.querySelector("table")).not.toBeNull());
  return { screen, kernel };
}

const cells = ({ root }: Screen): string[] =>
  [...root.querySelectorAll(".mcp-table tbody tr")].map((row) => row.querySelectorAll("td")[1]?.textContent ?? "");

test("a small result is shown without its size", async () => {
  const { screen } = await run({ ...RESULT, text: "hi", size: 184, variable: "mcp.results[7]" });
  const shown = screen.root.querySelector(".mcp-preview");
  expect(shown?.textContent).toBe("hiCopyInsert variable");
  expect(shown?.classList).toContain("mcp-small");
  screen.click("Insert variable");
  expect(screen.inserted).toEqual(["mcp.results[7]"]);
});

test("a large result is shown with its size and the name of the whole", async () => {
  const { screen } = await run({ ...RESULT, size: 20_000_000, truncated: true, variable: "mcp.results[7]" });
  expect(screen.root.querySelector(".mcp-foot")?.textContent).toContain(
    "20 MB, truncated · full value in mcp.results[7]",
  );
});

test("a table is paged and sorted by the kernel", async () => {
  const { screen, kernel } = await run(TABLE);
  const { see, click } = screen;
  expect(cells(screen)).toHaveLength(50);
  see.getByText("1–50 of 120 rows");
  see.getByText("3 more columns");
  see.getByText("count: 120");
  expect(see.getByRole("button", { name: "Previous rows" }).hasAttribute("disabled")).toBe(true);
  click("Next rows");
  await see.findByText("51–100 of 120 rows");
  click("Next rows");
  await see.findByText("101–120 of 120 rows");
  expect(see.getByRole("button", { name: "Next rows" }).hasAttribute("disabled")).toBe(true);

  click("n");
  await waitFor(() => expect(see.getByRole("columnheader", { name: "n" }).getAttribute("aria-sort")).toBe("ascending"));
  click("n");
  await waitFor(() => expect(cells(screen)[0]).toBe("120"));
  expect(see.getByRole("columnheader", { name: "n" }).getAttribute("aria-sort")).toBe("descending");
  click("n");
  await waitFor(() => expect(cells(screen)[0]).toBe("1"));
  expect(see.getByRole("columnheader", { name: "n" }).hasAttribute("aria-sort")).toBe(false);
  expect(kernel.asked("rows").map(({ result, first, sort, descending }) => [result, first, sort, descending])).toEqual([
    [7, 50, null, false],
    [7, 100, null, false],
    [7, 0, 1, false],
    [7, 0, 1, true],
    [7, 0, null, false],
  ]);
});

test("a row opens in full, and closes", async () => {
  const { screen, kernel } = await run(TABLE);
  screen.click("Row 2");
  const row = await screen.see.findByRole("region", { name: "Row 2" });
  expect(row.textContent).toContain("row 1\n<img src=x onerror=alert(1)>⟨U+202E⟩");
  expect(row.textContent).toContain("2 more values");
  expect(row.querySelector("img")).toBeNull();
  expect(kernel.asked("row")).toMatchObject([{ result: 7, first: 1 }]);
  screen.click("Close");
  await waitFor(() => expect(screen.see.queryByRole("region", { name: "Row 2" })).toBeNull());
});

test("what strangers wrote in cells stays text", async () => {
  const { screen } = await run(TABLE);
  const cell = screen.root.querySelector<HTMLElement>(".mcp-table tbody td");
  expect(cell?.textContent).toBe("<img src=x onerror=alert(1)>⟨U+202E⟩");
  expect(cell?.title).toBe(cell?.textContent);
});

test("a table is saved as a file from all its parts", async () => {
  const { screen, kernel } = await run(TABLE);
  const blobs: Blob[] = [];
  vi.spyOn(URL, "createObjectURL").mockImplementation((blob) => `blob:${blobs.push(blob as Blob)}`);
  const saved: string[] = [];
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
    saved.push(this.download);
  });
  screen.click("CSV");
  await waitFor(() => expect(saved).toEqual(["result-7.csv"]));
  expect(await blobs[0]?.text()).toBe("a,b\n1,2\na,b\n1,2\n");
  expect(kernel.asked("file").map(({ format, offset }) => [format, offset])).toEqual([
    ["csv", 0],
    ["csv", 8],
  ]);
  vi.restoreAllMocks();
});

test("axe finds nothing in a table with an open row", async () => {
  const { screen } = await run(TABLE);
  screen.click("Row 1");
  await screen.see.findByRole("region", { name: "Row 1" });
  const { violations } = await axe.run(screen.root, {
    rules: { "color-contrast": { enabled: false }, region: { enabled: false } },
  });
  expect(violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.html.slice(0, 200)}`))).toEqual([]);
});

test("Markdown is rendered as in a cell, without what the panel allows no one", async () => {
  const { screen } = await run({ ...RESULT, text: "# Penguins", json: null, html: null, markdown: "# Penguins" });
  const root = await waitFor(() => {
    const found = screen.root.querySelector(".mcp-html")?.shadowRoot;
    if (!found) throw new Error("not rendered yet");
    return found;
  });
  expect(root.querySelector("h2")?.textContent).toBe("Penguins");
  expect(root.querySelectorAll("img, [onerror]")).toHaveLength(0);
});

test("sound in a result is played on demand, and columns of numbers stay at the right", () => {
  const html =
    '<audio src="data:audio/wav;base64,UklG" autoplay></audio><audio src="https://far.example/x.wav"></audio>' +
    '<table><tr><td style="text-align:right;vertical-align:top">1</td><td style="text-align:left">a</td></tr></table>';
  const box = document.createElement("div");
  box.append(sanitise(html));
  const sounds = box.querySelectorAll("audio");
  expect(sounds).toHaveLength(1);
  expect([sounds[0]?.hasAttribute("controls"), sounds[0]?.hasAttribute("autoplay")]).toEqual([true, false]);
  expect([...box.querySelectorAll("td")].map((cell) => cell.getAttribute("align"))).toEqual(["right", null]);
  expect(box.querySelector("[style]")).toBeNull();
});

test("a description is shown as a little Markdown, and nothing in it runs or leads elsewhere than it says", () => {
  const text =
    "# Orders\nPlaces an **order**. See `sku`s at https://shop.example/list.\n\n- [docs](https://shop.example/d)\n- two\n" +
    "```json\n{ **1** }\n```\n<b>x</b> [a](javascript:alert(1)) **\u202e** 2 * 3 * 4";
  const { container } = render(<Prose text={text} />);
  expect(container.querySelector("div")?.innerHTML).toBe(
    "<strong>Orders\n</strong>Places an <strong>order</strong>. See <code>sku</code>s at " +
      '<a href="https://shop.example/list" rel="noopener noreferrer" target="_blank" title="https://shop.example/list">' +
      "https://shop.example/list</a>.\n\n" +
      '<ul><li><a href="https://shop.example/d" rel="noopener noreferrer" target="_blank" title="https://shop.example/d">docs</a>' +
      '</li><li>two</li></ul><pre class="mcp-pre">{ **1** }\n</pre>' +
      "&lt;b&gt;x&lt;/b&gt; [a](javascript:alert(1)) <strong>\u27e8U+202E\u27e9</strong> 2 * 3 * 4\n",
  );
  expect(plainLine(text)).toMatch(/^# Orders Places an order. See skus at https:\/\/shop.example\/list. - docs - two/);
});

test.each(["`", "**", "[", "[a](https://", "https://", "https://.", "#", "- ", "```"])(
  "a description of a million characters takes linear time: %s",
  (unit) => {
    const began = performance.now();
    plainLine(unit.repeat(300_000));
    expect(performance.now() - began).toBeLessThan(2_000);
  },
);

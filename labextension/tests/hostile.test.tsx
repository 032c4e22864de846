import { fireEvent, waitFor } from "@testing-library/preact";
import { describe, expect, test } from "vitest";
import type { Preview } from "../src/protocol";
import { sanitise } from "../src/sanitise";
import { singleLine, visible, webAddress } from "../src/text";
import { FakeKernel, server, stateOf, tool } from "./fake";
import { show } from "./screen";

const EVIL = '<img src=x onerror="globalThis.pwned=1"><script>globalThis.pwned=1</script>\u202Egnp.exe';

function html(text: string): string {
  const box = document.createElement("div");
  box.append(sanitise(text));
  return box.innerHTML;
}

describe("the kernel's HTML, cleaned once more", () => {
  test.each([
    ["<b onclick=alert(1)>x</b>", "<b>x</b>"],
    ["<script>alert(1)</script>x", "x"],
    ["<style>*{}</style><iframe src=//a></iframe><object></object>x", "x"],
    ["<svg onload='alert(1)'><path d=M0></path></svg>y", "y"],
    ["<math><mi xlink:href='javascript:1'>x</mi></math>y", "y"],
    ["<a href='javascript:alert(1)'>x</a>", "<a>x</a>"],
    ["<a href=' java\nscript:alert(1)'>x</a>", "<a>x</a>"],
    ["<a href='data:text/html,x'>x</a>", "<a>x</a>"],
    [
      "<a href='https://a.example/' ping='//b' target='_top'>x</a>",
      '<a href="https://a.example/" rel="noopener noreferrer" target="_blank">x</a>',
    ],
    ["<p style='background:url(//a)' class=c>x</p>", '<p class="c">x</p>'],
    ["<form action=//a><button>x</button></form>y", "y"],
    ["<custom-x><i>kept</i></custom-x>", "<i>kept</i>"],
    ["<template><script>alert(1)</script></template>x", "x"],
    ["<!-- gone -->x", "x"],
  ])("%s", (given, expected) => {
    expect(html(given)).toBe(expected);
  });

  test("a picture elsewhere is a link, one in the page's own bytes is shown, any other is its words", () => {
    const box = document.createElement("div");
    box.append(
      sanitise(
        "<img src='https://a.example/x.png' alt='plot' srcset='//b'><img src='data:image/png;base64,AAAA' onload='x()'><img src='blob:x' alt='gone'>",
      ),
    );
    expect(box.querySelectorAll("img")).toHaveLength(1);
    expect(box.querySelector("img")?.getAttributeNames()).toEqual(["src"]);
    expect(box.querySelector("a")?.textContent).toBe("plot");
    expect(box.textContent).toBe("plotgone");
  });
});

describe("text", () => {
  test("characters that hide or turn others are shown as what they are", () => {
    expect(visible("a\u202Eb\u200Bc\u0007\r\nd")).toBe("a\u27e8U+202E\u27e9b\u27e8U+200B\u27e9c\u27e8U+0007\u27e9\nd");
    expect(singleLine(" a\n\tb ")).toBe(" a b ");
  });

  test("only http and https are addresses", () => {
    expect(["javascript:alert(1)", "//a", "data:x", "file:///a", "https://", "ftp://a"].map(webAddress)).toEqual(
      Array(6).fill(null),
    );
    expect(webAddress("HTTPS://a.example/x")).toBe("https://a.example/x");
  });
});

describe("in the views", () => {
  const preview: Preview = {
    text: null,
    html: `<b>table</b>${EVIL}<a href="javascript:alert(1)">click</a>`,
    image: { mime: "text/html", data: "PHNjcmlwdD4=" },
    json: { evil: EVIL },
    links: [
      { uri: "javascript:alert(1)", name: EVIL },
      { uri: "https://a.example/", name: "fine" },
    ],
    truncated: true,
    size: 20_000_000,
    variable: "result_3",
  };

  test("scripts, handlers, links and pictures of strangers stay text wherever they are planted", async () => {
    const evil = tool("demo", EVIL, {
      description: EVIL,
      title: EVIL,
      findings: [EVIL],
      badges: [{ text: EVIL, kind: "neutral" }],
    });
    const kernel: FakeKernel = new FakeKernel(
      stateOf(
        [server("demo", { instructions: EVIL, where: EVIL, error: { message: EVIL, hint: EVIL } })],
        [{ id: "q", kind: "login", server: "demo", type: "wait", title: EVIL, message: EVIL }],
      ),
      {
        tools: () => [evil],
        tool: () => ({
          ...evil,
          schema: {
            type: "object",
            properties: { [EVIL]: { type: "string", title: EVIL, description: EVIL, default: EVIL } },
          },
        }),
        validate: () => ({ errors: [] }),
        call: () => ({ call: 1 }),
      },
    );
    const { see, tab, root, click, menu } = await show(kernel);
    click(/^demo/);
    tab("Logs");
    await waitFor(() => expect(kernel.asked("logs")).toHaveLength(1));
    kernel.transport.say({
      kind: "log",
      server: "demo",
      dropped: 0,
      lines: [{ n: 1, time: 1, level: EVIL, source: "stderr", text: EVIL }],
    });
    tab("Tools");
    fireEvent.click((await see.findAllByRole("treeitem"))[1] as Element);
    await menu(/^Actions of <img/, "Show schema");
    click("Run");
    await waitFor(() => expect(kernel.asked("call")).toHaveLength(1));
    await new Promise((resolve) => setTimeout(resolve));
    kernel.transport.say({ kind: "result", call: 1, ok: true, preview });
    const host = await waitFor(() => {
      const found = root.querySelector<HTMLElement>(".mcp-html")?.shadowRoot;
      if (!found) throw new Error("no preview yet");
      return found;
    });
    tab("Logs");
    await waitFor(() => expect(root.querySelector(".mcp-line")?.textContent).toContain("<script>"));
    for (const place of [root, host]) {
      expect(place.querySelectorAll("script, img, iframe, [onerror], [href^=javascript]")).toHaveLength(0);
    }
    expect(root.textContent).not.toContain("\u202E");
    expect([...root.querySelectorAll("a")].map((link) => [link.href, link.rel])).toEqual([
      ["https://a.example/", "noopener noreferrer"],
    ]);
    expect((globalThis as { pwned?: number }).pwned).toBeUndefined();
    expect(root.textContent).toContain("20 MB, truncated · full value in result_3");
  });
});

import { fireEvent, waitFor, within } from "@testing-library/preact";
import { describe, expect, test } from "vitest";
import type { QuestionRow } from "../src/protocol";
import { demo } from "./demo";
import { FakeKernel, server, stateOf } from "./fake";
import { show, type } from "./screen";

describe("questions", () => {
  const asked = (question: Partial<QuestionRow> & { type: QuestionRow["type"] }): FakeKernel =>
    new FakeKernel(
      stateOf(
        [server("demo")],
        [{ id: "q", kind: "form", server: "demo", title: "May it?", message: "Say so.", ...question } as QuestionRow],
      ),
    );

  test("approve shows every call and sends the answer", async () => {
    const calls = [
      {
        server: "demo",
        tool: "rm",
        arguments: { path: "a" },
        caller: "model" as const,
        why: "rule: ask * (a model's call)",
        hints: "destructive",
      },
    ];
    const kernel = asked({ type: "approve", calls, answers: ["once", "always", "no"] });
    const { see, click } = await show(kernel);
    const dialog = see.getByRole("alertdialog", { name: "The model wants to run demo.rm" });
    const lines = [...dialog.querySelectorAll(".mcp-call-request > .mcp-muted")].map(({ textContent }) => textContent);
    expect(lines).toEqual(["rule: ask * (a model's call)", "The server says: destructive"]);
    click("Deny");
    expect(see.queryByRole("button", { name: "Deny for longer" })).toBeNull();
    click("Allow for longer");
    const menu = await see.findByRole("menu", { name: "Allow for longer" });
    const item = within(menu).getByRole("menuitem");
    expect([document.activeElement, item.textContent]).toEqual([item, "Always allow the tool"]);
    fireEvent.keyDown(item, { key: "Escape" });
    await waitFor(() => expect(see.queryByRole("menu")).toBeNull());
    expect(document.activeElement?.getAttribute("aria-label")).toBe("Allow for longer");
    fireEvent.keyDown(document.activeElement as Element, { key: "ArrowDown" });
    fireEvent.click(await see.findByRole("menuitem"));
    expect(kernel.asked("answer")).toMatchObject([
      { question: "q", answer: "no" },
      { question: "q", answer: "always" },
    ]);
    kernel.patch({ questions: { q: null } });
    await waitFor(() => expect(see.queryByRole("alertdialog")).toBeNull());
  });

  test("a map shows its first call, and some of the others as one line each", async () => {
    const wanted = { server: "mail", tool: "send", caller: "model" as const, why: "rule: ask *", hints: "" };
    const samples = [{ to: "b" }, { to: "c" }];
    const calls = [{ ...wanted, arguments: { to: "a" }, count: 300, samples }];
    const kernel = asked({ type: "approve", calls, answers: ["once", "no"] });
    const { see } = await show(kernel);
    const dialog = see.getByRole("alertdialog", { name: "The model wants to run mail.send 300 times" });
    expect(
      within(dialog)
        .getAllByRole("listitem")
        .map((item) => item.textContent),
    ).toEqual(['{"to":"b"}', '{"to":"c"}']);
  });

  test("what waits for a browser comes after what is asked, and can be cancelled", async () => {
    const kernel = asked({ type: "wait", title: "far wants you to log in" });
    const { see, click } = await show(kernel);
    const other = { id: "r", server: "near", type: "visit", title: "near wants you to log in", message: "" };
    kernel.patch({ questions: { r: { ...other, url: "https://example.com/", domain: "example.com" } as QuestionRow } });
    const dialog = await see.findByRole("alertdialog", { name: /^near wants you to log in/ });
    expect(dialog.textContent).toContain("1 more after this");
    kernel.patch({ questions: { r: null } });
    await see.findByRole("alertdialog", { name: "far wants you to log in" });
    click("Cancel");
    expect(kernel.asked("answer")).toMatchObject([{ question: "q", action: "cancel" }]);
  });

  test("trust ticks nothing on its own, and grants a secret only to what may run", async () => {
    const candidates = [
      {
        name: "one",
        summary: "will run `x`.",
        lines: ["command: npx one"],
        dangers: ["fetches code"],
        secrets: ["token"],
      },
      { name: "two", summary: "will run `x`.", lines: ["command: two"], dangers: [], secrets: [] },
    ];
    const kernel = asked({ type: "trust", candidates });
    const { see, click } = await show(kernel);
    expect((see.getByRole("button", { name: "Trust selected" }) as HTMLButtonElement).disabled).toBe(true);
    expect((see.getByLabelText("Give it your secret token") as HTMLInputElement).disabled).toBe(true);
    fireEvent.click(see.getByLabelText("Run one"));
    await waitFor(() =>
      expect((see.getByLabelText("Give it your secret token") as HTMLInputElement).disabled).toBe(false),
    );
    fireEvent.click(see.getByLabelText("Give it your secret token"));
    await waitFor(() =>
      expect((see.getByLabelText("Give it your secret token") as HTMLInputElement).checked).toBe(true),
    );
    click("Trust selected");
    click("Don't trust");
    expect(kernel.asked("answer")).toMatchObject([
      { question: "q", servers: ["one"], secrets: [["one", "token"]] },
      { question: "q", servers: [], secrets: [] },
    ]);
  });

  test("a single server has no box to tick, and a button that says what it does", async () => {
    const candidates = [
      { name: "one", summary: "will run `x`.", lines: ["command: npx one"], dangers: [], secrets: ["token"] },
    ];
    const kernel = asked({ type: "trust", candidates });
    const { see, click } = await show(kernel);
    expect(see.getAllByRole("checkbox")).toEqual([see.getByLabelText("Give it your secret token")]);
    click("Trust and start");
    click("Don't trust");
    expect(kernel.asked("answer")).toMatchObject([
      { question: "q", servers: ["one"], secrets: [] },
      { question: "q", servers: [], secrets: [] },
    ]);
  });

  test("several servers are ticked at once, without their secrets", async () => {
    const candidates = [
      { name: "one", summary: "will run `x`.", lines: ["command: one"], dangers: [], secrets: ["token"] },
      { name: "two", summary: "will run `x`.", lines: ["command: two"], dangers: [], secrets: [] },
      { name: "three", summary: "will run `x`.", lines: ["command: three"], dangers: [], secrets: [], is_agreed: true },
    ];
    const kernel = asked({ type: "trust", candidates });
    const { see, click } = await show(kernel);
    const ticked = (): string[] =>
      see
        .getAllByRole<HTMLInputElement>("checkbox")
        .filter((each) => each.checked)
        .map((each) => each.labels?.[0]?.textContent ?? "");
    expect(ticked()).toEqual(["Run three"]);
    fireEvent.click(see.getByLabelText("All"));
    await waitFor(() => expect(ticked()).toEqual(["All", "Run one", "Run two", "Run three"]));
    click("Trust selected");
    fireEvent.click(see.getByLabelText("All"));
    await waitFor(() => expect(ticked()).toEqual(["Run three"]));
    expect(kernel.asked("answer")).toMatchObject([{ servers: ["one", "two", "three"], secrets: [] }]);
  });

  test("fill is a form that begins with its defaults, and what the kernel finds wrong stands at its field", async () => {
    const kernel = asked({
      type: "fill",
      schema: {
        type: "object",
        required: ["name"],
        properties: { name: { type: "string" }, news: { type: "boolean", default: true } },
      },
    });
    kernel.answers.answer = (answer) =>
      "content" in answer && answer.content?.["name"] ? null : { errors: [{ path: ["name"], message: "is missing" }] };
    const { see, click } = await show(kernel);
    click("Send");
    await waitFor(() => expect(see.getByLabelText("name").getAttribute("aria-invalid")).toBe("true"));
    type(see.getByLabelText("name"), "Ada");
    await waitFor(() => expect((see.getByLabelText("name") as HTMLTextAreaElement).value).toBe("Ada"));
    fireEvent.keyDown(see.getByLabelText("name"), { key: "Enter" });
    await waitFor(() =>
      expect(kernel.asked("answer").at(-1)).toMatchObject({ action: "accept", content: { name: "Ada", news: true } }),
    );
    click("Decline");
    expect(kernel.asked("answer").at(-1)).toMatchObject({ action: "decline" });
  });

  test("only what a server asks can be declined; what you began yourself is cancelled", async () => {
    const schema = { type: "object", properties: { name: { type: "string" } } };
    const visit = { type: "visit", url: "https://example.com/", domain: "example.com" } as const;
    for (const [question, mayDecline] of [
      [{ type: "fill", schema, kind: "form" }, true],
      [{ type: "fill", schema, kind: "secret" }, false],
      [{ ...visit, kind: "secret" }, true],
      [{ ...visit, kind: "login" }, false],
    ] as [Partial<QuestionRow> & { type: QuestionRow["type"] }, boolean][]) {
      const { see, unmount } = await show(asked(question));
      see.getByRole("button", { name: "Cancel" });
      expect(see.queryByRole("button", { name: "Decline" }) !== null).toBe(mayDecline);
      unmount();
    }
  });

  test("visit opens web addresses only", async () => {
    const kernel = asked({ type: "visit", url: "https://example.com/login", domain: "example.com" });
    const { click, opened } = await show(kernel);
    click("Open link");
    expect(opened).toEqual(["https://example.com/login"]);
    expect(kernel.asked("answer")).toMatchObject([{ question: "q", action: "accept" }]);
    const other = await show(asked({ type: "visit", url: "javascript:alert(1)", domain: "x" }));
    expect((other.see.getByRole("button", { name: "Open link" }) as HTMLButtonElement).disabled).toBe(true);
  });

  test("a link is shown with the host that it opens", async () => {
    const shown = async (url: string, domain: string): Promise<string | null | undefined> => {
      const { see } = await show(asked({ type: "visit", url, domain }));
      const dialogs = see.getAllByRole("alertdialog");
      return dialogs.at(-1)?.querySelector("p strong")?.textContent;
    };
    expect(await shown("https://other.example\\@good.example/", "good.example")).toBe("other.example");
    expect(await shown("http://2130706433/", "2130706433")).toBe("127.0.0.1");
    const both = "b\u00fccher.example (xn--bcher-kva.example)";
    expect(await shown("https://b\u00fccher.example/", both)).toBe(both);
  });

  test("takes the focus from a button of the panel, but not from one who writes or works elsewhere", async () => {
    const question: QuestionRow = { id: "q", kind: "login", server: "demo", type: "wait", title: "Wait", message: "" };
    const outside = document.body.appendChild(document.createElement("button"));
    for (const [focus, moves] of [
      ["tab", true],
      ["search", false],
      ["outside", false],
    ] as const) {
      const kernel = demo();
      const { see, tab, unmount } = await show(kernel);
      tab("Tools");
      const field =
        focus === "tab"
          ? see.getByRole("tab", { name: "Tools" })
          : await see.findByRole("searchbox", { name: "Search tools" });
      (focus === "outside" ? outside : field).focus();
      kernel.patch({ questions: { q: question } });
      const dialog = await see.findByRole("alertdialog");
      await new Promise((resolve) => setTimeout(resolve, 30));
      expect(document.activeElement === dialog).toBe(moves);
      unmount();
    }
    outside.remove();
  });

  test("view mode shows the question without answers", async () => {
    const kernel = asked({ type: "visit", url: "https://example.com", domain: "example.com" });
    kernel.hello.mode = "view";
    const { see } = await show(kernel);
    const dialog = see.getByRole("alertdialog");
    expect(within(dialog).queryAllByRole("button")).toEqual([]);
    expect(dialog.textContent).toContain("answer in the notebook");
  });
});

import { afterEach, expect, test, vi } from "vitest";
import { pageServices } from "../src/services";

afterEach(() => void vi.unstubAllGlobals());

/** A page over plain http, whose browser lets it copy what is selected, or does not. */
function overHttp(isLet: boolean): string[] {
  const copied: string[] = [];
  vi.stubGlobal("navigator", {});
  document.execCommand = (command) => {
    const field = document.querySelector("textarea");
    copied.push(`${command} ${field?.value}`);
    return isLet;
  };
  return copied;
}

test("a page that has no clipboard copies by a selection, and leaves nothing of it", async () => {
  const copied = overHttp(true);
  const button = document.body.appendChild(document.createElement("button"));
  button.focus();
  await pageServices.copy("mcp.fs.read()");
  expect(copied).toEqual(["copy mcp.fs.read()"]);
  expect(document.querySelector("textarea")).toBeNull();
  expect(document.activeElement).toBe(button);
  button.remove();
});

test("a browser that lets no page copy is said", async () => {
  overHttp(false);
  await expect(pageServices.copy("x")).rejects.toThrow("allows copying only on pages served over HTTPS");
});

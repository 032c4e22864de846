// @vitest-environment node
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";

const BUILT = join(import.meta.dirname, "../../ipymcp/notebook/panel/static");
const read = (folder: string, name: string): string => readFileSync(join(folder, name), "utf8");

test("the panel is at most 120 kB and the stub at most 2 kB", () => {
  expect(Buffer.byteLength(read(BUILT, "panel.js"))).toBeLessThanOrEqual(120_000);
  expect(Buffer.byteLength(read(BUILT, "stub.js"))).toBeLessThanOrEqual(2_000);
});

test("nothing in them makes code of text, or calls home", () => {
  for (const name of ["panel.js", "stub.js"]) {
    const text = read(BUILT, name);
    expect(text).not.toMatch(/\beval\s*\(|new\s+Function\b|\bFunction\s*\(|document\.write|importScripts/);
    expect(text).not.toMatch(/(?<![.\w])fetch\s*\(|XMLHttpRequest|WebSocket|sourceMappingURL/);
  }
});

test("what is committed is what the sources build", () => {
  const folder = mkdtempSync(join(tmpdir(), "ipymcp-build-"));
  try {
    execFileSync(process.execPath, [join(import.meta.dirname, "../build.mjs"), folder]);
    for (const name of ["panel.js", "stub.js"]) {
      expect(read(folder, name) === read(BUILT, name), `${name} is stale: npm run build`).toBe(true);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

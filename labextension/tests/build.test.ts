// @vitest-environment node
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";

const BUILT = join(import.meta.dirname, "../../ipymcp/panel/static");
const read = (folder: string, name: string): string => readFileSync(join(folder, name), "utf8");

function build(what: "panel" | "lab", folder: string): void {
  execFileSync(process.execPath, [join(import.meta.dirname, "../build.mjs"), what, folder]);
}

test("the panel with apps is at most 185 kB and the stub at most 2 kB", () => {
  expect(Buffer.byteLength(read(BUILT, "panel.js"))).toBeLessThanOrEqual(185_000);
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
    build("panel", folder);
    for (const name of ["panel.js", "stub.js", "LICENSES.txt"]) {
      expect(read(folder, name) === read(BUILT, name), `${name} is stale: npm run build`).toBe(true);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

const HERE = join(import.meta.dirname, "..");
const LAB = join(HERE, "../ipymcp/labextension");

function filesIn(folder: string): string[] {
  const names = readdirSync(folder, { recursive: true }).map(String).sort();
  return names.filter((name) => statSync(join(folder, name)).isFile());
}

test("JupyterLab's extension, as committed, is what the sources build", { timeout: 170_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "ipymcp-lab-"));
  try {
    const about = JSON.parse(read(HERE, "package.json")) as { jupyterlab: { outputDir: string } };
    about.jupyterlab.outputDir = "out";
    writeFileSync(join(folder, "package.json"), JSON.stringify(about));
    for (const name of ["schema", "rspack.config.cjs"]) {
      cpSync(join(HERE, name), join(folder, name), { recursive: true });
    }
    mkdirSync(join(folder, "lib"));
    build("lab", folder);
    const built = join(folder, "out");
    expect(filesIn(built), "stale: npm run build").toEqual(filesIn(LAB));
    for (const name of filesIn(LAB).filter((each) => !/package\.json/.test(each))) {
      expect(read(built, name) === read(LAB, name), `${name} is stale: npm run build`).toBe(true);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the licence of Preact, which is in both, lies beside them", () => {
  const licence = read(join(HERE, "node_modules/preact"), "LICENSE").trim();
  expect(licence).toContain("The MIT License");
  expect(read(BUILT, "LICENSES.txt")).toContain(licence);
  const { packages } = JSON.parse(read(join(LAB, "static"), "third-party-licenses.json")) as {
    packages: { name: string; extractedText: string }[];
  };
  expect(packages.map((one) => [one.name, one.extractedText.trim()])).toEqual([["preact", licence]]);
});

test("JupyterLab's extension asks for any JupyterLab 4, and makes no code of text of its own", () => {
  const { jupyterlab, dependencies } = JSON.parse(read(LAB, "package.json")) as {
    dependencies: { [name: string]: string };
    jupyterlab: { sharedPackages: { [name: string]: { requiredVersion: string } } };
  };
  expect(dependencies["@jupyterlab/application"]).toBe("^4.0.0");
  const asked = Object.entries(jupyterlab.sharedPackages).map(([name, { requiredVersion }]) => [name, requiredVersion]);
  expect(Object.fromEntries(asked)).toEqual(dependencies);
  const code = filesIn(LAB).filter((name) => /static.[0-9]+\..*\.js$/.test(name));
  const sizes = code.map((name) => statSync(join(LAB, name)).size).sort((one, other) => other - one);
  expect(sizes.length, "the extension, and the views that come when they are first shown").toBeGreaterThan(1);
  expect(sizes[0]).toBeLessThanOrEqual(170_000);
  const scripts = filesIn(LAB).filter((name) => name.endsWith(".js"));
  const total = scripts.reduce((sum, name) => sum + statSync(join(LAB, name)).size, 0);
  expect(total, "with the chunks that are loaded later").toBeLessThanOrEqual(246_000);
  for (const name of code) {
    expect(read(LAB, name)).not.toMatch(/\beval\s*\(|new\s+Function\b|document\.write|importScripts/);
  }
});

/** The panel's code and the stub that each panel carries, and JupyterLab's extension, into the Python package, where they are
 * committed: node build.mjs. One of them alone, elsewhere: node build.mjs panel|lab FOLDER */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { build } from "esbuild";

const HERE = new URL(".", import.meta.url).pathname;
const STATIC = new URL("../ipymcp/notebook/panel/static/", import.meta.url).pathname;
const COMMON = {
  absWorkingDir: HERE,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};

/** Builds what the kernel sends, into a folder. */
export async function buildPanel(outdir = STATIC) {
  await build({ ...COMMON, entryPoints: { panel: "src/cell.ts", stub: "src/stub.ts" }, outdir });
}

/** Builds what JupyterLab loads, into a folder with a package.json of its own: without what JupyterLab has itself, and wrapped
 * by its builder, which puts it where that says. */
export async function buildLab(folder = HERE) {
  await build({
    ...COMMON,
    entryPoints: { index: "src/lab/index.ts" },
    outdir: join(folder, "lib"),
    external: ["@jupyterlab/*", "@lumino/*"],
  });
  const builder = join(HERE, "node_modules/@jupyter/builder/lib/build-labextension.js");
  const core = join(HERE, "node_modules/@jupyterlab/core-meta/core.package.json");
  execFileSync(process.execPath, [builder, "--core-package-file", core, folder], { cwd: folder });
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const [what, folder] = process.argv.slice(2);
  if (what !== "lab") await buildPanel(folder);
  if (what !== "panel") await buildLab(folder);
}

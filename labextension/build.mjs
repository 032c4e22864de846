/** The panel's code and the stub that each panel carries, into the Python package, where both are committed:
 * node build.mjs [FOLDER]. JupyterLab's extension as one module, for its own builder to wrap: node build.mjs lab */

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

/** Builds what JupyterLab loads, without what it has itself. */
export async function buildLab() {
  await build({
    ...COMMON,
    entryPoints: { index: "src/lab/index.ts" },
    outdir: "lib",
    external: ["@jupyterlab/*", "@lumino/*"],
  });
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  if (process.argv[2] === "lab") await buildLab();
  else await buildPanel(process.argv[2]);
}

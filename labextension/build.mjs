/** The panel's code and the stub that each panel carries, into the Python package; both are committed. */

import { build } from "esbuild";

const STATIC = new URL("../ipymcp/notebook/panel/static/", import.meta.url).pathname;

/** Builds into a folder. */
export async function buildPanel(outdir = STATIC) {
  await build({
    absWorkingDir: new URL(".", import.meta.url).pathname,
    entryPoints: { panel: "src/cell.ts", stub: "src/stub.ts" },
    outdir,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
  });
}

if (process.argv[1] === new URL(import.meta.url).pathname) await buildPanel(process.argv[2]);

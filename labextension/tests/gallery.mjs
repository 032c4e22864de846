/** Builds the gallery page into a folder, to be opened with any browser: node tests/gallery.mjs FOLDER */

import { writeFile } from "node:fs/promises";
import { build } from "esbuild";
import { INLINE_CSS } from "../build.mjs";

const folder = process.argv[2] ?? "/tmp/ipymcp-gallery";
await build({
  entryPoints: [new URL("gallery.ts", import.meta.url).pathname],
  outfile: `${folder}/gallery.js`,
  bundle: true,
  format: "iife",
  jsx: "automatic",
  jsxImportSource: "preact",
  plugins: [INLINE_CSS],
});
const THEMES = `
:root[data-theme="light"] { --jp-layout-color1: #fff; --jp-layout-color2: #eee; --jp-ui-font-color1: rgba(0,0,0,.87); --jp-ui-font-color2: rgba(0,0,0,.66); --jp-border-color1: #bdbdbd; --jp-border-color2: #e0e0e0; --jp-brand-color1: #1976d2; --jp-ui-inverse-font-color1: #fff; --jp-error-color1: #d32f2f; --jp-success-color1: #388e3c; --jp-warn-color0: #e65100; --jp-content-link-color: #0d47a1; background: #fff; }
:root[data-theme="dark"] { --jp-layout-color1: #111; --jp-layout-color2: #424242; --jp-ui-font-color1: #fff; --jp-ui-font-color2: rgba(255,255,255,.7); --jp-border-color1: #616161; --jp-border-color2: #424242; --jp-brand-color1: #2196f3; --jp-ui-inverse-font-color1: #000; --jp-error-color1: #d32f2f; --jp-success-color1: #388e3c; --jp-warn-color0: #e65100; --jp-content-link-color: #64b5f6; background: #111; color-scheme: dark; }
body { margin: 0; font: 13px system-ui; }`;
await writeFile(
  `${folder}/index.html`,
  `<!doctype html><meta charset="utf-8"><title>ipymcp panel</title><style>${THEMES}</style><body><script src="gallery.js"></script>`,
);

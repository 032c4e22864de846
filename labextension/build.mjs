/** Builds the panel, its stub and the JupyterLab extension into the Python package, where they are committed: node build.mjs.
 * To build one of them into another folder: node build.mjs panel|lab FOLDER. Third-party licences are written next to each. */

import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import rspack from "@rspack/core";
import { build } from "esbuild";

const HERE = new URL(".", import.meta.url).pathname;
const STATIC = new URL("../ipymcp/panel/static/", import.meta.url).pathname;
/** Imports `FILE.css?inline` as a string. */
export const INLINE_CSS = {
  name: "inline-css",
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const target = ["chrome123", "firefox120", "safari17.5"];
      const css = await build({
        entryPoints: [path],
        bundle: true,
        minify: true,
        charset: "utf8",
        target,
        write: false,
      });
      return { contents: css.outputFiles[0].text, loader: "text" };
    });
  },
};

/** Imports at once, into the one file of the panel, the views that JupyterLab's build loads when they are first shown. */
const EAGER_VIEWS = {
  name: "eager-views",
  setup({ onLoad }) {
    onLoad({ filter: /[/\\]src[/\\].*\.tsx$/ }, ({ path }) => {
      const imports = [];
      const source = readFileSync(path, "utf8").replace(
        /\(await import\(("\.[^"]+")\)\)\.(\w+)/g,
        (_, module, name) => (imports.push(`import { ${name} as Eager${name} } from ${module};`), `Eager${name}`),
      );
      return { contents: imports.join("") + source, loader: "tsx" };
    });
  },
};

const COMMON = {
  absWorkingDir: HERE,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  // Calls of `createElement` are some kilobytes shorter than those of the JSX runtime, which TypeScript checks.
  tsconfigRaw: { compilerOptions: { jsx: "react", jsxFactory: "createElement", jsxFragmentFactory: "Fragment" } },
  inject: ["src/jsx.ts"],
  plugins: [INLINE_CSS],
};

/** Third-party packages in a build, in the format of JupyterLab's licence page. */
function packagesIn({ metafile }) {
  const names = Object.keys(metafile.inputs).map((path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]);
  return [...new Set(names.filter(Boolean))].sort().map((name) => {
    const folder = join(HERE, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    return {
      name,
      versionInfo: version,
      licenseId: license,
      extractedText: readFileSync(join(folder, "LICENSE"), "utf8"),
    };
  });
}

/** Minifies a module once more: several passes of SWC, which comes with JupyterLab's builder, save what esbuild leaves. */
async function compress(path) {
  const options = { module: true, ecma: 2022 };
  const { code } = await rspack.experiments.swc.minify(readFileSync(path, "utf8"), {
    ...options,
    compress: {
      ...options,
      ...{ passes: 4, keep_fargs: false, inline: 0, reduce_funcs: false, reduce_vars: false },
      ...{ unsafe_arrows: true, unsafe_methods: true },
    },
    mangle: { toplevel: true },
    format: { ecma: 2022, comments: false },
  });
  writeFileSync(path, code);
}

/** Builds the panel and its stub, which the kernel sends, into a folder. */
export async function buildPanel(outdir = STATIC) {
  const plugins = [INLINE_CSS, EAGER_VIEWS];
  const built = await build({ ...COMMON, plugins, entryPoints: { panel: "src/cell.ts" }, outdir });
  await build({ ...COMMON, inject: [], entryPoints: { stub: "src/stub.ts" }, outdir });
  await compress(join(outdir, "panel.js"));
  const notices = packagesIn(built).map((one) => `${one.name} ${one.versionInfo}\n\n${one.extractedText.trim()}\n`);
  writeFileSync(join(outdir, "LICENSES.txt"), `panel.js has in it:\n\n${notices.join("\n")}`);
}

/** Builds the JupyterLab extension in a folder with a package.json, which names the output folder. JupyterLab's own packages are
 * left out. */
export async function buildLab(folder = HERE) {
  rmSync(join(folder, "lib"), { recursive: true, force: true });
  const built = await build({
    ...COMMON,
    entryPoints: { index: "src/lab/index.ts" },
    outdir: join(folder, "lib"),
    external: ["@jupyterlab/*", "@lumino/*"],
    splitting: true,
  });
  for (const name of readdirSync(join(folder, "lib"))) await compress(join(folder, "lib", name));
  const builder = join(HERE, "node_modules/@jupyter/builder/lib/build-labextension.js");
  const core = join(HERE, "node_modules/@jupyterlab/core-meta/core.package.json");
  execFileSync(process.execPath, [builder, "--core-package-file", core, folder], { cwd: folder });
  const { outputDir } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).jupyterlab;
  const licences = join(folder, outputDir, "static/third-party-licenses.json");
  writeFileSync(licences, `${JSON.stringify({ packages: packagesIn(built) }, null, 2)}\n`);
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const [what, folder] = process.argv.slice(2);
  if (what !== "lab") await buildPanel(folder);
  if (what !== "panel") await buildLab(folder);
}

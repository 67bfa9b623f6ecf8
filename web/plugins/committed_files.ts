// What makes the build fit to be committed and served: addresses under `page/`, the licences of what is bundled, and
// the hash of the sources, which a test without Node compares (tests/web/test_built_files.py does the same sum).

import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative, sep } from "node:path";
import type { Plugin } from "vite";

const BUNDLED = ["preact", "uplot"];
const BUILT_FROM = [
  "src",
  "plugins",
  "public",
  "index.html",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
  "vite.config.ts",
];

/** All files under `path`, or `path` itself. */
function filesOf(path: string): string[] {
  try {
    return readdirSync(path, { withFileTypes: true }).flatMap((entry) => filesOf(join(path, entry.name)));
  } catch {
    return [path];
  }
}

/** SHA-256 over lines `path <space> SHA-256 of the file`, in the order of the paths. */
export function hashOfSources(folder: string): string {
  const lines = BUILT_FROM.flatMap((name) => filesOf(join(folder, name)))
    .map((path) => {
      const name = relative(folder, path).split(sep).join("/");
      return `${name} ${createHash("sha256").update(readFileSync(path)).digest("hex")}\n`;
    })
    .sort();
  return createHash("sha256").update(lines.join("")).digest("hex");
}

function licences(folder: string): string {
  return BUNDLED.map((name) => {
    const home = join(folder, "node_modules", name);
    const { version } = JSON.parse(readFileSync(join(home, "package.json"), "utf8")) as { version: string };
    return `${name} ${version}\n\n${readFileSync(join(home, "LICENSE"), "utf8").trim()}\n`;
  }).join(`\n${"-".repeat(80)}\n\n`);
}

/** The plugin; `folder` holds package.json. */
export function committedFiles(folder: string): Plugin {
  return {
    name: "committed-files",
    apply: "build",
    enforce: "post",
    transformIndexHtml: {
      order: "post",
      handler: (html) => html.replace(/"\.\/(app|icon)\./g, '"page/$1.').replaceAll(" crossorigin", ""),
    },
    generateBundle(_options, bundle) {
      const app = bundle["app.js"];
      if (app?.type !== "chunk") {
        throw new Error("The build has no app.js.");
      }
      app.code = `/* sources: ${hashOfSources(folder)} */\n${app.code}`;
      this.emitFile({ type: "asset", fileName: "LICENSES.txt", source: licences(folder) });
    },
  };
}

// The unit tests for node: `npm test` builds `*.test.ts` into node_modules/.tests and runs them there.

import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

const folder = fileURLToPath(new URL("src/", import.meta.url));
const tests = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((path) => path.endsWith(".test.ts"));

export default defineConfig({
  publicDir: false,
  build: {
    ssr: true,
    outDir: "node_modules/.tests",
    emptyOutDir: true,
    rollupOptions: {
      input: tests.map((path) => `${folder}${path}`),
      output: { entryFileNames: "[name].js" },
    },
  },
});

import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { committedFiles } from "./plugins/committed_files.ts";

const folder = fileURLToPath(new URL(".", import.meta.url));
const server = process.env.PHLOEM_URL ?? "http://127.0.0.1:8000";

export default defineConfig({
  base: "./",
  root: folder,
  plugins: [committedFiles(folder)],
  build: {
    outDir: fileURLToPath(new URL("../runtime/server/page/assets", import.meta.url)),
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    rollupOptions: {
      output: { entryFileNames: "app.js", assetFileNames: "app[extname]", codeSplitting: false },
    },
  },
  server: { proxy: Object.fromEntries(["/v1", "/page", "/detokenize", "/tokenize"].map((path) => [path, server])) },
});

import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { defineConfig } from "vite";

/** What a browser loads, compressed, may not be more. */
const MOST_BYTES = 150_000;
const server = process.env.HOLDFAST_URL ?? "http://127.0.0.1:8080";
const page = resolve(import.meta.dirname, "../src/holdfast/ops/api/page");

/** Puts a .gz beside every file that a server may send compressed; no time stamp inside, so that builds are alike. */
function compressed() {
  let folder = page;
  return {
    name: "compressed",
    apply: "build",
    configResolved(config) {
      folder = resolve(config.root, config.build.outDir);
    },
    closeBundle() {
      let bytes = 0;
      for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|html|svg)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        const packed = gzipSync(readFileSync(path), { level: 9 });
        writeFileSync(`${path}.gz`, packed);
        bytes += packed.length;
      }
      if (bytes > MOST_BYTES) this.error(`the page has ${bytes} bytes compressed; ${MOST_BYTES} are allowed`);
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [compressed()],
  build: {
    outDir: page,
    emptyOutDir: true,
    target: ["chrome123", "firefox120", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    // What is bundled asks for its notice to go along.
    license: { fileName: "licenses.md" },
  },
  server: {
    // `npm run dev` beside a server that was started with `holdfast serve`, which takes changes from its own page alone.
    proxy: {
      "^/(?!src/|node_modules/|@|theme\\.js|favicon\\.svg|index\\.html|$)": {
        target: server,
        changeOrigin: true,
        configure: (proxy) => proxy.on("proxyReq", (request) => request.setHeader("origin", server)),
      },
    },
  },
  test: { include: ["tests/**/*.test.ts"], environment: "node" },
});

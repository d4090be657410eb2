/**
 * Loaded before every Node.js program inside: gives it the sources whose types the host has stripped
 * (stripped-sources.ts), which are below KPTS_VM_SOURCES as the originals are below KPTS_VM_CHECKOUT. Required instead
 * of imported: each program, and each thread, would begin with an import that waits for itself.
 */
const { readFileSync } = require("node:fs");
const { registerHooks } = require("node:module");
const { join, relative } = require("node:path");
const { fileURLToPath } = require("node:url");

const { KPTS_VM_SOURCES: sources = "", KPTS_VM_CHECKOUT: checkout = "" } = process.env;

registerHooks({
  load(url, context, next) {
    const { protocol, pathname } = new URL(url);
    if (protocol !== "file:" || !pathname.endsWith(".ts")) return next(url, context);
    const path = relative(checkout, fileURLToPath(url));
    if (path.startsWith("..")) return next(url, context);
    return { format: "module", source: readFileSync(join(sources, path), "utf8"), shortCircuit: true };
  },
});

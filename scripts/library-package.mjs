/**
 * `npm run build:library`: makes `dist-library/`, a package of only the library: its entries and the modules that they load, with
 * their dependencies. Without the program it needs no Node.js of its own, no particular operating system or C library: `npm pack
 * ./dist-library` makes something that installs on macOS, Windows and Alpine. Version and dependencies are those of package.json.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const out = join(root, "dist-library");
/** The files and packages that a module needs: `from "x"`, `import("x")`, `import "x"` at the start of a line. */
const IMPORT =
  /(?:^(?:import|export)\b[^"'\n;]*?\bfrom\s*|^\}\s*from\s*|\bimport\(\s*|\bcreateRequire\(import\.meta\.url\)\(|^import\s*)"([^"\s]+)"/gm;
/** Kernel calls: code that only reads, plans and prints works without it, and must not depend on installing it. */
const OPTIONAL = ["koffi"];

/** Reachable files, including types, and names of packages. */
function reached(entries) {
  const files = new Set();
  const packages = new Set();
  // Of the types, only those that the entries' types name: what is loaded beyond that is internal.
  const waiting = entries.flatMap((file) => [file, file.replace(/\.js$/, ".d.ts")]);
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (files.has(file)) continue;
    files.add(file);
    for (const [, name] of withoutComments(readFileSync(file, "utf8")).matchAll(IMPORT)) {
      if (name.startsWith("node:")) continue;
      if (!name.startsWith(".")) packages.add(name);
      else waiting.push(join(dirname(file), file.endsWith(".d.ts") ? name.replace(/\.(?:js|ts)$/, ".d.ts") : name));
    }
  }
  return { files, packages };
}

/** Examples in comments contain imports, too. */
function withoutComments(text) {
  return text.replaceAll(/\/\*[\s\S]*?\*\//g, "");
}

export function makeLibraryPackage() {
  const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const entries = Object.values(manifest.exports).flatMap((entry) =>
    entry.default ? [join(root, entry.default)] : [],
  );
  if (!existsSync(entries[0] ?? "")) throw new Error("there is no dist/: run npm run build first");
  const { files, packages } = reached(entries);
  rmSync(out, { recursive: true, force: true });
  for (const file of files) {
    const to = join(out, relative(root, file));
    mkdirSync(dirname(to), { recursive: true });
    cpSync(file, to);
  }
  for (const name of ["LICENSE", "NOTICE"]) cpSync(join(root, name), join(out, name));
  cpSync(join(root, "docs/library.md"), join(out, "README.md"));
  const versions = (isWanted) =>
    Object.fromEntries(Object.entries(manifest.dependencies).filter(([name]) => packages.has(name) && isWanted(name)));
  const { version, keywords, license, type, exports } = manifest;
  // The program brings its own Node.js, and installs with any.
  const engines = { node: ">=24" };
  const description = "The library of kube-proxy-ts: Services as a node sees them, rules as data, netlink";
  const dependencies = versions((name) => !OPTIONAL.includes(name));
  const optionalDependencies = versions((name) => OPTIONAL.includes(name));
  const own = { name: "kube-proxy-ts-library", version, description, keywords, type, license, engines, exports };
  const text = JSON.stringify({ ...own, files: ["dist", "NOTICE"], dependencies, optionalDependencies }, undefined, 2);
  writeFileSync(join(out, "package.json"), `${text}\n`);
  return out;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    makeLibraryPackage();
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  }
}

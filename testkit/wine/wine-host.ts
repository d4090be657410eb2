/**
 * Windows programs on this machine, with Wine: the folder that Windows nodes get, the library of `fake-hns.c` in place of HNS's, the
 * program of `fake-netsh.c` in place of `netsh`, and a prefix that is created once. Facts: docs/reference/windows-practice.md §12.
 */
import { type ChildProcess, spawn } from "node:child_process";
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import type { HcnKind } from "../../src/modes/kernelspace/hcn/hcn-calls.ts";
import { isJsonObject, type JsonObject } from "../../src/modes/kernelspace/hcn/json-fields.ts";
import "../needs/built-program.ts";
import { isOnPath } from "../support/tools.ts";
import { installWine, underWine, WINE_SERVER, wine } from "./wine-root.ts";

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
/** Kept between runs: 1.5 GB, most of it Wine's libraries and its own copies of them. */
const folder = join(root, ".cache", "wine");
const COMPILER = "x86_64-w64-mingw32-gcc";
const TOOLS = [COMPILER, "script", "unshare", "apt-get", "dpkg-deb"];

/** What Windows nodes get, rebuilt for every run, in a folder with spaces, as on Windows. */
const programFolder = join(folder, "Program Files/kube proxy");
export const windowsProgram: WindowsProgram = {
  node: join(programFolder, "node.exe"),
  script: join(programFolder, "dist/bundle/main.js"),
};

/** Without the variable that makes one Node.js test runner part of another. */
const { NODE_TEST_CONTEXT: _, ...inherited } = process.env;
const environment = {
  ...inherited,
  WINEPREFIX: join(folder, "prefix"),
  WINEARCH: "win64",
  WINESERVER: WINE_SERVER,
  WINEDEBUG: "-all",
  // A debugger would keep a crashed process alive, and the test would wait for it. There are no windows to explore.
  WINEDLLOVERRIDES: "mscoree,mshtml,winedbg.exe,explorer.exe=",
  DISPLAY: "",
};

/** Why there is no Wine here, or `false`. */
function wineSkip(): string | false {
  if (process.arch !== "x64") return "not on this machine: an x86-64 processor";
  const missing = TOOLS.filter((tool) => !isOnPath(tool));
  if (missing.length === 0) return false;
  return `no program ${missing.join(", ")} on PATH: install the package gcc-mingw-w64-x86-64-win32`;
}

/** A path of this machine as Windows programs see it. */
export const windowsPath = (path: string): string => `Z:${path.replaceAll("/", "\\")}`;

/**
 * Installs and builds what is missing: Wine, the prefix, the libraries and programs of this folder; collects the
 * program, for which dist/ must be built. Rejects if it cannot be built.
 *
 * @returns why there can be no Wine here, or `false`.
 */
export async function prepareWine(): Promise<string | false> {
  if (wineSkip() !== false) await runToEnd([process.execPath, join(root, "scripts/system-tools.mjs"), "wine"]);
  const reason = wineSkip();
  if (reason !== false) return reason;
  mkdirSync(folder, { recursive: true });
  await installWine(folder);
  const collect = must(["sh", join(root, "deploy/windows/collect-program.sh"), programFolder]);
  // One waits for the network, the others for processors.
  await Promise.all([collect, makePrefix(), ...BINARY_NAMES.map(compile)]);
  for (const name of ["computenetwork.dll", "vmcompute.dll"]) install("computenetwork.dll", name);
  install("netsh.exe", "netsh.exe");
  return false;
}

async function makePrefix(): Promise<void> {
  const marker = join(folder, "prefix-3-is-made");
  if (existsSync(marker)) return;
  rmSync(environment.WINEPREFIX, { recursive: true, force: true });
  await must(wine(folder, "wineboot", "-i"));
  // Node.js rejects older ones.
  await setRegistry("HKCU\\Software\\Wine", "Version", "win10");
  // Wine's own does nothing. Set in the registry, because services do not get our environment.
  await setRegistry("HKCU\\Software\\Wine\\DllOverrides", "netsh.exe", "native");
  // Processes that wait for further programs would keep it from ending.
  await must(underWine(folder, WINE_SERVER, "-k"));
  writeFileSync(marker, "");
}

/** Sets a string in the Windows registry. */
const setRegistry = (key: string, name: string, text: string): Promise<void> =>
  must(wine(folder, "reg", "add", key, "/v", name, "/d", text, "/f"));

/** Sends a command to the service control manager. @returns its answer. */
export async function serviceControl(...words: readonly string[]): Promise<string> {
  const { output } = await runToEnd(wine(folder, "sc", ...words));
  return output;
}

/** Starts the program: a Windows command line. */
export const programCommand = (args: readonly string[]): string =>
  [windowsPath(windowsProgram.node), windowsPath(windowsProgram.script), ...args].map((word) => `"${word}"`).join(" ");

/** What is built for Windows, and from what. */
const BINARIES = {
  "computenetwork.dll": { source: "fake-hns.c", options: ["-shared"], libraries: ["-lole32"] },
  "netsh.exe": { source: "fake-netsh.c", options: [], libraries: ["-lws2_32"] },
  "send-shutdown.exe": { source: "send-shutdown.c", options: [], libraries: [] },
} as const;

type Binary = keyof typeof BINARIES;
const BINARY_NAMES: readonly Binary[] = ["computenetwork.dll", "netsh.exe", "send-shutdown.exe"];

async function compile(name: Binary): Promise<void> {
  const { source, options, libraries } = BINARIES[name];
  const [from, to] = [fileURLToPath(new URL(source, import.meta.url)), join(folder, name)];
  if (existsSync(to) && statSync(to).mtimeMs > statSync(from).mtimeMs) return;
  await must([COMPILER, "-O1", "-Wall", "-Wextra", "-Werror", ...options, "-o", to, from, ...libraries]);
}

/** Puts one of {@link BINARIES} in place of Windows' own. */
function install(binary: Binary, name: string): void {
  copyFileSync(join(folder, binary), join(environment.WINEPREFIX, "drive_c/windows/system32", name));
}

const ENVIRONMENT = "HKLM\\System\\CurrentControlSet\\Control\\Session Manager\\Environment";

/** A folder that Windows programs see as `C:\\ProgramData`. */
export const programData = join(folder, "prefix/drive_c/ProgramData");

/**
 * Starts Windows in this process's network namespace: the part that creates its sockets keeps running until the
 * returned function is called, so that no program has to wait for it.
 *
 * @param serviceEnvironment environment of services.
 */
export async function startWindows(serviceEnvironment: Readonly<Record<string, string>>): Promise<() => Promise<void>> {
  const end = async (): Promise<void> => {
    await runToEnd(underWine(folder, WINE_SERVER, "-k"));
  };
  await end();
  for (const [name, text] of Object.entries(serviceEnvironment)) await setRegistry(ENVIRONMENT, name, text);
  // The service starter read its environment when it began.
  await end();
  await must(underWine(folder, WINE_SERVER, "-p"));
  return end;
}

async function must(words: readonly string[]): Promise<void> {
  const { status, output } = await runToEnd(words);
  if (status !== 0) throw new Error(`${words.join(" ")} ended with ${status}: ${output.trim()}`);
}

/** Rejects if it cannot be started. */
function runToEnd([file = "", ...words]: readonly string[]): Promise<{ status: number; output: string }> {
  const child = spawn(file, words, { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text: Buffer) => (output += String(text)));
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    // A process that it left behind may hold its pipe.
    child.once("exit", (status) => resolve({ status: status ?? -1, output }));
  });
}

/** Bundles a test module beside {@link windowsProgram}, whose packages it uses. */
export async function bundleForWindows(entry: string): Promise<WindowsProgram> {
  const script = join(programFolder, "tests", `${basename(entry, ".ts")}.mjs`);
  await build({
    absWorkingDir: root,
    entryPoints: [entry],
    outfile: script,
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node24",
    external: ["koffi"],
    logLevel: "warning",
  });
  return { node: windowsProgram.node, script };
}

/** The state of the fake library's HNS: the file that it reads and writes. */
export class HnsFile {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
    this.write([]);
    writeFileSync(this.noticesPath, "");
  }

  /** @param objects lines of `fake-hns.c`. */
  write(objects: readonly string[], version = "15 5"): void {
    this.#replace([`V ${version}`, `C ${objects.length}`, ...objects, ""]);
  }

  /** Notifications from HNS, one number of `HCN_NOTIFICATIONS` per line. */
  get noticesPath(): string {
    return `${this.path}.notices`;
  }

  /** HNS sends a notification. */
  notify(type: number): void {
    appendFileSync(this.noticesPath, `${type}\n`);
  }

  /** It disappears without notice. */
  lose(kind: HcnKind, id: string): void {
    const lines = readFileSync(this.path, "utf8").split("\n");
    this.#replace(lines.filter((line) => !line.startsWith(`${kind[0]} ${id} `)));
  }

  /** Atomic: a half-written file would be a host without a network. */
  #replace(lines: readonly string[]): void {
    const draft = `${this.path}.draft`;
    writeFileSync(draft, lines.join("\n"));
    renameSync(draft, this.path);
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

/** What a Windows node runs. */
export interface WindowsProgram {
  /** `node.exe`. */
  readonly node: string;
  readonly script: string;
}

export interface WineRun extends WindowsProgram {
  readonly args: readonly string[];
  /** For programs that speak to HNS. */
  readonly hns?: HnsFile;
  /** Added to the environment. */
  readonly env?: Readonly<Record<string, string>>;
  /** The process's output: Node.js for Windows cannot write to a Wine pipe. */
  readonly output: string;
}

/** A Node.js for Windows program on its own terminal. */
export class WineProcess {
  readonly #child: ChildProcess;
  readonly #output: string;
  readonly #processId: string;
  /** The exit status. */
  readonly ended: Promise<number>;

  constructor({ node, script, args, hns, env, output }: WineRun) {
    this.#output = output;
    this.#processId = `${output}.pid`;
    const words = wine(folder, windowsPath(node), windowsPath(script), ...args)
      .map(quoted)
      .join(" ");
    const command = `exec ${words} >${quoted(output)} 2>&1`;
    this.#child = spawn("script", ["-qfec", command, "/dev/null"], {
      env: {
        ...environment,
        SHELL: "/bin/sh",
        // Between quotes, backslashes count double.
        NODE_OPTIONS: `--require "${windowsPath(PRELOAD).replaceAll("\\", "\\\\")}"`,
        KPTS_PROCESS_ID: windowsPath(this.#processId),
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

  /** As at the end of a HostProcess container. */
  async shutDown(): Promise<void> {
    await must(wine(folder, join(folder, "send-shutdown.exe"), readFileSync(this.#processId, "utf8")));
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }
}

const PRELOAD = fileURLToPath(new URL("tell-process-id.cjs", import.meta.url));
const quoted = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

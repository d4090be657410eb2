/** A headless Chromium for page tests: started once per file, driven over its own protocol, with nothing in between. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { runCommand } from "../net/run-command.ts";
import { skipWithoutTool } from "../support/tools.ts";
import { BrowserPage } from "./browser-page.ts";
import { DevTools } from "./dev-tools.ts";

/** Installs it if it is missing and that is possible. @returns why there is no browser here, for the `skip` option of tests, or `false`. */
export async function skipWithoutChromium(): Promise<string | false> {
  const reason = () => skipWithoutTool("chromium", "chromium");
  if (reason() !== false)
    await runCommand([process.execPath, SYSTEM_TOOLS, "browser"], { timeoutMs: INSTALL_LIMIT_MS });
  return reason();
}

const SYSTEM_TOOLS = fileURLToPath(new URL("../../scripts/system-tools.mjs", import.meta.url));
/** Other packages may be installed first. */
const INSTALL_LIMIT_MS = 400_000;

/** It requests only what a page requests. */
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--disable-dev-shm-usage",
  "--no-first-run",
  "--no-default-browser-check",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
  "--remote-debugging-port=0",
];

export class Chromium implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #tools: DevTools;

  private constructor(child: ChildProcess, folder: string, tools: DevTools) {
    this.#child = child;
    this.#folder = folder;
    this.#tools = tools;
  }

  /** @throws Error if it ends before it listens. */
  static async start(): Promise<Chromium> {
    const folder = mkdtempSync(join(tmpdir(), "kpts-chromium-"));
    const child = spawn("chromium", [...FLAGS, `--user-data-dir=${folder}`, "about:blank"], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    try {
      const tools = await DevTools.connect(await addressOf(child));
      return new Chromium(child, folder, tools);
    } catch (error) {
      child.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  /** Opens a new tab. */
  async page(): Promise<BrowserPage> {
    return await BrowserPage.open(this.#tools);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const gone = once(this.#child, "exit");
    // Its helper processes end with it; this way it also writes out its data.
    await this.#tools.call("Browser.close").catch(() => this.#child.kill("SIGKILL"));
    await gone;
    this.#tools.close();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  }
}

async function addressOf(child: ChildProcess): Promise<string> {
  if (child.stderr === null) throw new Error("chromium has no standard error");
  const said: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line);
    const [, address] = /^DevTools listening on (ws:\S+)/.exec(line) ?? [];
    if (address === undefined) continue;
    // Later output must not fill the pipe.
    child.stderr.resume();
    return address;
  }
  throw new Error(`chromium has ended: ${said.join("\n")}`);
}

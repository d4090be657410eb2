/** An established TCP connection that a test keeps idle over some event and uses afterwards. */
import type { ChildProcess } from "node:child_process";
import { createInterface, type Interface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { BackendAnswer } from "../../../testkit/net/messages.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";
import { PATIENCE } from "../../../testkit/support/patience.ts";
import type { Address } from "./asking.ts";

const PROGRAM = fileURLToPath(new URL("held-connection-process.ts", import.meta.url));
/** For a test that hangs; the namespace ends it otherwise. */
const LIMIT_MS = 120_000 * PATIENCE;

export class HeldConnection {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  private constructor(child: ChildProcess, lines: Interface) {
    this.#child = child;
    this.#lines = lines[Symbol.asyncIterator]();
  }

  /** Resolves when the connection is established; the process ends with its namespace at the latest. */
  static async open(from: NetworkNamespace, { address, port }: Address): Promise<HeldConnection> {
    const child = from.spawn([process.execPath, PROGRAM, address, String(port)], {
      stdio: ["pipe", "pipe", "inherit"],
      timeout: LIMIT_MS,
      killSignal: "SIGKILL",
    });
    if (child.stdout === null) throw new Error("a piped child has a standard output");
    const held = new HeldConnection(child, createInterface({ input: child.stdout }));
    const line = await held.#line();
    if (line !== "open") throw new Error(`no connection to ${address} port ${port}: ${line}`);
    return held;
  }

  /** Makes the one request. @returns the pod that answered, or how the connection ended. */
  async use(): Promise<string> {
    this.#child.stdin?.write("go\n");
    const line = await this.#line();
    return line.startsWith("{") ? (JSON.parse(line) as BackendAnswer).pod : line;
  }

  /** Ends the connection with a reset. */
  async reset(): Promise<void> {
    this.#child.stdin?.write("reset\n");
    await this.#line();
  }

  async #line(): Promise<string> {
    const { done, value } = await this.#lines.next();
    return done === true ? "the connection was silent" : value;
  }
}

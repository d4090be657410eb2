/** Starts attackers in a daemon's namespace. */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "../../testkit/net/network-namespace.ts";

const PROGRAM = fileURLToPath(new URL("attacker.ts", import.meta.url));

export interface Probe {
  readonly count: number;
  /** Questions without an answer of status 200. */
  readonly failed: number;
  /** Without what either side waited for a processor, which is the machine's. */
  readonly medianMs: number;
  readonly longestMs: number;
}

export class Attacker {
  readonly #child: ChildProcess;
  readonly #lines: AsyncIterator<string>;

  private constructor(child: ChildProcess, lines: AsyncIterator<string>) {
    this.#child = child;
    this.#lines = lines;
  }

  /** Resolves when it has begun. */
  static async start(namespace: NetworkNamespace, ...words: readonly (string | number)[]): Promise<Attacker> {
    const child = namespace.spawn([process.execPath, PROGRAM, ...words.map(String)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    if (child.stdout === null) throw new Error("a piped child has a standard output");
    const attacker = new Attacker(child, createInterface({ input: child.stdout })[Symbol.asyncIterator]());
    const line = await attacker.#line();
    if (line !== "ready") throw new Error(`attacker ${words.join(" ")}: ${line}`);
    return attacker;
  }

  /** Ends a probe. @returns what it saw. */
  async result(): Promise<Probe> {
    this.#child.stdin?.end();
    return JSON.parse(await this.#line());
  }

  end(): void {
    signalChild(this.#child, "SIGKILL");
  }

  async #line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    return done === true ? "it has ended" : value;
  }
}

/** `nft monitor` in a namespace: what every commit changed, and who made it. */
import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { signalChild } from "../../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "../../../testkit/net/network-namespace.ts";

export interface Commit {
  /** A line for each object added or deleted, as nft prints it. */
  readonly changes: readonly string[];
  /** Name of the process. */
  readonly by: string;
}

/** A table that proves that the monitor is listening. */
const PROBE = "monitor-probe";

export class NftMonitor {
  readonly #commits: Commit[] = [];
  #hasLost = false;
  readonly #child: ChildProcess;
  #changes: string[] = [];
  #rest = "";

  private constructor(node: NetworkNamespace) {
    // Output that does not go to a terminal is buffered, unless line buffering is requested.
    this.#child = node.spawn(["stdbuf", "-oL", "nft", "monitor"], { stdio: ["ignore", "pipe", "inherit"] });
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => this.#onText(text));
  }

  /** Resolves once it sees new commits. */
  static async start(node: NetworkNamespace): Promise<NftMonitor> {
    const monitor = new NftMonitor(node);
    while (monitor.commits.length === 0) {
      await node.exec(["nft", `add table ip ${PROBE}; delete table ip ${PROBE}`]);
      await sleep(20);
    }
    await node.exec(["nft", `add table ip ${PROBE}-end`]);
    while (!monitor.commits.some(({ changes }) => changes.some((line) => line.includes(`${PROBE}-end`))))
      await sleep(5);
    await node.exec(["nft", `delete table ip ${PROBE}-end`]);
    while (!monitor.commits.at(-1)?.changes.some((line) => line.startsWith("delete table"))) await sleep(5);
    monitor.commits.length = 0;
    return monitor;
  }

  /** Complete ones, oldest first. @throws Error if events were lost: then an absent commit proves nothing */
  get commits(): Commit[] {
    if (this.#hasLost) throw new Error("nft monitor lost events");
    return this.#commits;
  }

  stop(): void {
    signalChild(this.#child);
  }

  #onText(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("# ERROR")) this.#hasLost = true;
      const by = /^# new generation \d+ by process \d+ \((.*)\)$/.exec(line)?.[1];
      if (by === undefined) this.#changes.push(line);
      else {
        this.#commits.push({ changes: this.#changes, by });
        this.#changes = [];
      }
    }
  }
}

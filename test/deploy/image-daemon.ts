/** kube-proxy as the image's container, in a network namespace. */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { signalChild } from "../../src/kernel/child-process.ts";
import { startProber } from "../../testkit/net/namespace-prober.ts";
import type { NetworkNamespace } from "../../testkit/net/network-namespace.ts";
import { type ContainerMounts, type Image, inContainer } from "./image-under-test.ts";

/** Generous: two noisy cores. */
const PATIENCE_MS = 60_000;
const COMMAND = [
  "/usr/local/bin/kube-proxy",
  "--config=/var/lib/kube-proxy/config.conf",
  "--hostname-override=node-a",
] as const;

export class ImageDaemon {
  readonly #child;
  readonly #prober;
  readonly #ended: Promise<number | null>;
  #log = "";

  /** Starts it with the DaemonSet's command, and more arguments. End it with {@link ImageDaemon.dispose}. */
  constructor(namespace: NetworkNamespace, image: Image, mounts: ContainerMounts, args: readonly string[] = []) {
    this.#prober = startProber(namespace);
    const argv = inContainer(image, mounts, [...COMMAND, ...args]);
    this.#child = namespace.spawn(argv, { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#log += text;
      });
    }
    this.#ended = new Promise((resolve) => this.#child.once("exit", resolve));
  }

  get log(): string {
    return this.#log;
  }

  /** Waits for the first successful sync; fails with the log. */
  async synced(): Promise<void> {
    const synced = /^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="IPv4"\} \d/m;
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const { body } = await this.#prober.fetch("http://127.0.0.1:10249/metrics", 5_000);
      if (synced.test(body)) return;
      if (this.#child.exitCode !== null || Date.now() > deadline) throw new Error(`no sync; the log:\n${this.#log}`);
      await sleep(100);
    }
  }

  /** Sends SIGTERM to the program, which is PID 1 in its container. @returns the exit status. */
  async stop(): Promise<number | null> {
    const { pid } = this.#child;
    if (pid === undefined) throw new Error("it could not be started");
    // `unshare` waits for the one process that it has started.
    const child = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
    if (!/^[1-9]\d*$/.test(child)) throw new Error(`expected one process under ${pid}, got "${child}"`);
    process.kill(Number(child), "SIGTERM");
    return await this.#ended;
  }

  dispose(): void {
    signalChild(this.#child, "SIGKILL");
    this.#prober.close();
  }
}

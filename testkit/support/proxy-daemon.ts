/**
 * The real program under test: `bin/kube-proxy` in a namespace, with a folder of manifests that the test edits, watched
 * through its log and its ports.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { signalChild } from "../../src/kernel/child-process.ts";
import { KUBE_PROXY } from "../needs/built-program.ts";
import { type FetchAnswer, fetchInside } from "../net/fetch-inside.ts";
import type { NetworkNamespace } from "../net/network-namespace.ts";
import { PATIENCE, stretched, until } from "./patience.ts";

/** On an idle machine. */
const PATIENCE_MS = 30_000;

/** Conntrack limits are machine-wide, and read-only in a namespace: leave them alone. */
const CONNTRACK_AS_IS = { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" } as const;

export interface DaemonOptions {
  /** KubeProxyConfiguration, merged over one that works in a namespace. */
  readonly config?: Readonly<Record<string, unknown>>;
  readonly hostnameOverride: string;
  /** Written as one List before the start. */
  readonly objects: readonly unknown[];
  /** URL of an API server to use instead of them. */
  readonly master?: string;
  /** Further arguments. */
  readonly args?: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
  /** @default `bin/kube-proxy` of this checkout */
  readonly program?: string;
  /** A program with its arguments that starts it, such as `unshare`. */
  readonly wrapper?: readonly [string, ...string[]];
}

export class ProxyDaemon {
  readonly folder: string;
  readonly namespace: NetworkNamespace;
  /** Its whole log so far. */
  log = "";
  readonly #options: DaemonOptions;
  #child: ChildProcess | undefined;
  #closed: Promise<void> | undefined;

  private constructor(namespace: NetworkNamespace, options: DaemonOptions) {
    this.namespace = namespace;
    this.#options = options;
    this.folder = mkdtempSync(join(tmpdir(), "kpts-daemon-"));
    this.writeObjects(options.objects);
    const config = {
      apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
      kind: "KubeProxyConfiguration",
      conntrack: CONNTRACK_AS_IS,
      ...options.config,
    };
    writeFileSync(join(this.folder, "config.json"), JSON.stringify(config));
  }

  /** Writes its files, for a test that wants to watch the start. Remove with {@link ProxyDaemon.dispose}. */
  static prepare(namespace: NetworkNamespace, options: DaemonOptions): ProxyDaemon {
    return new ProxyDaemon(namespace, options);
  }

  /** Starts it and waits for the first sync of every family. Remove with {@link ProxyDaemon.dispose}. */
  static async start(namespace: NetworkNamespace, options: DaemonOptions): Promise<ProxyDaemon> {
    const daemon = ProxyDaemon.prepare(namespace, options);
    daemon.spawn();
    await daemon.synced();
    return daemon;
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }

  get manifests(): string {
    return join(this.folder, "manifests");
  }

  /** Replaces the cluster, atomically as an editor would. */
  writeObjects(objects: readonly unknown[]): void {
    mkdirSync(this.manifests, { recursive: true });
    writeFileSync(join(this.folder, "next.json"), JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }));
    renameSync(join(this.folder, "next.json"), join(this.manifests, "cluster.json"));
  }

  /**
   * Starts the process (again); does not wait.
   *
   * @param wrapper as in the options, for this time.
   * @param more arguments for this time.
   */
  spawn(wrapper = this.#options.wrapper, more: readonly string[] = []): void {
    const { hostnameOverride, master, args = [], env, program = KUBE_PROXY } = this.#options;
    const command: [string, ...string[]] = wrapper === undefined ? [program] : [...wrapper, program];
    const child = this.namespace.spawn(
      [
        ...command,
        `--config=${join(this.folder, "config.json")}`,
        master === undefined ? `--manifests=${this.manifests}` : `--master=${master}`,
        `--hostname-override=${hostnameOverride}`,
        "-v=2",
        ...args,
        ...more,
      ],
      { stdio: ["ignore", "pipe", "pipe"], ...(env === undefined ? {} : { env: { ...process.env, ...env } }) },
    );
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.log += text;
      });
    }
    child.once("exit", (code, signal) => {
      this.log += `(the process ended with ${code ?? signal})\n`;
    });
    this.#child = child;
    this.#closed = new Promise((resolve) => child.once("close", () => resolve()));
  }

  /** Fetches from inside the namespace; status 0 without an answer. */
  fetch(url: string): Promise<FetchAnswer> {
    return fetchInside(this.namespace, url, stretched(5_000));
  }

  /** One sample of /metrics; undefined if it is absent. `series` is the name with its labels. */
  async metric(series: string): Promise<number | undefined> {
    const { body } = await this.fetch("http://127.0.0.1:10249/metrics");
    const line = body.split("\n").find((candidate) => candidate.startsWith(`${series} `));
    return line === undefined ? undefined : Number(line.slice(series.length + 1));
  }

  /** Waits until every family named has synced successfully after `sinceMs` (Unix time). */
  async synced(sinceMs = 0, families: readonly string[] = ["IPv4", "IPv6"]): Promise<void> {
    const name = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
    await this.until("a successful sync", async () => {
      const child = this.#child;
      if (child !== undefined && (child.exitCode !== null || child.signalCode !== null)) {
        throw new Error(`the daemon ended with ${child.exitCode ?? child.signalCode} instead of syncing:\n${this.log}`);
      }
      const { body } = await this.fetch("http://127.0.0.1:10249/metrics");
      return families.every((family) => {
        const sample = new RegExp(`^${name}\\{ip_family="${family}"\\} (.*)$`, "m").exec(body);
        return sample !== null && Number(sample[1]) * 1000 > sinceMs;
      });
    });
  }

  /** Waits until the condition holds; fails with the daemon's log. @param limitMs on an idle machine. */
  async until(what: string, condition: () => Promise<boolean> | boolean, limitMs = PATIENCE_MS): Promise<void> {
    await until(what, condition, {
      patienceMs: limitMs,
      // Each check costs the daemon, too: on emulated processors that is what makes it late.
      pauseMs: 50 * PATIENCE,
      evidence: () => `the daemon's log:\n${this.log}`,
    });
  }

  /** Waits until the log contains it: log lines may arrive after the effect has been seen. */
  async logged(pattern: RegExp): Promise<void> {
    await this.until(`${pattern} in the log`, () => pattern.test(this.log));
  }

  /** The output of a save tool, without counters and comments. */
  async saved(tool: "iptables-save" | "ip6tables-save"): Promise<string> {
    const { stdout } = await this.namespace.exec([tool]);
    return stdout.replaceAll(/^#.*\n/gm, "").replaceAll(/ \[\d+:\d+\]$/gm, "");
  }

  /** Waits for the process to end. @returns the exit status, or the signal that ended it; null without one. */
  async ended(): Promise<number | NodeJS.Signals | null> {
    const child = this.#child;
    if (child === undefined) return null;
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    // Its last lines may still be in the pipe, which a process of its own may hold open.
    await Promise.race([this.#closed, sleep(2_000, undefined, { ref: false })]);
    return child.exitCode ?? child.signalCode;
  }

  /** Sends a signal and waits for the end, as {@link ProxyDaemon.ended} does. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<number | NodeJS.Signals | null> {
    if (this.#child !== undefined) signalChild(this.#child, signal);
    return await this.ended();
  }

  /** Ends everything and removes the folder; the namespace is the caller's. */
  async dispose(): Promise<void> {
    await this.stop("SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }
}

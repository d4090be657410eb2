/** The real proxy, started in the demo's node as a user would start it, and observed through its metrics. */
import type { ChildProcess } from "node:child_process";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { signalChild } from "../src/kernel/child-process.ts";
import { MODES, type ProxyMode } from "../src/modes/registry.ts";
import { KUBE_PROXY } from "../testkit/needs/built-program.ts";
import type { Prober } from "../testkit/net/namespace-prober.ts";
import type { NetworkNamespace } from "../testkit/net/network-namespace.ts";
import { isLeftover, newRunName } from "../testkit/net/run-name.ts";
import { defaultClusterCidr } from "../testkit/net/topology-spec.ts";

const METRICS_ADDRESS = "127.0.0.1:10249";
/** The port of the page, at the node's loopback address. */
export const PAGE_PORT = 10260;
const LAST_SYNC = /^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{[^}]*ip_family="(IPv[46])"[^}]*\} (\S+)$/gm;
const LOG_LINES = 200;

/** How the proxy is started. */
export interface ProxyStart {
  readonly mode: ProxyMode;
  /** Fields of the mode's section. */
  readonly chosen?: Readonly<Record<string, string>>;
  readonly manifests: string;
  readonly nodeName: string;
}

/** The proxy's configuration. */
export function configOf({ mode, chosen }: Pick<ProxyStart, "mode" | "chosen">): object {
  // Syncs are not spread out, so that changes of a manifest show at once; the other values are defaults.
  const periods = { minSyncPeriod: "50ms", syncPeriod: "30s" };
  const sections = MODES.filter(({ config }) => Object.hasOwn(config.fields, "minSyncPeriod"));
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode,
    clusterCIDR: defaultClusterCidr,
    healthzBindAddress: "0.0.0.0:10256",
    metricsBindAddress: METRICS_ADDRESS,
    bindAddressHardFail: true,
    ...Object.fromEntries(sections.map(({ name }) => [name, name === mode ? { ...periods, ...chosen } : periods])),
    // The conntrack sysctls can only be written in the initial network namespace.
    conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: "0s", tcpCloseWaitTimeout: "0s" },
  };
}

/** Removes the configuration of runs that were killed. */
async function removeLeftoverFolders(): Promise<void> {
  const leftovers = (await readdir(tmpdir())).filter((name) => isLeftover(name));
  await Promise.all(leftovers.map((name) => rm(join(tmpdir(), name), { recursive: true, force: true })));
}

/** The time of each family's last successful sync, in Unix milliseconds. */
export function lastSyncTimes(metrics: string): ReadonlyMap<string, number> {
  return new Map([...metrics.matchAll(LAST_SYNC)].map(([, family = "", seconds]) => [family, Number(seconds) * 1000]));
}

/** The proxy exited by itself; the message ends with its last log lines. */
export class ProxyEndedError extends Error {
  override readonly name = "ProxyEndedError";
}

function filesIn(folder: string): [socket: string, config: string] {
  return [join(folder, "sock"), join(folder, "config.yaml")];
}

/** A running proxy; always end it with {@link ProxyProcess.stop}. */
export class ProxyProcess {
  /** Of the inspect socket, for the commands that ask a daemon. */
  readonly socket: string;
  /** The file of its configuration. */
  readonly config: string;
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #prober: Prober;
  #log: string[] = [];
  #isAtSocket: boolean | undefined;
  #ended: string | undefined;
  #isStopping = false;

  private constructor(child: ChildProcess, folder: string, prober: Prober) {
    this.#child = child;
    this.#folder = folder;
    [this.socket, this.config] = filesIn(folder);
    this.#prober = prober;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        if (text.includes("are decided at the socket")) this.#isAtSocket = true;
        else if (text.includes("Nothing is decided at the socket;")) this.#isAtSocket = false;
        this.#log = [...this.#log, ...text.split("\n").filter((line) => line !== "")].slice(-LOG_LINES);
      });
    }
    child.on("error", (error) => {
      this.#ended = error.message;
    });
    child.on("exit", (code, signal) => {
      this.#ended = signal ?? `exit status ${code}`;
    });
  }

  /** @param prober a client in the node's namespace, to read the metrics with. */
  static async start(namespace: NetworkNamespace, prober: Prober, start: ProxyStart): Promise<ProxyProcess> {
    await removeLeftoverFolders();
    // A short name: people type it.
    const folder = await mkdtemp(join(tmpdir(), `${newRunName("demo")}-`));
    const [socket, config] = filesIn(folder);
    await writeFile(config, `${JSON.stringify(configOf(start), null, 2)}\n`);
    const own = ["--hostname-override", start.nodeName, "--inspect-bind-address", `127.0.0.1:${PAGE_PORT}`];
    const args = ["--config", config, "--manifests", start.manifests, `--inspect-socket=${socket}`, ...own];
    // In its own session, so that Ctrl-C in the terminal reaches only the demo, which then stops the proxy.
    const child = namespace.spawn([KUBE_PROXY, ...args], { stdio: ["ignore", "pipe", "pipe"], detached: true });
    return new ProxyProcess(child, folder, prober);
  }

  /** Whether endpoints are chosen at the socket, by the proxy's last log line about it; undefined if there is none. */
  get isAtSocket(): boolean | undefined {
    return this.#isAtSocket;
  }

  /** The proxy's last log lines. */
  get log(): readonly string[] {
    return this.#log;
  }

  /** Drops the log so far, for example about the start, or about problems that are fixed since. */
  forgetLog(): void {
    this.#log = [];
  }

  /** @throws ProxyEndedError if the proxy has exited without being told to. */
  assertRunning(): void {
    if (this.#ended === undefined || this.#isStopping) return;
    throw new ProxyEndedError(`kube-proxy ended (${this.#ended}):\n${this.#log.slice(-15).join("\n")}`);
  }

  /**
   * Waits until this many families have synced at or after a time: two at the start, one after a change, which may only
   * concern one family.
   *
   * @param sinceMs Unix milliseconds.
   * @returns the latest sync time, or `undefined` if the timeout or the signal came first.
   */
  async waitForSync(
    families: 1 | 2,
    sinceMs: number,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      this.assertRunning();
      const { body } = await this.#prober.fetch(`http://${METRICS_ADDRESS}/metrics`, 1000);
      const times = [...lastSyncTimes(body).values()].filter((time) => time >= sinceMs);
      if (times.length >= families) return Math.max(...times);
      if (Date.now() >= deadline || signal.aborted) return undefined;
      await sleep(25);
    }
  }

  /** Stops the proxy as an init system would, kills it after two seconds, and removes its configuration. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.#ended === undefined) {
      signalChild(this.#child, "SIGTERM");
      const deadline = Date.now() + 2000;
      while (this.#ended === undefined && Date.now() < deadline) await sleep(10);
      if (this.#ended === undefined) signalChild(this.#child, "SIGKILL");
    }
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/**
 * The real program with kubeadm's files, as a pod of kubeadm's DaemonSet finds them, against the test API server. Started
 * in the namespace of its caller: see `inNetns`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { signalChild } from "../../src/kernel/child-process.ts";
import { until } from "../../testkit/support/patience.ts";
import { BusyClock } from "../../testkit/support/processor-wait.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import { CONFIG_CONF, kubeconfigConf } from "./kubeadm-files.ts";
import { RESOURCE_TYPES } from "./resource-types.ts";
import { nodeProxierRole, TestApiServer, type TestApiServerOptions } from "./test-api-server.ts";

/** The program as users start it: what is built, where it is. */
export const PROGRAM: readonly string[] = [fileURLToPath(new URL("../../bin/kube-proxy", import.meta.url))];
/** Generous: two noisy cores, several tests at once. */
export const PATIENCE_MS = 30_000;

export const POD_TOKEN = "pod-token";
export const POD_USER = "system:serviceaccount:kube-system:kube-proxy";

/** Lays the files out as the pod has them, in a mount namespace of the program's own, and becomes the program. */
const IN_POD = `
set -e
mount -t tmpfs none /var/lib && mkdir /var/lib/kube-proxy
cp "$FILES"/*.conf /var/lib/kube-proxy/
# A virtual machine has tools in /run/vm (testkit/vm).
[ ! -d /run/vm ] || { mkdir "$FILES/vm" && mount --bind /run/vm "$FILES/vm"; }
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io
[ ! -d "$FILES/vm" ] || ln -s "$FILES/vm" /run/vm
ln -s "$FILES/serviceaccount" /run/secrets/kubernetes.io/serviceaccount
# The limit of connections is the whole machine's, and a namespace cannot raise it: let it look high enough.
echo 1048576 > "$FILES/conntrack_max"
max=/proc/sys/net/netfilter/nf_conntrack_max
[ ! -e $max ] || mount --bind "$FILES/conntrack_max" $max
exec "$@"
`;

export interface ApiDaemonOptions {
  readonly url: string;
  /** PEM of the authority that the pod trusts. */
  readonly ca: string;
  /** `config.conf`. @default kubeadm's */
  readonly config?: string;
  /** `kubeconfig.conf`. @default kubeadm's, for the server */
  readonly kubeconfig?: string;
  /** @default the pod's, which {@link startClusterServer} knows */
  readonly token?: string;
  /** What is run, before the arguments. @default {@link PROGRAM} */
  readonly program?: readonly string[];
  /** More arguments. */
  readonly args?: readonly string[];
}

export class ApiDaemon {
  /** Holds `config.conf`, `kubeconfig.conf` (copied at the start) and `serviceaccount/` (as it is now). */
  readonly folder: string;
  readonly child: ChildProcess;
  /** Everything it has logged. */
  log = "";

  constructor(options: ApiDaemonOptions) {
    const { url, ca, config = CONFIG_CONF, kubeconfig = kubeconfigConf(url), token = POD_TOKEN, args = [] } = options;
    this.folder = mkdtempSync(join(tmpdir(), "kpts-kubeadm-"));
    mkdirSync(join(this.folder, "serviceaccount"));
    writeFileSync(join(this.folder, "config.conf"), config);
    writeFileSync(join(this.folder, "kubeconfig.conf"), kubeconfig);
    writeFileSync(join(this.folder, "serviceaccount/ca.crt"), ca);
    writeFileSync(join(this.folder, "serviceaccount/token"), token);
    const program = options.program ?? PROGRAM;
    const flags = ["--config=/var/lib/kube-proxy/config.conf", "--hostname-override=node-a", ...args];
    // Ends with this process, however that ends.
    const wrapper = ["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", IN_POD, "sh"];
    this.child = spawn("setpriv", [...wrapper, ...program, ...flags], {
      env: { ...process.env, FILES: this.folder },
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.log += text;
    });
  }

  /** The program's own process: everything before it has become it. */
  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** Lines of the log that match. */
  lines(pattern: RegExp): readonly string[] {
    return this.log.split("\n").filter((line) => pattern.test(line));
  }

  /** Waits until the condition holds; fails with the log. */
  async until(what: string, condition: () => boolean | Promise<boolean>, limitMs?: number): Promise<void> {
    await until(what, condition, {
      patienceMs: PATIENCE_MS,
      exactLimitMs: limitMs,
      pauseMs: 20,
      evidence: () => `the log:\n${this.log}`,
    });
  }

  /** Waits until a line of the log matches. */
  async said(pattern: RegExp): Promise<void> {
    await this.until(`a line that matches ${pattern}`, () => this.lines(pattern).length > 0);
  }

  /** Waits until both families have been synced once. */
  async synced(): Promise<void> {
    await this.until("the first syncs", async () => {
      const name = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
      const metrics = await fetch("http://127.0.0.1:10249/metrics").then(
        (answer) => answer.text(),
        () => "",
      );
      return metrics.includes(`${name}{ip_family="IPv4"}`) && metrics.includes(`${name}{ip_family="IPv6"}`);
    });
  }

  /**
   * Waits for the end.
   *
   * @param limitMs how long it may take, without what it waits for a processor. @returns the exit status; null when a signal ended it.
   */
  async ended(limitMs = Number.POSITIVE_INFINITY): Promise<number | null> {
    const clock = new BusyClock(this.pid, "self");
    let tookMs = 0;
    await this.until("the end", () => {
      tookMs = clock.elapsedMs();
      return this.child.exitCode !== null || this.child.signalCode !== null;
    });
    if (tookMs > limitMs) throw new Error(`the end took ${Math.round(tookMs)} ms; the log:\n${this.log}`);
    return this.child.exitCode;
  }

  /** Ends it at once and removes its files. */
  async dispose(): Promise<void> {
    signalChild(this.child, "SIGKILL");
    await until("the end", () => this.child.exitCode !== null || this.child.signalCode !== null);
    rmSync(this.folder, { recursive: true });
  }
}

/** What ends with it: a test, or a run of something else. */
interface Lifetime {
  after(callback: () => Promise<void>): void;
}

/** Starts a server with a node, a service and its endpoint, for which the pod has exactly the role of kube-proxy. */
export async function startClusterServer(
  t: Lifetime,
  options: TestApiServerOptions & { readonly port?: number } = {},
): Promise<TestApiServer> {
  const server = await TestApiServer.start(options);
  t.after(() => server.close());
  server.switches.tokens = new Map([[POD_TOKEN, POD_USER]]);
  server.switches.isAllowed = nodeProxierRole(RESOURCE_TYPES);
  server.put("nodes", node("node-a"));
  server.put("servicecidrs", serviceCidr());
  server.put("services", service(1));
  server.put("endpointslices", slice(1));
  // It was started in a cluster that had these already.
  server.store.restart();
  return server;
}

/** Starts the program; it ends with the test. */
export function startApiDaemon(t: Lifetime, server: TestApiServer, options: Partial<ApiDaemonOptions> = {}): ApiDaemon {
  const daemon = new ApiDaemon({ url: server.url, ca: server.authority.certificate, ...options });
  t.after(() => daemon.dispose());
  return daemon;
}

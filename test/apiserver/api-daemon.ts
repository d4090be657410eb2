/**
 * Runs the real program against the test API server, with kubeadm's files as a pod of its DaemonSet sees them. Runs in
 * the caller's network namespace: see `inNetns`.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { signalChild } from "../../src/kernel/child-process.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import { until } from "../../testkit/support/patience.ts";
import { BusyClock } from "../../testkit/support/processor-wait.ts";
import { node, service, serviceCidr, slice } from "./example-objects.ts";
import { CONFIG_CONF, kubeconfigConf } from "./kubeadm-files.ts";
import { RESOURCE_TYPES } from "./resource-types.ts";
import { nodeProxierRole, TestApiServer, type TestApiServerOptions } from "./test-api-server.ts";

/** The built program, as users start it. */
export const PROGRAM: readonly string[] = [KUBE_PROXY];
/** Generous, for several tests at once on two busy cores. */
export const PATIENCE_MS = 30_000;

export const POD_TOKEN = "pod-token";
export const POD_USER = "system:serviceaccount:kube-system:kube-proxy";

/** Lays out the pod's files in a mount namespace of its own, then execs the program. */
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
  /** PEM of the CA that the pod trusts. */
  readonly ca: string;
  /** `config.conf`. @default kubeadm's */
  readonly config?: string;
  /** `kubeconfig.conf`. @default kubeadm's, for the server */
  readonly kubeconfig?: string;
  /** @default the pod's token, which {@link startClusterServer} accepts */
  readonly token?: string;
  /** The command before the arguments. @default {@link PROGRAM} */
  readonly program?: readonly string[];
  readonly args?: readonly string[];
}

export class ApiDaemon {
  /** Contains `config.conf` and `kubeconfig.conf` (copied at the start), and `serviceaccount/` (live). */
  readonly folder: string;
  readonly child: ChildProcess;
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
    // Killed with this process, however that ends.
    const wrapper = ["--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", IN_POD, "sh"];
    this.child = spawn("setpriv", [...wrapper, ...program, ...flags], {
      env: { ...process.env, FILES: this.folder },
      stdio: ["ignore", "ignore", "pipe"],
    });
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.log += text;
    });
  }

  /** The program's own PID: all wrappers exec the next command. */
  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** Matching lines of the log. */
  lines(pattern: RegExp): readonly string[] {
    return this.log.split("\n").filter((line) => pattern.test(line));
  }

  /** Waits until the condition holds; the failure includes the log. */
  async until(what: string, condition: () => boolean | Promise<boolean>, limitMs = PATIENCE_MS): Promise<void> {
    await until(what, condition, {
      patienceMs: limitMs,
      pauseMs: 20,
      evidence: () => `the log:\n${this.log}`,
    });
  }

  /** Waits for a matching line in the log. */
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
   * Waits until the program exits.
   *
   * @param limitMs the time limit, without waits for a CPU. @returns the exit status; null if a signal killed it.
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

  /** Kills the program and removes its files. */
  async dispose(): Promise<void> {
    signalChild(this.child, "SIGKILL");
    await until("the end", () => this.child.exitCode !== null || this.child.signalCode !== null);
    rmSync(this.folder, { recursive: true });
  }
}

/** The scope that cleans up: a test, or another kind of run. */
interface Lifetime {
  after(callback: () => Promise<void>): void;
}

/** Starts a server with a node, a service and its endpoint; the pod's token has exactly kube-proxy's role. */
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
  // As if these objects existed before the server started.
  server.store.restart();
  return server;
}

/** Starts the program, which ends with the test. */
export function startApiDaemon(t: Lifetime, server: TestApiServer, options: Partial<ApiDaemonOptions> = {}): ApiDaemon {
  const daemon = new ApiDaemon({ url: server.url, ca: server.authority.certificate, ...options });
  t.after(() => daemon.dispose());
  return daemon;
}
